//! Asking the replica: commands, queries, and what the node is.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use prost::Message;
use quorate::{Failure, Handle, Local, NodeId, NotDone, Role, Status as NodeStatus, Who};
use tokio::{
    sync::{Semaphore, oneshot, watch},
    time::{Instant, sleep},
};
use tonic::Status;

use super::{
    REQUEST_BYTES_MAX, Settings, errors,
    gate::{Asker, Gate},
    memory::{Memory, Share},
    metrics::Counters,
};
use crate::{
    auth::{AuthAsk, By, Credentials, auth_ask},
    command::{Command, Figures, Query, read_reply},
    proto::etcdserverpb::{
        AlarmRequest, AlarmResponse, AlarmType, ResponseHeader, alarm_request::AlarmAction,
    },
    refusal::Refusal,
    service::Notice,
};

/// How old the term in an answer may be.
const TERM_PERIOD: Duration = Duration::from_millis(200);
/// How long a stream waits before it asks again when the node is busy, at first and at most.
const BUSY_WAITS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(200));
/// And how long in all.
const PATIENCE: Duration = Duration::from_secs(30);
/// Once there has been no leader for so long, clients that insist on one are told.
const LEADERLESS_MAX: Duration = Duration::from_secs(3);

/// Who asks, as a connection knows it.
#[derive(Clone, Debug, Default)]
pub(super) struct Caller {
    /// What a certificate proves to Quorate.
    pub(super) who: Who,
    /// The name in the certificate, which may be that of a user of etcd.
    pub(super) certified: Option<Arc<str>>,
}

/// How fresh an answer must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    /// It sees all that was acknowledged before, by whichever node.
    Linearizable,
    /// What this node has.
    Local,
}

impl Freshness {
    pub(super) const fn of(serializable: bool) -> Self {
        match serializable {
            true => Self::Local,
            false => Self::Linearizable,
        }
    }
}

/// How often something is asked for again because users or roles changed meanwhile.
const AUTH_TRIES: u32 = 5;

/// What the replica is asked for, and how.
#[derive(Clone)]
enum Work {
    Command(Vec<u8>),
    /// One that says when it was taken.
    CommandAt(Arc<dyn Fn(u64) -> Vec<u8> + Send + Sync>),
    Query(Vec<u8>, Freshness),
}

/// What kind that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Command,
    Query,
}

impl Asked {
    /// What came of it if there is no memory for the answer: a command was done all the same.
    const fn without_memory(self) -> Failure {
        match self {
            Self::Command => Failure::Unknown,
            Self::Query => Failure::Busy,
        }
    }
}

/// What all services share.
#[derive(Debug)]
pub(super) struct Asking {
    local: Local,
    handle: Handle,
    cluster: u64,
    node: NodeId,
    /// Whether clients use TLS.
    pub(super) secure: bool,
    /// For what requests and answers take, and what is under way for them.
    pub(super) memory: Memory,
    pub(super) counters: Arc<Counters>,
    /// Who is who.
    pub(super) gate: Gate,
    /// Above so many bytes of data nothing may grow; 0: there is no bound.
    pub(super) quota_bytes: u64,
    /// Bytes of the data, as this node has them.
    bytes: AtomicU64,
    /// One snapshot is sent at a time.
    pub(super) snapshots: Arc<Semaphore>,
    term: AtomicU64,
    /// Since when no leader is known.
    leaderless: Mutex<Option<Instant>>,
}

/// A ballot as clients know terms: a number that grows.
pub(super) fn term_of(status: &NodeStatus) -> u64 {
    let era = u64::from(status.ballot.era.0);
    (era << 32) | u64::from(status.ballot.round)
}

