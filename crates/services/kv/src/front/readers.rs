//! Clients of this node that wait for entries of streams (XREAD, XREADGROUP).
//!
//! A client waits at its node, not in the replicated queue ([decision 34]): an entry is not taken by
//! being read, and the log decides between two consumers. A change of a stream that this node
//! executes makes its clients try again.
//!
//! [decision 34]: ../../../../../../docs/decisions/0034-streams-are-rows.md

use std::collections::{BTreeMap, BTreeSet};

use quorate_replica::front::{ConnectionId, Tag};

use super::{
    asked::Freshness,
    waiting::{Asker, UnblockReply},
};
use crate::commands::stream::waiting::Wanted;

/// Interval at which clients try again without a change: a key may have got another type, and an
/// attempt may have failed.
const RETRY_MS: u64 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Earlier requests of the connection are unanswered.
    New,
    /// An attempt is in flight.
    Trying(Tag),
    Waiting,
}

/// End of a wait, once no attempt is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Timeout,
    Unblocked(UnblockReply, Asker),
}

#[derive(Debug)]
pub(super) struct Reader {
    pub(super) connection: ConnectionId,
    /// Number of the request on its connection.
    pub(super) place: u64,
    pub(super) command: Vec<u8>,
    pub(super) fresh: Freshness,
    pub(super) keys: Box<[Box<[u8]>]>,
    /// Group whose entries the client takes; `None` for XREAD.
    pub(super) group: Option<Box<[u8]>>,
    /// The first attempt is not complete.
    pub(super) first: bool,
    /// Maximum number of entries per attempt.
    pub(super) count: u64,
    until_ms: Option<u64>,
    pub(super) stage: Stage,
    /// The stream changed during the attempt in flight.
    changed: bool,
    pub(super) end: Option<End>,
}

/// Clients of this node that wait for entries.
#[derive(Debug, Default)]
pub(super) struct Readers {
    last: u64,
    readers: BTreeMap<u64, Reader>,
    /// Numbers of the clients of each key, in order of arrival.
    lines: BTreeMap<Box<[u8]>, BTreeSet<u64>>,
    /// Timeouts in Unix milliseconds, with numbers.
    timeouts: BTreeSet<(u64, u64)>,
    /// Keys whose clients have to try again.
    changed: BTreeSet<Box<[u8]>>,
    /// Clients whose wait has to end.
    ending: Vec<(u64, End)>,
    /// Senders of CLIENT UNBLOCK whose client stopped waiting by itself.
    too_late: Vec<Asker>,
    retry_at_ms: u64,
}

impl Readers {
    /// Adds a client. Returns its number; `None` if the command does not block.
    pub(super) fn enter(
        &mut self,
        (connection, place): (ConnectionId, u64),
        command: &[u8],
        fresh: Freshness,
        now_ms: u64,
    ) -> Option<u64> {
        let wanted = Wanted::decode(command)?;
        self.last += 1;
        let number = self.last;
        for key in wanted.keys {
            self.lines.entry(key.bytes().into()).or_default().insert(number);
        }
        let until_ms = (wanted.block_ms > 0).then(|| now_ms.saturating_add(wanted.block_ms));
        self.timeouts.extend(until_ms.map(|until| (until, number)));
        let reader = Reader {
            connection,
            place,
            command: command.to_vec(),
            fresh,
            keys: wanted.keys.map(|key| key.bytes().into()).collect(),
            group: wanted.group.map(Box::from),
            first: true,
            count: wanted.count,
            until_ms,
            stage: Stage::New,
            changed: false,
            end: None,
        };
        self.readers.insert(number, reader);
        Some(number)
    }

    pub(super) fn leave(&mut self, number: u64) -> Option<Reader> {
        let reader = self.readers.remove(&number)?;
        for key in &reader.keys {
            if let Some(line) = self.lines.get_mut(key) {
                line.remove(&number);
                if line.is_empty() {
                    self.lines.remove(key);
                    self.changed.remove(key);
                }
            }
        }
        if let Some(until) = reader.until_ms {
            self.timeouts.remove(&(until, number));
        }
        if let Some(End::Unblocked(_, asker)) = reader.end {
            self.too_late.push(asker);
        }
        Some(reader)
    }

