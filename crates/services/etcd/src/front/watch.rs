//! The etcd Watch service: streams of watchers. Each watcher receives every event of its keys
//! exactly once and in order.
//!
//! A watcher is caught up when it has been sent everything up to the stream's revision. Caught-up
//! watchers receive the batches of the [`EventHub`]. Lagging watchers, and all watchers after a gap
//! in the batches, read history page by page until they are caught up.

mod rights;
mod watcher;

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{
        broadcast::{self, error::RecvError},
        mpsc, watch,
    },
    time::{Instant, interval_at, sleep, timeout},
};
use tonic::{Code, Request, Response, Status, Streaming, async_trait};

use self::watcher::{EventsByKey, Watcher, Watchers};
use super::{
    asking::{Freshness, ReplicaAccess, retry_while_busy},
    counters::CountGuard,
    errors,
    gate::Requester,
    hub::{EVENT_OVERHEAD_BYTES, EventBatch, EventHub},
    memory::MemoryShare,
    queue::{Queued, ResponseStream},
};
use crate::{
    auth::AuthVersion,
    command::{Events, EventsRequest, Figures, Query},
    proto::{
        etcdserverpb::{
            WatchCreateRequest, WatchRequest, WatchResponse, watch_request::RequestUnion,
            watch_server::Watch as WatchService,
        },
        mvccpb::Event,
    },
};

/// Maximum number of responses queued for a client. While the queue is full, the stream waits.
const QUEUED_RESPONSES_MAX: usize = 16;
/// Approximate memory of a stream without its watchers, in bytes.
const STREAM_MEMORY_BYTES: usize = 32 << 10;
/// Approximate memory of a response without its events, in bytes.
const RESPONSE_MEMORY_BYTES: usize = 256;
/// Maximum time for which a stream waits for memory. After that it ends, and its client reconnects.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(30);
const WATCHERS_MAX: usize = 100_000;
/// Interval between progress notifications to idle watchers that requested them.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(600);
/// Interval between checks for a leader, for clients that require one.
const LEADER_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Watcher id in responses that concern the whole stream.
const NO_WATCHER: i64 = -1;

#[derive(Debug)]
pub(super) struct Watch {
    pub(super) replica_access: Arc<ReplicaAccess>,
    pub(super) hub: Arc<EventHub>,
}

#[async_trait]
impl WatchService for Watch {
    type WatchStream = ResponseStream<WatchResponse>;

    async fn watch(
        &self,
        request: Request<Streaming<WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let requester = Requester::from_request(&request);
        // Subscribes before any watcher is admitted.
        let changes = self.replica_access.session_cache.subscribe_auth_version();
        let insists = request.metadata().get("hasleader");
        let insists = insists.is_some_and(|value| value.as_bytes() == b"true");
        let share = self.hub.memory.try_reserve(STREAM_MEMORY_BYTES);
        let share = share.ok_or_else(errors::memory_exceeded)?;
        let (answers, receiver) = mpsc::channel(QUEUED_RESPONSES_MAX);
        let batches = self.hub.subscribe();
        let stream = WatchStream {
            replica_access: Arc::clone(&self.replica_access),
            hub: Arc::clone(&self.hub),
            requester,
            requires_leader: insists,
            responses: answers,
            watchers: Watchers::default(),
            sent_revision: 0,
            owes_progress: false,
            _share: share,
            _counted: CountGuard::count_up(&self.replica_access.counters, |counters| {
                &counters.watch_stream_count
            }),
        };
        tokio::spawn(stream.run(request.into_inner(), batches, changes));
        Ok(Response::new(ResponseStream(receiver)))
    }
}

/// Server side of a client's stream.
struct WatchStream {
    replica_access: Arc<ReplicaAccess>,
    hub: Arc<EventHub>,
    requester: Requester,
    /// Set if the client requires a leader, and receives an error while there is none.
    requires_leader: bool,
    responses: mpsc::Sender<Queued<WatchResponse>>,
    watchers: Watchers,
    /// Revision up to which caught-up watchers have been sent everything.
    sent_revision: i64,
    /// Set while a requested progress notification has yet to be sent.
    owes_progress: bool,
    _share: MemoryShare,
    _counted: CountGuard,
}

