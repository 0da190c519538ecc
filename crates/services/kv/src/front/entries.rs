//! Serves the clients of this node that wait for entries of streams.

use quorate_replica::front::{Completion, Failure, Requests, Tag};

use super::{
    RespFront,
    asked::Freshness,
    order::{RunQuery, send_write},
    readers::{ReaderStage, WaitEnd},
    refusals::{MEMORY_IS_FULL, failure_reply},
    shared::{Shared, Target},
    turns::UNBLOCKED,
    waiting::UnblockReply,
};
use crate::{
    commands::{
        stream::{
            read::resolve_ids,
            waiting::{encode_undelivered, set_clock},
        },
        waiting::WAITING,
    },
    encode::Encoder,
    op::Op,
    resp::reply::{NULL_ARRAY, Reply},
    waits::Place,
};

/// Maximum number of entries that are counted to find out how many consumers may try.
const COUNTED_MAX: u64 = 64;
/// Maximum number of attempts in flight per group and key.
const TRYING_MAX: usize = 8;
/// Maximum number of attempts and answers per turn, of which large ones count as several.
const WORK_PER_TURN: usize = 4096;
const BYTES_PER_WORK: usize = 1024;

impl Shared {
    /// Makes the first attempt of a client, once all its earlier requests are answered. Returns the
    /// reply if its wait is over.
    pub(super) fn begin_reading(
        &mut self,
        number: u64,
        requests: &mut dyn Requests,
    ) -> Option<Vec<u8>> {
        let reader =
            self.readers.get(number).filter(|reader| reader.stage() == ReaderStage::New)?;
        if let Some(group) = &reader.group
            && reader.keys.iter().any(|key| count_undelivered(key, group, requests) > 0)
        {
            return self.send_group_read(number, requests).err().map(failure_reply);
        }
        if reader.group.is_none() && reader.freshness == Freshness::Stale {
            return self.answer_from_local_state(number, requests);
        }
        // Without entries, a confirmed read says so for less than a command in the log.
        let (fresh, connection) = (reader.freshness, reader.connection);
        let tag = self.allocate_tag(connection, Target::Reader(number));
        let sent = match fresh {
            Freshness::WithinMs(most_ms) => requests.read_within(tag, most_ms),
            Freshness::Linearizable | Freshness::Stale => requests.read(tag),
        };
        match sent {
            Ok(()) => {
                self.readers.set_stage(number, ReaderStage::Attempting(tag));
                None
            }
            Err(failure) => {
                self.tags.release(tag);
                Some(failure_reply(failure))
            }
        }
    }

    /// Removes a disconnected client. Returns the tag of its attempt in flight.
    pub(super) fn leave_readers(&mut self, number: u64) -> Option<Tag> {
        let reader = self.readers.remove_reader(number)?;
        // What it would have taken is left to others.
        self.readers.retry_other_readers(&reader);
        match reader.stage() {
            ReaderStage::Attempting(tag) => Some(tag),
            ReaderStage::New | ReaderStage::Waiting => None,
        }
    }

    /// Sends a client's XREADGROUP.
    fn send_group_read(&mut self, number: u64, requests: &mut dyn Requests) -> Result<(), Failure> {
        let Some(connection) = self.readers.get(number).map(|reader| reader.connection) else {
            return Ok(());
        };
        let tag = self.allocate_tag(connection, Target::Reader(number));
        let Some(reader) = self.readers.get_mut(number) else {
            return Ok(());
        };
        set_clock(&mut reader.command, requests.wall_ms());
        let mut command = reader.command.clone();
        Op::address(&mut command, reader.database);
        let asked = send_write(requests, tag, (None, false), &command);
        match asked {
            Ok(()) => self.readers.set_stage(number, ReaderStage::Attempting(tag)),
            Err(_) => drop(self.tags.release(tag)),
        }
        asked
    }

    /// Answers an XREAD from this node's state, which is not older than at its first attempt.
    /// Returns the reply if there are entries, or an error.
    fn answer_from_local_state(
        &mut self,
        number: u64,
        requests: &mut dyn Requests,
    ) -> Option<Vec<u8>> {
        self.run_reader_query(number, &mut |query, reply| requests.query(query, reply))
    }

