//! Wall clocks, compared through heartbeats ([time-3]): the group's time, and whose clock is off.
//!
//! Everything is kept as an offset: a wall clock's time minus that of this node's steady clock. An
//! offset does not go stale as time passes, so two of them can be compared although they were heard
//! at different times.

use std::{collections::BTreeMap, collections::VecDeque};

use quorate_core::{
    configuration::Configuration,
    node_id::{Member, NodeId},
    quorum::{MemberSet, Phase},
    time::Time,
};

/// A clock that is further off than this is not gone by.
pub const CLOCK_BOUND_MS: u64 = 5_000;
/// A clock that is further off than this is told of.
const TOLD_MS: u64 = 1_000;
/// After it was for this long; a process that stood still has old answers to read first.
const TOLD_AFTER_MS: u64 = 2_000;
/// What was last heard of a clock so long ago says nothing.
const HEARD_FOR_MS: u64 = 60_000;
/// What a clock showed arrives late, never early: of so many of its last words, the one that was
/// the least late counts.
const WORDS: usize = 8;
/// No word is so late; one that seems to be is of a clock that was set back.
const LATE_MS: i64 = 60_000;
/// The clocks are compared at least this often.
const LOOK_MS: u64 = 100;

/// A clock is off, or right again, by as much as the group can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Off {
    /// Whose.
    pub node: NodeId,
    /// How far it is ahead, in milliseconds; below 0: behind.
    pub ms: i64,
}

/// The last words of another clock.
#[derive(Debug, Default)]
struct Heard {
    offsets: VecDeque<i64>,
    at: Time,
}

impl Heard {
    fn hear(&mut self, now: Time, clock_ms: u64) {
        let offset = offset(now, clock_ms);
        self.offsets.retain(|before| before.saturating_sub(offset) <= LATE_MS);
        if self.offsets.len() == WORDS {
            self.offsets.pop_front();
        }
        self.offsets.push_back(offset);
        self.at = now;
    }

    fn offset(&self, now: Time) -> Option<i64> {
        let fresh = now < self.at.plus_ms(HEARD_FOR_MS);
        self.offsets.iter().copied().max().filter(|_| fresh)
    }

    /// The same, if it was heard since then.
    fn offset_since(&self, now: Time, since: Time) -> Option<i64> {
        self.offset(now).filter(|_| self.at >= since)
    }
}

fn offset(now: Time, clock_ms: u64) -> i64 {
    let clock_ms = i64::try_from(clock_ms).unwrap_or(i64::MAX);
    clock_ms.saturating_sub_unsigned(now.0 / 1000)
}

fn shown(now: Time, offset: i64) -> u64 {
    (now.0 / 1000).saturating_add_signed(offset)
}

/// The part.
#[derive(Debug, Default)]
pub(crate) struct Clocks {
    /// This node's.
    own: i64,
    /// Of those that answer this node's heartbeats.
    answered: BTreeMap<NodeId, Heard>,
    /// What a leader said, and which one.
    told: Option<(NodeId, Heard)>,
    /// What the group's clock is, if that is known.
    group: Option<i64>,
    /// How many clocks it is the median of, at a leader.
    voices: usize,
    /// Since when most clocks show something else.
    jumped_at: Option<Time>,
    /// It is known from a quorum, by a leader.
    by_quorum: bool,
    look_at: Time,
    /// Whose clock is off, since when, by how much, and whether that was told.
    off: BTreeMap<NodeId, (Time, i64, bool)>,
}

impl Clocks {
    /// What this node's wall clock shows.
    pub(crate) fn turn(&mut self, now: Time, wall_ms: u64) {
        let own = offset(now, wall_ms);
        if own.abs_diff(self.own) > LOOK_MS {
            self.look_at = Time(0);
        }
        self.own = own;
    }

    /// A node answered a heartbeat; 0: it does not say what its clock shows.
    pub(crate) fn on_answer(&mut self, now: Time, from: NodeId, clock_ms: u64) {
        if clock_ms > 0 {
            self.answered.entry(from).or_default().hear(now, clock_ms);
        }
    }

    /// The leader said what the group's clock shows; 0: it does not know yet.
    pub(crate) fn on_leader(&mut self, now: Time, leader: NodeId, clock_ms: u64) {
        if clock_ms == 0 {
            return;
        }
        match &mut self.told {
            Some((of, heard)) if *of == leader => heard.hear(now, clock_ms),
            told => {
                let (_, heard) = told.insert((leader, Heard::default()));
                heard.hear(now, clock_ms);
            }
        }
    }

    /// What to say of this node's clock.
    pub(crate) fn own_ms(&self, now: Time) -> u64 {
        shown(now, self.own)
    }

