//! Blocking commands: which client gets an element and when, and clients that disconnect.

pub(crate) mod group;
mod lines;
mod replies;
mod unblock;
