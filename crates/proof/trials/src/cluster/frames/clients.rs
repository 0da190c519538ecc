//! Three kinds of clients: one submits by frames, one by frames and a connection at once, and one
//! by connections only.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use quorate_frame_client::{FrameClient, Options, Outcome};
use quorate_testbed::nodes::NodeCluster;
use quorate_wire::frame_clients::{LentName, NodePosition, Request, encode_batch};

use super::CLIENT_INTERFACE;
use crate::{nodes::wait_for, shell::Failed};

/// Batches in flight per client.
const BATCHES_IN_FLIGHT: usize = 32;
/// Interval between submissions. The log of a round must stay small enough to be read.
const SUBMIT_INTERVAL: Duration = Duration::from_millis(4);
/// Time within which batches in flight at the end of a round get their outcome.
const OUTCOME_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout for a node's reply.
const REPLY_TIMEOUT: Duration = Duration::from_millis(500);
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Status of a successful reply.
const OK_STATUS: u8 = 0;

/// Replies received by all clients.
#[derive(Default)]
pub(super) struct ReceivedReplies {
    pub(super) batches: Vec<SubmittedBatch>,
    /// Slots of commands sent over a connection.
    pub(super) connection_slots: Vec<u64>,
}

/// A batch submitted by frames.
pub(super) struct SubmittedBatch {
    pub(super) name: LentName,
    pub(super) number: u64,
    /// `Some` if executed, with the slot if it was reported; `None` if unknown.
    pub(super) outcome: Option<Option<u64>>,
    pub(super) both_ways: bool,
}

fn update_replies(told: &Mutex<ReceivedReplies>, note: impl FnOnce(&mut ReceivedReplies)) {
    note(&mut told.lock().unwrap_or_else(PoisonError::into_inner));
}

fn is_stopped(stop: &AtomicBool) -> bool {
    stop.load(Ordering::Relaxed)
}

/// Client that submits by frames.
pub(super) struct FrameOnlyClient {
    client_number: u64,
    nodes: Vec<SocketAddr>,
}

impl FrameOnlyClient {
    pub(super) const fn new(number: u64, nodes: Vec<SocketAddr>) -> Self {
        Self { client_number: number, nodes }
    }

    pub(super) fn run(
        &mut self,
        stop: &AtomicBool,
        told: &Mutex<ReceivedReplies>,
    ) -> Result<(), Failed> {
        while !is_stopped(stop) {
            let Some(mut session) = ClientSession::open(&self.nodes, false) else {
                continue;
            };
            let mut next = Instant::now();
            while !session.is_finished() && !is_stopped(stop) {
                if Instant::now() >= next {
                    next = Instant::now() + SUBMIT_INTERVAL;
                    while session.client.outstanding_batches() < BATCHES_IN_FLIGHT
                        && session.submit(self.client_number)
                    {}
                }
                session.submit_and_offer(SUBMIT_INTERVAL, told)?;
            }
            session.finish(told)?;
        }
        Ok(())
    }
}

/// Client that submits each batch by a frame, and offers the same batch to the leader over a
/// connection.
pub(super) struct DualPathClient {
    nodes: Vec<SocketAddr>,
}

impl DualPathClient {
    pub(super) const fn new(nodes: Vec<SocketAddr>) -> Self {
        Self { nodes }
    }

    pub(super) fn run(
        &mut self,
        stop: &AtomicBool,
        told: &Mutex<ReceivedReplies>,
    ) -> Result<(), Failed> {
        let mut door = FrameConnection::new(self.nodes.clone());
        while !is_stopped(stop) {
            let Some(mut session) = ClientSession::open(&self.nodes, true) else {
                continue;
            };
            while !session.is_finished() && !is_stopped(stop) {
                session.submit(u64::MAX);
                // Alternate: send the frame before the offer, or after it.
                if session.submitted_count.is_multiple_of(2) {
                    session.send(Duration::ZERO)?;
                }
                let (name, number) = (session.name, session.submitted_count);
                let offered = door.offer_batch(name, number, &command_for(u64::MAX, number));
                session.both_ways = offered.is_ok();
                let until = Instant::now() + OUTCOME_TIMEOUT;
                while session.client.outstanding_batches() > 0 {
                    session.submit_and_offer(RETRY_PAUSE, told)?;
                    session.check_deadline(until)?;
                }
            }
            session.finish(told)?;
        }
        Ok(())
    }
}

