//! Clients of this node that wait for entries of streams (XREAD, XREADGROUP).
//!
//! A client waits at its node, not in the replicated queue ([decision 34]): an entry is not taken
//! by being read, and the log decides between two consumers. A change of a stream that this node
//! executes makes its clients try again.
//!
//! [decision 34]: ../../../../../../docs/decisions/0034-streams-are-rows.md

use std::collections::{BTreeMap, BTreeSet};

use quorate_replica::front::{ConnectionId, Tag};

use super::{
    asked::Freshness,
    waiting::{UnblockReply, UnblockSender},
};
use crate::{commands::stream::waiting::AwaitedEntries, store::Database, waits::Place};

/// Interval at which consumers try again without a change: their key may have got another type.
const GROUPS_RETRY_MS: u64 = 1000;
/// Interval at which readers try again without a change, in case their node's state could not be
/// read.
const READERS_RETRY_MS: u64 = 5000;

/// Name of a group.
type Name = Box<[u8]>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReaderStage {
    /// Earlier requests of the connection are unanswered.
    New,
    /// An attempt is in flight.
    Attempting(Tag),
    Waiting,
}

/// End of a wait, once no attempt is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitEnd {
    Timeout,
    Unblocked(UnblockReply, UnblockSender),
}

#[derive(Debug)]
pub(super) struct Reader {
    pub(super) connection: ConnectionId,
    /// Number of the request on its connection.
    pub(super) request_number: u64,
    /// Encoded command without the prefix of its database.
    pub(super) command: Vec<u8>,
    pub(super) database: Database,
    pub(super) freshness: Freshness,
    pub(super) keys: Box<[Place]>,
    /// Group whose entries the client takes; `None` for XREAD.
    pub(super) group: Option<Box<[u8]>>,
    /// The first attempt is not complete.
    pub(super) first: bool,
    /// Maximum number of entries per attempt.
    pub(super) count: u64,
    until_ms: Option<u64>,
    stage: ReaderStage,
    /// The stream changed during the attempt in flight.
    stream_changed: bool,
    pub(super) end: Option<WaitEnd>,
}

impl Reader {
    pub(super) const fn stage(&self) -> ReaderStage {
        self.stage
    }
}

/// Clients of one key.
#[derive(Debug, Default)]
struct KeyReaders {
    /// Clients with an XREAD.
    readers: BTreeSet<u64>,
    groups: BTreeMap<Box<[u8]>, GroupConsumers>,
}

/// Clients of one group, in order of arrival.
#[derive(Debug, Default)]
struct GroupConsumers {
    all: BTreeSet<u64>,
    waiting: BTreeSet<u64>,
    /// Clients with an attempt in flight.
    attempting: BTreeSet<u64>,
}

/// Clients of this node that wait for entries.
#[derive(Debug, Default)]
pub(super) struct Readers {
    last: u64,
    readers: BTreeMap<u64, Reader>,
    lines: BTreeMap<Place, KeyReaders>,
    /// Timeouts in Unix milliseconds, with numbers.
    timeouts: BTreeSet<(u64, u64)>,
    /// Keys whose clients have to try again.
    changed_keys: BTreeSet<Place>,
    /// Clients with an XREAD that have to try again.
    retries: BTreeSet<u64>,
    /// Clients whose wait has to end.
    ended_waits: Vec<(u64, WaitEnd)>,
    /// Senders of CLIENT UNBLOCK whose client stopped waiting by itself.
    late_unblocks: Vec<UnblockSender>,
    groups_at_ms: u64,
    readers_at_ms: u64,
}

impl Readers {
    /// Adds a client. Returns its number; `None` if the command does not block.
    pub(super) fn add_reader(
        &mut self,
        (connection, place): (ConnectionId, u64),
        command: &[u8],
        (database, fresh): (Database, Freshness),
        now_ms: u64,
    ) -> Option<u64> {
        let wanted = AwaitedEntries::decode(command)?;
        self.last += 1;
        let number = self.last;
        let until_ms = (wanted.block_ms > 0).then(|| now_ms.saturating_add(wanted.block_ms));
        self.timeouts.extend(until_ms.map(|until| (until, number)));
        let reader = Reader {
            connection,
            request_number: place,
            command: command.to_vec(),
            database,
            freshness: fresh,
            keys: wanted.keys.map(|key| (database, key.bytes().into())).collect(),
            group: wanted.group.map(Box::from),
            first: true,
            count: wanted.count,
            until_ms,
            stage: ReaderStage::New,
            stream_changed: false,
            end: None,
        };
        for key in &reader.keys {
            let line = self.lines.entry(key.clone()).or_default();
            match &reader.group {
                None => line.readers.insert(number),
                Some(group) => line.groups.entry(group.clone()).or_default().all.insert(number),
            };
        }
        self.readers.insert(number, reader);
        Some(number)
    }

