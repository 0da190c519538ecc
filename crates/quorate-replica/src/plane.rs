//! The plane port: where a replica's frames for its peers go.

use std::fmt;

use quorate_core::{node_id::NodeId, time::Time};
use quorate_wire::Lane;

/// Moves frames to peers. It may lose, delay, repeat and reorder them, and never invents one
/// ([model-1]); it does not know what they mean.
pub trait Plane {
    /// The out buffer towards a peer, with room for `bytes` more: append exactly one whole frame
    /// of at most that length. `None` if the peer is not connected or its queue is full: the
    /// message is lost, and the protocol repeats it.
    fn outgoing(&mut self, to: NodeId, lane: Lane, bytes: usize) -> Option<&mut Vec<u8>>;
}

/// One moment in which a replica acts: what time it is, and how to speak.
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
