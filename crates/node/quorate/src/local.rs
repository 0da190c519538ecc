//! Requests from the embedding program: a front end without connections, and the handle that
//! submits requests to it.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError, RwLock, mpsc::sync_channel},
};

use quorate_access::{Role, Users, Who};
use quorate_net::{NotQueued, RequestReceiver, RequestSender, Wake, request_queue};
use quorate_replica::front::{
    AccessPatience, Completion, ConnectionId, Endpoints, Failure, Front, Requests, Sequenced,
    SessionId, Tag,
};

use crate::error::Error;

/// Maximum number of requests queued for the reactor. Further callers block.
const QUEUED_REQUESTS_MAX: usize = 4096;
/// Maximum number of local queries per turn, because each may read thousands of keys while other
/// requests wait.
const LOCAL_QUERIES_MAX: usize = 8;

/// A request from the embedding program, without its callback.
pub(crate) enum LocalRequest {
    /// Order and execute a command.
    Execute(Vec<u8>),
    /// Order and execute a command that the function creates from the time of its acceptance, in
    /// Unix milliseconds.
    ExecuteAt(Box<dyn FnOnce(u64) -> Vec<u8> + Send>),
    /// Order a command that is executed only once per session and number.
    ExecuteOnce(Sequenced, Vec<u8>),
    /// Register a session.
    Register,
    /// Run a linearizable query.
    Query(Vec<u8>),
    /// Query the current state of this node.
    QueryLocal(Vec<u8>),
    /// Wait until the access rights are known.
    Access,
}

impl LocalRequest {
    /// Returns whether the request must wait for the group's clock ([time-4]) or for the access
    /// rights ([access-4]).
    fn must_wait(&self, requests: &dyn Requests) -> bool {
        match self {
            Self::ExecuteAt(_) => !requests.knows_clock(),
            Self::Access => requests.users().is_none(),
            _ => false,
        }
    }
}

/// Result of a request.
#[derive(Debug)]
pub(crate) enum RequestResult {
    /// Reply from the service.
    Reply(Vec<u8>),
    /// Id of the session that was registered.
    Session(SessionId),
}

type OutcomeCallback = dyn FnOnce(Result<RequestResult, Failure>) + Send;

/// Callback for the outcome of a request, called exactly once.
pub(crate) struct ResultCallback(Option<Box<OutcomeCallback>>);

impl ResultCallback {
    pub(crate) fn new(hears: impl FnOnce(Result<RequestResult, Failure>) + Send + 'static) -> Self {
        Self(Some(Box::new(hears)))
    }

    fn call(mut self, result: Result<RequestResult, Failure>) {
        if let Some(hears) = self.0.take() {
            hears(result);
        }
    }

    /// Drops the callback without calling it, because the program learns the outcome by other
    /// means.
    pub(crate) fn drop_uncalled(mut self) {
        self.0 = None;
    }
}

impl Drop for ResultCallback {
    /// Reports an unknown outcome, because the node dropped the request.
    fn drop(&mut self) {
        if let Some(hears) = self.0.take() {
            hears(Err(Failure::Unknown));
        }
    }
}

/// A request with the callback for its outcome.
pub(crate) struct PendingRequest {
    request: LocalRequest,
    callback: ResultCallback,
}

impl fmt::Debug for PendingRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ask")
    }
}

type NoticeCallback = dyn FnMut(&[u8], &[u8]) + Send;

/// State shared by the requesting end and the node's end.
#[derive(Default)]
struct Shared {
    /// Access rights known to this node; `None` while it does not know them.
    users: RwLock<Option<Users>>,
    /// Listener for notices of applied commands.
    notice_listener: Mutex<Option<Box<NoticeCallback>>>,
}

/// Handle for requests to the replica in this process, usable from any thread. Clones reach the
/// same replica.
#[derive(Clone)]
pub struct Local {
    request_sender: Arc<RequestSender<PendingRequest>>,
    shared: Arc<Shared>,
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Local")
    }
}

