//! Events for an operator, as data: the driver of the replica makes log lines of them.

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

/// Maximum of events that were not read yet; further ones have to wait.
const EVENTS_MAX: usize = 256;

/// A change of a node that operators are notified of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Leadership was gained, lost or not won, with the reason.
    Leadership(Explanation),
    /// Role or known leader changed.
    Role {
        /// Present role of this node.
        role: Role,
        /// Present leader, as far as it knows.
        leader: Option<NodeId>,
        /// The ballot that it leads or follows.
        ballot: Ballot,
    },
    /// No leader has been known for `for_ms`. Reported again at growing intervals.
    NoLeader {
        /// Duration in milliseconds.
        for_ms: u64,
        /// Members that this node can talk to, itself included.
        connected: usize,
        /// Number of members.
        members: usize,
    },
    /// The node is behind, and has been for a while.
    Behind(Progress),
    /// The activity is still in progress.
    StillBehind(Progress),
    /// The activity of [`Event::Behind`] is done.
    Done {
        /// The activity.
        activity: Activity,
        /// Number of slots.
        slots: u64,
        /// Duration in milliseconds.
        ms: u64,
    },
    /// A leader is known, and all that is known to be decided is applied: for the first time since
    /// the start, or since [`Event::Behind`].
    Level {
        /// Slots below are applied.
        at: Slot,
        /// Duration since the start, or since falling behind, in milliseconds.
        ms: u64,
    },
    /// A segment for the log cannot be made.
    NoSegment {
        /// Only space or another resource is short: the log waits until there is more, and does not
        /// fail.
        waits: bool,
        /// Error of the disk.
        why: String,
    },
    /// Segments can be made again.
    SegmentsAgain {
        /// Delay in milliseconds.
        ms: u64,
    },
    /// A write of the log took long.
    SlowWrite {
        /// Duration from its start to its end, in milliseconds.
        ms: u64,
        /// Its size in bytes.
        bytes: usize,
    },
    /// A write of the log has not ended for `ms`.
    WriteHangs {
        /// Duration in milliseconds.
        ms: u64,
    },
    /// This node led, and handed over, because it is not fit to lead ([live-3]).
    HandedOver {
        /// New leader.
        to: NodeId,
        /// Work that this node cannot do.
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
    /// The service is in trouble, or in another kind of trouble than before.
    ServiceTrouble {
        /// Kind of trouble.
        why: String,
    },
    /// The service works again.
    ServiceWell,
    /// The group uses this feature level from now on, as far as this node has applied the log.
    Raised {
        /// The level.
        level: Level,
    },
    /// The service recovered from its failure, with a remark.
    ServiceBack {
        /// The remark.
        why: String,
    },
    /// [time-3] A wall clock is off the group's by more than a second, or is right again.
    ClockOff(Off),
    /// A snapshot of this node's state is whole.
    SnapshotTaken {
        /// Slot of the snapshot: the state after all slots below.
        at: Slot,
        /// Bytes of its stream.
        bytes: u64,
    },
    /// A peer's snapshot replaces the state that this node lacked.
    SnapshotInstalled {
        /// Slot of the snapshot: the state after all slots below.
        at: Slot,
    },
    /// The service took in a snapshot.
    SnapshotLoaded {
        /// Slot of the snapshot: the state after all slots below.
        at: Slot,
    },
    /// A snapshot could not be taken, received, read or loaded; it is tried again.
    SnapshotFailed {
        /// The reason.
        why: String,
    },
    /// A scrub found damage; reported once for each place ([scrub-4]).
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
        /// Number of damaged places, including those that are known already.
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
    /// Queues an event, if there is room: a driver that never asks must not grow a queue.
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
