//! All frames between two nodes: the handshake and the messages after it.

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

/// Maximum length of an address or a reason, in bytes.
pub const TEXT_BYTES_MAX: usize = 1024;
/// Maximum number of bytes of a snapshot in one frame.
pub const SNAPSHOT_PIECE_BYTES_MAX: usize = 256 << 10;
/// Maximum number of bytes of a stream in one frame ([stream-2]).
pub const STREAM_PIECE_BYTES_MAX: usize = 1 << 20;
/// Cluster id in the hello of a node without a cluster; it looks for one before it founds one.
pub const NO_CLUSTER: u128 = 0;

/// Maximum number of nodes in a founding list.
pub const FOUNDING_MEMBERS_MAX: usize = 64;
/// Maximum number of channels that one peer listens to.
pub const DATAGRAM_CHANNELS_MAX: usize = 16;

/// A connection's purpose. Bulk repair uses a separate one, so that the protocol never queues
/// behind it ([catch-2]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// The protocol.
    Control,
    /// `Learn`, fetched bytes, snapshots, and other repairs.
    Bulk,
}

impl Lane {
    /// All lanes, in order of [`Lane::index`].
    pub const ALL: [Self; 2] = [Self::Control, Self::Bulk];

    /// Returns the position in arrays of lanes.
    pub const fn index(self) -> usize {
        match self {
            Self::Control => 0,
            Self::Bulk => 1,
        }
    }
}

/// Reason why a node refuses a connection. Later codes are decoded as [`RefusalCode::Other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusalCode {
    /// The peer has another cluster id.
    ForeignCluster,
    /// The refusing node does not support the protocol version.
    Version,
    /// The refusing node does not know the connecting node's id.
    UnknownNode,
    /// The connecting node expected another node at this address.
    WrongNode,
    /// Another running process has the connecting node's id.
    DuplicateNode,
    /// The refusing node does not belong to a cluster yet.
    NotFounded,
    /// The founding lists differ.
    ListDiffers,
    /// The refusing node is not the founder.
    NotFounder,
    /// The frame is not expected on this connection.
    Unexpected,
    /// The refusing node does not serve yet.
    Starting,
    /// The connecting node was removed from the cluster ([member-1]).
    Removed,
    /// A reason that this version does not know.
    Other(u32),
}

impl RefusalCode {
    /// Returns the number used in frames.
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

    /// Returns the code with this number.
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

/// First frame of a connection, from either side. The frame's sender is the node that the hello
/// describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hello<'a> {
    /// Levels that the sender supports ([level-3]). The lowest is the protocol version of the
    /// hello, the only one that releases before levels read.
    pub levels: Levels,
    /// The cluster's id, or [`NO_CLUSTER`].
    pub cluster: u128,
    pub from: Member,
    /// Number of the sender's process start.
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

/// Request of a new node for the founding record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Join {
    /// The id with which the new node was started.
    pub node: NodeId,
    /// Chosen at the node's first start, to recognise retries.
    pub nonce: u64,
    /// Hash of the list of nodes with which the new node was started.
    pub list_hash: u64,
}

/// Founding record: id, class, store and first members of the cluster ([era-11]).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Founding<'a> {
    /// The cluster's id.
    pub cluster: u128,
    /// The group's durability class.
    pub class: Class,
    /// Name of the group's store, as on the command line.
    pub store: &'a str,
    /// The first members, with their addresses for peers.
    pub members: Vec<(NodeId, &'a str)>,
}

/// Parameters for exchanging datagrams with a node, as sent to one peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Datagrams<'a> {
    /// Number of the node's process start, which its datagrams contain.
    pub boot: u32,
    /// The node's address for datagrams, `HOST:PORT`; empty if it no longer accepts any.
    pub address: &'a str,
    /// Number of the newest key that the node has; 0 if it has none ([pkt-3]).
    pub key: u8,
    /// Channels that the peer may listen to; at most [`DATAGRAM_CHANNELS_MAX`].
    pub channels: Vec<DatagramChannel>,
}

/// A channel of numbered datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DatagramChannel {
    /// Number of the channel.
    pub channel: u8,
    /// The channel's datagrams are for one node only.
    pub to_one: bool,
    /// Number of the channel's next datagram.
    pub next: u64,
}

