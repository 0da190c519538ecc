//! Leader: phase 1, the choice of values, and phase 2. Safety lives here; nothing here reads the
//! time.

use alloc::vec::Vec;

use crate::{
    ballot::Ballot,
    configuration::Configuration,
    extents::{ReportedVote, merge_highest},
    learner::{Proposal, Tally},
    message::Phase1b,
    node_id::{Member, NodeId, PEERS_MAX},
    quorum::{MemberSet, Phase},
    record::RecordSeq,
    slot::{Slot, SlotRange},
    value::Value,
};

/// Nodes from which a ballot requests promises.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PromiseTargets {
    /// All members. This node promises before it sends 1A.
    AllMembers,
    /// [cast-2] Only these nodes. This node promises last, with its casting vote.
    Only(Vec<NodeId>),
}

/// Stage of phase 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase1Stage {
    /// [ballot-2] The record of the round is being written. Nothing has been sent.
    Recording(RecordSeq),
    /// 1A messages have been sent, and promises are awaited.
    AwaitingPromises,
    /// [cast-3] All requested promises have arrived, and the record of this node's own promise is
    /// being written.
    Casting,
    /// A quorum has promised, but some member has dropped its votes below `floor`. This node must
    /// catch up before it proposes ([p1-5]).
    CatchingUp,
}

/// Phase 1 of a ballot of this node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Phase1 {
    /// Ballot for which promises are requested.
    pub ballot: Ballot,
    /// First undecided slot when phase 1 started.
    pub from: Slot,
    /// Nodes from which promises are requested.
    pub promise_targets: PromiseTargets,
    /// Current stage of phase 1.
    pub stage: Phase1Stage,
    /// Every slot below this one is decided, and some member that promised has dropped its votes
    /// for those slots.
    pub floor: Slot,
    /// Node to catch up from: the best of the `catchup_sources`, or this node while there is none.
    pub floor_source: NodeId,
    /// Members that promised and can send decided slots below the floor.
    catchup_sources: Vec<CatchupSource>,
    promises: Vec<Member>,
    refusals: Vec<Member>,
    reports: Vec<ReportedVote<NodeId>>,
}

/// A member that promised, and the decided slots in its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct CatchupSource {
    node: NodeId,
    log_range: SlotRange,
}

/// A proposal that a new leader takes over from earlier ballots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InheritedProposal {
    /// Slots in which the value is to be proposed.
    pub range: SlotRange,
    /// Value to propose in each of these slots.
    pub value: Value,
    /// Node that reported a vote for the value and so has its bytes ([value-4]); `None` if no
    /// member reported one.
    pub reporter: Option<NodeId>,
}

impl Phase1 {
    /// Starts phase 1. `record` is the record of the ballot's round.
    pub fn new(ballot: Ballot, from: Slot, asked: PromiseTargets, record: RecordSeq) -> Self {
        Self {
            ballot,
            from,
            promise_targets: asked,
            stage: Phase1Stage::Recording(record),
            floor: from,
            floor_source: ballot.node,
            catchup_sources: Vec::new(),
            promises: Vec::new(),
            refusals: Vec::new(),
            reports: Vec::new(),
        }
    }

    /// Returns whether `node` is sent a 1A message.
    pub fn sends_1a_to(&self, node: NodeId) -> bool {
        match &self.promise_targets {
            PromiseTargets::AllMembers => true,
            PromiseTargets::Only(nodes) => nodes.contains(&node),
        }
    }

