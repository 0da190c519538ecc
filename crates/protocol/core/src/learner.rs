//! Learner: counts votes in slot order, by ballot and descriptor, and tracks the decided prefix.
//!
//! Safety lives here. Slots are decided in order, so "decided" is one number ([decide-1]). The
//! configuration for a slot is known only once everything below the slot is decided.

use alloc::{collections::VecDeque, vec::Vec};

use crate::{
    acceptor::Acceptor,
    ballot::Ballot,
    class::Class,
    configuration::{Configuration, MEMBERS_MAX},
    counted::CountedSlots,
    lost::LostSlots,
    message::Phase2b,
    node_id::Member,
    quorum::{MemberSet, Phase},
    reconfigure::Eras,
    slot::{Slot, SlotRange},
    value::{Value, range_check},
};

/// Maximum number of voters in a tally, which may span two overlapping configurations.
const VOTERS_MAX: usize = 2 * MEMBERS_MAX;

/// An undecided proposal of a ballot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Proposal {
    /// Slots in which the value was proposed.
    pub range: SlotRange,
    /// Value proposed in each of these slots.
    pub value: Value,
    /// Prefix sum of the ballot before this proposal.
    pub prefix: u64,
}

/// Votes of one member in the tally's ballot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct MemberVotes {
    member: Member,
    range: SlotRange,
}

/// Undecided proposals of one ballot, and the votes for them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tally {
    ballot: Ballot,
    proposals: VecDeque<Proposal>,
    /// End of the last proposal, exclusive. `prefix` is the ballot's prefix sum there.
    next: Slot,
    prefix: u64,
    votes: Vec<MemberVotes>,
    /// [offload-10] Slots for which a device counted a quorum in this ballot.
    device_counted: CountedSlots,
}

/// A vote that does not match the proposals of its ballot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VoteMismatch {
    /// End of the vote's slots, exclusive. The first slot that differs is somewhere below it.
    pub to: Slot,
}

impl Tally {
    /// Creates an empty tally whose proposals begin at `next`.
    pub fn new(ballot: Ballot, next: Slot, capacity: usize) -> Self {
        let proposals = VecDeque::with_capacity(capacity);
        Self {
            ballot,
            proposals,
            next,
            prefix: 0,
            votes: Vec::with_capacity(MEMBERS_MAX),
            device_counted: CountedSlots::default(),
        }
    }

    /// Returns the ballot whose votes are counted.
    pub fn ballot(&self) -> Ballot {
        self.ballot
    }

    /// Returns the end of the last proposal, exclusive.
    pub fn next(&self) -> Slot {
        self.next
    }

    /// Returns the undecided proposals, in slot order without gaps.
    pub fn proposals(&self) -> impl Iterator<Item = &Proposal> {
        self.proposals.iter()
    }

    /// Returns the number of undecided proposals.
    pub fn len(&self) -> usize {
        self.proposals.len()
    }

    /// Returns whether every proposal is decided.
    pub fn is_empty(&self) -> bool {
        self.proposals.is_empty()
    }

    /// Returns the undecided proposals from `slot` onwards.
    pub fn proposals_from(&self, slot: Slot) -> impl Iterator<Item = &Proposal> {
        let start = self.proposals.partition_point(|proposal| proposal.range.to <= slot);
        self.proposals.range(start..)
    }

    /// Appends a proposal of `value` for the next `count` slots.
    pub fn propose(&mut self, count: u64, value: Value) -> Proposal {
        let range = SlotRange::new(self.next, self.next.plus(count));
        let proposal = Proposal { range, value, prefix: self.prefix };
        self.prefix = self.prefix.wrapping_add(range_check(range, &value));
        self.next = range.to;
        self.proposals.push_back(proposal);
        proposal
    }

    /// Returns the ballot's prefix sum at `slot`; `None` if the slot is below the undecided
    /// proposals or above the end of the last one.
    pub(crate) fn prefix_at(&self, slot: Slot) -> Option<u64> {
        if slot == self.next {
            return Some(self.prefix);
        }
        let at = self.proposals.partition_point(|proposal| proposal.range.to <= slot);
        let proposal = self.proposals.get(at)?;
        if slot < proposal.range.from {
            return None;
        }
        let part = SlotRange::new(proposal.range.from, slot);
        Some(proposal.prefix.wrapping_add(range_check(part, &proposal.value)))
    }

