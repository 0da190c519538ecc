//! Access to the replica: commands and queries ([`orders`]), and the status of the node.

mod orders;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use quorate::{Handle, Local, NodeId, Role, Status as NodeStatus, Who};
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, sleep},
};
use tonic::Status;

use super::{
    counters::Counters,
    errors,
    gate::{Requester, SessionCache},
    jwt::TokenKind,
    memory::MemoryBudget,
    settings::Settings,
};
use crate::{
    command::{Command, Figures, Query},
    proto::etcdserverpb::{
        AlarmMember, AlarmRequest, AlarmResponse, AlarmType, ResponseHeader,
        alarm_request::AlarmAction,
    },
    refusal::Refusal,
    service::ExecutionNotice,
};

/// Maximum age of the cached term in responses.
const TERM_AGE_MAX: Duration = Duration::from_millis(200);
/// Initial and maximum delay before a stream retries a request to a busy node.
const BUSY_RETRY_DELAYS: (Duration, Duration) =
    (Duration::from_millis(5), Duration::from_millis(200));
/// Maximum time for which a stream retries a request.
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);
/// Time without a leader after which clients that require one receive an error.
const LEADERLESS_TIME_MAX: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    /// Reflects every write acknowledged earlier by any node.
    Linearizable,
    /// Reflects only the local state of this node.
    Local,
}

impl Freshness {
    pub(super) const fn from_serializable(serializable: bool) -> Self {
        match serializable {
            true => Self::Local,
            false => Self::Linearizable,
        }
    }
}

/// Access to the replica, shared by all gRPC services.
#[derive(Debug)]
pub(super) struct ReplicaAccess {
    local: Local,
    handle: Handle,
    cluster_id: u64,
    node_id: NodeId,
    /// Set if clients connect with TLS.
    pub(super) uses_tls: bool,
    /// Memory budget of requests, responses and the work for them.
    pub(super) memory: MemoryBudget,
    pub(super) counters: Arc<Counters>,
    /// Cache of authenticated clients, with the current state of auth.
    pub(super) session_cache: SessionCache,
    pub(super) token_kind: TokenKind,
    /// Size of the data above which no command may increase it; 0 for no limit.
    pub(super) quota_bytes: u64,
    /// Size of the data on this node, in bytes.
    bytes: AtomicU64,
    /// Permit for sending a snapshot, one at a time.
    pub(super) snapshot_permit: Arc<Semaphore>,
    term: AtomicU64,
    /// Time since when there has been no leader, or `None` if there is one.
    leaderless_since: Mutex<Option<Instant>>,
}

/// Converts a ballot to an etcd term. Terms must never decrease.
pub(super) fn term_of(status: &NodeStatus) -> u64 {
    let era = u64::from(status.ballot.era.0);
    (era << 32) | u64::from(status.ballot.round)
}

