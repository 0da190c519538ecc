//! Reports of this replica to operators: events, notices, and its lag.

pub mod events;
mod pace;
mod promises;
pub(crate) mod pursuit;
mod reigns;
pub(crate) mod watch;

use quorate_core::{
    ballot::{Ballot, Era},
    effect::Alarm,
    explanation::Explanation,
    message::Message,
    node_id::NodeId,
    time::Time,
};

use crate::{
    counters::Counters,
    observing::{
        events::{Event, Events},
        promises::Promises,
        pursuit::{LagTracker, NodeProgress},
        reigns::LeaderHistory,
        watch::{ReplicaView, ReplicaWatch},
    },
    ports::status::{LeaderChange, Progress},
    rings::RingHistory,
};

/// Observations of this replica, and the events not reported yet.
#[derive(Debug)]
pub(crate) struct Observing {
    watch: ReplicaWatch,
    promises: Promises,
    events: Events,
    leader_history: LeaderHistory,
    /// First violation of a protocol rule that was detected.
    alarm: Option<Alarm>,
    rings: RingHistory,
}

impl Observing {
    pub(crate) fn new(now: Time, pursuit: LagTracker, election_max_ms: u64) -> Self {
        Self {
            watch: ReplicaWatch::new(now, pursuit),
            promises: Promises::new(election_max_ms),
            events: Events::default(),
            leader_history: LeaderHistory::default(),
            alarm: None,
            rings: RingHistory::default(),
        }
    }

    pub(crate) fn queue_event(&mut self, event: Event) {
        self.events.push(event);
    }

    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.next()
    }

    /// Records the current leader, as far as this node knows it.
    pub(crate) fn record_leader(&mut self, now: Time, leader: Option<NodeId>, ballot: Ballot) {
        self.leader_history.record_leader(now, leader, ballot);
    }

    /// Returns the latest changes of leader, the oldest first.
    pub(crate) fn leader_changes(&self, now: Time) -> Vec<LeaderChange> {
        self.leader_history.recent_changes(now)
    }

    /// Records a violated rule. The status shows the first violation, except that any later one
    /// replaces an alarm about nodes with different histories.
    pub(crate) fn raise_alarm(&mut self, alarm: Alarm, counters: &mut Counters) {
        counters.alarms += 1;
        self.events.push(Event::Alarm(alarm));
        if self.alarm.is_none_or(|first| matches!(first, Alarm::DifferentHistory { .. })) {
            self.alarm = Some(alarm);
        }
    }

    /// Queues an explanation from the core, and counts it if it concerns a ring.
    pub(crate) fn queue_explanation(
        &mut self,
        now: Time,
        why: Explanation,
        counters: &mut Counters,
    ) {
        self.rings.count_explanation(&why, counters);
        if let Explanation::WaitsAlone { us } = why {
            self.watch.expect_own_lead(now, us);
        }
        self.queue_event(Event::Leadership(why));
    }

    pub(crate) fn alarm(&self) -> Option<&Alarm> {
        self.alarm.as_ref()
    }

    /// Records a message from a peer. `own` is this node's era.
    pub(crate) fn record_message(&mut self, now: Time, message: &Message, own: Era) {
        self.promises.record_message(now, message, own);
    }

    /// Records this node's current promise. `own` is this node's era.
    pub(crate) fn record_promise(&mut self, now: Time, promised: Ballot, own: Era) {
        self.promises.record_promise(now, promised, own);
    }

    /// Returns the notice about this node's promise, if the operator should act.
    pub(crate) fn promise_notice(&self, now: Time) -> Option<String> {
        self.promises.unknown_era_notice(now)
    }

    /// Returns the notice about this node's promise the first time that there is one.
    pub(crate) fn take_notice(&mut self, now: Time) -> Option<String> {
        self.promises.take_new_notice(now)
    }

    pub(crate) fn on_written(&mut self, took_us: u64, bytes: usize) {
        self.watch.on_written(took_us, bytes, &mut self.events);
    }

    /// Returns whether a check of the replica is due, and schedules the next one.
    pub(crate) fn take_due_check(&mut self, now: Time) -> bool {
        self.watch.take_due_check(now)
    }

    /// Checks the replica's current state, and queues events.
    pub(crate) fn check_replica(&mut self, now: Time, sight: &ReplicaView<'_>) {
        self.watch.check_replica(now, sight, &mut self.events);
    }

    pub(crate) fn progress(&self, now: Time, standing: &NodeProgress) -> Option<Progress> {
        self.watch.progress(now, standing)
    }

    pub(crate) fn log_growth(&self, now: Time, written_bytes: u64) -> Option<u64> {
        self.watch.log_growth(now, written_bytes)
    }
}
