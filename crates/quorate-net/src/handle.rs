//! How other threads talk to the reactor: a bounded queue and a descriptor that wakes it.

use std::{
    collections::VecDeque,
    fmt, io,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{RecvTimeoutError, SyncSender, sync_channel},
    },
    time::Duration,
};

use quorate_core::{effect::Refusal, node_id::NodeId};
use quorate_replica::{
    Probed,
    status::{Status, TuningReport},
    tuner::Setting,
};
use rustix::event::EventfdFlags;

use crate::{stats::Stats, tcp::resolve::Resolved};

/// How long an answer may take.
const ANSWER_WAIT: Duration = Duration::from_secs(2);
/// How long a probe may take; the replica gives up before.
const PROBE_WAIT: Duration = Duration::from_secs(8);
/// How long a transfer may take; the core gives up before.
const TRANSFER_WAIT: Duration = Duration::from_secs(10);

/// Talks to a running reactor from any thread.
#[derive(Clone, Debug)]
pub struct Handle {
    shared: Arc<Shared>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The reactor has stopped.
    Stopped,
    /// Too many questions are waiting.
    Busy,
    /// It did not answer in time.
    TimedOut,
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stopped => "the node has stopped",
            Self::Busy => "the node is busy; try again",
            Self::TimedOut => "the node did not answer in time",
        })
    }
}

impl std::error::Error for Unanswered {}

/// Why leadership was not handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferError {
    /// Nothing was tried, or the outcome is not known.
    Unanswered(Unanswered),
    /// It was not taken, or failed.
    Refused(Refusal),
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unanswered(unanswered) => unanswered.fmt(f),
            Self::Refused(Refusal::NotLeader) => f.write_str("this node does not lead"),
            Self::Refused(Refusal::Transferring) => {
                f.write_str("leadership is being handed over already")
            }
            Self::Refused(Refusal::NoTarget) => f.write_str("no such follower"),
            Self::Refused(Refusal::TimedOut) => {
                f.write_str("the target did not get level in time; this node goes on leading")
            }
            Self::Refused(Refusal::Busy | Refusal::InvalidChange) => {
                f.write_str("the transfer was refused")
            }
        }
    }
}

impl std::error::Error for TransferError {}

/// What is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// By the reactor.
    pub stats: Stats,
    /// Everything, in the text format of Prometheus.
    pub text: String,
}

/// A question to the reactor's thread.
#[derive(Debug)]
pub(crate) enum Command {
    Status(SyncSender<Status>),
    Probe(SyncSender<Result<Probed, Unanswered>>),
    Metrics(SyncSender<Metrics>),
    Transfer(Option<NodeId>, SyncSender<Result<NodeId, Refusal>>),
    Tuning(SyncSender<TuningReport>),
    Hold(Option<Setting>, u64, SyncSender<TuningReport>),
}

/// What both sides see.
#[derive(Debug)]
pub(crate) struct Shared {
    wake: OwnedFd,
    commands_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    commands: VecDeque<Command>,
    resolved: Vec<Resolved>,
    stop: bool,
    ended: bool,
}

/// What has gathered for the reactor.
pub(crate) struct Mail {
    pub(crate) commands: VecDeque<Command>,
    pub(crate) resolved: Vec<Resolved>,
    pub(crate) stop: bool,
}

impl Shared {
    pub(crate) fn new(commands_max: usize) -> io::Result<Arc<Self>> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = rustix::event::eventfd(0, flags)?;
        Ok(Arc::new(Self {
            wake,
            commands_max,
            state: Mutex::default(),
        }))
    }

    pub(crate) fn wake_fd(&self) -> &OwnedFd {
        &self.wake
    }

    /// A panic elsewhere cannot leave this state half changed: each change is one assignment.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Full counters and a closed descriptor both mean that the reactor needs no waking.
    fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Takes everything, and makes the descriptor unreadable.
    pub(crate) fn take(&self) -> Mail {
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        let mut state = self.state();
        Mail {
            commands: std::mem::take(&mut state.commands),
            resolved: std::mem::take(&mut state.resolved),
            stop: state.stop,
        }
    }

    /// A peer's name was looked up. At most one look-up per peer runs, so this is bounded.
    pub(crate) fn resolved(&self, resolved: Resolved) {
        let mut state = self.state();
        if !state.ended {
            state.resolved.push(resolved);
        }
        drop(state);
        self.wake();
    }

    /// No answer will come any more: askers hear that at once, for their channels are dropped.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.ended = true;
        state.commands.clear();
        state.resolved.clear();
    }
}

impl Handle {
    pub(crate) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// What the node says about itself.
    pub fn status(&self) -> Result<Status, Unanswered> {
        self.ask(ANSWER_WAIT, Command::Status)
    }

    /// Tries whether a linearizable read is served there now.
    pub fn probe(&self) -> Result<Probed, Unanswered> {
        self.ask(PROBE_WAIT, Command::Probe)?
    }

    /// What it has counted.
    pub fn metrics(&self) -> Result<Metrics, Unanswered> {
        self.ask(ANSWER_WAIT, Command::Metrics)
    }

    /// What batch and window are, and why.
    pub fn tuning(&self) -> Result<TuningReport, Unanswered> {
        self.ask(ANSWER_WAIT, Command::Tuning)
    }

    /// Holds batch and window at these values for so many milliseconds, or lets them go again.
    pub fn hold(&self, setting: Option<Setting>, ms: u64) -> Result<TuningReport, Unanswered> {
        self.ask(ANSWER_WAIT, |reply| Command::Hold(setting, ms, reply))
    }

    /// Hands leadership to this node, or to the most advanced follower; names the new leader.
    pub fn transfer(&self, to: Option<NodeId>) -> Result<NodeId, TransferError> {
        self.ask(TRANSFER_WAIT, |reply| Command::Transfer(to, reply))
            .map_err(TransferError::Unanswered)?
            .map_err(TransferError::Refused)
    }

    /// Asks the reactor to finish what was accepted and to stop. Returns at once.
    pub fn stop(&self) {
        self.shared.state().stop = true;
        self.shared.wake();
    }

    fn ask<T>(
        &self,
        wait: Duration,
        command: impl FnOnce(SyncSender<T>) -> Command,
    ) -> Result<T, Unanswered> {
        // Room for the answer, so that the reactor never waits for an asker.
        let (reply, answer) = sync_channel(1);
        let mut state = self.shared.state();
        if state.ended {
            return Err(Unanswered::Stopped);
        }
        if state.commands.len() >= self.shared.commands_max {
            return Err(Unanswered::Busy);
        }
        state.commands.push_back(command(reply));
        drop(state);
        self.shared.wake();
        answer.recv_timeout(wait).map_err(|error| match error {
            RecvTimeoutError::Timeout => Unanswered::TimedOut,
            RecvTimeoutError::Disconnected => Unanswered::Stopped,
        })
    }
}
