//! Commands on their way to a slot: gathered, numbered as batches, offered to the leader.

pub(crate) mod batch;
pub(crate) mod forwarded;
pub(crate) mod gather;
mod in_flight;
pub(crate) mod origin;
mod registrations;
