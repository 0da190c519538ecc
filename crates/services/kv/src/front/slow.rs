//! SLOWLOG: commands that were answered slowly, with their arguments and clients.
//!
//! Recording the arguments of all commands would slow them down, so arguments are recorded only in
//! the minute after each slow command. Of the first slow command, only the name is recorded.

use std::collections::{BTreeMap, VecDeque};

use super::{
    roster::{ClientSlot, ClientTable},
    subcommands,
};
use crate::{
    command::{Local, NOT_AN_INTEGER},
    resp::{integer::parse_integer, reply::Reply, request::Arguments},
};

/// Minimum time in milliseconds, from arrival to reply, of a slow command.
pub(super) const SLOW_MS: u64 = 10;
pub(super) const ENTRIES_MAX: usize = 128;
/// Maximum number of arguments in an entry, including the name and the note about omitted ones.
const ARGUMENTS_MAX: usize = 32;
/// Maximum number of bytes of an argument, without the note about omitted ones.
const ARGUMENT_BYTES_MAX: usize = 128;
/// Time in milliseconds for which arguments are recorded after a slow command.
const KEEPING_MS: u64 = 60_000;
const GET_ENTRIES_DEFAULT: usize = 10;
/// Maximum total size in bytes of the recorded arguments of unanswered commands, for all clients
/// together. They are not charged to their client: one with a single open command would seem larger
/// than idle ones and be disconnected first.
const NOTES_BYTES_MAX: usize = 1024 * 1024;
/// Placeholder for arguments that were not recorded.
const NOT_RECORDED: &[u8] = b"(arguments not kept: no command was slow in the minute before)";

#[derive(Clone, Copy, Debug)]
pub(super) struct LatencySplit {
    /// Time from arrival to reply.
    pub(super) took_ms: u64,
    /// Part of that time in which the command waited for earlier commands of its connection.
    pub(super) waited_ms: u64,
}

/// Name and arguments of a command, abbreviated as Redis does.
#[derive(Debug)]
pub(super) struct CommandNote(pub(super) Vec<Vec<u8>>);

impl CommandNote {
    pub(super) fn from_arguments(arguments: &Arguments<'_>) -> Self {
        let count = arguments.len();
        let whole = if count > ARGUMENTS_MAX { ARGUMENTS_MAX - 1 } else { count };
        let mut words: Vec<Vec<u8>> = arguments.iter().take(whole).map(abbreviate).collect();
        if count > whole {
            words.push(format!("... ({} more arguments)", count - whole).into_bytes());
        }
        Self(words)
    }

    fn without_arguments(name: &str) -> Self {
        Self(vec![name.as_bytes().to_vec(), NOT_RECORDED.to_vec()])
    }

    fn held_bytes(&self) -> usize {
        let words = self.0.iter().map(|word| word.capacity() + size_of_val(word));
        words.sum()
    }
}

fn abbreviate(word: &[u8]) -> Vec<u8> {
    match word.split_at_checked(ARGUMENT_BYTES_MAX) {
        Some((head, rest @ [_, ..])) => {
            let more = format!("... ({} more bytes)", rest.len());
            [head, more.as_bytes()].concat()
        }
        _ => word.to_vec(),
    }
}

#[derive(Debug)]
struct Entry {
    id: i64,
    /// Time of arrival as Unix time in milliseconds.
    arrived_ms: u64,
    split: LatencySplit,
    note: CommandNote,
    address: String,
    name: String,
}

/// Slow command whose client still has to be looked up.
#[derive(Debug)]
struct UnsignedEntry {
    client_slot: ClientSlot,
    arrived_ms: u64,
    split: LatencySplit,
    note: CommandNote,
}

#[derive(Debug, Default)]
pub(super) struct SlowLog {
    /// Entries, newest first.
    entries: VecDeque<Entry>,
    unsigned_entries: Vec<UnsignedEntry>,
    next_id: i64,
    /// Notes on unanswered commands, by client and request number.
    notes: BTreeMap<(ClientSlot, u64), CommandNote>,
    notes_bytes: usize,
    /// End of the recording of arguments, as Unix time in milliseconds.
    records_until_ms: u64,
}

impl SlowLog {
    /// Returns whether arguments are recorded now.
    pub(super) const fn is_recording(&self, now_ms: u64) -> bool {
        now_ms < self.records_until_ms
    }