    pub(super) fn remove_reader(&mut self, number: u64) -> Option<Reader> {
        let reader = self.readers.remove(&number)?;
        for key in &reader.keys {
            let Some(line) = self.lines.get_mut(key) else {
                continue;
            };
            if let Some(group) = &reader.group {
                if let Some(consumers) = line.groups.get_mut(group) {
                    consumers.all.remove(&number);
                    consumers.waiting.remove(&number);
                    consumers.attempting.remove(&number);
                    if consumers.all.is_empty() {
                        line.groups.remove(group);
                    }
                }
            } else {
                line.readers.remove(&number);
            }
            if line.readers.is_empty() && line.groups.is_empty() {
                self.lines.remove(key);
                self.changed_keys.remove(key);
            }
        }
        self.retries.remove(&number);
        if let Some(until) = reader.until_ms {
            self.timeouts.remove(&(until, number));
        }
        if let Some(WaitEnd::Unblocked(_, asker)) = reader.end {
            self.late_unblocks.push(asker);
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

    pub(super) fn len(&self) -> usize {
        self.readers.len()
    }

    pub(super) fn take_late_unblocks(&mut self) -> Vec<UnblockSender> {
        std::mem::take(&mut self.late_unblocks)
    }

    /// Returns the number of the client of a connection.
    pub(super) fn reader_number(&self, connection: ConnectionId) -> Option<u64> {
        let mut readers = self.readers.iter();
        readers.find(|(_, reader)| reader.connection == connection).map(|(number, _)| *number)
    }

    pub(super) fn set_stage(&mut self, number: u64, stage: ReaderStage) {
        let Some(reader) = self.readers.get_mut(&number) else {
            return;
        };
        reader.stage = stage;
        let Some(group) = &reader.group else { return };
        for key in &reader.keys {
            let line = self.lines.get_mut(key);
            let Some(consumers) = line.and_then(|line| line.groups.get_mut(group)) else {
                continue;
            };
            consumers.waiting.remove(&number);
            consumers.attempting.remove(&number);
            match stage {
                ReaderStage::New => {}
                ReaderStage::Attempting(_) => drop(consumers.attempting.insert(number)),
                ReaderStage::Waiting => drop(consumers.waiting.insert(number)),
            }
        }
    }

    /// Records an attempt in vain. The client tries again at the next change.
    pub(super) fn record_vain_attempt(&mut self, number: u64) {
        self.set_stage(number, ReaderStage::Waiting);
        let Some(reader) = self.readers.get_mut(&number) else {
            return;
        };
        reader.first = false;
        if std::mem::take(&mut reader.stream_changed) {
            match reader.group {
                None => drop(self.retries.insert(number)),
                Some(_) => self.changed_keys.extend(reader.keys.iter().cloned()),
            }
        }
        if let Some(end) = reader.end.take() {
            self.ended_waits.push((number, end));
        }
    }

    /// Records that this node has changed a stream, or removed a key.
    pub(super) fn note_changed(&mut self, database: Database, key: &[u8]) {
        self.note_place_changed(&(database, key.into()));
    }

    fn note_place_changed(&mut self, place: &Place) {
        if self.lines.contains_key(place) && !self.changed_keys.contains(place) {
            self.changed_keys.insert(place.clone());
        }
    }

    pub(super) fn note_all_changed(&mut self) {
        self.changed_keys.extend(self.lines.keys().cloned());
    }

    /// Makes the other clients of a consumer's keys try again: it may have left entries.
    pub(super) fn retry_other_readers(&mut self, reader: &Reader) {
        if reader.group.is_some() {
            reader.keys.iter().for_each(|key| self.note_place_changed(key));
        }
    }

    /// Requests the end of a wait.
    pub(super) fn end(&mut self, number: u64, end: WaitEnd) {
        self.ended_waits.push((number, end));
    }

    /// Returns the clients whose wait has to end by now, and how.
    pub(super) fn take_ended_waits(&mut self, now_ms: u64) -> Vec<(u64, WaitEnd)> {
        while let Some(&(until, number)) = self.timeouts.first()
            && until <= now_ms
        {
            self.timeouts.pop_first();
            self.ended_waits.push((number, WaitEnd::Timeout));
        }
        std::mem::take(&mut self.ended_waits)
    }

    /// Makes clients try again that have to do so without a change.
    pub(super) fn note_time(&mut self, now_ms: u64) {
        // The clock may have been set back.
        self.groups_at_ms = self.groups_at_ms.min(now_ms + GROUPS_RETRY_MS);
        self.readers_at_ms = self.readers_at_ms.min(now_ms + READERS_RETRY_MS);
        if self.is_empty() || self.groups_at_ms > now_ms {
            return;
        }
        self.groups_at_ms = now_ms + GROUPS_RETRY_MS;
        let lines = self.lines.iter().filter(|(_, line)| !line.groups.is_empty());
        self.changed_keys.extend(lines.map(|(key, _)| key.clone()));
        if self.readers_at_ms <= now_ms {
            self.readers_at_ms = now_ms + READERS_RETRY_MS;
            let readers = self.readers.iter().filter(|(_, reader)| reader.group.is_none());
            self.retries.extend(readers.map(|(number, _)| *number));
        }
    }

    /// Takes a key whose clients have to try again. Its readers are among those of
    /// [`Self::take_retry`] from now on. Returns the groups that clients wait for.
    pub(super) fn take_changed_key(&mut self) -> Option<(Place, Vec<Name>)> {
        let key = self.changed_keys.pop_first()?;
        let Some(line) = self.lines.get(&key) else {
            return Some((key, Vec::new()));
        };
        self.retries.extend(&line.readers);
        for consumers in line.groups.values() {
            for number in &consumers.attempting {
                if let Some(reader) = self.readers.get_mut(number) {
                    reader.stream_changed = true;
                }
            }
        }
        let groups = line.groups.iter().filter(|(_, consumers)| !consumers.waiting.is_empty());
        let groups = groups.map(|(group, _)| group.clone()).collect();
        Some((key, groups))
    }

    /// Takes a client with an XREAD that waits and has to try again.
    pub(super) fn take_retry(&mut self) -> Option<u64> {
        loop {
            let number = self.retries.pop_first()?;
            match self.readers.get_mut(&number) {
                Some(Reader { stage: ReaderStage::Waiting, .. }) => return Some(number),
                Some(reader) => reader.stream_changed = true,
                None => {}
            }
        }
    }

    /// Returns the consumer of a group that has waited longest, unless those with attempts in
    /// flight may take all of `entries` entries (`u64::MAX`: all may try), or are `most` already.
    pub(super) fn next_consumer(
        &self,
        key: &Place,
        group: &[u8],
        entries: u64,
        most: usize,
    ) -> Option<u64> {
        let consumers = self.lines.get(key)?.groups.get(group)?;
        let counts = consumers.attempting.iter().filter_map(|number| self.readers.get(number));
        let taken = counts.fold(0, |sum: u64, reader| sum.saturating_add(reader.count));
        let next = consumers.waiting.first().copied();
        let some_are_left = entries == u64::MAX || taken < entries;
        next.filter(|_| some_are_left && consumers.attempting.len() < most)
    }

    /// Returns whether there is work to do at once.
    pub(super) fn is_eager(&self) -> bool {
        !self.changed_keys.is_empty()
            || !self.retries.is_empty()
            || !self.ended_waits.is_empty()
            || !self.late_unblocks.is_empty()
    }

    /// Returns the time of the next action in Unix milliseconds.
    pub(super) fn wake_ms(&self) -> Option<u64> {
        let end = self.timeouts.first().map(|(until, _)| *until);
        let retry = (!self.is_empty()).then_some(self.groups_at_ms);
        end.into_iter().chain(retry).min()
    }
}
