//! The group's clock, and the members' wall clocks from which it is derived ([time-3], [time-4]).
//!
//! Every clock is stored as an offset: its reading minus this node's steady clock. Offsets do not
//! go stale, so those of different times can be compared.

use std::collections::{BTreeMap, VecDeque};

use quorate_core::{
    configuration::Configuration,
    node_id::{Member, NodeId},
    quorum::{MemberSet, Phase},
    time::Time,
};

use crate::clock::Clock;

/// Difference in milliseconds from the group's clock above which a wall clock is reported.
const REPORTED_DEVIATION_MS: u64 = 1_000;
/// Time in milliseconds for which a clock must be off before it is reported, because a process that
/// was suspended first reads old heartbeat answers.
const REPORT_AFTER_MS: u64 = 2_000;
/// Time in milliseconds without a reading after which a clock is no longer reported.
const READING_LIFETIME_MS: u64 = 60_000;
/// Age in milliseconds above which a clock's last reading no longer counts for the group's time.
const FRESH_READING_MS: u64 = 2_000;
/// Number of latest readings, the highest of which counts, because readings arrive late but never
/// early.
const READINGS_MAX: usize = 8;
/// Maximum interval in milliseconds between comparisons of the clocks.
const CHECK_INTERVAL_MS: u64 = 100;
/// Time in milliseconds after which a new leader starts the group's clock from the clocks of a
/// quorum. Before that, it needs the clocks of all members.
const START_DELAY_MS: u64 = 500;
/// Interval in milliseconds at which the group's clock follows the median of the members'.
const SLEW_INTERVAL_MS: u64 = 1_000;
/// Maximum step forward per interval in milliseconds; small, because it makes deadlines pass
/// sooner.
const STEP_FORWARD_MAX_MS: i64 = 1;
/// Maximum step back per interval in milliseconds.
const STEP_BACK_MAX_MS: i64 = 10;

/// A wall clock that differs from the group's clock, or no longer does, as seen by this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockDeviation {
    /// Node whose clock this is.
    pub node: NodeId,
    /// Offset from the group's clock in milliseconds: positive if ahead, negative if behind.
    pub offset_ms: i64,
}

/// Latest readings of one clock, received from another node.
#[derive(Debug, Default)]
struct ClockReadings {
    offsets: VecDeque<i64>,
    last_reading_at: Time,
}

impl ClockReadings {
    /// Adds a reading of the clock; 0 stands for none.
    fn record_reading(&mut self, now: Time, shown_ms: u64) {
        if shown_ms > 0 {
            self.offsets.truncate(READINGS_MAX - 1);
            self.offsets.push_front(offset_from_reading(now, shown_ms));
            self.last_reading_at = now;
        }
    }

    fn offset(&self) -> Option<i64> {
        self.offsets.iter().copied().max()
    }

    /// Returns the offset if the last reading is at most `ms` old.
    fn recent_offset(&self, now: Time, ms: u64) -> Option<i64> {
        self.offset().filter(|_| now < self.last_reading_at.plus_ms(ms))
    }
}

fn offset_from_reading(now: Time, shown_ms: u64) -> i64 {
    let shown_ms = i64::try_from(shown_ms).unwrap_or(i64::MAX);
    shown_ms.saturating_sub_unsigned(now.0 / 1000)
}

fn reading_from_offset(now: Time, offset: i64) -> u64 {
    (now.0 / 1000).saturating_add_signed(offset)
}

/// Readings of both clocks from a node that answers heartbeats.
#[derive(Debug, Default)]
struct AnsweredReadings {
    wall_readings: ClockReadings,
    group_readings: ClockReadings,
}

/// A member's wall clock, and its reading of the group's clock if it has one.
struct MemberClocks {
    weight: u64,
    wall_offset: i64,
    group_offset: Option<i64>,
}

/// State of the clocks while this node leads.
#[derive(Debug)]
struct LeaderClockState {
    led_since: Time,
    /// A quorum has confirmed the group's clock.
    is_confirmed: bool,
    slew_at: Time,
}

