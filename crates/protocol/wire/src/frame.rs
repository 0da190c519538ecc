//! All frames between two nodes: the handshake, and the messages after it.

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

/// Maximum length of an address or of the reason for a refusal, in bytes.
pub const TEXT_BYTES_MAX: usize = 1024;
/// Maximum number of bytes of a snapshot in one frame.
pub const SNAPSHOT_PIECE_BYTES_MAX: usize = 256 << 10;
/// Maximum number of bytes of a stream in one frame ([stream-2]).
pub const STREAM_PIECE_BYTES_MAX: usize = 1 << 20;
/// Cluster id in the hello of a node without a cluster. Such a node looks for a cluster before it
/// founds one.
pub const NO_CLUSTER: u128 = 0;

/// Maximum number of nodes in the list with which a cluster is founded.
pub const FOUNDING_MEMBERS_MAX: usize = 64;
/// Maximum number of channels that one peer listens to.
pub const DATAGRAM_CHANNELS_MAX: usize = 16;

/// Purpose of a connection. Bulk repair uses a separate connection, so that protocol messages never
/// queue behind it ([catch-2]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Messages of the protocol. They must not wait for repairs.
    Control,
    /// `Learn`, fetched bytes, snapshots, and other repairs.
    Bulk,
}

impl Lane {
    /// All lanes, in order of [`Lane::index`].
    pub const ALL: [Self; 2] = [Self::Control, Self::Bulk];

    pub const fn index(self) -> usize {
        match self {
            Self::Control => 0,
            Self::Bulk => 1,
        }
    }
}

/// Reason for refusing a connection. Codes of later versions are decoded as [`RefusalCode::Other`].
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
    /// The two nodes were started with different founding lists.
    ListDiffers,
    /// The refusing node is not the founder.
    NotFounder,
    /// The frame is not expected on this connection.
    UnexpectedFrame,
    /// The refusing node does not serve connections yet.
    NotServingYet,
    /// The connecting node was removed from the cluster ([member-1]).
    NodeRemoved,
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
            Self::UnexpectedFrame => 9,
            Self::NotServingYet => 10,
            Self::NodeRemoved => 11,
            Self::Other(number) => number,
        }
    }

    /// Returns the code numbered `number`; [`RefusalCode::Other`] if it is unknown.
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
            9 => Self::UnexpectedFrame,
            10 => Self::NotServingYet,
            11 => Self::NodeRemoved,
            other => Self::Other(other),
        }
    }
}

/// First frame on a connection, in either direction. It describes its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hello<'a> {
    /// Levels that the sender supports ([level-3]). The lowest is also the protocol version of the
    /// hello. Releases that do not know levels read only the version.
    pub levels: Levels,
    /// Id of the cluster, or [`NO_CLUSTER`].
    pub cluster: u128,
    pub from: Member,
    /// Number of the sender's process start.
    pub boot: u32,
    /// Node that the sender expects at the other end.
    pub to: NodeId,
    pub lane: Lane,
    /// The sender's client address.
    pub client: &'a str,
    /// The sender's address for operators.
    pub admin: &'a str,
    /// The sender's address for byte stream clients; empty if it has none.
    pub stream: &'a str,
}

/// Request by a new node for the founding record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Join {
    /// Id with which the new node was started.
    pub node: NodeId,
    /// Number chosen at the node's first start, for recognising retries.
    pub nonce: u64,
    /// Hash of the founding list with which the new node was started.
    pub list_hash: u64,
}

/// Founding record: id, class, store and first members of a cluster ([era-11]).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Founding<'a> {
    pub cluster: u128,
    pub class: Class,
    /// Name of the group's store, as on the command line.
    pub store: &'a str,
    /// First members, with their peer addresses.
    pub members: Vec<(NodeId, &'a str)>,
}

/// Parameters for exchanging datagrams with a node, as sent to one peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Datagrams<'a> {
    /// Number of the node's process start. The node's datagrams contain it.
    pub boot: u32,
    /// Address of the node for datagrams, as `HOST:PORT`; empty if it no longer accepts any.
    pub address: &'a str,
    /// Number of the newest key that the node has; 0 if it has none ([pkt-3]).
    pub key: u8,
    /// Channels to which the peer may listen, at most [`DATAGRAM_CHANNELS_MAX`].
    pub channels: Vec<DatagramChannel>,
}

