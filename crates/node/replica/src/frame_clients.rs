//! What a client of devices can ask of a replica ([offload-22]): it submits by frames and learns by
//! itself, and comes here for its name, for how the log stands, and with what got lost.

use quorate_wire::frame_clients::{Name, Stand};

use crate::front::Failure;

/// All of it is answered at once.
pub trait FrameClients {
    /// A name that nobody else has.
    fn lend(&mut self) -> Result<Name, Failure>;

    /// What this node has applied, and where this name's session is in it.
    fn stand(&self, name: Name) -> Stand;

    /// Propose that this name's session be registered. [`Failure::NoQuorum`]: another node leads.
    fn register(&mut self, name: Name) -> Result<(), Failure>;

    /// Propose a batch. The name is bound to these bytes for ever ([value-2]): who may offer is
    /// trusted as whoever sends frames to devices is.
    fn offer(&mut self, name: Name, counter: u64, bytes: &[u8]) -> Result<(), Failure>;
}
