//! Configurations: voters, weights and the quorum rule, and the changes that preserve quorum
//! intersection.

use alloc::vec::Vec;
use core::fmt;

use crate::{
    class::Class,
    node_id::{Member, NodeId},
    quorum::{MemberSet, Phase, QuorumRule, VotingMembers},
    slot::Slot,
};

/// Maximum number of members. The exact quorum check enumerates all subsets of the members.
pub const MEMBERS_MAX: usize = 16;
/// Maximum total weight ([era-4]).
pub const WEIGHT_MAX: u64 = 1 << 31;

/// A member and its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Voter {
    /// The node and its incarnation.
    pub member: Member,
    /// Voting weight, at least 1.
    pub weight: u32,
    /// The member is an auxiliary: it has weight, receives no proposals while the full replicas
    /// suffice, and never leads ([aux-1], [aux-3]).
    pub auxiliary: bool,
}

/// A configuration ([era-1]). Invariant: it has members, all weights are within bounds, and its
/// quorums intersect.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Configuration {
    members: Vec<Voter>,
    rule: QuorumRule,
    class: Class,
}

/// A reconfiguration ([era-4]). It changes one member's weight by one, all weights by a factor, one
/// member's role, or the quorum rule, or it permanently removes a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// Adds 1 to a member's weight. A node that is not yet a member joins with weight 1.
    Increment(Member),
    /// Subtracts 1 from a member's weight. At weight 0 the member leaves, and may rejoin
    /// ([member-1]).
    Decrement(Member),
    /// Multiplies all weights by a factor.
    Multiply(u32),
    /// Divides all weights by a factor, which must divide each weight exactly.
    Divide(u32),
    /// Removes a node without weight and retires its id ([member-1]). No weight changes.
    Remove(NodeId),
    /// Makes a member an auxiliary or a full replica.
    Role {
        /// The member whose role changes.
        member: Member,
        /// The new role: `true` for an auxiliary.
        auxiliary: bool,
    },
    /// Replaces the quorum rule with this one.
    Rule(QuorumRule),
}

/// Reason for rejecting a configuration or a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InvalidConfiguration {
    /// The configuration would have no voters.
    Empty,
    /// The configuration would have more than [`MEMBERS_MAX`] members.
    TooMany,
    /// A node would be a member twice, in two incarnations ([volatile-2]).
    Twice(NodeId),
    /// A weight is zero, or a weight or the total is too large.
    Weight,
    /// This node is not a member.
    Unknown(NodeId),
    /// The factor is zero, or does not divide every weight.
    Factor,
    /// The node still has weight, so it cannot be removed.
    HasWeight(NodeId),
    /// The node with this id has been removed ([member-1]).
    Removed(NodeId),
    /// A later incarnation of the node has had weight ([member-1]).
    OutdatedIncarnation(Member),
    /// The change would have no effect.
    Unchanged,
    /// The group could not decide anything without its auxiliaries ([aux-1]).
    Auxiliaries,
    /// The reported eras contradict each other.
    Eras,
    /// Quorums would not intersect, or could never form.
    Quorums,
}

impl Configuration {
    /// Creates a valid configuration, with members sorted by id.
    pub fn new(
        mut members: Vec<Voter>,
        rule: QuorumRule,
        class: Class,
    ) -> Result<Self, InvalidConfiguration> {
        members.sort_unstable_by_key(|voter| voter.member);
        let configuration = Self { members, rule, class };
        configuration.check()?;
        Ok(configuration)
    }

    /// Creates a configuration in which each node has weight 1, under the majority rule.
    pub fn majority_of(
        members: impl IntoIterator<Item = Member>,
        class: Class,
    ) -> Result<Self, InvalidConfiguration> {
        let voter = |member| Voter { member, weight: 1, auxiliary: false };
        Self::new(members.into_iter().map(voter).collect(), QuorumRule::Majority, class)
    }