    /// Adds a vote of this ballot. Only its part that has reached `class` counts. Votes are
    /// cumulative, so repeated or reordered messages lead to the same result.
    pub fn add_vote(
        &mut self,
        member: Member,
        vote: &Phase2b,
        class: Class,
    ) -> Result<(), VoteMismatch> {
        assert_eq!(vote.ballot, self.ballot, "a vote of another ballot");
        let to = match class {
            Class::Volatile => vote.volatile_to,
            Class::Durable => vote.durable_to,
        };
        let undecided = self.proposals.front().map_or(self.next, |first| first.range.from);
        if to <= undecided || to <= vote.from {
            return Ok(());
        }
        // [count-1], [p2-6]: a vote for values other than those proposed is not counted.
        if to > vote.volatile_to || self.prefix_at(vote.volatile_to) != Some(vote.check) {
            return Err(VoteMismatch { to: vote.volatile_to });
        }
        let range = SlotRange::new(vote.from, to);
        match self.votes.iter().position(|votes| votes.member == member) {
            Some(at) => {
                let known = &mut self.votes[at].range;
                if range.from == known.from {
                    known.to = known.to.max(range.to);
                } else if range.from > known.from {
                    // The new run is later, so the slots of the older one are decided.
                    *known = range;
                } else if range.to >= known.from {
                    // [disk-8] An earlier run: the member lost decided slots and is voting for them
                    // again. Both runs are its votes in this ballot.
                    *known = SlotRange::new(range.from, known.to.max(range.to));
                }
            }
            None if self.votes.len() < VOTERS_MAX => self.votes.push(MemberVotes { member, range }),
            None => {}
        }
        Ok(())
    }

    /// [offload-10] Records that a device counted a quorum for each slot in `range`.
    pub fn note_counted(&mut self, range: SlotRange) {
        self.device_counted.add(range);
    }

    /// Returns the end of the run of slots, starting at `from`, with votes of a phase-2 quorum of
    /// `configuration` in this ballot.
    fn voted_by_quorum_to(&self, configuration: &Configuration, from: Slot) -> Slot {
        // Members sorted by the end of their votes, highest first. There are few, so insertion sort
        // is enough.
        let mut reach = [(Slot(0), 0usize); MEMBERS_MAX];
        let mut count = 0;
        for votes in &self.votes {
            let Some(index) = configuration.position(votes.member) else {
                continue;
            };
            if !votes.range.contains(from) {
                continue;
            }
            let mut at = count;
            while at > 0 && reach[at - 1].0 < votes.range.to {
                reach[at] = reach[at - 1];
                at -= 1;
            }
            reach[at] = (votes.range.to, index);
            count += 1;
        }
        let mut set = MemberSet::default();
        for (to, index) in &reach[..count] {
            set = set.with(*index);
            if configuration.is_quorum(Phase::Two, set) {
                return *to;
            }
        }
        from
    }

    /// Drops the proposals below `slot`, because they are decided.
    pub fn drop_below(&mut self, slot: Slot) {
        self.device_counted.drop_below(slot);
        while let Some(first) = self.proposals.front_mut() {
            if first.range.to > slot {
                if first.range.from < slot {
                    let part = SlotRange::new(first.range.from, slot);
                    first.prefix = first.prefix.wrapping_add(range_check(part, &first.value));
                    first.range.from = slot;
                }
                return;
            }
            self.proposals.pop_front();
        }
    }
}

/// The decided prefix, and the eras that follow from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Learner {
    decided_to: Slot,
    /// Slots below this one are covered by a snapshot, not by the log.
    log_start: Slot,
    eras: Eras,
    lost_slots: LostSlots,
    /// First slot decided in this process whose value cannot be read back from the log.
    first_unreadable: Option<Slot>,
    /// [here-1] Bytes of streams may be missing on this node, even though their descriptors are
    /// known.
    lacks_stream_bytes: bool,
    /// Reconfigurations decided from `log_start` onwards.
    reconfigurations: Vec<(Slot, Value)>,
    /// [trim-1] No snapshot covers the slots below `log_start`, so neither their values nor the
    /// eras that began there are known.
    hollow: bool,
}

impl Learner {
    /// Creates a learner from recovered state. If slots are lost, `decided_to` is the first of
    /// them.
    pub fn new(
        log_start: Slot,
        decided_to: Slot,
        eras: Eras,
        lost: LostSlots,
        changes: Vec<(Slot, Value)>,
        hollow: bool,
    ) -> Self {
        assert!(log_start <= decided_to, "the log starts at {log_start}, decided to {decided_to}");
        let (missing, lacking) = (None, false);
        Self {
            decided_to,
            log_start,
            eras,
            lost_slots: lost,
            first_unreadable: missing,
            lacks_stream_bytes: lacking,
            reconfigurations: changes,
            hollow,
        }
    }

