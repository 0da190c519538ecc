//! An etcd v3 service on a replicated log.
//!
//! A request is validated ([`check`]) and becomes a command of the log or a query ([`command`]),
//! which a state machine without sockets or clocks executes ([`service`]): access rights
//! ([`auth`]), and keys with all their revisions ([`mvcc`]), on an ordered store ([`store`]). The
//! [`front`] serves gRPC and uses the replica in the same process. The messages ([`proto`]) are
//! generated from `proto/*.proto` by `generate/`. This is also the reading order.
//!
//! A small [`client`] is for Quorate's own programs, and [`import`] imports data from etcd.
//!
//! Supported and missing features: `docs/etcd.md`.
#![forbid(unsafe_code)]

pub mod auth;
pub mod check;
pub mod client;
pub mod command;
pub mod front;
pub mod image;
pub mod import;
pub mod mvcc;
pub mod proto;
pub mod refusal;
pub mod service;
pub mod store;
