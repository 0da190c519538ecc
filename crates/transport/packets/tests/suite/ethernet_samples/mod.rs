//! Sample frames for test vectors and fuzz corpora.

use quorate_packets::ethernet::{ETHER_TYPE, Mac, frame::encode_header};

pub(crate) const ONE: Mac = Mac([2, 0, 0, 0, 0, 1]);
pub(crate) const OTHER: Mac = Mac([2, 0, 0, 0, 0, 2]);
pub(crate) const GROUP: Mac = Mac([3, 0, 0, 0, 0, 9]);

/// Returns named frames: as they are sent, and one as it arrives after a device has padded it.
pub(crate) fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let frame = |to, datagram: &[u8]| {
        let length = u16::try_from(datagram.len()).expect("a datagram");
        [&encode_header(to, OTHER, ETHER_TYPE, length), datagram].concat()
    };
    let mut padded = frame(ONE, b"!");
    padded.resize(60, 0);
    vec![
        ("to-one", frame(ONE, b"datagram")),
        ("to-a-group", frame(GROUP, b"datagram")),
        ("padded", padded),
        ("longest", frame(ONE, &[7; 1498])),
    ]
}