type AuthVersionReceiver = watch::Receiver<Option<AuthVersion>>;

/// End of the stream, with an error for the client if there is one.
struct StreamEnd(Option<Status>);

impl From<Status> for StreamEnd {
    fn from(status: Status) -> Self {
        Self(Some(status))
    }
}

impl WatchStream {
    async fn run(
        mut self,
        requests: Streaming<WatchRequest>,
        batches: broadcast::Receiver<Arc<EventBatch>>,
        changes: AuthVersionReceiver,
    ) {
        if let Err(StreamEnd(Some(status))) = self.serve(requests, batches, changes).await {
            let _ = self.responses.send(Err(status).into()).await;
        }
    }

    async fn serve(
        &mut self,
        mut requests: Streaming<WatchRequest>,
        mut batches: broadcast::Receiver<Arc<EventBatch>>,
        mut changes: AuthVersionReceiver,
    ) -> Result<(), StreamEnd> {
        let ticks = |period| interval_at(Instant::now() + period, period);
        let (mut progress, mut leader) = (ticks(PROGRESS_INTERVAL), ticks(LEADER_CHECK_INTERVAL));
        let answers = self.responses.clone();
        loop {
            // Handles all pending requests between two pages of history. A page is read only once
            // the previous one has been sent, so a slow client occupies the memory of one page at
            // most.
            let lags = self.watchers.has_lagging(self.sent_revision);
            tokio::select! {
                biased;
                () = answers.closed() => return Ok(()),
                // Rights are checked before any later event is passed on.
                Ok(()) = changes.changed() => self.recheck_watchers().await?,
                request = requests.message() => match request? {
                    Some(request) => self.handle_request(request).await?,
                    // The client has half-closed the stream, but still receives.
                    None => return self.serve_half_closed(batches, changes).await,
                },
                batch = batches.recv() => self.handle_batch(batch).await?,
                _ = progress.tick() => self.send_idle_progress().await?,
                _ = leader.tick(), if self.requires_leader => self.check_leader()?,
                all = answers.reserve_many(QUEUED_RESPONSES_MAX), if lags => {
                    drop(all);
                    self.catch_up().await?;
                }
            }
            self.send_progress().await?;
        }
    }

    /// Serves the watchers after the client has half-closed the stream.
    async fn serve_half_closed(
        &mut self,
        mut batches: broadcast::Receiver<Arc<EventBatch>>,
        mut changes: AuthVersionReceiver,
    ) -> Result<(), StreamEnd> {
        let answers = self.responses.clone();
        loop {
            let lags = self.watchers.has_lagging(self.sent_revision);
            if self.watchers.is_empty() {
                return Ok(());
            }
            tokio::select! {
                biased;
                () = answers.closed() => return Ok(()),
                Ok(()) = changes.changed() => self.recheck_watchers().await?,
                batch = batches.recv() => self.handle_batch(batch).await?,
                all = answers.reserve_many(QUEUED_RESPONSES_MAX), if lags => {
                    drop(all);
                    self.catch_up().await?;
                }
            }
            self.send_progress().await?;
        }
    }

    fn check_leader(&self) -> Result<(), StreamEnd> {
        match self.replica_access.has_leader() {
            true => Ok(()),
            false => Err(Status::new(Code::Unavailable, "etcdserver: no leader").into()),
        }
    }

    async fn send_response(&self, answer: WatchResponse) -> Result<(), StreamEnd> {
        self.send_part(answer, None).await
    }

    /// Sends one of several responses with a common memory reservation.
    async fn send_part(
        &self,
        answer: WatchResponse,
        of: Option<Arc<MemoryShare>>,
    ) -> Result<(), StreamEnd> {
        // Reserves the slot in the queue first, because only this stream waits for it, and memory
        // second, because other streams wait for that.
        let place = self.responses.reserve().await.map_err(|_| StreamEnd(None))?;
        let bytes = RESPONSE_MEMORY_BYTES + answer.events.len() * EVENT_OVERHEAD_BYTES;
        let own = timeout(MEMORY_TIMEOUT, self.hub.memory.reserve(bytes)).await;
        let own = own.map_err(|_| Status::unavailable(errors::memory_exceeded().message()))?;
        place.send(Queued::with_memory(answer, own, of));
        Ok(())
    }

