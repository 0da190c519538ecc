//! Contents of test streams. Every byte is determined by its writer and position, so that any
//! sequence of bytes reveals its origin.

use quorate_core::dice::mix;

const WORD_BYTES: u64 = 8;
/// Number of bits for the index of a word. The writer's number is stored in the higher bits.
const INDEX_BITS: u32 = 48;
/// Number of bytes that suffices to recognise the origin of a sequence.
pub const ORIGIN_BYTES: usize = 3 * WORD_BYTES as usize;

/// Fills a buffer with the bytes of a writer, starting at `position`.
pub fn fill_bytes(writer: u16, position: u64, bytes: &mut [u8]) {
    let mut at = position;
    let mut rest = bytes;
    while !rest.is_empty() {
        let (index, within) = (at / WORD_BYTES, usize::try_from(at % WORD_BYTES).unwrap_or(0));
        let word = mixed_word(writer, index).to_le_bytes();
        let count = rest.len().min(word.len() - within);
        let (now, later) = rest.split_at_mut(count);
        now.copy_from_slice(&word[within..within + count]);
        at += count as u64;
        rest = later;
    }
}

pub fn bytes(writer: u16, position: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    fill_bytes(writer, position, &mut bytes);
    bytes
}

/// Returns the index of the first byte that differs from the bytes of a writer at `position`.
pub fn first_difference(writer: u16, position: u64, bytes: &[u8]) -> Option<usize> {
    let mut expected = [0; 1 << 10];
    for (number, part) in bytes.chunks(expected.len()).enumerate() {
        let before = number * expected.len();
        let expected = &mut expected[..part.len()];
        fill_bytes(writer, position + before as u64, expected);
        if part != expected {
            let within = part.iter().zip(expected).position(|(a, b)| a != b);
            return within.map(|within| before + within);
        }
    }
    None
}

/// Returns the writer of a sequence of bytes and the position of the first one; `None` if there are
/// too few bytes, or if they have no single origin.
pub fn byte_origin(bytes: &[u8]) -> Option<(u16, u64)> {
    let word = WORD_BYTES as usize;
    (0..word).find_map(|lead| {
        let first = bytes.get(lead..lead + word)?;
        let (writer, index) = unmixed_word(u64::from_le_bytes(first.try_into().ok()?));
        let position = (index * WORD_BYTES).checked_sub(lead as u64)?;
        let telling = bytes.get(..lead + 2 * word)?;
        first_difference(writer, position, telling).is_none().then_some((writer, position))
    })
}

/// Returns the word at `index` among a writer's words. [`mix`] is injective, so all words differ.
fn mixed_word(writer: u16, index: u64) -> u64 {
    let word = u64::from(writer) << INDEX_BITS | index & ((1 << INDEX_BITS) - 1);
    mix(word ^ SALT)
}

/// Returns the writer and the index of a word. Inverse of [`mixed_word`].
fn unmixed_word(word: u64) -> (u16, u64) {
    let mut z = word;
    z = (z ^ (z >> 31) ^ (z >> 62)).wrapping_mul(0x3196_42b2_d24d_8ec3);
    z = (z ^ (z >> 27) ^ (z >> 54)).wrapping_mul(0x96de_1b17_3f11_9089);
    z = (z ^ (z >> 30) ^ (z >> 60)) ^ SALT;
    let writer = u16::try_from(z >> INDEX_BITS).unwrap_or(0);
    (writer, z & ((1 << INDEX_BITS) - 1))
}

const SALT: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_equal_the_same_range_of_the_whole() {
        let whole = bytes(3, 0, 100);
        for from in 0..30 {
            assert_eq!(bytes(3, from, 70), whole[from as usize..from as usize + 70]);
            assert_eq!(first_difference(3, from, &whole[from as usize..]), None);
        }
        let mut other = bytes(3, 5, 3000);
        other[2000] ^= 1;
        assert_eq!(first_difference(3, 5, &other), Some(2000));
    }

    #[test]
    fn bytes_identify_their_writer_and_position() {
        for (writer, position) in [(0, 0), (1, 7), (2, 1 << 40), (500, 123_456_789)] {
            let some = bytes(writer, position, ORIGIN_BYTES);
            assert_eq!(byte_origin(&some), Some((writer, position)));
        }
        assert_eq!(byte_origin(&[0; ORIGIN_BYTES]), None);
        assert_eq!(byte_origin(&bytes(1, 8, 15)), None);
    }
}
