//! Streams as one node has applied them from the decided log: the production table.

use std::{
    collections::BTreeSet,
    hash::{Hash, Hasher},
};

use quorate_core::{
    slot::{Slot, SlotRange},
    value::{StreamName, Value},
};
use quorate_stream::{Change, Reply, Table};

use crate::streams::{clients::Clients, position};

/// A table, and how far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    to: Slot,
    table: Table,
    /// Commands that were executed: a session executes each once ([session-2]).
    done: BTreeSet<Value>,
}

/// Hashes only the position: the state follows from the decided values, which the hash of a world
/// covers too.
impl Hash for Applied {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.to.hash(state);
    }
}

impl Default for Applied {
    fn default() -> Self {
        Self { to: Slot::FIRST, table: Table::default(), done: BTreeSet::new() }
    }
}

/// Effect of a slot on streams.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// The byte that became part of one.
    pub appended: Option<(StreamName, u64)>,
    /// Content, none of which did.
    pub skipped: Option<StreamName>,
    /// The answer to a command.
    pub reply: Option<Reply>,
    /// Inner streams that ended, and where.
    pub closed: Vec<(StreamName, u64)>,
}

impl Applied {
    /// Slots below are applied.
    pub fn to(&self) -> Slot {
        self.to
    }

    /// Returns the table of streams.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Applies the value that the next slot decided.
    pub fn apply(&mut self, value: &Value, clients: &Clients) -> Done {
        let slot = self.to;
        let mut done = Done::default();
        match *value {
            Value::Content { stream, offset } => {
                let appended = self.table.append(stream, offset, SlotRange::one(slot));
                match appended.is_empty() {
                    true => done.skipped = Some(stream),
                    false => done.appended = Some((stream, position(offset, slot))),
                }
            }
            Value::CloseStream(stream) => self.table.close(stream),
            Value::Batch(_) if self.done.insert(*value) => {
                let command = clients.command(value);
                done.reply = command.map(|command| self.table.execute(slot, command));
            }
            _ => {}
        }
        while let Some(change) = self.table.next_change() {
            if let Change::Closed { stream, end } = change {
                done.closed.push((stream, end));
            }
        }
        self.to = slot.next();
        done
    }
}
