//! The node's side of attachments. Each attached program has two threads, which may block.
//!
//! A reader accepts requests while there is capacity for them. A writer sends outcomes, and reads
//! values directly from the log, so that nothing is queued for a slow program. Values are not
//! retained for programs that have not read them; if they are trimmed, the program is notified.

use std::{
    collections::{HashMap, VecDeque},
    io::{self, BufReader, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use quorate::{Failure, Sequenced};

use super::frames::{
    Answer, FRAME_OVERHEAD, NO_SESSION, Request, VERSION, WINDOW_BYTES_MAX, read_frame,
};
use crate::{
    bell::Bell,
    error::{Code, Failed},
    node::Node,
    source::{Cursor, Outcome, ReadResult, Source as _, Values as Found},
    submits::BundleOutcome,
    values::command::Values,
};

/// Maximum number of unanswered requests of one program.
const OPEN_REQUESTS_MAX: usize = 256;
/// Maximum total size in bytes of the values in unanswered requests of all programs. A single
/// larger request is accepted if there is no other.
const OPEN_BYTES_MAX: usize = 64 << 20;
/// Time without output after which a keep-alive is sent to a program.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// Time without output progress after which the node gives up on a program.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for a program's greeting.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Approximate maximum number of bytes to send at a time.
const BATCH_BYTES_TARGET: usize = 256 << 10;
/// Time limit for the node to report its status.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);

/// A listener to which programs attach.
pub struct Server {
    address: SocketAddr,
    state: Arc<ServerState>,
    listener_thread: Option<JoinHandle<()>>,
}

struct ServerState {
    node: Arc<Node>,
    cluster_id: u128,
    id: u32,
    open_bytes: Arc<AtomicUsize>,
    is_stopping: AtomicBool,
    connections: Mutex<Connections>,
}

#[derive(Default)]
struct Connections {
    last_connection_id: u64,
    sockets: HashMap<u64, TcpStream>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts to listen on the address `at`.
    pub fn listen(at: &str, cluster: u128, id: u32, node: &Arc<Node>) -> Result<Self, Failed> {
        let refused = |error: io::Error| {
            Failed::new(Code::Refused, format!("listen at {at}: {error}"))
                .with_hint("give another address as the option listen")
        };
        let listener = TcpListener::bind(at).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let around = Arc::new(ServerState {
            node: Arc::clone(node),
            cluster_id: cluster,
            id,
            open_bytes: Arc::default(),
            is_stopping: AtomicBool::new(false),
            connections: Mutex::default(),
        });
        let own = Arc::clone(&around);
        let listening = thread::Builder::new().name("quorate-listen".to_owned());
        let listening =
            listening.spawn(move || own.accept_connections(&listener)).map_err(refused)?;
        Ok(Self { address, state: around, listener_thread: Some(listening) })
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.is_stopping.store(true, Ordering::Release);
        // Connects to the listener in order to wake it.
        let mut own = self.address;
        if own.ip().is_unspecified() {
            own.set_ip(match own {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        let _ = TcpStream::connect_timeout(&own, Duration::from_secs(1));
        if let Some(listening) = self.listener_thread.take() {
            let _ = listening.join();
        }
        let threads = {
            let mut connections = self.state.connections();
            for socket in connections.sockets.values() {
                let _ = socket.shutdown(Shutdown::Both);
            }
            std::mem::take(&mut connections.threads)
        };
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl ServerState {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept_connections(self: Arc<Self>, listener: &TcpListener) {
        for socket in listener.incoming() {
            if self.is_stopping.load(Ordering::Acquire) {
                return;
            }
            let Ok(socket) = socket else {
                // Most likely the process has run out of descriptors. Existing connections
                // continue, and one of them will eventually end.
                thread::sleep(Duration::from_millis(50));
                continue;
            };
            let mut connections = self.connections();
            connections.threads.retain(|thread| !thread.is_finished());
            if connections.sockets.len() >= self.node.options().attached_programs_max {
                // Above the limit, the new connection is closed at once.
                continue;
            }
            let Ok(kept) = socket.try_clone() else {
                continue;
            };
            connections.last_connection_id += 1;
            let number = connections.last_connection_id;
            let own = Arc::clone(&self);
            let thread = thread::Builder::new().name("quorate-attached".to_owned());
            let thread = thread.spawn(move || {
                // An error only ends this connection, because the program or the network caused it.
                let _ = own.serve_connection(&socket);
                let _ = socket.shutdown(Shutdown::Both);
                own.connections().sockets.remove(&number);
            });
            if let Ok(thread) = thread {
                connections.sockets.insert(number, kept);
                connections.threads.push(thread);
            }
        }
    }

    fn serve_connection(&self, socket: &TcpStream) -> io::Result<()> {
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(WRITE_TIMEOUT))?;
        socket.set_read_timeout(Some(HELLO_TIMEOUT))?;
        let most = self.node.options().fitting_value_bytes_max();
        let bundle = self.node.options().bundle_bytes_max();
        let mut reader = BufReader::with_capacity(64 << 10, socket);
        let mut frame = Vec::new();
        read_frame(&mut reader, FRAME_OVERHEAD, &mut frame)?;
        let hello = Request::decode(&frame);
        let mut welcome = Vec::new();
        Answer::Welcome {
            version: VERSION,
            cluster_id: self.cluster_id,
            node_id: self.id,
            value_bytes_max: most as u64,
        }
        .encode(&mut welcome);
        // The greeting reports this node's protocol version, even if the program uses another one.
        (&*socket).write_all(&welcome)?;
        if hello != Some(Request::Hello { version: VERSION }) {
            return Ok(());
        }
        socket.set_read_timeout(None)?;
        let bell = Arc::new(Bell::new()?);
        self.node.retained().add_listener(&bell);
        let line = Arc::new(ProgramConnection { state: Mutex::default(), bell });
        thread::scope(|scope| {
            let writer = thread::Builder::new().name("quorate-attached".to_owned());
            let writer = writer.spawn_scoped(scope, || {
                let written = self.write_output(socket, &line);
                let _ = socket.shutdown(Shutdown::Both);
                written
            })?;
            let read = self.read_requests(&mut reader, frame, bundle, &line);
            line.state().is_closed = true;
            line.bell.ring();
            let written = writer.join().unwrap_or(Ok(()));
            read.and(written)
        })
    }

    fn read_requests(
        &self,
        reader: &mut BufReader<&TcpStream>,
        mut frame: Vec<u8>,
        bundle: usize,
        line: &Arc<ProgramConnection>,
    ) -> io::Result<()> {
        let most = self.node.options().fitting_value_bytes_max();
        loop {
            read_frame(reader, bundle + FRAME_OVERHEAD, &mut frame)?;
            let Some(ask) = Request::decode(&frame) else {
                return Err(io::ErrorKind::InvalidData.into());
            };
            let bytes = match ask {
                Request::Append { values, .. } => {
                    Values::parse(values.bytes(), most).ok_or(io::ErrorKind::InvalidData)?;
                    values.bytes().len()
                }
                _ => 0,
            };
            let Some(room) = self.reserve_capacity(bytes, line) else {
                return Ok(());
            };
            self.handle_request(ask, room, line)?;
        }
    }

    /// Waits until there is capacity for a request, so that a program sends requests no faster than
    /// they are answered. Returns `None` if the program has disconnected.
    fn reserve_capacity(
        &self,
        bytes: usize,
        line: &Arc<ProgramConnection>,
    ) -> Option<ReservedCapacity> {
        loop {
            let seen = line.bell.ring_count();
            {
                let mut state = line.state();
                if state.is_closed {
                    return None;
                }
                let more = |open: usize| {
                    let sum = open.saturating_add(bytes);
                    (open == 0 || sum <= OPEN_BYTES_MAX).then_some(sum)
                };
                let (set, get) = (Ordering::AcqRel, Ordering::Acquire);
                if state.open < OPEN_REQUESTS_MAX
                    && self.open_bytes.fetch_update(set, get, more).is_ok()
                {
                    state.open += 1;
                    let open_bytes = Arc::clone(&self.open_bytes);
                    return Some(ReservedCapacity { open_bytes, bytes });
                }
            }
            // The bell does not ring when another program releases capacity, so the wait is short.
            line.bell.wait_for_ring(seen, Some(Instant::now() + Duration::from_millis(20)));
        }
    }

    fn handle_request(
        &self,
        ask: Request<'_>,
        room: ReservedCapacity,
        line: &Arc<ProgramConnection>,
    ) -> io::Result<()> {
        let told = |id: u64| {
            let line = Arc::clone(line);
            Box::new(move |outcome: Outcome| line.send_outcome(id, &outcome))
        };
        match ask {
            Request::Hello { .. } => return Err(io::ErrorKind::InvalidData.into()),
            Request::Register { id } => match self.node.register_session() {
                Ok(session) => line.send_answer(&Answer::Registered { id, session }, 1),
                Err(failed) => line.send_outcome(id, &Err(failed)),
            },
            Request::Append { id, session, sequence, acknowledged_below, values } => {
                let at = Sequenced { session, sequence, acknowledged_below };
                let tell = Arc::clone(line);
                let count = values.into_iter().count();
                let done = move |ends: Result<BundleOutcome, quorate::RequestError>| {
                    drop(room);
                    match ends {
                        Ok(ends) => tell.send_bundle_outcome(id, count, &ends),
                        Err(why) if why.0 == Failure::NoSession => tell.send_no_session(id),
                        Err(why) => tell.send_outcome(id, &Err(why.into())),
                    }
                };
                if let Err(failed) = self.node.append_once(at, values, done) {
                    line.send_outcome(id, &Err(failed));
                }
            }
            Request::Trim { id, below } => {
                if let Err(failed) = self.node.trim(below, told(id)) {
                    line.send_outcome(id, &Err(failed));
                }
            }
            Request::Sync { id } => {
                if let Err(failed) = self.node.sync(told(id)) {
                    line.send_outcome(id, &Err(failed));
                }
            }
            Request::Status { id } => match self.node.status(STATUS_TIMEOUT) {
                Ok(text) => {
                    let (code, slot) = (Code::Ok as u8, 0);
                    let text = &text;
                    line.send_answer(&Answer::Done { id, code, slot, text }, 1);
                }
                Err(failed) => line.send_outcome(id, &Err(failed)),
            },
            Request::Deliver { delivery_epoch: epoch, from } => {
                line.state().set_delivery(epoch, from);
                line.on_capacity_freed();
            }
            Request::Taken { delivery_epoch: epoch, slot } => {
                line.state().on_taken(epoch, slot);
                line.on_capacity_freed();
            }
        }
        Ok(())
    }

    fn write_output(&self, mut socket: &TcpStream, line: &ProgramConnection) -> io::Result<()> {
        let mut batch = Vec::new();
        let mut alive_at = Instant::now() + KEEPALIVE_INTERVAL;
        loop {
            line.bell.clear_readable();
            let seen = line.bell.ring_count();
            {
                let mut state = line.state();
                if state.is_closed {
                    return Ok(());
                }
                while let Some(frame) = state.unsent_frames.pop_front() {
                    batch.extend(frame);
                }
            }
            self.add_values(line, &mut batch);
            if batch.is_empty() {
                if line.bell.wait_for_ring(seen, Some(alive_at)) {
                    continue;
                }
                Answer::Alive.encode(&mut batch);
            }
            socket.write_all(&batch)?;
            batch.clear();
            batch.shrink_to(BATCH_BYTES_TARGET);
            alive_at = Instant::now() + KEEPALIVE_INTERVAL;
        }
    }

    /// Adds the values that the program requested, up to the limit of its window.
    fn add_values(&self, line: &ProgramConnection, batch: &mut Vec<u8>) {
        let mut some = Found::new();
        while batch.len() < BATCH_BYTES_TARGET {
            let mut state = line.state();
            let (Some(mut from), epoch) = (state.from, state.delivery_epoch) else {
                return;
            };
            if state.untaken_bytes >= WINDOW_BYTES_MAX {
                return;
            }
            match self.node.retained().read_values(&mut from, &mut some) {
                None => {}
                Some(ReadResult::Trimmed(first)) => {
                    Answer::Forgotten { delivery_epoch: epoch, first_retained: first }
                        .encode(batch);
                    state.from = None;
                    return;
                }
                Some(_) => return,
            }
            for (slot, value) in some.drain(..) {
                if state.untaken_bytes >= WINDOW_BYTES_MAX || batch.len() >= BATCH_BYTES_TARGET {
                    break;
                }
                Answer::Value { delivery_epoch: epoch, slot, value: &value }.encode(batch);
                state.on_value_sent(slot, value.len());
            }
        }
    }
}

/// Capacity reserved for an unanswered request and released on drop.
struct ReservedCapacity {
    open_bytes: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for ReservedCapacity {
    fn drop(&mut self) {
        self.open_bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// State of the connection to one program.
struct ProgramConnection {
    state: Mutex<ConnectionState>,
    bell: Arc<Bell>,
}

#[derive(Default)]
struct ConnectionState {
    is_closed: bool,
    open: usize,
    unsent_frames: VecDeque<Vec<u8>>,
    delivery_epoch: u32,
    from: Option<Cursor>,
    /// Slots and sizes of the values sent but not taken yet.
    untaken: VecDeque<(u64, usize)>,
    untaken_bytes: usize,
}

impl ConnectionState {
    fn set_delivery(&mut self, epoch: u32, from: Cursor) {
        self.delivery_epoch = epoch;
        self.from = Some(from);
        self.untaken.clear();
        self.untaken_bytes = 0;
    }

    fn on_value_sent(&mut self, slot: u64, bytes: usize) {
        let cost = bytes + FRAME_OVERHEAD;
        self.untaken.push_back((slot, cost));
        self.untaken_bytes += cost;
        self.from = Some(Cursor::At(slot + 1));
    }

    fn on_taken(&mut self, epoch: u32, slot: u64) {
        if epoch != self.delivery_epoch {
            return;
        }
        while let Some((_, cost)) = self.untaken.pop_front_if(|(sent, _)| *sent <= slot) {
            self.untaken_bytes -= cost;
        }
    }
}

impl ProgramConnection {
    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends an answer, which releases the capacity of `places` requests.
    fn send_answer(&self, answer: &Answer<'_>, places: usize) {
        let mut frame = Vec::new();
        answer.encode(&mut frame);
        {
            let mut state = self.state();
            state.open -= places;
            if !state.is_closed {
                state.unsent_frames.push_back(frame);
            }
        }
        self.bell.ring();
    }

    fn on_capacity_freed(&self) {
        self.state().open -= 1;
        self.bell.ring();
    }

    fn send_outcome(&self, id: u64, outcome: &Outcome) {
        let (code, slot, text) = match outcome {
            Ok(slot) => (Code::Ok, *slot, String::new()),
            Err(failed) => (failed.code, 0, format!("{}\n{}", failed.detail, failed.hint)),
        };
        let (code, text) = (code as u8, &text);
        self.send_answer(&Answer::Done { id, code, slot, text }, 1);
    }

    /// Sends the outcomes of a bundle of `values` values.
    fn send_bundle_outcome(&self, id: u64, values: usize, ends: &BundleOutcome) {
        let BundleOutcome { first_slot: slot, appended_count: count, rest_outcome: otherwise } =
            ends;
        let why = otherwise.as_ref().filter(|_| *count < values);
        match why {
            Some(why) if why.code != Code::Full => self.send_outcome(id, &Err(why.clone())),
            _ => {
                let text = why.map(|why| format!("{}\n{}", why.detail, why.hint));
                let text = text.as_deref().unwrap_or_default();
                let (slot, count) = (*slot, u32::try_from(*count).unwrap_or(u32::MAX));
                self.send_answer(&Answer::Appended { id, slot, count, text }, 1);
            }
        }
    }

    fn send_no_session(&self, id: u64) {
        let (code, slot, text) = (NO_SESSION, 0, "the session is unknown");
        self.send_answer(&Answer::Done { id, code, slot, text }, 1);
    }
}
