//! An incomplete message. It counts as not received: no vote or reply is based on it ([pkt-4]).

use std::ops::Range;

use crate::limits::MESSAGE_BYTES_MAX;

/// The parts of a message that have been received, in any order.
pub(crate) struct PartialMessage {
    count: u16,
    /// Set of received parts, one bit per part.
    received_bits: Vec<u64>,
    missing_count: u16,
    /// Length of all parts except the last. 0 until one of them has been received.
    part_bytes: usize,
    /// Contents, with each part at its final offset. Allocated once `part_bytes` is known.
    bytes: Vec<u8>,
    /// The last part, stored here until `part_bytes` is known.
    last_part: Option<Vec<u8>>,
    last_bytes: usize,
}

/// Error for a part that contradicts earlier parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContradictingPart;

impl PartialMessage {
    /// Creates a message of `count` parts, which must be at least 2.
    pub(crate) fn new(count: u16) -> Self {
        Self {
            count,
            received_bits: vec![0; usize::from(count).div_ceil(64)],
            missing_count: count,
            part_bytes: 0,
            bytes: Vec::new(),
            last_part: None,
            last_bytes: 0,
        }
    }

    pub(crate) const fn part_count(&self) -> u16 {
        self.count
    }

    /// Returns how many bytes adding a part would allocate, so that the quota can be charged first.
    pub(crate) fn bytes_to_add(&self, index: u16, part: &[u8]) -> Result<usize, ContradictingPart> {
        let is_last = index + 1 == self.count;
        if part.is_empty() || index >= self.count || self.has(index) {
            return Err(ContradictingPart);
        }
        if is_last {
            let fits = self.part_bytes == 0 || part.len() <= self.part_bytes;
            let aside = if self.part_bytes == 0 { part.len() } else { 0 };
            return fits.then_some(aside).ok_or(ContradictingPart);
        }
        if self.part_bytes > 0 {
            return (part.len() == self.part_bytes).then_some(0).ok_or(ContradictingPart);
        }
        let all = part.len() * usize::from(self.count);
        let whole_before_last = part.len() * (usize::from(self.count) - 1);
        let last_fits = self.last_bytes <= part.len();
        if !last_fits || whole_before_last + self.last_bytes.max(1) > MESSAGE_BYTES_MAX {
            return Err(ContradictingPart);
        }
        Ok(all - self.last_part.as_ref().map_or(0, Vec::len))
    }

    /// Adds a part for which [`Self::bytes_to_add`] succeeded.
    pub(crate) fn add(&mut self, index: u16, part: &[u8]) {
        let is_last = index + 1 == self.count;
        if is_last {
            self.last_bytes = part.len();
        } else if self.part_bytes == 0 {
            self.part_bytes = part.len();
            self.bytes = vec![0; part.len() * usize::from(self.count)];
            if let Some(last) = self.last_part.take() {
                self.store_part(self.count - 1, &last);
            }
        }
        if self.part_bytes == 0 {
            self.last_part = Some(part.to_vec());
        } else {
            self.store_part(index, part);
        }
        self.received_bits[usize::from(index / 64)] |= 1 << (index % 64);
        self.missing_count -= 1;
    }

    fn store_part(&mut self, index: u16, part: &[u8]) {
        let at = usize::from(index) * self.part_bytes;
        self.bytes[at..at + part.len()].copy_from_slice(part);
    }

    pub(crate) fn has(&self, index: u16) -> bool {
        self.received_bits[usize::from(index / 64)] & 1 << (index % 64) != 0
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.len() + self.last_part.as_ref().map_or(0, Vec::len)
    }

    pub(crate) const fn is_whole(&self) -> bool {
        self.missing_count == 0
    }

    /// Returns the contents of the message, which must be complete.
    pub(crate) fn into_message(mut self) -> Vec<u8> {
        assert!(self.is_whole(), "{} parts are missing", self.missing_count);
        let before_last = self.part_bytes * (usize::from(self.count) - 1);
        self.bytes.truncate(before_last + self.last_bytes);
        self.bytes
    }

    /// Returns the sequence numbers of the message whose first number is `first`.
    pub(crate) fn numbers(&self, first: u64) -> Range<u64> {
        first..first + u64::from(self.count)
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::dice::Dice;

    use super::*;

    fn parts(length: usize, size: usize) -> (Vec<u8>, Vec<Vec<u8>>) {
        let mut dice = Dice::new(length as u64);
        let message: Vec<u8> = (0..length).map(|_| dice.word().to_le_bytes()[0]).collect();
        let parts = message.chunks(size).map(<[u8]>::to_vec).collect();
        (message, parts)
    }

    /// [pkt-4] Parts in any order make up the message. The memory used is what the quota was
    /// charged.
    #[test]
    fn parts_in_any_order_make_the_message() {
        for seed in 0..200 {
            let mut dice = Dice::new(seed);
            let size = dice.index(40) + 1;
            let (message, parts) = parts(size + dice.index(3000) + 1, size);
            let count = u16::try_from(parts.len()).unwrap();
            let mut order: Vec<u16> = (0..count).collect();
            dice.shuffle(&mut order);
            let mut partial = PartialMessage::new(count);
            let mut agreed = 0;
            for index in order {
                assert!(!partial.is_whole());
                let part = &parts[usize::from(index)];
                agreed += partial.bytes_to_add(index, part).unwrap();
                partial.add(index, part);
                assert_eq!(partial.held_bytes(), agreed);
                assert_eq!(partial.bytes_to_add(index, part), Err(ContradictingPart), "twice");
            }
            assert!(partial.into_message() == message, "seed {seed}");
        }
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let mut partial = PartialMessage::new(3);
        assert_eq!(partial.bytes_to_add(0, &[]), Err(ContradictingPart));
        assert_eq!(partial.bytes_to_add(3, &[1]), Err(ContradictingPart));
        partial.add(2, &[1; 5]);
        // The last part is never longer than the others.
        assert_eq!(partial.bytes_to_add(0, &[1; 4]), Err(ContradictingPart));
        assert_eq!(partial.bytes_to_add(0, &[1; 5]), Ok(10));
        partial.add(0, &[1; 5]);
        assert_eq!(partial.bytes_to_add(1, &[1; 6]), Err(ContradictingPart));
        assert_eq!(partial.bytes_to_add(1, &[1; 5]), Ok(0));
        let mut partial = PartialMessage::new(3);
        partial.add(0, &[1; 5]);
        assert_eq!(partial.bytes_to_add(2, &[1; 6]), Err(ContradictingPart));
        assert_eq!(partial.bytes_to_add(2, &[1; 5]), Ok(0));
        let partial = PartialMessage::new(u16::MAX);
        assert!(partial.bytes_to_add(0, &[0; 256]).is_ok());
        assert_eq!(partial.bytes_to_add(0, &[0; 257]), Err(ContradictingPart));
    }
}
