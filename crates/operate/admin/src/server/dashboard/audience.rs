//! Open dashboard pages: a bounded number, each with a small buffer of documents.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use axum::body::Bytes;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Maximum number of pages served by one node.
pub(super) const WATCHERS_MAX: usize = 16;
/// Time after which a page must reconnect; it also bounds how long a vanished page counts.
const LIFE: Duration = Duration::from_secs(600);
/// Documents buffered per page; further ones are dropped.
const WAITING_MAX: usize = 2;

/// Open pages, and whether data is gathered for them.
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
    /// Keeps the connection alive while this watcher exists.
    _lasts: Arc<()>,
}

/// A new page's subscription.
pub(super) struct Joined {
    pub(super) documents: Receiver<io::Result<Bytes>>,
    pub(super) lasts: Weak<()>,
    /// No gathering task is running; the caller must start one.
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

    /// Adds a page; `None` if the limit is reached.
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

    /// Returns the number of open pages. If there are none, the gathering task must end; the next
    /// page starts a new one.
    pub(super) fn count_or_end(&self) -> Option<usize> {
        let mut table = self.table();
        table.forget_who_is_gone();
        table.gathered_for = !table.watching.is_empty();
        table.gathered_for.then_some(table.watching.len())
    }

    /// Sends a document to all pages.
    pub(super) fn show(&self, document: &Bytes) {
        for watcher in self.table().watching.values() {
            // A slow page skips this document.
            let _ = watcher.documents.try_send(Ok(document.clone()));
        }
    }

    /// Returns whether a gathering task is running.
    #[cfg(test)]
    pub(super) fn is_gathered_for(&self) -> bool {
        self.table().gathered_for
    }
}