    fn check(&self) -> Result<(), InvalidConfiguration> {
        if self.members.is_empty() {
            return Err(InvalidConfiguration::Empty);
        }
        if self.members.len() > MEMBERS_MAX {
            return Err(InvalidConfiguration::TooMany);
        }
        for pair in self.members.windows(2) {
            if pair[0].member.node == pair[1].member.node {
                return Err(InvalidConfiguration::Twice(pair[0].member.node));
            }
        }
        if self.members.iter().any(|voter| voter.weight == 0) || self.weight() > WEIGHT_MAX {
            return Err(InvalidConfiguration::Weight);
        }
        if let QuorumRule::Grid { columns } = self.rule
            && (columns == 0 || !self.members.len().is_multiple_of(usize::from(columns)))
        {
            return Err(InvalidConfiguration::Quorums);
        }
        let all = self.all_members();
        let possible = self.is_quorum(Phase::One, all) && self.is_quorum(Phase::Two, all);
        // This also rejects an empty quorum (a flexible rule with a threshold of 0), because it
        // intersects no quorum.
        if !possible || !quorums_meet(self, Phase::One, self, Phase::Two) {
            return Err(InvalidConfiguration::Quorums);
        }
        // [trim-1] Without this check, an auxiliary could never forget a slot, because only the
        // slots that full replicas report as held count.
        if !self.is_quorum(Phase::Two, self.full_replicas()) {
            return Err(InvalidConfiguration::Auxiliaries);
        }
        Ok(())
    }

    /// Returns the members that are full replicas.
    pub fn full_replicas(&self) -> MemberSet {
        let full = |(index, voter): (usize, &Voter)| (!voter.auxiliary).then_some(index);
        let members = self.members.iter().enumerate();
        members.filter_map(full).fold(MemberSet::default(), MemberSet::with)
    }

    /// [offload-10] Returns `(q, n)` if any q of the n members form a phase-2 quorum and no member
    /// is an auxiliary; otherwise `None`.
    pub fn q_of_n(&self) -> Option<(u8, u8)> {
        let weight = self.members.first()?.weight;
        let alike = |voter: &Voter| voter.weight == weight && !voter.auxiliary;
        if matches!(self.rule, QuorumRule::Grid { .. }) || !self.members.iter().all(alike) {
            return None;
        }
        let members = u8::try_from(self.members.len()).ok()?;
        let first = |count: &u8| {
            let set = (0..usize::from(*count)).fold(MemberSet::default(), MemberSet::with);
            self.is_quorum(Phase::Two, set)
        };
        (1..=members).find(first).map(|quorum| (quorum, members))
    }

    /// Returns whether this member is an auxiliary.
    pub fn is_auxiliary(&self, member: Member) -> bool {
        self.position(member).is_some_and(|at| self.members[at].auxiliary)
    }

