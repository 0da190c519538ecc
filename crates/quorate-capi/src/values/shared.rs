//! The log of values between the node's thread, which applies, and the threads that read it.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, Weak,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use super::{
    command::Held,
    retained::{At, Retained},
};
use crate::{bell::Bell, source::Cursor, source::Read};

/// Values that are held, and whoever is told of new ones.
#[derive(Debug)]
pub struct Shared {
    values: Mutex<Retained>,
    listeners: Mutex<Vec<Weak<Bell>>>,
    /// Of the log of the node: everything below is applied.
    applied_to: AtomicU64,
    /// Nothing is read before that is applied: what the node had decided before it started. While that is read
    /// back, values are seen that were trimmed long ago.
    read_from: AtomicU64,
    /// The node has stopped.
    ended: AtomicBool,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            values: Mutex::default(),
            listeners: Mutex::default(),
            applied_to: AtomicU64::new(0),
            read_from: AtomicU64::new(u64::MAX),
            ended: AtomicBool::new(false),
        }
    }
}

impl Shared {
    /// The values, for a moment.
    pub fn values(&self) -> MutexGuard<'_, Retained> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What may be read is what follows from everything below this slot of the node's log.
    pub fn read_from(&self, slot: u64) {
        self.read_from.store(slot, Ordering::Release);
        self.ring();
    }

    /// Whether what was decided before the start is here again.
    pub fn is_replayed(&self) -> bool {
        self.applied_to.load(Ordering::Acquire) >= self.read_from.load(Ordering::Acquire)
    }

    /// What is at the cursor.
    pub fn read(&self, cursor: Cursor) -> Read {
        if !self.is_replayed() {
            return Read::Ahead;
        }
        let values = self.values();
        let slot = match cursor {
            Cursor::Oldest => values.held().first,
            Cursor::At(slot) => slot,
        };
        match values.at(slot) {
            At::Value(value) => Read::Value(slot, value),
            At::Ahead => Read::Ahead,
            At::Forgotten(first) => Read::Forgotten(first),
        }
    }

    /// Which slots are held.
    pub fn held(&self) -> Held {
        self.values().held()
    }

    /// This bell rings from now on when there is something new, for as long as somebody holds it.
    pub fn listen(&self, bell: &Arc<Bell>) {
        let mut listeners = self
            .listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(bell));
    }

    /// Every slot of the node's log below is applied.
    pub fn applied(&self, to: u64) {
        self.applied_to.store(to, Ordering::Release);
        self.ring();
    }

    /// The node is gone: nothing new comes.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.ring();
    }

    /// Whether the node is gone.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn ring(&self) {
        let listeners = self
            .listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        listeners
            .iter()
            .filter_map(Weak::upgrade)
            .for_each(|bell| bell.ring());
    }
}
