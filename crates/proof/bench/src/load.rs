//! The load generator without sockets: what is to be sent when, and what the replies mean.
//!
//! It takes the time as an argument, so that tests run it in virtual time. An **open loop** sends
//! at a fixed rate, and counts latency from the moment at which a command was *meant* to be sent: a
//! system that stalls is charged for every command that would have come during the stall, not only
//! for the few that were outstanding (coordinated omission). A **closed loop** keeps a number of
//! commands outstanding and sends the next one when a reply comes; its latency begins at the
//! sending.

use std::collections::VecDeque;

use crate::{
    samples::Samples,
    schedule::{Nanos, Schedule},
};

/// A command sent this much after its time is late.
pub const LATE: Nanos = 1_000_000;
/// A row with more late commands than this is no result: the generator was too slow, not the
/// system.
pub const LATE_SHARE_MAX: f64 = 0.01;
/// Most commands outstanding in an open loop; further ones wait, and are late.
const OUTSTANDING_MAX: usize = 1 << 20;

/// Offered load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// A number of commands per second, whatever becomes of them.
    Open {
        /// Commands per second.
        per_second: u64,
    },
    /// A number of commands outstanding at any time.
    Closed {
        /// Commands.
        outstanding: u32,
    },
}

/// One repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub offer: Offer,
    /// Connections that it is spread over; at least one.
    pub connections: u32,
    /// Thrown away, at the beginning.
    pub warmup: Nanos,
    /// Measured, after it.
    pub measure: Nanos,
    /// Time after the last sending to wait for replies.
    pub patience: Nanos,
}

impl Plan {
    /// Connections that have something to do: more than outstanding commands are never used.
    pub fn connections_used(&self) -> usize {
        let wanted = match self.offer {
            Offer::Open { .. } => self.connections,
            Offer::Closed { outstanding } => self.connections.min(outstanding),
        };
        usize::try_from(wanted.max(1)).expect("a count of sockets fits")
    }

    /// Returns the time of sending, from the start.
    pub fn sending(&self) -> Nanos {
        self.warmup.saturating_add(self.measure)
    }
}

/// A command to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Issue {
    /// On which connection.
    pub connection: usize,
    /// The n-th command of the repetition.
    pub number: u64,
}

/// Meaning of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// Executed.
    Done,
    /// Anything else, in the system's words.
    Error(&'a [u8]),
}

/// Source of commands.
#[derive(Clone, Debug)]
enum Source {
    Rate {
        schedule: Schedule,
        turn: usize,
    },
    /// Connections that have room for another command, one entry per command.
    Room(VecDeque<usize>),
}

/// The generator's state.
#[derive(Clone, Debug)]
pub struct Load {
    plan: Plan,
    start: Nanos,
    source: Source,
    /// Per connection, oldest first (replies come in order): when latency begins.
    outstanding: Vec<VecDeque<Nanos>>,
    outstanding_total: usize,
    gone: Vec<bool>,
    issued: u64,
    stopped: bool,
    samples: Samples,
}

impl Load {
    /// A repetition that starts now.
    pub fn new(plan: Plan, now: Nanos) -> Self {
        let connections = plan.connections_used();
        let source = match plan.offer {
            Offer::Open { per_second } => {
                Source::Rate { schedule: Schedule::new(now, per_second), turn: 0 }
            }
            Offer::Closed { outstanding } => {
                let outstanding = usize::try_from(outstanding).expect("a count fits");
                Source::Room((0..outstanding).map(|slot| slot % connections).collect())
            }
        };
        let samples = Samples { measured: plan.measure, ..Samples::default() };
        Self {
            plan,
            start: now,
            source,
            outstanding: vec![VecDeque::new(); connections],
            outstanding_total: 0,
            gone: vec![false; connections],
            issued: 0,
            stopped: false,
            samples,
        }
    }

    /// The next command that is due. Called until it has none.
    pub fn issue(&mut self, now: Nanos) -> Option<Issue> {
        loop {
            let (connection, begins) = self.due(now)?;
            let number = self.issued;
            self.issued += 1;
            self.count_sending(begins, now);
            if self.gone[connection] {
                // An open loop goes on: what cannot be sent any more is lost.
                self.samples.lost += 1;
                continue;
            }
            self.outstanding[connection].push_back(begins);
            self.outstanding_total += 1;
            return Some(Issue { connection, number });
        }
    }

