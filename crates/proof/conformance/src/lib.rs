//! Conformance tests for devices. Every target must answer a common set of frames exactly as the
//! reference programs do.
//!
//! A *target* is a process that maps a stream of frames to a stream of frames ([`vectors`]). Inputs
//! are generated here ([`directed`], [`random`]), expected outputs come from the reference programs
//! ([`device`]), and actual outputs are compared with them byte by byte ([`compare`]). [`mutant`]
//! plants faults, each of which must be found.
//!
//! Equal answers do not prove that a chosen value stays chosen. [`group`] checks that property for
//! small groups under faults.
//!
//! `cargo xtask offload conformance` runs every available target. `cargo xtask mutants` plants the
//! faults.
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
