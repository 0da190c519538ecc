//! Combines the CRC-32C checksums of consecutive byte strings.

use std::sync::LazyLock;

use super::BLOCK;

/// Linear map from a checksum to the same checksum extended by a fixed number of zero bytes. Entry
/// `n` is the image of bit `n`.
type ExtensionMap = [u32; 32];

/// Maps for 1, 2, 4, 8 and 16 blocks.
static BLOCK_EXTENSIONS: LazyLock<[ExtensionMap; 5]> = LazyLock::new(|| {
    let step =
        |blocks| std::array::from_fn(|bit| crc32c::crc32c_combine(1 << bit, 0, blocks * BLOCK));
    std::array::from_fn(|power| step(1 << power))
});

/// Returns the checksum of two consecutive byte strings from their checksums. The second has
/// `next_bytes` bytes. Up to 31 whole blocks take a few dozen operations; other lengths take longer
/// than computing the checksum of a block.
pub fn combine_checksums(piece: u32, next: u32, next_bytes: usize) -> u32 {
    let blocks = next_bytes / BLOCK;
    if !next_bytes.is_multiple_of(BLOCK) || blocks >> BLOCK_EXTENSIONS.len() != 0 {
        return crc32c::crc32c_combine(piece, next, next_bytes);
    }
    let steps = BLOCK_EXTENSIONS.iter().enumerate();
    let due = steps.filter(|(power, _)| blocks >> power & 1 == 1);
    due.fold(piece, |checksum, (_, step)| extend_checksum(checksum, step)) ^ next
}

fn extend_checksum(checksum: u32, step: &ExtensionMap) -> u32 {
    let bits = step.iter().enumerate();
    let set = bits.filter(|(bit, _)| checksum >> bit & 1 == 1);
    set.fold(0, |all, (_, becomes)| all ^ becomes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_checksum_is_that_of_all_bytes() {
        let bytes: Vec<u8> = (0..40 * BLOCK).map(|at| (at * at % 251) as u8).collect();
        let lengths = (0..=33).map(|blocks| blocks * BLOCK).chain([1, BLOCK - 1, BLOCK + 1]);
        for length in lengths {
            for first in [0, 5, 3 * BLOCK] {
                let (piece, next) = bytes[..first + length].split_at(first);
                let found = combine_checksums(crc32c::crc32c(piece), crc32c::crc32c(next), length);
                assert_eq!(found, crc32c::crc32c(&bytes[..first + length]), "{first} and {length}");
            }
        }
    }
}
