//! The log of values, shared by the node's thread, which applies commands, and the reading threads.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, Weak,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use quorate::Slot;

use super::{
    command::RetainedRange,
    retained::{FIRST_SLOT, RetainedValues, SlotContents},
};
use crate::{
    bell::Bell,
    source::{self, Cursor, ReadResult},
};

/// Maximum number of values, and approximate number of bytes, per read, so that readers do not
/// delay appends.
const READ_VALUES_MAX: usize = 256;
const READ_BYTES_MAX: usize = 256 << 10;

/// Retained values, and the bells that ring for new ones.
#[derive(Debug)]
pub struct SharedValues {
    values: Mutex<RetainedValues>,
    listener_bells: Mutex<Vec<Weak<Bell>>>,
    /// Applied position in the log of the node.
    applied_position: AtomicU64,
    /// Decided position in the node's log when it started. Reading starts once everything below it
    /// has been applied, because values encountered during the replay may have been trimmed since.
    readable_after: AtomicU64,
    /// First slot after the values that the node knew when it started.
    known_end_slot: AtomicU64,
    /// Set once the node has stopped.
    has_ended: AtomicBool,
}

impl Default for SharedValues {
    fn default() -> Self {
        Self {
            values: Mutex::default(),
            listener_bells: Mutex::default(),
            applied_position: AtomicU64::new(Slot::FIRST.0),
            readable_after: AtomicU64::new(u64::MAX),
            known_end_slot: AtomicU64::new(FIRST_SLOT),
            has_ended: AtomicBool::new(false),
        }
    }
}

impl SharedValues {
    /// Locks the values and returns them.
    pub fn values(&self) -> MutexGuard<'_, RetainedValues> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allows reading once everything below `slot` in the log of the node has been applied.
    pub fn set_readable_after(&self, slot: u64) {
        self.readable_after.store(slot, Ordering::Release);
        self.ring_listeners();
    }

    /// Returns whether everything that was decided before the start has been applied again.
    pub fn is_replayed(&self) -> bool {
        self.applied_position.load(Ordering::Acquire) >= self.readable_after.load(Ordering::Acquire)
    }

    /// Returns the position at which to start reading. [`Cursor::End`] is resolved to a slot if the
    /// end is known.
    pub fn start_cursor(&self, cursor: Cursor) -> Cursor {
        if cursor == Cursor::End && self.is_replayed() {
            return Cursor::At(self.retained_range().next);
        }
        cursor
    }

    /// Reads at the cursor. During the replay, [`Cursor::End`] means the end of the replay and is
    /// resolved to a slot once that is known.
    pub fn read_next(&self, cursor: &mut Cursor) -> ReadResult {
        if !self.is_replayed() {
            return ReadResult::NotYetWritten;
        }
        let values = self.values();
        let slot = match *cursor {
            Cursor::Oldest => values.retained_range().first_retained,
            Cursor::At(slot) => slot,
            Cursor::End => {
                let next = self.known_end_slot.load(Ordering::Acquire);
                *cursor = Cursor::At(next);
                next
            }
        };
        match values.slot_contents(slot) {
            SlotContents::Value(value) => ReadResult::Value(slot, value),
            SlotContents::NotYetWritten => ReadResult::NotYetWritten,
            SlotContents::Trimmed(first) => ReadResult::Trimmed(first),
        }
    }

    /// Appends some values in consecutive slots to `to`. If there are none, returns the reason.
    pub fn read_values(&self, cursor: &mut Cursor, to: &mut source::Values) -> Option<ReadResult> {
        match self.read_next(cursor) {
            ReadResult::Value(slot, value) => {
                to.push_back((slot, value));
                self.values().from(slot + 1, READ_VALUES_MAX, READ_BYTES_MAX, to);
                None
            }
            none => Some(none),
        }
    }

    /// Returns the range of the retained slots.
    pub fn retained_range(&self) -> RetainedRange {
        self.values().retained_range()
    }

    /// Makes `bell` ring for new values, as long as the bell exists.
    pub fn add_listener(&self, bell: &Arc<Bell>) {
        let mut listeners = self.listener_bells.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(bell));
    }

    /// Sets the applied position in the log of the node.
    pub fn set_applied(&self, to: u64) {
        // Values that were applied together and lie beyond that position may belong to a reader
        // that started at the end.
        if to <= self.readable_after.load(Ordering::Acquire) {
            self.known_end_slot.store(self.retained_range().next, Ordering::Release);
        }
        self.applied_position.store(to, Ordering::Release);
        self.ring_listeners();
    }

    /// Marks the node as stopped, and wakes readers, because no new values will follow.
    pub fn mark_ended(&self) {
        self.has_ended.store(true, Ordering::Release);
        self.ring_listeners();
    }

    /// Returns whether the node has stopped.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    fn ring_listeners(&self) {
        let listeners = self.listener_bells.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.iter().filter_map(Weak::upgrade).for_each(|bell| bell.ring());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::command::{Command, WhenFull};

    #[test]
    fn reads_wait_until_the_recovered_log_is_applied() {
        let shared = SharedValues::default();
        let append =
            Command::Append { retained_bytes_max: 1000, when_full: WhenFull::Refuse, value: b"x" };
        shared.values().execute(&append.encode());
        shared.set_applied(2);
        let read = |cursor: Cursor| shared.read_next(&mut { cursor });
        assert_eq!(read(Cursor::Oldest), ReadResult::NotYetWritten, "who knows what the log says");
        shared.set_readable_after(3);
        assert_eq!(read(Cursor::At(1)), ReadResult::NotYetWritten, "it may be trimmed by slot 2");
        let mut end = Cursor::End;
        assert_eq!(shared.read_next(&mut end), ReadResult::NotYetWritten);
        assert_eq!(end, Cursor::End, "its slot is not known");
        shared.values().execute(&Command::Trim { below: 2 }.encode());
        shared.set_applied(3);
        assert_eq!(read(Cursor::Oldest), ReadResult::NotYetWritten);
        assert_eq!(read(Cursor::At(1)), ReadResult::Trimmed(2));
        assert_eq!(shared.read_next(&mut end), ReadResult::NotYetWritten);
        assert_eq!(end, Cursor::At(2));
        shared.values().execute(&append.encode());
        assert_eq!(shared.read_next(&mut end), ReadResult::Value(2, (&b"x"[..]).into()));
    }
}
