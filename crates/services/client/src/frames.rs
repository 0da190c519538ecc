//! A client of devices: it submits by frames straight to the leader's coordinator, and learns by
//! decision frames ([offload-22]–[offload-24]). No process of a node is woken for its commands;
//! what is lost goes by a connection.
//!
//! It is for the log service of a volatile group whose nodes vote by devices that hear raw frames
//! (`--device kernel`, `tc`, `packet`), at an interface of the same segment, with the right to raw
//! sockets.
//!
//! Reading order: [`machine`] (what leaves when, and what is known), `walk` (what decisions say),
//! `station` (frames), `desk` (the connection), [`client`].

pub mod client;
mod desk;
pub mod machine;
mod station;
mod walk;

pub use client::{FrameClient, Options};
pub use machine::{Counts, Done, NotTaken, Outcome};
pub use quorate_wire::frame_clients::Name;
