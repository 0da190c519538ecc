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
    schedule::{Nanos, SendSchedule},
};

/// Delay in nanoseconds after which a command counts as sent late.
pub const LATE_AFTER: Nanos = 1_000_000;
/// Share of late commands above which a row is invalid, because the generator and not the system
/// was too slow.
pub const LATE_SHARE_MAX: f64 = 0.01;
/// Maximum number of outstanding commands in an open loop. Further commands wait and become late.
const OUTSTANDING_MAX: usize = 1 << 20;

/// Load offered to the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferedLoad {
    /// Open loop: a fixed number of commands per second, regardless of their replies.
    Open { per_second: u64 },
    /// Closed loop: a fixed number of outstanding commands.
    Closed { outstanding: u32 },
}

/// Load and durations of one repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadPlan {
    pub offer: OfferedLoad,
    /// Number of connections, at least one.
    pub connections: u32,
    /// Time before the measurement, in nanoseconds.
    pub warmup_ns: Nanos,
    /// Measured time after the warm-up, in nanoseconds.
    pub measure_ns: Nanos,
    /// Maximum time to wait for replies after the last command was sent, in nanoseconds.
    pub reply_timeout_ns: Nanos,
}

impl LoadPlan {
    /// Returns the number of connections in use. A closed loop uses at most one per outstanding
    /// command.
    pub fn connections_used(&self) -> usize {
        let wanted = match self.offer {
            OfferedLoad::Open { .. } => self.connections,
            OfferedLoad::Closed { outstanding } => self.connections.min(outstanding),
        };
        usize::try_from(wanted.max(1)).expect("a count of sockets fits")
    }

