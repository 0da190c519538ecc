//! Events that can happen in a world.

use quorate_core::{
    laying::Route,
    node_id::NodeId,
    slot::Slot,
    time::Time,
    value::{StreamName, Value},
};
use quorate_stream::OpenMode;

/// An event in a world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Delivers the message at this index in the soup, with or without its bytes.
    Deliver {
        /// Index of the message.
        at: usize,
        /// The bytes arrive too, if the message has any.
        bytes: bool,
    },
    /// Puts more records on stable storage.
    Persist {
        /// Index of the site.
        site: usize,
        count: usize,
    },
    /// Crashes a process; some of its unpersisted records survive.
    Crash {
        site: usize,
        /// Number of unpersisted records that survive.
        kept: usize,
    },
    /// Stops a process cleanly: everything reaches stable storage first ([volatile-4]).
    Stop {
        /// Index of the site.
        site: usize,
    },
    /// Starts a new process.
    Start {
        site: usize,
        /// The node forgot its votes and promises: in a volatile group, after a crash.
        forget: bool,
    },
    /// Lets time pass and wakes a node.
    Tick {
        /// Index of the site.
        site: usize,
        at: Time,
    },
    /// Makes a node's turn late ([live-5]).
    Late {
        site: usize,
        /// Delay in microseconds.
        us: u64,
    },
    /// Submits a value.
    Propose {
        /// Index of the site.
        site: usize,
        value: Value,
        slots: u64,
    },
    /// Requests a read.
    Read {
        /// Index of the site.
        site: usize,
        token: u64,
    },
    /// Requests a read that is answered under a lease, if the node has one.
    LeasedRead {
        /// Index of the site.
        site: usize,
        at: Time,
    },
    /// Completes the oldest fetch of bytes, or gives it up.
    Fetch {
        site: usize,
        /// The bytes are fetched from a node that has them.
        found: bool,
    },
    /// Fetches bytes that a node learned of without receiving them, if another node has them.
    Look {
        /// Index of the site.
        site: usize,
    },
    /// Answers the oldest catch-up request.
    Serve {
        /// Index of the site.
        site: usize,
    },
    /// Connects a node to a peer.
    Connect {
        /// The node that notices the connection.
        site: usize,
        peer: usize,
    },
    /// Disconnects a node from a peer.
    Disconnect {
        /// The node that notices the disconnection.
        site: usize,
        peer: usize,
    },
    /// Makes a node's log fail.
    StorageFails {
        /// Index of the site.
        site: usize,
    },
    /// Makes records on stable storage unreadable; the next process notices.
    Rot {
        site: usize,
        /// The first unreadable record.
        from: usize,
        count: usize,
    },
    /// Starts a node whose disk lost the end of its log: `lost` of the records that other running
    /// nodes remember.
    Lie {
        site: usize,
        /// Number of remembered records that are lost, together with all after them.
        lost: u64,
        /// Bit mask of the sites in the node's address book, the only ones it queries.
        book: u32,
    },
    /// Trims a node's log: its own snapshot covers everything below a slot.
    Trim {
        site: usize,
        /// The new start of the log.
        to: Slot,
    },
    /// Installs the snapshot of another node.
    Install {
        /// The node that installs it.
        site: usize,
        /// The node that has the snapshot.
        from: usize,
    },
    /// Moves the start of an auxiliary's log to where it requested, durably and without a snapshot.
    Forget {
        /// Index of the site.
        site: usize,
    },
    /// Gives the machine of a removed node a new disk, with which it joins as a new node.
    Wipe {
        /// Index of the site.
        site: usize,
    },
    /// Lets a client wait until everything that a node has decided is on disks.
    Last {
        /// Index of the site.
        site: usize,
    },
    /// Lets a client wait until everything that a node has voted for is in memory at a quorum.
    Early {
        /// Index of the site.
        site: usize,
    },
    /// Requests a transfer of leadership.
    Transfer {
        site: usize,
        /// The requested leader; `None` for the most advanced follower.
        to: Option<NodeId>,
    },
    /// Sets the route of votes to a node when it leads.
    Route {
        /// Index of the site.
        site: usize,
        wish: Route,
    },
    /// Carries out a node's order to its device, or the rest of one.
    Obey {
        site: usize,
        /// An order that takes two steps completes at once.
        whole: bool,
    },
    /// Delivers a frame to a device.
    Hear {
        site: usize,
        /// Index of the frame.
        frame: usize,
        /// The step completes at once.
        whole: bool,
    },
    /// Completes the device steps in flight.
    StepEnds {
        /// Index of the site.
        site: usize,
    },
    /// Lets a device assign a slot to a waiting value.
    GiveSlot {
        site: usize,
        /// The step completes at once.
        whole: bool,
        /// The step ends before it stores anything, so the slot stays empty.
        hole: bool,
    },
    /// Delivers a device's report of assigned and counted slots to its node.
    Told {
        /// Index of the site.
        site: usize,
    },
    /// Delivers a device's report of a vote to its node, or loses it.
    Tap {
        site: usize,
        /// Index of the report.
        which: usize,
        /// The report is lost.
        lost: bool,
    },
    /// Cuts a device's power.
    Reset {
        /// Index of the site.
        site: usize,
    },
    /// Starts or ends the use of a device.
    Use {
        site: usize,
        /// The device is to be used.
        yes: bool,
    },
    /// Lets a client open a stream through this owner; from then on a leader may propose it.
    Open {
        site: usize,
        /// Number of the stream's name.
        name: u8,
        how: OpenMode,
        writer: u8,
    },
    /// Lets a client close a stream; from then on a leader may propose it.
    Close {
        stream: StreamName,
        /// The stream is finished permanently.
        finish: bool,
    },
    /// Hands an owner the next bytes of a client's stream.
    Give {
        site: usize,
        stream: StreamName,
        /// Number of bytes.
        count: u64,
    },
    /// Delivers bytes that an owner sent.
    Carry {
        site: usize,
        stream: StreamName,
        /// Position of the first byte.
        from: u64,
        /// One past the last byte.
        to: u64,
    },
    /// Lets a leader propose bytes that it holds in the next slots.
    Offer {
        site: usize,
        stream: StreamName,
        /// Maximum number of bytes.
        most: u64,
    },
    /// Lets a node apply everything that it has decided.
    Apply {
        /// Index of the site.
        site: usize,
    },
}