    /// Returns the slot below which everything is decided and this node has the values.
    pub fn decided_to(&self) -> Slot {
        self.decided_to
    }

    /// [snap-3] Returns the first slot of the log. A snapshot covers the slots below, and records
    /// of those slots that are still in the log do not count as decided values.
    pub fn log_start(&self) -> Slot {
        self.log_start
    }

    /// [trim-3] Moves the start of the log to `log_start`.
    pub fn trim(&mut self, log_start: Slot) {
        assert!(
            log_start <= self.decided_to,
            "trimmed to {log_start}, decided to {}",
            self.decided_to
        );
        self.log_start = self.log_start.max(log_start);
        self.first_unreadable = self.first_unreadable.map(|first| first.max(log_start));
        self.reconfigurations.retain(|(slot, _)| *slot >= log_start);
    }

    /// [snap-2] Installs a snapshot of everything below `to`. Lost slots below `to` need not be
    /// learned again. Later slots remain in the log.
    pub fn install(&mut self, to: Slot, eras: Eras) {
        assert!(
            to > self.decided_to || self.hollow,
            "installed {to}, decided to {}",
            self.decided_to
        );
        self.eras = eras;
        self.hollow = false;
        if to > self.decided_to {
            self.reconfigurations.clear();
            self.decided_to = to;
            self.pass_gaps();
        } else {
            // The slots from `to` onwards were decided on this node, and began eras whose numbers
            // were unknown.
            for (slot, value) in self.reconfigurations.iter().filter(|(slot, _)| *slot >= to) {
                self.eras.apply_decided(*slot, value);
            }
        }
        self.trim(to);
    }

    /// [trim-1] Moves the start of the log to `to`, without a snapshot of the slots below.
    pub fn trim_to(&mut self, to: Slot) {
        self.hollow = true;
        if to > self.decided_to {
            self.decided_to = to;
            self.reconfigurations.clear();
            self.pass_gaps();
        }
        self.trim(to);
    }

    /// Returns whether this node has no state for the slots below the start of its log.
    pub fn is_hollow(&self) -> bool {
        self.hollow
    }

    /// Returns the configurations in force.
    pub fn eras(&self) -> &Eras {
        &self.eras
    }

    /// Returns the lost slots of a damaged log that this node has not learned again yet.
    pub fn lost_slots(&self) -> &LostSlots {
        &self.lost_slots
    }

    /// Sets the first slot that was decided in this process and whose value cannot be read back;
    /// `None` if every value can be read back.
    pub fn set_first_unreadable(&mut self, first: Option<Slot>) {
        self.first_unreadable = first;
    }

    /// [here-1] Sets whether bytes of streams may be missing on this node.
    pub fn set_lacks_stream_bytes(&mut self, lacking: bool) {
        self.lacks_stream_bytes = lacking;
    }

    /// [disk-8] Returns whether every value that this node has ever decided is readable.
    ///
    /// A node that lacks a value learns it again. Until it has, the node still votes for later
    /// slots, but it does not answer a 1A for lost slots and does not campaign, because it could
    /// not report the values of slots that perhaps no other node knows to be decided. Missing bytes
    /// of streams do not matter, because the descriptors are the values ([here-3]).
    pub fn is_all_readable(&self) -> bool {
        self.lost_slots.is_empty() && self.first_unreadable.is_none()
    }

    /// Returns the end of the decided slots whose values can be read back, even if bytes of streams
    /// are missing.
    pub fn readable_to(&self) -> Slot {
        let first = self.first_unreadable.unwrap_or(self.decided_to);
        first.min(self.decided_to)
    }

    /// [catch-1] Returns the end of the decided slots that this node can supply to others, bytes
    /// included. Returns [`Slot::FIRST`] while bytes are missing ([here-1]).
    pub fn holds_to(&self) -> Slot {
        let most = if self.lacks_stream_bytes { Slot::FIRST } else { self.decided_to };
        self.readable_to().min(most)
    }

    /// [disk-8] Marks the slots of `range` as lost if an earlier process decided them and this one
    /// has not learned them again. Every slot that an earlier process decided is below `floor`.
    pub fn mark_lost(&mut self, range: SlotRange, floor: Slot) {
        let held = SlotRange::new(self.decided_to, floor.max(self.decided_to));
        self.lost_slots.add(range.intersect(held));
    }