    /// Returns the revision and size of the state, after retries while the node is busy.
    async fn figures(&self) -> Result<Figures, Status> {
        retry_while_busy(|| self.replica_access.figures(Freshness::Local)).await
    }

    async fn handle_request(&mut self, request: WatchRequest) -> Result<(), StreamEnd> {
        match request.request_union {
            Some(RequestUnion::CreateRequest(request)) => self.create_watcher(request).await,
            Some(RequestUnion::CancelRequest(request)) => {
                let id = request.watch_id;
                if self.watchers.remove(id).is_none() {
                    return Ok(());
                }
                self.send_response(WatchResponse {
                    header: self.replica_access.response_header(self.sent_revision),
                    watch_id: id,
                    canceled: true,
                    ..WatchResponse::default()
                })
                .await
            }
            Some(RequestUnion::ProgressRequest(_)) => {
                self.owes_progress = true;
                Ok(())
            }
            None => Ok(()),
        }
    }

    async fn create_watcher(&mut self, request: WatchCreateRequest) -> Result<(), StreamEnd> {
        let asking = Arc::clone(&self.replica_access);
        let refused = |revision, reason: &str| WatchResponse {
            header: asking.response_header(revision),
            watch_id: NO_WATCHER,
            created: true,
            canceled: true,
            cancel_reason: reason.to_owned(),
            ..WatchResponse::default()
        };
        let range = (request.key.clone(), request.range_end.clone());
        if let Err(status) = self.check_watch_rights(range).await {
            return match rights::is_refusal(&status) {
                true => {
                    self.send_response(refused(self.sent_revision, &errors::format_status(&status)))
                        .await
                }
                false => Err(status.into()),
            };
        }
        // Queried after subscribing to batches, which therefore contain all later events.
        let revision = self.figures().await?.revision;
        if self.sent_revision == 0 {
            self.sent_revision = revision;
        }
        if self.watchers.len() >= WATCHERS_MAX {
            let answer = refused(revision, "etcdserver: too many watchers");
            return self.send_response(answer).await;
        }
        let Some(share) = self.hub.memory.try_reserve(watcher::watcher_bytes(&request)) else {
            let answer = refused(revision, errors::memory_exceeded().message());
            return self.send_response(answer).await;
        };
        let next = match request.start_revision {
            0 => revision + 1,
            start => start,
        };
        let prev = request.prev_kv.then(|| self.hub.register_prev());
        let counted =
            CountGuard::count_up(&self.replica_access.counters, |counters| &counters.watcher_count);
        let added = match Watcher::new(&request, next, prev, (share, counted)) {
            Ok(watcher) => self.watchers.add(request.watch_id, watcher),
            Err(why) => Err(why),
        };
        match added {
            Ok(id) => {
                self.send_response(WatchResponse {
                    header: self.replica_access.response_header(revision),
                    watch_id: id,
                    created: true,
                    ..WatchResponse::default()
                })
                .await
            }
            Err(why) => {
                let answer = refused(revision, why);
                self.send_response(answer).await
            }
        }
    }

    /// Handles a batch from the hub. If one was missed, the watchers read history.
    async fn handle_batch(
        &mut self,
        batch: Result<Arc<EventBatch>, RecvError>,
    ) -> Result<(), StreamEnd> {
        let batch = match batch {
            Ok(batch) => batch,
            // The next batch reveals the gap.
            Err(RecvError::Lagged(_)) => return Ok(()),
            Err(RecvError::Closed) => return Err(errors::server_stopped().into()),
        };
        if batch.to <= self.sent_revision || self.sent_revision == 0 {
            return Ok(());
        }
        // A client with many unread responses reads the events from history later.
        let is_slow = self.responses.capacity() < QUEUED_RESPONSES_MAX / 2;
        if batch.from <= self.sent_revision + 1 && !is_slow {
            let events = EventsByKey::new(&batch.events);
            // Handles one watcher at a time, so that the events of many are never in memory
            // together.
            for id in self.watchers.watchers_to_notify(&batch, &events, self.sent_revision) {
                let told = self.watchers.watcher_events(id, &events);
                self.send_events(id, told, batch.to, batch.memory_share.as_ref()).await?;
            }
            self.watchers.advance_caught_up(&batch, self.sent_revision);
        }
        // Nothing was sent after the gap, so all watchers lag.
        self.sent_revision = batch.to;
        Ok(())
    }

