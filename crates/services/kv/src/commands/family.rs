//! Command families: related client commands, and the operations that every node executes for them.

use crate::{
    command::Spec,
    commands::state::{ReadContext, WriteContext},
    encode::{Decoder, Fault},
    op::Op,
    resp::reply::Reply,
};

#[derive(Clone, Copy, Debug)]
pub struct Family {
    pub commands: &'static [Spec],
    /// Operations that nodes execute for those commands.
    pub operations: &'static [Operation],
}

/// Function that executes a read-only operation on encoded arguments and data, and replies.
pub type Read = fn(&mut Decoder<'_>, &ReadContext<'_>, &mut Reply<'_>) -> Result<(), Fault>;
/// Function that executes an operation that may change data, and replies.
pub type Write = fn(&mut Decoder<'_>, &mut WriteContext<'_>, &mut Reply<'_>) -> Result<(), Fault>;

#[derive(Clone, Copy, Debug)]
pub enum Run {
    Read(Read),
    Write(Write),
}

#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub(super) op: Op,
    pub(super) run: Run,
}

impl Operation {
    pub const fn read(op: Op, run: Read) -> Self {
        assert!(op.is_read(), "a write");
        Self { op, run: Run::Read(run) }
    }

    pub const fn write(op: Op, run: Write) -> Self {
        assert!(!op.is_read(), "a read");
        Self { op, run: Run::Write(run) }
    }
}
