//! This node's lag, current activity and catch-up rate, for status and events.
//!
//! Every node is always a few slots behind, so only a lasting lag is reported.

use quorate_core::{slot::Slot, time::Time};

use crate::{
    observing::{
        events::{Event, Events},
        pace::RateSamples,
    },
    ports::status::{Activity, Progress},
};

/// Duration of a lag in milliseconds after which it is reported. Damage is reported immediately.
const REPORT_AFTER_MS: u64 = 1_000;
/// Interval in milliseconds between further reports of a lasting lag.
const REPORT_INTERVAL_MS: u64 = 10_000;
/// Sampling interval of the rate in milliseconds, and number of samples: the last two seconds.
const RATE_SAMPLING: (u64, usize) = (250, 8);

/// Snapshot of a node's positions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeProgress {
    /// Number of slots whose bytes must still be read back before the node sends anything.
    pub(crate) unread_slots: u64,
    /// Received bytes and size of a peer's snapshot, if one is being received.
    pub(crate) received_of_total: Option<(u64, u64)>,
    /// Number of slots lost from the log that must be fetched from peers.
    pub(crate) missing_slots: u64,
    pub(crate) applied_to: Slot,
    /// First slot that is not known to be decided, by this node or its peers.
    pub(crate) known_to: Slot,
    /// A leader is known. Without one, the node learns no further decisions.
    pub(crate) has_leader: bool,
}

/// Progress of a node since its start, and the reports about it so far.
#[derive(Debug)]
pub(crate) struct LagTracker {
    /// Slot below which everything was decided before this process started.
    replay_to: Slot,
    unread_slots: u64,
    missing_slots: u64,
    /// Current activity, with its start.
    current_activity: Option<OngoingActivity>,
    /// Time at which the node was last seen caught up, initially its start.
    caught_up_at: Time,
    caught_up_reported: bool,
    rate_samples: RateSamples,
}

#[derive(Clone, Copy, Debug)]
struct OngoingActivity {
    activity: Activity,
    from: u64,
    end: u64,
    began_at: Time,
    /// Time of the last report about the current activity, if any.
    last_report_at: Option<Time>,
}

impl LagTracker {
    /// Creates the state for a node whose log contains decisions for everything below `replay_to`.
    pub(crate) fn new(now: Time, replay_to: Slot, unread: u64, missing: u64) -> Self {
        Self {
            replay_to,
            unread_slots: unread,
            missing_slots: missing,
            current_activity: None,
            caught_up_at: now,
            caught_up_reported: false,
            rate_samples: RateSamples::new(RATE_SAMPLING.0, RATE_SAMPLING.1),
        }
    }

    /// Returns the activity with the highest priority. Unread votes come first, because the node
    /// sends nothing before they are read; then a needed snapshot, without which it makes no
    /// progress; then lost slots, which block those after them; then the node's own log, which is
    /// faster than its peers.
    fn choose_activity(&self, standing: &NodeProgress) -> Option<Activity> {
        let behind = standing.applied_to < standing.known_to;
        match () {
            () if standing.unread_slots > 0 => Some(Activity::ReadingVotes),
            () if standing.received_of_total.is_some() => Some(Activity::ReceivingSnapshot),
            () if standing.missing_slots > 0 => Some(Activity::Repairing),
            () if standing.applied_to < self.replay_to => Some(Activity::Replaying),
            () if behind => Some(Activity::CatchingUp),
            () => None,
        }
    }

    /// Returns the progress of an activity, and its goal.
    fn position(&self, activity: Activity, standing: &NodeProgress) -> (u64, u64) {
        match activity {
            Activity::ReadingVotes => {
                (self.unread_slots.saturating_sub(standing.unread_slots), self.unread_slots)
            }
            Activity::ReceivingSnapshot => standing.received_of_total.unwrap_or_default(),
            Activity::Repairing => {
                (self.missing_slots.saturating_sub(standing.missing_slots), self.missing_slots)
            }
            Activity::Replaying => (standing.applied_to.0, self.replay_to.0),
            Activity::CatchingUp => (standing.applied_to.0, standing.known_to.0),
        }
    }