/// Creates both ends for requests to a node that the caller runs ([`crate::open`]), such as one
/// with additional fronts. Returns the requesting end, and the front for the node.
/// [`LocalFront::wake`] must be added to the node's wakes.
pub fn local_channel() -> Result<(Local, LocalFront), Error> {
    let (asks, asked) = request_queue(QUEUED_REQUESTS_MAX)
        .map_err(|error| Error::from_io("make an eventfd", &error))?;
    let shared = Arc::<Shared>::default();
    let front = LocalFront::new(asked, Arc::clone(&shared));
    let asks = Arc::new(asks);
    Ok((Local { request_sender: asks, shared }, front))
}

impl Local {
    /// Executes a command once on every node, in log order, and returns the service's reply.
    /// Blocks.
    pub fn execute(&self, command: impl Into<Vec<u8>>) -> Result<Vec<u8>, RequestError> {
        self.request_reply(LocalRequest::Execute(command.into()))
    }

    /// Runs a query that reflects every command acknowledged earlier by any node. Blocks.
    pub fn query(&self, query: impl Into<Vec<u8>>) -> Result<Vec<u8>, RequestError> {
        self.request_reply(LocalRequest::Query(query.into()))
    }

    /// Queries this node's copy of the state. The reply is fast but may be stale. Blocks.
    pub fn query_local(&self, query: impl Into<Vec<u8>>) -> Result<Vec<u8>, RequestError> {
        self.request_reply(LocalRequest::QueryLocal(query.into()))
    }

    /// Like [`Local::execute`], but does not block. `done` is called once with the outcome, on the
    /// node's thread, and must neither block nor panic. If the queue is full or the node has
    /// stopped, the error is returned and `done` is not called.
    pub fn submit(
        &self,
        command: impl Into<Vec<u8>>,
        done: impl FnOnce(Result<Vec<u8>, RequestError>) + Send + 'static,
    ) -> Result<(), RequestError> {
        self.queue_request(LocalRequest::Execute(command.into()), done)
    }

    /// Like [`Local::submit`], but for a command that contains a time. `make` receives the time in
    /// Unix milliseconds and returns the command. The time is that of the group's clock ([time-3]),
    /// which differs from the program's clock. Until the node knows the group's time, this command
    /// and all later ones wait ([time-4]). `make` runs on the node's thread, as `done` does.
    pub fn submit_at(
        &self,
        make: impl FnOnce(u64) -> Vec<u8> + Send + 'static,
        done: impl FnOnce(Result<Vec<u8>, RequestError>) + Send + 'static,
    ) -> Result<(), RequestError> {
        self.queue_request(LocalRequest::ExecuteAt(Box::new(make)), done)
    }

    /// Like [`Local::submit`], but the command is executed only once in its session, however often
    /// and through whichever node it is sent ([session-2]).
    pub fn submit_once(
        &self,
        at: Sequenced,
        command: impl Into<Vec<u8>>,
        done: impl FnOnce(Result<Vec<u8>, RequestError>) + Send + 'static,
    ) -> Result<(), RequestError> {
        self.queue_request(LocalRequest::ExecuteOnce(at, command.into()), done)
    }

    /// Like [`Local::query`], but does not block. `done` is called as for [`Local::submit`].
    pub fn submit_query(
        &self,
        query: impl Into<Vec<u8>>,
        done: impl FnOnce(Result<Vec<u8>, RequestError>) + Send + 'static,
    ) -> Result<(), RequestError> {
        self.queue_request(LocalRequest::Query(query.into()), done)
    }

    /// Like [`Local::query_local`], but does not block. `done` is called as for [`Local::submit`].
    pub fn submit_query_local(
        &self,
        query: impl Into<Vec<u8>>,
        done: impl FnOnce(Result<Vec<u8>, RequestError>) + Send + 'static,
    ) -> Result<(), RequestError> {
        self.queue_request(LocalRequest::QueryLocal(query.into()), done)
    }

