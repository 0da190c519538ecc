//! Streams: client commands and their encoding. `rows` says how a stream is stored.

pub(super) mod rows;

use crate::commands::family::Family;

pub const FAMILY: Family = Family { commands: COMMANDS, operations: &[] };

const COMMANDS: &[crate::command::Spec] = &[];
