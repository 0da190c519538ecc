//! Catch-up: detects missing decided slots and asks peers for them ([catch-1]).
//!
//! Liveness only: asks for decided values; the learner decides what to make of the answers.

use alloc::collections::BTreeMap;

use crate::{
    ballot::Era,
    node_id::NodeId,
    slot::{Slot, SlotRange},
    time::Time,
};

/// Most values asked for at once, as far as it is known how many slots each has.
const CHUNK_VALUES_MAX: u64 = 4096;
/// Most slots asked for at once, however many slots a value has.
const CHUNK_SLOTS_MAX: u64 = 16 << 20;

/// Slots known to be decided elsewhere and missing here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Catchup {
    /// Slots below are decided at `source`.
    target: Slot,
    source: NodeId,
    /// Highest era of any ballot that another node showed.
    era: Era,
    /// The question that stands: what was asked, when, and where `decided_to` was then.
    asked: Option<Asked>,
    /// Slots of the next question: twice as many after an answer in full, as many as arrived after
    /// one in part. More than plane and queues take would be sent in vain, again and again.
    chunk: u64,
    /// Most slots of a question: a run of content has very many.
    chunk_max: u64,
    /// Questions for the same slot without an answer.
    fruitless: u32,
    /// A peer's log starts above what is missing here: the start, and when the peer last reported
    /// it.
    start: Option<(Slot, Time)>,
    /// Peers of no use for slots below this one: their logs start there, or they did not answer.
    useless: BTreeMap<NodeId, Slot>,
    /// The earliest of their reported starts.
    earliest: Option<Slot>,
    /// Time of the last request for a snapshot.
    snapshot_asked: Option<Time>,
}

