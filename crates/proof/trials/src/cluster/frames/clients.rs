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
use quorate_testbed::nodes::Nodes;
use quorate_wire::frame_clients::{Name, NodePosition, Request, batch};

use super::INTERFACE;
use crate::{nodes::wait_for, shell::Failed};

/// Batches in flight per client.
const OPEN: usize = 32;
/// Interval between submissions. The log of a round must stay small enough to be read.
const EVERY: Duration = Duration::from_millis(4);
/// Time within which batches in flight at the end of a round get their outcome.
const PATIENCE: Duration = Duration::from_secs(30);
/// Timeout for a node's reply.
const ANSWER: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(20);
/// Status of a successful reply.
const DONE: u8 = 0;

/// Replies received by all clients.
#[derive(Default)]
pub(super) struct ReceivedReplies {
    pub(super) batches: Vec<Batch>,
    /// Slots of commands sent over a connection.
    pub(super) by_connection: Vec<u64>,
}

/// A batch submitted by frames.
pub(super) struct Batch {
    pub(super) name: Name,
    pub(super) number: u64,
    /// `Some` if executed, with the slot if it was reported; `None` if unknown.
    pub(super) outcome: Option<Option<u64>>,
    pub(super) both_ways: bool,
}

fn record(told: &Mutex<ReceivedReplies>, note: impl FnOnce(&mut ReceivedReplies)) {
    note(&mut told.lock().unwrap_or_else(PoisonError::into_inner));
}

fn stopped(stop: &AtomicBool) -> bool {
    stop.load(Ordering::Relaxed)
}

/// Client that submits by frames.
pub(super) struct ByFrames {
    number: u64,
    nodes: Vec<SocketAddr>,
}

impl ByFrames {
    pub(super) const fn new(number: u64, nodes: Vec<SocketAddr>) -> Self {
        Self { number, nodes }
    }

    pub(super) fn run(
        &mut self,
        stop: &AtomicBool,
        told: &Mutex<ReceivedReplies>,
    ) -> Result<(), Failed> {
        while !stopped(stop) {
            let Some(mut session) = Session::open(&self.nodes, false) else {
                continue;
            };
            let mut next = Instant::now();
            while !session.is_over() && !stopped(stop) {
                if Instant::now() >= next {
                    next = Instant::now() + EVERY;
                    while session.client.open_batches() < OPEN && session.submit(self.number) {}
                }
                session.submit_and_offer(EVERY, told)?;
            }
            session.end(told)?;
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
        while !stopped(stop) {
            let Some(mut session) = Session::open(&self.nodes, true) else {
                continue;
            };
            while !session.is_over() && !stopped(stop) {
                session.submit(u64::MAX);
                // Alternate: send the frame before the offer, or after it.
                if session.submitted.is_multiple_of(2) {
                    session.send(Duration::ZERO)?;
                }
                let (name, number) = (session.name, session.submitted);
                let offered = door.offer(name, number, &command(u64::MAX, number));
                session.both_ways = offered.is_ok();
                let until = Instant::now() + PATIENCE;
                while session.client.open_batches() > 0 {
                    session.submit_and_offer(PAUSE, told)?;
                    session.check(until)?;
                }
            }
            session.end(told)?;
        }
        Ok(())
    }
}

/// Returns the command that a client submits under a number.
fn command(client: u64, number: u64) -> Vec<u8> {
    format!("client {client} command {number}").into_bytes()
}

/// A device client's session under one name.
struct Session {
    client: FrameClient,
    name: Name,
    submitted: u64,
    both_ways: bool,
}

impl Session {
    fn open(nodes: &[SocketAddr], both_ways: bool) -> Option<Self> {
        let options = Options { patience: Duration::from_secs(1), ..Options::default() };
        let client = FrameClient::open(nodes, INTERFACE, options).ok()?;
        Some(Self { name: client.name(), client, submitted: 0, both_ways })
    }

    fn is_over(&self) -> bool {
        self.client.is_over()
    }

    fn submit(&mut self, client: u64) -> bool {
        let number = self.submitted + 1;
        let bytes = command(client, number);
        let taken = self.client.submit(number, [&bytes[..]].into_iter());
        self.submitted += u64::from(taken.is_ok());
        taken.is_ok()
    }

    fn send(&mut self, patience: Duration) -> Result<(), Failed> {
        let turned = self.client.turn(patience);
        turned.map_err(|error| Failed(error.to_string()))
    }

