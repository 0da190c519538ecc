//! Envelopes, which carry original datagrams as repairs. An original of the maximum length is split
//! into two parts ([pkt-5]).

use std::collections::BTreeMap;

use crate::{limits::DATAGRAM_BYTES_MAX, receive::partial::PartialMessage};

/// Maximum number of parts of an original: 64 KiB in datagrams of the minimum length.
const PARTS_MAX: u16 = 64;
/// Maximum number of incomplete originals per sender of repairs. Beyond it, the oldest is dropped.
const INCOMPLETE_MAX: usize = 64;

/// Splits an original into parts for datagrams with `payload_bytes` bytes of payload.
pub(crate) fn split_original(
    original: &[u8],
    payload_bytes: usize,
) -> impl Iterator<Item = (u16, u16, &[u8])> {
    let count = u16::try_from(original.len().div_ceil(payload_bytes)).unwrap_or(0);
    let chunks = original.chunks(payload_bytes);
    chunks.zip(0..count).map(move |(part, index)| (index, count, part))
}

/// Incomplete originals in repairs from one node.
#[derive(Default)]
pub(crate) struct IncompleteOriginals(BTreeMap<u64, PartialMessage>);

impl IncompleteOriginals {
    /// Adds a part. Returns the original once all parts have arrived. A part that does not fit is
    /// dropped and will be requested again.
    pub(crate) fn add_part(
        &mut self,
        first: u64,
        (index, count): (u16, u16),
        part: &[u8],
    ) -> Option<Vec<u8>> {
        if count > PARTS_MAX {
            return None;
        }
        if count == 1 {
            return Some(part.to_vec());
        }
        let mut original = self.0.remove(&first).unwrap_or_else(|| PartialMessage::new(count));
        let bytes = original.bytes_to_add(index, part).unwrap_or(usize::MAX);
        if original.part_count() != count || bytes > 2 * DATAGRAM_BYTES_MAX {
            return None;
        }
        original.add(index, part);
        if original.is_whole() {
            return Some(original.into_message());
        }
        self.0.insert(first, original);
        if self.0.len() > INCOMPLETE_MAX {
            self.0.pop_first();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_original_is_joined_bit_for_bit() {
        let mut joins = IncompleteOriginals::default();
        for length in [1, 99, 100, 101, 144, 200, 201] {
            let original: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            let cut: Vec<_> = split_original(&original, 100).collect();
            assert_eq!(cut.len(), usize::from(length as u16).div_ceil(100));
            let mut whole = None;
            for (index, count, part) in cut.into_iter().rev() {
                assert_eq!(whole, None);
                whole = joins.add_part(7, (index, count), part);
            }
            assert_eq!(whole, Some(original));
        }
        assert!(joins.0.is_empty());
    }

    #[test]
    fn number_of_incomplete_originals_is_bounded() {
        let mut joins = IncompleteOriginals::default();
        for first in 0..1000 {
            assert_eq!(joins.add_part(first, (0, 2), &[0; 100]), None);
        }
        assert_eq!(joins.0.len(), INCOMPLETE_MAX);
        assert_eq!(joins.add_part(1, (0, 65), &[0; 100]), None);
        assert_eq!(joins.add_part(2000, (0, 64), &[0; 60_000]), None);
        assert_eq!(joins.add_part(999, (1, 3), &[0; 100]), None, "another count");
        assert_eq!(joins.add_part(998, (1, 2), &[0; 100]), Some(vec![0; 200]));
    }
}