    /// Decides the next run of slots, and passes the run to `each`.
    fn decide_run(
        &mut self,
        range: SlotRange,
        value: Value,
        each: &mut impl FnMut(SlotRange, Value),
    ) {
        assert_eq!(range.from, self.decided_to, "slots are decided in order");
        self.decided_to = range.to;
        // A value that changes the era never spans several slots.
        self.note_change(range.from, &value);
        each(range, value);
    }

    /// Records a decided reconfiguration, and applies it to the eras unless they are unknown
    /// ([trim-1]).
    fn note_change(&mut self, slot: Slot, value: &Value) {
        if matches!(value, Value::Reconfigure { .. }) {
            self.reconfigurations.push((slot, *value));
        }
        if !self.hollow {
            self.eras.apply_decided(slot, value);
        }
    }

    /// [disk-8] Advances past slots that the log already holds as decided after a lost range. They
    /// are not reported to the caller again.
    fn pass_gaps(&mut self) {
        let mut known = Vec::new();
        self.decided_to = self
            .lost_slots
            .record_learned(self.decided_to, |slot, value| known.push((slot, *value)));
        for (slot, value) in known {
            self.note_change(slot, &value);
        }
    }

    /// Decides as many slots as the votes of `tally` allow ([class-1], [decide-1], [era-5]), and
    /// passes each run to `each`. A reconfiguration changes the configuration for the slots after
    /// it.
    ///
    /// Counting stops at a value for which this node's acceptor has not voted in any ballot. A
    /// restarted node finds the value and its bytes through the record of that vote ([catch-1]).
    pub fn decide_counted(
        &mut self,
        tally: &mut Tally,
        acceptor: &Acceptor,
        each: &mut impl FnMut(SlotRange, Value),
    ) {
        while self.eras.counts_ballot(tally.ballot) {
            let mut quorum_to = tally.voted_by_quorum_to(self.eras.current(), self.decided_to);
            // [offload-11] Devices count only under the configuration of the ballot's own era.
            let same_era = self.eras.era() == tally.ballot.era;
            if same_era {
                quorum_to = quorum_to.max(tally.device_counted.contiguous_end(self.decided_to));
            }
            if quorum_to <= self.decided_to {
                return;
            }
            let era = self.eras.era();
            while self.decided_to < quorum_to && self.eras.era() == era {
                tally.drop_below(self.decided_to);
                let Some(next) = tally.proposals.front() else {
                    return;
                };
                let (range, value) = (next.range, next.value);
                let Some(own) = acceptor.vote(range.from).filter(|own| own.value == value) else {
                    return;
                };
                let to = range.to.min(quorum_to).min(own.range.to);
                self.decide_run(SlotRange::new(range.from, to), value, each);
            }
            tally.drop_below(self.decided_to);
        }
    }

    /// [decide-2] Decides slots below `to`, which the leader of `ballot` reported as decided, with
    /// the values that this node voted for in that ballot. Stops at a slot without such a vote and
    /// returns `false`.
    pub fn decide_reported(
        &mut self,
        ballot: Ballot,
        to: Slot,
        acceptor: &Acceptor,
        each: &mut impl FnMut(SlotRange, Value),
    ) -> bool {
        while self.decided_to < to {
            let Some(vote) = acceptor.vote(self.decided_to).filter(|vote| vote.ballot == ballot)
            else {
                return false;
            };
            let range = SlotRange::new(self.decided_to, vote.range.to.min(to));
            self.decide_run(range, vote.value, each);
        }
        true
    }