/// The group's clock, and the readings of the members' clocks.
#[derive(Debug, Default)]
pub(crate) struct Clocks {
    /// Offset of this node's wall clock.
    own_offset: i64,
    /// Offset of the group's clock; `None` if it is not known yet.
    group_offset: Option<i64>,
    /// Readings of the group's clock received from leaders.
    leader_readings: ClockReadings,
    leader_state: Option<LeaderClockState>,
    /// Readings from members that answer this node's heartbeats.
    answered_readings: BTreeMap<NodeId, AnsweredReadings>,
    next_check_at: Time,
    /// Clocks that are off: since when, by how many milliseconds, and whether that was reported.
    deviations: BTreeMap<NodeId, (Time, i64, bool)>,
    /// Steady clock, required for leases and for reads with a bound on staleness.
    steady_clock: Option<Clock>,
}

impl Clocks {
    pub(crate) fn set_steady_clock(&mut self, clock: Clock) {
        self.steady_clock = Some(clock);
    }

    pub(crate) fn steady_clock(&self) -> Option<&Clock> {
        self.steady_clock.as_ref()
    }

    /// Updates the reading of this node's wall clock.
    pub(crate) fn update_own_reading(&mut self, now: Time, wall_ms: u64) {
        let own = offset_from_reading(now, wall_ms);
        if own.abs_diff(self.own_offset) > CHECK_INTERVAL_MS {
            self.next_check_at = Time(0);
        }
        self.own_offset = own;
    }

    /// Adds the readings from a node's heartbeat answer: its wall clock, and its reading of the
    /// group's clock. A reading of 0 means unknown.
    pub(crate) fn on_answer(&mut self, now: Time, from: NodeId, wall_ms: u64, group_ms: u64) {
        let answers = self.answered_readings.entry(from).or_default();
        answers.wall_readings.record_reading(now, wall_ms);
        answers.group_readings.record_reading(now, group_ms);
    }

    /// Adds the leader's reading of the group's clock; 0 if the leader does not know it yet.
    pub(crate) fn on_leader(&mut self, now: Time, group_ms: u64) {
        self.leader_readings.record_reading(now, group_ms);
        self.group_offset = self.leader_readings.offset().or(self.group_offset);
    }

    /// Returns the reading of this node's wall clock.
    pub(crate) fn own_wall_ms(&self, now: Time) -> u64 {
        reading_from_offset(now, self.own_offset)
    }

    /// Returns the reading of the group's clock; 0 while it is not known.
    pub(crate) fn group_ms(&self, now: Time) -> u64 {
        self.group_offset.map_or(0, |group| reading_from_offset(now, group))
    }

    /// [time-4] Returns whether the group's clock is known, so that deadlines can be set.
    pub(crate) fn is_group_clock_known(&self) -> bool {
        self.group_offset.is_some()
    }

    /// Returns the group's time, or this node's wall clock while the group's is not known.
    pub(crate) fn group_or_wall_ms(&self, now: Time) -> u64 {
        reading_from_offset(now, self.group_offset.unwrap_or(self.own_offset))
    }

    /// Returns the leader's reading of the group's clock once a quorum has confirmed it.
    pub(crate) fn confirmed_group_ms(&self, now: Time) -> Option<u64> {
        self.group_offset.filter(|_| self.is_settled()).map(|group| reading_from_offset(now, group))
    }

    fn is_settled(&self) -> bool {
        self.leader_state.as_ref().is_some_and(|reign| reign.is_confirmed)
    }

    /// Compares the clocks if a comparison is due, and returns the changes to report. `time_ms` is
    /// the group's time as applied.
    pub(crate) fn check_clocks(
        &mut self,
        now: Time,
        time_ms: u64,
        member: Member,
        leads: bool,
        configuration: &Configuration,
    ) -> Vec<ClockDeviation> {
        if now < self.next_check_at && leads == self.is_settled() {
            return Vec::new();
        }
        self.next_check_at = now.plus_ms(CHECK_INTERVAL_MS);
        self.answered_readings.retain(|_, answers| {
            answers.wall_readings.recent_offset(now, READING_LIFETIME_MS).is_some()
        });
        if leads != self.leader_state.is_some() {
            // Discard earlier readings: those from another leadership may be long outdated.
            self.answered_readings.clear();
            self.leader_readings.offsets = self.group_offset.into_iter().collect();
            self.leader_state = leads.then_some(LeaderClockState {
                led_since: now,
                is_confirmed: false,
                slew_at: now,
            });
        }
        if leads {
            self.advance_group_clock(now, member, configuration);
        }
        // The group's clock must not fall behind the applied time.
        self.group_offset =
            self.group_offset.map(|group| group.max(offset_from_reading(now, time_ms)));
        self.update_deviations(now, member.node, leads)
    }

