//! System calls of bpf(2): a map of sockets, a program, and its attachment to an interface.
//!
//! The rest of the crate may rely on this: each function here is safe for all arguments. The
//! objects that they create are removed along with their descriptors, so a program is detached from
//! its interface when its process ends in any way.
#![allow(unsafe_code, reason = "no safe library has bpf(2)")]

use std::{io, ptr};

use rustix::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use super::program::Instruction;

/// Commands of linux/bpf.h.
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const PROGRAM_LOAD: libc::c_int = 5;
const GET_OBJECT_INFO: libc::c_int = 15;
const LINK_CREATE: libc::c_int = 28;
/// `BPF_MAP_TYPE_XSKMAP`.
const MAP_OF_SOCKETS: u32 = 17;
/// `BPF_PROG_TYPE_XDP`, and `BPF_XDP` of attachments.
const PROGRAM_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;
/// Flags for attaching the program: in the driver, before buffers are allocated for a frame, or in
/// the kernel, afterwards.
const IN_DRIVER: u32 = 1 << 2;
const IN_KERNEL: u32 = 1 << 1;
/// License of the program. The kernel functions that it calls accept any.
const LICENSE: &std::ffi::CStr = c"Apache-2.0 OR MIT";

/// Place at which a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttachPoint {
    /// The driver runs the program.
    Driver,
    /// The kernel runs the program, for drivers that cannot.
    Kernel,
}

/// Argument of bpf(2): consecutive fields, then zeros. It is as long as the longest argument that
/// the commands above read.
#[repr(C, align(8))]
struct BpfArgument([u32; 32]);

impl BpfArgument {
    fn new(words: &[u32]) -> Self {
        let mut all = [0; 32];
        all[..words.len()].copy_from_slice(words);
        Self(all)
    }
}

/// Returns the two halves of a pointer as words in the machine's byte order.
fn pointer_words<T>(at: *const T) -> [u32; 2] {
    let bytes = (at as u64).to_ne_bytes();
    let [a, b, c, d, e, f, g, h] = bytes;
    [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
}

/// Issues a command of bpf(2).
///
/// # Safety
/// All memory that `argument` points to must be as long as `command` expects, and must stay valid
/// until this returns.
unsafe fn call_bpf(command: libc::c_int, argument: &mut BpfArgument) -> io::Result<RawFd> {
    // SAFETY: the kernel reads, and may write, the bytes of `argument`, which are initialised and
    // outlive the call. The caller vouches for the memory that it points to.
    let answer = unsafe {
        libc::syscall(libc::SYS_bpf, command, ptr::from_mut(argument), size_of::<BpfArgument>())
    };
    match RawFd::try_from(answer) {
        Ok(answer) if answer >= 0 => Ok(answer),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Issues a command of bpf(2) that creates a descriptor.
///
/// # Safety
/// The contract of [`call_bpf`] must hold, and `command` must create a descriptor.
unsafe fn create_by_bpf(command: libc::c_int, argument: &mut BpfArgument) -> io::Result<OwnedFd> {
    // SAFETY: the caller's contract.
    let fd = unsafe { call_bpf(command, argument) }?;
    // SAFETY: the kernel created this descriptor for this call alone, and it is not an error.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn fd_word(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// A map from each queue to its socket.
pub(crate) struct SocketMap(OwnedFd);

impl SocketMap {
    pub(crate) fn new(queues: u32) -> io::Result<Self> {
        let mut argument = BpfArgument::new(&[MAP_OF_SOCKETS, 4, 4, queues]);
        // SAFETY: this argument has no pointer.
        unsafe { create_by_bpf(MAP_CREATE, &mut argument) }.map(Self)
    }

    /// Returns the descriptor, for use in a program that reads the map.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Directs frames of a queue to a socket.
    pub(crate) fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let socket = socket.as_raw_fd();
        let ([a, b], [c, d]) = (pointer_words(&raw const queue), pointer_words(&raw const socket));
        let mut argument = BpfArgument::new(&[fd_word(self.0.as_fd()), 0, a, b, c, d]);
        // SAFETY: key and value of this map are numbers of four bytes (`new`), as `queue` and
        // `socket` are. Both outlive the call, and the kernel only reads them.
        unsafe { call_bpf(MAP_UPDATE, &mut argument) }.map(|_| ())
    }
}

/// Loads a program for arriving frames. The kernel verifies it.
pub(crate) fn load_program(instructions: &[Instruction]) -> io::Result<OwnedFd> {
    let count = u32::try_from(instructions.len()).map_err(io::Error::other)?;
    let ([a, b], [c, d]) = (pointer_words(instructions.as_ptr()), pointer_words(LICENSE.as_ptr()));
    let mut argument = BpfArgument::new(&[PROGRAM_XDP, count, a, b, c, d]);
    // SAFETY: `count` instructions exist, each of the kernel's length, and the license ends with a
    // zero. Both outlive the call, and the kernel only reads them.
    unsafe { create_by_bpf(PROGRAM_LOAD, &mut argument) }
}

/// Attaches a program to an interface until the returned descriptor is closed.
pub(crate) fn attach_program(
    program: BorrowedFd<'_>,
    interface: u32,
    at: AttachPoint,
) -> io::Result<OwnedFd> {
    let flags = match at {
        AttachPoint::Driver => IN_DRIVER,
        AttachPoint::Kernel => IN_KERNEL,
    };
    let mut argument = BpfArgument::new(&[fd_word(program), interface, ATTACH_TYPE_XDP, flags]);
    // SAFETY: this argument has no pointer.
    unsafe { create_by_bpf(LINK_CREATE, &mut argument) }
}

/// Returns whether a program is still attached. Its interface may have been removed, or an operator
/// may have detached the program.
pub(crate) fn is_attached(link: &OwnedFd) -> bool {
    // `struct bpf_link_info`: kind, id, id of the program, padding, and the interface's number.
    let mut info = [0_u32; 32];
    let [a, b] = pointer_words(&raw mut info);
    let length = u32::try_from(size_of_val(&info)).unwrap_or(0);
    let mut argument = BpfArgument::new(&[fd_word(link.as_fd()), length, a, b]);
    // SAFETY: the kernel writes at most `length` bytes at `info`, which has that length.
    let known = unsafe { call_bpf(GET_OBJECT_INFO, &mut argument) };
    known.is_ok() && info[4] != 0
}