    fn run_reader_query(&mut self, number: u64, ask: &mut RunQuery<'_>) -> Option<Vec<u8>> {
        let full = self.is_full(0);
        let reader = self.readers.get_mut(number)?;
        resolve_ids(&mut reader.command);
        let mut reply = Vec::new();
        if full {
            Reply(&mut reply).error(MEMORY_IS_FULL);
            return Some(reply);
        }
        let mut query = reader.command.clone();
        Op::address(&mut query, reader.database);
        match ask(&query, &mut reply) {
            Ok(()) => {}
            // The node's state cannot be read now; tried again later.
            Err(_) if !reader.first => return None,
            Err(failure) => return Some(failure_reply(failure)),
        }
        match reply.strip_prefix(WAITING) {
            Some(resolved) => reader.command = resolved.to_vec(),
            // As in Redis, a client that has begun to wait continues to wait when a key gets
            // another type.
            None if !reader.first && reply.starts_with(b"-WRONGTYPE") => {}
            None => return Some(reply),
        }
        self.readers.record_vain_attempt(number);
        None
    }
}

impl RespFront {
    /// Handles a completed attempt of a client that waits for entries.
    pub(super) fn handle_attempt(
        &mut self,
        number: u64,
        completion: Completion<'_>,
        requests: &mut dyn Requests,
    ) {
        let first = self.shared.readers.get(number).is_some_and(|reader| reader.first);
        match completion {
            Completion::Written(_, NULL_ARRAY) => self.shared.readers.record_vain_attempt(number),
            Completion::Written(_, reply) => self.end_reading(number, reply),
            Completion::Readable(tag) => self.read_confirmed(number, tag, requests),
            // Nothing was executed, so nothing is lost by trying again later.
            Completion::Failed(_, failure) if !first && failure != Failure::Unknown => {
                self.shared.readers.record_vain_attempt(number);
            }
            Completion::Failed(_, failure) => self.end_reading(number, &failure_reply(failure)),
            _ => self.end_reading(number, &failure_reply(Failure::Unknown)),
        }
    }

    /// Makes the first attempt of a client whose freshness is confirmed.
    fn read_confirmed(&mut self, number: u64, tag: Tag, requests: &mut dyn Requests) {
        let Some(reader) = self.shared.readers.get(number) else {
            return;
        };
        if reader.end.is_some() {
            // Nothing that could take entries was in flight.
            return self.shared.readers.record_vain_attempt(number);
        }
        let mut overtaken = false;
        let mut ask = |query: &[u8], reply: &mut Vec<u8>| {
            let asked = requests.run_query(tag, query, reply);
            overtaken |= asked == Err(Failure::Overtaken);
            asked
        };
        let reply = match &reader.group {
            None => self.shared.run_reader_query(number, &mut ask),
            Some(group) => {
                let some = reader.keys.iter().any(|key| count(key, group, &mut ask) > 0);
                match (some, overtaken) {
                    (_, true) => None,
                    (true, false) => {
                        self.shared.send_group_read(number, requests).err().map(failure_reply)
                    }
                    (false, false) => {
                        self.shared.readers.record_vain_attempt(number);
                        None
                    }
                }
            }
        };
        let reply = match overtaken {
            // The confirmation expired meanwhile.
            true => {
                self.shared.readers.set_stage(number, ReaderStage::New);
                self.shared.begin_reading(number, requests)
            }
            false => reply,
        };
        if let Some(reply) = reply {
            self.end_reading(number, &reply);
        }
    }

