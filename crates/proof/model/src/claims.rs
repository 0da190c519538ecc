//! Checks notifications to clients of a durable group that a value is in memory at a quorum
//! ([less-4]): records votes as they are cast, and which members lost votes before these were on
//! disk.

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::{
    ballot::Ballot,
    node_id::Member,
    slot::{Slot, SlotRange},
    value::Value,
};

/// Votes of one ballot for one slot, on disk or not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Cast {
    value: Value,
    /// Members that cast such a vote.
    by: BTreeSet<Member>,
    /// Members that have not lost the vote since.
    kept: BTreeSet<Member>,
}

/// All votes, and the notifications about them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Claims {
    cast: BTreeMap<(Slot, Ballot), Cast>,
    /// Slots and ballots reported to clients.
    told: BTreeSet<(Slot, Ballot)>,
}

impl Claims {
    /// Records a member's vote, at least in memory.
    pub fn record_vote(&mut self, member: Member, ballot: Ballot, range: SlotRange, value: Value) {
        for slot in (range.from.0..range.to.0).map(Slot) {
            let cast = self.cast.entry((slot, ballot)).or_insert_with(|| Cast {
                value,
                by: BTreeSet::new(),
                kept: BTreeSet::new(),
            });
            cast.by.insert(member);
            cast.kept.insert(member);
        }
    }

    /// Records that a member lost its memory; `has` returns whether a vote is still on its disk.
    pub fn record_loss(&mut self, member: Member, has: impl Fn(Ballot, Slot) -> bool) {
        for ((slot, ballot), cast) in &mut self.cast {
            if cast.kept.contains(&member) && !has(*ballot, *slot) {
                cast.kept.remove(&member);
            }
        }
    }

    /// Records that a client was notified of a quorum of votes for this slot in this ballot.
    /// Returns the value and the members that voted for it.
    pub fn record_notification(
        &mut self,
        slot: Slot,
        ballot: Ballot,
    ) -> Option<(Value, Vec<Member>)> {
        self.told.insert((slot, ballot));
        let cast = self.cast.get(&(slot, ballot))?;
        Some((cast.value, cast.by.iter().copied().collect()))
    }

    /// Returns the notifications for this slot: ballot, value, and the members that still have
    /// their vote.
    pub fn of(&self, slot: Slot) -> impl Iterator<Item = (Ballot, Value, Vec<Member>)> + '_ {
        let told = self.told.range((slot, Ballot::ZERO)..(slot.next(), Ballot::ZERO));
        told.filter_map(|key| {
            let cast = self.cast.get(key)?;
            Some((key.1, cast.value, cast.kept.iter().copied().collect()))
        })
    }
}
