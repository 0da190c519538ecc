//! Handle through which other threads reach the reactor.

use std::{
    fmt,
    net::SocketAddr,
    sync::{Arc, mpsc::SyncSender},
    time::Duration,
};

use quorate_access::Users;
use quorate_core::{effect::Refusal, node_id::NodeId, slot::Slot, value::StreamName};
use quorate_replica::{
    NotRead, ProbeOutcome, StreamHold,
    group::asking::{GroupAnswer, GroupRefusal, GroupRequest, MemberList},
    status::{Snapshot, Status, TuningReport},
    tuner::Setting,
};

pub use crate::mailbox::Unanswered;
use crate::{
    host::{Backup, JoinData},
    mailbox::Mailbox,
    plane::KeyFile,
    stats::Stats,
};

/// Timeout for a request that the reactor answers within one turn.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout for a probe. The replica gives up earlier.
const PROBE_TIMEOUT: Duration = Duration::from_secs(8);
/// Timeout for a leadership transfer. The core gives up earlier.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout for a read of stream bytes under a hold.
pub(crate) const HELD_READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout for one request for a snapshot. A snapshot may take much longer, in which case the
/// caller repeats the request.
pub(crate) const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout for a group request. The replica gives up earlier, unless configured to wait longer.
pub(crate) const GROUP_TIMEOUT: Duration = Duration::from_secs(10);

/// Handle to a running reactor, usable from any thread.
#[derive(Clone, Debug)]
pub struct Handle {
    mailbox: Arc<ReactorMailbox>,
}

/// Reason why leadership was not transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferError {
    /// No transfer was attempted, or its outcome is unknown.
    Unanswered(Unanswered),
    /// The transfer was refused, or it failed after it had started.
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
            Self::Refused(Refusal::InvalidTarget) => f.write_str("no such follower"),
            Self::Refused(Refusal::TimedOut) => {
                f.write_str("the target did not catch up in time; this node keeps leading")
            }
            Self::Refused(Refusal::Busy | Refusal::InvalidChange | Refusal::SlotsNotHeld) => {
                f.write_str("the transfer was refused")
            }
        }
    }
}

impl std::error::Error for TransferError {}

/// Reason why no snapshot was returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotError {
    /// The snapshot is still in progress, or its state is unknown.
    Unanswered(Unanswered),
    /// The snapshot failed or was not started, for this reason.
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

/// Reason why a request to the group has no known result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupError {
    /// The request was not accepted, or its outcome is unknown.
    Unanswered(Unanswered),
    /// The group refused the request or could not carry it out.
    Refused(GroupRefusal),
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

/// Reason why stream bytes under a hold were not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldReadError {
    /// The request was not accepted or not answered.
    Unanswered(Unanswered),
    /// The bytes are not available on this node.
    NotRead(NotRead),
}

/// Counters of a node, as plain numbers and as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// Counters of the reactor alone.
    pub stats: Stats,
    /// All counters of the node, in the Prometheus text format.
    pub text: String,
}

/// Requests to the reactor thread, each with the channel for its result.
#[derive(Debug)]
pub(crate) enum Command {
    Ask(Question),
    Probe(SyncSender<Result<ProbeOutcome, Unanswered>>),
    Transfer(Option<NodeId>, SyncSender<Result<NodeId, Refusal>>),
    Snapshot(Option<Slot>, SyncSender<Result<Snapshot, SnapshotError>>),
    /// Start a scrub, limited to a number of bytes per second. Answered like [`Question::Status`].
    Scrub(Option<u64>, SyncSender<Status>),
    /// Return this node's snapshot, for the caller to read.
    Backup(SyncSender<Option<Backup>>),
    /// Retain bytes of streams until the returned hold is dropped.
    HoldStreams(Option<StreamHold>, SyncSender<Result<StreamHold, String>>),
    /// Read an inner stream under the numbered hold, from a position and up to a number of bytes.
    ReadHeldStream(u64, (StreamName, u64, usize), SyncSender<Result<Vec<u8>, HeldReadError>>),
    /// Pin a setting for a number of milliseconds. Answered like [`Question::Tuning`].
    FixSetting(Option<Setting>, u64, SyncSender<TuningReport>),
    /// Send a request to the group. The flag requests only a plan.
    Group(GroupRequest, bool, SyncSender<Result<GroupAnswer, GroupError>>),
}

/// Questions that the reactor answers at the end of a turn, each with the channel for its answer.
#[derive(Debug)]
pub(crate) enum Question {
    Status(SyncSender<Status>),
    Metrics(SyncSender<Metrics>),
    Tuning(SyncSender<TuningReport>),
    Members(SyncSender<MemberList>),
    Charter(SyncSender<JoinData>),
    Users(SyncSender<Option<Users>>),
}

/// Messages to the reactor that have no response.
#[derive(Debug)]
pub(crate) enum Notification {
    /// Result of a name look-up. At most one look-up per peer runs, which bounds these messages.
    Resolved(Resolved),
    /// New contents of the file with the datagram keys. Operators edit the file by hand.
    Keys(KeyFile),
}

/// Result of looking up the addresses of a host name.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) node: NodeId,
    pub(crate) name: String,
    pub(crate) addresses: Result<Vec<SocketAddr>, String>,
}

/// State shared by the handles and the reactor.
pub(crate) type ReactorMailbox = Mailbox<Command, Notification>;

impl Handle {
    pub(crate) const fn new(shared: Arc<ReactorMailbox>) -> Self {
        Self { mailbox: shared }
    }

