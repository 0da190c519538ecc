//! Blocking commands: the client that gets an element, the time at which it does, and clients that
//! disconnect.

pub(crate) mod group;
mod lines;
mod replies;
mod unblock;
