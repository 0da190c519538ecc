//! SLOWLOG: commands that waited long for their replies, what they said, and who asked.
//!
//! Keeping the arguments of every command would cost all of them something. They are kept while the
//! node is slow: from one slow command until none has been slow for a minute. The first one has its
//! name only.

use std::collections::{BTreeMap, VecDeque};

use super::{
    roster::{Roster, Seat},
    subcommands,
};
use crate::{
    command::{Local, NOT_AN_INTEGER},
    resp::{integer::parse_integer, reply::Reply, request::Arguments},
};

/// From arrival to reply; such a command is slow.
pub(super) const SLOW_MS: u64 = 10;
/// Entries that are kept.
pub(super) const ENTRIES_MAX: usize = 128;
/// Arguments of one entry, the name and what is said of those left out included.
const ARGUMENTS_MAX: usize = 32;
/// Bytes of one argument, without what is said of those left out.
const ARGUMENT_BYTES_MAX: usize = 128;
/// Time for which arguments are kept after a slow command.
const KEEPING_MS: u64 = 60_000;
/// Entries of GET that says nothing of their number.
const TOLD: usize = 10;
/// Most bytes of arguments of unanswered commands, for all clients together. They are not charged
/// to a client: one that has one command open would otherwise hold more than those that are idle,
/// and be the first to be closed.
const NOTES_BYTES_MAX: usize = 1024 * 1024;
/// In place of arguments.
const NOT_KEPT: &[u8] = b"(arguments not kept: no command was slow in the minute before)";

/// Time that a command took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Split {
    /// From arrival to reply.
    pub(super) took_ms: u64,
    /// The part of it before it was sent on: waiting for earlier commands of its connection.
    pub(super) waited_ms: u64,
}

/// Arguments of a command, shortened as Redis does.
#[derive(Debug)]
pub(super) struct Note(pub(super) Vec<Vec<u8>>);

impl Note {
    pub(super) fn of(arguments: &Arguments<'_>) -> Self {
        let count = arguments.len();
        let whole = if count > ARGUMENTS_MAX { ARGUMENTS_MAX - 1 } else { count };
        let mut words: Vec<Vec<u8>> = arguments.iter().take(whole).map(shortened).collect();
        if count > whole {
            words.push(format!("... ({} more arguments)", count - whole).into_bytes());
        }
        Self(words)
    }

    /// Creates the note of a command whose arguments were not kept.
    fn nothing(name: &str) -> Self {
        Self(vec![name.as_bytes().to_vec(), NOT_KEPT.to_vec()])
    }

    /// Memory of it.
    fn held_bytes(&self) -> usize {
        let words = self.0.iter().map(|word| word.capacity() + size_of_val(word));
        words.sum()
    }
}

fn shortened(word: &[u8]) -> Vec<u8> {
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
    /// Unix time in milliseconds.
    at_ms: u64,
    split: Split,
    note: Note,
    address: String,
    name: String,
}

/// A slow command whose client has not been looked up.
#[derive(Debug)]
struct Fresh {
    seat: Seat,
    at_ms: u64,
    split: Split,
    note: Note,
}

/// The latest of them.
#[derive(Debug, Default)]
pub(super) struct SlowLog {
    /// The latest entries first.
    entries: VecDeque<Entry>,
    fresh: Vec<Fresh>,
    next_id: i64,
    /// Notes of unanswered commands, by their places.
    notes: BTreeMap<(Seat, u64), Note>,
    notes_bytes: usize,
    /// Arguments are kept before this, Unix time in milliseconds.
    keeps_until_ms: u64,
}

impl SlowLog {
    /// Returns whether the arguments of a command are kept while it is not answered.
    pub(super) const fn keeps(&self, now_ms: u64) -> bool {
        now_ms < self.keeps_until_ms
    }

    /// Keeps what a command said that is not answered, if there is room.
    #[cold]
    pub(super) fn keep_note(&mut self, seat: Seat, number: u64, arguments: &Arguments<'_>) {
        if self.notes_bytes >= NOTES_BYTES_MAX {
            return;
        }
        let note = Note::of(arguments);
        self.notes_bytes += note.held_bytes();
        if let Some(old) = self.notes.insert((seat, number), note) {
            self.notes_bytes -= old.held_bytes();
        }
    }

    pub(super) fn has_notes(&self) -> bool {
        !self.notes.is_empty()
    }

    /// Takes the note of the command at this place.
    pub(super) fn take_note(&mut self, seat: Seat, number: u64) -> Option<Note> {
        let note = self.notes.remove(&(seat, number))?;
        self.notes_bytes -= note.held_bytes();
        Some(note)
    }

    /// Forgets the notes of a client that disconnected: its commands will not be answered.
    pub(super) fn leave(&mut self, seat: Seat) {
        while let Some((&(_, number), _)) = self.notes.range((seat, 0)..=(seat, u64::MAX)).next() {
            self.take_note(seat, number);
        }
    }

    /// Adds a slow command that was answered.
    pub(super) fn add(
        &mut self,
        seat: Seat,
        note: Option<Note>,
        name: &str,
        split: Split,
        now_ms: u64,
    ) {
        self.keeps_until_ms = now_ms.saturating_add(KEEPING_MS);
        self.fresh.push(Fresh {
            seat,
            at_ms: now_ms.saturating_sub(split.took_ms),
            split,
            note: note.unwrap_or_else(|| Note::nothing(name)),
        });
    }

    /// Writes down who asked, while they are still there.
    #[inline]
    pub(super) fn sign(&mut self, roster: &mut Roster) {
        if !self.fresh.is_empty() {
            self.sign_fresh(roster);
        }
    }

    #[cold]
    fn sign_fresh(&mut self, roster: &mut Roster) {
        for fresh in std::mem::take(&mut self.fresh) {
            let guest = roster.guest(fresh.seat);
            let (address, name) = guest.map_or_else(Default::default, |guest| {
                (guest.endpoints.peer.clone(), guest.name.clone())
            });
            self.entries.truncate(ENTRIES_MAX - 1);
            self.entries.push_front(Entry {
                id: self.next_id,
                at_ms: fresh.at_ms,
                split: fresh.split,
                note: fresh.note,
                address,
                name,
            });
            self.next_id += 1;
        }
    }

    /// SLOWLOG and its subcommands.
    pub(super) fn answer(&mut self, arguments: &Arguments<'_>, r: &mut Reply<'_>) {
        match (&*arguments.at(1).to_ascii_lowercase(), arguments.len()) {
            (b"get", 2) => self.tell(TOLD, r),
            (b"get", 3) => match parse_integer(arguments.at(2)) {
                None => r.error(NOT_AN_INTEGER),
                Some(-1) => self.tell(ENTRIES_MAX, r),
                Some(count) => match usize::try_from(count) {
                    Ok(count) => self.tell(count, r),
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

    fn tell(&self, count: usize, r: &mut Reply<'_>) {
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        r.array(count.min(self.entries.len()));
        for entry in self.entries.iter().take(count) {
            r.array(6);
            r.integer(entry.id);
            r.integer(number(entry.at_ms / 1000));
            let Split { took_ms, waited_ms } = entry.split;
            r.integer(number(took_ms.saturating_mul(1000)));
            // Libraries know six fields and no more.
            r.array(entry.note.0.len() + 1);
            entry.note.0.iter().for_each(|word| r.bulk(word));
            let sent_ms = took_ms - waited_ms;
            r.bulk(format!("({waited_ms} ms until sent, {sent_ms} ms until answered)").as_bytes());
            r.bulk(entry.address.as_bytes());
            r.bulk(entry.name.as_bytes());
        }
    }
}