    /// Ends waits that are over, and lets the clients of changed streams try again.
    pub(super) fn serve_readers(&mut self, requests: &mut dyn Requests) {
        let now_ms = requests.wall_ms();
        for (number, end) in self.shared.readers.take_ended_waits(now_ms) {
            self.end_reader_wait(number, end);
        }
        self.shared.readers.note_time(now_ms);
        // The rest follows in the next turn ([read-10]).
        let mut left = WORK_PER_TURN;
        while left > 0
            && let Some((key, groups)) = self.shared.readers.take_changed_key()
        {
            left = left.saturating_sub(1);
            for group in groups {
                left = left.saturating_sub(self.retry_consumers(&key, &group, requests));
            }
        }
        while left > 0
            && let Some(number) = self.shared.readers.take_retry()
        {
            let reply = self.shared.answer_from_local_state(number, requests);
            left = left.saturating_sub(1 + reply.as_ref().map_or(0, Vec::len) / BYTES_PER_WORK);
            if let Some(reply) = reply {
                self.end_reading(number, &reply);
            }
        }
        for asker in self.shared.readers.take_late_unblocks() {
            self.shared.blocked_clients.unblock_results.push((asker, false));
        }
        if self.shared.readers.is_empty() && self.shared.events.is_awaited() {
            self.shared.events.await_entries(false);
        }
    }

    /// Ends a wait without entries, or once the attempt in flight is complete.
    fn end_reader_wait(&mut self, number: u64, end: WaitEnd) {
        let Some(reader) = self.shared.readers.get_mut(number) else {
            // Its client has got entries.
            if let WaitEnd::Unblocked(_, asker) = end {
                self.shared.blocked_clients.unblock_results.push((asker, false));
            }
            return;
        };
        if reader.stage() != ReaderStage::Waiting {
            match (reader.end, end) {
                (Some(WaitEnd::Unblocked(..)), WaitEnd::Unblocked(_, asker)) => {
                    self.shared.blocked_clients.unblock_results.push((asker, false));
                }
                (Some(WaitEnd::Unblocked(..)), WaitEnd::Timeout) => {}
                _ => reader.end = Some(end),
            }
            return;
        }
        let reply = match end {
            WaitEnd::Timeout => NULL_ARRAY,
            WaitEnd::Unblocked(how, asker) => {
                self.shared.blocked_clients.unblock_results.push((asker, true));
                if how == UnblockReply::Error { UNBLOCKED } else { NULL_ARRAY }
            }
        };
        self.end_reading(number, reply);
    }

    /// Lets as many consumers of a group try again as there are entries for, in order of arrival.
    /// Returns the work that it took.
    fn retry_consumers(&mut self, key: &Place, group: &[u8], requests: &mut dyn Requests) -> usize {
        let entries = count_undelivered(key, group, requests);
        let mut attempts = 0;
        while let Some(number) = self.shared.readers.next_consumer(key, group, entries, TRYING_MAX)
            && self.shared.send_group_read(number, requests).is_ok()
        {
            attempts += 1;
        }
        1 + attempts
    }

    /// Ends a wait with a reply.
    fn end_reading(&mut self, number: u64, reply: &[u8]) {
        let Some(reader) = self.shared.readers.remove_reader(number) else {
            return;
        };
        self.shared.readers.retry_other_readers(&reader);
        self.free_memory(reply.len());
        self.answer_blocked(reader.connection, reader.request_number, reply);
    }
}

/// Returns the number of entries that a group has not delivered in this node's state.
fn count_undelivered(key: &Place, group: &[u8], requests: &mut dyn Requests) -> u64 {
    count(key, group, &mut |query, reply| requests.query(query, reply))
}

/// Returns the number of entries that a group has not delivered, at most [`COUNTED_MAX`], or 0 if
/// the query cannot be run. Returns `u64::MAX` if the reply is an error, for example because the
/// group is gone, so that a consumer tries and receives the error from the log.
fn count((database, key): &Place, group: &[u8], ask: &mut RunQuery<'_>) -> u64 {
    let (mut query, mut reply) = (Vec::new(), Vec::new());
    encode_undelivered(key, group, COUNTED_MAX, &mut Encoder(&mut query));
    Op::address(&mut query, *database);
    if ask(&query, &mut reply).is_err() {
        return 0;
    }
    let text = reply.strip_prefix(b":").and_then(|text| text.strip_suffix(b"\r\n"));
    let Some(text) = text else {
        return u64::MAX;
    };
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}
