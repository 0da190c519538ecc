//! Parts shared by tests and measurements: node processes, network namespaces, small clients,
//! resource usage of processes.
//!
//! It knows the command line and the first line of `quorate start`, and nothing of how a node
//! works. Reading order: [`process`] (one node), [`nodes`] (a cluster), [`interrupt`] (clean-up),
//! [`namespace`], [`network`] and [`segment`] (machines of their own, cut and slow links), [`resp`]
//! and [`etcd`] (clients that never repeat anything), [`trust`] (their certificate), [`trial`]
//! (recording clients under faults), [`writers`] (whose writes are compared afterwards), [`queues`]
//! (lists whose elements are taken once, in order), [`replace`] (newcomers replace old nodes),
//! [`played`] (simulated nodes of byte streams), [`stream_bytes`], [`stream_load`] and
//! [`stream_history`] (clients of byte streams that record what they saw, and a judge of it),
//! [`asked`] (a replica for fronts that are tested alone), [`page`] (the commands of a page for
//! operators), [`wait`], [`run`], [`usage`], [`cpus`], [`machine`].
#![deny(unsafe_code)] // One exception: `relay::device` says why.

pub mod asked;
pub mod cpus;
pub mod etcd;
pub mod interrupt;
pub mod machine;
pub mod namespace;
pub mod network;
pub mod nodes;
pub mod page;
pub mod played;
pub mod process;
pub mod queues;
pub mod relay;
pub mod replace;
pub mod resp;
pub mod segment;
pub mod stream_bytes;
pub mod stream_history;
pub mod stream_load;
pub mod trial;
pub mod trust;
pub mod usage;
pub mod wait;
pub mod writers;

pub use quorate_admin::progress::line as progress;
pub use quorate_shell::programs as run;
