//! What operators ask of a node, and what it answers: the server behind `--admin`, the documents,
//! and the client of the commands.
//!
//! Reading order: [`view`], [`traffic`] and [`tuning`] (what a node and its tuner say of
//! themselves), [`error`] (what is said instead), [`joining`] (what nodes say that join),
//! [`reaching`] (what `quorate doctor` asks), [`client`] and [`look`] (asking one node, or all of
//! them), [`units`] and [`progress`] (how figures look, and how far a command is); `server`
//! answers, and has `server::page` for pages in a browser. It is a feature: what only asks needs no
//! runtime.
#![forbid(unsafe_code)]

pub mod certificates;
pub mod client;
pub mod error;
pub mod joining;
pub mod level;
pub mod look;
pub mod members;
pub mod problem;
pub mod progress;
pub mod reaching;
pub mod scrub;
#[cfg(feature = "server")]
pub mod server;
pub mod traffic;
pub mod tuning;
pub mod units;
pub mod users;
pub mod view;
