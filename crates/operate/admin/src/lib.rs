//! The admin interface of a node: the server behind `--admin`, its documents, and their client.
//!
//! Reading order: [`view`], [`traffic`] and [`tuning`] (status of a node and its tuner), [`error`]
//! (errors), [`joining`] (requests to join), [`reaching`] (tests of `quorate doctor`), [`client`]
//! and [`look`] (requests to one node, or to all), [`units`] and [`progress`] (formatted figures,
//! and the progress of a command). `server` handles the requests, and `server::page` serves pages
//! to a browser. The server is a feature, because clients need no async runtime.
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
pub mod quorum;
pub mod reaching;
pub mod scrub;
#[cfg(feature = "server")]
pub mod server;
pub mod traffic;
pub mod tuning;
pub mod units;
pub mod users;
pub mod view;
