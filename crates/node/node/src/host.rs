//! Host driven by the reactor: a replica and its client protocol, without any sockets.
//!
//! A [`Host`] has three sides, one for each kind of counterpart; each part of the reactor sees only
//! the side that it serves.

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
    Clock, Hops, Ladder, NotRead, Probed, StreamHold,
    backup::{Header, Held, Parts, Unreadable},
    front::{Front, Requests},
    group::asking::{self, Answer, Ask, Members, PeerTable},
    plane::{Plane, Received, Turn},
    pressure::Pressure,
    status::{Addresses, Snapshot, Status, TuningReport},
    tuner::Setting,
};
use quorate_stream::Table;
use quorate_wire::{Join, Lane, RefusalCode};

use crate::{identity::AddressBook, terms::Terms};

/// The clocks of one turn. Read by the reactor only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Monotonic, since the reactor was made; counts while the machine is suspended.
    pub time: Time,
    /// Unix time in milliseconds.
    pub wall_ms: u64,
}

impl Now {
    /// Returns a turn at this moment, which can send to peers.
    pub fn turn(self, plane: &mut dyn Plane) -> Turn<'_> {
        Turn { time: self.time, wall_ms: self.wall_ms, plane }
    }
}

/// A peer that can be talked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerUp {
    /// Who.
    pub member: Member,
    /// Number of its process start.
    pub boot: u32,
    /// Levels that it supports ([level-4]).
    pub levels: Levels,
    /// Addresses that it listens on.
    pub addresses: Addresses,
}

/// The founder's record; the owned form of [`quorate_wire::Founding`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Founded {
    /// The group's id.
    pub cluster: u128,
    /// The group's class.
    pub class: Class,
    /// The group's store, as on the command line.
    pub store: String,
    /// The first members and where they listen for peers.
    pub members: Vec<(NodeId, String)>,
    /// On which terms they founded it.
    pub terms: Terms,
}

/// Information for a node that joins later ([join-2]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charter {
    /// The node that sent it.
    pub node: NodeId,
    /// Founding record of the group, the same for every node.
    pub founded: Founded,
    /// Present nodes and their addresses.
    pub book: AddressBook,
}

/// Why a node may not join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// For programs.
    pub code: RefusalCode,
    /// For people.
    pub reason: String,
}

/// The side of a host that peers see.
pub trait PeerSide {
    /// A peer's control lane is up. Called again, after `peer_down`, when it reconnects.
    fn peer_up(&mut self, now: Now, peer: &PeerUp);

    /// The peer disconnected.
    fn peer_down(&mut self, now: Now, node: NodeId);

    /// More than half of the others say that this node was removed from the cluster: it was absent
    /// when that was decided, and will not learn of it from the log ([member-1]).
    fn told_removed(&mut self, now: Now);

    /// A frame from a peer whose handshake is done.
    fn frame(&mut self, turn: &mut Turn<'_>, lane: Lane, received: Received<'_>);

    /// A node without a cluster asks for the founding record.
    fn admit(&mut self, join: Join) -> Result<Founded, Refused>;

    /// [lie-3] Returns the memory of a node that starts.
    fn recall(&self, node: NodeId) -> Memory;

    /// Returns the levels that this node may speak: none below the level that the group uses, as
    /// far as it has applied that ([level-7]). Asked in each turn.
    fn levels(&self) -> Levels;

    /// Returns the nodes with an id and their addresses, if changed since the last call. Asked in
    /// each turn.
    fn take_table(&mut self) -> Option<PeerTable>;
}

/// The side of a host that clients see: its front.
pub trait ClientSide {
    /// The protocol that the clients speak.
    type Front: Front;

    /// The front, to look at.
    fn front(&self) -> &Self::Front;

    /// The front, for calls that ask nothing of the replica.
    fn front_mut(&mut self) -> &mut Self::Front;

    /// Returns the front, and its access to the replica at this moment.
    fn front_and_requests(&mut self, now: Now) -> (&mut Self::Front, impl Requests);

    /// Returns the pressure of pending client requests. While it is [`Pressure::High`], and until
    /// it is [`Pressure::Low`] again, no client is read.
    fn pressure(&self) -> Pressure;
}

/// Something that an operator wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Try whether a linearizable read is served here now; ends with [`Outcome::Probed`]. One
    /// attempt at a time: ordered again before its end, it is the same attempt.
    Probe,
    /// Hand leadership to this node, or to the most advanced follower; ends with
    /// [`Outcome::Transferred`].
    Transfer(Option<NodeId>),
    /// Take a snapshot at this slot or a later one, or at the applied slot; ends with
    /// [`Outcome::Snapshot`]. Ordered again before its end, it is the same attempt.
    Snapshot(Option<Slot>),
    /// Read all data of this node, to verify it: at most this number of bytes a second. The result
    /// is in the status. Ordered again, the same scrub continues at the new pace.
    Scrub(Option<u64>),
    /// Hold batch and window at these values until then; `None` ends that. Takes effect at once.
    Hold(Option<Setting>, Time),
    /// Ask this of the group; ends with [`Outcome::Group`].
    Group {
        /// A number that was never used before.
        asked: u64,
        /// The question.
        ask: Ask,
        /// A plan is only shown, and nothing is done.
        dry_run: bool,
    },
    /// Read bytes of an inner stream that a backup holds; ends with [`Outcome::Held`].
    Held(Wanted),
}

