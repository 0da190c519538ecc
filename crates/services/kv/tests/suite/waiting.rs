//! Commands that wait for elements: who gets what, in which order, and what becomes of those who
//! are gone.

pub(crate) mod group;
mod lines;
mod replies;
mod unblock;
