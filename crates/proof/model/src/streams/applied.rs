//! Streams as one node applies them from the decided log, with the production table.

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

/// A table of streams, and the slot up to which it has been applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    to: Slot,
    table: Table,
    /// Executed commands. A session executes each command once ([session-2]).
    done: BTreeSet<Value>,
}

/// Hashes only the end of the applied slots. The state follows from the decided values, which the
/// hash of a world includes.
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

/// Effect of an applied slot on streams.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// Byte that the slot appended to a stream.
    pub appended: Option<(StreamName, u64)>,
    /// Stream of content that was not appended.
    pub skipped: Option<StreamName>,
    pub reply: Option<Reply>,
    /// Inner streams that ended, each with its end.
    pub closed: Vec<(StreamName, u64)>,
}

impl Applied {
    pub fn to(&self) -> Slot {
        self.to
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Applies the value decided in the next slot.
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
            Value::CloseStream(stream) => self.table.close_inner(stream),
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
