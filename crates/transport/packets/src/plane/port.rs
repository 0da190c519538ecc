//! Settings of a packet plane, and the data exchanged with its driver.

use quorate_core::node_id::{Member, NodeId};

use crate::endpoint::{self, Destination};

/// Number of the channel to the group, if there is one. Channels to single nodes have higher
/// numbers.
pub(crate) const GROUP_CHANNEL: u8 = 1;

/// Path of frames for all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupPath {
    /// Frames are sent to each node separately.
    Unicast,
    /// Frames are sent to a multicast address.
    Multicast,
    /// Frames are forwarded from node to node along a chain ([chain-1]).
    Chain,
}

pub struct Settings {
    pub endpoint: endpoint::Settings,
    /// Initial path of frames for all nodes.
    pub initial_group_path: GroupPath,
    /// Set if the path may change with the traffic. Frames are then sent over connections unless
    /// another path is cheaper ([plane-3]).
    pub is_adaptive: bool,
    /// Source of nonces for probes, which other parties must not be able to guess ([pkt-2]).
    pub next_nonce: Box<dyn FnMut() -> u64 + Send>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A frame was received.
    Frame {
        /// Sender according to the tag. The frame must name the same node.
        from: Member,
        bytes: Vec<u8>,
    },
    /// Packets reach a node and return from it.
    Up {
        node: NodeId,
        /// Set if the path by multicast is up, not only that to the node's own address.
        is_by_group: bool,
        /// Round trip of a probe, in microseconds.
        rtt_us: u64,
    },
    /// Packets no longer reach the node.
    Down {
        node: NodeId,
        /// Set if only the path by multicast is down. The path to the node's own address may be up.
        is_by_group: bool,
    },
}

/// Datagrams to send in one system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutgoingRun<'a> {
    pub destination: Destination,
    /// The datagrams, back to back. All have the same length except the last, which may be shorter.
    pub bytes: &'a [u8],
    /// Length of each datagram except the last.
    pub segment_bytes: usize,
}

/// Outcome of sending an [`OutgoingRun`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    All,
    /// Some datagrams were dropped for lack of space. They count as lost, and the rate must drop
    /// ([rate-2]).
    Dropped,
    /// The socket is full after the given number of datagrams. The rest was not sent and must wait.
    Blocked(usize),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of frames sent once to all nodes that receive multicast.
    pub frames_to_group: u64,
    /// Number of frames sent to one node.
    pub frames_to_one: u64,
    /// Number of frames refused because a channel had no space.
    pub frames_without_space: u64,
    /// Number of frames received completely.
    pub frames_received: u64,
    /// Number of datagrams that were given up.
    pub datagrams_given_up: u64,
    /// Number of datagrams forwarded along the chains of other nodes.
    pub datagrams_forwarded: u64,
    /// Number of changes to the path of frames for several nodes ([plane-3]).
    pub path_changes: u64,
}
