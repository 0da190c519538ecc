//! Paxos phase 2 in offload devices: their frames, and the reference programs to which every device
//! is equivalent.
//!
//! A *device* runs a [`Coordinator`] or an [`Acceptor`] in one ballot, on behalf of its *owner*, a
//! node in user space. The programs in this crate are step functions: a frame goes in, and frames
//! come out in the caller's buffer. Programs in a kernel, a switch or an FPGA are compared with
//! them, byte by byte; run by a thread, they are a device themselves. A [`Learner`] counts votes
//! for an owner. `docs/spec/offload.md` specifies the rules and the frame format.
//!
//! Reading order: [`header`] (the bytes), [`link`] (Ethernet and UDP around them), [`admit`]
//! (checks that every program makes on a frame, in order), [`cells`] (a ring of slots), [`control`]
//! (calls that only an owner may make), the programs, [`host`] (both at one interface), and
//! [`port`] (a device from its owner's side). No program allocates, reads a clock, or panics
//! because of a frame's contents.
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
pub use control::{CallNumber, State};
pub use coordinator::Coordinator;
pub use header::{Descriptor, Header, Type};
pub use host::Host;
pub use learner::Learner;
pub use link::{Address, Encapsulation};
pub use out::{OutputFrames, Port};
pub use reason::{Counters, Reason};
pub use setup::{Routes, Setup};

/// Verdict on an incoming frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The frame is not addressed to this program. The caller must pass it on, unchanged, to the
    /// other port.
    PassOn,
    /// The program consumed the frame. [`OutputFrames`] contains any responses.
    Consumed,
}