    /// Returns the configuration after `change`, or the reason for rejecting the change ([era-4]).
    /// [`crate::reconfigure::Eras::after_change`] checks which node ids may have weight.
    pub fn after_change(&self, change: Change) -> Result<Self, InvalidConfiguration> {
        let mut members = self.members.clone();
        let mut rule = self.rule;
        match change {
            Change::Increment(member) => match self.position(member) {
                Some(at) => {
                    members[at].weight =
                        members[at].weight.checked_add(1).ok_or(InvalidConfiguration::Weight)?;
                }
                None => members.push(Voter { member, weight: 1, auxiliary: false }),
            },
            Change::Decrement(member) => {
                let at = self.position(member).ok_or(InvalidConfiguration::Unknown(member.node))?;
                members[at].weight -= 1;
                if members[at].weight == 0 {
                    members.remove(at);
                }
            }
            Change::Multiply(factor) => {
                if factor == 0 {
                    return Err(InvalidConfiguration::Factor);
                }
                for voter in &mut members {
                    voter.weight =
                        voter.weight.checked_mul(factor).ok_or(InvalidConfiguration::Weight)?;
                }
                rule = rule.multiplied(factor).ok_or(InvalidConfiguration::Weight)?;
            }
            Change::Divide(factor) => {
                for voter in &mut members {
                    if factor == 0 || !voter.weight.is_multiple_of(factor) {
                        return Err(InvalidConfiguration::Factor);
                    }
                    voter.weight /= factor;
                }
                rule = rule.divided(factor).ok_or(InvalidConfiguration::Factor)?;
            }
            Change::Remove(node) => {
                if self.member_of(node).is_some() {
                    return Err(InvalidConfiguration::HasWeight(node));
                }
            }
            Change::Role { member, auxiliary } => {
                let at = self.position(member).ok_or(InvalidConfiguration::Unknown(member.node))?;
                if core::mem::replace(&mut members[at].auxiliary, auxiliary) == auxiliary {
                    return Err(InvalidConfiguration::Unchanged);
                }
            }
            Change::Rule(wanted) => {
                if core::mem::replace(&mut rule, wanted) == wanted {
                    return Err(InvalidConfiguration::Unchanged);
                }
            }
        }
        let next = Self::new(members, rule, self.class)?;
        // Majorities intersect by arithmetic as long as one weight changes by one, or all by a
        // factor.
        let majorities = self.rule == QuorumRule::Majority && rule == QuorumRule::Majority;
        if !majorities && !self.quorums_overlap(&next) {
            return Err(InvalidConfiguration::Quorums);
        }
        Ok(next)
    }

    /// Returns whether the quorums of this configuration and of the next one intersect, by the
    /// exact check of [era-4]. Majorities always do; the tests confirm that with this function.
    pub fn quorums_overlap(&self, next: &Self) -> bool {
        quorums_meet(next, Phase::One, next, Phase::Two)
            && quorums_meet(self, Phase::One, next, Phase::Two)
            && quorums_meet(self, Phase::Two, next, Phase::One)
    }

    /// Returns the members, in order of their ids.
    pub fn members(&self) -> &[Voter] {
        &self.members
    }

    /// Returns the quorum rule.
    pub const fn rule(&self) -> QuorumRule {
        self.rule
    }

    /// Returns the durability class that a vote needs in order to count. It is fixed for the life
    /// of the group.
    pub const fn class(&self) -> Class {
        self.class
    }

    /// Returns the position of a member in [`Self::members`], if its incarnation matches
    /// ([class-4]).
    pub fn position(&self, member: Member) -> Option<usize> {
        self.members.iter().position(|voter| voter.member == member)
    }

    /// Returns the member with this node id, in any incarnation.
    pub fn member_of(&self, node: NodeId) -> Option<&Voter> {
        self.members.iter().find(|voter| voter.member.node == node)
    }

    /// Returns all members.
    pub fn all_members(&self) -> MemberSet {
        (0..self.members.len()).fold(MemberSet::default(), MemberSet::with)
    }

    /// Returns the total weight, which is at most [`WEIGHT_MAX`] in every checked configuration.
    pub fn weight(&self) -> u64 {
        self.members.iter().map(|voter| u64::from(voter.weight)).sum()
    }

    /// Returns the weight of a set of members.
    pub fn weight_of(&self, set: MemberSet) -> u64 {
        let inside = self.members.iter().enumerate().filter(|(index, _)| set.has(*index));
        inside.map(|(_, voter)| u64::from(voter.weight)).sum()
    }

    /// Returns whether these members form a quorum for the phase.
    pub fn is_quorum(&self, phase: Phase, set: MemberSet) -> bool {
        let voting = VotingMembers {
            set,
            weight: self.weight_of(set),
            weight_all: self.weight(),
            members: self.members.len(),
        };
        self.rule.satisfied(phase, voting)
    }

