//! Hash of an element: its register, and the length of its pattern.

use super::layout::COUNT;

/// Seed in Redis' format.
const SEED: u64 = 0xadc8_3b19;
/// Number of bits of a hash that select the register.
const INDEX_BITS: u32 = COUNT.trailing_zeros();

/// Returns the register of an element and the value that it raises the register to: the position of
/// the lowest bit that is set in the rest of the hash.
pub(super) fn place(element: &[u8]) -> (usize, u8) {
    let hash = murmur(element);
    let index = usize::try_from(hash % COUNT as u64).unwrap_or(0);
    // The top bit bounds the length.
    let rest = hash >> INDEX_BITS | 1 << (u64::BITS - INDEX_BITS);
    let length = u8::try_from(rest.trailing_zeros() + 1).unwrap_or(u8::MAX);
    (index, length)
}

/// Computes `MurmurHash64A`.
fn murmur(bytes: &[u8]) -> u64 {
    const TIMES: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(TIMES);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let mut word = u64::from_le_bytes(*word).wrapping_mul(TIMES);
        word ^= word >> SHIFT;
        hash = (hash ^ word.wrapping_mul(TIMES)).wrapping_mul(TIMES);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(TIMES);
    }
    hash = (hash ^ hash >> SHIFT).wrapping_mul(TIMES);
    hash ^ hash >> SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_of_an_element_is_bounded() {
        for number in 0..100_000_u32 {
            let (index, length) = place(&number.to_le_bytes());
            assert!(index < COUNT && (1..=51).contains(&length));
        }
    }
}
