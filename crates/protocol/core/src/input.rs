//! Everything that can happen to a node.

use crate::{
    ballot::Ballot,
    device::Word,
    fitness::Fitness,
    laying::Route,
    message::Message,
    node_id::{Member, NodeId},
    reconfigure::Eras,
    record::RecordSeq,
    slot::{Slot, SlotRange},
    value::Value,
};

/// Chosen by the caller to recognise its reads; one may stand for many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadToken(pub u64);

/// One event. `Node::step` turns it into effects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// A message of a peer.
    Message {
        /// Who; planes know it from the handshake or the frame.
        from: Member,
        /// What.
        message: Message,
        /// The bytes of the message's value are at hand here: they came along, or were here before.
        /// For slots from `decided_to` to the end of the window they stay until those are decided.
        /// Meaningless for messages without a value, and for values without bytes.
        held: bool,
    },
    /// Give this value the next slots. Its bytes are at hand.
    Propose {
        /// The value.
        value: Value,
        /// Number of slots; more than one only for values that may span ([`Value::may_span`]).
        slots: u64,
    },
    /// Bytes that [`crate::effect::Effect::Fetch`] asked for are at hand.
    Held {
        /// The value whose bytes are held.
        value: Value,
        /// Slots of the value; perhaps fewer than were asked for. Earlier reports still hold.
        range: SlotRange,
    },
    /// Every record up to this one is on stable storage.
    Persisted(RecordSeq),
    /// The log failed for good: no promise and no vote from here on ([disk-9]).
    StorageFailed,
    /// Fitness of this node to lead, from now on ([live-3], [live-6]).
    Fitness(Fitness),
    /// These slots, decided before this process and not learned again yet, are lost too: the log
    /// cannot read them back ([disk-8]).
    Lost(SlotRange),
    /// The first slot that was decided in this process and whose value cannot be read back any
    /// more, until it is here again ([disk-8]).
    Missing(Option<Slot>),
    /// Bytes of streams that are kept may be lacking here, or would be after a restart ([snap-5],
    /// [here-1]).
    Lacking(bool),
    /// All connected peers were asked for what is missing, twice, and none delivered it.
    FoundNowhere,
    /// A snapshot was installed, durably: its state stands for everything below `to`, and the log
    /// starts there ([snap-2]). To be checked with [`crate::node::Node::may_install`] before.
    Installed {
        /// The first slot that the snapshot does not cover.
        to: Slot,
        /// The eras there.
        eras: Eras,
    },
    /// The log starts here now, durably: a snapshot of this node's own stands for what was below
    /// ([trim-3]).
    Trimmed(Slot),
    /// The log starts here now, durably, and nothing stands for what was below: what
    /// [`crate::effect::Effect::Forget`] asked for is done.
    Forgotten(Slot),
    /// A peer can be talked to.
    Connected(Member),
    /// The peer is disconnected.
    Disconnected(NodeId),
    /// A linearizable read waits for its index.
    Read(ReadToken),
    /// A client waits until everything below is on stable storage at a phase-2 quorum ([class-2]);
    /// to be answered by [`crate::effect::Effect::Lasts`]. Where members might not understand the
    /// question, it is not sent.
    Last {
        /// The first slot that it does not wait for.
        to: Slot,
    },
    /// A client waits until everything below is in memory at a phase-2 quorum, voted for in this
    /// ballot, in which this node has voted for it ([class-2]); to be answered by
    /// [`crate::effect::Effect::InMemory`], or never. Where members might not understand the
    /// question, it is not sent.
    Early {
        /// The ballot.
        ballot: Ballot,
        /// The first slot that it does not wait for.
        to: Slot,
    },
    /// Route of votes from now on, while this node leads.
    Route(Route),
    /// Number of slots that each program of the device holds, a power of two; 0: there is no
    /// device, or it is to be left alone. The device's work is withdrawn, and it is fenced, before
    /// a clean stop ([offload-8]).
    Offload {
        /// Slots.
        cells: u64,
    },
    /// A report of this node's device.
    Device(Word),
    /// Hand leadership to this node, or to the most advanced follower ([live-4]).
    Transfer {
        /// The new leader; `None`: the most advanced follower.
        to: Option<NodeId>,
    },
    /// This node's turn, the one that begins now, was late by this, in microseconds ([live-5]).
    Late {
        /// Microseconds.
        us: u64,
    },
    /// Time passed; due at the latest at the time of `Effect::WakeAt`.
    Tick,
}