    /// Records the arguments of an unanswered command, if the memory limit allows it.
    #[cold]
    pub(super) fn record_arguments(
        &mut self,
        seat: ClientSlot,
        number: u64,
        arguments: &Arguments<'_>,
    ) {
        if self.notes_bytes >= NOTES_BYTES_MAX {
            return;
        }
        let note = CommandNote::from_arguments(arguments);
        self.notes_bytes += note.held_bytes();
        if let Some(old) = self.notes.insert((seat, number), note) {
            self.notes_bytes -= old.held_bytes();
        }
    }

    pub(super) fn has_notes(&self) -> bool {
        !self.notes.is_empty()
    }

    pub(super) fn take_recorded(&mut self, seat: ClientSlot, number: u64) -> Option<CommandNote> {
        let note = self.notes.remove(&(seat, number))?;
        self.notes_bytes -= note.held_bytes();
        Some(note)
    }

    /// Drops the notes of a disconnected client, as its commands are never answered.
    pub(super) fn drop_client_notes(&mut self, seat: ClientSlot) {
        while let Some((&(_, number), _)) = self.notes.range((seat, 0)..=(seat, u64::MAX)).next() {
            self.take_recorded(seat, number);
        }
    }

    pub(super) fn add(
        &mut self,
        seat: ClientSlot,
        note: Option<CommandNote>,
        name: &str,
        split: LatencySplit,
        now_ms: u64,
    ) {
        self.records_until_ms = now_ms.saturating_add(KEEPING_MS);
        self.unsigned_entries.push(UnsignedEntry {
            client_slot: seat,
            arrived_ms: now_ms.saturating_sub(split.took_ms),
            split,
            note: note.unwrap_or_else(|| CommandNote::without_arguments(name)),
        });
    }

    /// Adds the clients' addresses and names to new entries while they are connected.
    #[inline]
    pub(super) fn sign_entries(&mut self, roster: &mut ClientTable) {
        if !self.unsigned_entries.is_empty() {
            self.sign_fresh(roster);
        }
    }

    #[cold]
    fn sign_fresh(&mut self, roster: &mut ClientTable) {
        for fresh in std::mem::take(&mut self.unsigned_entries) {
            let guest = roster.entry_mut(fresh.client_slot);
            let (address, name) = guest.map_or_else(Default::default, |guest| {
                (guest.endpoints.peer.clone(), guest.name.clone())
            });
            self.entries.truncate(ENTRIES_MAX - 1);
            self.entries.push_front(Entry {
                id: self.next_id,
                arrived_ms: fresh.arrived_ms,
                split: fresh.split,
                note: fresh.note,
                address,
                name,
            });
            self.next_id += 1;
        }
    }

    pub(super) fn answer_slowlog(&mut self, arguments: &Arguments<'_>, r: &mut Reply<'_>) {
        match (&*arguments.at(1).to_ascii_lowercase(), arguments.len()) {
            (b"get", 2) => self.write_entries(GET_ENTRIES_DEFAULT, r),
            (b"get", 3) => match parse_integer(arguments.at(2)) {
                None => r.error(NOT_AN_INTEGER),
                Some(-1) => self.write_entries(ENTRIES_MAX, r),
                Some(count) => match usize::try_from(count) {
                    Ok(count) => self.write_entries(count, r),
                    Err(_) => r.error("ERR count should be greater than or equal to -1"),
                },
            },
            (b"get", _) => {
                r.error("ERR wrong number of arguments for 'slowlog|get' command");
            }
            (b"len", _) => r.count(self.entries.len()),
            (b"reset", _) => {
                self.entries.clear();
                r.ok();
            }
            _ => subcommands::help(Local::Slowlog, r),
        }
    }

    fn write_entries(&self, count: usize, r: &mut Reply<'_>) {
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        r.array(count.min(self.entries.len()));
        for entry in self.entries.iter().take(count) {
            r.array(6);
            r.integer(entry.id);
            r.integer(number(entry.arrived_ms / 1000));
            let LatencySplit { took_ms, waited_ms } = entry.split;
            r.integer(number(took_ms.saturating_mul(1000)));
            // Client libraries expect six fields, so the waiting time is added to the arguments.
            r.array(entry.note.0.len() + 1);
            entry.note.0.iter().for_each(|word| r.bulk(word));
            let sent_ms = took_ms - waited_ms;
            r.bulk(format!("({waited_ms} ms until sent, {sent_ms} ms until answered)").as_bytes());
            r.bulk(entry.address.as_bytes());
            r.bulk(entry.name.as_bytes());
        }
    }
}