    /// [time-3] Starts the group's clock, or lets it follow the median of the members' clocks.
    fn advance_group_clock(&mut self, now: Time, own: Member, configuration: &Configuration) {
        let Some(fresh_clocks) = self.fresh_clocks(now, own, configuration) else {
            return;
        };
        let walls =
            weighted_median(fresh_clocks.iter().map(|voice| (voice.wall_offset, voice.weight)));
        let (Some(walls), Some(reign)) = (walls, &mut self.leader_state) else {
            return;
        };
        if !reign.is_confirmed {
            let known =
                fresh_clocks.iter().filter_map(|voice| Some((voice.group_offset?, voice.weight)));
            let all = fresh_clocks.len() == configuration.members().len();
            let begins = all || now >= reign.led_since.plus_ms(START_DELAY_MS);
            self.group_offset = weighted_median(known).or(begins.then_some(walls));
            reign.is_confirmed = self.group_offset.is_some();
        } else if now >= reign.slew_at {
            reign.slew_at = now.plus_ms(SLEW_INTERVAL_MS);
            self.group_offset = self.group_offset.map(|group| {
                let step =
                    walls.saturating_sub(group).clamp(-STEP_BACK_MAX_MS, STEP_FORWARD_MAX_MS);
                group.saturating_add(step)
            });
        }
    }

    /// Returns the clocks of the members with recent readings, if they are a phase-2 quorum.
    fn fresh_clocks(
        &self,
        now: Time,
        own: Member,
        configuration: &Configuration,
    ) -> Option<Vec<MemberClocks>> {
        let (mut fresh_clocks, mut heard) = (Vec::new(), MemberSet::default());
        for (at, voter) in configuration.members().iter().enumerate() {
            let clocks = match voter.member == own {
                true => Some((self.own_offset, self.group_offset)),
                false => self.answered_readings.get(&voter.member.node).and_then(|answers| {
                    let wall = answers.wall_readings.recent_offset(now, FRESH_READING_MS)?;
                    Some((wall, answers.group_readings.recent_offset(now, FRESH_READING_MS)))
                }),
            };
            if let Some((wall, group)) = clocks {
                fresh_clocks.push(MemberClocks {
                    weight: u64::from(voter.weight),
                    wall_offset: wall,
                    group_offset: group,
                });
                heard = heard.with(at);
            }
        }
        configuration.is_quorum(Phase::Two, heard).then_some(fresh_clocks)
    }

    fn update_deviations(&mut self, now: Time, own: NodeId, leads: bool) -> Vec<ClockDeviation> {
        let Some(group) = self.group_offset else {
            return Vec::new();
        };
        let others = self.answered_readings.iter().filter(|_| leads);
        let others =
            others.filter_map(|(node, answers)| Some((*node, answers.wall_readings.offset()?)));
        let seen: Vec<_> = others.chain([(own, self.own_offset)]).collect();
        self.deviations.retain(|node, _| seen.iter().any(|(seen, _)| seen == node));
        let mut news = Vec::new();
        for (node, offset) in seen {
            let off = ClockDeviation { node, offset_ms: offset.saturating_sub(group) };
            if off.offset_ms.unsigned_abs() > REPORTED_DEVIATION_MS {
                let (since, ms, told) =
                    self.deviations.entry(node).or_insert((now, off.offset_ms, false));
                *ms = off.offset_ms;
                if !*told && now >= since.plus_ms(REPORT_AFTER_MS) {
                    *told = true;
                    news.push(off);
                }
            } else if let Some((_, _, true)) = self.deviations.remove(&node) {
                news.push(off);
            }
        }
        news
    }

    /// Returns the clocks reported as off: all of them on a leader, otherwise this node's own.
    pub(crate) fn reported_deviations(&self) -> impl Iterator<Item = ClockDeviation> + '_ {
        let told = self.deviations.iter().filter(|(_, (_, _, told))| *told);
        told.map(|(node, (_, ms, _))| ClockDeviation { node: *node, offset_ms: *ms })
    }
}

