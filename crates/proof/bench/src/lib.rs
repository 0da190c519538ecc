//! Benchmarks and machine checks: load, ceilings, reports.
//!
//! `quorate bench` is the command; docs/bench.md explains it. Reading order: [`schedule`] and
//! [`load`] (what is sent when, also in virtual time), [`samples`] (observations), [`protocol`] and
//! [`generator`] (the same over sockets, through a [`door`]), [`stream`] (the same for byte
//! streams), [`quorate_testbed::usage`] and [`environment`] (costs, and the machine they were
//! measured on), [`repetition`] and [`row`] (repetitions become a row of [`figure`]s), [`report`]
//! (rows become JSON, CSV and HTML). Further: [`life`] (the hops of one command), [`probe`] (limits
//! of the machine), [`wan`] and [`lan`] (capacity of [`emulated`] networks),
//! `quorate_node::log_service` with its frames (the stateless service run by `quorate bench log`),
//! and [`introduction`] (status of a running service). [`run`] starts nodes and combines all of
//! this. Published experiments and their figures are in `bench-compare/papers`, which uses this
//! crate.
#![forbid(unsafe_code)]

mod by_frames;
pub mod connection;
pub mod device;
pub mod doctor;
pub mod door;
pub mod emulated;
pub mod environment;
pub mod fault;
pub mod figure;
pub mod generator;
pub mod lan;
pub mod life;
pub mod listener;
pub mod load;
pub mod probe;
pub mod protocol;
pub mod repetition;
pub mod report;
pub mod row;
pub mod run;
pub mod samples;
pub mod schedule;
pub mod stream;
pub mod wan;

pub use quorate_admin::problem;
pub use quorate_node::log_service::{self, frames, introduction};