    /// Sends a page of history to the watchers that lag most.
    async fn catch_up(&mut self) -> Result<(), StreamEnd> {
        let Some(behind) = self.watchers.next_missing(self.sent_revision) else {
            return Ok(());
        };
        let request = EventsRequest {
            from: behind.next,
            prev_kv: behind.needs_previous,
            key: behind.key,
            range_end: behind.range_end,
        };
        let query = Query::Events(request);
        let memory = &self.hub.memory;
        let ask = || {
            self.replica_access.query_within::<Events>(
                &Requester::Member,
                memory,
                &query,
                Freshness::Local,
            )
        };
        let (page, share) = match retry_while_busy(ask).await {
            Ok(page) => page,
            Err(status) if status.code() == Code::OutOfRange => return self.end_compacted().await,
            Err(status) => return Err(status.into()),
        };
        if page.next <= behind.next {
            // A load put this node back to an earlier state, and it will catch up again.
            sleep(Duration::from_millis(50)).await;
        }
        let (events, share) = (EventsByKey::new(&page.events), Arc::new(share));
        for id in behind.watcher_ids {
            let told = self.watchers.watcher_events(id, &events);
            self.send_events(id, told, page.next - 1, Some(&share)).await?;
            self.watchers.advance_watcher(id, page.next);
        }
        Ok(())
    }

    /// Ends the watchers whose next revision is compacted, and sends them the compacted revision.
    async fn end_compacted(&mut self) -> Result<(), StreamEnd> {
        let figures = self.figures().await?;
        for id in self.watchers.watchers_behind(figures.compacted_revision) {
            self.watchers.remove(id);
            self.send_response(WatchResponse {
                header: self.replica_access.response_header(figures.revision),
                watch_id: id,
                canceled: true,
                compact_revision: figures.compacted_revision,
                ..WatchResponse::default()
            })
            .await?;
        }
        Ok(())
    }

    /// Sends events to a watcher. Events of one revision stay together unless the client accepts
    /// fragments.
    async fn send_events(
        &mut self,
        id: i64,
        events: Vec<Event>,
        to: i64,
        of: Option<&Arc<MemoryShare>>,
    ) -> Result<(), StreamEnd> {
        let Some(watcher) = self.watchers.get_mut(id).filter(|_| !events.is_empty()) else {
            return Ok(());
        };
        watcher.is_quiet = false;
        let parts = watcher.split_responses(events);
        let last = parts.len().saturating_sub(1);
        for (at, events) in parts.into_iter().enumerate() {
            let answer = WatchResponse {
                header: self.replica_access.response_header(to),
                watch_id: id,
                fragment: at < last,
                events,
                ..WatchResponse::default()
            };
            self.send_part(answer, of.cloned()).await?;
        }
        Ok(())
    }

    /// Sends a requested progress notification for all watchers, once all are caught up.
    async fn send_progress(&mut self) -> Result<(), StreamEnd> {
        if !self.owes_progress || self.watchers.has_lagging(self.sent_revision) {
            return Ok(());
        }
        self.owes_progress = false;
        if self.sent_revision == 0 {
            return Ok(());
        }
        self.send_response(WatchResponse {
            header: self.replica_access.response_header(self.sent_revision),
            watch_id: NO_WATCHER,
            ..WatchResponse::default()
        })
        .await
    }

    /// Sends progress notifications to watchers that requested them and received no events since
    /// the last check.
    async fn send_idle_progress(&mut self) -> Result<(), StreamEnd> {
        for id in self.watchers.take_idle(self.sent_revision) {
            self.send_response(WatchResponse {
                header: self.replica_access.response_header(self.sent_revision),
                watch_id: id,
                ..WatchResponse::default()
            })
            .await?;
        }
        Ok(())
    }
}