/// Returns the command that a client submits under a number.
fn command_for(client: u64, number: u64) -> Vec<u8> {
    format!("client {client} command {number}").into_bytes()
}

/// A device client's session under one name.
struct ClientSession {
    client: FrameClient,
    name: LentName,
    submitted_count: u64,
    both_ways: bool,
}

impl ClientSession {
    fn open(nodes: &[SocketAddr], both_ways: bool) -> Option<Self> {
        let options = Options { leader_timeout: Duration::from_secs(1), ..Options::default() };
        let client = FrameClient::open(nodes, CLIENT_INTERFACE, options).ok()?;
        Some(Self { name: client.name(), client, submitted_count: 0, both_ways })
    }

    fn is_finished(&self) -> bool {
        self.client.is_session_gone()
    }

    fn submit(&mut self, client: u64) -> bool {
        let number = self.submitted_count + 1;
        let bytes = command_for(client, number);
        let taken = self.client.submit(number, [&bytes[..]].into_iter());
        self.submitted_count += u64::from(taken.is_ok());
        taken.is_ok()
    }

    fn send(&mut self, patience: Duration) -> Result<(), Failed> {
        let turned = self.client.poll(patience);
        turned.map_err(|error| Failed(error.to_string()))
    }

    fn submit_and_offer(
        &mut self,
        patience: Duration,
        told: &Mutex<ReceivedReplies>,
    ) -> Result<(), Failed> {
        self.send(patience)?;
        update_replies(told, |told| {
            while let Some(done) = self.client.take_completed() {
                told.batches.push(SubmittedBatch {
                    name: self.name,
                    number: done.tag,
                    outcome: match done.outcome {
                        Outcome::Executed(slot) => Some(slot),
                        Outcome::Unknown => None,
                    },
                    both_ways: self.both_ways,
                });
            }
        });
        Ok(())
    }

    /// Stops submitting and waits for the outcome of batches in flight.
    fn finish(&mut self, told: &Mutex<ReceivedReplies>) -> Result<(), Failed> {
        let until = Instant::now() + OUTCOME_TIMEOUT;
        while self.client.outstanding_batches() > 0 {
            self.submit_and_offer(RETRY_PAUSE, told)?;
            self.check_deadline(until)?;
        }
        self.submit_and_offer(Duration::ZERO, told)
    }

    fn check_deadline(&self, until: Instant) -> Result<(), Failed> {
        if Instant::now() < until {
            return Ok(());
        }
        let (open, counts) = (self.client.outstanding_batches(), self.client.counters());
        Err(Failed(format!("{open} batches have no outcome: {counts:?}")))
    }
}

/// Client that sends commands to the nodes in turn, one at a time.
pub(super) struct ConnectionOnlyClient {
    nodes: Vec<SocketAddr>,
}

impl ConnectionOnlyClient {
    pub(super) const fn new(nodes: Vec<SocketAddr>) -> Self {
        Self { nodes }
    }

    pub(super) fn run(
        &mut self,
        stop: &AtomicBool,
        told: &Mutex<ReceivedReplies>,
    ) -> Result<(), Failed> {
        let mut number = 0;
        while !is_stopped(stop) {
            self.nodes.rotate_left(1);
            if self.submit_until_failure(&mut number, stop, told).is_err() {
                thread::sleep(RETRY_PAUSE);
            }
        }
        Ok(())
    }

