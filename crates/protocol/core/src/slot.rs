//! Slots, and half-open slot ranges. Every statement of the protocol is about a range.

use core::fmt;

/// A position in the log. The first slot is 1; 0 means "before everything".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u64);

impl Slot {
    /// First slot of every log.
    pub const FIRST: Self = Self(1);

    /// Returns the slot `count` slots later. Saturates: honest use never reaches 2^64 slots, and a
    /// hostile number must not wrap around to a small one.
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }

    /// Returns the slot after this one.
    pub const fn next(self) -> Self {
        self.plus(1)
    }
}

/// The slots `from..to`, excluding `to`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotRange {
    /// First slot of the range.
    pub from: Slot,
    /// End of the range, exclusive.
    pub to: Slot,
}

impl SlotRange {
    /// Returns the range of one slot.
    pub const fn one(slot: Slot) -> Self {
        Self { from: slot, to: slot.next() }
    }

    /// Creates the range `from..to`.
    pub const fn new(from: Slot, to: Slot) -> Self {
        Self { from, to }
    }

    /// Returns the number of slots in the range.
    pub const fn len(self) -> u64 {
        self.to.0.saturating_sub(self.from.0)
    }

    /// Returns whether the range contains no slot.
    pub const fn is_empty(self) -> bool {
        self.from.0 >= self.to.0
    }

    /// Returns whether the range contains `slot`.
    pub const fn contains(self, slot: Slot) -> bool {
        self.from.0 <= slot.0 && slot.0 < self.to.0
    }

    /// Returns the intersection of two ranges, which may be empty.
    pub fn intersect(self, other: Self) -> Self {
        Self { from: self.from.max(other.from), to: self.to.min(other.to) }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Formats as `7` for one slot, `7..9` for more.
impl fmt::Display for SlotRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.len() {
            1 => self.from.fmt(f),
            _ => write!(f, "{}..{}", self.from, self.to),
        }
    }
}