/// Returns the weighted median of `offsets`. If there are two medians, the lower one counts, so
/// that no deadline passes early.
fn weighted_median(offsets: impl Iterator<Item = (i64, u64)>) -> Option<i64> {
    let mut offsets: Vec<_> = offsets.collect();
    offsets.sort_unstable();
    let total: u64 = offsets.iter().map(|(_, weight)| weight).sum();
    let mut passed = 0;
    let middle = offsets.iter().find(|(_, weight)| {
        passed += weight;
        2 * passed >= total
    });
    middle.map(|(offset, _)| *offset)
}

impl ClockDeviation {
    /// Returns whether the difference is large enough for a warning.
    pub const fn is_off(&self) -> bool {
        self.offset_ms.unsigned_abs() > REPORTED_DEVIATION_MS
    }

    /// Returns the difference as text, such as "2.5 s ahead of the group's clock".
    pub fn text(&self) -> String {
        let tenths = self.offset_ms.unsigned_abs().saturating_add(50) / 100;
        let (seconds, tenths) = (tenths / 10, tenths % 10);
        let way = if self.offset_ms < 0 { "behind" } else { "ahead of" };
        format!("{seconds}.{tenths} s {way} the group's clock")
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::record::Class;

    use super::*;

    const UNIX_MS: u64 = 1_700_000_000_000;
    const HOURS: i64 = 7_200_000;

    /// Node 1 of a group at a time of its steady clock. Readings are given as offsets.
    struct One {
        clocks: Clocks,
        nodes: u32,
        leads: bool,
        ms: u64,
        /// Offset of the node's wall clock in milliseconds.
        own: i64,
        time_ms: u64,
    }

    fn shows(ms: u64, off: i64) -> u64 {
        (UNIX_MS + ms).saturating_add_signed(off)
    }

    impl One {
        fn new(nodes: u32, own: i64) -> Self {
            Self { clocks: Clocks::default(), nodes, leads: false, ms: 0, own, time_ms: 0 }
        }

        fn check_clocks(&mut self) -> Vec<ClockDeviation> {
            let members = (1..=self.nodes).map(Member::first);
            let configuration = Configuration::majority_of(members, Class::Durable).unwrap();
            let now = Time(0).plus_ms(self.ms);
            self.clocks.update_own_reading(now, shows(self.ms, self.own));
            self.clocks.check_clocks(
                now,
                self.time_ms,
                Member::first(1),
                self.leads,
                &configuration,
            )
        }

        /// Makes the node lead for `ms` milliseconds, and receive the wall clocks and readings of
        /// `others`. Returns the reported changes.
        fn run_as_leader(
            &mut self,
            ms: u64,
            others: &[(u32, i64, Option<i64>)],
        ) -> Vec<ClockDeviation> {
            self.leads = true;
            let mut news = self.check_clocks();
            for _ in 0..ms / 20 {
                self.ms += 20;
                let now = Time(0).plus_ms(self.ms);
                for (node, wall, group) in others {
                    let group_ms = group.map_or(0, |off| shows(self.ms, off));
                    let wall_ms = shows(self.ms, *wall);
                    self.clocks.on_answer(now, NodeId(*node), wall_ms, group_ms);
                }
                news.extend(self.check_clocks());
            }
            news
        }

        /// Makes the node follow a leader whose group clock arrives `late_ms` late.
        fn run_as_follower(&mut self, off: i64, late_ms: u64) {
            (self.leads, self.ms) = (false, self.ms + 20);
            self.check_clocks();
            let said_ms = shows(self.ms, off) - late_ms;
            self.clocks.on_leader(Time(0).plus_ms(self.ms), said_ms);
        }

        fn reading(&self) -> Option<i64> {
            let shown = self.clocks.group_ms(Time(0).plus_ms(self.ms));
            let off = i64::try_from(shown).unwrap() - i64::try_from(UNIX_MS + self.ms).unwrap();
            (shown > 0).then_some(off)
        }

        fn stamps(&self) -> bool {
            self.clocks.confirmed_group_ms(Time(0).plus_ms(self.ms)).is_some()
        }
    }

    /// [time-3] The slower of two clocks counts, so that deadlines pass late rather than early.
    #[test]
    fn group_clock_starts_at_the_median_of_all_or_of_a_quorum() {
        for (own, others, expected) in [
            (0, &[(2, 0, None), (3, 10, None)][..], Some(0)),
            (HOURS, &[(2, 0, None), (3, 10, None)], Some(10)),
            (-HOURS, &[(2, 0, None), (3, 10, None)], Some(0)),
            (0, &[(2, HOURS, None), (3, 0, None)], Some(0)),
            (HOURS, &[(2, 0, None)], None),
            (0, &[], None),
            // Learners, and nodes that are not members, do not count.
            (0, &[(2, 0, None), (8, HOURS, None), (9, HOURS, None)], None),
        ] {
            let mut one = One::new(3, own);
            one.run_as_leader(100, others);
            assert_eq!(one.reading(), expected, "{own} {others:?}");
            one.run_as_leader(START_DELAY_MS, others);
            assert_eq!(one.reading().is_some(), !others.is_empty(), "{own} {others:?}");
            assert_eq!(one.stamps(), one.reading().is_some());
        }
        let mut two = One::new(3, HOURS);
        two.run_as_leader(1_000, &[(2, 0, None)]);
        assert_eq!(two.reading(), Some(0));
        let mut single = One::new(1, 9_000);
        single.run_as_leader(0, &[]);
        assert_eq!(single.reading(), Some(9_000));
    }

    #[test]
    fn wall_clock_moves_the_group_clock_by_at_most_its_slew() {
        let mut one = One::new(3, 0);
        one.run_as_leader(100, &[(2, 0, None), (3, HOURS, None)]);
        one.own = HOURS;
        one.run_as_leader(10_000, &[(2, HOURS, None), (3, HOURS, None)]);
        assert_eq!(one.reading(), Some(11));
        one.own = -HOURS;
        one.run_as_leader(4_000, &[(2, -HOURS, None), (3, -HOURS, None)]);
        assert_eq!(one.reading(), Some(-29));
        // Old readings have no effect.
        one.run_as_leader(10_000, &[]);
        assert_eq!(one.reading(), Some(-39));
    }

    #[test]
    fn a_new_leader_continues_what_a_quorum_knows() {
        for (own, others, expected) in [
            (Some(500), &[(2, 0, Some(490)), (3, 0, Some(495))][..], 495),
            (Some(500), &[(2, 0, Some(490))], 490),
            (Some(500), &[(2, 0, None)], 500),
            (None, &[(2, HOURS, Some(490))], 490),
        ] {
            let mut one = One::new(3, -HOURS);
            own.into_iter().for_each(|off| one.run_as_follower(off, 0));
            one.run_as_leader(0, others);
            assert_eq!((one.reading(), one.stamps()), (own, false), "no quorum has answered");
            one.run_as_leader(20, others);
            assert_eq!((one.reading(), one.stamps()), (Some(expected), true), "{others:?}");
        }
    }

    #[test]
    fn follower_keeps_the_least_delayed_reading_and_ages_it() {
        let mut one = One::new(3, HOURS);
        one.check_clocks();
        one.clocks.on_leader(Time(0), 0);
        assert_eq!(one.reading(), None, "the leader does not know");
        assert_eq!(
            (one.clocks.is_group_clock_known(), one.clocks.group_or_wall_ms(Time(0))),
            (false, shows(0, HOURS))
        );
        for (late_ms, expected) in [(30, -30), (900, -30), (2, -2), (40, -2)] {
            one.run_as_follower(0, late_ms);
            assert_eq!(one.reading(), Some(expected));
        }
        one.ms += 100_000;
        one.check_clocks();
        assert_eq!(one.reading(), Some(-2));
        // The group's clock is never behind the applied time.
        one.ms += 100;
        one.time_ms = shows(one.ms, 7);
        one.check_clocks();
        assert_eq!(one.reading(), Some(7));
    }

    #[test]
    fn clock_deviation_is_reported_once_and_when_it_ends() {
        let mut one = One::new(3, 0);
        let told = one.run_as_leader(4_000, &[(2, 20, None), (3, -90_000, None)]);
        let [off] = told[..] else { panic!("{told:?}") };
        assert_eq!(off.node, NodeId(3));
        assert_eq!(off.text(), "90.0 s behind the group's clock");
        assert_eq!(one.clocks.reported_deviations().count(), 1);
        let told = one.run_as_leader(1_000, &[(2, 0, None), (3, 0, None)]);
        assert_eq!(told.len(), 1);
        assert!(!told[0].is_off() && one.clocks.reported_deviations().count() == 0, "{told:?}");
    }
}
