//! Executes commands and queries for a client. They are repeated if users or roles change between
//! authentication and execution.

use std::sync::{Arc, atomic::Ordering};

use prost::Message;
use quorate::{Failure, RequestError};
use tokio::sync::oneshot;
use tonic::Status;

use super::{Freshness, ReplicaAccess};
use crate::{
    auth::{AuthQuery, Credentials, Sender, auth_ask},
    command::{Command, Query, decode_reply},
    front::{
        errors,
        gate::Requester,
        memory::{MemoryBudget, MemoryShare},
        settings::REQUEST_BYTES_MAX,
    },
    proto::etcdserverpb::{AlarmRequest, AlarmResponse},
};

/// Maximum number of times that a request is repeated because users or roles changed.
const AUTH_ATTEMPTS_MAX: u32 = 5;

#[derive(Clone)]
enum ReplicaRequest {
    Command(Vec<u8>),
    /// A command that contains its time of acceptance. The closure builds it from that time.
    TimedCommand(Arc<dyn Fn(u64) -> Vec<u8> + Send + Sync>),
    Query(Vec<u8>, Freshness),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestKind {
    Command,
    Query,
}

impl RequestKind {
    /// Returns the error to report when the response exceeds the memory budget. A command has been
    /// executed by then, so its error is [`Failure::Unknown`].
    const fn without_memory(self) -> Failure {
        match self {
            Self::Command => Failure::Unknown,
            Self::Query => Failure::Busy,
        }
    }
}

type OnResult = Box<dyn FnOnce(Result<Vec<u8>, RequestError>) + Send>;

impl ReplicaAccess {
    /// Proposes a command and returns its reply. The response counts against the memory budget
    /// until its share is dropped. If it exceeds the budget, returns an error although the command
    /// was executed.
    pub(in crate::front) async fn execute<M: Message + Default>(
        &self,
        asker: &Requester,
        command: &Command,
    ) -> Result<(M, MemoryShare), Status> {
        let command = command.encode();
        if command.len() > REQUEST_BYTES_MAX {
            return Err(errors::too_large());
        }
        let work = ReplicaRequest::Command(command);
        self.request_with_retry(asker, &self.memory, &work).await
    }

    /// Like [`Self::execute`], for a command that contains its time of acceptance.
    pub(in crate::front) async fn execute_timed<M: Message + Default>(
        &self,
        asker: &Requester,
        make: impl Fn(u64) -> Command + Send + Sync + 'static,
    ) -> Result<(M, MemoryShare), Status> {
        let work = ReplicaRequest::TimedCommand(Arc::new(move |now_ms| make(now_ms).encode()));
        self.request_with_retry(asker, &self.memory, &work).await
    }

    /// Queries the state for a client.
    pub(in crate::front) async fn query<M: Message + Default>(
        &self,
        asker: &Requester,
        query: &Query,
        freshness: Freshness,
    ) -> Result<(M, MemoryShare), Status> {
        self.query_within(asker, &self.memory, query, freshness).await
    }

    /// Like [`Self::query`], but charges another memory budget.
    pub(in crate::front) async fn query_within<M: Message + Default>(
        &self,
        asker: &Requester,
        memory: &MemoryBudget,
        query: &Query,
        freshness: Freshness,
    ) -> Result<(M, MemoryShare), Status> {
        let work = ReplicaRequest::Query(query.encode(), freshness);
        self.request_with_retry(asker, memory, &work).await
    }

    /// Queries the state for a known identity, without retries.
    pub(in crate::front) async fn query_once<M: Message + Default>(
        &self,
        by: &Sender,
        query: &Query,
        freshness: Freshness,
    ) -> Result<(M, MemoryShare), Status> {
        let work = ReplicaRequest::Query(query.encode(), freshness);
        self.request_once(by, &self.memory, &work).await
    }