impl Default for Catchup {
    fn default() -> Self {
        Self {
            target: Slot::default(),
            source: NodeId::default(),
            era: Era(0),
            asked: None,
            chunk: CHUNK_VALUES_MAX,
            chunk_max: CHUNK_VALUES_MAX,
            fruitless: 0,
            start: None,
            useless: BTreeMap::new(),
            earliest: None,
            snapshot_asked: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Asked {
    to: NodeId,
    /// The slots of the question that are still missing.
    range: SlotRange,
    /// Number of requested slots that arrived.
    arrived: u64,
    /// Time of the question, or of the last partial answer.
    at: Time,
}

impl Catchup {
    /// Creates the state of a node that knows everything below `target` to be decided somewhere.
    pub fn starting_at(target: Slot) -> Self {
        Self { target, ..Self::default() }
    }

    /// Notes that `source` decided everything below `target`.
    pub fn note(&mut self, target: Slot, source: NodeId) {
        if target > self.target {
            self.target = target;
            self.source = source;
        }
    }

    /// Notes a ballot of this era, which is not known here: `source` decided what began it, `next`
    /// or a later slot.
    pub fn note_era(&mut self, era: Era, next: Slot, source: NodeId) {
        self.era = self.era.max(era);
        self.note(next.next(), source);
    }

    /// Returns the latest era that another node showed and that was not known here then.
    pub fn era(&self) -> Era {
        self.era
    }

    /// Slots below are known to be decided somewhere.
    pub fn target(&self) -> Slot {
        self.target
    }

    /// Returns whether decided slots are missing here.
    pub fn is_behind(&self, decided_to: Slot) -> bool {
        decided_to < self.target
    }

    /// Returns whether another node than `me` showed decided slots that are missing here ([lie-6]).
    pub fn is_behind_another(&self, decided_to: Slot, me: NodeId) -> bool {
        self.is_behind(decided_to) && ![me, NodeId::default()].contains(&self.source)
    }

    /// Returns the next question, if one is due: at once when the last one is answered in full,
    /// else when no progress was made for `retry_us`, and then to the next peer in turn. A peer
    /// whose log starts above what is missing is asked only when no other is left. Nothing is asked
    /// past `gap_to`.
    pub fn next(
        &mut self,
        now: Time,
        decided_to: Slot,
        gap_to: Option<Slot>,
        retry_us: u64,
        peers: &[NodeId],
    ) -> Option<(NodeId, SlotRange)> {
        if !self.is_behind(decided_to) || peers.is_empty() {
            self.asked = None;
            self.fruitless = 0;
            return None;
        }
        if let Some(asked) = &mut self.asked
            && decided_to < asked.range.to
        {
            if decided_to > asked.range.from {
                // Answers are coming in.
                asked.arrived += decided_to.0 - asked.range.from.0;
                asked.range.from = decided_to;
                asked.at = now;
                self.fruitless = 0;
                return None;
            }
            if now.since_us(asked.at) < retry_us {
                return None;
            }
            self.chunk = asked.arrived.max(1);
            self.fruitless = self.fruitless.saturating_add(1);
            self.useless.insert(asked.to, decided_to.next());
            let behind = peers.iter().find(|peer| **peer > self.source);
            self.source = *behind.unwrap_or(&peers[0]);
        } else if self.asked.is_some() {
            self.chunk = (self.chunk * 2).min(self.chunk_max);
            self.fruitless = 0;
        }
        if !peers.contains(&self.source) {
            self.source = peers[0];
        }
        if !self.may_have(self.source, decided_to)
            && let Some(other) = self.left(decided_to, peers)
        {
            self.source = other;
        }
        let to = self.target.min(decided_to.plus(self.chunk));
        let range = SlotRange::new(decided_to, gap_to.map_or(to, |gap| gap.min(to)));
        self.asked = Some(Asked { to: self.source, range, arrived: 0, at: now });
        Some((self.source, range))
    }

    /// Notes that a value of this many slots was learned.
    pub fn learned(&mut self, slots: u64) {
        let wide = CHUNK_VALUES_MAX.saturating_mul(slots).min(CHUNK_SLOTS_MAX);
        // One short value among long ones is little evidence, so the bound comes down slowly.
        let less = self.chunk_max - self.chunk_max / 16;
        self.chunk_max = wide.max(less).max(CHUNK_VALUES_MAX);
    }

    fn may_have(&self, node: NodeId, decided_to: Slot) -> bool {
        self.useless.get(&node).is_none_or(|to| *to <= decided_to)
    }

    /// Returns the next peer, after the source and around, that may have what is missing.
    fn left(&self, decided_to: Slot, peers: &[NodeId]) -> Option<NodeId> {
        let behind = peers.iter().filter(|peer| **peer > self.source);
        let mut turns = behind.chain(peers);
        turns.find(|peer| self.may_have(**peer, decided_to)).copied()
    }

    /// [catch-2] Notes that the log of `from` starts at `log_start`, above what is missing here.
    /// Returns the start of the earliest log, once no peer is left that may have it; before, the
    /// next of them is to be asked.
    pub fn on_below_start(
        &mut self,
        from: NodeId,
        log_start: Slot,
        decided_to: Slot,
        peers: &[NodeId],
    ) -> Option<Slot> {
        self.useless.insert(from, log_start);
        let earliest = self.earliest.filter(|earliest| *earliest > decided_to);
        let earliest = earliest.map_or(log_start, |earliest| earliest.min(log_start));
        self.earliest = Some(earliest);
        if self.left(decided_to, peers).is_some() {
            self.asked.take_if(|asked| asked.to == from);
            return None;
        }
        // The next round believes nothing of this one.
        self.useless.clear();
        self.earliest.take()
    }

    /// Notes that a peer's log starts at `log_start`, above what is missing here. Returns whether
    /// to ask for a snapshot: not more often than a question is repeated.
    pub fn starts_at(&mut self, now: Time, log_start: Slot, retry_us: u64) -> bool {
        self.start = Some((log_start, now));
        let asked = self.snapshot_asked;
        let due = asked.is_none_or(|at| now.since_us(at) >= retry_us);
        if due {
            self.snapshot_asked = Some(now);
        }
        due
    }

    /// [p1-5] Returns whether a peer reported within the last `within_us` that what is missing at
    /// `decided_to` is only in a snapshot.
    pub fn needs_snapshot(&self, now: Time, decided_to: Slot, within_us: u64) -> bool {
        let lately = |at: Time| now.since_us(at) <= within_us;
        self.start.is_some_and(|(start, at)| start > decided_to && lately(at))
    }

    /// Notes that a snapshot stands for what was asked for.
    pub fn installed(&mut self) {
        self.asked = None;
        self.start = None;
        self.useless.clear();
        self.earliest = None;
        self.snapshot_asked = None;
        self.fruitless = 0;
    }

    /// Returns the number of unanswered questions for the same slot.
    pub fn fruitless(&self) -> u32 {
        self.fruitless
    }

    /// Resets the count to zero: another peer may answer.
    pub fn start_over(&mut self) {
        self.fruitless = 0;
    }

    /// Returns when the open question is overdue.
    pub fn wake_at(&self, retry_us: u64) -> Option<Time> {
        self.asked.map(|asked| asked.at.plus_us(retry_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY_US: u64 = 100;
    const PEERS: [NodeId; 2] = [NodeId(2), NodeId(3)];

    fn ask(catchup: &mut Catchup, now: u64, decided_to: u64) -> Option<(u32, u64)> {
        let question = catchup.next(Time(now), Slot(decided_to), None, RETRY_US, &PEERS);
        question.map(|(to, range)| {
            assert_eq!(range.from, Slot(decided_to));
            (to.0, range.len())
        })
    }

    /// A receiver with room for three values at a time is not sent thousands, again and again.
    #[test]
    fn question_is_no_larger_than_what_arrives() {
        let mut catchup = Catchup::default();
        catchup.note(Slot(10_001), NodeId(2));
        assert_eq!(ask(&mut catchup, 0, 1), Some((2, CHUNK_VALUES_MAX)));
        assert_eq!(ask(&mut catchup, 10, 3), None, "answers are coming in");
        assert_eq!(ask(&mut catchup, 20, 4), None);
        assert_eq!(ask(&mut catchup, 119, 4), None, "the rest may be late");
        assert_eq!(ask(&mut catchup, 120, 4), Some((3, 3)), "it is lost");
        assert_eq!(ask(&mut catchup, 130, 7), Some((3, 6)), "at once, and more");
        assert_eq!(ask(&mut catchup, 300, 7), Some((2, 1)), "nothing came");
        for (at, slots) in [(8, 2), (10, 4), (14, 8)] {
            assert_eq!(ask(&mut catchup, 301, at), Some((2, slots)));
        }
        assert_eq!(ask(&mut catchup, 302, 10_001), None, "level");
    }

    /// 4096 runs of content are not asked for byte by byte; nor millions of commands at once.
    #[test]
    fn question_is_as_wide_as_the_values_are() {
        let mut catchup = Catchup::default();
        catchup.note(Slot(1 << 40), NodeId(2));
        let mut at = 1;
        let mut slots = 0;
        for _ in 0..20 {
            slots = ask(&mut catchup, 0, at).expect("answered in full").1;
            for _ in 0..slots.div_ceil(65_536) {
                catchup.learned(65_536);
            }
            at += slots;
        }
        assert_eq!(slots, CHUNK_SLOTS_MAX);
        for _ in 0..200 {
            catchup.learned(1);
        }
        assert_eq!(ask(&mut catchup, 0, at).expect("answered in full").1, CHUNK_VALUES_MAX);
    }

    /// [catch-2] One log that begins too late is no evidence about the others.
    #[test]
    fn snapshot_is_needed_when_nobodys_log_has_what_is_missing() {
        let mut catchup = Catchup::default();
        catchup.note(Slot(1001), NodeId(3));
        let below = |catchup: &mut Catchup, from, start, decided_to| {
            catchup.on_below_start(NodeId(from), Slot(start), Slot(decided_to), &PEERS)
        };
        assert_eq!(ask(&mut catchup, 0, 1), Some((3, 1000)));
        assert_eq!(below(&mut catchup, 3, 50, 1), None);
        assert_eq!(ask(&mut catchup, 1, 1), Some((2, 1000)), "at once");
        assert_eq!(below(&mut catchup, 2, 40, 1), Some(Slot(40)));
        catchup.installed();

        // The tail is where the snapshot came from, and not asked for elsewhere again and again.
        catchup.note(Slot(1002), NodeId(3));
        assert_eq!(ask(&mut catchup, 2, 40), Some((3, 962)));
        assert_eq!(below(&mut catchup, 3, 50, 40), None);
        assert_eq!(ask(&mut catchup, 3, 40), Some((2, 962)));
        catchup.note(Slot(2001), NodeId(3));
        assert_eq!(ask(&mut catchup, 4, 45), None, "answers are coming in");
        assert_eq!(ask(&mut catchup, 104, 45), Some((2, 5)), "3 has less");
        assert_eq!(below(&mut catchup, 2, 46, 45), Some(Slot(46)));
        assert_eq!(ask(&mut catchup, 105, 1002), Some((2, 10)), "it has the rest");

        // A peer that does not answer has nothing.
        assert_eq!(below(&mut catchup, 2, 1200, 1002), None);
        assert_eq!(ask(&mut catchup, 106, 1002), Some((3, 10)));
        assert_eq!(ask(&mut catchup, 206, 1002), Some((2, 1)), "no node is left");
        assert_eq!(below(&mut catchup, 2, 1300, 1002), Some(Slot(1200)));
    }
}
