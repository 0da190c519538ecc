//! Everything that travels between two nodes: what is said, and what a handshake says.

use alloc::vec::Vec;

use quorate_core::{
    effect::Refusal,
    level::Levels,
    message::Message,
    node_id::{Member, NodeId},
    record::Class,
    slot::Slot,
    value::{StreamName, Value},
    witness::Memory,
};

/// Longest address or reason, in bytes.
pub const TEXT_BYTES_MAX: usize = 1024;
/// Most bytes of a snapshot in one frame.
pub const SNAPSHOT_PIECE_BYTES_MAX: usize = 256 << 10;
/// Most bytes of a stream in one frame ([stream-2]).
pub const STREAM_PIECE_BYTES_MAX: usize = 1 << 20;
/// The cluster of a node that has none, in a hello: it asks whether there is one before it founds
/// one.
pub const NO_CLUSTER: u128 = 0;

/// Most nodes in a founding list.
pub const FOUNDING_MEMBERS_MAX: usize = 64;
/// Most channels that one peer listens to.
pub const DATAGRAM_CHANNELS_MAX: usize = 16;

/// Which of a peer's connections: bulk repair never queues in front of the protocol ([catch-2]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// The protocol.
    Control,
    /// `Learn`, fetched bytes, snapshots, whatever else repairs.
    Bulk,
}

impl Lane {
    /// All lanes, in order of [`Lane::index`].
    pub const ALL: [Self; 2] = [Self::Control, Self::Bulk];

    /// Position in arrays of lanes.
    pub const fn index(self) -> usize {
        match self {
            Self::Control => 0,
            Self::Bulk => 1,
        }
    }
}

/// Why a node does not talk to another. A reader of a later code sees [`RefusalCode::Other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusalCode {
    /// Another cluster id.
    ForeignCluster,
    /// A protocol version that the refuser does not speak.
    Version,
    /// The dialler's id is not among the nodes that the refuser knows.
    UnknownNode,
    /// The dialler expected another node at this address.
    WrongNode,
    /// Another running process has this node id.
    DuplicateNode,
    /// The refuser does not belong to a cluster yet.
    NotFounded,
    /// The founding lists differ.
    ListDiffers,
    /// The refuser is not the founder.
    NotFounder,
    /// The frame was not expected here.
    Unexpected,
    /// The refuser does not serve yet.
    Starting,
    /// The dialler was removed from the cluster ([member-1]).
    Removed,
    /// Something that this version has no word for.
    Other(u32),
}

impl RefusalCode {
    /// As it travels.
    pub const fn number(self) -> u32 {
        match self {
            Self::ForeignCluster => 1,
            Self::Version => 2,
            Self::UnknownNode => 3,
            Self::WrongNode => 4,
            Self::DuplicateNode => 5,
            Self::NotFounded => 6,
            Self::ListDiffers => 7,
            Self::NotFounder => 8,
            Self::Unexpected => 9,
            Self::Starting => 10,
            Self::Removed => 11,
            Self::Other(number) => number,
        }
    }

    /// The reverse.
    pub const fn from_number(number: u32) -> Self {
        match number {
            1 => Self::ForeignCluster,
            2 => Self::Version,
            3 => Self::UnknownNode,
            4 => Self::WrongNode,
            5 => Self::DuplicateNode,
            6 => Self::NotFounded,
            7 => Self::ListDiffers,
            8 => Self::NotFounder,
            9 => Self::Unexpected,
            10 => Self::Starting,
            11 => Self::Removed,
            other => Self::Other(other),
        }
    }
}

/// First frame of a connection, from either side. Its sender is the frame's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hello<'a> {
    /// Levels that the sender supports ([level-3]). The lowest is the version that the hello names,
    /// and all that a release before levels reads of it.
    pub levels: Levels,
    /// The group, or [`NO_CLUSTER`].
    pub cluster: u128,
    /// The speaker.
    pub from: Member,
    /// The speaker's process start.
    pub boot: u32,
    /// The node that the sender expects at the other end.
    pub to: NodeId,
    /// Purpose of the connection.
    pub lane: Lane,
    /// The sender's address for clients.
    pub client: &'a str,
    /// The sender's address for operators.
    pub admin: &'a str,
    /// The sender's address for clients of byte streams; empty if it has none.
    pub stream: &'a str,
}

/// "I am new; what was founded?"
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Join {
    /// The id that the new node was started with.
    pub node: NodeId,
    /// Chosen at its first start; makes a retry recognisable.
    pub nonce: u64,
    /// Hash of the list of nodes that it was started with.
    pub list_hash: u64,
}

/// Founding record: id, class, store and first members of the cluster ([era-11]).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Founding<'a> {
    /// The group's id.
    pub cluster: u128,
    /// The group's class.
    pub class: Class,
    /// The group's store, as on the command line.
    pub store: &'a str,
    /// The first members and where they listen for peers.
    pub members: Vec<(NodeId, &'a str)>,
}

