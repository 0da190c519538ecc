//! Blocking commands: the client that gets an element, the time, and disconnected clients.

mod entries;
pub(crate) mod group;
mod lines;
mod replies;
mod unblock;