    /// Returns the time for which commands are sent: the warm-up and the measured time, in
    /// nanoseconds.
    pub fn sending_ns(&self) -> Nanos {
        self.warmup_ns.saturating_add(self.measure_ns)
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
pub enum CommandOutcome<'a> {
    Done,
    /// Any other outcome, with the error message of the system.
    Error(&'a [u8]),
}

/// Origin of the next command.
#[derive(Clone, Debug)]
enum CommandSource {
    Rate {
        schedule: SendSchedule,
        next_connection: usize,
    },
    /// Indices of the connections that can accept another command, one entry per command.
    FreeConnections(VecDeque<usize>),
}

#[derive(Clone, Debug)]
pub struct LoadDriver {
    plan: LoadPlan,
    start: Nanos,
    source: CommandSource,
    /// Times from which latencies are measured, per connection, oldest first. Replies arrive in
    /// order.
    outstanding_since: Vec<VecDeque<Nanos>>,
    outstanding_count: usize,
    closed_connections: Vec<bool>,
    issued_count: u64,
    is_stopped: bool,
    samples: Samples,
}

impl LoadDriver {
    /// Returns the load of a repetition that starts now.
    pub fn new(plan: LoadPlan, now: Nanos) -> Self {
        let connections = plan.connections_used();
        let source = match plan.offer {
            OfferedLoad::Open { per_second } => CommandSource::Rate {
                schedule: SendSchedule::new(now, per_second),
                next_connection: 0,
            },
            OfferedLoad::Closed { outstanding } => {
                let outstanding = usize::try_from(outstanding).expect("a count fits");
                CommandSource::FreeConnections(
                    (0..outstanding).map(|slot| slot % connections).collect(),
                )
            }
        };
        let samples = Samples { measured_ns: plan.measure_ns, ..Samples::default() };
        Self {
            plan,
            start: now,
            source,
            outstanding_since: vec![VecDeque::new(); connections],
            outstanding_count: 0,
            closed_connections: vec![false; connections],
            issued_count: 0,
            is_stopped: false,
            samples,
        }
    }

    /// Returns the next command that is due. The caller repeats the call until it returns `None`.
    pub fn take_due_command(&mut self, now: Nanos) -> Option<DueCommand> {
        loop {
            let (connection, begins) = self.next_due(now)?;
            let number = self.issued_count;
            self.issued_count += 1;
            self.count_sent(begins, now);
            if self.closed_connections[connection] {
                // An open loop continues, so commands that can no longer be sent are lost.
                self.samples.lost += 1;
                continue;
            }
            self.outstanding_since[connection].push_back(begins);
            self.outstanding_count += 1;
            return Some(DueCommand { connection, number });
        }
    }

    /// Returns the connection of the next command that is due, and the time from which its latency
    /// is measured.
    fn next_due(&mut self, now: Nanos) -> Option<(usize, Nanos)> {
        if self.is_stopped {
            return None;
        }
        let ends = self.start.saturating_add(self.plan.sending_ns());
        match &mut self.source {
            CommandSource::Rate { schedule, next_connection: turn } => {
                if self.outstanding_count >= OUTSTANDING_MAX || schedule.next_time() >= ends {
                    return None;
                }
                let intended = schedule.take_due(now)?;
                let connection = *turn;
                *turn = (*turn + 1) % self.outstanding_since.len();
                Some((connection, intended))
            }
            CommandSource::FreeConnections(_) if now >= ends => None,
            CommandSource::FreeConnections(room) => Some((room.pop_front()?, now)),
        }
    }

    fn count_sent(&mut self, begins: Nanos, now: Nanos) {
        if !self.is_measured(begins) {
            return;
        }
        let lateness = now.saturating_sub(begins);
        self.samples.sent_count += 1;
        self.samples.late_count += u64::from(lateness > LATE_AFTER);
        self.samples.worst_lateness = self.samples.worst_lateness.max(lateness);
    }

    /// Returns the time at which the result of [`LoadDriver::take_due_command`] or
    /// [`LoadDriver::is_over`] may change without a reply.
    pub fn next_wakeup(&self) -> Nanos {
        let ends = self.start.saturating_add(self.plan.sending_ns());
        let patience = ends.saturating_add(self.plan.reply_timeout_ns);
        match &self.source {
            CommandSource::Rate { schedule, .. }
                if !self.is_stopped && schedule.next_time() < ends =>
            {
                // At the limit, only a reply allows another command.
                if self.outstanding_count >= OUTSTANDING_MAX {
                    patience
                } else {
                    schedule.next_time()
                }
            }
            CommandSource::Rate { .. } | CommandSource::FreeConnections(_) => patience,
        }
    }

    /// Handles the reply to a connection's oldest outstanding command.
    pub fn handle_reply(&mut self, now: Nanos, connection: usize, answer: CommandOutcome<'_>) {
        let Some(begins) = self.outstanding_since[connection].pop_front() else {
            // A reply without a request is a fault of the system.
            self.samples.error(b"an unrequested reply");
            return;
        };
        self.outstanding_count -= 1;
        let since_start = now.saturating_sub(self.start);
        match answer {
            CommandOutcome::Done => self.samples.count_reply_at(since_start),
            CommandOutcome::Error(text) => self.samples.error(text),
        }
        if self.is_measured(begins) {
            self.samples.latencies.record(now.saturating_sub(begins));
        }
        let done = matches!(answer, CommandOutcome::Done);
        self.samples.completed += u64::from(done && self.is_measured(now));
        if let CommandSource::FreeConnections(room) = &mut self.source {
            room.push_back(connection);
        }
    }

    /// Handles the loss of a connection. Its outstanding commands are lost.
    pub fn handle_connection_loss(&mut self, connection: usize, why: &str) {
        if std::mem::replace(&mut self.closed_connections[connection], true) {
            return;
        }
        let lost = self.outstanding_since[connection].len();
        self.outstanding_since[connection].clear();
        self.outstanding_count -= lost;
        self.samples.lost += lost as u64;
        if self.samples.first_error.is_none() {
            self.samples.first_error = Some(why.to_owned());
        }
        if let CommandSource::FreeConnections(room) = &mut self.source {
            room.retain(|slot| *slot != connection);
        }
    }

    /// Stops sending, including commands that were due earlier. Used for loads that a system may
    /// delay beyond the measured time.
    pub fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// Returns whether the repetition is over: all commands have been sent and all replies have
    /// arrived, the wait for replies has ended, or all connections are lost.
    pub fn is_over(&self, now: Nanos) -> bool {
        let ends = self.start.saturating_add(self.plan.sending_ns());
        if self.closed_connections.iter().all(|gone| *gone) {
            return true;
        }
        let sent = match &self.source {
            CommandSource::Rate { schedule, .. } => self.is_stopped || schedule.next_time() >= ends,
            CommandSource::FreeConnections(_) => now >= ends,
        };
        (sent && now >= ends && self.outstanding_count == 0)
            || now >= ends.saturating_add(self.plan.reply_timeout_ns)
    }

    /// Returns the current number of successful replies within the measured time.
    pub fn completed(&self) -> u64 {
        self.samples.completed
    }

    /// Counts outstanding commands as lost and returns the samples.
    pub fn finish(mut self) -> Samples {
        self.samples.lost += self.outstanding_count as u64;
        // A time without replies at the end of sending is also a gap.
        self.samples.gaps.end_gap_at(self.plan.sending_ns());
        self.samples
    }

    /// Returns whether the time `at` is part of the measurement.
    pub fn is_measured(&self, at: Nanos) -> bool {
        let from = self.start.saturating_add(self.plan.warmup_ns);
        (from..from.saturating_add(self.plan.measure_ns)).contains(&at)
    }
}
