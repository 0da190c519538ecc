//! Whole measurements: starts nodes, applies load, reads counters, and collects the rows in a
//! document.
//!
//! Each subcommand of `quorate bench` has a file: [`series`] (`kv`, `log`), [`probe`], [`stream`]
//! and [`wan`]; [`sweep`] belongs to `quorate tune`. They share sessions, measuring, readings and
//! ceilings, which are public for the papers' experiments (`bench-compare/papers`). The caller
//! cleans up on an interrupt ([`quorate_testbed::interrupt`]), and decides which results are
//! published where.

pub mod bare_stream;
pub mod ceilings;
mod faulty;
mod info;
pub mod measure;
pub mod network;
mod pin;
pub mod probe;
mod program;
pub mod readings;
pub mod segment;
pub mod series;
pub mod session;
pub mod stream;
mod stream_load;
pub mod sweep;
mod syscalls;
mod trace;
pub mod wan;

use std::time::Duration;

pub use program::part_launcher;
pub use session::resolve_address;

#[derive(Clone, Debug)]
pub struct RunTime {
    pub duration: Duration,
    pub warmup: Duration,
    /// Number of repetitions of each row. Results are medians over them.
    pub repetition_count: u32,
}
