//! Events that can happen in a world.

use quorate_core::{
    laying::Route,
    node_id::NodeId,
    slot::Slot,
    time::Time,
    value::{StreamName, Value},
};
use quorate_stream::How;

/// An event in a world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The message at this place of the soup arrives, with its bytes or without.
    Deliver {
        /// Which.
        at: usize,
        /// The bytes arrive too, if the message has any.
        bytes: bool,
    },
    /// More records reach stable storage.
    Persist {
        /// Where.
        site: usize,
        /// Number of records.
        count: usize,
    },
    /// The process ends; of the records that waited, some are there all the same.
    Crash {
        /// Where.
        site: usize,
        /// Number of waiting records that are kept.
        kept: usize,
    },
    /// The process ends after everything reached stable storage ([volatile-4]).
    Stop {
        /// Where.
        site: usize,
    },
    /// A new process.
    Start {
        /// Where.
        site: usize,
        /// In a volatile group, after a crash: the node forgot its votes and promises.
        forget: bool,
    },
    /// Time passes, and a node notices.
    Tick {
        /// Where.
        site: usize,
        /// The time.
        at: Time,
    },
    /// A node's turn is late by this, in microseconds ([live-5]).
    Late {
        /// Where.
        site: usize,
        /// Microseconds.
        us: u64,
    },
    /// A value is offered.
    Propose {
        /// Where.
        site: usize,
        /// Which.
        value: Value,
        /// Number of slots.
        slots: u64,
    },
    /// A read is asked.
    Read {
        /// Where.
        site: usize,
        /// Token of the read.
        token: u64,
    },
    /// A read is asked at a moment, and answered by a lease, if the node has one.
    LeasedRead {
        /// Where.
        site: usize,
        /// The time.
        at: Time,
    },
    /// The oldest bytes looked for are found, or given up.
    Fetch {
        /// Where.
        site: usize,
        /// The bytes are looked for at a node that has them.
        found: bool,
    },
    /// A node looks for bytes that it learned of without getting them, and another node may have
    /// them.
    Look {
        /// Where.
        site: usize,
    },
    /// The oldest question for decided values is answered.
    Serve {
        /// Where.
        site: usize,
    },
    /// Two nodes can talk.
    Connect {
        /// The node that notices it.
        site: usize,
        /// The node that it can talk to.
        peer: usize,
    },
    /// Two nodes are disconnected.
    Disconnect {
        /// The node that notices it.
        site: usize,
        /// The node that it cannot talk to.
        peer: usize,
    },
    /// The log of a node fails.
    StorageFails {
        /// Where.
        site: usize,
    },
    /// Records on stable storage cannot be read any more; the next process finds out.
    Rot {
        /// Where.
        site: usize,
        /// The first record that is lost.
        from: usize,
        count: usize,
    },
    /// A node starts whose disk has lost the end of its log: this many of the records that other
    /// running nodes remember.
    Lie {
        /// Where.
        site: usize,
        /// Number of those records that are lost, and all after them.
        lost: u64,
        /// The sites in its address book, one bit each: only they are asked.
        book: u32,
    },
    /// A snapshot of a node's own stands for everything below a slot, and its log starts there.
    Trim {
        /// Where.
        site: usize,
        /// The slot.
        to: Slot,
    },
    /// A node installs the snapshot of another.
    Install {
        /// Where.
        site: usize,
        /// Whose.
        from: usize,
    },
    /// An auxiliary's log begins where it asked for, durably, and nothing stands for what was
    /// below.
    Forget {
        /// Where.
        site: usize,
    },
    /// The machine of a node that was removed is given a new disk, and joins as a new node.
    Wipe {
        /// Which.
        site: usize,
    },
    /// A client waits until everything that a node has decided is on disks.
    Last {
        /// Where.
        site: usize,
    },
    /// A client waits until what a node has voted for is in memory at a quorum.
    Early {
        /// Where.
        site: usize,
    },
    /// A client asks for another leader.
    Transfer {
        /// Where.
        site: usize,
        /// The wanted leader; `None`: the most advanced follower.
        to: Option<NodeId>,
    },
    /// Votes should come to a node, when it leads, in another way.
    Route {
        /// Where.
        site: usize,
        /// The wished route.
        wish: Route,
    },
    /// An order of a node to its device is carried out, or the rest of one.
    Obey {
        /// Where.
        site: usize,
        /// A step that begins in it also ends in it.
        whole: bool,
    },
    /// A frame arrives at a device.
    Hear {
        /// Where.
        site: usize,
        /// Which.
        frame: usize,
        /// The step ends at once.
        whole: bool,
    },
    /// A step of a device ends that began before.
    StepEnds {
        /// Where.
        site: usize,
    },
    /// A device gives a slot to a value that waits for one.
    GiveSlot {
        /// Where.
        site: usize,
        /// The step ends at once.
        whole: bool,
        /// The step ends before it stores anything: the slot stays empty.
        hole: bool,
    },
    /// A node reads what its device gave out and counted.
    Told {
        /// Where.
        site: usize,
    },
    /// A node reads what its device voted for, or that is lost.
    Tap {
        /// Where.
        site: usize,
        /// Which.
        which: usize,
        /// The vote is lost.
        lost: bool,
    },
    /// A device loses power.
    Reset {
        /// Where.
        site: usize,
    },
    /// A device is to be used, or not any more.
    Use {
        /// Where.
        site: usize,
        /// The device is to be used.
        yes: bool,
    },
    /// A client wants to write to a stream, through this owner; a leader may propose that from now
    /// on.
    Open {
        /// Where.
        site: usize,
        /// To which stream.
        name: u8,
        /// How.
        how: How,
        /// Who.
        writer: u8,
    },
    /// A client wants to write no more to a stream; a leader may propose that from now on.
    Close {
        /// Which.
        stream: StreamName,
        /// The stream is finished permanently.
        finish: bool,
    },
    /// A client gives an owner the next bytes of a stream.
    Give {
        /// Where.
        site: usize,
        /// The stream.
        stream: StreamName,
        /// Number of bytes.
        count: u64,
    },
    /// Bytes that an owner sent arrive.
    Carry {
        /// Where.
        site: usize,
        /// The stream.
        stream: StreamName,
        /// The first one.
        from: u64,
        /// One past the last byte.
        to: u64,
    },
    /// A leader gives bytes that it holds the next slots.
    Offer {
        /// Where.
        site: usize,
        /// The stream.
        stream: StreamName,
        /// Most of them.
        most: u64,
    },
    /// A node applies everything that it has decided.
    Apply {
        /// Where.
        site: usize,
    },
}