    /// Registers a session for [`Local::submit_once`]. Blocks.
    pub fn register(&self) -> Result<SessionId, RequestError> {
        match self.wait_for_result(LocalRequest::Register)? {
            RequestResult::Session(session) => Ok(session),
            RequestResult::Reply(_) => Err(RequestError(Failure::Unknown)),
        }
    }

    /// [access-1] Returns the role of an authenticated client, or `None` if it has no rights. Fails
    /// while this node does not know the access rights ([access-4]).
    pub fn role(&self, who: &Who) -> Result<Option<Role>, RequestError> {
        let users = self.shared.users.read();
        let users = users.unwrap_or_else(PoisonError::into_inner);
        let users = users.as_ref().ok_or(RequestError(Failure::Unavailable))?;
        Ok(users.role(who, None))
    }

    /// Calls `done`, as for [`Local::submit`], once [`Local::role`] can answer. Later requests wait
    /// until then as well.
    pub fn submit_access(
        &self,
        done: impl FnOnce(Result<Vec<u8>, RequestError>) + Send + 'static,
    ) -> Result<(), RequestError> {
        self.queue_request(LocalRequest::Access, done)
    }

    /// Sets the listener for notices of applied commands
    /// ([`StateMachine::take_notices`](crate::StateMachine::take_notices)). The listener is called
    /// on the node's thread, and must neither block nor panic.
    pub fn set_notice_listener(&self, hears: impl FnMut(&[u8], &[u8]) + Send + 'static) {
        let slot = self.shared.notice_listener.lock();
        *slot.unwrap_or_else(PoisonError::into_inner) = Some(Box::new(hears));
    }

    fn queue_request(
        &self,
        wanted: LocalRequest,
        done: impl FnOnce(Result<Vec<u8>, RequestError>) + Send + 'static,
    ) -> Result<(), RequestError> {
        let answer =
            ResultCallback::new(|result| done(result.map(reply_bytes).map_err(RequestError)));
        let (ask, failure) =
            match self.request_sender.try_put(PendingRequest { request: wanted, callback: answer })
            {
                Ok(()) => return Ok(()),
                Err(NotQueued::Full(ask)) => (ask, Failure::Busy),
                Err(NotQueued::Gone(ask)) => (ask, Failure::Stopping),
            };
        ask.callback.drop_uncalled();
        Err(RequestError(failure))
    }

    fn request_reply(&self, wanted: LocalRequest) -> Result<Vec<u8>, RequestError> {
        self.wait_for_result(wanted).map(reply_bytes)
    }

    fn wait_for_result(&self, wanted: LocalRequest) -> Result<RequestResult, RequestError> {
        let (tell, told) = sync_channel(1);
        // The send fails if the caller has given up, which is harmless.
        let answer = ResultCallback::new(move |result| drop(tell.try_send(result)));
        if !self.request_sender.send_request(PendingRequest { request: wanted, callback: answer }) {
            return Err(RequestError(Failure::Stopping));
        }
        // If the node dropped the request, the outcome is unknown.
        told.recv().unwrap_or(Err(Failure::Unknown)).map_err(RequestError)
    }
}

fn reply_bytes(done: RequestResult) -> Vec<u8> {
    match done {
        RequestResult::Reply(reply) => reply,
        RequestResult::Session(_) => Vec::new(),
    }
}

