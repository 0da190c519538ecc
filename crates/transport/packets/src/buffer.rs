//! Datagrams as sent or received, bit for bit, in a ring buffer ([pkt-5], [pkt-8]).
//!
//! Votes do not depend on this buffer: the log and the contents of values are stored elsewhere. A
//! datagram freed here can no longer be repaired.

use std::{collections::VecDeque, ops::Range};

/// A ring buffer of datagrams, indexed by number.
///
/// Datagrams are stored back to back. Consecutive ones of equal length form one slice, which a
/// kernel can split again.
pub struct DatagramBuffer {
    bytes: Vec<u8>,
    /// Entries in the order of arrival. The oldest is freed first.
    entries: VecDeque<Entry>,
    /// Index of each number's entry, counted from the first entry ever inserted. A number is stored
    /// at its remainder modulo the length.
    entry_indexes: Vec<u64>,
    /// Total number of entries freed.
    freed_count: u64,
    /// Offset at which the next entry begins.
    head: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    number: u64,
    offset: usize,
    length: usize,
}

/// Value of an unused place.
const UNUSED_PLACE: u64 = u64::MAX;

impl DatagramBuffer {
    /// Creates a buffer of `bytes` bytes for at most `numbers` datagrams, rounded up to a power of
    /// two.
    pub fn new(bytes: usize, numbers: usize) -> Self {
        Self {
            bytes: vec![0; bytes],
            entries: VecDeque::new(),
            entry_indexes: vec![UNUSED_PLACE; numbers.next_power_of_two()],
            freed_count: 0,
            head: 0,
        }
    }

    /// Returns whether these datagrams would fit into an empty buffer. Up to one datagram's length
    /// may be wasted at the end of the ring.
    pub fn could_hold(&self, bytes: usize, datagrams: usize) -> bool {
        let longest = bytes.div_ceil(datagrams.max(1));
        datagrams <= self.entry_indexes.len() && bytes + longest <= self.bytes.len()
    }

    /// Allocates space for a datagram, which the caller fills. Frees the oldest datagrams as
    /// needed, as long as `may_free` permits it for each. Returns `None` if one of them may not be
    /// freed, or if the number, or a newer one in the same place, is already stored.
    pub fn insert(
        &mut self,
        number: u64,
        length: usize,
        may_free: impl Fn(u64) -> bool,
    ) -> Option<&mut [u8]> {
        let slot = self.place_of(number);
        if length == 0 || length > self.bytes.len() || self.number_in_place(slot) >= Some(number) {
            return None;
        }
        // Free the entry that shares the place of the number, and all earlier ones.
        while self.entry_indexes[slot] != UNUSED_PLACE {
            self.free_oldest(&may_free)?;
        }
        let at = loop {
            match self.offset_for(length) {
                Some(at) => break at,
                None => self.free_oldest(&may_free)?,
            }
        };
        self.head = at + length;
        self.entry_indexes[slot] = self.freed_count + self.entries.len() as u64;
        self.entries.push_back(Entry { number, offset: at, length });
        Some(&mut self.bytes[at..at + length])
    }

    /// Returns where a datagram of `length` bytes can begin without overwriting another one.
    fn offset_for(&self, length: usize) -> Option<usize> {
        let end = self.bytes.len();
        let Some(oldest) = self.entries.front() else {
            return Some(0);
        };
        let tail = oldest.offset;
        if self.head > tail {
            // The free space is after the head and before the tail.
            if self.head + length <= end { Some(self.head) } else { (length <= tail).then_some(0) }
        } else {
            (self.head + length <= tail).then_some(self.head)
        }
    }

    fn free_oldest(&mut self, may_free: impl Fn(u64) -> bool) -> Option<()> {
        let oldest = self.entries.front()?;
        if !may_free(oldest.number) {
            return None;
        }
        let slot = self.place_of(oldest.number);
        self.entry_indexes[slot] = UNUSED_PLACE;
        self.entries.pop_front();
        self.freed_count += 1;
        Some(())
    }

    /// Removes the newest datagram if it has this number. Returns whether it was removed.
    pub fn remove_newest(&mut self, number: u64) -> bool {
        let Some(newest) = self.entries.back().filter(|newest| newest.number == number) else {
            return false;
        };
        self.head = newest.offset;
        let slot = self.place_of(number);
        self.entry_indexes[slot] = UNUSED_PLACE;
        self.entries.pop_back();
        true
    }

    fn place_of(&self, number: u64) -> usize {
        let mask = self.entry_indexes.len() as u64 - 1;
        usize::try_from(number & mask).expect("below the length")
    }

    /// Returns the number stored in a place.
    fn number_in_place(&self, slot: usize) -> Option<u64> {
        self.index(slot).map(|index| self.entries[index].number)
    }

    fn index(&self, slot: usize) -> Option<usize> {
        let place = self.entry_indexes[slot];
        let held = place != UNUSED_PLACE;
        held.then(|| usize::try_from(place - self.freed_count).expect("within the queue"))
    }

    fn entry_of(&self, number: u64) -> Option<usize> {
        let index = self.index(self.place_of(number))?;
        (self.entries[index].number == number).then_some(index)
    }

