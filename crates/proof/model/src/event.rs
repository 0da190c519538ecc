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
        message_index: usize,
        /// The message's bytes, if it has any, arrive too.
        bytes: bool,
    },
    /// Puts more records of a site on stable storage.
    Persist { site: usize, count: usize },
    /// Crashes a process. Some of its unpersisted records survive.
    Crash {
        site: usize,
        /// Number of unpersisted records that survive.
        kept_count: usize,
    },
    /// Stops a process cleanly, after everything has reached stable storage ([volatile-4]).
    Stop { site: usize },
    /// Starts a new process on a site.
    Start {
        site: usize,
        /// The node forgot its votes and promises, as it does in a volatile group after a crash.
        forgets_votes: bool,
    },
    /// Advances the time, and wakes a node.
    Tick { site: usize, at: Time },
    /// Makes a node's turn late ([live-5]).
    DelayTurn { site: usize, delay_us: u64 },
    /// Submits a value to a node.
    Propose { site: usize, value: Value, slot_count: u64 },
    /// Requests a read from a node.
    Read { site: usize, token: u64 },
    /// Requests a read that is answered under a lease, if the node has a lease.
    LeasedRead { site: usize, at: Time },
    /// Completes the oldest fetch of bytes or gives it up.
    Fetch {
        site: usize,
        /// The bytes are fetched from a node that has them.
        succeeds: bool,
    },
    /// Fetches bytes of content that a node learned without them, if another node has the bytes.
    FetchMissing { site: usize },
    /// Answers the oldest catch-up request.
    ServeCatchUp { site: usize },
    /// Notifies a node that it is connected to a peer.
    Connect { site: usize, peer: usize },
    /// Notifies a node that it is disconnected from a peer.
    Disconnect { site: usize, peer: usize },
    /// Makes a node's log fail.
    StorageFails { site: usize },
    /// Makes records on stable storage unreadable. The next process notices.
    DamageRecords {
        site: usize,
        /// Index of the first unreadable record.
        from: usize,
        count: usize,
    },
    /// Starts a node whose disk lost the end of its log, including `lost_count` records that other
    /// running nodes remember.
    StartRolledBack {
        site: usize,
        /// Number of remembered records that are lost, together with all records after them.
        lost_count: u64,
        /// Bit mask of the sites in the node's address book. The node queries only these.
        address_book: u32,
    },
    /// Trims a node's log to a snapshot of its own.
    Trim {
        site: usize,
        /// New start of the log, below which the snapshot covers everything.
        log_start: Slot,
    },
    /// Installs the snapshot of another node on a site.
    Install {
        site: usize,
        /// Index of the site that has the snapshot.
        from: usize,
    },
    /// Moves the start of an auxiliary's log to the slot that it requested, durably and without a
    /// snapshot.
    ForgetSlots { site: usize },
    /// Replaces the disk in the machine of a removed node, which then joins as a new node.
    ReplaceDisk { site: usize },
    /// Makes a client wait until everything that a node has decided is on disks.
    AwaitDurable { site: usize },
    /// Makes a client wait until everything that a node has voted for is in memory at a quorum.
    AwaitInMemory { site: usize },
    /// Requests a transfer of leadership.
    Transfer {
        site: usize,
        /// The requested leader; `None` for the most advanced follower.
        new_leader: Option<NodeId>,
    },
    /// Sets the route of votes to a node when it leads.
    SetRoute { site: usize, route: Route },
    /// Carries out a node's order to its device, or the second step of an order.
    CarryOutOrder {
        site: usize,
        /// An order that takes two steps completes at once.
        at_once: bool,
    },
    /// Delivers a frame to a device.
    DeliverFrame {
        site: usize,
        /// Index of the frame in the soup of frames.
        frame_index: usize,
        /// The device's step completes at once.
        at_once: bool,
    },
    /// Completes the device steps in flight.
    EndDeviceSteps { site: usize },
    /// Makes a device assign a slot to a waiting value.
    AssignSlot {
        site: usize,
        /// The device's step completes at once.
        at_once: bool,
        /// The step ends before it stores a value, so that the slot stays empty.
        leaves_hole: bool,
    },
    /// Delivers a device's report of assigned and counted slots to its node.
    DeliverDeviceReport { site: usize },
    /// Delivers a device's report of a vote to its node, or loses it.
    DeliverVoteReport {
        site: usize,
        /// Index of the report among the unreported votes.
        report_index: usize,
        is_lost: bool,
    },
    /// Cuts a device's power.
    ResetDevice { site: usize },
    /// Starts or ends the use of a device.
    UseDevice {
        site: usize,
        /// The node is to use its device.
        is_used: bool,
    },
    /// Makes a client open a stream through this owner. From then on a leader may propose the
    /// command.
    OpenStream {
        site: usize,
        /// Number of the stream's name.
        name: u8,
        mode: OpenMode,
        writer: u8,
    },
    /// Makes a client close a stream. From then on a leader may propose the command.
    CloseStream {
        stream: StreamName,
        /// The stream is finished permanently.
        is_finished: bool,
    },
    /// Hands an owner the next bytes of a client's stream.
    GiveStreamBytes {
        site: usize,
        stream: StreamName,
        /// Number of bytes that the owner receives.
        byte_count: u64,
    },
    /// Delivers bytes that an owner sent.
    DeliverStreamBytes {
        site: usize,
        stream: StreamName,
        /// Position of the first byte that is delivered.
        from: u64,
        /// End of the delivered bytes, exclusive.
        end: u64,
    },
    /// Makes a leader propose, in the next slots, bytes that it holds.
    ProposeStreamBytes {
        site: usize,
        stream: StreamName,
        /// Maximum number of bytes to propose.
        bytes_max: u64,
    },
    /// Makes a node apply everything that it has decided.
    ApplyDecided { site: usize },
}
