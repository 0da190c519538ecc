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
pub(super) const BUFFERED_SLOTS_MAX: u64 = 1 << 12;
/// Kinds of values that begin and end sessions, as in frames.
const REGISTRATION_KIND: u8 = 5;
const EXPIRY_KIND: u8 = 6;

/// Decision in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeardDecision {
    pub(super) value: Descriptor,
    /// True if the received bytes match the value, which is checked only for the client's own
    /// values. An own value with other bytes is a no-op ([offload-21]).
    pub(super) is_intact: bool,
    checksum: u16,
}

/// Reason for ignoring a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IgnoreReason {
    /// The walk has passed the slot or has its decision.
    Stale,
    /// More than [`BUFFERED_SLOTS_MAX`] slots ahead of the walk.
    TooFarAhead,
    /// Counted from votes that may be forgotten, or by a quorum of another configuration.
    UntrustedQuorum,
    /// Another value was received for this slot ([count-1]).
    Conflict,
}

/// Position of the walk, and the decisions ahead of it.
#[derive(Clone, Debug)]
pub(super) struct SlotWalk {
    era: u32,
    next: u64,
    buffered_decisions: BTreeMap<u64, HeardDecision>,
}

impl SlotWalk {
    /// Starts a walk at slot `next`, below which some node has applied all slots, in era `era` or
    /// earlier.
    pub(super) const fn new(next: u64, era: u32) -> Self {
        Self { era, next, buffered_decisions: BTreeMap::new() }
    }

    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Records the decision in an intact frame from the group.
    pub(super) fn record_decision(
        &mut self,
        said: &Header,
        is_whole: bool,
    ) -> Result<(), IgnoreReason> {
        let slot = said.slot;
        if said.flags & HINT != 0 || said.ballot.unpack().era.0 != self.era {
            return Err(IgnoreReason::UntrustedQuorum);
        }
        let Some(ahead) = slot.checked_sub(self.next) else {
            return Err(IgnoreReason::Stale);
        };
        if ahead >= BUFFERED_SLOTS_MAX {
            return Err(IgnoreReason::TooFarAhead);
        }
        let heard = HeardDecision { value: said.value, is_intact: is_whole, checksum: said.sum };
        match self.buffered_decisions.get(&slot) {
            Some(known) if *known == heard => Err(IgnoreReason::Stale),
            Some(_) => Err(IgnoreReason::Conflict),
            None => {
                self.buffered_decisions.insert(slot, heard);
                Ok(())
            }
        }
    }

    /// Advances by a slot and returns its decision, if it was received and does not begin or end a
    /// session.
    pub(super) fn next_decision(&mut self) -> Option<(u64, HeardDecision)> {
        let first = self.buffered_decisions.first_entry()?;
        if *first.key() != self.next
            || matches!(first.get().value.kind, REGISTRATION_KIND | EXPIRY_KIND)
        {
            return None;
        }
        let heard = first.remove();
        self.next += 1;
        Some((self.next - 1, heard))
    }

    /// Returns whether the walk is blocked although decisions are buffered. The decision for the
    /// next slot is missing, or begins or ends a session.
    pub(super) fn is_stuck(&self) -> bool {
        !self.buffered_decisions.is_empty()
    }

    /// Moves ahead to slot `to`, below which some node has applied all slots, in era `era` or
    /// earlier.
    pub(super) fn jump_to(&mut self, to: u64, era: u32) {
        if era != self.era {
            self.buffered_decisions.clear();
        }
        (self.next, self.era) = (to, era);
        self.buffered_decisions = self.buffered_decisions.split_off(&to);
    }
}
