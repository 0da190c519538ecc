//! Eras, computed as a pure function of the decided prefix ([era-2]).

use alloc::vec::Vec;

use crate::{
    ballot::{Ballot, Era},
    configuration::{Change, Configuration, InvalidConfiguration},
    node_id::{Incarnation, Member, NodeId},
    slot::Slot,
    value::Value,
};

/// Permanent record of a node that had weight or was removed ([member-1]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// Id that the record is about.
    pub node: NodeId,
    /// Highest incarnation of the node that ever had weight.
    pub incarnation: Incarnation,
    /// The node was removed, so this id never has weight again.
    pub is_removed: bool,
}

/// The configurations that still matter: the one in force and the previous one. Together with all
/// node ids ever used, they determine which changes are valid next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Eras {
    era: Era,
    era_start: Slot,
    current: Configuration,
    previous: Option<Configuration>,
    identities: Vec<Identity>,
}

impl Eras {
    /// Creates the eras before the first change. The founding configuration applies from the first
    /// slot onwards.
    pub fn founded(founding: Configuration) -> Self {
        let identity = |member: Member| Identity {
            node: member.node,
            incarnation: member.incarnation,
            is_removed: false,
        };
        // A configuration keeps its members sorted by id.
        let members = founding.members().iter();
        Self {
            era: Era(0),
            era_start: Slot::FIRST,
            identities: members.map(|voter| identity(voter.member)).collect(),
            current: founding,
            previous: None,
        }
    }

    /// Restores the eras from a trimmed log or a snapshot ([snap-1]). Fails if the parts contradict
    /// each other.
    pub fn restored(
        era: Era,
        since: Slot,
        current: Configuration,
        previous: Option<Configuration>,
        ids: Vec<Identity>,
    ) -> Result<Self, InvalidConfiguration> {
        let first = era == Era(0);
        let begun = previous.is_none() == first && (since == Slot::FIRST) == first;
        let class = previous.as_ref().is_none_or(|previous| previous.class() == current.class());
        let in_order = ids.windows(2).all(|pair| pair[0].node < pair[1].node);
        let eras = Self { era, era_start: since, current, previous, identities: ids };
        let known = |member: Member| {
            let identity = eras.identity(member.node);
            identity.is_some_and(|id| id.incarnation >= member.incarnation && !id.is_removed)
        };
        let members_known = eras.current.members().iter().all(|voter| known(voter.member));
        if begun && class && in_order && since >= Slot::FIRST && members_known {
            Ok(eras)
        } else {
            Err(InvalidConfiguration::Eras)
        }
    }

    /// Returns the era of the first undecided slot ([era-3]).
    pub fn era(&self) -> Era {
        self.era
    }

    /// Returns the first slot of the current era, which follows the reconfiguration that began it.
    pub fn era_start(&self) -> Slot {
        self.era_start
    }

    /// Returns the configuration of the current era.
    pub fn current(&self) -> &Configuration {
        &self.current
    }

    /// Returns the configuration of the previous era; `None` in the first era.
    pub fn previous(&self) -> Option<&Configuration> {
        self.previous.as_ref()
    }

    /// Returns every node that ever had weight or was removed, sorted by id ([member-1]).
    pub fn identities(&self) -> &[Identity] {
        &self.identities
    }

    /// Returns the permanent record of a node; `None` if it never had weight and was not removed.
    pub fn identity(&self, node: NodeId) -> Option<&Identity> {
        let at = self.identities.binary_search_by_key(&node, |id| id.node).ok()?;
        Some(&self.identities[at])
    }

    /// Returns C(era) if `era` is the current or the previous one.
    pub fn configuration_of(&self, era: Era) -> Option<&Configuration> {
        if era == self.era {
            Some(&self.current)
        } else if era.next() == self.era {
            self.previous.as_ref()
        } else {
            None
        }
    }

