//! Timers of a protocol node, such as those for heartbeats and repeated requests.

use crate::{slot::Slot, time::Time};

/// Times at which a node's repeated actions are due.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Timers {
    is_started: bool,
    next_heartbeat_at: Time,
    /// Time of a leader's next check for strays and for its fitness. Separate from
    /// `next_heartbeat_at`, which reads keep postponing ([read-2]), so that the check cannot be
    /// postponed forever.
    next_check_at: Time,
    /// Time at which 1A is resent to nodes that have not replied. Separate from
    /// `next_heartbeat_at`, which is postponed each time a leader moves to another ballot of its
    /// own ([cast-2]).
    phase1a_resend_at: Time,
    /// Until this time the node does not lead as a quorum by itself ([lie-6]).
    no_sole_lead_until: Time,
    /// First undecided slot at this node's last request for decided slots before leading as a
    /// quorum by itself ([lie-6]).
    alone_requested_from: Option<Slot>,
}

impl Timers {
    /// Records a clock reading. Returns whether it is the first.
    pub(super) fn record_reading(&mut self) -> bool {
        !core::mem::replace(&mut self.is_started, true)
    }

    /// Starts the wait for other nodes to connect, before this node leads by itself.
    pub(super) fn wait_alone(&mut self, now: Time, us: u64) {
        if us > 0 {
            self.no_sole_lead_until = now.plus_us(us);
        }
    }

    /// Returns the time at which the wait for other nodes ends; `None` if it is over.
    pub(super) fn alone_wait_end(&self, now: Time) -> Option<Time> {
        (now < self.no_sole_lead_until).then_some(self.no_sole_lead_until)
    }

    /// Records a request for decided slots from `from` on. Returns whether it differs from the last
    /// one.
    pub(super) fn record_alone_request(&mut self, from: Slot) -> bool {
        self.alone_requested_from.replace(from) != Some(from)
    }

    pub(super) fn next_heartbeat_at(&self) -> Time {
        self.next_heartbeat_at
    }

    pub(super) fn heartbeat_sent(&mut self, now: Time, every_ms: u64) {
        self.next_heartbeat_at = now.plus_ms(every_ms);
    }

    /// Returns the time of a leader's next check. It coincides with a heartbeat that is due by
    /// time, or follows after two intervals if there is no such heartbeat.
    pub(super) fn next_check_at(&self) -> Time {
        self.next_heartbeat_at.min(self.next_check_at)
    }

    /// Records that the leader made its check, or that its term began.
    pub(super) fn check_done(&mut self, now: Time, every_ms: u64) {
        self.next_check_at = now.plus_ms(2 * every_ms);
    }

    /// Returns the time at which missing promises are requested again.
    pub(super) fn phase1a_resend_at(&self) -> Time {
        self.phase1a_resend_at
    }

    pub(super) fn phase1a_sent(&mut self, now: Time, every_ms: u64) {
        self.phase1a_resend_at = now.plus_ms(every_ms);
    }
}
