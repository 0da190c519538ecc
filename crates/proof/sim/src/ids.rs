//! Ids and names of the nodes in a run, and the hash of commands and replies.

use quorate_core::node_id::NodeId;

/// Returns the id of the node at `index`.
pub fn id(index: usize) -> NodeId {
    NodeId(u32::try_from(index + 1).expect("a handful of nodes"))
}

/// Returns a node's name in the trace.
pub(crate) fn name(node: usize) -> String {
    format!("n{}", node + 1)
}

/// Hashes a command or a reply for the checkers.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut state = bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        state = crate::dice::mix(state ^ u64::from_le_bytes(word)).wrapping_add(1);
    }
    state
}
