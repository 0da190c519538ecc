//! Blocking commands: which client gets an element, in which order, and clients that are gone.

pub(crate) mod group;
mod lines;
mod replies;
mod unblock;