/// A unit of transmission on a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Frame<'a> {
    /// First frame of the connecting node.
    Hello(Hello<'a>),
    /// Response of the accepting node, which describes itself.
    Welcome(Hello<'a>),
    /// Refusal by the accepting node, which then closes the connection.
    Refused(RefusalCode, &'a str),
    /// Request of a node without a cluster to the founder.
    Join(Join),
    /// Response of the founder.
    Founding(Founding<'a>),
    /// Request of a starting node to a member of its cluster: what did I report about my log before
    /// ([lie-3])?
    Recall {
        /// The cluster's id.
        cluster: u128,
        /// The node that starts.
        node: NodeId,
    },
    /// The receiver's log and starts, as remembered by the sender; zeros if it remembers nothing.
    /// Response to a `Recall`, and also sent unsolicited on a new connection to a node that has
    /// less ([lie-3], [lie-5]).
    Recalled(Memory),
    /// Datagram parameters of the sender ([pkt-2]).
    Datagrams(Datagrams<'a>),
    /// A message of the protocol.
    Protocol {
        message: Message,
        /// Bytes of the value in the message (`Phase2a`, `Learn`), if they are sent along.
        bytes: Option<&'a [u8]>,
    },
    /// Request of a follower to the leader to propose a value.
    Forward {
        value: Value,
        /// The value's bytes; empty for values without bytes.
        bytes: &'a [u8],
    },
    /// Response to a `Forward` if the value was not proposed.
    NotTaken {
        value: Value,
        why: Refusal,
        /// The leader, as far as the refusing node knows.
        leader: Option<NodeId>,
    },
    /// Request for the bytes of a value.
    FetchRequest {
        value: Value,
        /// A slot in which the value was proposed.
        slot: Slot,
    },
    /// Response to a `FetchRequest`.
    FetchReply {
        value: Value,
        /// `None` if the sender does not have the bytes.
        bytes: Option<&'a [u8]>,
    },
    /// Applied state of the sender, for comparison.
    Applied {
        /// The sender has applied everything below this slot.
        to: Slot,
        /// Digest of what the sender has applied.
        digest: u64,
    },
    /// Request for the snapshot ⟨`at`, `digest`⟩ from an offset on ([snap-4]).
    SnapshotAsk {
        /// The first slot that the snapshot does not cover; slot 0 to ask which one is available.
        at: Slot,
        /// Digest of the snapshot's whole byte stream.
        digest: u128,
        /// The requester already has the bytes below.
        offset: u64,
    },
    /// Description of an available snapshot; also the response to a request for another one.
    SnapshotOffer {
        /// The first slot that the snapshot does not cover; slot 0 while the first one is being
        /// taken.
        at: Slot,
        /// Digest of the snapshot's whole byte stream.
        digest: u128,
        /// Length of the snapshot's byte stream.
        bytes: u64,
        /// Start of the sender's log.
        log_start: Slot,
        /// The snapshot is being sent to another node, so the request should be repeated later.
        busy: bool,
    },
    /// A part of a snapshot. Parts of different snapshots are never mixed.
    SnapshotPiece {
        /// The first slot that the snapshot does not cover.
        at: Slot,
        /// Digest of the snapshot's whole byte stream.
        digest: u128,
        /// Offset of these bytes in the snapshot's byte stream.
        offset: u64,
        /// At most [`SNAPSHOT_PIECE_BYTES_MAX`] bytes.
        bytes: &'a [u8],
    },
    /// Bytes of a stream, before they are assigned to slots ([stream-3]).
    StreamBytes {
        stream: StreamName,
        /// Position of the first byte.
        position: u64,
        /// At least one byte, at most [`STREAM_PIECE_BYTES_MAX`].
        bytes: &'a [u8],
    },
    /// Report that a stream's content below a position is a no-op in all slots from `from` on, so
    /// that its bytes are not needed ([aux-5]).
    Needless {
        stream: StreamName,
        /// End of the positions concerned; the maximum number if the stream is closed.
        below: u64,
        /// The first slot to which the report applies.
        from: Slot,
    },
}
