//! A node as driven by a reactor: a replica and its client protocol, without any sockets.
//!
//! A [`Host`] has three sides, for peers, clients and operators. Each component of the reactor sees
//! only the side that it serves.

use std::{
    fs::File,
    io,
    os::{fd::BorrowedFd, unix::fs::FileExt as _},
    path::PathBuf,
};

use quorate_access::Users;
use quorate_core::{
    effect::Refusal,
    level::Levels,
    node_id::{Member, NodeId},
    record::Class,
    slot::Slot,
    time::Time,
    value::StreamName,
    witness::Memory,
};
use quorate_log::disk::{FileId, Position};
use quorate_replica::{
    Clock, DeviceSource, HopRing, NotRead, ProbeOutcome, StreamHold,
    backup::{BackupHeader, HeldSnapshot, PartReader, SnapshotUnreadable},
    front::{Front, Requests},
    group::asking::{self, GroupAnswer, GroupRequest, MemberList, PeerTable},
    plane::{Plane, ReceivedFrame, Turn},
    pressure::Pressure,
    status::{Addresses, Snapshot, Status, TuningReport},
    tuner::Setting,
};
use quorate_stream::Table;
use quorate_wire::{Join, Lane, RefusalCode};

use crate::{identity::AddressBook, terms::FoundingTerms};

/// The times of one turn. Only the reactor reads them from the clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnTimes {
    /// Monotonic time since the reactor was created. It advances while the machine is suspended.
    pub time: Time,
    /// Wall-clock time, as Unix milliseconds.
    pub wall_ms: u64,
}

impl TurnTimes {
    /// Returns a turn at this time. It can send to peers through `plane`.
    pub fn turn(self, plane: &mut dyn Plane) -> Turn<'_> {
        Turn { time: self.time, wall_ms: self.wall_ms, plane }
    }
}

/// A peer whose handshake is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerUp {
    pub member: Member,
    /// Boot number of the peer's process.
    pub boot: u32,
    /// Feature levels that the peer supports ([level-4]).
    pub levels: Levels,
    /// Addresses on which the peer listens.
    pub addresses: Addresses,
}

/// The founding record; owned form of [`quorate_wire::Founding`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Founded {
    pub cluster: u128,
    pub class: Class,
    /// Store of the group, as named on the command line.
    pub store: String,
    /// The founding members with their peer addresses.
    pub members: Vec<(NodeId, String)>,
    /// Auxiliaries and quorum rule at the founding.
    pub terms: FoundingTerms,
}

/// Data for a node that joins an existing group ([join-2]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinData {
    /// The node that provides the data.
    pub node: NodeId,
    /// Founding record of the group, the same for every node.
    pub founded: Founded,
    /// Addresses of the group's current nodes.
    pub address_book: AddressBook,
}

/// Refusal of a node that requests to join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinRefusal {
    /// Code of the reason, for programs.
    pub code: RefusalCode,
    /// Description of the reason, for people.
    pub reason: String,
}

/// Host interface for the peer connections.
pub trait PeerHost {
    /// Handles a connection of a peer's control lane, again for a reconnection after `peer_down`.
    fn peer_up(&mut self, now: TurnTimes, peer: &PeerUp);

    fn peer_down(&mut self, now: TurnTimes, node: NodeId);

    /// Handles claims by more than half of the peers that this node was removed. It was absent at
    /// that time, and will not learn of the removal from the log ([member-1]).
    fn on_removal_claimed(&mut self, now: TurnTimes);

    /// Handles a frame from a peer whose handshake is complete.
    fn handle_frame(&mut self, turn: &mut Turn<'_>, lane: Lane, received: ReceivedFrame<'_>);

    /// Answers a node without a cluster that requests the founding record.
    fn answer_join(&mut self, join: Join) -> Result<Founded, JoinRefusal>;

    /// [lie-3] Returns this node's memory of a starting node's log.
    fn memory_of(&self, node: NodeId) -> Memory;

    /// Returns the levels that this node may use, all of them at or above the group's level as
    /// applied here ([level-7]). Called in each turn.
    fn levels(&self) -> Levels;

    /// Returns the nodes with an id and their addresses, if changed. Called in each turn.
    fn take_peer_table(&mut self) -> Option<PeerTable>;
}

