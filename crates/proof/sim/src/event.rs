//! Events of a run, and the queue of future events.

use std::collections::BTreeMap;

use quorate_core::time::Time;
use quorate_replica::{front::ConnectionId, stream_front::StreamTag, testing::DeliveredEvent};

use crate::{
    front::StreamRequest,
    network::Link,
    workload::frame_client::{Answer as DeskAnswer, FrameRequest as DeskAsk},
};

/// Event that happens at a scheduled time.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A node runs a turn.
    Turn {
        node: usize,
        life: u64,
    },
    /// A fragment of a byte stream between two nodes may have arrived.
    Piece(Link),
    /// A datagram arrives at a node, addressed to the node or to the multicast group.
    Datagram {
        from: usize,
        to: usize,
        by_group: bool,
        bytes: Vec<u8>,
    },
    /// Two nodes try to connect.
    Dial(usize, usize),
    /// A node disconnects a removed peer.
    Part {
        node: usize,
        peer: usize,
    },
    /// A node notices a broken connection.
    Down {
        node: usize,
        life: u64,
        peer: usize,
        connection: u64,
    },
    /// A disk operation is complete.
    Disk {
        node: usize,
        life: u64,
        operation: u64,
    },
    Start(usize),
    /// A paused process resumes.
    Resume {
        node: usize,
        life: u64,
    },
    /// Bytes from a client reach a node.
    ToNode {
        node: usize,
        life: u64,
        connection: ConnectionId,
        bytes: Vec<u8>,
    },
    /// Bytes from a node reach a client.
    ToClient {
        client: usize,
        connection: ConnectionId,
        bytes: Vec<u8>,
    },
    /// A client notices that its connection is broken.
    ClientDown {
        client: usize,
        connection: ConnectionId,
    },
    /// A client sends its next request, or times out.
    Client(usize),
    /// A stream client's request reaches a node.
    ToStreams {
        node: usize,
        life: u64,
        connection: ConnectionId,
        tag: StreamTag,
        ask: StreamRequest,
    },
    /// A device client takes its next step.
    FrameClient(usize),
    /// A request from a device client reaches a node.
    ToDesk {
        node: usize,
        life: u64,
        client: usize,
        ask: DeskAsk,
    },
    /// A node's answer reaches a device client.
    FromDesk {
        client: usize,
        desk: (usize, u64),
        answer: DeskAnswer,
    },
    /// A reply reaches a stream client.
    ToStreamer {
        client: usize,
        connection: ConnectionId,
        heard: DeliveredEvent,
    },
    /// A stream client notices that its connection is broken.
    StreamerDown {
        client: usize,
        connection: ConnectionId,
    },
    /// A stream client sends its next request, or times out.
    Streamer(usize),
    /// The fault at this index in the settings happens.
    Fault(usize),
    /// An operator sends a request about the group.
    Operator,
    /// A link between two nodes is blocked or unblocked.
    Block {
        from: usize,
        to: usize,
        blocked: bool,
    },
    /// An operator repairs a node whose disk failed.
    Repair {
        node: usize,
        life: u64,
    },
    /// An operator checks all nodes; only in act two.
    Rounds,
    /// A slow disk returns to normal speed.
    DiskCalm(usize),
    /// A full disk has free space again.
    DiskRoom(usize),
    /// File descriptors are available again.
    Descriptors(usize),
    /// An operator installs another release.
    Release,
    /// The disk of a service fails.
    StoreFault,
    /// The disk of a service recovers.
    StoreCalm(usize),
    /// A process stalls within a turn.
    Stall,
    /// An operator requests a scrub.
    Scrub,
    /// A disk writes to the wrong position, or a small file is damaged.
    Stray,
    /// A disk loses acknowledged data.
    Lie,
    /// A client requests a class other than the group's.
    Class,
    /// A frame arrives at the station of a device or of a device client.
    Frame {
        from: usize,
        to: usize,
        bytes: Vec<u8>,
    },
    /// A device loses power.
    DeviceReset,
    /// A device is removed from the network.
    DeviceTaken,
    /// A device stalls for a while.
    DeviceStall,
    /// A stalled device resumes.
    DeviceResume(usize),
    /// A sender that is not a device sends a frame to a station.
    DeviceStranger,
    /// A node loses multicast reception.
    Deaf,
    /// A plane changes its transport.
    Way,
    /// A node regains multicast reception.
    Hears(usize),
}

/// Future events by time. Events at the same time run in the order in which they were scheduled.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    events: BTreeMap<(Time, u64), Event>,
    planned: u64,
}

impl Schedule {
    pub(crate) fn plan(&mut self, at: Time, event: Event) {
        self.planned += 1;
        self.events.insert((at, self.planned), event);
    }

    pub(crate) fn next_at(&self) -> Option<Time> {
        let (&(at, _), _) = self.events.first_key_value()?;
        Some(at)
    }

    /// Removes the next event and returns it with its time; `None` if no event is left.
    pub(crate) fn pop(&mut self) -> Option<(Time, Event)> {
        let ((at, _), event) = self.events.pop_first()?;
        Some((at, event))
    }

    /// Removes all events that match.
    pub(crate) fn cancel(&mut self, wanted: impl Fn(&Event) -> bool) {
        self.events.retain(|_, event| !wanted(event));
    }
}
