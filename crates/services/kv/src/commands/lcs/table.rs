//! Table of the longest common subsequences of all prefixes of two strings, one bit for each pair
//! (H. Hyyrö, *Bit-parallel LCS-length computation revisited*, 2004).

const BITS: usize = 64;

/// Number of words of 64 bits that a comparison needs.
pub(super) struct Size {
    /// Words of the table.
    pub(super) table: u64,
    /// Number of distinct bytes in the first string, each with the places in the other one.
    pub(super) distinct: u64,
    row: u64,
}

impl Size {
    pub(super) fn of(one: &[u8], other: &[u8]) -> Self {
        let mut occurs = [false; 256];
        one.iter().for_each(|byte| occurs[usize::from(*byte)] = true);
        let distinct = occurs.iter().filter(|occurs| **occurs).count() as u64;
        let row = other.len().div_ceil(BITS) as u64;
        Self { table: row.saturating_mul(one.len() as u64), distinct, row }
    }

    pub(super) const fn bytes(&self) -> u64 {
        let places = self.row.saturating_mul(self.distinct);
        self.table.saturating_add(places).saturating_mul(8)
    }
}

/// Bit `j` of row `i` says that the subsequence of the first `i + 1` bytes of one string and the
/// first `j + 1` of the other is longer than without the last byte of the other.
pub(super) struct Table {
    words: usize,
    bits: Vec<u64>,
}

impl Table {
    pub(super) fn of(one: &[u8], other: &[u8]) -> Self {
        let words = other.len().div_ceil(BITS);
        let mut places: [Option<Vec<u64>>; 256] = [const { None }; 256];
        let mut bits = Vec::with_capacity(words * one.len());
        let mut row = vec![0; words];
        for &byte in one {
            let places = places[usize::from(byte)].get_or_insert_with(|| find(byte, other));
            step(&mut row, places);
            bits.extend_from_slice(&row);
        }
        Self { words, bits }
    }

    pub(super) fn is_longer(&self, i: usize, j: usize) -> bool {
        let word = self.bits.get(i * self.words + j / BITS);
        word.is_some_and(|word| word >> (j % BITS) & 1 != 0)
    }

    /// Returns the length of the longest common subsequence.
    pub(super) fn length(&self) -> usize {
        let last = self.bits.len().saturating_sub(self.words);
        self.bits[last..].iter().map(|word| word.count_ones() as usize).sum()
    }
}

/// Returns the places of a byte, as bits.
fn find(byte: u8, text: &[u8]) -> Vec<u64> {
    let word = |part: &[u8]| {
        (0..).zip(part).fold(0, |bits, (at, other)| bits | u64::from(*other == byte) << at)
    };
    text.chunks(BITS).map(word).collect()
}

/// Computes the next row. In each run of bits, from a set one down to the place after the one
/// before, the lowest place of the byte stays set.
fn step(row: &mut [u64], places: &[u64]) {
    let mut carry = false;
    for (word, places) in row.iter_mut().zip(places) {
        // Zeros stand for the bits that are set.
        let clear = !*word;
        let (sum, over) = clear.overflowing_add(clear & places);
        let (sum, over_by_one) = sum.overflowing_add(u64::from(carry));
        carry = over || over_by_one;
        *word = !(sum | clear & !places);
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::dice::Dice;

    use super::*;

    /// Computes the length for all pairs of prefixes, one by one.
    fn lengths(one: &[u8], other: &[u8]) -> Vec<Vec<usize>> {
        let mut rows = vec![vec![0; other.len() + 1]];
        for byte in one {
            let (above, mut row) = (&rows[rows.len() - 1], vec![0]);
            for (at, place) in other.iter().enumerate() {
                row.push(match byte == place {
                    true => above[at] + 1,
                    false => row[at].max(above[at + 1]),
                });
            }
            rows.push(row);
        }
        rows
    }

    #[test]
    fn the_table_is_that_of_the_usual_recurrence() {
        let dice = &mut Dice::new(1);
        for _ in 0..200 {
            let mut text =
                || -> Vec<u8> { (0..dice.index(200)).map(|_| b"abcd"[dice.index(4)]).collect() };
            let (one, other) = (text(), text());
            let (table, lengths) = (Table::of(&one, &other), lengths(&one, &other));
            assert_eq!(table.length(), lengths[one.len()][other.len()]);
            for i in 0..one.len() {
                for j in 0..other.len() {
                    let row = &lengths[i + 1];
                    assert_eq!(table.is_longer(i, j), row[j + 1] > row[j], "{i} {j}");
                }
            }
        }
    }
}
