//! Interface of other threads to the reactor.

use std::{
    fmt,
    net::SocketAddr,
    sync::{Arc, mpsc::SyncSender},
    time::Duration,
};

use quorate_access::Users;
use quorate_core::{effect::Refusal, node_id::NodeId, slot::Slot, value::StreamName};
use quorate_replica::{
    NotRead, Probed, StreamHold,
    group::asking::{Answer, Ask, Members, Refused},
    status::{Snapshot, Status, TuningReport},
    tuner::Setting,
};

pub use crate::mailbox::Unanswered;
use crate::{
    host::{Backup, Charter},
    mailbox::Mailbox,
    plane::KeyFile,
    stats::Stats,
};

/// Time limit of an answer.
const ANSWER_WAIT: Duration = Duration::from_secs(2);
/// Time limit of a probe; the replica gives up earlier.
const PROBE_WAIT: Duration = Duration::from_secs(8);
/// Time limit of a transfer; the core gives up earlier.
const TRANSFER_WAIT: Duration = Duration::from_secs(10);

/// Time limit of a read of held bytes of a stream.
pub(crate) const HELD_WAIT: Duration = Duration::from_secs(10);

/// Time limit of one request for a snapshot: it may take much longer, and the request is then
/// repeated.
pub(crate) const SNAPSHOT_WAIT: Duration = Duration::from_secs(5);

/// Time limit of a request to the group; the replica gives up earlier, unless its clients have more
/// time than this.
pub(crate) const GROUP_WAIT: Duration = Duration::from_secs(10);

/// Talks to a running reactor from any thread.
#[derive(Clone, Debug)]
pub struct Handle {
    shared: Arc<Shared>,
}

/// Why leadership was not handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferError {
    /// Nothing was tried, or the outcome is not known.
    Unanswered(Unanswered),
    /// The transfer was not accepted, or failed.
    Refused(Refusal),
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unanswered(unanswered) => unanswered.fmt(f),
            Self::Refused(Refusal::NotLeader) => f.write_str("this node does not lead"),
            Self::Refused(Refusal::Transferring) => {
                f.write_str("leadership is already being handed over")
            }
            Self::Refused(Refusal::NoTarget) => f.write_str("no such follower"),
            Self::Refused(Refusal::TimedOut) => {
                f.write_str("the target did not catch up in time; this node keeps leading")
            }
            Self::Refused(Refusal::Busy | Refusal::InvalidChange | Refusal::NotHeld) => {
                f.write_str("the transfer was refused")
            }
        }
    }
}

impl std::error::Error for TransferError {}

/// Why there is no snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotError {
    /// The snapshot is in progress, or its state is unknown.
    Unanswered(Unanswered),
    /// The snapshot was not begun or failed, with the reason.
    Failed(String),
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unanswered(unanswered) => unanswered.fmt(f),
            Self::Failed(why) => write!(f, "no snapshot was taken: {why}"),
        }
    }
}

impl std::error::Error for SnapshotError {}

/// Why nothing came of something that was asked of the group, as far as is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupError {
    /// The request was not accepted, or the outcome is unknown.
    Unanswered(Unanswered),
    /// The group refused the request.
    Refused(Refused),
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unanswered(unanswered) => unanswered.fmt(f),
            Self::Refused(refused) => f.write_str(&refused.message),
        }
    }
}

impl std::error::Error for GroupError {}

/// Why bytes of a stream were not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldError {
    /// The question was not taken, or not answered.
    Unanswered(Unanswered),
    /// The bytes cannot be read.
    NotRead(NotRead),
}

/// Counters of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// By the reactor.
    pub stats: Stats,
    /// Everything, in the text format of Prometheus.
    pub text: String,
}

/// Requests to the reactor's thread, each with the channel of its answer.
#[derive(Debug)]
pub(crate) enum Command {
    Ask(Question),
    Probe(SyncSender<Result<Probed, Unanswered>>),
    Transfer(Option<NodeId>, SyncSender<Result<NodeId, Refusal>>),
    Snapshot(Option<Slot>, SyncSender<Result<Snapshot, SnapshotError>>),
    /// A scrub at this pace; answered as [`Question::Status`].
    Scrub(Option<u64>, SyncSender<Status>),
    /// This node's snapshot, to be read by who asked.
    Backup(SyncSender<Option<Backup>>),
    /// Bytes of streams are to stay until that is dropped.
    HoldStreams(Option<StreamHold>, SyncSender<Result<StreamHold, String>>),
    /// At most this many bytes of an inner stream, from a position on, that this hold holds.
    Held(u64, (StreamName, u64, usize), SyncSender<Result<Vec<u8>, HeldError>>),
    /// Holds a setting for a number of milliseconds; answered as [`Question::Tuning`].
    Hold(Option<Setting>, u64, SyncSender<TuningReport>),
    /// Something asked of the group, and whether a plan is only to be shown.
    Group(Ask, bool, SyncSender<Result<Answer, GroupError>>),
}

/// Questions answered at the end of a turn.
#[derive(Debug)]
pub(crate) enum Question {
    Status(SyncSender<Status>),
    Metrics(SyncSender<Metrics>),
    Tuning(SyncSender<TuningReport>),
    Members(SyncSender<Members>),
    Charter(SyncSender<Charter>),
    Users(SyncSender<Option<Users>>),
}

/// Messages without an answer.
#[derive(Debug)]
pub(crate) enum News {
    /// A name was looked up. At most one look-up per peer runs, so these are bounded.
    Resolved(Resolved),
    /// The file with the keys of datagrams has changed. It is edited by hand.
    Keys(KeyFile),
}

