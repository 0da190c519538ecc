//! Statements parked until their record is on disk. Only this file can release one.

use alloc::{collections::VecDeque, vec::Vec};

use crate::{
    ballot::Ballot,
    message::{Phase1b, Phase2b},
    node_id::NodeId,
    record::RecordSeq,
    slot::Slot,
};

/// A statement that may leave this node: the record behind it has the class that it claims.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Durable<T>(T);

impl<T> Durable<T> {
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
