//! Port for device clients ([offload-22]). Such a client submits commands and learns decisions by
//! frames, and requests its name, the state of the log and lost values from the replica.

use quorate_wire::frame_clients::{LentName, NodePosition};

use crate::ports::outcome::Failure;

/// Requests from device clients. All calls return immediately.
pub trait FrameClients {
    /// Assigns an unused name.
    fn assign_name(&mut self) -> Result<LentName, Failure>;

    /// Returns this node's applied position, and the position of the session registered for `name`.
    fn node_position(&self, name: LentName) -> NodePosition;

    /// Proposes to register this name's session. [`Failure::NoQuorum`] unless this node leads.
    fn register_session(&mut self, name: LentName) -> Result<(), Failure>;

    /// Proposes a batch. This binds the batch's name to `bytes` permanently ([value-2]): clients
    /// that may offer are trusted as much as clients that send frames to devices.
    fn propose_batch(&mut self, name: LentName, counter: u64, bytes: &[u8]) -> Result<(), Failure>;
}