    /// Submits until the node or its connection fails.
    fn submit_until_failure(
        &self,
        number: &mut u64,
        stop: &AtomicBool,
        told: &Mutex<ReceivedReplies>,
    ) -> io::Result<()> {
        let mut stream = connect(self.nodes[0])?;
        while !is_stopped(stop) {
            *number += 1;
            let command = command_for(0, *number);
            let mut bytes = u32::try_from(command.len()).unwrap_or(0).to_le_bytes().to_vec();
            bytes.extend(command);
            stream.write_all(&bytes)?;
            let slot = read_reply(&mut stream)?.try_into();
            let slot = slot.map_err(|_| io::ErrorKind::InvalidData)?;
            update_replies(told, |told| told.connection_slots.push(u64::from_le_bytes(slot)));
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// A device client's connection to the nodes.
struct FrameConnection {
    nodes: Vec<SocketAddr>,
    open: Option<TcpStream>,
    /// Name and session of the latest request.
    last_session: Option<(LentName, u64)>,
}

impl FrameConnection {
    const fn new(nodes: Vec<SocketAddr>) -> Self {
        Self { nodes, open: None, last_session: None }
    }

    /// Offers a batch to the presumed leader. On an error, presumes that the next node leads.
    fn offer_batch(&mut self, name: LentName, number: u64, command: &[u8]) -> io::Result<()> {
        let offered = self.offer_to_leader(name, number, command);
        if offered.is_err() {
            (self.open, self.last_session) = (None, None);
            self.nodes.rotate_left(1);
        }
        offered
    }

    fn offer_to_leader(&mut self, name: LentName, number: u64, command: &[u8]) -> io::Result<()> {
        let stream = match &mut self.open {
            Some(stream) => stream,
            none => none.insert(connect(self.nodes[0])?),
        };
        let session = match self.last_session {
            Some((of, session)) if of == name => session,
            _ => {
                let stand = query_position(stream, name)?;
                let known = stand.is_leader && stand.session_slot != 0;
                let session = known.then_some(stand.session_slot);
                let session = session.ok_or(io::ErrorKind::NotFound)?;
                self.last_session = Some((name, session));
                session
            }
        };
        let bytes = encode_batch(session, number, [command].into_iter());
        let request = Request::OfferBatch { name, batch_number: number, bytes: &bytes };
        send_request(stream, &request).map(drop)
    }
}

/// Returns the next batch of each name as each node reports it, once all nodes have applied the
/// same slots.
pub(super) fn next_batches(
    nodes: &NodeCluster,
    told: &ReceivedReplies,
) -> Result<Vec<(u32, LentName, u64)>, Failed> {
    let mut names: Vec<LentName> = told.batches.iter().map(|batch| batch.name).collect();
    names.sort_by_key(|name| (name.boot, name.origin));
    names.dedup();
    wait_for("all nodes to have applied the same", || {
        let mut all = Vec::new();
        let mut applied = Vec::new();
        for (node, at) in nodes.ids().into_iter().zip(nodes.client_addresses()) {
            let mut stream = connect(at.parse().ok()?).ok()?;
            for name in &names {
                let stand = query_position(&mut stream, *name).ok()?;
                applied.push(stand.applied_to);
                all.push((node, *name, stand.next));
            }
        }
        applied.dedup();
        (applied.len() <= 1).then_some(all)
    })
}

fn connect(at: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&at, REPLY_TIMEOUT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(REPLY_TIMEOUT * 4))?;
    Ok(stream)
}

fn query_position(stream: &mut TcpStream, name: LentName) -> io::Result<NodePosition> {
    let body = send_request(stream, &Request::QueryPosition(name))?;
    Ok(NodePosition::read(&body).ok_or(io::ErrorKind::InvalidData)?)
}

fn send_request(stream: &mut TcpStream, request: &Request<'_>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    request.encode(&mut bytes);
    stream.write_all(&bytes)?;
    read_reply(stream)
}

/// Reads a reply and returns the part after its status. Fails if the status is not [`OK_STATUS`].
fn read_reply(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut body =
        vec![0; u16::try_from(u32::from_le_bytes(length)).map_err(io::Error::other)?.into()];
    stream.read_exact(&mut body)?;
    match body.split_first() {
        Some((&OK_STATUS, rest)) => Ok(rest.to_vec()),
        _ => Err(io::ErrorKind::Other.into()),
    }
}