/// Host interface for the client connections: the front end.
pub trait ClientHost {
    type Front: Front;

    fn front(&self) -> &Self::Front;

    /// Returns the front for calls that need no access to the replica.
    fn front_mut(&mut self) -> &mut Self::Front;

    /// Returns the front with its access to the replica at time `now`.
    fn front_and_requests(&mut self, now: TurnTimes) -> (&mut Self::Front, impl Requests);

    /// Returns the pressure from pending client requests. At [`Pressure::High`] or above, clients
    /// are not read until the pressure falls to [`Pressure::Low`].
    fn pressure(&self) -> Pressure;
}

/// Operator request to this node, started with [`OperatorHost::start_request`].
#[derive(Clone, Debug, PartialEq)]
pub enum OperatorRequest {
    /// Check whether this node can serve a linearizable read now. Ends with
    /// [`OperatorOutcome::Probed`]. A repeated order joins the attempt in progress.
    Probe,
    /// Transfer leadership to this node or the most advanced follower. Ends with
    /// [`OperatorOutcome::Transferred`].
    Transfer(Option<NodeId>),
    /// Take a snapshot at this slot or later, or at the applied slot. Ends with
    /// [`OperatorOutcome::Snapshot`]. A repeated order joins the attempt in progress.
    Snapshot(Option<Slot>),
    /// Read and verify all data of this node, limited to the given number of bytes per second, or
    /// change the rate of the scrub in progress. The result appears in the status.
    Scrub(Option<u64>),
    /// Pin batch size and window to the given values until a point in time, or unpin them.
    FixSetting(Option<Setting>, Time),
    /// Send a request to the group. Ends with [`OperatorOutcome::Group`].
    Group {
        /// Number by which the outcome names the request; never reused.
        request_number: u64,
        request: GroupRequest,
        /// Only return the plan and change nothing.
        dry_run: bool,
    },
    /// Read bytes of an inner stream that are retained for a backup. Ends with
    /// [`OperatorOutcome::HeldStreamRead`].
    ReadHeldStream(HeldStreamRange),
}

/// Range of an inner stream to read for a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldStreamRange {
    /// Number by which the outcome names the request; never reused.
    pub request_number: u64,
    /// Number of the hold that retains the bytes.
    pub hold_number: u64,
    pub stream: StreamName,
    /// Position of the first byte to read.
    pub position: u64,
    pub bytes_max: usize,
}

/// Result of an [`OperatorRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorOutcome {
    /// Result of [`OperatorRequest::Probe`].
    Probed(ProbeOutcome),
    /// The new leader, or why leadership was not transferred.
    Transferred(Result<NodeId, Refusal>),
    /// The snapshot, or why there is none.
    Snapshot(Result<Snapshot, String>),
    /// Result of the [`OperatorRequest::Group`] with this request number.
    Group(u64, Result<GroupAnswer, asking::GroupRefusal>),
    /// Result of the [`OperatorRequest::ReadHeldStream`] with this request number.
    HeldStreamRead(u64, Result<Vec<u8>, NotRead>),
}

/// A snapshot of this node with the metadata that a backup needs.
#[derive(Debug)]
pub struct Backup {
    /// The snapshot. Its files are retained until this value is dropped.
    pub snapshot: HeldSnapshot,
    /// Founding record of the group, the same for every node.
    pub founded: Founded,
    /// Lowest id not yet assigned.
    pub next_id: u32,
    /// Data folder that contains the snapshot's files.
    pub folder: PathBuf,
}

impl Backup {
    /// Returns the header of a backup without stream bytes, and a reader for its files.
    pub fn header(&self) -> Result<(BackupHeader, PartFiles), SnapshotUnreadable> {
        let mut files = PartFiles { folder: self.folder.clone(), open: None };
        let header = BackupHeader {
            cluster: self.founded.cluster,
            slot: self.snapshot.slot(),
            era: self.snapshot.era(&mut files)?,
            next_id: self.next_id,
            class: self.founded.class,
            store: self.founded.store.clone(),
            bytes: self.snapshot.bytes(),
            digest: self.snapshot.digest(),
            stream_bytes: None,
        };
        Ok((header, files))
    }