/// Reason why a request has no reply. After [`Failure::Unknown`] the command may have been
/// executed. The same holds for [`Failure::NoSession`] if the command's number has been sent
/// before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestError(pub Failure);

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Failure::Busy => "queues are full; not executed, try again",
            Failure::NoQuorum => "no leader was found in time; not executed",
            Failure::TooBig => "the command is too big; not executed",
            Failure::Stopping => "the node is stopping; not executed",
            Failure::Removed => "this node was removed from the cluster; not executed, use another one",
            Failure::Voteless => {
                "this node cannot vote: its log failed, or its device does not answer or lost votes; not executed"
            }
            Failure::Unavailable => "this node's service cannot work at the moment; not executed",
            Failure::DiskFull(node) => {
                return write!(f, "the disk of node {node} is full; not executed");
            }
            Failure::Diverged => {
                "this node and others have different data, and this one may be wrong; not executed, see \
                 docs/operate/divergence.md"
            }
            Failure::Unknown => "it may have been executed, or may yet be",
            Failure::NoSession => {
                "unknown session; not executed now, perhaps when it was sent before"
            }
            Failure::ReplyForgotten => "executed before, its reply is forgotten",
            Failure::SessionFull => "too many commands open in the session; not executed",
            Failure::Level => {
                "it needs a feature level that the cluster does not use yet; not executed"
            }
            Failure::NotLasting => "executed, but not known in time to be on the disks of a quorum",
            Failure::Stale => "this node is not known to be as fresh as that; not executed",
            Failure::Overtaken => "the leader's lease ended meanwhile; not executed, ask again",
        })
    }
}

impl std::error::Error for RequestError {}

struct OpenRequest {
    query: Option<Vec<u8>>,
    callback: ResultCallback,
}

/// Node side of the requests from the embedding program.
pub struct LocalFront {
    request_receiver: RequestReceiver<PendingRequest>,
    open: BTreeMap<Tag, OpenRequest>,
    last_tag: u64,
    /// Requests may have been left over for the next turn.
    has_more: bool,
    shared: Arc<Shared>,
    /// Version of the access rights in `shared`; `None` while they are unknown.
    users_version: Option<u64>,
    /// A request that waits for the group's clock or for the access rights.
    held_request: Option<PendingRequest>,
    access_patience: AccessPatience,
}

impl fmt::Debug for LocalFront {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalFront").field("open", &self.open.len()).finish_non_exhaustive()
    }
}

impl LocalFront {
    fn new(asks: RequestReceiver<PendingRequest>, shared: Arc<Shared>) -> Self {
        Self {
            request_receiver: asks,
            open: BTreeMap::new(),
            last_tag: 0,
            has_more: false,
            shared,
            users_version: None,
            held_request: None,
            access_patience: AccessPatience::default(),
        }
    }

    /// Returns the descriptor that becomes readable when requests may be waiting. The node must
    /// watch it.
    pub fn wake(&self) -> &Arc<Wake> {
        self.request_receiver.wake()
    }

    /// [access-2] Copies the access rights if they have changed.
    fn update_users(&mut self, requests: &dyn Requests) {
        let version = requests.users_version();
        if self.users_version == Some(version) {
            return;
        }
        let users = requests.users().cloned();
        // The rights may become known at any time without a change of version.
        self.users_version = users.is_some().then_some(version);
        let shared = self.shared.users.write();
        *shared.unwrap_or_else(PoisonError::into_inner) = users;
    }

    fn start_request(&mut self, ask: PendingRequest, requests: &mut dyn Requests) {
        let PendingRequest { request: wanted, callback: answer } = ask;
        self.last_tag += 1;
        let tag = Tag(self.last_tag);
        let (taken, query) = match wanted {
            LocalRequest::Execute(command) => (write(requests, tag, &command), None),
            LocalRequest::ExecuteAt(make) => {
                // [time-2] The node that accepts the command sets its deadlines.
                let command = make(requests.wall_ms());
                (write(requests, tag, &command), None)
            }
            LocalRequest::ExecuteOnce(_, command)
                if command.len() > requests.command_bytes_max() =>
            {
                (Err(Failure::TooBig), None)
            }
            LocalRequest::ExecuteOnce(at, command) => {
                (requests.write_once(tag, at, &command), None)
            }
            LocalRequest::Register => (requests.register(tag), None),
            LocalRequest::Query(query) => (requests.read(tag), Some(query)),
            LocalRequest::QueryLocal(query) => {
                let mut reply = Vec::new();
                let asked = requests.query(&query, &mut reply);
                return answer.call(asked.map(|()| RequestResult::Reply(reply)));
            }
            LocalRequest::Access => return answer.call(Ok(RequestResult::Reply(Vec::new()))),
        };
        match taken {
            Ok(()) => drop(self.open.insert(tag, OpenRequest { query, callback: answer })),
            Err(failure) => answer.call(Err(failure)),
        }
    }
}

