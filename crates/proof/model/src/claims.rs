//! Checks the notifications with which clients of a durable group learn that a value is in memory
//! at a quorum ([less-4]). Records votes as they are cast, and the members that lost votes before
//! these were on disk.

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::{
    ballot::Ballot,
    node_id::Member,
    slot::{Slot, SlotRange},
    value::Value,
};

/// Votes of one ballot for one slot, whether or not on disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct BallotVotes {
    value: Value,
    /// Members that cast a vote in this ballot.
    cast_by: BTreeSet<Member>,
    /// Members that cast a vote and have not lost it since.
    kept_by: BTreeSet<Member>,
}

/// All votes, and the notifications about them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Claims {
    votes: BTreeMap<(Slot, Ballot), BallotVotes>,
    /// Slots and ballots of which clients were notified.
    notified: BTreeSet<(Slot, Ballot)>,
}

impl Claims {
    /// Records a vote that a member has cast, at least in memory.
    pub fn record_vote(&mut self, member: Member, ballot: Ballot, range: SlotRange, value: Value) {
        for slot in (range.from.0..range.to.0).map(Slot) {
            let cast = self.votes.entry((slot, ballot)).or_insert_with(|| BallotVotes {
                value,
                cast_by: BTreeSet::new(),
                kept_by: BTreeSet::new(),
            });
            cast.cast_by.insert(member);
            cast.kept_by.insert(member);
        }
    }

    /// Records that a member lost its memory. `has` returns whether a vote is still on its disk.
    pub fn record_loss(&mut self, member: Member, has: impl Fn(Ballot, Slot) -> bool) {
        for ((slot, ballot), cast) in &mut self.votes {
            if cast.kept_by.contains(&member) && !has(*ballot, *slot) {
                cast.kept_by.remove(&member);
            }
        }
    }

    /// Records that a client was notified of a quorum of votes in a slot and ballot. Returns the
    /// value, and the members that voted for it.
    pub fn record_notification(
        &mut self,
        slot: Slot,
        ballot: Ballot,
    ) -> Option<(Value, Vec<Member>)> {
        self.notified.insert((slot, ballot));
        let cast = self.votes.get(&(slot, ballot))?;
        Some((cast.value, cast.cast_by.iter().copied().collect()))
    }

    /// Returns the notifications for `slot`: the ballot, the value, and the members that still have
    /// their vote.
    pub fn notifications_for(
        &self,
        slot: Slot,
    ) -> impl Iterator<Item = (Ballot, Value, Vec<Member>)> + '_ {
        let told = self.notified.range((slot, Ballot::ZERO)..(slot.next(), Ballot::ZERO));
        told.filter_map(|key| {
            let cast = self.votes.get(key)?;
            Some((key.1, cast.value, cast.kept_by.iter().copied().collect()))
        })
    }
}
