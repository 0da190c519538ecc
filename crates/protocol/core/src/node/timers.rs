//! Timers of a node.

use crate::time::Time;

/// The times of what a node repeats.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Timers {
    started: bool,
    heartbeat: Time,
    /// Latest time at which a leader looks for strays, and whether it should lead. Apart from
    /// `heartbeat`, which reads keep pushing back ([read-2]): under them it would never look.
    look: Time,
    /// Time at which nodes that have not answered a 1A are asked again. Apart from `heartbeat`,
    /// which a leader that moves to another ballot of its own keeps pushing on ([cast-2]).
    phase1a: Time,
    /// Before then it does not lead as a quorum by itself ([lie-6]).
    alone: Time,
}

impl Timers {
    /// Returns whether this is the first reading of the clock.
    pub(super) fn start(&mut self) -> bool {
        !core::mem::replace(&mut self.started, true)
    }

    /// Begins the wait for others, before this node leads by itself.
    pub(super) fn wait_alone(&mut self, now: Time, us: u64) {
        if us > 0 {
            self.alone = now.plus_us(us);
        }
    }

    /// Returns until when that lasts, if it does.
    pub(super) fn waits_alone(&self, now: Time) -> Option<Time> {
        (now < self.alone).then_some(self.alone)
    }

    /// Returns when the next heartbeat is due.
    pub(super) fn heartbeat(&self) -> Time {
        self.heartbeat
    }

    /// Notes that the leader sent a heartbeat.
    pub(super) fn heartbeat_sent(&mut self, now: Time, every_ms: u64) {
        self.heartbeat = now.plus_ms(every_ms);
    }

    /// Returns when a leader looks next: with a heartbeat that is due by time, and where none ever
    /// is, after the time of two.
    pub(super) fn look(&self) -> Time {
        self.heartbeat.min(self.look)
    }

    /// Notes that the leader looked, or began to lead.
    pub(super) fn looked(&mut self, now: Time, every_ms: u64) {
        self.look = now.plus_ms(2 * every_ms);
    }

    /// Returns when missing promises are asked for again.
    pub(super) fn phase1a(&self) -> Time {
        self.phase1a
    }

    /// Promises were asked for.
    pub(super) fn phase1a_sent(&mut self, now: Time, every_ms: u64) {
        self.phase1a = now.plus_ms(every_ms);
    }
}
