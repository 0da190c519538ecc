//! The replicated log of values: commands, what is held, the state machine, and who reads it.

pub mod command;
pub mod machine;
pub mod retained;
pub mod shared;