fn write(requests: &mut dyn Requests, tag: Tag, command: &[u8]) -> Result<(), Failure> {
    match command.len() > requests.command_bytes_max() {
        true => Err(Failure::TooBig),
        false => requests.write(tag, command),
    }
}

impl Front for LocalFront {
    fn run_turn(&mut self, requests: &mut dyn Requests) {
        self.update_users(requests);
        self.request_receiver.clear_signal();
        let mut queries = 0;
        self.has_more = false;
        while let Some(ask) =
            self.held_request.take().or_else(|| self.request_receiver.next_request())
        {
            if ask.request.must_wait(requests) {
                if self.access_patience.has_expired(requests.wall_ms()) {
                    ask.callback.call(Err(Failure::NoQuorum));
                    continue;
                }
                self.held_request = Some(ask);
                return;
            }
            queries += usize::from(matches!(ask.request, LocalRequest::QueryLocal(_)));
            self.start_request(ask, requests);
            if queries == LOCAL_QUERIES_MAX {
                self.has_more = true;
                return;
            }
        }
    }

    fn is_eager(&self) -> bool {
        self.has_more
    }

    fn handle_opened(&mut self, _: ConnectionId, _: Endpoints, _: &mut dyn Requests) {}

    fn receive_bytes(&mut self, _: ConnectionId, bytes: &[u8], _: &mut dyn Requests) -> usize {
        bytes.len()
    }

    fn accepts_input(&self, _: ConnectionId) -> bool {
        true
    }

    fn handle_completion(&mut self, completion: Completion<'_>, requests: &mut dyn Requests) {
        let (tag, result) = match completion {
            Completion::Written(tag, reply) => (tag, Ok(RequestResult::Reply(reply.to_vec()))),
            Completion::Failed(tag, failure) => (tag, Err(failure)),
            Completion::Registered(tag, session) => (tag, Ok(RequestResult::Session(session))),
            // Unreachable: this front makes no such requests.
            Completion::InMemory(tag, _) | Completion::Read(tag) => (tag, Err(Failure::Unknown)),
            Completion::Readable(tag) => {
                let mut reply = Vec::new();
                let query = self.open.get(&tag).and_then(|open| open.query.as_deref());
                let asked =
                    query.map_or(Ok(()), |query| requests.run_query(tag, query, &mut reply));
                if asked == Err(Failure::Overtaken) && requests.read(tag).is_ok() {
                    return;
                }
                (tag, asked.map(|()| RequestResult::Reply(reply)))
            }
        };
        if let Some(open) = self.open.remove(&tag) {
            open.callback.call(result);
        }
    }

    fn deliver_notice(&mut self, subject: &[u8], message: &[u8]) {
        let hears = self.shared.notice_listener.lock();
        if let Some(hears) = &mut *hears.unwrap_or_else(PoisonError::into_inner) {
            hears(subject, message);
        }
    }

    fn next_dirty(&mut self) -> Option<ConnectionId> {
        None
    }

    fn output(&mut self, _: ConnectionId) -> &[u8] {
        &[]
    }

    fn record_sent(&mut self, _: ConnectionId, _: usize) {}

    fn should_close(&self, _: ConnectionId) -> bool {
        true
    }

    fn handle_closed(&mut self, _: ConnectionId, _: &mut dyn Requests) {}

    fn is_busy(&self, _: ConnectionId) -> bool {
        false
    }

    fn open_requests(&self) -> usize {
        self.open.len()
    }

    fn connections(&self) -> usize {
        0
    }
}
