//! The eBPF program at an interface. It redirects frames of our EtherType to the socket of their
//! queue, and passes all others.
//!
//! The program has a dozen instructions and is assembled manually, so that builds need no BPF
//! compiler. It only checks the EtherType. The destination of a frame is checked later, in the same
//! place as for frames that arrive through the packet socket.

use crate::ethernet::frame::ETHERNET_BYTES;

/// One instruction in the kernel's format, `struct bpf_insn` of linux/bpf.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    operation: u8,
    /// The destination in the low half, the source in the high half. C bit-fields have this order
    /// only on little-endian machines.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// Operations of linux/bpf.h and linux/bpf_common.h.
const LOAD_WORD: u8 = 0x61;
const LOAD_HALF: u8 = 0x69;
const LOAD_IMMEDIATE: u8 = 0x18;
const MOVE: u8 = 0xbf;
const MOVE_IMMEDIATE: u8 = 0xb7;
const ADD_IMMEDIATE: u8 = 0x07;
const JUMP_GREATER: u8 = 0x2d;
const JUMP_NOT_IMMEDIATE: u8 = 0x55;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// Marks an immediate as the descriptor of a map (`BPF_PSEUDO_MAP_FD`).
const MAP_DESCRIPTOR: u8 = 1;
/// `bpf_redirect_map`: redirects to the socket at an index of the map. If there is none, returns
/// its last argument.
const REDIRECT: i32 = 51;
const PASS: i32 = 2;
/// Offsets in `struct xdp_md`.
const CONTEXT_DATA: i16 = 0;
const CONTEXT_DATA_END: i16 = 4;
const CONTEXT_QUEUE: i16 = 16;
/// Offset of the EtherType in a frame.
const ETHER_TYPE_OFFSET: i16 = 12;

const fn instruction(operation: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { operation, registers: to | from << 4, offset, immediate }
}

/// Returns the program that redirects frames of an EtherType to the sockets in `map`.
#[allow(clippy::cast_possible_truncation, reason = "14 bytes")]
pub(crate) fn redirect_program(ether_type: u16, map: i32) -> [Instruction; 15] {
    // Frames are in network byte order, but a half word is loaded in the machine's byte order.
    let ether_type = i32::from(u16::from_ne_bytes(ether_type.to_be_bytes()));
    [
        instruction(LOAD_WORD, 2, 1, CONTEXT_DATA_END, 0),
        instruction(LOAD_WORD, 3, 1, CONTEXT_DATA, 0),
        instruction(MOVE, 4, 3, 0, 0),
        instruction(ADD_IMMEDIATE, 4, 0, 0, ETHERNET_BYTES as i32),
        // If the frame is too short to have an EtherType, jump to the end.
        instruction(JUMP_GREATER, 4, 2, 8, 0),
        instruction(LOAD_HALF, 5, 3, ETHER_TYPE_OFFSET, 0),
        instruction(JUMP_NOT_IMMEDIATE, 5, 0, 6, ether_type),
        instruction(LOAD_WORD, 2, 1, CONTEXT_QUEUE, 0),
        instruction(LOAD_IMMEDIATE, 1, MAP_DESCRIPTOR, 0, map),
        instruction(0, 0, 0, 0, 0),
        // If the queue has no socket, the frame passes as if there were no program.
        instruction(MOVE_IMMEDIATE, 3, 0, 0, PASS),
        instruction(CALL, 0, 0, 0, REDIRECT),
        instruction(EXIT, 0, 0, 0, 0),
        instruction(MOVE_IMMEDIATE, 0, 0, 0, PASS),
        instruction(EXIT, 0, 0, 0, 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethernet::frame::ETHER_TYPE;

    /// Interprets the program for a frame. Returns `None` if the frame is redirected to a socket.
    fn interpret(frame: &[u8]) -> Option<i32> {
        let program = redirect_program(ETHER_TYPE, 7);
        let mut registers = [0_i64; 6];
        let mut at = 0;
        for _ in 0..program.len() {
            let Instruction { operation, registers: both, offset, immediate } = program[at];
            let (to, from) = (usize::from(both & 15), usize::from(both >> 4));
            at += 1;
            match operation {
                // The frame is at address 1000.
                LOAD_WORD if offset == CONTEXT_DATA => registers[to] = 1000,
                LOAD_WORD if offset == CONTEXT_DATA_END => {
                    registers[to] = 1000 + frame.len() as i64
                }
                LOAD_WORD => registers[to] = 0,
                LOAD_HALF => {
                    let from = (registers[from] - 1000 + i64::from(offset)) as usize;
                    let half = frame[from..].first_chunk().expect("within the frame");
                    registers[to] = u16::from_ne_bytes(*half).into();
                }
                LOAD_IMMEDIATE => at += 1,
                MOVE => registers[to] = registers[from],
                MOVE_IMMEDIATE => registers[to] = immediate.into(),
                ADD_IMMEDIATE => registers[to] += i64::from(immediate),
                JUMP_GREATER if registers[to] > registers[from] => at += offset as usize,
                JUMP_NOT_IMMEDIATE if registers[to] != i64::from(immediate) => {
                    at += offset as usize;
                }
                JUMP_GREATER | JUMP_NOT_IMMEDIATE => {}
                CALL => return None,
                EXIT => return Some(registers[0] as i32),
                other => panic!("operation {other:#x}"),
            }
        }
        panic!("it does not end");
    }

    #[test]
    fn our_frames_are_redirected_and_others_pass() {
        let mut frame = [0; 60];
        frame[12..14].copy_from_slice(&ETHER_TYPE.to_be_bytes());
        assert_eq!(interpret(&frame), None);
        assert_eq!(interpret(&frame[..14]), None);
        // Does not read past the end of the frame.
        for length in 0..14 {
            assert_eq!(interpret(&frame[..length]), Some(PASS), "{length}");
        }
        for other in [ETHER_TYPE + 1, ETHER_TYPE.swap_bytes(), 0x0800] {
            frame[12..14].copy_from_slice(&other.to_be_bytes());
            assert_eq!(interpret(&frame), Some(PASS), "{other:#x}");
        }
    }
}