    /// Returns the slot below which a quorum for the phase has everything; slot 0 if there is none.
    /// `to` returns the end of each member's slots.
    pub fn reached_by_quorum(&self, phase: Phase, to: impl Fn(&Voter) -> Slot) -> Slot {
        // Members sorted by `to`, highest first. There are few, so insertion sort is enough.
        let mut reach = [(Slot(0), 0usize); MEMBERS_MAX];
        for (index, voter) in self.members.iter().enumerate() {
            let (slot, mut at) = (to(voter), index);
            while at > 0 && reach[at - 1].0 < slot {
                reach[at] = reach[at - 1];
                at -= 1;
            }
            reach[at] = (slot, index);
        }
        let mut set = MemberSet::default();
        for (slot, index) in &reach[..self.members.len()] {
            set = set.with(*index);
            if self.is_quorum(phase, set) {
                return *slot;
            }
        }
        Slot(0)
    }

    /// Returns whether every phase-1 quorum includes a member of `set`, so that no ballot can be
    /// promised without them.
    pub fn blocks_phase1(&self, set: MemberSet) -> bool {
        self.blocks_quorums(Phase::One, set)
    }

    /// Returns whether every quorum of `phase` includes a member of `set`.
    pub fn blocks_quorums(&self, phase: Phase, set: MemberSet) -> bool {
        let rest = MemberSet(self.all_members().0 & !set.0);
        !self.is_quorum(phase, rest)
    }
}

/// Returns whether every phase-`p` quorum of `a` shares a member with every phase-`q` quorum of
/// `b`.
///
/// The check is exact. Two quorums can be disjoint iff some set of members is a quorum in `a` while
/// all other nodes form a quorum in `b`, because adding members never breaks a quorum. All subsets
/// are enumerated.
fn quorums_meet(a: &Configuration, p: Phase, b: &Configuration, q: Phase) -> bool {
    let all_a = 1u32 << a.members().len();
    (0..all_a).all(|bits| {
        #[expect(clippy::cast_possible_truncation, reason = "at most 16 members")]
        let set = MemberSet(bits as u16);
        if !a.is_quorum(p, set) {
            return true;
        }
        let mut rest = MemberSet::default();
        for (index, voter) in b.members().iter().enumerate() {
            let inside = a.position(voter.member).is_some_and(|at| set.has(at));
            if !inside {
                rest = rest.with(index);
            }
        }
        !b.is_quorum(q, rest)
    })
}

impl Change {
    /// Returns the change as three words for checksums: kind, node with incarnation, and amount.
    pub(crate) const fn checksum_words(self) -> [u64; 3] {
        match self {
            Self::Increment(m) => [1, (m.node.0 as u64) | (m.incarnation.0 as u64) << 32, 0],
            Self::Decrement(m) => [2, (m.node.0 as u64) | (m.incarnation.0 as u64) << 32, 0],
            Self::Multiply(factor) => [3, 0, factor as u64],
            Self::Divide(factor) => [4, 0, factor as u64],
            Self::Remove(node) => [5, node.0 as u64, 0],
            Self::Role { member: m, auxiliary } => {
                [6, (m.node.0 as u64) | (m.incarnation.0 as u64) << 32, auxiliary as u64]
            }
            Self::Rule(rule) => {
                let [kind, first, second] = rule.to_words();
                [7, (first as u64) | (second as u64) << 32, kind as u64]
            }
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Increment(member) => write!(f, "{member} + 1"),
            Self::Decrement(member) => write!(f, "{member} - 1"),
            Self::Multiply(factor) => write!(f, "* {factor}"),
            Self::Divide(factor) => write!(f, "/ {factor}"),
            Self::Remove(node) => write!(f, "remove {node}"),
            Self::Role { member, auxiliary: true } => write!(f, "{member} auxiliary"),
            Self::Role { member, auxiliary: false } => write!(f, "{member} full"),
            Self::Rule(rule) => write!(f, "quorum {rule}"),
        }
    }
}

