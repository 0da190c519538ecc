//! Properties that hold for any bytes in a slot of the ring.

use quorate_packets::ethernet::{
    ETHER_TYPE, FrameRefusal, Mac,
    frame::{self, Frame, HEADER_BYTES},
    slot::{self, FrameFilter},
};

/// Offsets as the kernel fills slots: start of the frame, and kind of its destination.
const FRAME_AT: usize = 66;
const AUDIENCE: usize = 42;
const GROUP: Mac = Mac([3, 0, 0, 0, 0, 9]);

#[allow(dead_code, reason = "the fuzz target has the corpus")]
pub(crate) fn seeds(frames: &[(&'static str, Vec<u8>)]) -> Vec<crate::driver::Seed> {
    let numbered = frames.iter().zip(0..);
    let seed = |((name, frame), number): (&(&'static str, Vec<u8>), usize)| crate::driver::Seed {
        name: format!("{number:02}-{name}"),
        bytes: slot(frame),
    };
    numbered.map(seed).collect()
}

fn slot(frame: &[u8]) -> Vec<u8> {
    let length = u32::try_from(frame.len()).expect("a frame");
    let mut slot = vec![0; FRAME_AT];
    let mut put = |at: usize, bytes: &[u8]| slot[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &1_u32.to_ne_bytes());
    put(4, &length.to_ne_bytes());
    put(8, &length.to_ne_bytes());
    put(12, &(FRAME_AT as u16).to_ne_bytes());
    put(AUDIENCE, &[2 * (frame[0] & 1)]);
    slot.extend_from_slice(frame);
    slot
}

/// Checks the bytes as a slot, and as a frame in a valid slot.
pub(crate) fn check(bytes: &[u8]) {
    let hears = |group| FrameFilter { ether_type: ETHER_TYPE, group };
    let alone = slot::parse_slot(bytes, &hears(None));
    let joined = slot::parse_slot(bytes, &hears(Some(GROUP)));
    // A socket that joined receives the group, and everything else as before.
    match (alone, joined) {
        (Err(FrameRefusal::Elsewhere), Ok(frame)) => assert_eq!(frame.destination, GROUP),
        (alone, joined) => assert_eq!(alone, joined),
    }
    if let Ok(frame) = joined {
        check_within(&frame, bytes);
    }
    let read = frame::read(bytes, ETHER_TYPE);
    if let Ok(frame) = read {
        check_within(&frame, bytes);
        assert!(bytes[HEADER_BYTES..].starts_with(frame.datagram));
    }
    if !bytes.is_empty() {
        let again = slot(bytes);
        let hears = hears(read.ok().map(|frame| frame.destination));
        assert_eq!(slot::parse_slot(&again, &hears), read);
    }
}

/// Checks that a parsed frame can be written again as the same bytes, and is within its slot.
fn check_within(frame: &Frame<'_>, bytes: &[u8]) {
    let length = u16::try_from(frame.datagram.len()).expect("a length of 16 bits");
    assert!(length > 0);
    let header = frame::encode_header(frame.destination, frame.from, ETHER_TYPE, length);
    let whole = [&header, frame.datagram].concat();
    let mut places = bytes.windows(whole.len());
    assert!(places.any(|place| place == whole), "{frame:?}");
}