    /// [catch-1] Learns slots from a peer that decided them. The bytes of the value are present.
    /// Returns the slots that were new.
    pub fn learn(
        &mut self,
        range: SlotRange,
        value: Value,
        each: &mut impl FnMut(SlotRange, Value),
    ) -> Option<SlotRange> {
        if range.from > self.decided_to || range.to <= self.decided_to {
            return None;
        }
        let range = SlotRange::new(self.decided_to, range.to);
        self.decide_run(range, value, each);
        self.pass_gaps();
        Some(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ballot::Era, configuration::Change, value::Value};

    /// [disk-8] A member that lost decided slots votes for them and later slots again in the same
    /// ballot. Its earlier and its new votes count together.
    #[test]
    fn run_of_votes_joins_an_earlier_run_of_its_member() {
        let members = [1, 2, 3].map(Member::first);
        let configuration =
            Configuration::majority_of(members, Class::Durable).expect("three members are valid");
        let ballot = Ballot::ZERO;
        let mut tally = Tally::new(ballot, Slot(1), 8);
        let checks: Vec<u64> = (0..6)
            .map(|_| {
                tally.propose(1, Value::NoOp);
                tally.prefix
            })
            .collect();
        let mut votes = |member: Member, from: u64, to: u64| {
            let vote = Phase2b {
                ballot,
                from: Slot(from),
                volatile_to: Slot(to),
                durable_to: Slot(to),
                check: checks[usize::try_from(to - 2).expect("small")],
            };
            assert_eq!(tally.add_vote(member, &vote, Class::Durable), Ok(()));
            tally.voted_by_quorum_to(&configuration, Slot(3))
        };
        assert_eq!(votes(members[0], 1, 7), Slot(3));
        assert_eq!(votes(members[2], 3, 4), Slot(4));
        assert_eq!(votes(members[2], 2, 6), Slot(6), "earlier, and further");
        assert_eq!(votes(members[2], 1, 5), Slot(6), "earlier, and not so far");
        assert_eq!(votes(members[2], 4, 7), Slot(3), "a later run: the older one is decided");
        assert_eq!(votes(members[2], 1, 3), Slot(3), "apart from it: not counted");
    }

    fn changed(times: u32) -> Eras {
        let members = [1, 2, 3].map(Member::first);
        let founding = Configuration::majority_of(members, Class::Durable).expect("three members");
        let mut eras = Eras::founded(founding);
        for era in 0..times {
            eras.apply_decided(Slot(u64::from(era) + 1), &change(era));
        }
        eras
    }

    fn change(era: u32) -> Value {
        Value::Reconfigure { era: Era(era), change: Change::Multiply(2) }
    }

    /// [snap-2], [disk-8] Lost slots below a snapshot need not be learned again. Slots that the log
    /// still holds above it count, including their reconfigurations.
    #[test]
    fn lost_slots_below_a_snapshot_are_skipped() {
        let slots = |from, to| SlotRange::new(Slot(from), Slot(to));
        let ranges = [slots(5, 7), slots(10, 12), slots(20, 21)].to_vec();
        let changes = [(8, 1), (15, 2), (25, 3)].map(|(slot, era)| (Slot(slot), change(era)));
        let lost = LostSlots::new(ranges, changes.to_vec(), Slot(30));
        let mut learner = Learner::new(Slot::FIRST, Slot(5), changed(1), lost, Vec::new(), false);
        learner.install(Slot(9), changed(2));
        assert_eq!(learner.decided_to(), Slot(10), "up to the next loss");
        assert_eq!(learner.log_start(), Slot(9));
        assert_eq!(learner.eras().era(), Era(2), "the change in slot 8 is in the snapshot");
        assert_eq!(learner.lost_slots().slots(), 2 + 1);
        learner.install(Slot(11), changed(2));
        assert_eq!(learner.decided_to(), Slot(11));
        learner.learn(slots(11, 12), Value::NoOp, &mut |_, _| {});
        assert_eq!(learner.decided_to(), Slot(20));
        assert_eq!((learner.eras().era(), learner.eras().era_start()), (Era(3), Slot(16)));
        learner.install(Slot(22), changed(3));
        assert_eq!(learner.decided_to(), Slot(30));
        assert_eq!((learner.eras().era(), learner.eras().era_start()), (Era(4), Slot(26)));
        assert!(learner.is_all_readable());
    }

    /// Values that cannot be read back are not held until a snapshot covers them or they are
    /// learned again.
    #[test]
    fn unreadable_values_are_not_held() {
        let mut learner =
            Learner::new(Slot::FIRST, Slot(9), changed(0), LostSlots::default(), Vec::new(), false);
        learner.set_first_unreadable(Some(Slot(4)));
        assert_eq!(learner.holds_to(), Slot(4));
        learner.trim(Slot(6));
        assert_eq!(learner.holds_to(), Slot(6));
        assert!(!learner.is_all_readable());
        learner.set_first_unreadable(None);
        assert_eq!((learner.holds_to(), learner.is_all_readable()), (Slot(9), true));
        // [here-1] [here-3] Missing bytes are independent of that, and a trim does not supply them.
        learner.set_lacks_stream_bytes(true);
        learner.trim(Slot(7));
        assert_eq!((learner.holds_to(), learner.readable_to()), (Slot::FIRST, Slot(9)));
        assert!(learner.is_all_readable());
    }
}
