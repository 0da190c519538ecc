//! Answers connections to the peer address while the node starts, which may take a long time if the
//! node waits for a founder or reads its log. Callers learn at once that the node is starting, and
//! whether it belongs to a cluster.

use std::{
    collections::VecDeque,
    io,
    net::TcpListener,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use quorate_core::node_id::{Member, NodeId};
use quorate_replica::plane::FrameBody;
use quorate_tls::NodeTrust;
use quorate_wire::{Frame, HANDSHAKE_BODY_BYTES_MAX, Hello, Join, RefusalCode, encode_parts};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::tcp::{
    inbox::{self, Inbox},
    outbox::Outbox,
    socket::{self, Socket, TransferOutcome},
};

/// Maximum number of open connections. A further one closes the oldest.
const CONNECTIONS_MAX: usize = 16;
/// Maximum lifetime of a connection.
const LIFETIME_MAX: Duration = Duration::from_secs(1);
/// Duration of the pause in accepting after descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const READ_BYTES: usize = 4 << 10;

/// Thread that answers at the peer address. Dropping the value ends the thread. Connections still
/// waiting at the listener are left for its next user.
#[derive(Debug)]
pub struct StartupResponder {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    facts: Mutex<NodeFacts>,
    /// Descriptor that becomes readable when the thread has to end.
    stop_fd: OwnedFd,
}

/// Facts about this node that the answers contain.
#[derive(Clone, Copy, Debug)]
struct NodeFacts {
    /// The node's id; `None` while it waits for one.
    node: Option<NodeId>,
    /// Id of the node's cluster; `None` until it is known.
    cluster: Option<u128>,
    /// Nonce with which the folder requests an id, if it requests one.
    nonce: Option<u64>,
}

impl StartupResponder {
    pub(crate) fn start_responder(
        listener: &TcpListener,
        node: Option<NodeId>,
        cluster: Option<u128>,
        trust: Option<NodeTrust>,
    ) -> io::Result<Self> {
        let listener = listener.try_clone()?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let shared = Arc::new(Shared {
            facts: Mutex::new(NodeFacts { node, cluster, nonce: None }),
            stop_fd: eventfd(0, flags)?,
        });
        let mut room = ResponderThread {
            listener,
            shared: Arc::clone(&shared),
            trust,
            connections: VecDeque::new(),
            paused_until: None,
        };
        let thread = std::thread::Builder::new().name("starting".to_owned());
        let thread = thread.spawn(move || room.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    pub fn belongs_to(&self, cluster: u128) {
        self.shared.facts().cluster = Some(cluster);
    }

    /// Sets the nonce with which the folder requests an id. A node that dials back can then verify
    /// that it reached this one ([`crate::check_waiting_at`]).
    pub fn set_join_nonce(&self, nonce: u64) {
        self.shared.facts().nonce = Some(nonce);
    }

    pub fn set_node(&self, node: NodeId) {
        self.shared.facts().node = Some(node);
    }
}

impl Drop for StartupResponder {
    fn drop(&mut self) {
        // The write fails only if the counter is full, in which case the descriptor is readable
        // anyway.
        let _ = rustix::io::write(&self.shared.stop_fd, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already reported, and nothing depends on it.
            let _ = thread.join();
        }
    }
}

/// State of the answering thread.
struct ResponderThread {
    listener: TcpListener,
    shared: Arc<Shared>,
    trust: Option<NodeTrust>,
    connections: VecDeque<Connection>,
    paused_until: Option<Instant>,
}

struct Connection {
    socket: Socket,
    inbox: Inbox,
    outbox: Outbox,
    deadline: Instant,
    is_answered: bool,
}

impl ResponderThread {
    fn run(&mut self) {
        loop {
            let now = Instant::now();
            self.connections.retain(|connection| connection.deadline > now);
            self.paused_until = self.paused_until.filter(|until| *until > now);
            let Some(ready) = self.wait_for_events(now) else { return };
            self.serve_ready(&ready);
            if self.paused_until.is_none() {
                self.accept();
            }
        }
    }

    /// Waits for events. Returns which connections are readable; `None` if the thread has to end.
    fn wait_for_events(&self, now: Instant) -> Option<Vec<bool>> {
        let deadlines = self.connections.iter().map(|connection| connection.deadline);
        let next = deadlines.chain(self.paused_until).min();
        let patience = next.map(|at| timespec(at.saturating_duration_since(now)));
        let end = self.shared.stop_fd.as_fd();
        let mut fds = vec![PollFd::new(&end, PollFlags::IN)];
        let readable = |connection| PollFd::new(connection, PollFlags::IN);
        fds.extend(self.connections.iter().map(|c| &c.socket).map(readable));
        if self.paused_until.is_none() {
            fds.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        // Any error here would recur, so the thread stops answering, as if the address were unused.
        match poll(&mut fds, patience.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
        let ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        if ready(&fds[0]) {
            return None;
        }
        Some(fds[1..=self.connections.len()].iter().map(ready).collect())
    }

    fn serve_ready(&mut self, ready: &[bool]) {
        let mut ready = ready.iter();
        let shared = &self.shared;
        self.connections.retain_mut(|connection| {
            let is_ready = ready.next().copied().unwrap_or(false);
            !is_ready || connection.read_and_answer(shared)
        });
    }

    fn accept(&mut self) {
        loop {
            match socket::accept(&self.listener) {
                Ok(Some(socket)) => self.connections.push_back(Connection {
                    socket: socket
                        .with_session(self.trust.as_ref().map(NodeTrust::incoming_peer_session)),
                    inbox: Inbox::default(),
                    outbox: Outbox::default(),
                    deadline: Instant::now() + LIFETIME_MAX,
                    is_answered: false,
                }),
                Ok(None) => return,
                Err(error) => {
                    tracing::debug!(%error, "cannot accept a peer while starting");
                    self.paused_until = Some(Instant::now() + ACCEPT_PAUSE);
                    return;
                }
            }
            if self.connections.len() > CONNECTIONS_MAX {
                self.connections.pop_front();
            }
        }
    }
}

impl Connection {
    /// Reads, and answers a complete request. Returns whether to keep the connection.
    fn read_and_answer(&mut self, shared: &Shared) -> bool {
        let mut goes_on = self.advance_connection(shared);
        while goes_on && self.socket.has_buffered_input() {
            goes_on = self.advance_connection(shared);
        }
        goes_on
    }

    fn advance_connection(&mut self, shared: &Shared) -> bool {
        match self.inbox.read(&mut self.socket, READ_BYTES) {
            TransferOutcome::Transferred(_) => {}
            TransferOutcome::Blocked => return true,
            TransferOutcome::Ended(_) => return false,
        }
        if self.is_answered {
            // The peer has until the deadline to read the answer and close.
            self.inbox.discard_all();
            return true;
        }
        let received =
            match self.inbox.next_frame(HANDSHAKE_BODY_BYTES_MAX, &inbox::new_block_pool()) {
                Ok(None) => return true,
                Ok(Some(received)) => received,
                Err(_) => return false,
            };
        let (code, reason) = match &received.frame {
            Frame::Hello(hello) => shared.refusal(Some(hello)),
            Frame::Join(join) => shared.refusal_of_join(*join),
            _ => return false,
        };
        self.is_answered = true;
        let refusal = Frame::Refused(code, &reason);
        let speaker = shared.facts().node.unwrap_or(NodeId(0));
        let Ok(encoded) = encode_parts(Member::first(speaker.0), &refusal) else {
            return false;
        };
        self.outbox.push(&encoded.header, FrameBody::Borrowed(&encoded.body));
        // The answer always fits: it is short, and the first data on this socket.
        let sent = matches!(
            self.outbox.write(&mut self.socket, usize::MAX),
            TransferOutcome::Transferred(_)
        );
        self.socket.finish_writing();
        sent
    }
}

impl Shared {
    fn facts(&self) -> MutexGuard<'_, NodeFacts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refusal_of_join(&self, join: Join) -> (RefusalCode, String) {
        let expected = self.facts().nonce;
        if expected.is_some_and(|nonce| nonce != join.nonce) {
            let reason = "another folder waits for an id here".to_owned();
            return (RefusalCode::WrongNode, reason);
        }
        self.refusal(None)
    }

    fn refusal(&self, hello: Option<&Hello<'_>>) -> (RefusalCode, String) {
        let NodeFacts { node, cluster, .. } = *self.facts();
        let node = node.map_or_else(|| "a new node".to_owned(), |node| format!("node {node}"));
        match (cluster, hello) {
            (None, _) => {
                (RefusalCode::NotFounded, format!("{node} starts, and has no cluster yet"))
            }
            (Some(cluster), Some(hello)) if hello.cluster != cluster => (
                RefusalCode::ForeignCluster,
                format!("node {} does not belong to the cluster of {node}", hello.from.node),
            ),
            (Some(_), _) => (RefusalCode::NotServingYet, format!("{node} is starting")),
        }
    }
}

fn timespec(wait: Duration) -> Timespec {
    // Rounded up: an early wake-up would find nothing due.
    let wait = wait + Duration::from_millis(1);
    wait.try_into().unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 })
}
