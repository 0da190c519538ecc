//! The replicated key-value service and its Redis front.
//!
//! A client's bytes become arguments ([`resp::request`]), arguments become the bytes of a
//! replicated command or of a query ([`command`], [`op`], [`commands`]), the log orders commands,
//! and every node executes them on its [`store`] ([`service`]). The reply travels in a form that
//! belongs to no protocol version ([`resp::reply`]) and is rendered by the [`front`] for the
//! connection that asked. Read in that order.
//!
//! Three rules hold everywhere:
//! - apply code reads no clock: deadlines are absolute and the front computes them;
//! - a key exists until the group's time, which is in the log, reaches its deadline ([`store`]), so
//!   two nodes never disagree; removing it then is housekeeping ([`expiry`]);
//! - whatever limits a reply or a value is a constant or travels inside the command, so that it
//!   is equal on every node.
#![forbid(unsafe_code)]

pub mod command;
pub mod commands;
pub mod encode;
pub mod expiry;
pub mod front;
pub mod glob;
pub mod key;
pub mod op;
pub mod resp;
pub mod scripts;
pub mod service;
pub mod store;
pub mod waits;
