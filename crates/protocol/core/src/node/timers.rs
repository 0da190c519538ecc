//! When this node is due to speak.

use crate::time::Time;

/// The times of what a node repeats.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Timers {
    started: bool,
    heartbeat: Time,
    /// When a leader looks for strays, and whether it should lead, at the latest. Apart from
    /// `heartbeat`, which reads keep pushing back ([read-2]): under them it would never look.
    look: Time,
    /// When those who have not answered a 1A are asked again. Apart from `heartbeat`, which a
    /// leader that moves to another ballot of its own keeps pushing on ([cast-2]).
    phase1a: Time,
    /// Before then it does not lead as a quorum by itself ([lie-6]).
    alone: Time,
}

impl Timers {
    /// Returns whether this is the first reading of the clock.
    pub(super) fn start(&mut self) -> bool {
        !core::mem::replace(&mut self.started, true)
    }

    /// The time of waiting for others begins, before this node leads by itself.
    pub(super) fn wait_alone(&mut self, now: Time, us: u64) {
        if us > 0 {
            self.alone = now.plus_us(us);
        }
    }

    /// Returns until when that lasts, if it does.
    pub(super) fn waits_alone(&self, now: Time) -> Option<Time> {
        (now < self.alone).then_some(self.alone)
    }

    /// When a leader speaks next.
    pub(super) fn heartbeat(&self) -> Time {
        self.heartbeat
    }

    /// A leader spoke.
    pub(super) fn heartbeat_sent(&mut self, now: Time, every_ms: u64) {
        self.heartbeat = now.plus_ms(every_ms);
    }

    /// When a leader looks next: with a heartbeat that is due by time, and where none ever is,
    /// after the time of two.
    pub(super) fn look(&self) -> Time {
        self.heartbeat.min(self.look)
    }

    /// Notes that the leader looked, or began to lead.
    pub(super) fn looked(&mut self, now: Time, every_ms: u64) {
        self.look = now.plus_ms(2 * every_ms);
    }

    /// When promises that are missing are asked for again.
    pub(super) fn phase1a(&self) -> Time {
        self.phase1a
    }

    /// Promises were asked for.
    pub(super) fn phase1a_sent(&mut self, now: Time, every_ms: u64) {
        self.phase1a = now.plus_ms(every_ms);
    }
}
