//! Open dashboard pages, limited in number, each with a small queue of documents.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use axum::body::Bytes;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Maximum number of pages that one node serves.
pub(super) const WATCHERS_MAX: usize = 16;
/// Time after which a page must reconnect, and for which a vanished page is still counted.
const LIFE: Duration = Duration::from_secs(600);
/// Maximum number of documents buffered per page. Further documents are dropped.
const WAITING_MAX: usize = 2;

/// Open pages, and whether a task gathers data for them.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Audience(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    last: u64,
    watching: BTreeMap<u64, Watcher>,
    has_gatherer: bool,
}

#[derive(Debug)]
struct Watcher {
    open_until: Instant,
    documents: Sender<io::Result<Bytes>>,
    /// Keeps the connection exempt from the lifetime limit.
    _lasts: Arc<()>,
}

/// A subscription of a new page.
pub(super) struct Joined {
    pub(super) documents: Receiver<io::Result<Bytes>>,
    pub(super) exemption: Weak<()>,
    /// Set if no task gathers data yet, in which case the caller must start one.
    pub(super) is_first: bool,
}

impl Table {
    fn forget_who_is_gone(&mut self) {
        let now = Instant::now();
        self.watching
            .retain(|_, watcher| watcher.open_until > now && !watcher.documents.is_closed());
    }
}

impl Audience {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a page. Returns `None` if the limit is reached.
    pub(super) fn add_page(&self) -> Option<Joined> {
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
        let watcher =
            Watcher { open_until: Instant::now() + LIFE, documents: sender, _lasts: lasts };
        table.watching.insert(id, watcher);
        let is_first = !std::mem::replace(&mut table.has_gatherer, true);
        Some(Joined { documents, exemption: weak, is_first })
    }

    /// Returns the number of open pages. If there are none, returns `None`, and the gathering task
    /// must end. The next page then starts a new task.
    pub(super) fn count_or_end(&self) -> Option<usize> {
        let mut table = self.table();
        table.forget_who_is_gone();
        table.has_gatherer = !table.watching.is_empty();
        table.has_gatherer.then_some(table.watching.len())
    }

    /// Sends a document to all pages.
    pub(super) fn show(&self, document: &Bytes) {
        for watcher in self.table().watching.values() {
            // A slow page misses this document.
            let _ = watcher.documents.try_send(Ok(document.clone()));
        }
    }

    /// Returns whether a gathering task is running.
    #[cfg(test)]
    pub(super) fn has_gatherer(&self) -> bool {
        self.table().has_gatherer
    }
}
