//! Integration tests of `quorate-cli`: one program with a module per subject.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

mod alerts;
mod backup;
mod classes;
mod clients;
mod commands;
mod common;
mod cut_off;
mod descriptors;
mod devices;
#[cfg(feature = "etcd")]
mod etcd;
mod faults;
mod formats;
mod founding;
mod full_disk;
mod import;
mod joining;
mod kubernetes;
mod leases;
mod log_lines;
mod manager;
mod members;
mod names;
mod operate;
mod operators;
mod poison;
mod replacing;
mod scrub;
mod snapshots;
mod stamp;
mod strangers;
mod stream;
mod stream_backup;
mod stream_kills;
mod streams;
mod top;
mod upgrade;
mod users;
