//! Planes of packets next to TCP: what is wanted, which sockets that takes, and frames as
//! datagrams.
//!
//! Reading order: [`wanted`] (settings of an operator), [`sockets`] (what this machine offers),
//! `wire` (what datagrams travel on), `packets` (the plane at work), [`keys`] (the file with the
//! keys), `losing` (losses on purpose).

pub mod keys;
pub(crate) mod losing;
pub(crate) mod packets;
pub mod sockets;
pub mod wanted;
pub(crate) mod wire;

pub use keys::{BadKeys, KeyFile};
pub use sockets::{Refused, Sockets};
pub use wanted::{Frames, GROUP_ADDRESS, Wanted};
