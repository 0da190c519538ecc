//! A family of commands: what clients can ask for, and what every node does for each operation.

use crate::{
    command::Spec,
    commands::state::{Reading, Writing},
    encode::{Decoder, Fault},
    op::Op,
    resp::reply::Reply,
};

/// Commands that belong together.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Commands of clients.
    pub commands: &'static [Spec],
    /// Operations that nodes execute.
    pub operations: &'static [Operation],
}

/// Executes a read-only operation, given its arguments, the data and the reply.
pub type Read = fn(&mut Decoder<'_>, &Reading<'_>, &mut Reply<'_>) -> Result<(), Fault>;
/// Executes an operation that changes something.
pub type Write = fn(&mut Decoder<'_>, &mut Writing<'_>, &mut Reply<'_>) -> Result<(), Fault>;

/// Function that executes an operation.
#[derive(Clone, Copy, Debug)]
pub enum Run {
    /// Changes nothing.
    Read(Read),
    /// May change something.
    Write(Write),
}

/// An operation, and what it does.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub(super) op: Op,
    pub(super) run: Run,
}

impl Operation {
    /// Creates an operation that changes nothing.
    pub const fn read(op: Op, run: Read) -> Self {
        assert!(op.is_read(), "a write");
        Self { op, run: Run::Read(run) }
    }

    /// Creates an operation that may change something.
    pub const fn write(op: Op, run: Write) -> Self {
        assert!(!op.is_read(), "a read");
        Self { op, run: Run::Write(run) }
    }
}