    /// [era-5] Returns whether votes in this ballot count for the first undecided slot. Votes in
    /// other ballots do not; [era-7] shows why that is enough.
    pub fn counts_ballot(&self, ballot: Ballot) -> bool {
        ballot.era == self.era || ballot.era.next() == self.era
    }

    /// Returns the configuration after `change`, if it is valid in the current era ([era-4],
    /// [member-1]).
    pub fn after_change(&self, change: Change) -> Result<Configuration, InvalidConfiguration> {
        let identity = |node| self.identity(node).copied();
        match change {
            Change::Increment(member) if self.current.position(member).is_none() => {
                match identity(member.node) {
                    Some(id) if id.is_removed => {
                        return Err(InvalidConfiguration::Removed(member.node));
                    }
                    // A later incarnation had weight, so this one may have forgotten votes.
                    Some(id) if id.incarnation > member.incarnation => {
                        return Err(InvalidConfiguration::OutdatedIncarnation(member));
                    }
                    Some(_) | None => {}
                }
            }
            Change::Remove(node) if identity(node).is_some_and(|id| id.is_removed) => {
                return Err(InvalidConfiguration::Removed(node));
            }
            Change::Increment(_)
            | Change::Decrement(_)
            | Change::Multiply(_)
            | Change::Divide(_)
            | Change::Remove(_)
            | Change::Role { .. }
            | Change::Rule(_) => {}
        }
        self.current.after_change(change)
    }

    /// [era-2] Applies a value decided in `slot`, the first undecided slot. Returns whether a new
    /// era begins after it. A change that is invalid, or that names another era, is a no-op.
    pub fn apply_decided(&mut self, slot: Slot, value: &Value) -> bool {
        let Value::Reconfigure { era, change } = *value else {
            return false;
        };
        if era != self.era {
            return false;
        }
        let Ok(next) = self.after_change(change) else {
            return false;
        };
        self.record_change(change);
        self.previous = Some(core::mem::replace(&mut self.current, next));
        self.era = self.era.next();
        self.era_start = slot.next();
        true
    }

    /// [member-1] Permanently records how a valid change affects a node id.
    fn record_change(&mut self, change: Change) {
        let (node, incarnation, spent) = match change {
            Change::Increment(member) => (member.node, member.incarnation, false),
            Change::Remove(node) => (node, Incarnation(0), true),
            Change::Decrement(_)
            | Change::Multiply(_)
            | Change::Divide(_)
            | Change::Role { .. }
            | Change::Rule(_) => return,
        };
        match self.identities.binary_search_by_key(&node, |id| id.node) {
            Ok(at) => {
                let known = &mut self.identities[at];
                known.incarnation = known.incarnation.max(incarnation);
                known.is_removed |= spent;
            }
            Err(at) => {
                self.identities.insert(at, Identity { node, incarnation, is_removed: spent })
            }
        }
    }
}