    pub(super) fn get(&self, number: u64) -> Option<&Reader> {
        self.readers.get(&number)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Reader> {
        self.readers.get_mut(&number)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.readers.is_empty()
    }

    pub(super) fn take_too_late(&mut self) -> Vec<Asker> {
        std::mem::take(&mut self.too_late)
    }

    pub(super) fn len(&self) -> usize {
        self.readers.len()
    }

    /// Returns the number of the client of a connection.
    pub(super) fn number_of(&self, connection: ConnectionId) -> Option<u64> {
        let mut readers = self.readers.iter();
        readers.find(|(_, reader)| reader.connection == connection).map(|(number, _)| *number)
    }

    /// Records that this node has changed a stream, or removed a key.
    pub(super) fn note_changed(&mut self, key: &[u8]) {
        if self.lines.contains_key(key) {
            self.changed.insert(key.into());
        }
    }

    pub(super) fn note_all_changed(&mut self) {
        self.changed.extend(self.lines.keys().cloned());
    }

    /// Requests the end of a wait.
    pub(super) fn end(&mut self, number: u64, end: End) {
        self.ending.push((number, end));
    }

    /// Returns the clients whose wait has to end by now, and how.
    pub(super) fn take_ending(&mut self, now_ms: u64) -> Vec<(u64, End)> {
        while let Some(&(until, number)) = self.timeouts.first()
            && until <= now_ms
        {
            self.timeouts.pop_first();
            self.ending.push((number, End::Timeout));
        }
        std::mem::take(&mut self.ending)
    }

    /// Returns the keys whose clients have to try again now.
    pub(super) fn take_changed(&mut self, now_ms: u64) -> BTreeSet<Box<[u8]>> {
        // The clock may have been set back.
        self.retry_at_ms = self.retry_at_ms.min(now_ms + RETRY_MS);
        if self.retry_at_ms <= now_ms && !self.is_empty() {
            self.retry_at_ms = now_ms + RETRY_MS;
            self.note_all_changed();
        }
        std::mem::take(&mut self.changed)
    }

    /// Returns the clients of a key, in order of arrival.
    pub(super) fn line(&self, key: &[u8]) -> Vec<u64> {
        self.lines.get(key).into_iter().flatten().copied().collect()
    }

    /// Records an attempt in vain. The client tries again at the next change.
    pub(super) fn wait_on(&mut self, number: u64) {
        let Some(reader) = self.readers.get_mut(&number) else {
            return;
        };
        reader.stage = Stage::Waiting;
        reader.first = false;
        if std::mem::take(&mut reader.changed) {
            self.changed.extend(reader.keys.iter().cloned());
        }
        if let Some(end) = reader.end.take() {
            self.ending.push((number, end));
        }
    }

    /// Makes the other clients of a reader's keys try again: it may have left entries.
    pub(super) fn pass_on(&mut self, reader: &Reader) {
        for key in &reader.keys {
            self.note_changed(key);
        }
    }

    /// Records that the stream of a client with an attempt in flight has changed.
    pub(super) fn note_during_attempt(&mut self, number: u64) {
        if let Some(reader) = self.readers.get_mut(&number) {
            reader.changed = true;
        }
    }

    /// Returns whether there is work to do at once.
    pub(super) fn is_eager(&self) -> bool {
        !self.changed.is_empty() || !self.ending.is_empty() || !self.too_late.is_empty()
    }

    /// Returns the time of the next action in Unix milliseconds.
    pub(super) fn wake_ms(&self) -> Option<u64> {
        let end = self.timeouts.first().map(|(until, _)| *until);
        let retry = (!self.is_empty()).then_some(self.retry_at_ms);
        end.into_iter().chain(retry).min()
    }
}
