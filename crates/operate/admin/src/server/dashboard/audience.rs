//! Watching pages: a bounded number, each of which gets every document that it has space for.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use axum::body::Bytes;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Pages that watch one node at a time.
pub(super) const WATCHERS_MAX: usize = 16;
/// A page comes again by itself after so long; one that is gone without a word has its place for no
/// longer.
const LIFE: Duration = Duration::from_secs(600);
/// Documents that wait for a page; it misses those for which there is no room.
const WAITING_MAX: usize = 2;

/// The watching pages, and whether data is gathered for them.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Audience(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    last: u64,
    watching: BTreeMap<u64, Watcher>,
    gathered_for: bool,
}

#[derive(Debug)]
struct Watcher {
    until: Instant,
    documents: Sender<io::Result<Bytes>>,
    /// Its connection lasts as long as this.
    _lasts: Arc<()>,
}

/// A place among those who watch.
pub(super) struct Joined {
    pub(super) documents: Receiver<io::Result<Bytes>>,
    pub(super) lasts: Weak<()>,
    /// No task gathers yet.
    pub(super) is_first: bool,
}

impl Table {
    fn forget_who_is_gone(&mut self) {
        let now = Instant::now();
        self.watching.retain(|_, watcher| watcher.until > now && !watcher.documents.is_closed());
    }
}

impl Audience {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: all places are taken.
    pub(super) fn join(&self) -> Option<Joined> {
        let mut table = self.table();
        table.forget_who_is_gone();
        if table.watching.len() >= WATCHERS_MAX {
            return None;
        }
        let (sender, documents) = channel(WAITING_MAX);
        let lasts = Arc::new(());
        let weak = Arc::downgrade(&lasts);
        table.last += 1;
        let id = table.last;
        let watcher = Watcher { until: Instant::now() + LIFE, documents: sender, _lasts: lasts };
        table.watching.insert(id, watcher);
        let is_first = !std::mem::replace(&mut table.gathered_for, true);
        Some(Joined { documents, lasts: weak, is_first })
    }

    /// Returns the number of watching pages. Without any, the gathering task is to end: the next
    /// page starts another.
    pub(super) fn count_or_end(&self) -> Option<usize> {
        let mut table = self.table();
        table.forget_who_is_gone();
        table.gathered_for = !table.watching.is_empty();
        table.gathered_for.then_some(table.watching.len())
    }

    /// Shows all of them this.
    pub(super) fn show(&self, document: &Bytes) {
        for watcher in self.table().watching.values() {
            // Who is slow sees the next one.
            let _ = watcher.documents.try_send(Ok(document.clone()));
        }
    }

    /// Returns whether a task gathers.
    #[cfg(test)]
    pub(super) fn is_gathered_for(&self) -> bool {
        self.table().gathered_for
    }
}