    /// Adds a promise. Fails with a slot for which votes in the same ballot have different values.
    pub fn promise(&mut self, from: Member, promise: Phase1b) -> Result<(), Slot> {
        assert_eq!(promise.ballot, self.ballot, "a promise of another ballot");
        if self.promises.contains(&from) || promise.from != self.from {
            return Ok(());
        }
        let report = |extent: &crate::message::Extent| ReportedVote {
            range: extent.range,
            ballot: extent.ballot,
            value: extent.value,
            acceptor: from.node,
        };
        let theirs: Vec<_> = promise.extents.iter().map(report).collect();
        self.reports = merge_highest(&self.reports, &theirs)?;
        self.promises.push(from);
        if promise.floor > self.from && promise.log_start <= promise.floor {
            let log = SlotRange::new(promise.log_start, promise.floor);
            let node = from.node;
            self.catchup_sources.push(CatchupSource { node, log_range: log });
        }
        self.floor = self.floor.max(promise.floor);
        // Prefer members whose log starts at or below this leader's first undecided slot, and among
        // them the one that is furthest ahead.
        let use_of =
            |teacher: &&CatchupSource| (teacher.log_range.from <= self.from, teacher.log_range.to);
        if let Some(best) = self.catchup_sources.iter().max_by_key(use_of) {
            self.floor_source = best.node;
        }
        Ok(())
    }

    /// [p1-5] Returns the start of the best member's log if this node must catch up, but the log of
    /// no member that promised reaches back to `decided_to`, so that a snapshot is needed. Returns
    /// `None` otherwise, or if no such log is known.
    pub fn unreachable_log_start(&self, decided_to: Slot) -> Option<Slot> {
        let behind = |teacher: &&CatchupSource| teacher.log_range.to > decided_to;
        let teaches = |teacher: &CatchupSource| teacher.log_range.from <= decided_to;
        let mut able = self.catchup_sources.iter().filter(behind);
        if decided_to >= self.floor || able.any(teaches) {
            return None;
        }
        let best = self.catchup_sources.iter().find(|teacher| teacher.node == self.floor_source)?;
        Some(best.log_range.from)
    }

    /// Returns whether this member's promise has arrived.
    pub fn has_promised(&self, member: Member) -> bool {
        self.promises.contains(&member)
    }

    /// Records that this member has promised a higher ballot.
    pub fn record_refusal(&mut self, from: Member) {
        if !self.refusals.contains(&from) && self.refusals.len() < PEERS_MAX {
            self.refusals.push(from);
        }
    }

    /// Returns whether the refusals rule out a phase-1 quorum of C(era(b)).
    pub fn is_hopeless(&self, configuration: &Configuration) -> bool {
        configuration.blocks_phase1(member_set_of(configuration, &self.refusals))
    }

    /// Returns whether all nodes of a casting phase 1 have replied.
    pub fn all_answered(&self) -> bool {
        match &self.promise_targets {
            PromiseTargets::AllMembers => false,
            PromiseTargets::Only(nodes) => {
                nodes.iter().all(|node| self.promises.iter().any(|member| member.node == *node))
            }
        }
    }

    /// [era-5] Returns whether the promises form a phase-1 quorum of C(era(b)).
    pub fn has_quorum(&self, configuration: &Configuration) -> bool {
        configuration.is_quorum(Phase::One, member_set_of(configuration, &self.promises))
    }

    /// [cast-3] Returns whether the promises would form a phase-1 quorum together with this
    /// member's own promise.
    pub fn has_quorum_with(&self, own: Member, configuration: &Configuration) -> bool {
        let mut promises = self.promises.clone();
        promises.push(own);
        configuration.is_quorum(Phase::One, member_set_of(configuration, &promises))
    }

    /// [p1-6] Returns the proposals that phase 1 requires for the slots from `decided_to` onwards.
    /// Each slot gets the value reported in the highest ballot. Without a report, it gets this
    /// leader's own earlier proposal, or else a no-op. New values start after these slots.
    pub fn inheritance(&self, decided_to: Slot, own: Option<&Tally>) -> Vec<InheritedProposal> {
        let mut out = Vec::new();
        let mut at = decided_to;
        let undecided = SlotRange::new(decided_to, Slot(u64::MAX));
        for report in &self.reports {
            let range = report.range.intersect(undecided);
            if range.is_empty() {
                continue;
            }
            fill_unreported(SlotRange::new(at, range.from), own, &mut out);
            out.push(InheritedProposal {
                range,
                value: report.value,
                reporter: Some(report.acceptor),
            });
            at = range.to;
        }
        // After the last report only this leader's own earlier proposals remain.
        let own_end = own.map_or(at, |tally| tally.next().max(at));
        fill_unreported(SlotRange::new(at, own_end), own, &mut out);
        out
    }
}

