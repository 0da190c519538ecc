//! Streams as one node applies them from the decided log, with the production table.

use std::{
    collections::BTreeSet,
    hash::{Hash, Hasher},
};

use quorate_core::{
    slot::{Slot, SlotRange},
    value::{StreamName, Value},
};
use quorate_stream::{InnerStreamChange, Reply, Table};

use crate::streams::{clients::StreamClients, stream_position};

/// A table of streams, and the slot up to which it has been applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedStreams {
    applied_to: Slot,
    table: Table,
    /// Executed commands. A session executes each command once ([session-2]).
    executed_commands: BTreeSet<Value>,
}

/// Hashes only the end of the applied slots. The state follows from the decided values, which the
/// hash of a world includes.
impl Hash for AppliedStreams {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.applied_to.hash(state);
    }
}

impl Default for AppliedStreams {
    fn default() -> Self {
        Self {
            applied_to: Slot::FIRST,
            table: Table::default(),
            executed_commands: BTreeSet::new(),
        }
    }
}

/// Effect of an applied slot on streams.
#[derive(Clone, Debug, Default)]
pub struct AppliedEffect {
    /// Byte that the slot appended to a stream.
    pub appended_byte: Option<(StreamName, u64)>,
    /// Stream of content that was not appended.
    pub skipped_stream: Option<StreamName>,
    pub reply: Option<Reply>,
    /// Inner streams that ended, each with its end.
    pub closed_streams: Vec<(StreamName, u64)>,
}

impl AppliedStreams {
    pub fn applied_to(&self) -> Slot {
        self.applied_to
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Applies the value decided in the next slot.
    pub fn apply(&mut self, value: &Value, clients: &StreamClients) -> AppliedEffect {
        let slot = self.applied_to;
        let mut done = AppliedEffect::default();
        match *value {
            Value::Content { stream, offset } => {
                let appended = self.table.append(stream, offset, SlotRange::one(slot));
                match appended.is_empty() {
                    true => done.skipped_stream = Some(stream),
                    false => done.appended_byte = Some((stream, stream_position(offset, slot))),
                }
            }
            Value::CloseStream(stream) => self.table.close_inner(stream),
            Value::Batch(_) if self.executed_commands.insert(*value) => {
                let command = clients.command(value);
                done.reply = command.map(|command| self.table.execute(slot, command));
            }
            _ => {}
        }
        while let Some(change) = self.table.next_change() {
            if let InnerStreamChange::Closed { stream, end } = change {
                done.closed_streams.push((stream, end));
            }
        }
        self.applied_to = slot.next();
        done
    }
}
