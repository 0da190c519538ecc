//! The bytes of values: those that are here, and those that are asked of peers.

pub(crate) mod fetches;
pub(crate) mod payloads;
