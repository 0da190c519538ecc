//! What a node may say only once its record is as safe as it claims.

use crate::message::{Phase1b, Phase2b};

/// A statement that may leave this node: the record behind it has the class that it claims.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Durable<T>(T);

impl<T> Durable<T> {
    /// The record has its class. Nobody but [`super::Pending`] can say so.
    pub(super) fn released(statement: T) -> Self {
        Self(statement)
    }

    /// What may now be said.
    pub(crate) fn into_inner(self) -> T {
        self.0
    }
}

/// What only a [`Durable`] may say.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Statement {
    /// A promise.
    Promise(Phase1b),
    /// A vote.
    Vote(Phase2b),
}
