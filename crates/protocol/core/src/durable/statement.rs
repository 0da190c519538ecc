//! Statements that a node may make only once their record has the durability class that they claim.

use crate::message::{Phase1b, Phase2b};

/// A statement that may leave this node, because its record has the class that the statement
/// claims.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Durable<T>(T);

impl<T> Durable<T> {
    /// Wraps a statement whose record has the class that it claims. Only
    /// [`super::PendingStatements`] calls this.
    pub(super) fn released(statement: T) -> Self {
        Self(statement)
    }

    /// Returns the statement, which may now be sent.
    pub(crate) fn into_inner(self) -> T {
        self.0
    }
}

/// A statement that must be wrapped in [`Durable`] before it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Statement {
    /// A phase-1 promise.
    Promise(Phase1b),
    /// A phase-2 vote.
    Vote(Phase2b),
}
