//! Events for an operator, as data; the driver of the replica logs them.

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
    clocks::Off,
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
    /// Leadership was gained, lost or not won, for this reason.
    Leadership(Explanation),
    /// The role or the known leader changed.
    Role {
        role: Role,
        /// Current leader, as far as this node knows.
        leader: Option<NodeId>,
        /// Ballot in which this node leads or follows.
        ballot: Ballot,
    },
    /// No leader is known. Reported again at growing intervals.
    NoLeader {
        /// Time without a leader in milliseconds.
        for_ms: u64,
        /// Number of members that this node is connected to, including itself.
        connected: usize,
        /// Number of members in the configuration.
        members: usize,
    },
    /// The node lags, and has done so for a while.
    Behind(Progress),
    /// The activity reported by [`Event::Behind`] is still in progress.
    StillBehind(Progress),
    /// The activity reported by [`Event::Behind`] is complete.
    Done {
        /// The completed activity.
        activity: Activity,
        /// Number of slots processed.
        slots: u64,
        /// Duration in milliseconds.
        ms: u64,
    },
    /// The node has caught up: a leader is known, and everything known to be decided is applied.
    /// Reported once after the start, and after each [`Event::Behind`].
    Level {
        /// First slot that has not been applied.
        at: Slot,
        /// Duration since the start, or since falling behind, in milliseconds.
        ms: u64,
    },
    /// No log segment can be created.
    NoSegment {
        /// Only free space or another resource is lacking, so the log waits for it and does not
        /// fail.
        waits: bool,
        /// Error reported by the disk.
        why: String,
    },
    /// Log segments can be created again.
    SegmentsAgain {
        /// Time without new segments in milliseconds.
        ms: u64,
    },
    /// A log write took unusually long.
    SlowWrite {
        /// Duration from its start to its end, in milliseconds.
        ms: u64,
        /// Size of the write in bytes.
        bytes: usize,
    },
    /// A log write has not finished for an unusually long time.
    WriteHangs {
        /// Time since its start in milliseconds.
        ms: u64,
    },
    /// This node led, and handed over leadership because it is not fit to lead ([live-3]).
    HandedOver {
        /// New leader.
        to: NodeId,
        /// Why this node is not fit to lead.
        why: String,
    },
    /// [disk-9] The log failed permanently.
    LogFailed {
        /// Error reported by the disk.
        why: String,
    },
    /// A part of the log cannot be read.
    Unreadable {
        /// Kind and location of the damage.
        why: String,
    },
    /// The service does not work normally, or the kind of trouble has changed.
    ServiceTrouble {
        /// Description of the trouble, for operators.
        why: String,
    },
    /// The service works again.
    ServiceWell,
    /// The group now uses this feature level, as seen in the log applied by this node.
    Raised {
        /// Level that the group now uses.
        level: Level,
    },
    /// The service recovered from a failure.
    ServiceBack {
        /// The service's note about the recovery.
        why: String,
    },
    /// [time-3] A wall clock differs from the group's by more than a second, or no longer does.
    ClockOff(Off),
    /// A snapshot of this node's state is complete.
    SnapshotTaken {
        /// Slot of the snapshot. The snapshot covers all lower slots.
        at: Slot,
        /// Length of the snapshot's stream in bytes.
        bytes: u64,
    },
    /// A snapshot was received from a peer, because this node lacked the state.
    SnapshotInstalled {
        /// Slot of the snapshot. The snapshot covers all lower slots.
        at: Slot,
    },
    /// The service loaded a snapshot.
    SnapshotLoaded {
        /// Slot of the snapshot. The snapshot covers all lower slots.
        at: Slot,
    },
    /// A snapshot could not be taken, received, read or loaded; it will be retried.
    SnapshotFailed {
        /// Reason for the failure.
        why: String,
    },
    /// A scrub found damage. Each damaged place is reported once ([scrub-4]).
    DamageFound {
        /// Kind of the damaged data.
        kind: Kind,
        /// Damaged file, position in it, and kind of damage.
        what: String,
    },
    /// A scrub ended.
    Scrubbed {
        /// Number of bytes read.
        bytes: u64,
        /// Number of damaged places, including those that were already known.
        found: u64,
        /// Duration in milliseconds.
        ms: u64,
    },
    /// A rule of the protocol was violated.
    Alarm(Alarm),
}

/// A bounded queue of events, in order.
#[derive(Debug, Default)]
pub(crate) struct Events {
    queue: VecDeque<Event>,
}

impl Events {
    /// Queues an event if there is free space. The bound matters because the driver may never take
    /// any events.
    pub(crate) fn push(&mut self, event: Event) {
        if self.queue.len() < EVENTS_MAX {
            self.queue.push_back(event);
        }
    }

    /// Takes the oldest event.
    pub(crate) fn next(&mut self) -> Option<Event> {
        self.queue.pop_front()
    }
}
