//! The admin interface of a node: the server behind `--admin`, its documents, and the client of the
//! commands.
//!
//! Reading order: [`view`], [`traffic`] and [`tuning`] (status of a node and its tuner), [`error`]
//! (refusals), [`joining`] (requests to join), [`reaching`] (tests of `quorate doctor`), [`client`]
//! and [`look`] (requests to one node, or to all), [`units`] and [`progress`] (figures, and the
//! progress of a command); `server` answers, and has `server::page` for pages in a browser. It is a
//! feature: clients need no runtime.
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
