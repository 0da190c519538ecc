//! Blocking commands: which client gets an element, in which order, and what happens to clients
//! that have disconnected.

pub(crate) mod group;
mod lines;
mod replies;
mod unblock;