impl ReplicaAccess {
    pub(super) fn new(local: Local, handle: Handle, settings: &Settings, secure: bool) -> Self {
        let [.., low] = [settings.cluster_id >> 64, settings.cluster_id];
        #[expect(
            clippy::cast_possible_truncation,
            reason = "half of it names a cluster well enough"
        )]
        let cluster = low as u64;
        Self {
            local,
            handle,
            cluster_id: cluster,
            node_id: settings.node_id,
            uses_tls: secure,
            memory: MemoryBudget::new(settings.memory_bytes),
            counters: Arc::default(),
            session_cache: SessionCache::new(),
            token_kind: settings.token_kind.clone(),
            quota_bytes: settings.quota_bytes,
            bytes: AtomicU64::new(0),
            snapshot_permit: Arc::new(Semaphore::new(1)),
            term: AtomicU64::new(0),
            leaderless_since: Mutex::default(),
        }
    }

    /// Returns whether there is a leader, or was one until recently.
    pub(super) fn has_leader(&self) -> bool {
        let since = self.leaderless_since.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_none_or(|since| since.elapsed() < LEADERLESS_TIME_MAX)
    }

    /// Records the current leader, if any.
    fn record_leader(&self, leader: Option<NodeId>) {
        let since = self.leaderless_since.lock();
        let mut since = since.unwrap_or_else(PoisonError::into_inner);
        match leader {
            Some(leader) => {
                *since = None;
                self.counters.record_leader(leader.0);
            }
            None => drop(since.get_or_insert_with(Instant::now)),
        }
    }

    /// Subscribes to new revisions of the state.
    pub(super) fn subscribe_revisions(self: &Arc<Self>) -> watch::Receiver<i64> {
        let (tell, told) = watch::channel(0);
        let asking = Arc::downgrade(self);
        self.local.set_notice_listener(move |_, notice| {
            let Some(now) = ExecutionNotice::decode(notice) else {
                return;
            };
            if let Some(asking) = asking.upgrade() {
                asking.bytes.store(now.bytes, Ordering::Relaxed);
                // Updated before the revision is announced: a client that learns of an event must
                // find that revision's access rights in force.
                asking.session_cache.advance_auth_version(now.auth);
            }
            tell.send_if_modified(|told| std::mem::replace(told, now.revision) != now.revision);
        });
        told
    }

    /// Checks that the data may grow by `bytes` bytes. If not, raises an alarm for all members,
    /// which an operator must disarm.
    pub(super) async fn check_quota(&self, bytes: usize) -> Result<(), Status> {
        let after = self.bytes.load(Ordering::Relaxed).saturating_add(bytes as u64);
        if self.quota_bytes == 0 || after <= self.quota_bytes {
            return Ok(());
        }
        let mut alarm =
            AlarmRequest { member_id: u64::from(self.node_id.0), ..AlarmRequest::default() };
        alarm.set_action(AlarmAction::Activate);
        alarm.set_alarm(AlarmType::Nospace);
        let raised = self
            .query::<AlarmResponse>(&Requester::Member, &Query::Alarms(alarm), Freshness::Local)
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
            let _: (AlarmResponse, _) = self.execute(&Requester::Member, &command).await?;
        }
        Err(errors::refusal_status(Refusal::NoSpace))
    }

    pub(super) const fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(super) fn node_id(&self) -> NodeId {
        self.node_id
    }

    /// Returns the cluster's id, truncated to etcd's 64 bits.
    pub(super) const fn cluster_id(&self) -> u64 {
        self.cluster_id
    }

    pub(super) fn response_header(&self, revision: i64) -> Option<ResponseHeader> {
        Some(ResponseHeader {
            cluster_id: self.cluster_id,
            member_id: u64::from(self.node_id.0),
            revision,
            raft_term: self.term.load(Ordering::Relaxed),
        })
    }

    /// Completes a header from the state machine, which contains only the revision.
    pub(super) fn complete_header(&self, header: &mut Option<ResponseHeader>) {
        let revision = header.as_ref().map_or(0, |header| header.revision);
        *header = self.response_header(revision);
    }

    /// [access-2] Checks that a client has this role among the cluster's own users.
    pub(super) fn check_identity(&self, who: &Who, needed: Role) -> Result<(), Status> {
        match self.local.role(who).map_err(errors::failure_status)? {
            Some(role) if role >= needed => Ok(()),
            _ => Err(errors::permission_denied()),
        }
    }

    /// [access-4] Waits, for a limited time, until this node has loaded the cluster's own users.
    pub(super) async fn wait_for_access(&self) {
        if self.local.role(&Who::default()).is_err() {
            let (tell, told) = tokio::sync::oneshot::channel();
            // If this fails or times out, the check of the request fails.
            let tell = move |_: Result<Vec<u8>, _>| {
                let _ = tell.send(());
            };
            if self.local.submit_access(tell).is_ok() {
                let _ = told.await;
            }
        }
    }

    pub(super) async fn figures(&self, freshness: Freshness) -> Result<Figures, Status> {
        let (figures, _) = self.query(&Requester::Member, &Query::Figures, freshness).await?;
        Ok(figures)
    }

    pub(super) async fn alarms(&self, asker: &Requester) -> Result<Vec<AlarmMember>, Status> {
        let query = Query::Alarms(AlarmRequest::default());
        let (alarms, _): (AlarmResponse, _) = self.query(asker, &query, Freshness::Local).await?;
        Ok(alarms.alarms)
    }

    /// Sends a request to the node from a blocking thread, because the answer takes up to one turn
    /// of the node's event loop.
    pub(super) async fn send_to_node<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Handle) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let handle = self.handle.clone();
        let asked = tokio::task::spawn_blocking(move || question(&handle));
        asked.await.map_err(|_| errors::server_stopped())
    }

    /// Returns the status of the node, after up to one turn of its event loop.
    pub(super) async fn status(&self) -> Result<NodeStatus, Status> {
        let status = self.send_to_node(Handle::status).await?;
        let status = status.map_err(|_| errors::server_stopped())?;
        self.term.store(term_of(&status), Ordering::Relaxed);
        self.record_leader(status.leader);
        Ok(status)
    }
}

/// Retries a stream's request while the node is busy, because an error would end the stream. Gives
/// up with "unavailable", on which etcd's clients reconnect.
pub(super) async fn retry_while_busy<T, F: Future<Output = Result<T, Status>>>(
    mut ask: impl FnMut() -> F,
) -> Result<T, Status> {
    let begun = Instant::now();
    let (mut wait, longest) = BUSY_RETRY_DELAYS;
    loop {
        match ask().await {
            Err(status) if errors::is_memory_exceeded(&status) => {
                if begun.elapsed() >= RETRY_TIMEOUT {
                    return Err(Status::unavailable(status.message()));
                }
            }
            asked => return asked,
        }
        sleep(wait).await;
        wait = longest.min(wait * 2);
    }
}

/// Periodically refreshes the term in responses.
pub(super) async fn refresh_term(asking: Arc<ReplicaAccess>) {
    loop {
        if let Err(error) = asking.status().await {
            tracing::debug!(%error, "the node does not say what it is");
        }
        sleep(TERM_AGE_MAX).await;
    }
}
