//! The log of values, shared by the node's thread, which applies commands, and the reading threads.

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

/// Maximum number of values, and approximate number of bytes, per read, so that readers do not
/// delay appends.
const SOME_VALUES: usize = 256;
const SOME_BYTES: usize = 256 << 10;

/// Retained values, and the bells that ring for new ones.
#[derive(Debug)]
pub struct Shared {
    values: Mutex<Retained>,
    listeners: Mutex<Vec<Weak<Bell>>>,
    /// Applied position in the log of the node.
    applied_to: AtomicU64,
    /// Decided position in the node's log when it started. Reading starts once everything below it
    /// has been applied, because values encountered during the replay may have been trimmed since.
    read_from: AtomicU64,
    /// First slot after the values that the node knew when it started.
    known_to: AtomicU64,
    /// Set once the node has stopped.
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
    /// Locks the values and returns them.
    pub fn values(&self) -> MutexGuard<'_, Retained> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allows reading once everything below `slot` in the log of the node has been applied.
    pub fn read_from(&self, slot: u64) {
        self.read_from.store(slot, Ordering::Release);
        self.ring();
    }

    /// Returns whether everything that was decided before the start has been applied again.
    pub fn is_replayed(&self) -> bool {
        self.applied_to.load(Ordering::Acquire) >= self.read_from.load(Ordering::Acquire)
    }

    /// Returns the position at which to start reading. [`Cursor::End`] is resolved to a slot if the
    /// end is known.
    pub fn seek(&self, cursor: Cursor) -> Cursor {
        if cursor == Cursor::End && self.is_replayed() {
            return Cursor::At(self.held().next);
        }
        cursor
    }

    /// Reads at the cursor. During the replay, [`Cursor::End`] means the end of the replay and is
    /// resolved to a slot once that is known.
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

    /// Appends some values in consecutive slots to `to`. If there are none, returns the reason.
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

    /// Returns the range of the retained slots.
    pub fn held(&self) -> Held {
        self.values().held()
    }

    /// Makes `bell` ring for new values, as long as the bell exists.
    pub fn listen(&self, bell: &Arc<Bell>) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(bell));
    }

    /// Sets the applied position in the log of the node.
    pub fn applied(&self, to: u64) {
        // Values that were applied together and lie beyond that position may belong to a reader
        // that started at the end.
        if to <= self.read_from.load(Ordering::Acquire) {
            self.known_to.store(self.held().next, Ordering::Release);
        }
        self.applied_to.store(to, Ordering::Release);
        self.ring();
    }

    /// Marks the node as stopped, and wakes readers, because no new values will follow.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.ring();
    }

    /// Returns whether the node has stopped.
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
    fn reads_wait_until_the_recovered_log_is_applied() {
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