    pub fn datagram(&self, number: u64) -> Option<&[u8]> {
        let entry = self.entries[self.entry_of(number)?];
        Some(&self.bytes[entry.offset..entry.offset + entry.length])
    }

    /// Returns stored datagrams that are contiguous in memory, starting at `number`: at most
    /// `count` datagrams and `bytes_max` bytes, all of the same length except the last, which may
    /// be shorter.
    pub fn run(&self, number: u64, count: u64, bytes_max: usize) -> Option<DatagramRun<'_>> {
        let mut index = self.entry_of(number)?;
        let first = self.entries[index];
        let mut end = first.offset + first.length;
        let mut next = number + 1;
        let mut shorter = false;
        while let Some(entry) = self.entries.get(index + 1) {
            let goes_on =
                entry.number == next && entry.offset == end && entry.length <= first.length;
            let fits = end + entry.length - first.offset <= bytes_max && next - number < count;
            if !goes_on || !fits || shorter {
                break;
            }
            shorter = entry.length < first.length;
            end += entry.length;
            next += 1;
            index += 1;
        }
        Some(DatagramRun {
            numbers: number..next,
            segment_bytes: first.length,
            bytes: &self.bytes[first.offset..end],
        })
    }

    /// Returns the number of the oldest datagram.
    pub fn oldest_number(&self) -> Option<u64> {
        self.entries.front().map(|entry| entry.number)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Consecutive datagrams for one system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatagramRun<'a> {
    pub numbers: Range<u64>,
    /// Length of each datagram except the last, which may be shorter.
    pub segment_bytes: usize,
    pub bytes: &'a [u8],
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use quorate_core::dice::Dice;

    use super::*;

    fn fill(number: u64, length: usize) -> Vec<u8> {
        let mut dice = Dice::new(number);
        (0..length).map(|_| dice.word().to_le_bytes()[0]).collect()
    }

    /// [pkt-8] The buffer agrees with a map that retains everything: a datagram found is the one
    /// inserted, bit for bit, and freed ones are older than all that are found.
    #[test]
    fn datagrams_found_equal_those_inserted() {
        for seed in 0..60 {
            let mut dice = Dice::new(seed);
            let mut buffer = DatagramBuffer::new(1000, 64);
            let mut order: Vec<u64> = Vec::new();
            let mut put = BTreeMap::new();
            let mut number = 1;
            for _ in 0..500 {
                number += dice.pick(&[1, 1, 1, 1, 2, 40]);
                // Datagrams are not always in order: repaired ones arrive late.
                let this = number - dice.below(3).min(number - 1);
                let bytes = fill(this, dice.index(120) + 1);
                let held = buffer.datagram(this).is_some();
                let room = buffer.insert(this, bytes.len(), |_| true);
                assert_eq!(room.is_none(), held);
                if let Some(room) = room {
                    room.copy_from_slice(&bytes);
                    put.insert(this, bytes);
                    order.retain(|other| *other != this);
                    order.push(this);
                }
                let found: Vec<bool> =
                    order.iter().map(|n| buffer.datagram(*n).is_some()).collect();
                let first = found.iter().position(|found| *found).unwrap();
                assert!(found[first..].iter().all(|found| *found), "seed {seed}");
                assert_eq!(buffer.len(), order.len() - first);
                for number in &order[first..] {
                    assert_eq!(buffer.datagram(*number), Some(&put[number][..]));
                }
            }
        }
    }

    /// [pkt-8] A datagram that must not be freed yet is not overwritten, neither its bytes nor its
    /// place.
    #[test]
    fn datagram_that_must_be_kept_is_not_overwritten() {
        let mut buffer = DatagramBuffer::new(100, 8);
        for number in 1..=2 {
            buffer.insert(number, 40, |_| false).unwrap();
        }
        assert!(buffer.insert(3, 40, |_| false).is_none());
        assert!(buffer.insert(3, 40, |number| number == 1).is_some());
        assert!(buffer.datagram(1).is_none() && buffer.datagram(2).is_some());
        let mut buffer = DatagramBuffer::new(1000, 8);
        for number in 1..=8 {
            buffer.insert(number, 1, |_| false).unwrap();
        }
        assert!(buffer.insert(9, 1, |_| false).is_none());
    }

    #[test]
    fn run_has_at_most_what_one_system_call_can_send() {
        let mut buffer = DatagramBuffer::new(1000, 64);
        for (number, length) in (1..).zip([10, 10, 10, 4, 10, 10, 12]) {
            buffer.insert(number, length, |_| true).unwrap();
        }
        let numbers = |run: Option<DatagramRun<'_>>| run.unwrap().numbers;
        assert_eq!(numbers(buffer.run(1, 64, 1000)), 1..5);
        assert_eq!(numbers(buffer.run(1, 2, 1000)), 1..3);
        assert_eq!(numbers(buffer.run(1, 64, 29)), 1..3);
        assert_eq!(numbers(buffer.run(5, 64, 1000)), 5..7);
        assert_eq!(buffer.run(1, 64, 1000).unwrap().bytes.len(), 34);
        assert_eq!(buffer.run(9, 64, 1000), None);
        assert!(buffer.remove_newest(7) && !buffer.remove_newest(5));
        assert_eq!(buffer.run(7, 1, 1000), None);
    }
}