/// Fills slots without reports with this leader's own earlier proposals, and with no-ops between
/// them.
fn fill_unreported(hole: SlotRange, own: Option<&Tally>, out: &mut Vec<InheritedProposal>) {
    let mut at = hole.from;
    let own = own.into_iter().flat_map(|tally| tally.proposals_from(hole.from));
    for Proposal { range, value, .. } in own {
        let range = range.intersect(SlotRange::new(at, hole.to));
        if range.is_empty() {
            continue;
        }
        if at < range.from {
            let range = SlotRange::new(at, range.from);
            out.push(InheritedProposal { range, value: Value::NoOp, reporter: None });
        }
        out.push(InheritedProposal { range, value: *value, reporter: None });
        at = range.to;
    }
    if at < hole.to {
        let range = SlotRange::new(at, hole.to);
        out.push(InheritedProposal { range, value: Value::NoOp, reporter: None });
    }
}

/// Returns the positions of `members` in a configuration. Non-members have no vote in it
/// ([class-4]).
pub fn member_set_of(configuration: &Configuration, members: &[Member]) -> MemberSet {
    let positions = members.iter().filter_map(|member| configuration.position(*member));
    positions.fold(MemberSet::default(), MemberSet::with)
}

/// Phase 2 of this node's ballot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Phase2 {
    /// Proposals of the current ballot, and the votes for them.
    pub tally: Tally,
    /// Tally of the previous ballot after a casting vote. Late votes in that ballot still count
    /// ([cast-4]).
    pub previous_tally: Option<Tally>,
    /// First slot proposed in the current ballot.
    pub first_slot: Slot,
    /// Slot of the last reconfiguration proposed in this ballot, while it is undecided ([era-8]).
    pub undecided_change: Option<Slot>,
}

impl Phase2 {
    /// Returns the ballot in which this node leads.
    pub fn ballot(&self) -> Ballot {
        self.tally.ballot()
    }

    /// Returns the tally of this ballot, if votes in it still count.
    pub fn tally_of(&mut self, ballot: Ballot) -> Option<&mut Tally> {
        if self.tally.ballot() == ballot {
            return Some(&mut self.tally);
        }
        let before = self.previous_tally.as_mut();
        before.filter(|tally| tally.ballot() == ballot)
    }

    /// Drops the state of the slots below `decided_to`.
    pub fn drop_below(&mut self, decided_to: Slot) {
        self.tally.drop_below(decided_to);
        if let Some(tally) = self.previous_tally.as_mut() {
            tally.drop_below(decided_to);
            if tally.is_empty() {
                self.previous_tally = None;
            }
        }
        if self.undecided_change.is_some_and(|slot| slot < decided_to) {
            self.undecided_change = None;
        }
    }
}

/// [cast-1] Splits the members other than `leader` into disjoint sets L and R, so that L ∪ {leader}
/// is a phase-1 quorum and R ∪ {leader} a phase-2 quorum. Returns the smallest such L. `usable`
/// returns whether a member can be relied on. `votes` returns whether a member is sent proposals,
/// which is required of every member of R.
pub fn split_quorums(
    configuration: &Configuration,
    leader: Member,
    usable: impl Fn(Member) -> bool,
    votes: impl Fn(Member) -> bool,
) -> Option<Vec<NodeId>> {
    split_preferring(configuration, leader, usable, votes, |_| true)
}

