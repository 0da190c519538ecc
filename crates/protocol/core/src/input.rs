//! Inputs of a node: events and requests that its caller passes in.

use crate::{
    ballot::Ballot,
    device::DeviceReport,
    fitness::Fitness,
    laying::Route,
    message::Message,
    node_id::{Member, NodeId},
    reconfigure::Eras,
    record::RecordSeq,
    slot::{Slot, SlotRange},
    value::Value,
};

/// A number by which the caller recognises a read. One token may stand for many reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadToken(pub u64);

/// An input event. `Node::step` turns it into effects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// A peer sent a message.
    Message {
        /// The sender, as the plane knows it from the handshake or the frame.
        from: Member,
        /// The received message.
        message: Message,
        /// The bytes of the message's value are present on this node, whether they arrived with the
        /// message or earlier. Bytes of slots from `decided_to` to the end of the window are
        /// retained until the slots are decided. Not used for messages without a value, and for
        /// values without bytes.
        bytes_held: bool,
    },
    /// Propose this value in the next slots. The value's bytes are present.
    Propose {
        /// Value to propose.
        value: Value,
        /// Number of slots; more than one only for values that may span ([`Value::may_span`]).
        slots: u64,
    },
    /// Bytes requested by [`crate::effect::Effect::Fetch`] are present.
    BytesHeld {
        /// The value whose bytes are present.
        value: Value,
        /// Slots of the value, possibly fewer than requested. Earlier reports remain valid.
        range: SlotRange,
    },
    /// Every record up to this one is on stable storage.
    Persisted(RecordSeq),
    /// The log failed permanently. The node sends no more promises or votes ([disk-9]).
    StorageFailed,
    /// This node's fitness to lead changed ([live-3], [live-6]).
    Fitness(Fitness),
    /// These slots are lost, in addition to those reported earlier. They were decided before this
    /// process started, have not been learned again, and cannot be read back from the log
    /// ([disk-8]).
    SlotsLost(SlotRange),
    /// First slot that was decided in this process and whose value currently cannot be read back;
    /// `None` once all values can be read again ([disk-8]).
    FirstUnreadable(Option<Slot>),
    /// `true` while bytes of retained streams may be missing on this node, now or after a restart;
    /// `false` once none are ([snap-5], [here-1]).
    StreamBytesLacking(bool),
    /// No connected peer has the missing value. Each was asked twice.
    FoundNowhere,
    /// A snapshot of everything below `to` was installed durably, and the log starts there
    /// ([snap-2]). The caller must check it with [`crate::node::Node::may_install`] first.
    Installed {
        /// The first slot that the snapshot does not cover.
        to: Slot,
        /// The eras at `to`.
        eras: Eras,
    },
    /// The log now starts at this slot, durably. A snapshot of this node covers the slots below
    /// ([trim-3]).
    Trimmed(Slot),
    /// The log now starts at this slot, durably, and no snapshot covers the slots below. Completes
    /// the request of [`crate::effect::Effect::Forget`].
    Forgotten(Slot),
    /// A peer connected.
    Connected(Member),
    /// A peer disconnected.
    Disconnected(NodeId),
    /// A linearizable read waits for its read index.
    Read(ReadToken),
    /// A client waits until everything below `to` is on stable storage at a phase-2 quorum
    /// ([class-2]). [`crate::effect::Effect::DurableInGroup`] reports when it is. Not used while
    /// there may be a member that does not understand the request.
    AwaitDurable {
        /// End of the slots, exclusive.
        to: Slot,
    },
    /// A client waits until a phase-2 quorum has voted for everything below `to` in this ballot, in
    /// memory. This node has already voted for it in the same ballot ([class-2]).
    /// [`crate::effect::Effect::VotedInMemory`] reports it, unless the votes never reach a quorum.
    /// Not used while there may be a member that does not understand the request.
    AwaitEarlyVotes {
        /// Ballot in which the quorum must vote.
        ballot: Ballot,
        /// End of the slots, exclusive.
        to: Slot,
    },
    /// Changes the route of votes to this node when it leads.
    Route(Route),
    /// Number of slots that each program of the device has space for, a power of two; 0 if there is
    /// no device or it must not be used. With 0, the device's work is withdrawn and the device is
    /// fenced. A clean stop requires this first ([offload-8]).
    Offload {
        /// Number of slots per program; 0 withdraws the device.
        cells: u64,
    },
    /// This node's device sent a report.
    Device(DeviceReport),
    /// Hand leadership to this node, or to the most advanced follower ([live-4]).
    Transfer {
        /// The new leader; `None` for the most advanced follower.
        to: Option<NodeId>,
    },
    /// The current turn of this node's event loop began late ([live-5]).
    LateTurn {
        /// The delay in microseconds.
        delay_us: u64,
    },
    /// Time has passed. Required no later than the time of `Effect::WakeAt`.
    Tick,
}
