//! Command families: client commands, and the operations that every node executes for them.

use crate::{
    command::Spec,
    commands::state::{ReadContext, WriteContext},
    encode::{Decoder, Fault},
    op::Op,
    resp::reply::Reply,
};

/// A family of related commands.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Commands of clients.
    pub commands: &'static [Spec],
    /// Operations that nodes execute.
    pub operations: &'static [Operation],
}

/// Function that executes a read-only operation, given its arguments, the data and the reply.
pub type Read = fn(&mut Decoder<'_>, &ReadContext<'_>, &mut Reply<'_>) -> Result<(), Fault>;
/// Function that executes an operation with changes.
pub type Write = fn(&mut Decoder<'_>, &mut WriteContext<'_>, &mut Reply<'_>) -> Result<(), Fault>;

/// Function that executes an operation.
#[derive(Clone, Copy, Debug)]
pub enum Run {
    /// Reads only.
    Read(Read),
    /// May write.
    Write(Write),
}

/// An operation with its function.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub(super) op: Op,
    pub(super) run: Run,
}

impl Operation {
    /// Creates a read-only operation.
    pub const fn read(op: Op, run: Read) -> Self {
        assert!(op.is_read(), "a write");
        Self { op, run: Run::Read(run) }
    }

    /// Creates an operation that may write.
    pub const fn write(op: Op, run: Write) -> Self {
        assert!(!op.is_read(), "a read");
        Self { op, run: Run::Write(run) }
    }
}
