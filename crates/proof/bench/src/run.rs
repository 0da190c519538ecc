//! Whole measurements: starts nodes, applies load, reads counters, and collects the rows in a
//! document.
//!
//! Each subcommand of `quorate bench` has a file: [`series`] (`kv`, `log`), [`probe`], [`paper`]
//! with its kinds of experiments, [`stream`] and [`wan`]; [`sweep`] belongs to `quorate tune`. They
//! share sessions, measuring, readings and ceilings. The caller cleans up on an interrupt
//! ([`quorate_testbed::interrupt`]), and decides which results are published where.

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

#[derive(Clone, Debug)]
pub struct Time {
    pub duration: Duration,
    pub warmup: Duration,
    /// Number of repetitions of each row. Results are medians over them.
    pub repeat: u32,
}
