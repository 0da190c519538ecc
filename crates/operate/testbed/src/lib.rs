//! Code shared by tests and measurements: node processes, network namespaces, small clients,
//! resource usage of processes.
//!
//! The crate knows the command line and the first output line of `quorate start`, but nothing about
//! how a node works. Reading order: [`process`] (one node), [`nodes`] (a cluster), [`interrupt`]
//! (clean-up), [`namespace`], [`network`] and [`segment`] (a namespace per node, cut and slow
//! links), [`resp`] and [`etcd`] (clients that never retry), [`trust`] (their certificate),
//! [`trial`] (recording clients under faults), [`writers`] (writers whose data is compared
//! afterwards), [`queues`] (lists whose elements are taken once, in order), [`replace`]
//! (replacement of nodes), [`played`] (simulated nodes of byte streams), [`stream_bytes`],
//! [`stream_load`] and [`stream_history`] (recording clients of byte streams, and a checker of
//! their history), [`asked`] (a fake replica for tests of frontends), [`page`] (the commands of a
//! documentation page), [`wait`], [`run`], [`usage`], [`cpus`], [`machine`].
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

pub use quorate_admin::progress::write_line as progress;
pub use quorate_shell::programs as run;
