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

/// Interval at which consumers try again without a change: their key may have got another type.
const GROUPS_RETRY_MS: u64 = 1000;
/// Interval at which readers try again without a change, in case their node's state could not be
/// read.
const READERS_RETRY_MS: u64 = 5000;

/// Name of a key or a group.
type Name = Box<[u8]>;

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
    stage: Stage,
    /// The stream changed during the attempt in flight.
    changed: bool,
    pub(super) end: Option<End>,
}

impl Reader {
    pub(super) const fn stage(&self) -> Stage {
        self.stage
    }
}

/// Clients of one key.
#[derive(Debug, Default)]
struct Line {
    /// Clients with an XREAD.
    readers: BTreeSet<u64>,
    groups: BTreeMap<Box<[u8]>, Consumers>,
}

/// Clients of one group, in order of arrival.
#[derive(Debug, Default)]
struct Consumers {
    all: BTreeSet<u64>,
    waiting: BTreeSet<u64>,
    /// Clients with an attempt in flight.
    trying: BTreeSet<u64>,
}

/// Clients of this node that wait for entries.
#[derive(Debug, Default)]
pub(super) struct Readers {
    last: u64,
    readers: BTreeMap<u64, Reader>,
    lines: BTreeMap<Box<[u8]>, Line>,
    /// Timeouts in Unix milliseconds, with numbers.
    timeouts: BTreeSet<(u64, u64)>,
    /// Keys whose clients have to try again.
    changed: BTreeSet<Box<[u8]>>,
    /// Clients with an XREAD that have to try again.
    again: BTreeSet<u64>,
    /// Clients whose wait has to end.
    ending: Vec<(u64, End)>,
    /// Senders of CLIENT UNBLOCK whose client stopped waiting by itself.
    too_late: Vec<Asker>,
    groups_at_ms: u64,
    readers_at_ms: u64,
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

    pub(super) fn leave(&mut self, number: u64) -> Option<Reader> {
        let reader = self.readers.remove(&number)?;
        for key in &reader.keys {
            let Some(line) = self.lines.get_mut(key) else {
                continue;
            };
            if let Some(group) = &reader.group {
                if let Some(consumers) = line.groups.get_mut(group) {
                    consumers.all.remove(&number);
                    consumers.waiting.remove(&number);
                    consumers.trying.remove(&number);
                    if consumers.all.is_empty() {
                        line.groups.remove(group);
                    }
                }
            } else {
                line.readers.remove(&number);
            }
            if line.readers.is_empty() && line.groups.is_empty() {
                self.lines.remove(key);
                self.changed.remove(key);
            }
        }
        self.again.remove(&number);
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

    pub(super) fn len(&self) -> usize {
        self.readers.len()
    }

    pub(super) fn take_too_late(&mut self) -> Vec<Asker> {
        std::mem::take(&mut self.too_late)
    }

    /// Returns the number of the client of a connection.
    pub(super) fn number_of(&self, connection: ConnectionId) -> Option<u64> {
        let mut readers = self.readers.iter();
        readers.find(|(_, reader)| reader.connection == connection).map(|(number, _)| *number)
    }

    pub(super) fn set_stage(&mut self, number: u64, stage: Stage) {
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
            consumers.trying.remove(&number);
            match stage {
                Stage::New => {}
                Stage::Trying(_) => drop(consumers.trying.insert(number)),
                Stage::Waiting => drop(consumers.waiting.insert(number)),
            }
        }
    }

    /// Records an unsuccessful attempt. The client tries again at the next change.
    pub(super) fn wait_on(&mut self, number: u64) {
        self.set_stage(number, Stage::Waiting);
        let Some(reader) = self.readers.get_mut(&number) else {
            return;
        };
        reader.first = false;
        if std::mem::take(&mut reader.changed) {
            match reader.group {
                None => drop(self.again.insert(number)),
                Some(_) => self.changed.extend(reader.keys.iter().cloned()),
            }
        }
        if let Some(end) = reader.end.take() {
            self.ending.push((number, end));
        }
    }

    /// Records that this node has changed a stream, or removed a key.
    pub(super) fn note_changed(&mut self, key: &[u8]) {
        if self.lines.contains_key(key) && !self.changed.contains(key) {
            self.changed.insert(key.into());
        }
    }

    pub(super) fn note_all_changed(&mut self) {
        self.changed.extend(self.lines.keys().cloned());
    }

    /// Makes the other clients of a consumer's keys try again: it may have left entries.
    pub(super) fn pass_on(&mut self, reader: &Reader) {
        if reader.group.is_some() {
            reader.keys.iter().for_each(|key| self.note_changed(key));
        }
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
        self.changed.extend(lines.map(|(key, _)| key.clone()));
        if self.readers_at_ms <= now_ms {
            self.readers_at_ms = now_ms + READERS_RETRY_MS;
            let readers = self.readers.iter().filter(|(_, reader)| reader.group.is_none());
            self.again.extend(readers.map(|(number, _)| *number));
        }
    }

    /// Takes a key whose clients have to try again. Its readers are among those of
    /// [`Self::take_again`] from now on. Returns the groups that clients wait for.
    pub(super) fn take_changed(&mut self) -> Option<(Name, Vec<Name>)> {
        let key = self.changed.pop_first()?;
        let Some(line) = self.lines.get(&key) else {
            return Some((key, Vec::new()));
        };
        self.again.extend(&line.readers);
        for consumers in line.groups.values() {
            for number in &consumers.trying {
                if let Some(reader) = self.readers.get_mut(number) {
                    reader.changed = true;
                }
            }
        }
        let groups = line.groups.iter().filter(|(_, consumers)| !consumers.waiting.is_empty());
        let groups = groups.map(|(group, _)| group.clone()).collect();
        Some((key, groups))
    }

    /// Takes a client with an XREAD that waits and has to try again.
    pub(super) fn take_again(&mut self) -> Option<u64> {
        loop {
            let number = self.again.pop_first()?;
            match self.readers.get_mut(&number) {
                Some(Reader { stage: Stage::Waiting, .. }) => return Some(number),
                Some(reader) => reader.changed = true,
                None => {}
            }
        }
    }

    /// Returns the consumer of a group that has waited longest, unless those with attempts in flight
    /// may take all of `entries` entries (`u64::MAX`: all may try), or are `most` already.
    pub(super) fn next_consumer(
        &self,
        key: &[u8],
        group: &[u8],
        entries: u64,
        most: usize,
    ) -> Option<u64> {
        let consumers = self.lines.get(key)?.groups.get(group)?;
        let counts = consumers.trying.iter().filter_map(|number| self.readers.get(number));
        let taken = counts.fold(0, |sum: u64, reader| sum.saturating_add(reader.count));
        let next = consumers.waiting.first().copied();
        let some_are_left = entries == u64::MAX || taken < entries;
        next.filter(|_| some_are_left && consumers.trying.len() < most)
    }

    /// Returns whether there is work to do at once.
    pub(super) fn is_eager(&self) -> bool {
        !self.changed.is_empty()
            || !self.again.is_empty()
            || !self.ending.is_empty()
            || !self.too_late.is_empty()
    }

    /// Returns the time of the next action in Unix milliseconds.
    pub(super) fn wake_ms(&self) -> Option<u64> {
        let end = self.timeouts.first().map(|(until, _)| *until);
        let retry = (!self.is_empty()).then_some(self.groups_at_ms);
        end.into_iter().chain(retry).min()
    }
}
