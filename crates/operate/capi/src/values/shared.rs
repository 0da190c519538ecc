//! The log of values between the node's thread, which applies, and the threads that read it.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, Weak,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use quorate::Slot;

use super::{
    command::Held,
    retained::{At, FIRST, Retained},
};
use crate::{
    bell::Bell,
    source::{self, Cursor, Read},
};

/// Values are read so many at a time, or about so many bytes: then who appends has its turn.
const SOME_VALUES: usize = 256;
const SOME_BYTES: usize = 256 << 10;

/// Held values, and the listeners for new ones.
#[derive(Debug)]
pub struct Shared {
    values: Mutex<Retained>,
    listeners: Mutex<Vec<Weak<Bell>>>,
    /// Everything below this slot of the node's log is applied.
    applied_to: AtomicU64,
    /// Nothing is read before that is applied: what the node had decided before it started. While
    /// that is read back, values are seen that were trimmed long ago.
    read_from: AtomicU64,
    /// The slot behind the values that the node knew when it started.
    known_to: AtomicU64,
    /// The node has stopped.
    ended: AtomicBool,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            values: Mutex::default(),
            listeners: Mutex::default(),
            applied_to: AtomicU64::new(Slot::FIRST.0),
            read_from: AtomicU64::new(u64::MAX),
            known_to: AtomicU64::new(FIRST),
            ended: AtomicBool::new(false),
        }
    }
}

impl Shared {
    /// The values, for a moment.
    pub fn values(&self) -> MutexGuard<'_, Retained> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets readers read once everything below this slot of the node's log is applied.
    pub fn read_from(&self, slot: u64) {
        self.read_from.store(slot, Ordering::Release);
        self.ring();
    }

    /// Returns whether everything decided before the start is applied again.
    pub fn is_replayed(&self) -> bool {
        self.applied_to.load(Ordering::Acquire) >= self.read_from.load(Ordering::Acquire)
    }

    /// Returns the first position to read: an end becomes its slot, once that is known.
    pub fn seek(&self, cursor: Cursor) -> Cursor {
        if cursor == Cursor::End && self.is_replayed() {
            return Cursor::At(self.held().next);
        }
        cursor
    }

    /// Reads at the cursor. An end requested before the replay was through lies after the replay:
    /// it becomes its slot once that is known.
    pub fn read(&self, cursor: &mut Cursor) -> Read {
        if !self.is_replayed() {
            return Read::Ahead;
        }
        let values = self.values();
        let slot = match *cursor {
            Cursor::Oldest => values.held().first,
            Cursor::At(slot) => slot,
            Cursor::End => {
                let next = self.known_to.load(Ordering::Acquire);
                *cursor = Cursor::At(next);
                next
            }
        };
        match values.at(slot) {
            At::Value(value) => Read::Value(slot, value),
            At::Ahead => Read::Ahead,
            At::Forgotten(first) => Read::Forgotten(first),
        }
    }

    /// The same of values that stand one behind the other: some of them go `to` the end of that;
    /// else why there is none.
    pub fn read_some(&self, cursor: &mut Cursor, to: &mut source::Values) -> Option<Read> {
        match self.read(cursor) {
            Read::Value(slot, value) => {
                to.push_back((slot, value));
                self.values().from(slot + 1, SOME_VALUES, SOME_BYTES, to);
                None
            }
            none => Some(none),
        }
    }

    /// Which slots are held.
    pub fn held(&self) -> Held {
        self.values().held()
    }

    /// Rings this bell for new values as long as it exists.
    pub fn listen(&self, bell: &Arc<Bell>) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(bell));
    }

    /// Every slot of the node's log below is applied.
    pub fn applied(&self, to: u64) {
        // Values applied together beyond that may belong to a reader that began after the end.
        if to <= self.read_from.load(Ordering::Acquire) {
            self.known_to.store(self.held().next, Ordering::Release);
        }
        self.applied_to.store(to, Ordering::Release);
        self.ring();
    }

    /// The node is gone: nothing new comes.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.ring();
    }

    /// Returns whether the node is gone.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn ring(&self) {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.iter().filter_map(Weak::upgrade).for_each(|bell| bell.ring());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::command::{Command, WhenFull};

    #[test]
    fn nothing_is_read_before_what_was_known_is_back() {
        let shared = Shared::default();
        let append = Command::Append { held_max: 1000, when_full: WhenFull::Refuse, value: b"x" };
        shared.values().execute(&append.encode());
        shared.applied(2);
        let read = |cursor: Cursor| shared.read(&mut { cursor });
        assert_eq!(read(Cursor::Oldest), Read::Ahead, "who knows what the log says");
        shared.read_from(3);
        assert_eq!(read(Cursor::At(1)), Read::Ahead, "it may be trimmed by slot 2");
        let mut end = Cursor::End;
        assert_eq!(shared.read(&mut end), Read::Ahead);
        assert_eq!(end, Cursor::End, "its slot is not known");
        shared.values().execute(&Command::Trim { below: 2 }.encode());
        shared.applied(3);
        assert_eq!(read(Cursor::Oldest), Read::Ahead);
        assert_eq!(read(Cursor::At(1)), Read::Forgotten(2));
        assert_eq!(shared.read(&mut end), Read::Ahead);
        assert_eq!(end, Cursor::At(2));
        shared.values().execute(&append.encode());
        assert_eq!(shared.read(&mut end), Read::Value(2, (&b"x"[..]).into()));
    }
}
