//! Events that can happen in a world.

use quorate_core::{
    laying::Route,
    node_id::NodeId,
    slot::Slot,
    time::Time,
    value::{StreamName, Value},
};
use quorate_stream::OpenMode;

/// An event in a world. `site` is the index of the site to which it happens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Delivers the message at this index in the soup, with or without its bytes.
    Deliver {
        /// Index of the message in the soup.
        at: usize,
        /// The message's bytes, if it has any, arrive too.
        bytes: bool,
    },
    /// Puts more records of a site on stable storage.
    Persist { site: usize, count: usize },
    /// Crashes a process. Some of its unpersisted records survive.
    Crash {
        site: usize,
        /// Number of unpersisted records that survive.
        kept: usize,
    },
    /// Stops a process cleanly, after everything has reached stable storage ([volatile-4]).
    Stop { site: usize },
    /// Starts a new process on a site.
    Start {
        site: usize,
        /// The node forgot its votes and promises, as it does in a volatile group after a crash.
        forget: bool,
    },
    /// Advances the time, and wakes a node.
    Tick { site: usize, at: Time },
    /// Makes a node's turn late ([live-5]).
    Late { site: usize, us: u64 },
    /// Submits a value to a node.
    Propose { site: usize, value: Value, slots: u64 },
    /// Requests a read from a node.
    Read { site: usize, token: u64 },
    /// Requests a read that is answered under a lease, if the node has a lease.
    LeasedRead { site: usize, at: Time },
    /// Completes the oldest fetch of bytes or gives it up.
    Fetch {
        site: usize,
        /// The bytes are fetched from a node that has them.
        found: bool,
    },
    /// Fetches bytes of content that a node learned without them, if another node has the bytes.
    Look { site: usize },
    /// Answers the oldest catch-up request.
    Serve { site: usize },
    /// Notifies a node that it is connected to a peer.
    Connect { site: usize, peer: usize },
    /// Notifies a node that it is disconnected from a peer.
    Disconnect { site: usize, peer: usize },
    /// Makes a node's log fail.
    StorageFails { site: usize },
    /// Makes records on stable storage unreadable. The next process notices.
    Rot {
        site: usize,
        /// Index of the first unreadable record.
        from: usize,
        count: usize,
    },
    /// Starts a node whose disk lost the end of its log, including `lost` records that other
    /// running nodes remember.
    Lie {
        site: usize,
        /// Number of remembered records that are lost, together with all records after them.
        lost: u64,
        /// Bit mask of the sites in the node's address book. The node queries only these.
        book: u32,
    },
    /// Trims a node's log to a snapshot of its own.
    Trim {
        site: usize,
        /// New start of the log, below which the snapshot covers everything.
        to: Slot,
    },
    /// Installs the snapshot of another node on a site.
    Install {
        site: usize,
        /// Index of the site that has the snapshot.
        from: usize,
    },
    /// Moves the start of an auxiliary's log to the slot that it requested, durably and without a
    /// snapshot.
    Forget { site: usize },
    /// Replaces the disk in the machine of a removed node, which then joins as a new node.
    Wipe { site: usize },
    /// Makes a client wait until everything that a node has decided is on disks.
    Last { site: usize },
    /// Makes a client wait until everything that a node has voted for is in memory at a quorum.
    Early { site: usize },
    /// Requests a transfer of leadership.
    Transfer {
        site: usize,
        /// The requested leader; `None` for the most advanced follower.
        to: Option<NodeId>,
    },
    /// Sets the route of votes to a node when it leads.
    Route { site: usize, wish: Route },
    /// Carries out a node's order to its device, or the second step of an order.
    Obey {
        site: usize,
        /// An order that takes two steps completes at once.
        whole: bool,
    },
    /// Delivers a frame to a device.
    Hear {
        site: usize,
        /// Index of the frame in the soup of frames.
        frame: usize,
        /// The device's step completes at once.
        whole: bool,
    },
    /// Completes the device steps in flight.
    StepEnds { site: usize },
    /// Makes a device assign a slot to a waiting value.
    GiveSlot {
        site: usize,
        /// The device's step completes at once.
        whole: bool,
        /// The step ends before it stores a value, so that the slot stays empty.
        hole: bool,
    },
    /// Delivers a device's report of assigned and counted slots to its node.
    Told { site: usize },
    /// Delivers a device's report of a vote to its node, or loses it.
    Tap {
        site: usize,
        /// Index of the report among the unreported votes.
        which: usize,
        lost: bool,
    },
    /// Cuts a device's power.
    Reset { site: usize },
    /// Starts or ends the use of a device.
    Use {
        site: usize,
        /// The node is to use its device.
        yes: bool,
    },
    /// Makes a client open a stream through this owner. From then on a leader may propose the
    /// command.
    Open {
        site: usize,
        /// Number of the stream's name.
        name: u8,
        how: OpenMode,
        writer: u8,
    },
    /// Makes a client close a stream. From then on a leader may propose the command.
    Close {
        stream: StreamName,
        /// The stream is finished permanently.
        finish: bool,
    },
    /// Hands an owner the next bytes of a client's stream.
    Give {
        site: usize,
        stream: StreamName,
        /// Number of bytes that the owner receives.
        count: u64,
    },
    /// Delivers bytes that an owner sent.
    Carry {
        site: usize,
        stream: StreamName,
        /// Position of the first byte that is delivered.
        from: u64,
        /// End of the delivered bytes, exclusive.
        to: u64,
    },
    /// Makes a leader propose, in the next slots, bytes that it holds.
    Offer {
        site: usize,
        stream: StreamName,
        /// Maximum number of bytes to propose.
        most: u64,
    },
    /// Makes a node apply everything that it has decided.
    Apply { site: usize },
}
