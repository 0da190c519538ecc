//! The service Watch: streams of watchers, each of which sees every event of its keys once and in order.
//!
//! A watcher is level when nothing up to the stream's revision is left to be told; level watchers get what the [`Hub`]
//! passes on. The others read history, a page at a time, until they are. So does everybody after a gap.

mod watcher;

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use quorate::{Role, Who};
use tokio::{
    sync::{
        broadcast::{self, error::RecvError},
        mpsc,
    },
    time::{Instant, interval_at, sleep},
};
use tonic::{
    Code, Request, Response, Status, Streaming, async_trait, codegen::tokio_stream::Stream,
};

use self::watcher::{Watcher, Watchers};
use super::{
    asking::{Asking, Caller, Freshness},
    errors,
    hub::{Batch, Hub},
};
use crate::{
    command::{Events, EventsRequest, Query},
    proto::{
        etcdserverpb::{
            WatchCreateRequest, WatchRequest, WatchResponse, watch_request::RequestUnion,
            watch_server::Watch as WatchService,
        },
        mvccpb::Event,
    },
};

/// Answers that wait for a client; then its stream waits.
const ANSWERS_MAX: usize = 16;
/// Watchers of a stream.
const WATCHERS_MAX: usize = 100_000;
/// How often watchers that wanted it are told how far they are, if nothing happens.
const PROGRESS_PERIOD: Duration = Duration::from_secs(600);
/// How often it is looked whether there is a leader, for clients that insist on one.
const LEADER_PERIOD: Duration = Duration::from_secs(1);
/// The id of no watcher.
const NOBODY: i64 = -1;

#[derive(Debug)]
pub(super) struct Watch {
    pub(super) asking: Arc<Asking>,
    pub(super) hub: Arc<Hub>,
}

/// What a client receives.
#[derive(Debug)]
pub(super) struct Answers<T>(pub(super) mpsc::Receiver<Result<T, Status>>);

impl<T> Stream for Answers<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

#[async_trait]
impl WatchService for Watch {
    type WatchStream = Answers<WatchResponse>;

    async fn watch(
        &self,
        request: Request<Streaming<WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let caller = request.extensions().get::<Caller>();
        let who = caller.map_or(Who::Nobody, |caller| caller.0.clone());
        let insists = request.metadata().get("hasleader");
        let insists = insists.is_some_and(|value| value.as_bytes() == b"true");
        let (answers, receiver) = mpsc::channel(ANSWERS_MAX);
        let batches = self.hub.follow();
        let stream = WatchStream {
            asking: Arc::clone(&self.asking),
            hub: Arc::clone(&self.hub),
            who,
            insists,
            answers,
            watchers: Watchers::default(),
            seen: 0,
            owes_progress: false,
        };
        tokio::spawn(stream.run(request.into_inner(), batches));
        Ok(Response::new(Answers(receiver)))
    }
}

/// One stream, on the side of the server.
struct WatchStream {
    asking: Arc<Asking>,
    hub: Arc<Hub>,
    who: Who,
    /// The client wants to hear of it if there is no leader.
    insists: bool,
    answers: mpsc::Sender<Result<WatchResponse, Status>>,
    watchers: Watchers,
    /// Level watchers have been told everything up to this revision.
    seen: i64,
    /// The client asked how far it is.
    owes_progress: bool,
}

/// The stream ends; what the client is told, if anything.
struct Ends(Option<Status>);

impl From<Status> for Ends {
    fn from(status: Status) -> Self {
        Self(Some(status))
    }
}

impl WatchStream {
    async fn run(
        mut self,
        requests: Streaming<WatchRequest>,
        batches: broadcast::Receiver<Arc<Batch>>,
    ) {
        if let Err(Ends(Some(status))) = self.serve(requests, batches).await {
            let _ = self.answers.send(Err(status)).await;
        }
    }

