//! Lease keep-alives. Requests that arrive while a command is in flight share the next command.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::{mpsc, oneshot};
use tonic::Status;

use super::{
    asking::{Freshness, ReplicaAccess, retry_while_busy},
    errors,
    gate::Requester,
};
use crate::{
    auth::{AuthQuery, Credentials, auth_ask},
    command::{Command, KeepAliveTtls, LeaseKeepAlives, Query},
};

const LEASES_PER_COMMAND_MAX: usize = 1000;
/// Maximum number of requests queued for the next command. Further ones wait in their streams.
const QUEUED_REQUESTS_MAX: usize = 4096;
/// Maximum number of times that a command is rebuilt because users or roles changed.
const AUTH_ATTEMPTS_MAX: u32 = 5;

#[derive(Clone, Copy, Debug)]
pub(super) struct KeepAliveResult {
    pub(super) id: i64,
    /// Time to live in seconds; 0 if the lease does not exist.
    pub(super) ttl: i64,
    pub(super) revision: i64,
}

#[derive(Debug)]
pub(super) struct KeepAliveRequest {
    id: i64,
    requester: Requester,
    /// Auth revision at which the client was authorized; 0 if auth is disabled.
    auth_revision: u64,
    result_sender: oneshot::Sender<Result<KeepAliveResult, Status>>,
}

/// A handle to the task that combines requests.
#[derive(Clone, Debug)]
pub(super) struct KeepAliveQueue(mpsc::Sender<KeepAliveRequest>);

pub(super) fn keep_alive_queue() -> (KeepAliveQueue, mpsc::Receiver<KeepAliveRequest>) {
    let (ask, asked) = mpsc::channel(QUEUED_REQUESTS_MAX);
    (KeepAliveQueue(ask), asked)
}

impl KeepAliveQueue {
    /// Queues a request, whose result arrives at the returned receiver.
    pub(super) async fn queue_keep_alive(
        &self,
        asking: &ReplicaAccess,
        asker: &Requester,
        id: i64,
    ) -> Result<oneshot::Receiver<Result<KeepAliveResult, Status>>, Status> {
        let (tell, told) = oneshot::channel();
        let wanted = KeepAliveRequest {
            id,
            requester: asker.clone(),
            auth_revision: check_may_keep(asking, asker, id).await?,
            result_sender: tell,
        };
        let sent = self.0.send(wanted).await;
        sent.map_err(|_| errors::server_stopped())?;
        Ok(told)
    }
}

/// Checks that a client may keep a lease alive, which requires write access to all of its keys.
/// Returns the auth revision of the check; 0 if auth is disabled.
async fn check_may_keep(asking: &ReplicaAccess, asker: &Requester, id: i64) -> Result<u64, Status> {
    if asking.is_auth_disabled().await? {
        return Ok(0);
    }
    let what = Some(auth_ask::AuthQueryKind::MayKeepAlive(id));
    let query = Query::Auth(AuthQuery { kind: what });
    let ask = || asking.query::<Credentials>(asker, &query, Freshness::Local);
    let (now, _) = retry_while_busy(ask).await?;
    Ok(if now.enabled { now.revision } else { 0 })
}

/// Executes queued requests in batches until the queue is closed.
pub(super) async fn run(asking: Arc<ReplicaAccess>, mut asked: mpsc::Receiver<KeepAliveRequest>) {
    let mut all = Vec::new();
    while asked.recv_many(&mut all, LEASES_PER_COMMAND_MAX).await > 0 {
        let mut tries = 0;
        let lasting = loop {
            let lasting = execute_keep_alives(&asking, &all).await;
            let moved = lasting.as_ref().is_err_and(errors::is_auth_changed);
            if !moved || tries == AUTH_ATTEMPTS_MAX {
                break lasting;
            }
            tries += 1;
            recheck_rights(&asking, &mut all).await;
        };
        for (at, KeepAliveRequest { id, result_sender: tell, .. }) in all.drain(..).enumerate() {
            let kept = match &lasting {
                Ok(lasting) => Ok(KeepAliveResult {
                    id,
                    ttl: lasting.ttls.get(at).copied().unwrap_or(0),
                    revision: lasting.revision,
                }),
                Err(status) => Err(status.clone()),
            };
            // The send fails if the client has given up, which does not affect other clients.
            drop(tell.send(kept));
        }
    }
}

/// Keeps the leases of all requests alive with one command.
async fn execute_keep_alives(
    asking: &ReplicaAccess,
    all: &[KeepAliveRequest],
) -> Result<KeepAliveTtls, Status> {
    let kept = LeaseKeepAlives {
        ids: all.iter().map(|wanted| wanted.id).collect(),
        now_ms: 0,
        // The lowest revision, if they differ, so that every authorization is checked again.
        auth_revision: all.iter().map(|wanted| wanted.auth_revision).min().unwrap_or(0),
    };
    let ask = || {
        let (kept, begun) = (kept.clone(), Instant::now());
        let make = move |now_ms| Command::KeepAlive(LeaseKeepAlives { now_ms, ..kept.clone() });
        async move {
            let (lasting, _) =
                asking.execute_timed::<KeepAliveTtls>(&Requester::Member, make).await?;
            Ok::<_, Status>(lasting.left_after(begun.elapsed()))
        }
    };
    retry_while_busy(ask).await
}

impl KeepAliveTtls {
    /// Subtracts the time since the command was sent from the remaining times. The leases were
    /// extended from the command's acceptance, after which it may have waited for a leader.
    fn left_after(mut self, passed: Duration) -> Self {
        let passed = i64::try_from(passed.as_secs()).unwrap_or(i64::MAX);
        for ttl in &mut self.ttls {
            *ttl = ttl.saturating_sub(passed).max(0);
        }
        self
    }
}

/// Repeats the checks after users or roles have changed. Requests that are no longer allowed are
/// answered with an error and removed.
async fn recheck_rights(asking: &ReplicaAccess, all: &mut Vec<KeepAliveRequest>) {
    if asking.credentials("").await.is_err() {
        return;
    }
    for mut wanted in std::mem::take(all) {
        match check_may_keep(asking, &wanted.requester, wanted.id).await {
            Ok(auth_revision) => {
                wanted.auth_revision = auth_revision;
                all.push(wanted);
            }
            Err(status) => drop(wanted.result_sender.send(Err(status))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_response_has_the_remaining_ttls() {
        let left = |ms| {
            let lasting = KeepAliveTtls { revision: 1, ttls: vec![10, 0, 2] };
            lasting.left_after(Duration::from_millis(ms)).ttls
        };
        assert_eq!(left(999), [10, 0, 2]);
        assert_eq!(left(2_100), [8, 0, 0]);
    }
}
