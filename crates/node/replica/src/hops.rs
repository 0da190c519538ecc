//! Timestamps on a command's path through this node. `quorate bench log --trace` draws them.
//!
//! Stamps are stored in a ring of fixed size, which overwrites the oldest without allocating. A
//! node without stamps has no ring, and each stamping point costs it one branch.

use std::fmt::Write as _;

use quorate_core::slot::Slot;

/// Stamped event on a command's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hop {
    /// The thread has events to process after sleeping or polling.
    Wakeup,
    /// A client's command was read and accepted.
    Command,
    /// A frame from a peer was read.
    Frame,
    /// The leader assigned a slot to the batch, and queued its proposal.
    Proposed,
    /// The vote was appended to the log.
    Recorded,
    /// The vote may be sent: it is durable if the class requires that.
    Voted,
    /// The turn begins to send its frames.
    Sending,
    /// A disk write that contains the vote for the slot was started.
    Writing,
    /// This node's record of the slot is on disk.
    Written,
    /// The slot is known to be decided.
    Decided,
    /// The slot was applied.
    Applied,
    /// The turn begins to send its replies.
    Replying,
}

impl Hop {
    /// All hops, in the order in which they occur in a turn.
    pub const ALL: [Self; 12] = [
        Self::Wakeup,
        Self::Command,
        Self::Frame,
        Self::Proposed,
        Self::Recorded,
        Self::Voted,
        Self::Sending,
        Self::Writing,
        Self::Written,
        Self::Decided,
        Self::Applied,
        Self::Replying,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Wakeup => "woke",
            Self::Command => "command",
            Self::Frame => "frame",
            Self::Proposed => "proposed",
            Self::Recorded => "recorded",
            Self::Voted => "voted",
            Self::Sending => "sending",
            Self::Writing => "writing",
            Self::Written => "written",
            Self::Decided => "decided",
            Self::Applied => "applied",
            Self::Replying => "replying",
        }
    }
}

/// Stamp of a hop, with the slot concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Time in nanoseconds, read from the ring's clock.
    pub at_ns: u64,
    pub hop: Hop,
    pub slot: Option<Slot>,
}

impl Stamp {
    /// Parses a line of [`HopRing::text`].
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let (at, name, slot) = (words.next()?, words.next()?, words.next()?);
        let slot = match slot {
            "-" => None,
            slot => Some(Slot(slot.parse().ok()?)),
        };
        let hop = Hop::ALL.into_iter().find(|hop| hop.name() == name)?;
        Some(Self { at_ns: at.parse().ok()?, hop, slot })
    }
}

/// The latest stamps of a node.
#[derive(Clone, Debug)]
pub struct HopRing {
    /// Clock in nanoseconds, shared by all nodes and clients that are compared.
    clock: fn() -> u64,
    ring: Box<[Stamp]>,
    stamp_count: usize,
    next_write: u64,
}

impl HopRing {
    /// Capacity of the ring in stamps.
    pub const CAPACITY: usize = 1 << 16;

    /// Creates an empty ring. `clock` returns nanoseconds.
    pub fn new(clock: fn() -> u64) -> Self {
        let none = Stamp { at_ns: 0, hop: Hop::Wakeup, slot: None };
        Self { clock, ring: vec![none; Self::CAPACITY].into(), stamp_count: 0, next_write: 0 }
    }

    pub fn now_ns(&self) -> u64 {
        (self.clock)()
    }

    pub fn stamp(&mut self, hop: Hop, slot: Option<Slot>) {
        self.stamp_at(self.now_ns(), hop, slot);
    }

    pub fn stamp_at(&mut self, at_ns: u64, hop: Hop, slot: Option<Slot>) {
        self.ring[self.stamp_count % Self::CAPACITY] = Stamp { at_ns, hop, slot };
        self.stamp_count += 1;
    }

    /// Records that all writes with a number below `next` were started. The last of them contains
    /// the votes for slots below `voted_to`.
    pub(crate) fn stamp_writes(&mut self, next: u64, voted_to: Slot) {
        if std::mem::replace(&mut self.next_write, next) < next {
            self.stamp(Hop::Writing, Some(Slot(voted_to.0.saturating_sub(1))));
        }
    }

    /// Returns all stamps, the oldest first, one per line.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for number in self.stamp_count.saturating_sub(Self::CAPACITY)..self.stamp_count {
            let Stamp { at_ns, hop, slot } = self.ring[number % Self::CAPACITY];
            let slot = slot.map_or_else(|| "-".to_owned(), |slot| slot.0.to_string());
            let _ = writeln!(text, "{at_ns} {} {slot}", hop.name());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_stamps_are_retained_and_parsed_back() {
        let mut hops = HopRing::new(|| 7);
        assert_eq!(hops.text(), "");
        hops.stamp(Hop::Proposed, Some(Slot(3)));
        hops.stamp_at(8, Hop::Sending, None);
        assert_eq!(hops.text(), "7 proposed 3\n8 sending -\n");
        for number in 0..HopRing::CAPACITY as u64 {
            let hop = Hop::ALL[number as usize % Hop::ALL.len()];
            hops.stamp_at(number, hop, (number % 2 == 0).then_some(Slot(number)));
        }
        let text = hops.text();
        let read: Vec<Stamp> = text.lines().filter_map(Stamp::parse).collect();
        assert_eq!(read.len(), HopRing::CAPACITY, "every line, and no older one");
        assert_eq!((read[0].at_ns, read[0].slot), (0, Some(Slot(0))));
        assert_eq!(read[13].hop, Hop::Command);
        assert_eq!(read[13].slot, None);
    }

    #[test]
    fn a_write_is_stamped_once() {
        let mut hops = HopRing::new(|| 7);
        for (next, voted_to) in [(3, 9), (3, 10), (5, 10)] {
            hops.stamp_writes(next, Slot(voted_to));
        }
        assert_eq!(hops.text(), "7 writing 8\n7 writing 9\n");
    }

    #[test]
    fn invalid_stamps_are_not_parsed() {
        for line in ["", "7", "7 woke", "x woke -", "7 slept -", "7 woke x"] {
            assert_eq!(Stamp::parse(line), None, "{line}");
        }
    }
}
