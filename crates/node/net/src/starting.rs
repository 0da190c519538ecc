//! Answers at the peer address while the node starts: it may wait for a founder, or read its log,
//! for long. A caller learns at once that the node is there, and whether it belongs to a cluster.

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
use quorate_replica::plane::Body;
use quorate_tls::Trust;
use quorate_wire::{Frame, HANDSHAKE_BODY_BYTES_MAX, Hello, Join, RefusalCode, encode_parts};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::tcp::{
    inbox::{self, Inbox},
    outbox::Outbox,
    socket::{self, Moved, Socket},
};

/// Connections at a time; the oldest makes room.
const CONNECTIONS_MAX: usize = 16;
/// A connection takes no longer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Accepting pauses for this long when descriptors run out.
const PAUSE: Duration = Duration::from_millis(100);
const READ_BYTES: usize = 4 << 10;

/// A thread that answers; it ends when this is dropped, and what waits at the listener then is the
/// next one's.
#[derive(Debug)]
pub struct Starting {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    known: Mutex<Known>,
    /// Readable when the thread is to end.
    end: OwnedFd,
}

/// Facts for the answers.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// `None` while it waits for an id.
    node: Option<NodeId>,
    /// The cluster, once it is known.
    cluster: Option<u128>,
    /// Nonce with which the folder asks for an id, if it does.
    nonce: Option<u64>,
}