    /// Returns a backup's header with stream bytes, a reader for its files, and the streams' table.
    pub fn header_with_streams(
        &self,
    ) -> Result<(BackupHeader, PartFiles, Table), SnapshotUnreadable> {
        let (mut header, mut files) = self.header()?;
        let table = self.snapshot.stream_table(&mut files)?;
        let bytes = table.retained_bytes();
        let bytes =
            bytes.ok_or_else(|| SnapshotUnreadable::Damaged("its streams are too long".into()))?;
        header.stream_bytes = Some(bytes);
        Ok((header, files, table))
    }
}

/// Reader for the snapshot files in a data folder. It opens one file at a time.
#[derive(Debug)]
pub struct PartFiles {
    folder: PathBuf,
    open: Option<(FileId, File)>,
}

impl PartReader for PartFiles {
    fn read(&mut self, at: Position, buffer: &mut [u8]) -> io::Result<()> {
        let file = match self.open.take() {
            Some((id, file)) if id == at.file => file,
            _ => {
                let folder = self.folder.join(at.file.family.folder());
                File::open(folder.join(at.file.name()))?
            }
        };
        file.read_exact_at(buffer, at.offset)?;
        self.open = Some((at.file, file));
        Ok(())
    }
}

/// Host interface for operators.
pub trait OperatorHost {
    fn status(&self) -> Status;

    /// Returns the data that a joining node needs.
    fn join_data(&self) -> JoinData;

    /// Returns this node's snapshot for another thread to read, if there is one.
    fn backup(&mut self) -> Option<Backup>;

    /// Retains all stream bytes that future snapshots refer to, until the hold is dropped. An
    /// earlier hold is continued if it is still valid.
    ///
    /// # Errors
    ///
    /// Fails with the reason if this node does not have all of the bytes.
    fn hold_streams(
        &mut self,
        now: TurnTimes,
        earlier: Option<StreamHold>,
    ) -> Result<StreamHold, String>;

    /// Returns the current batch size and window, with the reasons.
    fn tuning_report(&self) -> TuningReport;

    /// Returns the group's member table as applied here.
    fn members(&self) -> MemberList;

    /// Returns the users and rights as applied here; `None` while not known ([access-4]).
    fn users(&self) -> Option<Users>;

    /// Appends the host's metrics in the Prometheus text format.
    fn metrics(&self, out: &mut String);

    /// Starts an operator's request. [`Self::next_outcome`] returns its outcome later.
    fn start_request(&mut self, now: TurnTimes, order: OperatorRequest);

    /// Returns the next outcome of an operator's request. Each outcome is returned once.
    fn next_outcome(&mut self) -> Option<OperatorOutcome>;
}

/// One replica with its front. All calls are made on the reactor's thread and do not block.
///
/// A turn proceeds in this order: calls to the sides with input, `poll`, sending of the peers'
/// queues, `submit_records`, sending of the clients' output, `end_turn`. Hence a leader's messages
/// are in flight before its own log write begins (design §5).
pub trait Host: PeerHost + ClientHost + OperatorHost {
    /// Collects completed log writes, runs due work, and decides which messages to send.
    fn poll(&mut self, turn: &mut Turn<'_>);

    /// Submits the log records collected in this turn to the disk.
    fn submit_records(&mut self, now: TurnTimes);

    /// Ends the turn that lasted until `now`. Returns the time by which `poll` must be called
    /// again. A past time means at once.
    fn end_turn(&mut self, now: Time) -> Option<Time>;

    /// Sets the clock to read within a turn. Called once, before the first turn.
    fn set_clock(&mut self, clock: Clock) {
        let _ = clock;
    }

    /// Returns the recorder of the trace points of commands; `None` if stamping is disabled.
    fn hops(&mut self) -> Option<&mut HopRing> {
        None
    }

    /// Attaches the source of the devices that this node owns from now on ([offload-5]).
    fn set_device_source(&mut self, devices: Box<dyn DeviceSource>) {
        let _ = devices;
    }

    /// Returns the descriptors that become readable when the log or an applying thread has
    /// completed work. Called once. `poll` clears their readiness.
    fn wake_fds(&self) -> Vec<BorrowedFd<'_>>;

    /// Stops accepting requests. Requests already accepted are completed.
    fn stop(&mut self, now: TurnTimes);

    /// Returns whether all accepted requests are finished and the log is marked as cleanly stopped.
    fn is_stopped(&self) -> bool;
}
