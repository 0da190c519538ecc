//! Frames on their way to the plane: what it has no room for is counted, and repeated by the protocol.

use quorate_core::node_id::{Member, NodeId};
use quorate_wire::{Frame, Lane, encode, encoded_len};

use crate::{counters::Counters, plane::Plane};

/// After a refusal, what was refused waits this long. Long enough not to spin, short enough not to
/// be felt: a slot frees within a disk write.
pub(crate) const RETRY_MS: u64 = 2;

/// The plane, for the time of one call.
pub(crate) struct Outbox<'a> {
    from: Member,
    plane: &'a mut dyn Plane,
    pub(crate) counters: &'a mut Counters,
}

/// Room for one frame in the plane's buffer.
pub(crate) struct Room<'a> {
    from: Member,
    buffer: &'a mut Vec<u8>,
    counters: &'a mut Counters,
}

impl<'a> Outbox<'a> {
    /// Frames are from this member.
    pub(crate) fn new(from: Member, plane: &'a mut dyn Plane, counters: &'a mut Counters) -> Self {
        Self {
            from,
            plane,
            counters,
        }
    }

    /// Hands a frame to the plane; `false` if it had no room.
    pub(crate) fn send(&mut self, to: NodeId, lane: Lane, frame: &Frame<'_>) -> bool {
        let out = self.plane.outgoing(to, lane, encoded_len(frame));
        let sent = out.is_some_and(|out| encode(self.from, frame, out).is_ok());
        self.counters.sends_dropped += u64::from(!sent);
        sent
    }

    /// Room for a frame of `bytes` that does not exist yet.
    pub(crate) fn room(&mut self, to: NodeId, lane: Lane, bytes: usize) -> Option<Room<'_>> {
        let Some(buffer) = self.plane.outgoing(to, lane, bytes) else {
            self.counters.sends_dropped += 1;
            return None;
        };
        Some(Room {
            from: self.from,
            buffer,
            counters: self.counters,
        })
    }
}

impl Room<'_> {
    /// Hands the frame to the plane.
    pub(crate) fn send(self, frame: &Frame<'_>) {
        if encode(self.from, frame, self.buffer).is_err() {
            self.counters.sends_dropped += 1;
        }
    }
}
