//! The service and the front as a client sees them, on both stores.

#![allow(clippy::unwrap_used, reason = "a test may stop where it is surprised")]
mod access;
mod commands;
mod common;
mod differential;
mod expiry;
mod extremes;
mod failing;
mod formats;
mod images;
mod locks;
mod lsm;
mod order;
mod parser;
mod power;
mod sessions;
mod transactions;
