//! Load generator without sockets. It decides when commands are due and interprets replies.
//!
//! Time is an argument, so tests run it in virtual time. An **open loop** sends at a fixed rate and
//! measures latency from the time at which a command was *meant* to be sent: a system that stalls
//! is charged for every command due during the stall, not only for those outstanding (coordinated
//! omission). A **closed loop** keeps a number of commands outstanding and sends the next one when
//! a reply arrives; its latency starts when the command is sent.

use std::collections::VecDeque;

use crate::{
    samples::Samples,
    schedule::{Nanos, Schedule},
};

/// Delay in nanoseconds after which a command counts as sent late.
pub const LATE: Nanos = 1_000_000;
/// Share of late commands above which a row is invalid, because the generator and not the system
/// was too slow.
pub const LATE_SHARE_MAX: f64 = 0.01;
/// Maximum number of outstanding commands in an open loop. Further commands wait and become late.
const OUTSTANDING_MAX: usize = 1 << 20;

/// Load offered to the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Open loop: a fixed number of commands per second, regardless of their replies.
    Open { per_second: u64 },
    /// Closed loop: a fixed number of outstanding commands.
    Closed { outstanding: u32 },
}

/// Load and durations of one repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub offer: Offer,
    /// Number of connections, at least one.
    pub connections: u32,
    /// Time before the measurement, in nanoseconds.
    pub warmup: Nanos,
    /// Measured time after the warm-up, in nanoseconds.
    pub measure: Nanos,
    /// Maximum time to wait for replies after the last command was sent, in nanoseconds.
    pub reply_timeout: Nanos,
}

impl Plan {
    /// Returns the number of connections in use. A closed loop uses at most one per outstanding
    /// command.
    pub fn connections_used(&self) -> usize {
        let wanted = match self.offer {
            Offer::Open { .. } => self.connections,
            Offer::Closed { outstanding } => self.connections.min(outstanding),
        };
        usize::try_from(wanted.max(1)).expect("a count of sockets fits")
    }

    /// Returns the time for which commands are sent: the warm-up and the measured time, in
    /// nanoseconds.
    pub fn sending(&self) -> Nanos {
        self.warmup.saturating_add(self.measure)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueCommand {
    pub connection: usize,
    /// Number of the command within the repetition.
    pub number: u64,
}

/// Outcome of a command as stated in its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    Done,
    /// Any other outcome, with the error message of the system.
    Error(&'a [u8]),
}

/// Origin of the next command.
#[derive(Clone, Debug)]
enum Source {
    Rate {
        schedule: Schedule,
        next_connection: usize,
    },
    /// Indices of the connections that can accept another command, one entry per command.
    Room(VecDeque<usize>),
}

#[derive(Clone, Debug)]
pub struct Load {
    plan: Plan,
    start: Nanos,
    source: Source,
    /// Times from which latencies are measured, per connection, oldest first. Replies arrive in
    /// order.
    outstanding: Vec<VecDeque<Nanos>>,
    outstanding_total: usize,
    closed_connections: Vec<bool>,
    issued: u64,
    stopped: bool,
    samples: Samples,
}

impl Load {
    /// Returns the load of a repetition that starts now.
    pub fn new(plan: Plan, now: Nanos) -> Self {
        let connections = plan.connections_used();
        let source = match plan.offer {
            Offer::Open { per_second } => {
                Source::Rate { schedule: Schedule::new(now, per_second), next_connection: 0 }
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
            closed_connections: vec![false; connections],
            issued: 0,
            stopped: false,
            samples,
        }
    }

    /// Returns the next command that is due. The caller repeats the call until it returns `None`.
    pub fn take_due_command(&mut self, now: Nanos) -> Option<DueCommand> {
        loop {
            let (connection, begins) = self.next_due(now)?;
            let number = self.issued;
            self.issued += 1;
            self.count_sending(begins, now);
            if self.closed_connections[connection] {
                // An open loop continues, so commands that can no longer be sent are lost.
                self.samples.lost += 1;
                continue;
            }
            self.outstanding[connection].push_back(begins);
            self.outstanding_total += 1;
            return Some(DueCommand { connection, number });
        }
    }

    /// Returns the connection of the next command that is due, and the time from which its latency
    /// is measured.
    fn next_due(&mut self, now: Nanos) -> Option<(usize, Nanos)> {
        if self.stopped {
            return None;
        }
        let ends = self.start.saturating_add(self.plan.sending());
        match &mut self.source {
            Source::Rate { schedule, next_connection: turn } => {
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

    /// Returns the time at which the result of [`Load::take_due_command`] or [`Load::is_over`] may
    /// change without a reply.
    pub fn next_wakeup(&self) -> Nanos {
        let ends = self.start.saturating_add(self.plan.sending());
        let patience = ends.saturating_add(self.plan.reply_timeout);
        match &self.source {
            Source::Rate { schedule, .. } if !self.stopped && schedule.peek() < ends => {
                // At the limit, only a reply allows another command.
                if self.outstanding_total >= OUTSTANDING_MAX { patience } else { schedule.peek() }
            }
            Source::Rate { .. } | Source::Room(_) => patience,
        }
    }

    /// Handles the reply to a connection's oldest outstanding command.
    pub fn replied(&mut self, now: Nanos, connection: usize, answer: Answer<'_>) {
        let Some(begins) = self.outstanding[connection].pop_front() else {
            // A reply without a request is a fault of the system.
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

    /// Handles the loss of a connection. Its outstanding commands are lost.
    pub fn lost(&mut self, connection: usize, why: &str) {
        if std::mem::replace(&mut self.closed_connections[connection], true) {
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

    /// Stops sending, including commands that were due earlier. Used for loads that a system may
    /// delay beyond the measured time.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Returns whether the repetition is over: all commands have been sent and all replies have
    /// arrived, the wait for replies has ended, or all connections are lost.
    pub fn is_over(&self, now: Nanos) -> bool {
        let ends = self.start.saturating_add(self.plan.sending());
        if self.closed_connections.iter().all(|gone| *gone) {
            return true;
        }
        let sent = match &self.source {
            Source::Rate { schedule, .. } => self.stopped || schedule.peek() >= ends,
            Source::Room(_) => now >= ends,
        };
        (sent && now >= ends && self.outstanding_total == 0)
            || now >= ends.saturating_add(self.plan.reply_timeout)
    }

    /// Returns the current number of successful replies within the measured time.
    pub fn completed(&self) -> u64 {
        self.samples.completed
    }

    /// Counts outstanding commands as lost and returns the samples.
    pub fn finish(mut self) -> Samples {
        self.samples.lost += self.outstanding_total as u64;
        // A time without replies at the end of sending is also a gap.
        self.samples.gaps.end_at(self.plan.sending());
        self.samples
    }

    /// Returns whether the time `at` is part of the measurement.
    pub fn is_measured(&self, at: Nanos) -> bool {
        let from = self.start.saturating_add(self.plan.warmup);
        (from..from.saturating_add(self.plan.measure)).contains(&at)
    }
}
