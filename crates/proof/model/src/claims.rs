//! Notifications to clients of a durable group that a value is in memory at a quorum, and whether
//! they held ([less-4]): votes as they are cast, and the members that lost some before they were on
//! a disk.

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::{
    ballot::Ballot,
    node_id::Member,
    slot::{Slot, SlotRange},
    value::Value,
};

/// Votes of one ballot for one slot, on disks or not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Cast {
    value: Value,
    /// Members that cast one.
    by: BTreeSet<Member>,
    /// The part of them that has not lost it since.
    kept: BTreeSet<Member>,
}

/// All votes, and the notifications about them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Claims {
    cast: BTreeMap<(Slot, Ballot), Cast>,
    /// Slots and ballots that clients were notified of.
    told: BTreeSet<(Slot, Ballot)>,
}

impl Claims {
    /// Notes a member's vote, in memory at least.
    pub fn casts(&mut self, member: Member, ballot: Ballot, range: SlotRange, value: Value) {
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

    /// Notes that a member has lost its memory: the votes that it still `has` are on its disk.
    pub fn forgets(&mut self, member: Member, has: impl Fn(Ballot, Slot) -> bool) {
        for ((slot, ballot), cast) in &mut self.cast {
            if cast.kept.contains(&member) && !has(*ballot, *slot) {
                cast.kept.remove(&member);
            }
        }
    }

    /// Notes that a client was notified of a quorum of votes for this slot in this ballot; returns
    /// the value, and the members that cast them.
    pub fn tells(&mut self, slot: Slot, ballot: Ballot) -> Option<(Value, Vec<Member>)> {
        self.told.insert((slot, ballot));
        let cast = self.cast.get(&(slot, ballot))?;
        Some((cast.value, cast.by.iter().copied().collect()))
    }

    /// Returns the notifications for this slot: the ballot, the value, and the members that have
    /// not lost the vote.
    pub fn of(&self, slot: Slot) -> impl Iterator<Item = (Ballot, Value, Vec<Member>)> + '_ {
        let told = self.told.range((slot, Ballot::ZERO)..(slot.next(), Ballot::ZERO));
        told.filter_map(|key| {
            let cast = self.cast.get(key)?;
            Some((key.1, cast.value, cast.kept.iter().copied().collect()))
        })
    }
}