/// A node's introduction of its datagrams to one peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Datagrams<'a> {
    /// Its process start, which its datagrams name.
    pub boot: u32,
    /// Its address for datagrams, `HOST:PORT`; empty: it takes none any more.
    pub address: &'a str,
    /// Number of the newest key that it holds; 0: it has none ([pkt-3]).
    pub key: u8,
    /// Channels that the peer may listen to; at most [`DATAGRAM_CHANNELS_MAX`].
    pub channels: Vec<DatagramChannel>,
}

/// A channel of numbered datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DatagramChannel {
    /// Its number.
    pub channel: u8,
    /// Its datagrams are for one node.
    pub to_one: bool,
    /// The number of its next datagram.
    pub next: u64,
}

/// One unit on a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Frame<'a> {
    /// The dialler's first frame.
    Hello(Hello<'a>),
    /// The acceptor's answer: about itself.
    Welcome(Hello<'a>),
    /// The other answer; the connection is closed behind it.
    Refused(RefusalCode, &'a str),
    /// A node without a cluster asks the founder.
    Join(Join),
    /// The founder's answer.
    Founding(Founding<'a>),
    /// A node that starts asks a member of its cluster what it said of its log before ([lie-3]).
    Recall {
        /// The cluster.
        cluster: u128,
        /// The node that asks.
        node: NodeId,
    },
    /// The receiver's log and starts, as the sender remembers them; zeros if it remembers nothing.
    /// The answer to that question; and unasked, over a new connection and to a node that has less
    /// ([lie-3], [lie-5]).
    Recalled(Memory),
    /// Where and how a peer is heard by datagrams, said by its connection ([pkt-2]).
    Datagrams(Datagrams<'a>),
    /// A message of the protocol.
    Protocol {
        /// The core's message.
        message: Message,
        /// Bytes of the value that the message speaks of (`Phase2a`, `Learn`), if they travel
        /// along.
        bytes: Option<&'a [u8]>,
    },
    /// Follower to leader: please propose this.
    Forward {
        /// The value.
        value: Value,
        /// Its bytes; empty for values without.
        bytes: &'a [u8],
    },
    /// The answer if it was not proposed.
    NotTaken {
        /// Which.
        value: Value,
        /// Why.
        why: Refusal,
        /// The leader, as far as the refuser knows.
        leader: Option<NodeId>,
    },
    /// Please send the bytes of this value.
    FetchRequest {
        value: Value,
        /// A slot that it was proposed in.
        slot: Slot,
    },
    /// Here they are, or not.
    FetchReply {
        value: Value,
        /// `None`: not here.
        bytes: Option<&'a [u8]>,
    },
    /// Applied state of the sender, for comparison.
    Applied {
        /// The sender has applied everything below this slot.
        to: Slot,
        /// The digest of what it has applied.
        digest: u64,
    },
    /// Please send the snapshot ⟨`at`, `digest`⟩ from this offset on ([snap-4]).
    SnapshotAsk {
        /// The first slot that it does not cover; slot 0: which one is there?
        at: Slot,
        /// Digest of its whole stream of bytes.
        digest: u128,
        /// Bytes below are there already.
        offset: u64,
    },
    /// This snapshot is here; also the answer to a question for another.
    SnapshotOffer {
        /// The first slot that it does not cover; slot 0: there is none yet, one is being made.
        at: Slot,
        /// Digest of its whole stream of bytes.
        digest: u128,
        /// Length of the stream.
        bytes: u64,
        /// Start of the sender's log.
        log_start: Slot,
        /// It is being sent to another node: ask again later.
        busy: bool,
    },
    /// A part of a snapshot. Parts of two are never mixed.
    SnapshotPiece {
        /// The first slot that the snapshot does not cover.
        at: Slot,
        /// Digest of its whole stream of bytes.
        digest: u128,
        /// Offset of these bytes in the stream.
        offset: u64,
        /// At most [`SNAPSHOT_PIECE_BYTES_MAX`].
        bytes: &'a [u8],
    },
    /// Bytes of a stream, whichever slots they will get ([stream-3]).
    StreamBytes {
        /// Whose.
        stream: StreamName,
        /// Position of the first byte.
        position: u64,
        /// At most [`STREAM_PIECE_BYTES_MAX`], at least one.
        bytes: &'a [u8],
    },
    /// Content of this stream below a position is a no-op in all slots from one on: its bytes are
    /// not needed ([aux-5]).
    Needless {
        /// Whose.
        stream: StreamName,
        /// Positions below are meant; all of them, if it is the largest number: the stream is
        /// closed.
        below: u64,
        /// Nothing is said of the slots before this one.
        from: Slot,
    },
}
