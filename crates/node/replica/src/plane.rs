//! The plane port: a replica's frames to its peers, and those received from them.

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

use crate::payload::Payload;

/// Moves frames to peers. It may lose, delay, repeat and reorder them, and never invents one
/// ([model-1]); it does not know what they mean.
pub trait Plane {
    /// Returns whether a frame of this length could be sent to the node now: for callers that would
    /// otherwise remove it from a queue.
    fn has_room(&self, to: NodeId, lane: Lane, bytes: usize) -> bool;

    /// Sends one whole frame, its header and its body, to each of these nodes. Returns those that
    /// accepted it; the others are not connected, or their queues are full: for them the message is
    /// lost, and the protocol repeats it.
    fn send(
        &mut self,
        to: NodeSet,
        lane: Lane,
        header: &[u8],
        body: Body<'_>,
    ) -> Result<NodeSet, TooLarge>;

    /// Values of this ballot's leader below this slot are decided. Called once a turn, before the
    /// frames of that turn are sent.
    fn told(&mut self, ballot: Ballot, decided_to: Slot) {
        let _ = (ballot, decided_to);
    }

    /// Sets the voters from now on: they may be asked for values that others missed ([learn-1]).
    fn voters(&mut self, configuration: &Configuration) {
        let _ = configuration;
    }
}

/// Content after a frame's header.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// Bytes that the plane copies if it keeps them.
    Bytes(&'a [u8]),
    /// Bytes that the plane may keep by reference until all have them.
    Shared(&'a Payload),
}

impl Body<'_> {
    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Shared(payload) => payload,
        }
    }
}

/// Error: this plane never carries a frame of this length, however empty its queues are. The frame
/// was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge {
    /// The longest frame that it carries, in bytes.
    pub bytes_max: usize,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes_max } = self;
        write!(f, "the plane carries frames of at most {bytes_max} bytes")
    }
}

impl std::error::Error for TooLarge {}

/// A frame as it arrived.
#[derive(Clone, Debug)]
pub struct Received<'a> {
    /// Sender.
    pub from: Member,
    /// Content.
    pub frame: Frame<'a>,
    /// CRC-32C of the frame's body, if the receiver has compared it with the bytes.
    pub body_check: Option<u32>,
    /// The sender's log is on stable storage up to this write, as the frame states ([lie-1]); 0:
    /// not stated.
    pub logged: u64,
    /// The body, if it arrived in a buffer of its own: it can be kept without a copy.
    pub body: Option<&'a Payload>,
}

impl<'a> Received<'a> {
    /// Creates a frame without further attributes.
    pub const fn plain(from: Member, frame: Frame<'a>) -> Self {
        Self { from, frame, body_check: None, logged: 0, body: None }
    }
}

/// The present moment of a replica: the time, and the means to send.
pub struct Turn<'a> {
    /// Monotonic time.
    pub time: Time,
    /// Unix time in milliseconds.
    pub wall_ms: u64,
    /// The way to the peers.
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
