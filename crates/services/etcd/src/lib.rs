//! Service for clients of etcd v3.
//!
//! A request becomes a command of the log or a query ([`command`]), is validated before that
//! ([`check`]), and is executed by a state machine without sockets or clocks ([`service`]): access
//! rights ([`auth`]), and keys with all their revisions ([`mvcc`]), over an ordered store
//! ([`store`]). The [`front`] speaks gRPC, and asks the replica that is embedded in the same
//! process. The messages ([`proto`]) are those of `proto/*.proto`, made by `generate/`. Read in
//! that order.
//!
//! A small [`client`] is for programs of our own, and [`import`] imports data of etcd.
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
