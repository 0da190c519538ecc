//! Hub that reads events once and distributes them to all watchers.
//!
//! For each new revision of the node, the hub queries the events since the previous one and
//! broadcasts them in batches. A stream that lags too far misses batches, and reads their events
//! from history instead. So streams never wait for each other, and the queue is bounded.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::{broadcast, watch};

use super::{
    asking::{Freshness, ReplicaAccess},
    gate::Requester,
    memory::{MemoryBudget, MemoryShare},
};
use crate::{
    command::{Events, EventsRequest, Query},
    proto::mvccpb::Event,
};

/// Approximate memory of an event without its keys and values, in bytes.
pub(super) const EVENT_OVERHEAD_BYTES: usize = 320;

/// Maximum number of batches by which a stream may lag.
const LAG_BATCHES_MAX: usize = 16;

/// Events of revisions `from` to `to`, both inclusive.
#[derive(Debug)]
pub(super) struct EventBatch {
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) events: Vec<Event>,
    /// Set if the events include the previous key-value pairs.
    pub(super) has_previous: bool,
    /// Memory reserved for the events.
    pub(super) memory_share: Option<Arc<MemoryShare>>,
}

/// Reader of events that distributes batches to all streams.
#[derive(Debug)]
pub(super) struct EventHub {
    batches: broadcast::Sender<Arc<EventBatch>>,
    /// Memory budget of watchers and the events queued for them.
    pub(super) memory: MemoryBudget,
    /// Number of watchers that need previous key-value pairs.
    prev_watchers: AtomicUsize,
}

/// Registration of a watcher that needs previous key-value pairs, until dropped.
#[derive(Debug)]
pub(super) struct PrevRegistration(Arc<EventHub>);

impl Drop for PrevRegistration {
    fn drop(&mut self) {
        self.0.prev_watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl EventHub {
    pub(super) fn new(memory: MemoryBudget) -> Arc<Self> {
        Arc::new(Self {
            memory,
            batches: broadcast::Sender::new(LAG_BATCHES_MAX),
            prev_watchers: AtomicUsize::new(0),
        })
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<Arc<EventBatch>> {
        self.batches.subscribe()
    }

    pub(super) fn register_prev(self: &Arc<Self>) -> PrevRegistration {
        self.prev_watchers.fetch_add(1, Ordering::Relaxed);
        PrevRegistration(Arc::clone(self))
    }

    /// Broadcasts events until the node stops.
    pub(super) async fn run(&self, asking: &ReplicaAccess, mut told: watch::Receiver<i64>) {
        let mut last = 0;
        while told.changed().await.is_ok() {
            let revision = *told.borrow_and_update();
            if last == 0 {
                // There were no watchers until now, so earlier events are not needed.
                last = revision - 1;
            }
            while last < revision {
                if self.batches.receiver_count() == 0 {
                    // A new watcher queries the revision first, so it does not need earlier events.
                    last = revision;
                    break;
                }
                last = self.broadcast_events(asking, last, revision).await;
            }
            // A load may have put the service back to an earlier state.
            last = last.min(revision);
        }
    }

    /// Broadcasts a batch of events after revision `last`, and returns the batch's last revision.
    async fn broadcast_events(&self, asking: &ReplicaAccess, last: i64, revision: i64) -> i64 {
        let has_prev = self.prev_watchers.load(Ordering::Relaxed) > 0;
        let request =
            EventsRequest { from: last + 1, prev_kv: has_prev, ..EventsRequest::default() };
        let query = Query::Events(request);
        let asked = asking.query_within::<Events>(
            &Requester::Member,
            &self.memory,
            &query,
            Freshness::Local,
        );
        let page = asked.await.ok().and_then(|(page, mut share)| {
            let has_room = share.try_grow(page.events.len() * EVENT_OVERHEAD_BYTES);
            has_room.then(|| (page, Arc::new(share)))
        });
        let batch = match page {
            Some((page, share)) => EventBatch {
                from: last + 1,
                to: page.next - 1,
                events: page.events,
                has_previous: has_prev,
                memory_share: Some(share),
            },
            // The events are compacted, or this node cannot answer or lacks memory. The gap makes
            // streams read history.
            None => EventBatch {
                memory_share: None,
                from: revision + 1,
                to: revision,
                events: Vec::new(),
                has_previous: has_prev,
            },
        };
        let to = batch.to.max(last);
        let _ = self.batches.send(Arc::new(batch));
        to
    }
}
