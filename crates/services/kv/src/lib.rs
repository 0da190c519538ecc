//! Replicated key-value service with a Redis front end.
//!
//! A client's bytes are parsed into arguments ([`resp::request`]), which are encoded as a
//! replicated command or a query ([`command`], [`op`], [`commands`]). The log orders the commands,
//! and every node executes them on its [`store`] ([`service`]). Replies have a form independent of
//! the protocol version ([`resp::reply`]); the [`front`] renders them for the client's connection.
//! Read the modules in that order.
//!
//! Three rules hold everywhere:
//! - apply code reads no clock: deadlines are absolute, and the front computes them;
//! - a key exists until the group's time, which is in the log, reaches its deadline ([`store`]), so
//!   nodes always agree; its removal is mere housekeeping ([`expiry`]);
//! - every limit on a reply or a value is a constant or part of the command, so it is equal on
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