    /// Sends a request for a client, and retries it if users or roles changed between
    /// authentication and execution.
    async fn request_with_retry<M: Message + Default>(
        &self,
        asker: &Requester,
        memory: &MemoryBudget,
        work: &ReplicaRequest,
    ) -> Result<(M, MemoryShare), Status> {
        let mut tries = 0;
        loop {
            let by = self.identify_sender(asker).await?;
            let asked = self.request_once(&by, memory, work).await;
            match asked {
                Err(status) if errors::is_auth_changed(&status) && tries < AUTH_ATTEMPTS_MAX => {
                    tries += 1;
                    self.credentials("").await?;
                    if by == self.identify_sender(asker).await? {
                        return Err(status);
                    }
                }
                asked => return asked,
            }
        }
    }

    async fn request_once<M: Message + Default>(
        &self,
        by: &Sender,
        memory: &MemoryBudget,
        work: &ReplicaRequest,
    ) -> Result<(M, MemoryShare), Status> {
        let asked = match work {
            ReplicaRequest::Command(_) | ReplicaRequest::TimedCommand(_) => RequestKind::Command,
            ReplicaRequest::Query(..) => RequestKind::Query,
        };
        let ask = |done| match work {
            ReplicaRequest::Command(command) => {
                self.local.submit(by.prepend_to(command.clone()), done)
            }
            ReplicaRequest::TimedCommand(make) => {
                let (by, make) = (by.clone(), Arc::clone(make));
                self.local.submit_at(move |now_ms| by.prepend_to(make(now_ms)), done)
            }
            ReplicaRequest::Query(query, freshness) => {
                let query = by.prepend_to(query.clone());
                match freshness {
                    Freshness::Linearizable => self.local.submit_query(query, done),
                    Freshness::Local => self.local.submit_query_local(query, done),
                }
            }
        };
        self.decode_answer(memory, asked, ask).await
    }

    /// Requires the `root` role, if auth is enabled.
    pub(in crate::front) async fn require_root(&self, asker: &Requester) -> Result<(), Status> {
        let what = Some(auth_ask::AuthQueryKind::Root(true));
        let query = Query::Auth(AuthQuery { kind: what });
        let asked = self.query::<Credentials>(asker, &query, Freshness::Linearizable);
        asked.await.map(drop)
    }

    /// Requires an authenticated client, if auth is enabled.
    pub(in crate::front) async fn require_user(&self, asker: &Requester) -> Result<(), Status> {
        // Every authenticated user may make this query.
        let query = Query::Alarms(AlarmRequest::default());
        let asked = self.query::<AlarmResponse>(asker, &query, Freshness::Local);
        asked.await.map(drop)
    }

    async fn decode_answer<M: Message + Default>(
        &self,
        memory: &MemoryBudget,
        asked: RequestKind,
        ask: impl FnOnce(OnResult) -> Result<(), RequestError>,
    ) -> Result<(M, MemoryShare), Status> {
        let (tell, told) = oneshot::channel();
        let mut share = memory.empty_share();
        let done: OnResult = Box::new(move |result| {
            // Charged before it is queued for the client.
            let counted = result.and_then(|reply| match share.try_grow(reply.len()) {
                true => Ok((reply, share)),
                false => Err(RequestError(asked.without_memory())),
            });
            // The send fails if the client has given up, which is not an error of the node.
            drop(tell.send(counted));
        });
        let not_done = |failure| {
            if asked == RequestKind::Command {
                self.counters.failed_commands.fetch_add(1, Ordering::Relaxed);
            }
            errors::failure_status(failure)
        };
        ask(done).map_err(not_done)?;
        let reply = told.await.map_err(|_| errors::server_stopped())?;
        let (reply, share) = reply.map_err(not_done)?;
        let outcome = decode_reply(reply);
        let outcome = outcome
            .ok_or_else(|| Status::internal("etcdserver: unexpected answer from the node"))?;
        let answer = outcome.map_err(errors::refusal_status)?;
        Ok((answer, share))
    }
}