/// Bytes of an inner stream that a backup wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// A number that was never used before.
    pub asked: u64,
    /// Number of the hold.
    pub hold: u64,
    /// The stream.
    pub stream: StreamName,
    /// Start position.
    pub position: u64,
    /// Maximum number of bytes.
    pub bytes_max: usize,
}

/// Result of an [`Order`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Result of the attempt to read.
    Probed(Probed),
    /// The new leader, or why leadership stayed.
    Transferred(Result<NodeId, Refusal>),
    /// The snapshot that this node has, or why it has none.
    Snapshot(Result<Snapshot, String>),
    /// Result of [`Order::Group`] with this number.
    Group(u64, Result<Answer, asking::Refused>),
    /// Result of [`Order::Held`] with this number.
    Held(u64, Result<Vec<u8>, NotRead>),
}

/// A snapshot of the node's, with the metadata of a backup.
#[derive(Debug)]
pub struct Backup {
    /// The snapshot; its files are kept while this lives.
    pub snapshot: Held,
    /// Founding record of the group, the same for every node.
    pub founded: Founded,
    /// Ids from here on are unassigned.
    pub next_id: u32,
    /// The data folder.
    pub folder: PathBuf,
}

impl Backup {
    /// Returns the header of the backup, and a reader of its files. Bytes of streams are not in it.
    pub fn header(&self) -> Result<(Header, PartFiles), Unreadable> {
        let mut files = PartFiles { folder: self.folder.clone(), open: None };
        let header = Header {
            cluster: self.founded.cluster,
            slot: self.snapshot.at(),
            era: self.snapshot.era(&mut files)?,
            next_id: self.next_id,
            class: self.founded.class,
            store: self.founded.store.clone(),
            bytes: self.snapshot.bytes(),
            digest: self.snapshot.digest(),
            streams: None,
        };
        Ok((header, files))
    }

    /// Returns the header of a backup with the bytes of streams, and their table.
    pub fn header_with_streams(&self) -> Result<(Header, PartFiles, Table), Unreadable> {
        let (mut header, mut files) = self.header()?;
        let table = self.snapshot.streams(&mut files)?;
        let bytes = table.kept_bytes();
        let bytes = bytes.ok_or_else(|| Unreadable::Damaged("its streams are too long".into()))?;
        header.streams = Some(bytes);
        Ok((header, files, table))
    }
}

/// The files of snapshots in a data folder, one of them open.
#[derive(Debug)]
pub struct PartFiles {
    folder: PathBuf,
    open: Option<(FileId, File)>,
}

impl Parts for PartFiles {
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

/// The side of a host that its operators see.
pub trait OperatorSide {
    /// Returns the status of this node.
    fn status(&self) -> Status;

    /// Returns the information that a joining node needs.
    fn charter(&self) -> Charter;

    /// Returns this node's snapshot, for another thread to read; `None` if it has none.
    fn backup(&mut self) -> Option<Backup>;

    /// Keeps all bytes of streams that snapshots from now on refer to, until the hold is dropped;
    /// an earlier hold continues, if it is not over.
    ///
    /// # Errors
    /// The reason why this node does not have them all.
    fn hold_streams(&mut self, now: Now, earlier: Option<StreamHold>)
    -> Result<StreamHold, String>;

    /// Returns batch and window, with the reasons for them.
    fn tuning(&self) -> TuningReport;

    /// Everything about the members, as this node has applied it.
    fn members(&self) -> Members;

    /// Returns the access rights, as this node has applied them; `None`: not known ([access-4]).
    fn users(&self) -> Option<Users>;

    /// Appends the host's metrics in the text format of Prometheus.
    fn metrics(&self, out: &mut String);

    /// Begins an operator's order.
    fn order(&mut self, now: Now, order: Order);

    /// Returns the next outcome of an order; each is returned once.
    fn next_outcome(&mut self) -> Option<Outcome>;
}

/// One replica with its front. All calls are made on the reactor's thread and return without
/// waiting.
///
/// One turn calls, in this order: the sides, for input; `poll`; then the peers' queues are sent;
/// then `submit`; then the clients' output is sent; then `end_turn`. Hence a leader's messages are
/// on their way before its own write begins (design §5).
pub trait Host: PeerSide + ClientSide + OperatorSide {
    /// Collects completions of the log, runs due work, decides on messages.
    fn poll(&mut self, turn: &mut Turn<'_>);

    /// Submits the gathered records to the log.
    fn submit(&mut self, now: Now);

    /// The turn is over, and took until `now`. When `poll` has to be called at the latest; a time
    /// that has passed means at once.
    fn end_turn(&mut self, now: Time) -> Option<Time>;

    /// A clock that shows the time of the turns, to be read within one. Called once, before the
    /// first.
    fn lend_clock(&mut self, clock: Clock) {
        let _ = clock;
    }

    /// Returns the recorder of command hops, if enabled.
    fn hops(&mut self) -> Option<&mut Hops> {
        None
    }

    /// A device that this node owns from now on ([offload-5]).
    fn lend_device(&mut self, devices: Box<dyn Ladder>) {
        let _ = devices;
    }

    /// Descriptors that become readable when the log, or an applying thread, has news. Asked once.
    /// `poll` makes them unreadable again.
    fn wake_fds(&self) -> Vec<BorrowedFd<'_>>;

    /// Accepts nothing new, and finishes everything accepted.
    fn stop(&mut self, now: Now);

    /// Returns whether everything accepted is finished, the log's mark of a clean stop included.
    fn stopped(&self) -> bool;
}
