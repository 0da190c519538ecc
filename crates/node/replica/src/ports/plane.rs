//! Plane port: sends a replica's frames to its peers, and describes received frames.

use std::fmt;

use quorate_core::{
    ballot::Ballot,
    configuration::Configuration,
    node_id::{Member, NodeId},
    node_set::NodeSet,
    slot::Slot,
    time::Time,
};
use quorate_wire::{Frame, Lane};

use crate::ports::payload::Payload;

/// Transport of frames to peers. It may lose, delay, repeat and reorder frames, but never forges
/// one ([model-1]). It does not interpret them.
pub trait Plane {
    /// Returns whether a frame of `bytes` bytes could be sent to the node now. Callers check before
    /// they take a message out of a queue.
    fn has_room(&self, to: NodeId, lane: Lane, bytes: usize) -> bool;

    /// Sends one whole frame, header and body, to each of the given nodes. Returns the nodes that
    /// accepted it. The others are not connected, or their queues are full; for them the message is
    /// lost, and the protocol repeats it.
    fn send(
        &mut self,
        to: NodeSet,
        lane: Lane,
        header: &[u8],
        body: FrameBody<'_>,
    ) -> Result<NodeSet, TooLarge>;

    /// Reports that the values of this ballot's leader are decided below `decided_to`. Called once
    /// per turn, before the frames of the turn are sent.
    fn note_decided(&mut self, ballot: Ballot, decided_to: Slot) {
        let _ = (ballot, decided_to);
    }

    /// Sets the current voters. Nodes that missed values may request them from voters ([learn-1]).
    fn set_voters(&mut self, configuration: &Configuration) {
        let _ = configuration;
    }
}

/// Content of a frame after its header.
#[derive(Clone, Copy, Debug)]
pub enum FrameBody<'a> {
    /// Bytes that the plane must copy to retain them.
    Borrowed(&'a [u8]),
    /// Bytes that the plane may retain by reference until all nodes have them.
    Shared(&'a Payload),
}

impl FrameBody<'_> {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Shared(payload) => payload,
        }
    }
}

/// Error for a frame that was not sent because it is too long for the plane even with empty queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge {
    /// Maximum length of a frame in bytes.
    pub bytes_max: usize,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes_max } = self;
        write!(f, "the plane carries frames of at most {bytes_max} bytes")
    }
}

impl std::error::Error for TooLarge {}

/// A received frame.
#[derive(Clone, Debug)]
pub struct ReceivedFrame<'a> {
    pub from: Member,
    pub frame: Frame<'a>,
    /// CRC-32C of the frame's body, if the receiver verified it.
    pub body_checksum: Option<u32>,
    /// Number of the write up to which the sender's log is on stable storage, as stated in the
    /// frame ([lie-1]); 0 if the frame states none.
    pub logged_to: u64,
    /// The body, if it arrived in a buffer of its own and can be retained without a copy.
    pub body: Option<&'a Payload>,
}

impl<'a> ReceivedFrame<'a> {
    /// Creates a received frame without the optional attributes.
    pub const fn without_attributes(from: Member, frame: Frame<'a>) -> Self {
        Self { from, frame, body_checksum: None, logged_to: 0, body: None }
    }
}

/// Time of a replica's turn, and the plane to send on.
pub struct Turn<'a> {
    /// Monotonic time.
    pub time: Time,
    /// Unix time in milliseconds.
    pub wall_ms: u64,
    pub plane: &'a mut dyn Plane,
}

impl fmt::Debug for Turn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("time", &self.time)
            .field("wall_ms", &self.wall_ms)
            .finish_non_exhaustive()
    }
}