    /// Checks the node's current progress, and reports a lasting lag.
    pub(crate) fn check_progress(
        &mut self,
        now: Time,
        standing: &NodeProgress,
        events: &mut Events,
    ) {
        self.missing_slots = self.missing_slots.max(standing.missing_slots);
        let activity = self.choose_activity(standing);
        if self.current_activity.map(|doing| doing.activity) != activity {
            self.end_activity(now, standing, events);
            self.current_activity = activity.map(|activity| {
                let (at, to) = self.position(activity, standing);
                // Bytes that an earlier process received count as progress.
                let from = if activity.counts_bytes() { 0 } else { at };
                OngoingActivity { activity, from, end: to, began_at: now, last_report_at: None }
            });
            self.rate_samples.restart();
        }
        match &mut self.current_activity {
            None => self.record_caught_up(now, standing, events),
            Some(doing) => {
                let activity = doing.activity;
                let told = doing.last_report_at;
                let due = match told {
                    None if activity == Activity::Repairing => doing.began_at,
                    None => doing.began_at.plus_ms(REPORT_AFTER_MS),
                    Some(at) => at.plus_ms(REPORT_INTERVAL_MS),
                };
                if now >= due {
                    doing.last_report_at = Some(now);
                }
                let (at, to) = self.position(activity, standing);
                if let Some(doing) = &mut self.current_activity {
                    doing.end = to;
                }
                self.rate_samples.record_total(now, at);
                if now >= due
                    && let Some(progress) = self.progress(now, standing)
                {
                    events.push(match told {
                        None => Event::Behind(progress),
                        Some(_) => Event::StillBehind(progress),
                    });
                }
            }
        }
    }

    /// Ends the current activity, because it is complete or another one replaces it.
    fn end_activity(&mut self, now: Time, standing: &NodeProgress, events: &mut Events) {
        let Some(doing) = self.current_activity.take() else {
            return;
        };
        if doing.last_report_at.is_none() {
            return;
        }
        // A node that has caught up is reported by `level`, and an installed snapshot has an event
        // of its own. Otherwise there is nothing to report yet.
        if matches!(doing.activity, Activity::CatchingUp | Activity::ReceivingSnapshot) {
            self.caught_up_reported = false;
            return;
        }
        let (at, _) = self.position(doing.activity, standing);
        events.push(Event::ActivityDone {
            activity: doing.activity,
            slots: at.min(doing.end).saturating_sub(doing.from),
            duration_ms: now.since_us(doing.began_at) / 1000,
        });
    }

    fn record_caught_up(&mut self, now: Time, standing: &NodeProgress, events: &mut Events) {
        if !standing.has_leader {
            return;
        }
        if !self.caught_up_reported {
            self.caught_up_reported = true;
            events.push(Event::CaughtUp {
                applied_to: standing.applied_to,
                ms: now.since_us(self.caught_up_at) / 1000,
            });
        }
        self.caught_up_at = now;
    }

