//! Join requests, which a node sends before its reactor runs.
//!
//! A node without a cluster requests the founding record from the founder ([era-11]). The founder
//! asks all listed nodes whether a cluster already exists. A member about to assign an id first
//! checks that the folder requesting the id is at its stated address. A starting node requests its
//! peers' memory of its log ([lie-3]).

use std::{
    fmt,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    sync::mpsc::channel,
    thread,
    time::{Duration, Instant},
};

use quorate_core::{
    level::Levels,
    node_id::{Member, NodeId},
    witness::Memory,
};
use quorate_node::terms::FoundingTerms;
use quorate_tls::{NodeTrust, session::Session, stream::Stream};
use quorate_wire::{
    Decoded, Frame, HANDSHAKE_BODY_BYTES_MAX, Hello, Join, Lane, NO_CLUSTER, RefusalCode, decode,
    encode,
};

use crate::host::Founded;

/// Timeout for one connection attempt with its request.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);
/// Delay between attempts, and the maximum interval between checks of `stop`.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Reason why no founding record was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinError {
    /// The founder refused, and would refuse a retry.
    Refused(RefusalCode, String),
    /// The caller's `stop` ended the attempts.
    Stopped,
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(_, reason) => write!(f, "the founder refused this node: {reason}"),
            Self::Stopped => f.write_str("stopped before the founder answered"),
        }
    }
}

impl std::error::Error for JoinError {}

/// Requests the founding record until the founder answers or `stop` returns `true`. Reports delays
/// to `progress`.
pub fn request_founding(
    founder: &str,
    request: Join,
    trust: Option<&NodeTrust>,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(&str),
) -> Result<Founded, JoinError> {
    let mut last = String::new();
    loop {
        if stop() {
            return Err(JoinError::Stopped);
        }
        let why = match attempt(founder, request, trust, stop) {
            Ok(Answer::Founded(founded)) => return Ok(founded),
            Ok(Answer::Refused(code, reason)) if is_final(code) => {
                return Err(JoinError::Refused(code, reason));
            }
            Ok(Answer::Refused(_, reason)) => reason,
            Ok(Answer::Memory(_)) => "it sent something that is no answer".to_owned(),
            Err(error) => error.to_string(),
        };
        if why != last {
            progress(&format!("waiting for the founder at {founder}: {why}"));
            last = why;
        }
        thread::sleep(RETRY_INTERVAL);
    }
}

/// Returns whether a refusal with code `code` is permanent, so that a retry is pointless.
const fn is_final(code: RefusalCode) -> bool {
    // The founder may itself be about to found the cluster, or to learn its identity.
    !matches!(code, RefusalCode::NotFounded | RefusalCode::NotServingYet | RefusalCode::Other(_))
}

/// Timeout for a founder's query of the listed nodes.
pub const FOUNDER_QUERY_TIMEOUT: Duration = ATTEMPT_TIMEOUT;

/// Queries the listed nodes concurrently, and returns those that belong to a cluster. Nodes that
/// are down or do not answer in time are left out.
pub fn find_cluster_members(
    nodes: &[(NodeId, String)],
    me: NodeId,
    trust: Option<&NodeTrust>,
    patience: Duration,
) -> Vec<NodeId> {
    let trust = trust.cloned();
    let mut members = ask_all(nodes, patience, move |node, address| {
        is_member(node, address, me, trust.as_ref()).then_some(node)
    });
    members.sort_unstable();
    members
}

/// Returns whether a member of a cluster listens at `address`. Only a node without a cluster states
/// that it has none; any other answer comes from a running node.
fn is_member(node: NodeId, address: &str, me: NodeId, trust: Option<&NodeTrust>) -> bool {
    let hello = Hello {
        levels: Levels::SUPPORTED,
        cluster: NO_CLUSTER,
        from: Member::first(me.0),
        boot: 0,
        to: node,
        lane: Lane::Control,
        client: "",
        admin: "",
        stream: "",
    };
    let link =
        connect_secured(address, trust.map(|trust| trust.outgoing_peer_session(Some(node.0))));
    match link.and_then(|link| send_and_receive(link, me, &Frame::Hello(hello), &|| false)) {
        Ok(Answer::Refused(RefusalCode::NotFounded, _)) | Err(_) => false,
        Ok(Answer::Refused(..) | Answer::Founded(_) | Answer::Memory(_)) => true,
    }
}

