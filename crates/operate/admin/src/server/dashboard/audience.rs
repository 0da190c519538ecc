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
pub(super) const PAGES_MAX: usize = 16;
/// Time after which a page must reconnect, and for which a vanished page is still counted.
const PAGE_LIFETIME: Duration = Duration::from_secs(600);
/// Maximum number of documents buffered per page. Further documents are dropped.
const QUEUED_DOCUMENTS_MAX: usize = 2;

/// Open pages, and whether a task gathers data for them.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct DashboardPages(Arc<Mutex<PageTable>>);

#[derive(Debug, Default)]
struct PageTable {
    last_id: u64,
    open_pages: BTreeMap<u64, OpenPage>,
    has_gatherer: bool,
}

#[derive(Debug)]
struct OpenPage {
    open_until: Instant,
    documents: Sender<io::Result<Bytes>>,
    /// Keeps the connection exempt from the lifetime limit.
    _exemption: Arc<()>,
}

/// A subscription of a new page.
pub(super) struct PageSubscription {
    pub(super) documents: Receiver<io::Result<Bytes>>,
    pub(super) exemption: Weak<()>,
    /// Set if no task gathers data yet, in which case the caller must start one.
    pub(super) is_first: bool,
}

impl PageTable {
    fn remove_expired(&mut self) {
        let now = Instant::now();
        self.open_pages
            .retain(|_, watcher| watcher.open_until > now && !watcher.documents.is_closed());
    }
}

impl DashboardPages {
    fn lock_table(&self) -> MutexGuard<'_, PageTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a page. Returns `None` if the limit is reached.
    pub(super) fn add_page(&self) -> Option<PageSubscription> {
        let mut table = self.lock_table();
        table.remove_expired();
        if table.open_pages.len() >= PAGES_MAX {
            return None;
        }
        let (sender, documents) = channel(QUEUED_DOCUMENTS_MAX);
        let lasts = Arc::new(());
        let weak = Arc::downgrade(&lasts);
        table.last_id += 1;
        let id = table.last_id;
        let watcher = OpenPage {
            open_until: Instant::now() + PAGE_LIFETIME,
            documents: sender,
            _exemption: lasts,
        };
        table.open_pages.insert(id, watcher);
        let is_first = !std::mem::replace(&mut table.has_gatherer, true);
        Some(PageSubscription { documents, exemption: weak, is_first })
    }

    /// Returns the number of open pages. If there are none, returns `None`, and the gathering task
    /// must end. The next page then starts a new task.
    pub(super) fn count_or_stop(&self) -> Option<usize> {
        let mut table = self.lock_table();
        table.remove_expired();
        table.has_gatherer = !table.open_pages.is_empty();
        table.has_gatherer.then_some(table.open_pages.len())
    }

    /// Sends a document to all pages.
    pub(super) fn send_document(&self, document: &Bytes) {
        for watcher in self.lock_table().open_pages.values() {
            // A slow page misses this document.
            let _ = watcher.documents.try_send(Ok(document.clone()));
        }
    }

    /// Returns whether a gathering task is running.
    #[cfg(test)]
    pub(super) fn has_gatherer(&self) -> bool {
        self.lock_table().has_gatherer
    }
}