/// A channel of numbered datagrams from one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DatagramChannel {
    /// Number that identifies the channel.
    pub channel: u8,
    /// The channel's datagrams are addressed to one node only.
    pub is_unicast: bool,
    /// Number of the channel's next datagram.
    pub next: u64,
}

/// A unit of transmission on a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Frame<'a> {
    /// First frame from the connecting node.
    Hello(Hello<'a>),
    /// Response of the accepting node, which describes itself.
    Welcome(Hello<'a>),
    /// Refusal by the accepting node, which then closes the connection. Contains a reason for the
    /// operator.
    Refused(RefusalCode, &'a str),
    /// Request for the founding record, from a node without a cluster to the founder.
    Join(Join),
    /// Response to a `Join`, from the founder.
    Founding(Founding<'a>),
    /// Request by a starting node to a member of its cluster for the state that the starting node
    /// last reported about its log ([lie-3]).
    Recall { cluster: u128, node: NodeId },
    /// The receiver's log and starts, as the sender remembers them; zeros if it remembers nothing.
    /// Sent in response to a `Recall`, and without a request on a new connection to a node whose
    /// state is less advanced ([lie-3], [lie-5]).
    Recalled(Memory),
    /// Parameters with which the sender exchanges datagrams ([pkt-2]).
    Datagrams(Datagrams<'a>),
    /// A message of the Paxos core.
    Protocol {
        message: Message,
        /// Bytes of the value in the message (`Phase2a`, `Learn`); `None` if they are not sent
        /// along.
        bytes: Option<&'a [u8]>,
    },
    /// Request by a follower to the leader to propose a value.
    Forward {
        value: Value,
        /// Bytes of the value; empty for values without bytes.
        bytes: &'a [u8],
    },
    /// Response to a `Forward` whose value was not proposed.
    NotTaken {
        value: Value,
        why: Refusal,
        /// The leader; `None` if the refusing node knows none.
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
        /// Bytes of the value; `None` if the sender does not have them.
        bytes: Option<&'a [u8]>,
    },
    /// Applied state of the sender, for comparison.
    Applied {
        /// The sender has applied everything below this slot.
        to: Slot,
        /// Digest of everything that the sender has applied.
        state_digest: u64,
    },
    /// Request for the snapshot ⟨`at`, `digest`⟩, starting at an offset ([snap-4]).
    SnapshotAsk {
        /// First slot that the snapshot does not cover; slot 0 to query which snapshot is
        /// available.
        at: Slot,
        /// Digest of the snapshot's whole byte stream.
        digest: u128,
        /// The requester already has all bytes below this offset.
        offset: u64,
    },
    /// Description of an available snapshot. Also sent in response to a request for a snapshot that
    /// is not available.
    SnapshotOffer {
        /// First slot that the snapshot does not cover; slot 0 while the first snapshot is being
        /// taken.
        at: Slot,
        /// Digest of the snapshot's whole byte stream.
        digest: u128,
        /// Length of the snapshot's byte stream in bytes.
        bytes: u64,
        /// First slot of the sender's log.
        log_start: Slot,
        /// The snapshot is being sent to another node, so the requester should retry later.
        busy: bool,
    },
    /// A piece of a snapshot. Pieces of different snapshots are never mixed.
    SnapshotPiece {
        /// First slot that the snapshot does not cover.
        at: Slot,
        /// Digest of the snapshot's whole byte stream.
        digest: u128,
        /// Offset of the frame's bytes in the snapshot's byte stream.
        offset: u64,
        /// Bytes of the snapshot, at most [`SNAPSHOT_PIECE_BYTES_MAX`].
        bytes: &'a [u8],
    },
    /// Bytes of a stream, before they are assigned to slots ([stream-3]).
    StreamBytes {
        stream: StreamName,
        /// Position of the first byte in the stream.
        position: u64,
        /// Bytes of the stream, at least one and at most [`STREAM_PIECE_BYTES_MAX`].
        bytes: &'a [u8],
    },
    /// Report that the content of a stream below a position is a no-op in all slots from `from`
    /// onwards, so that its bytes are not needed ([aux-5]).
    Needless {
        stream: StreamName,
        /// Position below which the content is a no-op; `u64::MAX` if the stream is closed.
        below: u64,
        /// First slot to which the report applies.
        from: Slot,
    },
}
