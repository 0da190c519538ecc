//! Phase 2 outside of nodes: the frame of devices, and the reference programs that every device
//! equals.
//!
//! A *device* runs a [`Coordinator`] or an [`Acceptor`] in one ballot, for its *owner*, a node in
//! user space. The programs here are step functions: a frame goes in, frames come out in the
//! caller's buffer. They are what programs in a kernel, a switch or an FPGA are compared with, byte
//! by byte, and they are a device themselves when a thread runs them. A [`Learner`] counts votes
//! for an owner. `docs/spec/offload.md` has the rules and the byte table.
//!
//! Reading order: [`header`] (the bytes), [`link`] (Ethernet and UDP around them), [`admit`] (what
//! every program asks of a frame, in order), [`cells`] (a ring of slots), [`control`] (what only an
//! owner may ask), the programs, [`host`] (both at one interface), and [`port`] (a device as its
//! owner has it). No program allocates, reads a clock, or panics on what a frame says.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]

extern crate alloc;

pub mod acceptor;
pub mod admit;
pub mod ballot;
pub mod cells;
pub mod checksum;
pub mod control;
pub mod coordinator;
mod device;
pub mod header;
pub mod host;
pub mod learner;
pub mod link;
pub mod out;
pub mod owner;
pub mod port;
pub mod reason;
pub mod setup;

pub use acceptor::Acceptor;
pub use ballot::PackedBallot;
pub use cells::{Cell, Cells};
pub use control::{Number, State};
pub use coordinator::Coordinator;
pub use header::{Descriptor, Header, Type};
pub use host::Host;
pub use learner::Learner;
pub use link::{Address, Form};
pub use out::{Out, Port};
pub use reason::{Counters, Reason};
pub use setup::{Routes, Setup};

/// Verdict on an incoming frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The frame goes on, unchanged, to the other port: it is not for this program.
    Pass,
    /// The frame ends here. The answers, if there are any, are in [`Out`].
    Taken,
}
