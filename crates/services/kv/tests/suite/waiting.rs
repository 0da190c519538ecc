//! Blocking commands: order of service, timeouts, and disconnected clients.

mod entries;
pub(crate) mod group;
mod lines;
mod replies;
mod unblock;