    /// What a leader says of the group's clock: 0 while it does not know it.
    pub(crate) fn group_ms(&self, now: Time) -> u64 {
        self.group.map_or(0, |_| self.now_ms(now))
    }

    /// What time it is: this node's clock, unless that is too far off.
    pub(crate) fn now_ms(&self, now: Time) -> u64 {
        let right = |group: &i64| group.abs_diff(self.own) > CLOCK_BOUND_MS;
        shown(now, self.group.filter(right).unwrap_or(self.own))
    }

    /// The same, of a leader that knows from a quorum what time it is.
    pub(crate) fn stamp_ms(&self, now: Time) -> Option<u64> {
        self.by_quorum.then(|| self.now_ms(now))
    }

    /// Compares the clocks, if it is time to; gives what there is to tell.
    pub(crate) fn look(
        &mut self,
        now: Time,
        member: Member,
        leads: bool,
        configuration: &Configuration,
    ) -> Vec<Off> {
        if now < self.look_at && leads == self.by_quorum {
            return Vec::new();
        }
        self.look_at = now.plus_ms(LOOK_MS);
        self.answered.retain(|_, heard| now < heard.at.plus_ms(HEARD_FOR_MS));
        let median = match leads {
            true => self.median(now, Time(0), member, configuration),
            false => None,
        };
        self.by_quorum = median.is_some();
        if let Some((median, voices)) = median {
            let all = voices == configuration.members().len();
            let completed = all && voices > self.voices;
            self.group = Some(self.believed(now, median, completed, (member, configuration)));
            self.voices = voices;
        } else {
            let told = self.told.as_ref();
            self.group = told.and_then(|(_, heard)| heard.offset(now));
            (self.voices, self.jumped_at) = (0, None);
        }
        self.judge(now, member.node, leads)
    }

    /// What most clocks show moves by little. When it jumps, clocks were set a moment ago, and not
    /// all have said so yet: the jump is believed once it has lasted, and a quorum that has spoken
    /// since shows it: what is remembered of a clock may be long over. `completed`: the last member
    /// was heard just now, so this is the first median of all.
    fn believed(
        &mut self,
        now: Time,
        seen: i64,
        completed: bool,
        (own, configuration): (Member, &Configuration),
    ) -> i64 {
        let before = self.group.filter(|_| !completed);
        let Some(group) = before.filter(|group| group.abs_diff(seen) > CLOCK_BOUND_MS) else {
            self.jumped_at = None;
            return seen;
        };
        let since = *self.jumped_at.get_or_insert(now);
        if now < since.plus_ms(TOLD_AFTER_MS) {
            return group;
        }
        match self.median(now, since, own, configuration) {
            Some((spoken, _)) if spoken.abs_diff(group) > CLOCK_BOUND_MS => spoken,
            _ => group,
        }
    }

    /// The median of the clocks of a quorum at least that were heard since then, by weight: of two
    /// the one that is behind, so that nothing ends early because of the other. With how many there
    /// are.
    fn median(
        &self,
        now: Time,
        since: Time,
        own: Member,
        configuration: &Configuration,
    ) -> Option<(i64, usize)> {
        let (mut readings, mut heard) = (Vec::new(), MemberSet::default());
        for (at, voter) in configuration.members().iter().enumerate() {
            let offset = match voter.member == own {
                true => Some(self.own),
                false => self
                    .answered
                    .get(&voter.member.node)
                    .and_then(|heard| heard.offset_since(now, since)),
            };
            if let Some(offset) = offset {
                readings.push((offset, u64::from(voter.weight)));
                heard = heard.with(at);
            }
        }
        if !configuration.is_quorum(Phase::Two, heard) {
            return None;
        }
        readings.sort_unstable();
        let total: u64 = readings.iter().map(|(_, weight)| weight).sum();
        let mut passed = 0;
        let middle = readings.iter().find(|(_, weight)| {
            passed += weight;
            2 * passed >= total
        });
        middle.map(|(offset, _)| (*offset, readings.len()))
    }

    fn judge(&mut self, now: Time, own: NodeId, leads: bool) -> Vec<Off> {
        let Some(group) = self.group else {
            return Vec::new();
        };
        let others = self.answered.iter().filter(|_| leads);
        let others = others.filter_map(|(node, heard)| Some((*node, heard.offset(now)?)));
        let seen: Vec<_> = others.chain([(own, self.own)]).collect();
        self.off.retain(|node, _| seen.iter().any(|(seen, _)| seen == node));
        let mut news = Vec::new();
        for (node, offset) in seen {
            let off = Off { node, ms: offset.saturating_sub(group) };
            if off.ms.unsigned_abs() > TOLD_MS {
                let (since, ms, told) = self.off.entry(node).or_insert((now, off.ms, false));
                *ms = off.ms;
                if !*told && now >= since.plus_ms(TOLD_AFTER_MS) {
                    *told = true;
                    news.push(off);
                }
            } else if let Some((_, _, true)) = self.off.remove(&node) {
                news.push(off);
            }
        }
        news
    }