/// Returns the eras at the end of a decided part of the log, given those at its beginning
/// ([snap-3]). Used by recovery.
pub fn replay<'a>(mut base: Eras, decided: impl IntoIterator<Item = &'a (Slot, Value)>) -> Eras {
    for (slot, value) in decided {
        base.apply_decided(*slot, value);
    }
    base
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Class;

    fn member(node: u32, incarnation: u32) -> Member {
        Member { node: NodeId(node), incarnation: Incarnation(incarnation) }
    }

    fn founded() -> Eras {
        let members = [1, 2, 3].map(Member::first);
        Eras::founded(Configuration::majority_of(members, Class::Durable).expect("three members"))
    }

    fn decide(eras: &mut Eras, slot: u64, change: Change) -> bool {
        let era = eras.era();
        eras.apply_decided(Slot(slot), &Value::Reconfigure { era, change })
    }

    #[test]
    fn era_begins_after_the_slot_of_its_change() {
        let mut eras = founded();
        assert_eq!((eras.era(), eras.era_start()), (Era(0), Slot::FIRST));
        assert!(decide(&mut eras, 7, Change::Multiply(2)));
        assert_eq!((eras.era(), eras.era_start()), (Era(1), Slot(8)));
        let stale = Value::Reconfigure { era: Era(0), change: Change::Multiply(2) };
        assert!(!eras.apply_decided(Slot(9), &stale), "[era-2] it names era 0");
        assert_eq!((eras.era(), eras.era_start()), (Era(1), Slot(8)));
    }

    /// [member-1] A node that may have forgotten votes regains weight only under a new incarnation.
    #[test]
    fn wiped_node_gets_no_weight_under_its_old_name() {
        let mut eras = founded();
        assert!(decide(&mut eras, 1, Change::Decrement(member(3, 0))));
        assert!(decide(&mut eras, 2, Change::Increment(member(3, 2))), "a new incarnation");
        assert!(decide(&mut eras, 3, Change::Decrement(member(3, 2))));
        assert_eq!(
            eras.after_change(Change::Increment(member(3, 1))),
            Err(InvalidConfiguration::OutdatedIncarnation(member(3, 1)))
        );
        assert!(!decide(&mut eras, 4, Change::Increment(member(3, 0))));
        assert!(
            decide(&mut eras, 5, Change::Increment(member(3, 2))),
            "demotion does not spend the id"
        );
    }

    /// [member-1] A decided removal retires the node id, in every incarnation.
    #[test]
    fn removed_node_never_gets_weight_again() {
        let mut eras = founded();
        let with_weight = eras.after_change(Change::Remove(NodeId(3)));
        assert_eq!(with_weight, Err(InvalidConfiguration::HasWeight(NodeId(3))));
        assert!(decide(&mut eras, 1, Change::Decrement(member(3, 0))));
        let before = eras.current().clone();
        assert!(decide(&mut eras, 2, Change::Remove(NodeId(3))));
        assert_eq!(eras.current(), &before, "no weight changes");
        assert_eq!((eras.era(), eras.era_start()), (Era(2), Slot(3)));
        for incarnation in [0, 1, 9] {
            let change = Change::Increment(member(3, incarnation));
            assert_eq!(eras.after_change(change), Err(InvalidConfiguration::Removed(NodeId(3))));
            assert!(!decide(&mut eras, 3, change));
        }
        assert!(!decide(&mut eras, 3, Change::Remove(NodeId(3))), "once");
        // A learner that never had weight can be removed too.
        assert!(decide(&mut eras, 4, Change::Remove(NodeId(9))));
        assert!(!decide(&mut eras, 5, Change::Increment(member(9, 0))));
    }

    /// [snap-1] Eras restored from their written form accept the same changes.
    #[test]
    fn restored_eras_are_checked_and_equal_the_written_ones() {
        let mut eras = founded();
        decide(&mut eras, 3, Change::Decrement(member(3, 0)));
        decide(&mut eras, 5, Change::Remove(NodeId(3)));
        let again = Eras::restored(
            eras.era(),
            eras.era_start(),
            eras.current().clone(),
            eras.previous().cloned(),
            eras.identities().to_vec(),
        );
        assert_eq!(again, Ok(eras.clone()));
        let without = |era, since, previous: Option<&Configuration>, ids: &[Identity]| {
            let current = eras.current().clone();
            Eras::restored(era, since, current, previous.cloned(), ids.to_vec())
        };
        let (previous, ids) = (eras.previous(), eras.identities());
        let wrong = Err(InvalidConfiguration::Eras);
        assert_eq!(without(Era(2), Slot(6), None, ids), wrong);
        assert_eq!(without(Era(0), Slot(1), previous, ids), wrong);
        assert_eq!(without(Era(2), Slot(1), previous, ids), wrong);
        assert_eq!(without(Era(2), Slot(6), previous, &ids[1..]), wrong);
        let mut reversed = ids.to_vec();
        reversed.reverse();
        assert_eq!(without(Era(2), Slot(6), previous, &reversed), wrong);
    }
}