    fn submit_and_offer(
        &mut self,
        patience: Duration,
        told: &Mutex<ReceivedReplies>,
    ) -> Result<(), Failed> {
        self.send(patience)?;
        record(told, |told| {
            while let Some(done) = self.client.take_done() {
                told.batches.push(Batch {
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
    fn end(&mut self, told: &Mutex<ReceivedReplies>) -> Result<(), Failed> {
        let until = Instant::now() + PATIENCE;
        while self.client.open_batches() > 0 {
            self.submit_and_offer(PAUSE, told)?;
            self.check(until)?;
        }
        self.submit_and_offer(Duration::ZERO, told)
    }

    fn check(&self, until: Instant) -> Result<(), Failed> {
        if Instant::now() < until {
            return Ok(());
        }
        let (open, counts) = (self.client.open_batches(), self.client.counts());
        Err(Failed(format!("{open} batches have no outcome: {counts:?}")))
    }
}

/// Client that sends commands to the nodes in turn, one at a time.
pub(super) struct ByConnection {
    nodes: Vec<SocketAddr>,
}

impl ByConnection {
    pub(super) const fn new(nodes: Vec<SocketAddr>) -> Self {
        Self { nodes }
    }

    pub(super) fn run(
        &mut self,
        stop: &AtomicBool,
        told: &Mutex<ReceivedReplies>,
    ) -> Result<(), Failed> {
        let mut number = 0;
        while !stopped(stop) {
            self.nodes.rotate_left(1);
            if self.talk(&mut number, stop, told).is_err() {
                thread::sleep(PAUSE);
            }
        }
        Ok(())
    }

    /// Submits until the node or its connection fails.
    fn talk(
        &self,
        number: &mut u64,
        stop: &AtomicBool,
        told: &Mutex<ReceivedReplies>,
    ) -> io::Result<()> {
        let mut stream = connect(self.nodes[0])?;
        while !stopped(stop) {
            *number += 1;
            let command = command(0, *number);
            let mut bytes = u32::try_from(command.len()).unwrap_or(0).to_le_bytes().to_vec();
            bytes.extend(command);
            stream.write_all(&bytes)?;
            let slot = read_reply(&mut stream)?.try_into();
            let slot = slot.map_err(|_| io::ErrorKind::InvalidData)?;
            record(told, |told| told.by_connection.push(u64::from_le_bytes(slot)));
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
    session: Option<(Name, u64)>,
}

impl FrameConnection {
    const fn new(nodes: Vec<SocketAddr>) -> Self {
        Self { nodes, open: None, session: None }
    }

    /// Offers a batch to the presumed leader. On an error, presumes that the next node leads.
    fn offer(&mut self, name: Name, number: u64, command: &[u8]) -> io::Result<()> {
        let offered = self.try_to_offer(name, number, command);
        if offered.is_err() {
            (self.open, self.session) = (None, None);
            self.nodes.rotate_left(1);
        }
        offered
    }

    fn try_to_offer(&mut self, name: Name, number: u64, command: &[u8]) -> io::Result<()> {
        let stream = match &mut self.open {
            Some(stream) => stream,
            none => none.insert(connect(self.nodes[0])?),
        };
        let session = match self.session {
            Some((of, session)) if of == name => session,
            _ => {
                let stand = query_position(stream, name)?;
                let known = stand.leads && stand.session != 0;
                let session = known.then_some(stand.session);
                let session = session.ok_or(io::ErrorKind::NotFound)?;
                self.session = Some((name, session));
                session
            }
        };
        let bytes = batch(session, number, [command].into_iter());
        let request = Request::Offer { name, counter: number, bytes: &bytes };
        send_request(stream, &request).map(drop)
    }
}

/// Returns the next batch of each name as each node reports it, once all nodes have applied the
/// same slots.
pub(super) fn next_batches(
    nodes: &Nodes,
    told: &ReceivedReplies,
) -> Result<Vec<(u32, Name, u64)>, Failed> {
    let mut names: Vec<Name> = told.batches.iter().map(|batch| batch.name).collect();
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
    let stream = TcpStream::connect_timeout(&at, ANSWER)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER * 4))?;
    Ok(stream)
}

fn query_position(stream: &mut TcpStream, name: Name) -> io::Result<NodePosition> {
    let body = send_request(stream, &Request::Stand(name))?;
    Ok(NodePosition::read(&body).ok_or(io::ErrorKind::InvalidData)?)
}

fn send_request(stream: &mut TcpStream, request: &Request<'_>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    request.encode(&mut bytes);
    stream.write_all(&bytes)?;
    read_reply(stream)
}

/// Reads a reply and returns the part after its status. Fails if the status is not [`DONE`].
fn read_reply(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut body =
        vec![0; u16::try_from(u32::from_le_bytes(length)).map_err(io::Error::other)?.into()];
    stream.read_exact(&mut body)?;
    match body.split_first() {
        Some((&DONE, rest)) => Ok(rest.to_vec()),
        _ => Err(io::ErrorKind::Other.into()),
    }
}