impl Asking {
    pub(super) fn new(local: Local, handle: Handle, settings: &Settings, secure: bool) -> Self {
        let [.., low] = [settings.cluster >> 64, settings.cluster];
        #[expect(
            clippy::cast_possible_truncation,
            reason = "half of it names a cluster well enough"
        )]
        let cluster = low as u64;
        Self {
            local,
            handle,
            cluster,
            node: settings.node,
            secure,
            memory: Memory::new(settings.memory_bytes),
            counters: Arc::default(),
            gate: Gate::new(),
            quota_bytes: settings.quota_bytes,
            bytes: AtomicU64::new(0),
            snapshots: Arc::new(Semaphore::new(1)),
            term: AtomicU64::new(0),
            leaderless: Mutex::default(),
        }
    }

    /// Whether there was a leader lately.
    pub(super) fn has_leader(&self) -> bool {
        let since = self
            .leaderless
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        since.is_none_or(|since| since.elapsed() < LEADERLESS_MAX)
    }

    /// However often somebody looks.
    fn see_leader(&self, leader: Option<NodeId>) {
        let since = self.leaderless.lock();
        let mut since = since.unwrap_or_else(PoisonError::into_inner);
        match leader {
            Some(leader) => {
                *since = None;
                self.counters.see_leader(leader.0);
            }
            None => drop(since.get_or_insert_with(Instant::now)),
        }
    }

    /// Says revisions as they are reached.
    pub(super) fn revisions(self: &Arc<Self>) -> watch::Receiver<i64> {
        let (tell, told) = watch::channel(0);
        let asking = Arc::downgrade(self);
        self.local.listen(move |_, notice| {
            let Some(now) = Notice::decode(notice) else {
                return;
            };
            if let Some(asking) = asking.upgrade() {
                asking.bytes.store(now.bytes, Ordering::Relaxed);
                // Before the revision: whoever hears of what happened knows by then who may.
                asking.gate.reach(now.auth);
            }
            tell.send_if_modified(|told| std::mem::replace(told, now.revision) != now.revision);
        });
        told
    }

    /// Whether the data may grow by so much. If not, everybody hears of it: an alarm is raised, which ends by itself for nobody.
    pub(super) async fn room_for(&self, bytes: usize) -> Result<(), Status> {
        let after = self
            .bytes
            .load(Ordering::Relaxed)
            .saturating_add(bytes as u64);
        if self.quota_bytes == 0 || after <= self.quota_bytes {
            return Ok(());
        }
        let mut alarm = AlarmRequest {
            member_id: u64::from(self.node.0),
            ..AlarmRequest::default()
        };
        alarm.set_action(AlarmAction::Activate);
        alarm.set_alarm(AlarmType::Nospace);
        let raised = self
            .query::<AlarmResponse>(&Asker::Member, &Query::Alarms(alarm), Freshness::Local)
            .await;
        let is_raised = raised.is_ok_and(|(raised, _)| {
            let mut members = raised.alarms.iter().map(|alarm| alarm.member_id);
            members.any(|member| member == alarm.member_id)
        });
        if !is_raised {
            tracing::warn!(
                bytes = after,
                quota = self.quota_bytes,
                "the data reached the quota: raising the alarm NOSPACE"
            );
            let command = Command::Alarm(alarm);
            let _: (AlarmResponse, _) = self.execute(&Asker::Member, &command).await?;
        }
        Err(errors::refused(Refusal::NoSpace))
    }

    /// Questions to the node itself.
    pub(super) const fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The member that answers.
    pub(super) fn node(&self) -> NodeId {
        self.node
    }

    /// The cluster's id, as far as clients have room for it.
    pub(super) const fn cluster(&self) -> u64 {
        self.cluster
    }

    /// What is the same in all answers.
    pub(super) fn header(&self, revision: i64) -> Option<ResponseHeader> {
        Some(ResponseHeader {
            cluster_id: self.cluster,
            member_id: u64::from(self.node.0),
            revision,
            raft_term: self.term.load(Ordering::Relaxed),
        })
    }

    /// Says who is told what in an answer of the state machine, which knows the revision alone.
    pub(super) fn fill(&self, header: &mut Option<ResponseHeader>) {
        let revision = header.as_ref().map_or(0, |header| header.revision);
        *header = self.header(revision);
    }

    /// [access-2] Whether somebody may do what needs this role of the cluster's own users.
    pub(super) fn allow_who(&self, who: &Who, needed: Role) -> Result<(), Status> {
        match self.local.role(who).map_err(errors::failed)? {
            Some(role) if role >= needed => Ok(()),
            _ => Err(errors::denied()),
        }
    }

    /// Orders a command and executes it. The answer's memory is counted as long as its share is kept; if there is none, it
    /// was done all the same.
    pub(super) async fn execute<M: Message + Default>(
        &self,
        asker: &Asker,
        command: &Command,
    ) -> Result<(M, Share), Status> {
        let command = command.encode();
        if command.len() > REQUEST_BYTES_MAX {
            return Err(errors::too_large());
        }
        let work = Work::Command(command);
        self.ask(asker, &self.memory, &work).await
    }

    /// The same of a command that says when it was taken.
    pub(super) async fn execute_at<M: Message + Default>(
        &self,
        asker: &Asker,
        make: impl Fn(u64) -> Command + Send + Sync + 'static,
    ) -> Result<(M, Share), Status> {
        let work = Work::CommandAt(Arc::new(move |now_ms| make(now_ms).encode()));
        self.ask(asker, &self.memory, &work).await
    }

    /// Asks the state.
    pub(super) async fn query<M: Message + Default>(
        &self,
        asker: &Asker,
        query: &Query,
        freshness: Freshness,
    ) -> Result<(M, Share), Status> {
        self.query_within(asker, &self.memory, query, freshness)
            .await
    }

    /// The same, with other memory for the answer.
    pub(super) async fn query_within<M: Message + Default>(
        &self,
        asker: &Asker,
        memory: &Memory,
        query: &Query,
        freshness: Freshness,
    ) -> Result<(M, Share), Status> {
        let work = Work::Query(query.encode(), freshness);
        self.ask(asker, memory, &work).await
    }

    /// The same of somebody who is known.
    pub(super) async fn query_once<M: Message + Default>(
        &self,
        by: &By,
        query: &Query,
        freshness: Freshness,
    ) -> Result<(M, Share), Status> {
        let work = Work::Query(query.encode(), freshness);
        self.ask_once(by, &self.memory, &work).await
    }

    /// Asks on behalf of somebody; again, if users or roles changed between the look at who that is and the answer.
    async fn ask<M: Message + Default>(
        &self,
        asker: &Asker,
        memory: &Memory,
        work: &Work,
    ) -> Result<(M, Share), Status> {
        let mut tries = 0;
        loop {
            let by = self.by(asker).await?;
            let asked = self.ask_once(&by, memory, work).await;
            match asked {
                Err(status) if errors::is_auth_moved(&status) && tries < AUTH_TRIES => {
                    tries += 1;
                    self.credentials("").await?;
                    if by == self.by(asker).await? {
                        return Err(status);
                    }
                }
                asked => return asked,
            }
        }
    }

    async fn ask_once<M: Message + Default>(
        &self,
        by: &By,
        memory: &Memory,
        work: &Work,
    ) -> Result<(M, Share), Status> {
        let asked = match work {
            Work::Command(_) | Work::CommandAt(_) => Asked::Command,
            Work::Query(..) => Asked::Query,
        };
        let ask = |done| match work {
            Work::Command(command) => self.local.submit(by.before(command.clone()), done),
            Work::CommandAt(make) => {
                let (by, make) = (by.clone(), Arc::clone(make));
                self.local
                    .submit_at(move |now_ms| by.before(make(now_ms)), done)
            }
            Work::Query(query, freshness) => {
                let query = by.before(query.clone());
                match freshness {
                    Freshness::Linearizable => self.local.submit_query(query, done),
                    Freshness::Local => self.local.submit_query_local(query, done),
                }
            }
        };
        self.answered(memory, asked, ask).await
    }

    /// Whether somebody may do everything, if auth is on.
    pub(super) async fn needs_root(&self, asker: &Asker) -> Result<(), Status> {
        let what = Some(auth_ask::What::Root(true));
        let query = Query::Auth(AuthAsk { what });
        let asked = self.query::<Credentials>(asker, &query, Freshness::Linearizable);
        asked.await.map(drop)
    }

    /// Whether anybody is known who asks, if auth is on.
    pub(super) async fn needs_user(&self, asker: &Asker) -> Result<(), Status> {
        // Everybody who is known may ask that.
        let query = Query::Alarms(AlarmRequest::default());
        let asked = self.query::<AlarmResponse>(asker, &query, Freshness::Local);
        asked.await.map(drop)
    }

    async fn answered<M: Message + Default>(
        &self,
        memory: &Memory,
        asked: Asked,
        ask: impl FnOnce(Done) -> Result<(), NotDone>,
    ) -> Result<(M, Share), Status> {
        let (tell, told) = oneshot::channel();
        let mut share = memory.share();
        let done: Done = Box::new(move |result| {
            // Counted before it waits for anybody.
            let counted = result.and_then(|reply| match share.grow(reply.len()) {
                true => Ok((reply, share)),
                false => Err(NotDone(asked.without_memory())),
            });
            // Who gave up does not concern the node.
            drop(tell.send(counted));
        });
        let not_done = |failure| {
            if asked == Asked::Command {
                self.counters.failed.fetch_add(1, Ordering::Relaxed);
            }
            errors::failed(failure)
        };
        ask(done).map_err(not_done)?;
        let reply = told.await.map_err(|_| errors::stopped())?;
        let (reply, share) = reply.map_err(not_done)?;
        let outcome = read_reply(reply);
        let outcome =
            outcome.ok_or_else(|| Status::internal("the node's answer makes no sense"))?;
        let answer = outcome.map_err(errors::refused)?;
        Ok((answer, share))
    }

    /// How far the state is.
    pub(super) async fn figures(&self, freshness: Freshness) -> Result<Figures, Status> {
        let (figures, _) = self
            .query(&Asker::Member, &Query::Figures, freshness)
            .await?;
        Ok(figures)
    }

    /// Asks the node itself, which may take a turn of its loop.
    pub(super) async fn node_says<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Handle) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let handle = self.handle.clone();
        let asked = tokio::task::spawn_blocking(move || question(&handle));
        asked.await.map_err(|_| errors::stopped())
    }

    /// What the node is.
    pub(super) async fn status(&self) -> Result<NodeStatus, Status> {
        let status = self.node_says(Handle::status).await?;
        let status = status.map_err(|_| errors::stopped())?;
        self.term.store(term_of(&status), Ordering::Relaxed);
        self.see_leader(status.leader);
        Ok(status)
    }
}

/// Asks again while the node is busy, for a stream that would end otherwise. In the end the client is to come again: it hears
/// that the node is unavailable, at which clients of etcd do.
pub(super) async fn patiently<T, F: Future<Output = Result<T, Status>>>(
    mut ask: impl FnMut() -> F,
) -> Result<T, Status> {
    let begun = Instant::now();
    let (mut wait, longest) = BUSY_WAITS;
    loop {
        match ask().await {
            Err(status) if errors::is_too_many(&status) => {
                if begun.elapsed() >= PATIENCE {
                    return Err(Status::unavailable(status.message()));
                }
            }
            asked => return asked,
        }
        sleep(wait).await;
        wait = longest.min(wait * 2);
    }
}

type Done = Box<dyn FnOnce(Result<Vec<u8>, NotDone>) + Send>;

/// Keeps the term in answers fresh.
pub(super) async fn follow_term(asking: Arc<Asking>) {
    loop {
        if let Err(error) = asking.status().await {
            tracing::debug!(%error, "the node does not say what it is");
        }
        sleep(TERM_PERIOD).await;
    }
}
