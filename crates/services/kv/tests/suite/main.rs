//! The service and the front from a client's point of view, on both stores.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

mod access;
mod blind;
mod census;
mod clients;
mod commands;
mod common;
mod databases;
mod differential;
#[path = "../../../../../fuzz/driver.rs"]
mod driver;
mod events;
mod expiry;
mod extremes;
mod failing;
mod formats;
mod fuzz;
mod hot_path;
mod images;
mod keyspaces;
mod locks;
mod lsm;
mod messages;
mod monitor;
mod order;
mod page;
mod parser;
mod power;
mod renewal;
mod scripts;
mod sessions;
mod tallies;
mod topology;
mod tracking;
mod transactions;
mod types;
mod visits;
mod waiting;
