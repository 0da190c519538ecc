//! Integration tests of `quorate-etcd`: a model, hostile bytes, and clients.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, reason = "tests")]

mod alarms;
mod asks;
mod auth;
mod budget;
mod clients;
mod common;
mod dice;
mod hashes;
mod hostile;
mod images;
mod import;
mod leases;
mod model;
mod random;
mod simulated;
mod sizes;
mod stores;
mod visits;
