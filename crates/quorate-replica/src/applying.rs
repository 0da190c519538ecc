//! Decided values on their way into the service.

pub(crate) mod applier;
pub(crate) mod digest;
pub(crate) mod health;
pub mod sessions;
