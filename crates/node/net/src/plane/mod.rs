//! Packet planes, used in addition to TCP: their settings and sockets, and frames as datagrams.
//!
//! Reading order: [`wanted`] (settings of an operator), [`sockets`] (the sockets that this machine
//! supports), `wire` (transports of datagrams), `packets` (the running plane), [`keys`] (the file
//! with the keys), `losing` (simulated loss).

pub mod keys;
pub(crate) mod losing;
pub(crate) mod packets;
pub mod sockets;
pub mod wanted;
pub(crate) mod wire;

pub use keys::{BadKeys, KeyFile};
pub use sockets::{PlaneRefusal, Sockets};
pub use wanted::{FrameAccess, GROUP_ADDRESS, PlaneSettings};
