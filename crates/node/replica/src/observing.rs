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
        watch::{ReplicaView, Watch},
    },
    status::{LeaderChange, Progress},
};

/// Observations of this replica, and events that are not reported yet.
#[derive(Debug)]
pub(crate) struct Observing {
    watch: Watch,
    promises: Promises,
    events: Events,
    reigns: LeaderHistory,
    /// First broken rule that was found.
    alarm: Option<Alarm>,
}

impl Observing {
    pub(crate) fn new(now: Time, pursuit: LagTracker, election_max_ms: u64) -> Self {
        Self {
            watch: Watch::new(now, pursuit),
            promises: Promises::new(election_max_ms),
            events: Events::default(),
            reigns: LeaderHistory::default(),
            alarm: None,
        }
    }

    /// Queues an event for the operator.
    pub(crate) fn tell(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Takes the oldest event that was not reported yet.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.next()
    }

    /// Records the present leader, as far as this node knows it.
    pub(crate) fn led(&mut self, now: Time, leader: Option<NodeId>, ballot: Ballot) {
        self.reigns.look(now, leader, ballot);
    }

    /// Returns the latest leaders, the oldest first.
    pub(crate) fn reigns(&self, now: Time) -> Vec<LeaderChange> {
        self.reigns.seen(now)
    }

    /// Records a broken rule. The status shows the first one; an alarm that nodes differ gives way
    /// to a graver one.
    pub(crate) fn raise(&mut self, alarm: Alarm, counters: &mut Counters) {
        counters.alarms += 1;
        self.events.push(Event::Alarm(alarm));
        if self.alarm.is_none_or(|first| matches!(first, Alarm::DifferentHistory { .. })) {
            self.alarm = Some(alarm);
        }
    }

    /// Returns the first broken rule that was found.
    pub(crate) fn alarm(&self) -> Option<&Alarm> {
        self.alarm.as_ref()
    }

    /// Records a message from a peer; `own` is the era of this node.
    pub(crate) fn heard(&mut self, now: Time, message: &Message, own: Era) {
        self.promises.heard(now, message, own);
    }

    /// Records this node's present promise and era.
    pub(crate) fn promised(&mut self, now: Time, promised: Ballot, own: Era) {
        self.promises.look(now, promised, own);
    }

    /// Returns the notice about this node's promise, if the operator should act.
    pub(crate) fn notice(&self, now: Time) -> Option<String> {
        self.promises.notice(now)
    }

    /// Takes the notice about this node's promise; it is returned once.
    pub(crate) fn take_notice(&mut self, now: Time) -> Option<String> {
        self.promises.take_news(now)
    }

    /// Records that a write of the log ended, and its duration.
    pub(crate) fn on_written(&mut self, took_us: u64, bytes: usize) {
        self.watch.on_written(took_us, bytes, &mut self.events);
    }

    /// Returns whether a check of the replica is due, and schedules the next one.
    pub(crate) fn take_look(&mut self, now: Time) -> bool {
        self.watch.take_due(now)
    }

    /// Checks the replica's present state, and queues events.
    pub(crate) fn look(&mut self, now: Time, sight: &ReplicaView<'_>) {
        self.watch.look(now, sight, &mut self.events);
    }

    /// Returns the activity that keeps this node from being caught up, if any.
    pub(crate) fn progress(&self, now: Time, standing: &NodeProgress) -> Option<Progress> {
        self.watch.progress(now, standing)
    }

    /// Returns the growth rate of the log in bytes per second.
    pub(crate) fn log_growth(&self, now: Time, written_bytes: u64) -> Option<u64> {
        self.watch.growth(now, written_bytes)
    }
}
