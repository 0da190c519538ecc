//! Simulates a whole cluster in one thread, with every fault that can happen to it.
//!
//! The replica, log and key-value service are the real ones; network, disks and clocks are
//! simulated. Everything is drawn from one seed, so a run can be repeated exactly. In act one any
//! fault may happen, and safety is checked after every event. In act two faults stop, and the
//! cluster must recover with every acknowledged write. `docs/spec/simulator.md` is the manual.
//!
//! Reading order: [`world`], [`faults`], [`workload`], then [`check`], one property per file.
#![forbid(unsafe_code)]

pub mod air;
pub mod check;
pub mod clock;
pub mod device;
pub use quorate_core::dice;
pub mod disk;
mod event;
pub mod faults;
pub mod front;
pub mod history;
mod ids;
pub mod network;
pub mod node;
pub mod report;
pub mod resp;
mod side;
mod steps;
pub mod story;
pub mod trace;
mod wires;
pub mod words;
pub mod workload;
pub mod world;

pub use report::{RunReport, run, run_settings};
