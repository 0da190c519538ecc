//! The replicated log of values: commands, retained values, the state machine and its readers.

pub mod command;
pub mod machine;
pub mod retained;
pub mod shared;
