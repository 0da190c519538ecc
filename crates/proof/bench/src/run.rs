//! Whole measurements: nodes are started, loaded and looked at, and their rows put into a document.
//!
//! Each subcommand of `quorate bench` has a file: [`series`] (`kv`, `log`), [`probe`], [`paper`]
//! with its kinds of experiments, [`stream`] and [`wan`]; [`sweep`] is that of `quorate tune`. They
//! share sessions, measuring, readings and ceilings. The caller cleans up at an interrupt
//! ([`quorate_testbed::interrupt`]), says what is published, and where.

mod bare;
pub mod bare_stream;
mod ceilings;
mod echo;
mod experiment;
mod failure;
mod faulty;
mod grid;
mod info;
mod measure;
pub mod network;
pub mod paper;
mod pin;
pub mod probe;
mod program;
mod rates;
mod readings;
mod segment;
pub mod series;
mod session;
pub mod stream;
mod stream_load;
pub mod sweep;
mod syscalls;
mod trace;
pub mod wan;
mod ways;

use std::time::Duration;

pub use program::launcher;
pub use session::resolve;

/// Duration of a row.
#[derive(Clone, Debug)]
pub struct Time {
    /// Measured time of a repetition.
    pub duration: Duration,
    /// Thrown away before it.
    pub warmup: Duration,
    /// Repetitions; their medians are shown.
    pub repeat: u32,
}
