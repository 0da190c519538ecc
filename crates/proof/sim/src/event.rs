//! Events of a run, and their queue.

use std::collections::BTreeMap;

use quorate_core::time::Time;
use quorate_replica::{front::ConnectionId, stream_front::StreamTag, testing::Heard};

use crate::{
    front::Ask,
    network::Link,
    workload::frame_client::{Answer as DeskAnswer, Ask as DeskAsk},
};

/// Something that happens at a moment.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A node gets a turn.
    Turn { node: usize, life: u64 },
    /// A piece may have arrived.
    Piece(Link),
    /// A datagram arrives at a node's address, or at the group's.
    Datagram { from: usize, to: usize, by_group: bool, bytes: Vec<u8> },
    /// Two nodes try to connect.
    Dial(usize, usize),
    /// A node that was removed is sent away by another one.
    Part { node: usize, peer: usize },
    /// A node learns that a connection is gone.
    Down { node: usize, life: u64, peer: usize, connection: u64 },
    /// A disk operation ends.
    Disk { node: usize, life: u64, operation: u64 },
    /// A process starts.
    Start(usize),
    /// A paused process goes on.
    Resume { node: usize, life: u64 },
    /// Requests reach a node.
    ToNode { node: usize, life: u64, connection: ConnectionId, bytes: Vec<u8> },
    /// Replies reach a client.
    ToClient { client: usize, connection: ConnectionId, bytes: Vec<u8> },
    /// A client learns that its connection is gone.
    ClientDown { client: usize, connection: ConnectionId },
    /// A client does something.
    Client(usize),
    /// A request of a client of streams reaches a node.
    ToStreams { node: usize, life: u64, connection: ConnectionId, tag: StreamTag, ask: Ask },
    /// A client of devices looks at what there is to do.
    FrameClient(usize),
    /// A request of a client of devices reaches a node.
    ToDesk { node: usize, life: u64, client: usize, ask: DeskAsk },
    /// The answer of the node that it asked.
    FromDesk { client: usize, desk: (usize, u64), answer: DeskAnswer },
    /// A reply reaches a client of streams.
    ToStreamer { client: usize, connection: ConnectionId, heard: Heard },
    /// A client of streams learns that its connection is gone.
    StreamerDown { client: usize, connection: ConnectionId },
    /// A client of streams does something.
    Streamer(usize),
    /// Something goes wrong.
    Fault(usize),
    /// An operator asks something of the group.
    Operator,
    /// One direction between two nodes is blocked, or free again.
    Block { from: usize, to: usize, blocked: bool },
    /// An operator repairs a node whose disk failed.
    Repair { node: usize, life: u64 },
    /// In act two an operator checks all nodes.
    Rounds,
    /// A disk is as fast as before.
    DiskCalm(usize),
    /// A disk has room again.
    DiskRoom(usize),
    /// Files can be opened again.
    Descriptors(usize),
    /// An operator installs another release.
    Release,
    /// The disk of a service fails.
    StoreFault,
    /// The disk of a service is sound again.
    StoreCalm(usize),
    /// A process stands still in the midst of a turn.
    Stall,
    /// An operator wants a node to scrub.
    Scrub,
    /// A disk is found to have written to a wrong place, or a small file rots.
    Stray,
    /// A disk loses the end of a log.
    Lie,
    /// A client asks for another class than the group's.
    Class,
    /// A frame arrives at a device.
    Frame { from: usize, to: usize, bytes: Vec<u8> },
    /// A device loses power.
    DeviceReset,
    /// A device is removed from its place in the network.
    DeviceTaken,
    /// A device stands still for a while.
    DeviceStall,
    /// A stalled device resumes.
    DeviceResume(usize),
    /// A sender that is no device sends a frame to one.
    DeviceStranger,
    /// The group falls silent for a node.
    Deaf,
    /// A plane takes another way.
    Way,
    /// The node receives from the group again.
    Hears(usize),
}

/// Future events, in order of time; of two at one moment the one planned first.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    events: BTreeMap<(Time, u64), Event>,
    planned: u64,
}

impl Schedule {
    /// Plans something.
    pub(crate) fn plan(&mut self, at: Time, event: Event) {
        self.planned += 1;
        self.events.insert((at, self.planned), event);
    }

    /// Returns the time of the next event.
    pub(crate) fn next_at(&self) -> Option<Time> {
        let (&(at, _), _) = self.events.first_key_value()?;
        Some(at)
    }

    /// Takes the next event, with its time.
    pub(crate) fn pop(&mut self) -> Option<(Time, Event)> {
        let ((at, _), event) = self.events.pop_first()?;
        Some((at, event))
    }

    /// Removes matching events.
    pub(crate) fn cancel(&mut self, wanted: impl Fn(&Event) -> bool) {
        self.events.retain(|_, event| !wanted(event));
    }
}
