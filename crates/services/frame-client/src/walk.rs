//! Processes the decisions in frames slot by slot, without gaps. The client may conclude an outcome
//! only from this walk ([offload-23]).
//!
//! The walk starts where a node states that it has applied all earlier slots, and advances by
//! decision frames alone, in the era in which it began, never past a slot that begins or ends a
//! session. So two facts are known at each slot: the session table, as far as it concerns the
//! client's session, and the configuration whose quorum counted.

use std::collections::BTreeMap;

use quorate_offload::{Descriptor, Header, header::HINT};

/// Maximum number of slots buffered ahead of the next one.
pub(super) const AHEAD: u64 = 1 << 12;
/// Kinds of values that begin and end sessions, as in frames.
const REGISTRATION: u8 = 5;
const EXPIRY: u8 = 6;

/// Decision in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heard {
    pub(super) value: Descriptor,
    /// True if the received bytes match the value, which is checked only for the client's own
    /// values. An own value with other bytes is a no-op ([offload-21]).
    pub(super) is_whole: bool,
    sum: u16,
}

/// Reason for ignoring a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unheard {
    /// The walk has passed the slot or has its decision.
    Stale,
    /// More than [`AHEAD`] slots ahead of the walk.
    Far,
    /// Counted from votes that may be forgotten, or by a quorum of another configuration.
    Foreign,
    /// Another value was received for this slot ([count-1]).
    Conflict,
}

/// Position of the walk, and the decisions ahead of it.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    era: u32,
    next: u64,
    heard: BTreeMap<u64, Heard>,
}

impl Walk {
    /// Starts a walk at slot `next`, below which some node has applied all slots, in era `era` or
    /// earlier.
    pub(super) const fn new(next: u64, era: u32) -> Self {
        Self { era, next, heard: BTreeMap::new() }
    }

    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Records the decision in an intact frame from the group.
    pub(super) fn record_decision(&mut self, said: &Header, is_whole: bool) -> Result<(), Unheard> {
        let slot = said.slot;
        if said.flags & HINT != 0 || said.ballot.ballot().era.0 != self.era {
            return Err(Unheard::Foreign);
        }
        let Some(ahead) = slot.checked_sub(self.next) else {
            return Err(Unheard::Stale);
        };
        if ahead >= AHEAD {
            return Err(Unheard::Far);
        }
        let heard = Heard { value: said.value, is_whole, sum: said.sum };
        match self.heard.get(&slot) {
            Some(known) if *known == heard => Err(Unheard::Stale),
            Some(_) => Err(Unheard::Conflict),
            None => {
                self.heard.insert(slot, heard);
                Ok(())
            }
        }
    }

    /// Advances by a slot and returns its decision, if it was received and does not begin or end a
    /// session.
    pub(super) fn step(&mut self) -> Option<(u64, Heard)> {
        let first = self.heard.first_entry()?;
        if *first.key() != self.next || matches!(first.get().value.kind, REGISTRATION | EXPIRY) {
            return None;
        }
        let heard = first.remove();
        self.next += 1;
        Some((self.next - 1, heard))
    }

    /// Returns whether the walk is blocked although decisions are buffered. The decision for the
    /// next slot is missing, or begins or ends a session.
    pub(super) fn is_stuck(&self) -> bool {
        !self.heard.is_empty()
    }

    /// Moves ahead to slot `to`, below which some node has applied all slots, in era `era` or
    /// earlier.
    pub(super) fn jump(&mut self, to: u64, era: u32) {
        if era != self.era {
            self.heard.clear();
        }
        (self.next, self.era) = (to, era);
        self.heard = self.heard.split_off(&to);
    }
}