    /// On which connection the next command goes, and when its latency begins.
    fn due(&mut self, now: Nanos) -> Option<(usize, Nanos)> {
        if self.stopped {
            return None;
        }
        let ends = self.start.saturating_add(self.plan.sending());
        match &mut self.source {
            Source::Rate { schedule, turn } => {
                if self.outstanding_total >= OUTSTANDING_MAX || schedule.peek() >= ends {
                    return None;
                }
                let intended = schedule.take(now)?;
                let connection = *turn;
                *turn = (*turn + 1) % self.outstanding.len();
                Some((connection, intended))
            }
            Source::Room(_) if now >= ends => None,
            Source::Room(room) => Some((room.pop_front()?, now)),
        }
    }

    fn count_sending(&mut self, begins: Nanos, now: Nanos) {
        if !self.is_measured(begins) {
            return;
        }
        let lateness = now.saturating_sub(begins);
        self.samples.sent += 1;
        self.samples.late += u64::from(lateness > LATE);
        self.samples.latest = self.samples.latest.max(lateness);
    }

    /// When [`Load::issue`] or [`Load::is_over`] may have news without any reply.
    pub fn wake_at(&self) -> Nanos {
        let ends = self.start.saturating_add(self.plan.sending());
        let patience = ends.saturating_add(self.plan.patience);
        match &self.source {
            Source::Rate { schedule, .. } if !self.stopped && schedule.peek() < ends => {
                // At the limit only a reply makes room.
                if self.outstanding_total >= OUTSTANDING_MAX { patience } else { schedule.peek() }
            }
            Source::Rate { .. } | Source::Room(_) => patience,
        }
    }

    /// The reply to the oldest command on this connection.
    pub fn replied(&mut self, now: Nanos, connection: usize, answer: Answer<'_>) {
        let Some(begins) = self.outstanding[connection].pop_front() else {
            // A reply to nothing: the system miscounts.
            self.samples.error(b"an unrequested reply");
            return;
        };
        self.outstanding_total -= 1;
        let since_start = now.saturating_sub(self.start);
        match answer {
            Answer::Done => self.samples.count_at(since_start),
            Answer::Error(text) => self.samples.error(text),
        }
        if self.is_measured(begins) {
            self.samples.latencies.record(now.saturating_sub(begins));
        }
        let done = matches!(answer, Answer::Done);
        self.samples.completed += u64::from(done && self.is_measured(now));
        if let Source::Room(room) = &mut self.source {
            room.push_back(connection);
        }
    }

    /// This connection is gone, with all that was outstanding on it.
    pub fn lost(&mut self, connection: usize, why: &str) {
        if std::mem::replace(&mut self.gone[connection], true) {
            return;
        }
        let lost = self.outstanding[connection].len();
        self.outstanding[connection].clear();
        self.outstanding_total -= lost;
        self.samples.lost += lost as u64;
        if self.samples.first_error.is_none() {
            self.samples.first_error = Some(why.to_owned());
        }
        if let Source::Room(room) = &mut self.source {
            room.retain(|slot| *slot != connection);
        }
    }

    /// Nothing more is sent, also of what was meant to be sent before: for a load that a system may
    /// hold up for longer than its time.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Returns whether nothing more will be sent or is awaited.
    pub fn is_over(&self, now: Nanos) -> bool {
        let ends = self.start.saturating_add(self.plan.sending());
        if self.gone.iter().all(|gone| *gone) {
            return true;
        }
        let sent = match &self.source {
            Source::Rate { schedule, .. } => self.stopped || schedule.peek() >= ends,
            Source::Room(_) => now >= ends,
        };
        (sent && now >= ends && self.outstanding_total == 0)
            || now >= ends.saturating_add(self.plan.patience)
    }

    /// Returns the good replies until now.
    pub fn completed(&self) -> u64 {
        self.samples.completed
    }

    /// Returns the samples. Outstanding commands count as lost.
    pub fn finish(mut self) -> Samples {
        self.samples.lost += self.outstanding_total as u64;
        // Silence to the end of the sending is one, too.
        self.samples.gaps.end_at(self.plan.sending());
        self.samples
    }

    /// Returns whether that moment belongs to the measured time.
    pub fn is_measured(&self, at: Nanos) -> bool {
        let from = self.start.saturating_add(self.plan.warmup);
        (from..from.saturating_add(self.plan.measure)).contains(&at)
    }
}