    /// Whose clock is off, as far as this node can tell: a leader of everybody, others of
    /// themselves.
    pub(crate) fn off(&self) -> impl Iterator<Item = Off> + '_ {
        let told = self.off.iter().filter(|(_, (_, _, told))| *told);
        told.map(|(node, (_, ms, _))| Off { node: *node, ms: *ms })
    }
}

impl Off {
    /// Whether that is worth a warning.
    pub const fn is_off(&self) -> bool {
        self.ms.unsigned_abs() > TOLD_MS
    }

    /// "2.5 s ahead of the others", for people.
    pub fn text(&self) -> String {
        let tenths = self.ms.unsigned_abs().saturating_add(50) / 100;
        let (seconds, tenths) = (tenths / 10, tenths % 10);
        let way = if self.ms < 0 { "behind" } else { "ahead of" };
        format!("{seconds}.{tenths} s {way} the others")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use quorate_core::record::Class;

    use super::*;

    const UNIX_MS: u64 = 1_700_000_000_000;

    fn of(nodes: u32) -> Configuration {
        Configuration::simple((1..=nodes).map(Member::first), Class::Durable).unwrap()
    }

    /// A leader, node 1, whose clock and those of others show this much more than the right time.
    fn leader(nodes: u32, own: i64, others: &[(u32, i64)]) -> (Clocks, Vec<Off>) {
        let (mut clocks, mut told) = (Clocks::default(), Vec::new());
        let at = |ms: u64, off: i64| (UNIX_MS + ms).saturating_add_signed(off);
        for ms in (0..4_000).step_by(20) {
            let now = Time(0).plus_ms(ms);
            clocks.turn(now, at(ms, own));
            for (node, off) in others {
                clocks.on_answer(now, NodeId(*node), at(ms, *off));
            }
            told.extend(clocks.look(now, Member::first(1), true, &of(nodes)));
        }
        (clocks, told)
    }

    fn stamp(clocks: &Clocks) -> Option<i64> {
        let now = Time(0).plus_ms(4_000);
        let right = i64::try_from(UNIX_MS + 4_000).unwrap();
        Some(i64::try_from(clocks.stamp_ms(now)?).unwrap() - right)
    }

    /// [time-3]
    #[test]
    fn one_wrong_clock_moves_no_stamp_by_more_than_the_bound() {
        const HOURS: i64 = 7_200_000;
        for (own, others, expected) in [
            (0, &[(2, 0), (3, 0)], Some(0)),
            (HOURS, &[(2, 0), (3, 10)], Some(10)),
            (-HOURS, &[(2, 0), (3, 10)], Some(0)),
            (0, &[(2, HOURS), (3, 0)], Some(0)),
            (0, &[(2, -HOURS), (3, 0)], Some(0)),
            (4_000, &[(2, 0), (3, 0)], Some(4_000)),
            (-4_000, &[(2, 0), (3, 0)], Some(-4_000)),
        ] {
            let (clocks, _) = leader(3, own, others);
            assert_eq!(stamp(&clocks), expected, "{own} {others:?}");
        }
    }

    #[test]
    fn of_two_clocks_the_one_behind_counts_and_of_fewer_than_a_quorum_none() {
        let (ahead, _) = leader(3, 7_200_000, &[(2, 0)]);
        assert_eq!(stamp(&ahead), Some(0));
        let (behind, _) = leader(3, 0, &[(2, -7_200_000)]);
        assert_eq!(stamp(&behind), Some(-7_200_000), "late, never early");
        let (alone, _) = leader(3, 0, &[]);
        assert_eq!(stamp(&alone), None);
        let (single, _) = leader(1, 9_000, &[]);
        assert_eq!(stamp(&single), Some(9_000));
        // Strangers and learners have no say.
        let (learner, _) = leader(3, 0, &[(2, 0), (8, 90_000), (9, 90_000)]);
        assert_eq!(stamp(&learner), Some(0));
    }

    /// Node 3's clock was ahead; it is set right while the leader's is set ahead. Until the leader
    /// has heard of the former, two of three seem to agree on what never was.
    #[test]
    fn a_jump_of_most_clocks_is_believed_once_it_has_lasted() {
        const HOURS: i64 = 7_200_000;
        let (mut clocks, _) = leader(3, 0, &[(2, 0), (3, HOURS)]);
        // `third`: `None` while it is not heard.
        let mut stamps = |from: u64, to: u64, own: i64, third: Option<i64>| {
            let mut seen = BTreeSet::new();
            for ms in (from..to).step_by(20) {
                let (now, right) = (Time(0).plus_ms(ms), UNIX_MS + ms);
                clocks.turn(now, right.saturating_add_signed(own));
                clocks.on_answer(now, NodeId(2), right);
                if let Some(third) = third {
                    clocks.on_answer(now, NodeId(3), right.saturating_add_signed(third));
                }
                clocks.look(now, Member::first(1), true, &of(3));
                let shown = i64::try_from(clocks.stamp_ms(now).unwrap()).unwrap();
                seen.insert(shown - i64::try_from(right).unwrap());
            }
            seen
        };
        let (right, wrong) = (BTreeSet::from([0]), BTreeSet::from([HOURS]));
        let ahead = Some(HOURS);
        assert_eq!(stamps(4_000, 5_900, HOURS, ahead), right, "passed over");
        assert_eq!(stamps(5_900, 7_900, HOURS, Some(0)), right, "one of three");
        assert_eq!(stamps(7_900, 9_800, 0, ahead), right, "another of three");
        // It was set right where nobody heard of it. What it showed before is no voice for the
        // leader's clock.
        assert_eq!(stamps(9_800, 20_000, HOURS, None), right, "of long ago");
        // A group whose clocks were really set: all of them are what it goes by.
        stamps(20_000, 20_100, HOURS, ahead);
        assert_eq!(stamps(20_100, 22_000, HOURS, ahead), wrong);
    }

    #[test]
    fn who_is_off_is_told_once_and_again_when_it_is_right() {
        let (mut clocks, told) = leader(3, 0, &[(2, 20), (3, -90_000)]);
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(
            (told[0].node, told[0].text()),
            (NodeId(3), "90.0 s behind the others".to_owned())
        );
        assert_eq!(clocks.off().count(), 1);
        let mut told = Vec::new();
        for ms in (4_000..5_000).step_by(20) {
            let now = Time(0).plus_ms(ms);
            clocks.turn(now, UNIX_MS + ms);
            for node in [2, 3] {
                clocks.on_answer(now, NodeId(node), UNIX_MS + ms);
            }
            told.extend(clocks.look(now, Member::first(1), true, &of(3)));
        }
        assert_eq!(told.len(), 1);
        assert!(!told[0].is_off() && clocks.off().count() == 0, "{told:?}");
    }

    /// What it takes deadlines from is right although its own clock is not.
    #[test]
    fn a_follower_goes_by_what_the_leader_says_if_its_own_clock_is_too_far_off() {
        let mut clocks = Clocks::default();
        for (ms, own, said, expected) in [
            (0, 9_000, 0, 9_000),
            (1_000, 9_000, 0, 9_000),
            (2_000, 9_000, 1, 0),
            // By its own steady clock.
            (3_000, 9_000, 0, 0),
            (4_000, 4_000, 1, 4_000),
            (5_000, -6_000, 1, 0),
            // Nothing was heard for a long time.
            (99_000, -6_000, 0, -6_000),
        ] {
            let (now, right) = (Time(0).plus_ms(ms), UNIX_MS + ms);
            clocks.turn(now, right.saturating_add_signed(own));
            clocks.on_leader(now, NodeId(2), right * said);
            clocks.look(now, Member::first(1), false, &of(3));
            let shown = i64::try_from(clocks.now_ms(now)).unwrap();
            assert_eq!(shown - i64::try_from(right).unwrap(), expected, "{ms}");
            assert_eq!(clocks.stamp_ms(now), None, "it does not lead");
        }
    }

    /// Behind a pause lies a queue of what clocks showed long ago.
    #[test]
    fn what_arrives_late_makes_no_clock_look_late() {
        let (mut clocks, _) = leader(3, 0, &[(2, 0), (3, 0)]);
        let now = Time(0).plus_ms(20_000);
        clocks.turn(now, UNIX_MS + 20_000);
        for ms in (4_000..=20_000).step_by(20) {
            for node in [2, 3] {
                clocks.on_answer(now, NodeId(node), UNIX_MS + ms);
            }
        }
        clocks.look(now, Member::first(1), true, &of(3));
        assert_eq!(clocks.now_ms(now), UNIX_MS + 20_000);
        assert_eq!(clocks.off().count(), 0);
    }
}