/// The end of a look-up of a name.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) node: NodeId,
    pub(crate) name: String,
    pub(crate) addresses: Result<Vec<SocketAddr>, String>,
}

/// State shared by both sides.
pub(crate) type Shared = Mailbox<Command, News>;

impl Handle {
    pub(crate) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Returns the node's status.
    pub fn status(&self) -> Result<Status, Unanswered> {
        self.ask(ANSWER_WAIT, |reply| Command::Ask(Question::Status(reply)))
    }

    /// Tries whether a linearizable read is served there now.
    pub fn probe(&self) -> Result<Probed, Unanswered> {
        self.ask(PROBE_WAIT, Command::Probe)?
    }

    /// Returns the node's counters.
    pub fn metrics(&self) -> Result<Metrics, Unanswered> {
        self.ask(ANSWER_WAIT, |reply| Command::Ask(Question::Metrics(reply)))
    }

    /// Returns the batch and the window in use, with the reasons.
    pub fn tuning(&self) -> Result<TuningReport, Unanswered> {
        self.ask(ANSWER_WAIT, |reply| Command::Ask(Question::Tuning(reply)))
    }

    /// Pins batch and window to `setting` for `ms` milliseconds; `None` returns them to the tuner.
    pub fn hold(&self, setting: Option<Setting>, ms: u64) -> Result<TuningReport, Unanswered> {
        self.ask(ANSWER_WAIT, |reply| Command::Hold(setting, ms, reply))
    }

    /// Hands leadership to this node, or to the most advanced follower; names the new leader.
    pub fn transfer(&self, to: Option<NodeId>) -> Result<NodeId, TransferError> {
        self.ask(TRANSFER_WAIT, |reply| Command::Transfer(to, reply))
            .map_err(TransferError::Unanswered)?
            .map_err(TransferError::Refused)
    }

    /// Takes a snapshot at this slot or after it, or at what is applied now. A repeated request for
    /// the same slot, made because the first outlasted its time limit, gets the same snapshot.
    pub fn snapshot(&self, at: Option<Slot>) -> Result<Snapshot, SnapshotError> {
        self.ask(SNAPSHOT_WAIT, |reply| Command::Snapshot(at, reply))
            .map_err(SnapshotError::Unanswered)?
    }

    /// Begins to read all data of the node, with this limit of bytes per second, to check that it
    /// is sound; a scrub in progress continues at that pace. The result is in the node's status.
    pub fn scrub(&self, bytes_per_second: Option<u64>) -> Result<Status, Unanswered> {
        self.ask(ANSWER_WAIT, |reply| Command::Scrub(bytes_per_second, reply))
    }

    /// This node's snapshot, to be read at leisure; `None` if it has none.
    pub fn backup(&self) -> Result<Option<Backup>, Unanswered> {
        self.ask(ANSWER_WAIT, Command::Backup)
    }

    /// Keeps all bytes of streams that snapshots from now on refer to, until the hold is dropped;
    /// an earlier hold goes on, if it is not over. The inner error says why this node does not have
    /// them all.
    pub fn hold_streams(
        &self,
        earlier: Option<StreamHold>,
    ) -> Result<Result<StreamHold, String>, Unanswered> {
        self.ask(ANSWER_WAIT, |reply| Command::HoldStreams(earlier, reply))
    }

    /// Reads at most this many bytes of an inner stream, from this position on, that this hold
    /// holds.
    pub fn held(
        &self,
        hold: &StreamHold,
        stream: StreamName,
        position: u64,
        bytes_max: usize,
    ) -> Result<Vec<u8>, HeldError> {
        let wanted = (stream, position, bytes_max);
        self.ask(HELD_WAIT, |reply| Command::Held(hold.id, wanted, reply))
            .map_err(HeldError::Unanswered)?
    }

    /// Returns all information about the members, as the node has applied it.
    pub fn members(&self) -> Result<Members, Unanswered> {
        self.ask(ANSWER_WAIT, |reply| Command::Ask(Question::Members(reply)))
    }

    /// Returns what a joining node has to know.
    pub fn charter(&self) -> Result<Charter, Unanswered> {
        self.ask(ANSWER_WAIT, |reply| Command::Ask(Question::Charter(reply)))
    }

    /// Returns the users and their rights, as the node has applied them; `None` if it does not know
    /// them ([access-4]).
    pub fn users(&self) -> Result<Option<Users>, Unanswered> {
        self.ask(ANSWER_WAIT, |reply| Command::Ask(Question::Users(reply)))
    }

    /// Asks this of the group. With `dry_run` a plan is only shown, and nothing is done.
    pub fn group(&self, ask: Ask, dry_run: bool) -> Result<Answer, GroupError> {
        self.ask(GROUP_WAIT, |reply| Command::Group(ask, dry_run, reply))
            .map_err(GroupError::Unanswered)?
    }

    /// Announces that the file with the keys of datagrams has changed: a new key is accepted at
    /// once, and used for sending when every peer has it ([pkt-3]).
    pub fn rekey(&self, file: KeyFile) {
        self.shared.tell(News::Keys(file));
    }

    /// Asks the reactor to finish what was accepted and to stop. Returns at once.
    pub fn stop(&self) {
        self.shared.stop();
    }

    fn ask<T>(
        &self,
        wait: Duration,
        command: impl FnOnce(SyncSender<T>) -> Command,
    ) -> Result<T, Unanswered> {
        self.shared.ask(wait, command)
    }
}
