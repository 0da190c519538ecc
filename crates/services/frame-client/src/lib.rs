//! A client for clusters with devices: it submits frames to the leader's coordinator and learns the
//! outcome from decision frames ([offload-22]–[offload-24]), so its commands wake no process of a
//! node. A connection to a node makes up for lost frames.
//!
//! The client works with the log service of a volatile group whose nodes vote by devices that
//! receive raw frames (`--device kernel`, `tc`, `packet`). It needs an interface on their network
//! segment and the right to open raw sockets.
//!
//! Reading order: [`machine`] (what to send when, and which batches are executed), `walk`
//! (conclusions from decisions), `station` (frames), `desk` (the connection), [`client`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod client;
mod desk;
pub mod machine;
mod station;
mod walk;

pub use client::{FrameClient, Options};
pub use machine::{CompletedBatch, Counters, Outcome, SubmitError};
pub use quorate_wire::frame_clients::LentName;