    pub(crate) fn progress(&self, now: Time, standing: &NodeProgress) -> Option<Progress> {
        let doing = self.current_activity?;
        // The activity may have ended since the last check.
        if self.choose_activity(standing) != Some(doing.activity) {
            return None;
        }
        let (at, to) = self.position(doing.activity, standing);
        let ms = now.since_us(doing.began_at) / 1000;
        let starting = !self.caught_up_reported;
        (starting || ms >= REPORT_AFTER_MS).then_some(Progress {
            activity: doing.activity,
            from: doing.from,
            position: at,
            end: to,
            per_second: self.rate_samples.per_second(now, at),
            elapsed_ms: ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Time {
        Time(0).plus_ms(ms)
    }

    fn standing(applied_to: u64, known_to: u64) -> NodeProgress {
        NodeProgress {
            unread_slots: 0,
            received_of_total: None,
            missing_slots: 0,
            applied_to: Slot(applied_to),
            known_to: Slot(known_to),
            has_leader: true,
        }
    }

    fn told(events: &mut Events) -> Vec<String> {
        let mut list = Vec::new();
        while let Some(event) = events.next() {
            list.push(match event {
                Event::Behind(at) => format!("{:?} {} of {}", at.activity, at.position, at.end),
                Event::StillBehind(at) => {
                    format!("still {:?} {} at {:?}/s", at.activity, at.position, at.per_second)
                }
                Event::ActivityDone { activity, slots, duration_ms: ms } => {
                    format!("done {activity:?}, {slots} slots in {ms} ms")
                }
                Event::CaughtUp { applied_to: at, ms } => format!("level at {at} after {ms} ms"),
                other => format!("{other:?}"),
            });
        }
        list
    }

    #[test]
    fn start_is_caught_up_once_a_leader_confirms_it() {
        let (mut pursuit, mut events) =
            (LagTracker::new(at_ms(0), Slot(9), 0, 0), Events::default());
        let unled = NodeProgress { has_leader: false, ..standing(9, 9) };
        pursuit.check_progress(at_ms(50), &unled, &mut events);
        assert_eq!(told(&mut events), [""; 0]);
        pursuit.check_progress(at_ms(200), &standing(9, 9), &mut events);
        pursuit.check_progress(at_ms(250), &standing(10, 10), &mut events);
        assert_eq!(told(&mut events), ["level at 9 after 200 ms"]);
    }

    #[test]
    fn lasting_lag_is_reported_from_start_to_end() {
        let mut events = Events::default();
        let mut pursuit = LagTracker::new(at_ms(0), Slot(3000), 0, 0);
        for ms in (0..3000).step_by(50) {
            pursuit.check_progress(at_ms(ms), &standing(ms, 3000), &mut events);
        }
        for ms in (3000..25_000).step_by(50) {
            pursuit.check_progress(at_ms(ms), &standing(ms, 25_000), &mut events);
        }
        pursuit.check_progress(at_ms(25_000), &standing(25_000, 25_000), &mut events);
        let expected = [
            "Replaying 1000 of 3000",
            "done Replaying, 3000 slots in 3000 ms",
            "CatchingUp 4000 of 25000",
            "still CatchingUp 14000 at Some(1000)/s",
            "still CatchingUp 24000 at Some(1000)/s",
            "level at 25000 after 25000 ms",
        ];
        assert_eq!(told(&mut events), expected);
    }

    /// A short lag is not reported, since every node lags briefly now and then. During a start the
    /// status shows even a short lag.
    #[test]
    fn short_lag_is_not_reported() {
        let mut events = Events::default();
        let mut pursuit = LagTracker::new(at_ms(0), Slot(1), 0, 0);
        pursuit.check_progress(at_ms(0), &standing(1, 50), &mut events);
        assert!(pursuit.progress(at_ms(0), &standing(1, 50)).is_some());
        for ms in (50..20_000).step_by(100) {
            pursuit.check_progress(at_ms(ms), &standing(ms, ms), &mut events);
            let behind = standing(ms, ms + 9);
            pursuit.check_progress(at_ms(ms + 50), &behind, &mut events);
            assert_eq!(pursuit.progress(at_ms(ms + 50), &behind), None);
        }
        assert_eq!(told(&mut events), ["level at 50 after 50 ms"]);
    }

    /// [catch-2] A snapshot transfer is reported in bytes: in slots it would show no progress.
    #[test]
    fn snapshot_transfer_is_reported_in_bytes() {
        let mut events = Events::default();
        let mut pursuit = LagTracker::new(at_ms(0), Slot(1), 0, 0);
        pursuit.check_progress(at_ms(0), &standing(1, 1), &mut events);
        pursuit.check_progress(at_ms(50), &standing(1, 900), &mut events);
        let receiving = |mib: u64| NodeProgress {
            received_of_total: Some((mib << 20, 40 << 20)),
            ..standing(1, 900)
        };
        for ms in (2000..6000).step_by(100) {
            pursuit.check_progress(at_ms(ms), &receiving(ms / 200), &mut events);
        }
        let progress = pursuit.progress(at_ms(6000), &receiving(30)).unwrap();
        assert_eq!((progress.from, progress.percent()), (0, 75));
        assert_eq!(
            progress.to_string(),
            "receiving a snapshot: 30 of 40 MiB, 75 %, 5 MiB/s, about 2 s left"
        );
        pursuit.check_progress(at_ms(9000), &standing(700, 900), &mut events);
        let then = pursuit.progress(at_ms(9000), &standing(700, 900)).unwrap();
        assert_eq!(then.activity, Activity::CatchingUp, "at once");
        pursuit.check_progress(at_ms(9100), &standing(900, 900), &mut events);
        let expected = [
            "level at 1 after 0 ms",
            "ReceivingSnapshot 15728640 of 41943040",
            "level at 900 after 9100 ms",
        ];
        assert_eq!(told(&mut events), expected);
    }

    /// [disk-8] Repair is reported before replay, because lost slots block everything else.
    #[test]
    fn repair_is_reported_before_replay_until_it_ends() {
        let mut events = Events::default();
        let mut pursuit = LagTracker::new(at_ms(0), Slot(100), 0, 20);
        let damaged = |missing| NodeProgress { missing_slots: missing, ..standing(40, 100) };
        pursuit.check_progress(at_ms(0), &damaged(20), &mut events);
        pursuit.check_progress(at_ms(1000), &damaged(15), &mut events);
        let progress = pursuit.progress(at_ms(1000), &damaged(15)).unwrap();
        assert_eq!((progress.position, progress.end, progress.elapsed_ms), (5, 20, 1000));
        pursuit.check_progress(at_ms(1500), &damaged(0), &mut events);
        assert_eq!(told(&mut events), ["Repairing 0 of 20", "done Repairing, 20 slots in 1500 ms"]);
        let progress = pursuit.progress(at_ms(1500), &damaged(0)).unwrap();
        assert_eq!(progress.activity, Activity::Replaying);
    }
}
