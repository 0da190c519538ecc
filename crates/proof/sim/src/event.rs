//! Events of a run, and the queue of future events.

use std::collections::BTreeMap;

use quorate_core::time::Time;
use quorate_replica::{front::ConnectionId, stream_front::StreamTag, testing::DeliveredEvent};

use crate::{
    front::StreamRequest,
    network::LaneLink,
    workload::frame_client::{FrameRequest as DeskAsk, NodeAnswer as DeskAnswer},
};

/// Event that happens at a scheduled time.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A node runs a turn.
    RunTurn {
        node: usize,
        life: u64,
    },
    /// A fragment of a byte stream between two nodes may have arrived.
    FragmentArrives(LaneLink),
    /// A datagram arrives at a node, addressed to the node or to the multicast group.
    DatagramArrives {
        from: usize,
        to: usize,
        is_multicast: bool,
        bytes: Vec<u8>,
    },
    /// Two nodes try to connect.
    Dial(usize, usize),
    /// A node disconnects a removed peer.
    DisconnectRemoved {
        node: usize,
        removed_peer: usize,
    },
    /// A node notices a broken connection.
    ConnectionDown {
        node: usize,
        life: u64,
        peer: usize,
        connection: u64,
    },
    /// A disk operation is complete.
    DiskOperationDone {
        node: usize,
        life: u64,
        operation: u64,
    },
    StartProcess(usize),
    /// A paused process resumes.
    ResumeProcess {
        node: usize,
        life: u64,
    },
    /// Bytes from a client reach a node.
    BytesToNode {
        node: usize,
        life: u64,
        connection: ConnectionId,
        bytes: Vec<u8>,
    },
    /// Bytes from a node reach a client.
    BytesToClient {
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
    ClientActs(usize),
    /// A stream client's request reaches a node.
    RequestToStreams {
        node: usize,
        life: u64,
        connection: ConnectionId,
        tag: StreamTag,
        request: StreamRequest,
    },
    /// A device client takes its next step.
    FrameClientActs(usize),
    /// A request from a device client reaches a node.
    RequestToDesk {
        node: usize,
        life: u64,
        client: usize,
        request: DeskAsk,
    },
    /// A node's answer reaches a device client.
    AnswerFromDesk {
        client: usize,
        desk: (usize, u64),
        answer: DeskAnswer,
    },
    /// A reply reaches a stream client.
    ReplyToStreamClient {
        client: usize,
        connection: ConnectionId,
        reply: DeliveredEvent,
    },
    /// A stream client notices that its connection is broken.
    StreamClientDown {
        client: usize,
        connection: ConnectionId,
    },
    /// A stream client sends its next request, or times out.
    StreamClientActs(usize),
    /// The fault at this index in the settings happens.
    InjectFault(usize),
    /// An operator sends a request about the group.
    OperatorActs,
    /// A link between two nodes is blocked or unblocked.
    BlockLink {
        from: usize,
        to: usize,
        is_blocked: bool,
    },
    /// An operator repairs a node whose disk failed.
    RepairNode {
        node: usize,
        life: u64,
    },
    /// An operator checks all nodes; only in act two.
    CheckAllNodes,
    /// A slow disk returns to normal speed.
    DiskSpeedRestored(usize),
    /// A full disk has free space again.
    DiskSpaceRestored(usize),
    /// File descriptors are available again.
    DescriptorsRestored(usize),
    /// An operator installs another release.
    InstallRelease,
    /// The disk of a service fails.
    StoreFault,
    /// The disk of a service recovers.
    StoreRecovers(usize),
    /// A process stalls within a turn.
    StallProcess,
    /// An operator requests a scrub.
    RequestScrub,
    /// A disk writes to the wrong position, or a small file is damaged.
    StrayWrite,
    /// A disk loses acknowledged data.
    DataLoss,
    /// A client requests a class other than the group's.
    ClassRequest,
    /// A frame arrives at the station of a device or of a device client.
    FrameArrives {
        from: usize,
        to: usize,
        bytes: Vec<u8>,
    },
    /// A device loses power.
    DeviceReset,
    /// A device is removed from the network.
    DeviceRemoved,
    /// A device stalls for a while.
    DeviceStall,
    /// A stalled device resumes.
    DeviceResume(usize),
    /// A sender that is not a device sends a frame to a station.
    StrangerFrame,
    /// A node loses multicast reception.
    LoseReception,
    /// A plane changes its transport.
    ChangeTransport,
    /// A node regains multicast reception.
    RestoreReception(usize),
}

/// Future events by time. Events at the same time run in the order in which they were scheduled.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    events: BTreeMap<(Time, u64), Event>,
    scheduled_count: u64,
}

impl Schedule {
    pub(crate) fn schedule_event(&mut self, at: Time, event: Event) {
        self.scheduled_count += 1;
        self.events.insert((at, self.scheduled_count), event);
    }

    pub(crate) fn next_time(&self) -> Option<Time> {
        let (&(at, _), _) = self.events.first_key_value()?;
        Some(at)
    }

    /// Removes the next event and returns it with its time; `None` if no event is left.
    pub(crate) fn pop(&mut self) -> Option<(Time, Event)> {
        let ((at, _), event) = self.events.pop_first()?;
        Some((at, event))
    }

    /// Removes all events that match.
    pub(crate) fn cancel_matching(&mut self, wanted: impl Fn(&Event) -> bool) {
        self.events.retain(|_, event| !wanted(event));
    }
}