    /// Returns the node's status at the end of a turn.
    pub fn status(&self) -> Result<Status, Unanswered> {
        self.ask_reactor(ANSWER_TIMEOUT, |reply| Command::Ask(Question::Status(reply)))
    }

    /// Checks whether the node can serve a linearizable read now.
    pub fn probe(&self) -> Result<ProbeOutcome, Unanswered> {
        self.ask_reactor(PROBE_TIMEOUT, Command::Probe)?
    }

    pub fn metrics(&self) -> Result<Metrics, Unanswered> {
        self.ask_reactor(ANSWER_TIMEOUT, |reply| Command::Ask(Question::Metrics(reply)))
    }

    /// Returns the batch size and the window in use, with the reasons.
    pub fn tuning(&self) -> Result<TuningReport, Unanswered> {
        self.ask_reactor(ANSWER_TIMEOUT, |reply| Command::Ask(Question::Tuning(reply)))
    }

    /// Pins batch size and window to `setting` for `ms` milliseconds; `None` unpins them.
    pub fn fix_setting(
        &self,
        setting: Option<Setting>,
        ms: u64,
    ) -> Result<TuningReport, Unanswered> {
        self.ask_reactor(ANSWER_TIMEOUT, |reply| Command::FixSetting(setting, ms, reply))
    }

    /// Transfers leadership to `to`, or to the most advanced follower. Returns the new leader.
    pub fn transfer(&self, to: Option<NodeId>) -> Result<NodeId, TransferError> {
        self.ask_reactor(TRANSFER_TIMEOUT, |reply| Command::Transfer(to, reply))
            .map_err(TransferError::Unanswered)?
            .map_err(TransferError::Refused)
    }

    /// Takes a snapshot at slot `at` or later, or at the last applied slot if `at` is `None`. If a
    /// request timed out, repeating it with the same slot returns the same snapshot.
    pub fn snapshot(&self, at: Option<Slot>) -> Result<Snapshot, SnapshotError> {
        self.ask_reactor(SNAPSHOT_TIMEOUT, |reply| Command::Snapshot(at, reply))
            .map_err(SnapshotError::Unanswered)?
    }

    /// Starts a scrub of all data at no more than `bytes_per_second`, or changes the rate of the
    /// scrub in progress. The result appears in the node's status.
    pub fn scrub(&self, bytes_per_second: Option<u64>) -> Result<Status, Unanswered> {
        self.ask_reactor(ANSWER_TIMEOUT, |reply| Command::Scrub(bytes_per_second, reply))
    }

    /// Returns this node's snapshot, if it has one, for the caller to read at any pace.
    pub fn backup(&self) -> Result<Option<Backup>, Unanswered> {
        self.ask_reactor(ANSWER_TIMEOUT, Command::Backup)
    }

    /// Retains all stream bytes that future snapshots refer to, until the hold is dropped.
    /// Continues an earlier hold if it is still in place. The inner error states why bytes are
    /// missing.
    pub fn hold_streams(
        &self,
        earlier: Option<StreamHold>,
    ) -> Result<Result<StreamHold, String>, Unanswered> {
        self.ask_reactor(ANSWER_TIMEOUT, |reply| Command::HoldStreams(earlier, reply))
    }

    /// Reads at most `bytes_max` bytes of an inner stream, starting at the given position. The
    /// bytes must be retained by the given hold.
    pub fn read_held_stream(
        &self,
        hold: &StreamHold,
        stream: StreamName,
        position: u64,
        bytes_max: usize,
    ) -> Result<Vec<u8>, HeldReadError> {
        let wanted = (stream, position, bytes_max);
        self.ask_reactor(HELD_READ_TIMEOUT, |reply| Command::ReadHeldStream(hold.id, wanted, reply))
            .map_err(HeldReadError::Unanswered)?
    }

    /// Returns the group's member table, as applied on this node.
    pub fn members(&self) -> Result<MemberList, Unanswered> {
        self.ask_reactor(ANSWER_TIMEOUT, |reply| Command::Ask(Question::Members(reply)))
    }

    /// Returns the founding data that a joining node needs.
    pub fn charter(&self) -> Result<JoinData, Unanswered> {
        self.ask_reactor(ANSWER_TIMEOUT, |reply| Command::Ask(Question::Charter(reply)))
    }

    /// Returns the users and their rights, as applied on this node; `None` if this node does not
    /// know them yet ([access-4]).
    pub fn users(&self) -> Result<Option<Users>, Unanswered> {
        self.ask_reactor(ANSWER_TIMEOUT, |reply| Command::Ask(Question::Users(reply)))
    }

    /// Sends a request to the group. With `dry_run`, returns the plan and changes nothing.
    pub fn ask_group(&self, ask: GroupRequest, dry_run: bool) -> Result<GroupAnswer, GroupError> {
        self.ask_reactor(GROUP_TIMEOUT, |reply| Command::Group(ask, dry_run, reply))
            .map_err(GroupError::Unanswered)?
    }

    /// Announces a new version of the file with the datagram keys. A new key is accepted at once,
    /// but used for sending only once every peer has it ([pkt-3]).
    pub fn announce_keys(&self, file: KeyFile) {
        self.mailbox.send_notification(Notification::Keys(file));
    }

    /// Tells the reactor to finish accepted work and stop. Does not wait for either.
    pub fn stop(&self) {
        self.mailbox.stop();
    }

    fn ask_reactor<T>(
        &self,
        wait: Duration,
        command: impl FnOnce(SyncSender<T>) -> Command,
    ) -> Result<T, Unanswered> {
        self.mailbox.send_question(wait, command)
    }
}
