//! Linearizable reads, and the probe that tries one.

pub(crate) mod confirmations;
pub(crate) mod probe;