/// Checks that the folder with nonce `nonce` is starting at `address` and waiting for an id;
/// otherwise returns the problem. A node that cannot be dialled now would become an unreachable
/// member.
pub fn check_waiting_at(
    address: &str,
    nonce: u64,
    trust: Option<&NodeTrust>,
) -> Result<(), String> {
    let no_node = NodeId(0);
    let question = Frame::Join(Join { node: no_node, nonce, list_hash: 0 });
    let link = connect_secured(address, trust.map(|trust| trust.outgoing_peer_session(None)));
    match link.and_then(|link| send_and_receive(link, no_node, &question, &|| false)) {
        Ok(Answer::Refused(RefusalCode::NotFounded, _)) => Ok(()),
        Ok(Answer::Refused(_, reason)) => Err(format!("another node listens there: {reason}")),
        Ok(Answer::Founded(_) | Answer::Memory(_)) => Err("another node listens there".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Timeout for a starting node's request for its peers' memory of its log. Running nodes answer at
/// once; the limit covers machines that disappeared without closing their connections.
pub const RECALL_TIMEOUT: Duration = Duration::from_millis(500);

/// [lie-3] Requests the memory of this node's log from `nodes` concurrently, and returns the
/// answers. Nodes that are down, slow or starting do not answer, nor do releases without this
/// memory.
pub fn request_memories(
    nodes: &[(NodeId, String)],
    cluster: u128,
    me: NodeId,
    trust: Option<&NodeTrust>,
    patience: Duration,
) -> Vec<(NodeId, Memory)> {
    let trust = trust.cloned();
    ask_all(nodes, patience, move |node, address| {
        let question = Frame::Recall { cluster, node: me };
        let session = trust.as_ref().map(|trust| trust.outgoing_peer_session(Some(node.0)));
        let link = connect_secured(address, session).ok()?;
        match send_and_receive(link, me, &question, &|| false) {
            Ok(Answer::Memory(memory)) => Some((node, memory)),
            _ => None,
        }
    })
}

/// Sends a request to `nodes` concurrently, and returns the answers that arrive within `patience`.
fn ask_all<T: Send + 'static>(
    nodes: &[(NodeId, String)],
    patience: Duration,
    ask: impl Fn(NodeId, &str) -> Option<T> + Clone + Send + 'static,
) -> Vec<T> {
    let deadline = Instant::now() + patience;
    let (tell, told) = channel();
    for (node, address) in nodes {
        let (node, address, tell, ask) = (*node, address.clone(), tell.clone(), ask.clone());
        // The thread is not joined, because a name look-up may take long. If no thread can be
        // started, the node is skipped.
        let asking = thread::Builder::new().name("ask".to_owned());
        let _ = asking.spawn(move || {
            // The send fails if the caller has stopped waiting.
            let _ = tell.send(ask(node, &address));
        });
    }
    drop(tell);
    let mut answers = Vec::new();
    // Ends when every node has answered, or at the deadline.
    while let Ok(answer) = told.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        answers.extend(answer);
    }
    answers
}

enum Answer {
    Founded(Founded),
    Memory(Memory),
    Refused(RefusalCode, String),
}

fn attempt(
    founder: &str,
    request: Join,
    trust: Option<&NodeTrust>,
    stop: &dyn Fn() -> bool,
) -> io::Result<Answer> {
    // Any node of this cluster at that address may act as the founder.
    let link = connect_secured(founder, trust.map(|trust| trust.outgoing_peer_session(None)))?;
    send_and_receive(link, request.node, &Frame::Join(request), stop)
}

/// Sends one request and returns the answer.
fn send_and_receive(
    link: Stream,
    from: NodeId,
    question: &Frame<'_>,
    stop: &dyn Fn() -> bool,
) -> io::Result<Answer> {
    let deadline = Instant::now() + ATTEMPT_TIMEOUT;
    let mut out = Vec::new();
    encode(Member::first(from.0), question, &mut out).map_err(io::Error::other)?;
    while let Err(error) = link.handshake() {
        if !is_read_timeout(&error) || stop() || Instant::now() >= deadline {
            return Err(error);
        }
    }
    (&link).write_all(&out)?;
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        if let Some(answer) = read_answer(&bytes)? {
            return Ok(answer);
        }
        if stop() || Instant::now() >= deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer yet"));
        }
        match (&link).read(&mut chunk) {
            Ok(0) => {
                return Err(io::Error::other("the connection was closed without an answer"));
            }
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            Err(error) if is_read_timeout(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns whether the error only means that no data arrived before the socket's read timeout.
fn is_read_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

fn connect_secured(address: &str, session: Option<Session>) -> io::Result<Stream> {
    let socket = connect(address)?;
    socket.set_write_timeout(Some(ATTEMPT_TIMEOUT))?;
    socket.set_read_timeout(Some(RETRY_INTERVAL))?;
    Ok(Stream::new(socket, session))
}

fn connect(founder: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the name has no address");
    for address in founder.to_socket_addrs()?.collect::<Vec<SocketAddr>>() {
        match TcpStream::connect_timeout(&address, ATTEMPT_TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Returns the answer once it is complete. The decoder bounds the bytes that accumulate.
fn read_answer(bytes: &[u8]) -> io::Result<Option<Answer>> {
    match decode(bytes, HANDSHAKE_BODY_BYTES_MAX).map_err(io::Error::other)? {
        Decoded::NeedMore(_) => Ok(None),
        Decoded::Frame { frame: Frame::Founding(founding), .. } => {
            let members = founding.members.iter();
            Ok(Some(Answer::Founded(Founded {
                cluster: founding.cluster,
                class: founding.class,
                store: founding.store.to_owned(),
                members: members.map(|(node, address)| (*node, (*address).to_owned())).collect(),
                // The terms are not sent: the hash in the request shows that they are equal.
                terms: FoundingTerms::default(),
            })))
        }
        Decoded::Frame { frame: Frame::Recalled(memory), .. } => Ok(Some(Answer::Memory(memory))),
        Decoded::Frame { frame: Frame::Refused(code, reason), .. } => {
            Ok(Some(Answer::Refused(code, reason.to_owned())))
        }
        Decoded::Frame { .. } => Err(io::Error::other("it sent something that is no answer")),
    }
}
