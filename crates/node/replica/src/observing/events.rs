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
    scrubbing::report::Kind,
    status::{Activity, Progress},
};

/// Maximum number of events in the queue; further ones have to wait.
const EVENTS_MAX: usize = 256;

/// A change of a node of which operators are notified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Leadership was gained, lost or not won, with the reason.
    Leadership(Explanation),
    /// Role or known leader changed.
    Role {
        /// Present role of this node.
        role: Role,
        /// Present leader, as far as this node knows.
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
        /// Number of members.
        members: usize,
    },
    /// The node lags, and has for a while.
    Behind(Progress),
    /// The activity is still in progress.
    StillBehind(Progress),
    /// The activity reported by [`Event::Behind`] is done.
    Done {
        /// The activity.
        activity: Activity,
        /// Number of slots processed.
        slots: u64,
        /// Duration in milliseconds.
        ms: u64,
    },
    /// The node has caught up: a leader is known, and everything known to be decided is applied.
    /// Reported once after the start, and after each [`Event::Behind`].
    Level {
        /// First slot that is not applied.
        at: Slot,
        /// Duration since the start, or since falling behind, in milliseconds.
        ms: u64,
    },
    /// No segment for the log can be created.
    NoSegment {
        /// Only space or another resource is lacking: the log waits for it and does not fail.
        waits: bool,
        /// Error of the disk.
        why: String,
    },
    /// Segments can be created again.
    SegmentsAgain {
        /// Time without new segments in milliseconds.
        ms: u64,
    },
    /// A write of the log took long.
    SlowWrite {
        /// Duration from its start to its end, in milliseconds.
        ms: u64,
        /// Size of the write in bytes.
        bytes: usize,
    },
    /// A write of the log has not ended yet.
    WriteHangs {
        /// Time since its start in milliseconds.
        ms: u64,
    },
    /// This node led, and handed leadership over because it is not fit to lead ([live-3]).
    HandedOver {
        /// New leader.
        to: NodeId,
        /// Reason why this node is not fit to lead.
        why: String,
    },
    /// [disk-9] The log failed permanently.
    LogFailed {
        /// Error of the disk.
        why: String,
    },
    /// A part of the log cannot be read.
    Unreadable {
        /// Kind and place of the damage.
        why: String,
    },
    /// The service does not work normally, or the kind of trouble has changed.
    ServiceTrouble {
        /// Description of the trouble.
        why: String,
    },
    /// The service works again.
    ServiceWell,
    /// The group uses this feature level from now on, as far as this node has applied the log.
    Raised {
        /// The new level.
        level: Level,
    },
    /// The service recovered from a failure.
    ServiceBack {
        /// Note of the service about the recovery.
        why: String,
    },
    /// [time-3] A wall clock differs from the group's by more than a second, or is right again.
    ClockOff(Off),
    /// A snapshot of this node's state is complete.
    SnapshotTaken {
        /// Slot of the snapshot: the state after all slots below.
        at: Slot,
        /// Length of its stream in bytes.
        bytes: u64,
    },
    /// A snapshot of a peer was received, because this node lacked its state.
    SnapshotInstalled {
        /// Slot of the snapshot: the state after all slots below.
        at: Slot,
    },
    /// The service loaded a snapshot.
    SnapshotLoaded {
        /// Slot of the snapshot: the state after all slots below.
        at: Slot,
    },
    /// A snapshot could not be taken, received, read or loaded; it will be retried.
    SnapshotFailed {
        /// Reason of the failure.
        why: String,
    },
    /// A scrub found damage; each damaged place is reported once ([scrub-4]).
    DamageFound {
        /// Kind of the damaged data.
        kind: Kind,
        /// File, position in it, and kind of damage.
        what: String,
    },
    /// A scrub ended.
    Scrubbed {
        /// Bytes read.
        bytes: u64,
        /// Number of damaged places, including those already known.
        found: u64,
        /// Duration in milliseconds.
        ms: u64,
    },
    /// A rule of the protocol was found broken.
    Alarm(Alarm),
}

/// A bounded queue of events, in order.
#[derive(Debug, Default)]
pub(crate) struct Events {
    queue: VecDeque<Event>,
}

impl Events {
    /// Queues an event, if there is space: the queue must not grow if the driver never takes any.
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
