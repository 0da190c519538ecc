//! Events for operators, as data. The driver of the replica logs them.

use std::collections::VecDeque;

use quorate_core::{
    ballot::Ballot,
    effect::{Alarm, Role},
    explanation::Explanation,
    level::Level,
    node_id::NodeId,
    slot::Slot,
};

use crate::{
    clocks::ClockDeviation,
    ports::{
        scrub_report::Kind,
        status::{Activity, Progress},
    },
};

/// Maximum number of queued events.
const EVENTS_MAX: usize = 256;

/// A change of this node that is reported to operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Leadership was gained or lost, or an election was not won, for this reason.
    Leadership(Explanation),
    /// The role or the known leader changed. This node leads or follows in `ballot`.
    Role { role: Role, leader: Option<NodeId>, ballot: Ballot },
    /// No leader is known. Reported again at growing intervals. `connected_count` counts the
    /// members that this node is connected to, including itself.
    NoLeader { leaderless_ms: u64, connected_count: usize, member_count: usize },
    /// The node has been lagging for a while.
    Behind(Progress),
    /// The activity reported by [`Event::Behind`] is still in progress.
    StillBehind(Progress),
    /// The activity reported by [`Event::Behind`] is complete.
    ActivityDone { activity: Activity, slots: u64, duration_ms: u64 },
    /// The node has caught up: a leader is known, and everything known to be decided, below
    /// `applied_to`, is applied. Reported once after the start, and after each [`Event::Behind`].
    CaughtUp { applied_to: Slot, ms: u64 },
    /// No log segment can be created. `is_waiting` is set if a resource such as free space is
    /// lacking, so that the log waits for it and does not fail.
    NoSegment { is_waiting: bool, why: String },
    /// Log segments can be created again.
    SegmentsRecovered { ms: u64 },
    /// [room-1] This node's disk has become full except for its reserve, or is no longer full.
    DiskFull { is_full: bool, free_bytes: u64 },
    /// A log write took unusually long.
    SlowWrite { ms: u64, bytes: usize },
    /// A log write has not finished for an unusually long time.
    WriteHangs { ms: u64 },
    /// This node led, and handed over leadership because it is not fit to lead ([live-3]).
    HandedOver { to: NodeId, why: String },
    /// [disk-9] The log failed permanently.
    LogFailed { why: String },
    /// A part of the log cannot be read.
    Unreadable { why: String },
    /// The service has stopped working normally, or the kind of trouble has changed.
    ServiceTrouble { why: String },
    /// The service works again.
    ServiceRecovered,
    /// The group now uses this feature level, according to the log as applied by this node.
    LevelRaised { level: Level },
    /// The service recovered from a failure, with its note about the recovery.
    ServiceRestarted { why: String },
    /// [time-3] A wall clock differs from the group's by more than a second, or no longer does.
    ClockOff(ClockDeviation),
    /// A snapshot of this node's state, which covers all slots below `at`, is complete.
    SnapshotTaken { at: Slot, bytes: u64 },
    /// A snapshot was received from a peer, because this node lacked the state.
    SnapshotInstalled { at: Slot },
    /// The service loaded a snapshot.
    SnapshotLoaded { at: Slot },
    /// A snapshot could not be taken, received, read or loaded; it will be retried.
    SnapshotFailed { why: String },
    /// A scrub found damage in a file. Each damaged place is reported once ([scrub-4]).
    DamageFound { kind: Kind, what: String },
    /// A scrub ended. `found_count` counts all damaged places, including those already known.
    Scrubbed { bytes: u64, found_count: u64, ms: u64 },
    /// A rule of the protocol was violated.
    Alarm(Alarm),
}

#[derive(Debug, Default)]
pub(crate) struct Events {
    queue: VecDeque<Event>,
}

impl Events {
    /// Queues an event if there is space, since the driver may never take any.
    pub(crate) fn push(&mut self, event: Event) {
        if self.queue.len() < EVENTS_MAX {
            self.queue.push_back(event);
        }
    }

    pub(crate) fn next(&mut self) -> Option<Event> {
        self.queue.pop_front()
    }
}
