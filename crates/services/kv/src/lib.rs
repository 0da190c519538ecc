//! The replicated key-value service and its Redis front.
//!
//! A client's bytes are parsed into arguments ([`resp::request`]), arguments are encoded as a
//! replicated command or a query ([`command`], [`op`], [`commands`]), the log orders commands, and
//! every node executes them on its [`store`] ([`service`]). The reply has a form independent of the
//! protocol version ([`resp::reply`]) and is rendered by the [`front`] for the client's connection.
//! Read in that order.
//!
//! Three rules hold everywhere:
//! - apply code reads no clock: deadlines are absolute, and the front computes them;
//! - a key exists until the group's time, which is in the log, reaches its deadline ([`store`]), so
//!   nodes always agree; its removal is mere housekeeping ([`expiry`]);
//! - every limit of a reply or a value is a constant or part of the command, so that it is equal on
//!   every node.
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