impl Starting {
    /// Answers in the name of this node.
    pub(crate) fn answer(
        listener: &TcpListener,
        node: Option<NodeId>,
        cluster: Option<u128>,
        trust: Option<Trust>,
    ) -> io::Result<Self> {
        let listener = listener.try_clone()?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let shared = Arc::new(Shared {
            known: Mutex::new(Known { node, cluster, nonce: None }),
            end: eventfd(0, flags)?,
        });
        let mut room = Room {
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

    /// Announces that the node belongs to this cluster.
    pub fn belongs_to(&self, cluster: u128) {
        self.shared.known().cluster = Some(cluster);
    }

    /// Announces that the folder asks for an id with this nonce: a node that dials back learns
    /// whether it reached this one ([`crate::waits_at`]).
    pub fn waits_with(&self, nonce: u64) {
        self.shared.known().nonce = Some(nonce);
    }

    /// Announces that the folder has this id.
    pub fn is(&self, node: NodeId) {
        self.shared.known().node = Some(node);
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        // The counter can only be full if it is readable.
        let _ = rustix::io::write(&self.shared.end, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // If it panicked, it has said why; nothing depends on it.
            let _ = thread.join();
        }
    }
}

/// The thread's own.
struct Room {
    listener: TcpListener,
    shared: Arc<Shared>,
    trust: Option<Trust>,
    connections: VecDeque<Connection>,
    paused_until: Option<Instant>,
}

struct Connection {
    socket: Socket,
    inbox: Inbox,
    outbox: Outbox,
    deadline: Instant,
    answered: bool,
}

impl Room {
    fn run(&mut self) {
        loop {
            let now = Instant::now();
            self.connections.retain(|connection| connection.deadline > now);
            self.paused_until = self.paused_until.filter(|until| *until > now);
            let Some(ready) = self.wait(now) else { return };
            self.serve(&ready);
            if self.paused_until.is_none() {
                self.accept();
            }
        }
    }

    /// Returns which connections can be read; `None` at the end.
    fn wait(&self, now: Instant) -> Option<Vec<bool>> {
        let deadlines = self.connections.iter().map(|connection| connection.deadline);
        let next = deadlines.chain(self.paused_until).min();
        let patience = next.map(|at| timespec(at.saturating_duration_since(now)));
        let end = self.shared.end.as_fd();
        let mut fds = vec![PollFd::new(&end, PollFlags::IN)];
        let readable = |connection| PollFd::new(connection, PollFlags::IN);
        fds.extend(self.connections.iter().map(|c| &c.socket).map(readable));
        if self.paused_until.is_none() {
            fds.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        // Any error here would repeat: then no answer is sent, as if the address were unused.
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

    fn serve(&mut self, ready: &[bool]) {
        let mut ready = ready.iter();
        let shared = &self.shared;
        self.connections.retain_mut(|connection| {
            let is_ready = ready.next().copied().unwrap_or(false);
            !is_ready || connection.go_on(shared)
        });
    }

    fn accept(&mut self) {
        loop {
            match socket::accept(&self.listener) {
                Ok(Some(socket)) => self.connections.push_back(Connection {
                    socket: socket.secured(self.trust.as_ref().map(Trust::peer_in)),
                    inbox: Inbox::default(),
                    outbox: Outbox::default(),
                    deadline: Instant::now() + PATIENCE,
                    answered: false,
                }),
                Ok(None) => return,
                Err(error) => {
                    tracing::debug!(%error, "cannot accept a peer while starting");
                    self.paused_until = Some(Instant::now() + PAUSE);
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
    /// Reads, and answers if it can. Whether it goes on.
    fn go_on(&mut self, shared: &Shared) -> bool {
        let mut goes_on = self.go_on_once(shared);
        while goes_on && self.socket.holds_more() {
            goes_on = self.go_on_once(shared);
        }
        goes_on
    }

    fn go_on_once(&mut self, shared: &Shared) -> bool {
        match self.inbox.read(&mut self.socket, READ_BYTES) {
            Moved::Some(_) => {}
            Moved::Blocked => return true,
            Moved::Ended(_) => return false,
        }
        if self.answered {
            // Until it has read the answer and closes, or its time is up.
            self.inbox.discard();
            return true;
        }
        let received = match self.inbox.next(HANDSHAKE_BODY_BYTES_MAX, &inbox::pool()) {
            Ok(None) => return true,
            Ok(Some(received)) => received,
            Err(_) => return false,
        };
        let (code, reason) = match &received.frame {
            Frame::Hello(hello) => shared.refusal(Some(hello)),
            Frame::Join(join) => shared.refusal_of_join(*join),
            _ => return false,
        };
        self.answered = true;
        let refusal = Frame::Refused(code, &reason);
        let speaker = shared.known().node.unwrap_or(NodeId(0));
        let Ok(encoded) = encode_parts(Member::first(speaker.0), &refusal) else {
            return false;
        };
        self.outbox.push(&encoded.header, Body::Bytes(&encoded.body));
        // It is short, and the first thing that this socket sends: it fits.
        let sent = matches!(self.outbox.write(&mut self.socket, usize::MAX), Moved::Some(_));
        self.socket.finish_writing();
        sent
    }
}

impl Shared {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refusal_of_join(&self, join: Join) -> (RefusalCode, String) {
        let expected = self.known().nonce;
        if expected.is_some_and(|nonce| nonce != join.nonce) {
            let reason = "another folder waits for an id here".to_owned();
            return (RefusalCode::WrongNode, reason);
        }
        self.refusal(None)
    }

    fn refusal(&self, hello: Option<&Hello<'_>>) -> (RefusalCode, String) {
        let Known { node, cluster, .. } = *self.known();
        let node = node.map_or_else(|| "a new node".to_owned(), |node| format!("node {node}"));
        match (cluster, hello) {
            (None, _) => {
                (RefusalCode::NotFounded, format!("{node} starts, and has no cluster yet"))
            }
            (Some(cluster), Some(hello)) if hello.cluster != cluster => (
                RefusalCode::ForeignCluster,
                format!("node {} does not belong to the cluster of {node}", hello.from.node),
            ),
            (Some(_), _) => (RefusalCode::Starting, format!("{node} is starting")),
        }
    }
}

fn timespec(wait: Duration) -> Timespec {
    // Rounded up: to wake up early is to look in vain.
    let wait = wait + Duration::from_millis(1);
    wait.try_into().unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 })
}
