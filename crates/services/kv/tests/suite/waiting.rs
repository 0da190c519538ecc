//! Blocking commands: which client gets an element, timeouts, and disconnected clients.

mod entries;
pub(crate) mod group;
mod lines;
mod replies;
mod unblock;
