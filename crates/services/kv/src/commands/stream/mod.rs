//! Streams: client commands and their encoding. `rows` says how a stream is stored.

pub(super) mod rows;
pub mod waiting;

use crate::{
    commands::family::{Family, Operation},
    op::Op,
};

pub const FAMILY: Family = Family {
    commands: COMMANDS,
    operations: &[Operation::read(Op::XUndelivered, waiting::undelivered)],
};

const COMMANDS: &[crate::command::Spec] = &[];