    async fn serve(
        &mut self,
        mut requests: Streaming<WatchRequest>,
        mut batches: broadcast::Receiver<Arc<Batch>>,
    ) -> Result<(), Ends> {
        let ticks = |period| interval_at(Instant::now() + period, period);
        let (mut progress, mut leader) = (ticks(PROGRESS_PERIOD), ticks(LEADER_PERIOD));
        let answers = self.answers.clone();
        loop {
            // Everything that came in is looked at between two pages of history.
            let lags = self.watchers.first_behind(self.seen).is_some();
            tokio::select! {
                biased;
                () = answers.closed() => return Ok(()),
                request = requests.message() => match request? {
                    Some(request) => self.request(request).await?,
                    // Half closed: the client still listens.
                    None => return self.listen(batches).await,
                },
                batch = batches.recv() => self.batch(batch).await?,
                _ = progress.tick() => self.tell_quiet().await?,
                _ = leader.tick(), if self.insists => self.look_for_leader()?,
                () = std::future::ready(()), if lags => self.catch_up().await?,
            }
            self.tell_progress().await?;
        }
    }

    /// The same, without requests.
    async fn listen(&mut self, mut batches: broadcast::Receiver<Arc<Batch>>) -> Result<(), Ends> {
        let answers = self.answers.clone();
        loop {
            let lags = self.watchers.first_behind(self.seen).is_some();
            if self.watchers.is_empty() {
                return Ok(());
            }
            tokio::select! {
                biased;
                () = answers.closed() => return Ok(()),
                batch = batches.recv() => self.batch(batch).await?,
                () = std::future::ready(()), if lags => self.catch_up().await?,
            }
            self.tell_progress().await?;
        }
    }

    fn look_for_leader(&self) -> Result<(), Ends> {
        match self.asking.has_leader() {
            true => Ok(()),
            false => Err(Status::new(Code::Unavailable, "etcdserver: no leader").into()),
        }
    }

    async fn send(&self, answer: WatchResponse) -> Result<(), Ends> {
        let sent = self.answers.send(Ok(answer)).await;
        sent.map_err(|_| Ends(None))
    }

