//! The log of this replica: what is appended to it, and what is read back.

pub(crate) mod reads;
