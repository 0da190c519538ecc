//! The plane port: where a replica's frames for its peers go.

use quorate_core::node_id::NodeId;
use quorate_wire::Lane;

/// Moves frames to peers. It may lose, delay, repeat and reorder them, and never invents one
/// ([model-1]); it does not know what they mean.
pub trait Plane {
    /// The out buffer towards a peer, with room for `bytes` more: append exactly one whole frame
    /// of at most that length. `None` if the peer is not connected or its queue is full: the
    /// message is lost, and the protocol repeats it.
    fn outgoing(&mut self, to: NodeId, lane: Lane, bytes: usize) -> Option<&mut Vec<u8>>;
}