/// [ballot-5] Splits like [`split_quorums`], but with as few members as possible in L for which
/// `level` is false, because those would have to catch up first.
pub fn split_preferring(
    configuration: &Configuration,
    leader: Member,
    usable: impl Fn(Member) -> bool,
    votes: impl Fn(Member) -> bool,
    level: impl Fn(Member) -> bool,
) -> Option<Vec<NodeId>> {
    let own = configuration.position(leader)?;
    let members = configuration.members();
    let [mut others, mut voting, mut behind] = [MemberSet::default(); 3];
    for (index, voter) in members.iter().enumerate() {
        if index != own && usable(voter.member) {
            others = others.with(index);
            if !level(voter.member) {
                behind = behind.with(index);
            }
            if votes(voter.member) {
                voting = voting.with(index);
            }
        }
    }
    let subset = |bits: u32| {
        #[expect(clippy::cast_possible_truncation, reason = "at most 16 members")]
        let set = MemberSet(bits as u16);
        (set.0 & !others.0 == 0).then_some(set)
    };
    let works = |l: &MemberSet| {
        let r = MemberSet(voting.0 & !l.0);
        configuration.is_quorum(Phase::One, l.with(own))
            && configuration.is_quorum(Phase::Two, r.with(own))
    };
    let l = (0..1u32 << members.len())
        .filter_map(subset)
        .filter(works)
        .min_by_key(|set| ((set.0 & behind.0).count_ones(), set.0.count_ones(), set.0))?;
    let inside = members.iter().enumerate().filter(|(index, _)| l.has(*index));
    Some(inside.map(|(_, voter)| voter.member.node).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ballot::Era, class::Class, configuration::Voter, message::Extent, quorum::QuorumRule,
        value::StreamName,
    };

    /// [cast-1] A member that is sent no proposals cannot be in R; it belongs to L.
    #[test]
    fn unengaged_auxiliary_is_not_in_r() {
        let voter =
            |node, weight| Voter { member: Member::first(node), weight, auxiliary: node == 3 };
        let voters = [voter(1, 2), voter(2, 1), voter(3, 1)].to_vec();
        let configuration = Configuration::new(voters, QuorumRule::Majority, Class::Durable);
        let configuration = configuration.expect("three members");
        let full = |member| !configuration.is_auxiliary(member);
        let l = |votes: &dyn Fn(Member) -> bool| {
            split_quorums(&configuration, Member::first(1), |_| true, votes)
        };
        assert_eq!(l(&full), Some([NodeId(3)].to_vec()));
        assert_eq!(l(&|_| true), Some([NodeId(2)].to_vec()), "once it is engaged");
        assert_eq!(l(&|_| false), None);
    }

    /// [p1-6] Slots without votes that precede reported votes become no-ops, even though the run
    /// after them began earlier.
    #[test]
    fn unreported_slots_before_reported_votes_become_no_ops() {
        let ballot = |round| Ballot { era: Era(0), round, node: NodeId(1) };
        let run = Value::Content { stream: StreamName::default(), offset: 3 };
        let vote = |from, to| Extent {
            range: SlotRange::new(Slot(from), Slot(to)),
            ballot: ballot(1),
            value: run,
            class: Class::Durable,
        };
        let mut phase1 = Phase1::new(ballot(2), Slot(5), PromiseTargets::AllMembers, RecordSeq(1));
        let promise = Phase1b {
            ballot: ballot(2),
            from: Slot(5),
            floor: Slot(5),
            log_start: Slot(1),
            decided_to: Slot(5),
            extents: [vote(7, 9), vote(12, 14)].to_vec(),
        };
        assert_eq!(phase1.promise(Member::first(2), promise), Ok(()));
        let inherited = phase1.inheritance(Slot(5), None);
        let inherited: Vec<_> =
            inherited.iter().map(|one| (one.range.from.0, one.range.to.0, one.value)).collect();
        let hole = Value::NoOp;
        assert_eq!(inherited, [(5, 7, hole), (7, 9, run), (9, 12, hole), (12, 14, run)]);
    }
}
