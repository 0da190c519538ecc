//! Encoding of a frame: Ethernet header, length of the datagram, datagram.
//!
//! The length is needed because Ethernet pads a frame to 60 bytes without recording by how much.

use crate::ethernet::{Mac, refusal::FrameRefusal};

/// Default EtherType: *local experimental 1* of IEEE 802.
pub const ETHER_TYPE: u16 = 0x88b5;
/// Lowest EtherType. Lower values in its place are lengths, in an older type of frame.
pub const ETHER_TYPE_MIN: u16 = 0x0600;
/// Length of destination, source and EtherType, which do not count towards the MTU.
pub const ETHERNET_BYTES: usize = 14;
/// Size of the length field, which counts towards the MTU.
pub const LENGTH_BYTES: usize = 2;
/// Number of bytes before the datagram.
pub const HEADER_BYTES: usize = ETHERNET_BYTES + LENGTH_BYTES;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub destination: Mac,
    /// Source address, which may be forged.
    pub from: Mac,
    /// Never empty.
    pub datagram: &'a [u8],
}

/// Returns the frame header that precedes a datagram of the given length.
pub const fn encode_header(
    to: Mac,
    from: Mac,
    ether_type: u16,
    datagram_bytes: u16,
) -> [u8; HEADER_BYTES] {
    let ([a, b, c, d, e, f], [g, h, i, j, k, l]) = (to.0, from.0);
    let ([m, n], [o, p]) = (ether_type.to_be_bytes(), datagram_bytes.to_le_bytes());
    [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
}

/// Parses a frame. Bytes after the datagram are padding.
pub fn read(bytes: &[u8], ether_type: u16) -> Result<Frame<'_>, FrameRefusal> {
    let (header, rest) = bytes.split_first_chunk().ok_or(FrameRefusal::Short)?;
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]: [u8; HEADER_BYTES] = *header;
    if u16::from_be_bytes([m, n]) != ether_type {
        return Err(FrameRefusal::EtherType);
    }
    let length = usize::from(u16::from_le_bytes([o, p]));
    // No node sends an empty datagram, so a frame of zeros is not one of ours.
    let datagram = rest.get(..length).filter(|datagram| !datagram.is_empty());
    Ok(Frame {
        destination: Mac([a, b, c, d, e, f]),
        from: Mac([g, h, i, j, k, l]),
        datagram: datagram.ok_or(FrameRefusal::Length)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const FROM: Mac = Mac([2, 0, 0, 0, 0, 2]);

    fn frame(length: u16, behind: usize) -> Vec<u8> {
        let mut bytes = encode_header(TO, FROM, ETHER_TYPE, length).to_vec();
        bytes.extend((0..behind).map(|at| at as u8));
        bytes
    }

    fn check(bytes: &[u8], expected: Result<usize, FrameRefusal>) {
        let read = read(bytes, ETHER_TYPE);
        assert_eq!(read.map(|frame| frame.datagram.len()), expected, "{bytes:?}");
        if let Ok(frame) = read {
            assert_eq!((frame.destination, frame.from), (TO, FROM));
            assert!(bytes[HEADER_BYTES..].starts_with(frame.datagram));
        }
    }

    #[test]
    fn padding_after_the_datagram_is_cut() {
        check(&frame(1, 1), Ok(1));
        check(&frame(1, 44), Ok(1));
        check(&frame(44, 44), Ok(44));
        check(&frame(u16::MAX, usize::from(u16::MAX)), Ok(65_535));
    }

    #[test]
    fn wrong_datagram_lengths_are_refused() {
        check(&frame(0, 44), Err(FrameRefusal::Length));
        check(&frame(45, 44), Err(FrameRefusal::Length));
        check(&frame(u16::MAX, 1484), Err(FrameRefusal::Length));
        check(&frame(1, 0), Err(FrameRefusal::Length));
    }

    #[test]
    fn short_frames_and_other_ether_types_are_refused() {
        let whole = frame(4, 4);
        for cut in 0..HEADER_BYTES {
            check(&whole[..cut], Err(FrameRefusal::Short));
        }
        let other = encode_header(TO, FROM, ETHER_TYPE + 1, 4);
        check(&[&other[..], &[0; 4]].concat(), Err(FrameRefusal::EtherType));
        let swapped = encode_header(TO, FROM, ETHER_TYPE.swap_bytes(), 4);
        check(&[&swapped[..], &[0; 4]].concat(), Err(FrameRefusal::EtherType));
    }
}