/// Formats as `1:2 2 3'1 4a`: node 1 with weight 2, node 2, node 3 in its second incarnation, and
/// the auxiliary 4.
impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, voter) in self.members.iter().enumerate() {
            let space = if index > 0 { " " } else { "" };
            write!(f, "{space}{}", voter.member)?;
            if voter.weight != 1 {
                write!(f, ":{}", voter.weight)?;
            }
            if voter.auxiliary {
                f.write_str("a")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn flexible(phase1: u32, phase2: u32) -> QuorumRule {
        QuorumRule::Flexible { phase1, phase2 }
    }

    fn founded(nodes: u32, rule: QuorumRule) -> Configuration {
        let voter = |node| Voter { member: Member::first(node), weight: 1, auxiliary: false };
        let voters = (1..=nodes).map(voter).collect();
        Configuration::new(voters, rule, Class::Durable).expect("quorums meet")
    }

    /// [era-4] Scaling all weights also scales the thresholds, so the same nodes still form a
    /// quorum.
    #[test]
    fn thresholds_are_scaled_with_the_weights() {
        let configuration = founded(4, flexible(3, 2));
        let twice = configuration.after_change(Change::Multiply(2)).expect("valid");
        assert_eq!(twice.rule(), flexible(6, 4));
        assert_eq!(twice.after_change(Change::Divide(2)), Ok(configuration.clone()));
        let odd = twice.after_change(Change::Rule(flexible(7, 4))).expect("valid");
        assert_eq!(odd.after_change(Change::Divide(2)), Err(InvalidConfiguration::Factor));
        let most = Change::Multiply(u32::MAX);
        assert_eq!(twice.after_change(most), Err(InvalidConfiguration::Weight));
    }

    /// [era-4] Phase-1 and phase-2 quorums of the new rule must intersect each other and those of
    /// the old rule.
    #[test]
    fn quorums_of_a_new_rule_must_intersect_the_old_ones() {
        let configuration = founded(4, flexible(3, 2));
        let to = |rule| configuration.after_change(Change::Rule(rule)).map(|next| next.rule());
        assert_eq!(to(flexible(3, 3)), Ok(flexible(3, 3)));
        assert_eq!(to(QuorumRule::Majority), Ok(QuorumRule::Majority));
        assert_eq!(to(flexible(2, 2)), Err(InvalidConfiguration::Quorums), "not each other");
        assert_eq!(
            to(flexible(2, 3)),
            Err(InvalidConfiguration::Quorums),
            "its phase 1, votes of before"
        );
        assert_eq!(
            to(flexible(4, 1)),
            Err(InvalidConfiguration::Quorums),
            "its votes, phase 1 of before"
        );
        assert_eq!(
            to(flexible(5, 2)),
            Err(InvalidConfiguration::Quorums),
            "no quorum could promise"
        );
        assert_eq!(to(flexible(3, 2)), Err(InvalidConfiguration::Unchanged));
    }

    /// [aux-1] A group whose full replicas could not decide without its auxiliaries is invalid.
    #[test]
    fn full_replicas_must_be_able_to_decide_without_auxiliaries() {
        let role = |node, auxiliary| Change::Role { member: Member::first(node), auxiliary };
        let one =
            founded(3, QuorumRule::Majority).after_change(role(3, true)).expect("two are left");
        assert_eq!(one.to_string(), "1 2 3a");
        assert_eq!(one.after_change(role(2, true)), Err(InvalidConfiguration::Auxiliaries));
        assert_eq!(one.after_change(role(3, true)), Err(InvalidConfiguration::Unchanged));
        assert_eq!(one.after_change(role(4, true)), Err(InvalidConfiguration::Unknown(NodeId(4))));
        assert_eq!(
            one.after_change(Change::Decrement(Member::first(2))),
            Err(InvalidConfiguration::Auxiliaries)
        );
        assert_eq!(one.after_change(role(3, false)), Ok(founded(3, QuorumRule::Majority)));
    }
}
