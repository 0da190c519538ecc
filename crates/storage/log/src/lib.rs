//! A node's durable log.
//!
//! A [`Log`] is a sequence of *log writes* in segments of fixed size. Each log write is one write
//! and one flush of the disk, and they are released in order. `docs/spec/log.md` has the format and
//! the rules of recovery. Reading order: [`record`], [`log_write`], `writer` (append), `walk` and
//! `recover` (restart), `index` and `read`; `base`, `holdings` and `rebase` (trim); `scrub`
//! (verification of the log in use). The files themselves are behind the port in [`disk`].
//!
//! ```
//! use quorate_core::{
//!     ballot::Ballot,
//!     node_id::{Incarnation, NodeId},
//!     record::{HardState, Record, RecordSeq},
//! };
//! use quorate_log::{Log, LogOptions, disk::MemoryDisk};
//!
//! let options = LogOptions::new(7, NodeId(1), Incarnation(0));
//! let (mut log, _) = Log::open(MemoryDisk::new(), options)?;
//! let ballot = Ballot { round: 1, node: NodeId(1), ..Ballot::ZERO };
//! let hard = HardState { promised: ballot, ..HardState::default() };
//! log.append(RecordSeq(1), &Record::Promise { ballot }, &[], hard)?;
//! log.start_writes();
//! while log.poll()? < RecordSeq(1) {}
//! # Ok::<(), quorate_log::LogError>(())
//! ```
#![deny(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]

mod base;
pub mod disk;
pub mod error;
mod holdings;
mod index;
mod log;
pub mod log_write;
mod mutant;
mod options;
pub mod patience;
mod place;
mod pool;
mod range_map;
mod read;
mod rebase;
pub mod record;
mod recover;
mod scrub;
mod told;
pub mod verify;
mod walk;
mod writer;

#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod drivers_tests;
#[cfg(test)]
mod failure_tests;
#[cfg(test)]
mod fixture_tests;
#[cfg(test)]
mod fuzz_tests;
#[cfg(test)]
mod log_tests;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod recycle_tests;
#[cfg(test)]
mod scrub_tests;
#[cfg(test)]
mod trim_tests;

pub use base::{Base, NOTE_BYTES_MAX};
pub use error::LogError;
pub use log::Log;
pub use options::{LINGER_BYTES, LogOptions, WRITES_IN_FLIGHT_MAX};
pub use place::{Place, Segment};
pub use read::{ReadDone, ValueBytes, Values};
pub use recover::{Damage, Recovery};
pub use scrub::{DamagedWrites, ScrubbedPiece};
pub use told::ReadProgress;

/// Maximum number of writes and reads that a log has in flight, including one read of a scrub.
pub const OPERATIONS_MAX: usize = WRITES_IN_FLIGHT_MAX + read::IN_FLIGHT_MAX + 1;