    async fn request(&mut self, request: WatchRequest) -> Result<(), Ends> {
        match request.request_union {
            Some(RequestUnion::CreateRequest(request)) => self.create(request).await,
            Some(RequestUnion::CancelRequest(request)) => {
                let id = request.watch_id;
                if self.watchers.remove(id).is_none() {
                    return Ok(());
                }
                self.send(WatchResponse {
                    header: self.asking.header(self.seen),
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

    async fn create(&mut self, request: WatchCreateRequest) -> Result<(), Ends> {
        // Asked for behind the first look at batches: whatever is newer comes by one.
        let figures = self.asking.figures(Freshness::Local).await?;
        let revision = figures.revision;
        if self.seen == 0 {
            self.seen = revision;
        }
        let refused = |reason: &str| WatchResponse {
            header: self.asking.header(revision),
            watch_id: NOBODY,
            created: true,
            canceled: true,
            cancel_reason: reason.to_owned(),
            ..WatchResponse::default()
        };
        if let Err(status) = self.asking.allow_who(&self.who, Role::Reader) {
            return match status.code() {
                Code::PermissionDenied => self.send(refused(status.message())).await,
                _ => Err(status.into()),
            };
        }
        if self.watchers.len() >= WATCHERS_MAX {
            return self.send(refused("etcdserver: too many watchers")).await;
        }
        let next = match request.start_revision {
            0 => revision + 1,
            start => start,
        };
        let prev = request.prev_kv.then(|| self.hub.want_prev());
        let added = match Watcher::new(&request, next, prev) {
            Ok(watcher) => self.watchers.add(request.watch_id, watcher),
            Err(why) => Err(why),
        };
        match added {
            Ok(id) => {
                self.send(WatchResponse {
                    header: self.asking.header(revision),
                    watch_id: id,
                    created: true,
                    ..WatchResponse::default()
                })
                .await
            }
            Err(why) => self.send(refused(why)).await,
        }
    }

    /// What the hub passed on, if nothing was missed before it.
    async fn batch(&mut self, batch: Result<Arc<Batch>, RecvError>) -> Result<(), Ends> {
        let batch = match batch {
            Ok(batch) => batch,
            // What was missed is found missing by the next batch.
            Err(RecvError::Lagged(_)) => return Ok(()),
            Err(RecvError::Closed) => return Err(errors::stopped().into()),
        };
        if batch.to <= self.seen || self.seen == 0 {
            return Ok(());
        }
        if batch.from <= self.seen + 1 {
            let told = self.watchers.match_batch(&batch, self.seen);
            for (id, events) in told {
                self.tell(id, events, batch.to).await?;
            }
        }
        // After a gap nobody was told anything, and all are behind.
        self.seen = batch.to;
        Ok(())
    }

    /// A page of history for those that are behind.
    async fn catch_up(&mut self) -> Result<(), Ends> {
        let Some(behind) = self.watchers.first_behind(self.seen) else {
            return Ok(());
        };
        let request = EventsRequest {
            from: behind.next,
            prev_kv: behind.prev,
            key: behind.key,
            range_end: behind.range_end,
        };
        let query = Query::Events(request);
        let page = self.asking.query::<Events>(&query, Freshness::Local).await;
        let page = match page {
            Ok(page) => page,
            Err(status) if status.code() == Code::OutOfRange => return self.end_compacted().await,
            Err(status) => return Err(status.into()),
        };
        if page.next <= behind.next {
            // This node went back; it will come there again.
            sleep(Duration::from_millis(50)).await;
        }
        let told = self.watchers.match_page(&behind.ids, &page);
        for (id, events) in told {
            self.tell(id, events, page.next - 1).await?;
        }
        Ok(())
    }

    /// What some watchers would need is compacted: they end, and hear how far.
    async fn end_compacted(&mut self) -> Result<(), Ends> {
        let figures = self.asking.figures(Freshness::Local).await?;
        for id in self.watchers.before(figures.compacted) {
            self.watchers.remove(id);
            self.send(WatchResponse {
                header: self.asking.header(figures.revision),
                watch_id: id,
                canceled: true,
                compact_revision: figures.compacted,
                ..WatchResponse::default()
            })
            .await?;
        }
        Ok(())
    }

    /// Tells a watcher what happened; those of one revision come together, or in fragments if the client can take them.
    async fn tell(&mut self, id: i64, events: Vec<Event>, to: i64) -> Result<(), Ends> {
        let Some(watcher) = self.watchers.get_mut(id) else {
            return Ok(());
        };
        watcher.is_quiet = false;
        let parts = watcher.parts(events);
        let last = parts.len().saturating_sub(1);
        for (at, events) in parts.into_iter().enumerate() {
            self.send(WatchResponse {
                header: self.asking.header(to),
                watch_id: id,
                fragment: at < last,
                events,
                ..WatchResponse::default()
            })
            .await?;
        }
        Ok(())
    }

    /// Says how far all watchers are, if that was asked for and all are level.
    async fn tell_progress(&mut self) -> Result<(), Ends> {
        if !self.owes_progress || self.watchers.first_behind(self.seen).is_some() {
            return Ok(());
        }
        self.owes_progress = false;
        if self.seen == 0 {
            return Ok(());
        }
        self.send(WatchResponse {
            header: self.asking.header(self.seen),
            watch_id: NOBODY,
            ..WatchResponse::default()
        })
        .await
    }

    /// Says how far they are to watchers that wanted it and have heard nothing for a while.
    async fn tell_quiet(&mut self) -> Result<(), Ends> {
        for id in self.watchers.take_quiet(self.seen) {
            self.send(WatchResponse {
                header: self.asking.header(self.seen),
                watch_id: id,
                ..WatchResponse::default()
            })
            .await?;
        }
        Ok(())
    }
}
