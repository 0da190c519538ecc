//! One set of frames for all devices: what the reference programs make of them, every other target
//! must make of them.
//!
//! A *target* is a process that maps a stream of frames to a stream of frames ([`vectors`]). What
//! goes in is made here ([`directed`], [`random`]), what must come out by the reference programs
//! ([`device`]); then both are compared, byte by byte ([`compare`]). [`mutant`] has faults that are
//! planted on purpose, each of which must be found.
//!
//! Equal answers do not show that what is chosen stays chosen: [`group`] does, for small groups
//! under faults.
//!
//! `cargo xtask offload conformance` runs every target that is there, `cargo xtask mutants` plants
//! the faults.
#![forbid(unsafe_code)]

pub mod compare;
pub mod device;
pub mod directed;
pub mod frames;
pub mod group;
pub mod mutant;
pub mod p4;
pub mod program;
pub mod random;
pub mod rtl;
pub mod targets;
pub mod xdp;

pub use device::Device;
pub use program::Program;
pub use quorate_device::pipe as vectors;
pub use vectors::Event;
