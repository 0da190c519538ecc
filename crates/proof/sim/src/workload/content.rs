//! Contents of stream writes. The bytes are computed from stream, writer, piece and position, so
//! that any mix-up is detected.

use std::ops::Range;

use quorate_core::value::StreamName;
use quorate_stream::{Name, Writer};

use crate::dice::mix;

/// Returns the content key of all pieces that this writer opens in this stream.
pub fn key(name: &Name, writer: Writer) -> u64 {
    let [high, low] = [(writer.0 >> 64) as u64, writer.0 as u64];
    let bytes = name.as_str().bytes();
    bytes.fold(mix(high ^ mix(low)), |key, byte| mix(key ^ u64::from(byte)))
}

/// Returns the bytes at `positions` of a piece whose content has key `key`.
pub fn bytes(key: u64, piece: StreamName, positions: Range<u64>) -> Vec<u8> {
    let process = u64::from(piece.owner.0) << 32 | u64::from(piece.boot);
    let key = mix(key ^ mix(process)) ^ mix(u64::from(piece.number));
    let words = positions.start / 8..positions.end.div_ceil(8);
    let all = words.flat_map(|word| mix(key.wrapping_add(word)).to_le_bytes());
    let length = positions.end.saturating_sub(positions.start);
    all.skip((positions.start % 8) as usize)
        .take(usize::try_from(length).expect("it fits in memory"))
        .collect()
}

#[cfg(test)]
mod tests {
    use quorate_core::node_id::NodeId;

    use super::*;

    #[test]
    fn parts_equal_the_same_range_of_the_whole() {
        let piece = StreamName { owner: NodeId(1), boot: 2, number: 3 };
        let key = key(&"s".parse().expect("a name"), Writer(7));
        let whole = bytes(key, piece, 0..100);
        for from in 0..100 {
            for to in from..=100 {
                let part = &whole
                    [usize::try_from(from).expect("small")..usize::try_from(to).expect("small")];
                assert_eq!(bytes(key, piece, from..to), part);
            }
        }
        let other = StreamName { number: 4, ..piece };
        assert_ne!(bytes(key, other, 0..100), whole);
        assert_ne!(bytes(key ^ 1, piece, 0..100), whole);
    }
}
