//! The tests of `quorate-cli` that stand outside of it: one program, a module for each subject.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

mod alerts;
mod backup;
mod bench;
mod classes;
mod clients;
mod commands;
mod commit;
mod common;
mod cut_off;
mod descriptors;
mod devices;
mod doctor;
#[cfg(feature = "etcd")]
mod etcd;
mod faults;
mod formats;
mod founding;
mod full_disk;
mod joining;
mod kubernetes;
mod leases;
mod manager;
mod manual;
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
mod tune;
mod upgrade;
mod users;
mod wan;
