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

use super::frames::{Answer, Ask, FRAME_OVERHEAD, NO_SESSION, VERSION, WINDOW_BYTES, read_frame};
use crate::{
    bell::Bell,
    error::{Code, Failed},
    node::Node,
    source::{Cursor, Outcome, Read, Source as _, Values as Found},
    submits::Ends,
    values::command::Values,
};

/// Maximum number of unanswered requests of one program.
const OPEN_MAX: usize = 256;
/// Maximum total size in bytes of the values in unanswered requests of all programs. A single
/// larger request is accepted if there is no other.
const OPEN_BYTES_MAX: usize = 64 << 20;
/// Time without output after which a keep-alive is sent to a program.
const ALIVE_EVERY: Duration = Duration::from_secs(1);
/// Time without output progress after which the node gives up on a program.
const WRITE_WAIT: Duration = Duration::from_secs(10);
/// Time limit for a program's greeting.
const HELLO_WAIT: Duration = Duration::from_secs(5);
/// Approximate maximum number of bytes to send at a time.
const BATCH_BYTES: usize = 256 << 10;
/// Time limit for the node to report its status.
const STATUS_WAIT: Duration = Duration::from_secs(2);

/// A listener to which programs attach.
pub struct Server {
    address: SocketAddr,
    around: Arc<ServerState>,
    listening: Option<JoinHandle<()>>,
}

struct ServerState {
    node: Arc<Node>,
    cluster: u128,
    id: u32,
    open_bytes: Arc<AtomicUsize>,
    stopping: AtomicBool,
    connections: Mutex<Connections>,
}

#[derive(Default)]
struct Connections {
    last: u64,
    sockets: HashMap<u64, TcpStream>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts to listen on the address `at`.
    pub fn listen(at: &str, cluster: u128, id: u32, node: &Arc<Node>) -> Result<Self, Failed> {
        let refused = |error: io::Error| {
            Failed::new(Code::Refused, format!("listen at {at}: {error}"))
                .hint("give another address as the option listen")
        };
        let listener = TcpListener::bind(at).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let around = Arc::new(ServerState {
            node: Arc::clone(node),
            cluster,
            id,
            open_bytes: Arc::default(),
            stopping: AtomicBool::new(false),
            connections: Mutex::default(),
        });
        let own = Arc::clone(&around);
        let listening = thread::Builder::new().name("quorate-listen".to_owned());
        let listening = listening.spawn(move || own.accept(&listener)).map_err(refused)?;
        Ok(Self { address, around, listening: Some(listening) })
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.around.stopping.store(true, Ordering::Release);
        // Connects to the listener in order to wake it.
        let mut own = self.address;
        if own.ip().is_unspecified() {
            own.set_ip(match own {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        let _ = TcpStream::connect_timeout(&own, Duration::from_secs(1));
        if let Some(listening) = self.listening.take() {
            let _ = listening.join();
        }
        let threads = {
            let mut connections = self.around.connections();
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

    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for socket in listener.incoming() {
            if self.stopping.load(Ordering::Acquire) {
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
            if connections.sockets.len() >= self.node.options().attached_max {
                // Above the limit, the new connection is closed at once.
                continue;
            }
            let Ok(kept) = socket.try_clone() else {
                continue;
            };
            connections.last += 1;
            let number = connections.last;
            let own = Arc::clone(&self);
            let thread = thread::Builder::new().name("quorate-attached".to_owned());
            let thread = thread.spawn(move || {
                // An error only ends this connection, because the program or the network caused it.
                let _ = own.serve(&socket);
                let _ = socket.shutdown(Shutdown::Both);
                own.connections().sockets.remove(&number);
            });
            if let Ok(thread) = thread {
                connections.sockets.insert(number, kept);
                connections.threads.push(thread);
            }
        }
    }

    fn serve(&self, socket: &TcpStream) -> io::Result<()> {
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(WRITE_WAIT))?;
        socket.set_read_timeout(Some(HELLO_WAIT))?;
        let most = self.node.options().largest_value();
        let bundle = self.node.options().largest_bundle();
        let mut reader = BufReader::with_capacity(64 << 10, socket);
        let mut frame = Vec::new();
        read_frame(&mut reader, FRAME_OVERHEAD, &mut frame)?;
        let hello = Ask::decode(&frame);
        let mut welcome = Vec::new();
        Answer::Welcome {
            version: VERSION,
            cluster: self.cluster,
            node: self.id,
            value_bytes_max: most as u64,
        }
        .encode(&mut welcome);
        // The greeting reports this node's protocol version, even if the program uses another one.
        (&*socket).write_all(&welcome)?;
        if hello != Some(Ask::Hello { version: VERSION }) {
            return Ok(());
        }
        socket.set_read_timeout(None)?;
        let bell = Arc::new(Bell::new()?);
        self.node.shared().listen(&bell);
        let line = Arc::new(Line { state: Mutex::default(), bell });
        thread::scope(|scope| {
            let writer = thread::Builder::new().name("quorate-attached".to_owned());
            let writer = writer.spawn_scoped(scope, || {
                let written = self.write(socket, &line);
                let _ = socket.shutdown(Shutdown::Both);
                written
            })?;
            let read = self.read(&mut reader, frame, bundle, &line);
            line.state().closed = true;
            line.bell.ring();
            let written = writer.join().unwrap_or(Ok(()));
            read.and(written)
        })
    }

    fn read(
        &self,
        reader: &mut BufReader<&TcpStream>,
        mut frame: Vec<u8>,
        bundle: usize,
        line: &Arc<Line>,
    ) -> io::Result<()> {
        let most = self.node.options().largest_value();
        loop {
            read_frame(reader, bundle + FRAME_OVERHEAD, &mut frame)?;
            let Some(ask) = Ask::decode(&frame) else {
                return Err(io::ErrorKind::InvalidData.into());
            };
            let bytes = match ask {
                Ask::Append { values, .. } => {
                    Values::parse(values.bytes(), most).ok_or(io::ErrorKind::InvalidData)?;
                    values.bytes().len()
                }
                _ => 0,
            };
            let Some(room) = self.wait_for_room(bytes, line) else {
                return Ok(());
            };
            self.answer(ask, room, line)?;
        }
    }

    /// Waits until there is capacity for a request, so that a program sends requests no faster than
    /// they are answered. Returns `None` if the program has disconnected.
    fn wait_for_room(&self, bytes: usize, line: &Arc<Line>) -> Option<Room> {
        loop {
            let seen = line.bell.rung();
            {
                let mut state = line.state();
                if state.closed {
                    return None;
                }
                let more = |open: usize| {
                    let sum = open.saturating_add(bytes);
                    (open == 0 || sum <= OPEN_BYTES_MAX).then_some(sum)
                };
                let (set, get) = (Ordering::AcqRel, Ordering::Acquire);
                if state.open < OPEN_MAX && self.open_bytes.fetch_update(set, get, more).is_ok() {
                    state.open += 1;
                    let open_bytes = Arc::clone(&self.open_bytes);
                    return Some(Room { open_bytes, bytes });
                }
            }
            // The bell does not ring when another program releases capacity, so the wait is short.
            line.bell.wait(seen, Some(Instant::now() + Duration::from_millis(20)));
        }
    }

    fn answer(&self, ask: Ask<'_>, room: Room, line: &Arc<Line>) -> io::Result<()> {
        let told = |id: u64| {
            let line = Arc::clone(line);
            Box::new(move |outcome: Outcome| line.done(id, &outcome))
        };
        match ask {
            Ask::Hello { .. } => return Err(io::ErrorKind::InvalidData.into()),
            Ask::Register { id } => match self.node.register() {
                Ok(session) => line.send(&Answer::Registered { id, session }, 1),
                Err(failed) => line.done(id, &Err(failed)),
            },
            Ask::Append { id, session, sequence, acknowledged_below, values } => {
                let at = Sequenced { session, sequence, acknowledged_below };
                let tell = Arc::clone(line);
                let count = values.into_iter().count();
                let done = move |ends: Result<Ends, quorate::NotDone>| {
                    drop(room);
                    match ends {
                        Ok(ends) => tell.appended(id, count, &ends),
                        Err(why) if why.0 == Failure::NoSession => tell.no_session(id),
                        Err(why) => tell.done(id, &Err(why.into())),
                    }
                };
                if let Err(failed) = self.node.append_once(at, values, done) {
                    line.done(id, &Err(failed));
                }
            }
            Ask::Trim { id, below } => {
                if let Err(failed) = self.node.trim(below, told(id)) {
                    line.done(id, &Err(failed));
                }
            }
            Ask::Sync { id } => {
                if let Err(failed) = self.node.sync(told(id)) {
                    line.done(id, &Err(failed));
                }
            }
            Ask::Status { id } => match self.node.status(STATUS_WAIT) {
                Ok(text) => {
                    let (code, slot) = (Code::Ok as u8, 0);
                    let text = &text;
                    line.send(&Answer::Done { id, code, slot, text }, 1);
                }
                Err(failed) => line.done(id, &Err(failed)),
            },
            Ask::Deliver { epoch, from } => {
                line.state().deliver(epoch, from);
                line.freed();
            }
            Ask::Taken { epoch, slot } => {
                line.state().taken(epoch, slot);
                line.freed();
            }
        }
        Ok(())
    }

    fn write(&self, mut socket: &TcpStream, line: &Line) -> io::Result<()> {
        let mut batch = Vec::new();
        let mut alive_at = Instant::now() + ALIVE_EVERY;
        loop {
            line.bell.hush();
            let seen = line.bell.rung();
            {
                let mut state = line.state();
                if state.closed {
                    return Ok(());
                }
                while let Some(frame) = state.out.pop_front() {
                    batch.extend(frame);
                }
            }
            self.add_values(line, &mut batch);
            if batch.is_empty() {
                if line.bell.wait(seen, Some(alive_at)) {
                    continue;
                }
                Answer::Alive.encode(&mut batch);
            }
            socket.write_all(&batch)?;
            batch.clear();
            batch.shrink_to(BATCH_BYTES);
            alive_at = Instant::now() + ALIVE_EVERY;
        }
    }

    /// Adds the values that the program requested, up to the limit of its window.
    fn add_values(&self, line: &Line, batch: &mut Vec<u8>) {
        let mut some = Found::new();
        while batch.len() < BATCH_BYTES {
            let mut state = line.state();
            let (Some(mut from), epoch) = (state.from, state.epoch) else {
                return;
            };
            if state.unread_bytes >= WINDOW_BYTES {
                return;
            }
            match self.node.shared().read_some(&mut from, &mut some) {
                None => {}
                Some(Read::Forgotten(first)) => {
                    Answer::Forgotten { epoch, first }.encode(batch);
                    state.from = None;
                    return;
                }
                Some(_) => return,
            }
            for (slot, value) in some.drain(..) {
                if state.unread_bytes >= WINDOW_BYTES || batch.len() >= BATCH_BYTES {
                    break;
                }
                Answer::Value { epoch, slot, value: &value }.encode(batch);
                state.sent(slot, value.len());
            }
        }
    }
}

/// Capacity reserved for an unanswered request and released on drop.
struct Room {
    open_bytes: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.open_bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// State of the connection to one program.
struct Line {
    state: Mutex<LineState>,
    bell: Arc<Bell>,
}

#[derive(Default)]
struct LineState {
    closed: bool,
    open: usize,
    out: VecDeque<Vec<u8>>,
    epoch: u32,
    from: Option<Cursor>,
    /// Slots and sizes of the values sent but not taken yet.
    unread: VecDeque<(u64, usize)>,
    unread_bytes: usize,
}

impl LineState {
    fn deliver(&mut self, epoch: u32, from: Cursor) {
        self.epoch = epoch;
        self.from = Some(from);
        self.unread.clear();
        self.unread_bytes = 0;
    }

    fn sent(&mut self, slot: u64, bytes: usize) {
        let cost = bytes + FRAME_OVERHEAD;
        self.unread.push_back((slot, cost));
        self.unread_bytes += cost;
        self.from = Some(Cursor::At(slot + 1));
    }

    fn taken(&mut self, epoch: u32, slot: u64) {
        if epoch != self.epoch {
            return;
        }
        while let Some((_, cost)) = self.unread.pop_front_if(|(sent, _)| *sent <= slot) {
            self.unread_bytes -= cost;
        }
    }
}

impl Line {
    fn state(&self) -> MutexGuard<'_, LineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends an answer, which releases the capacity of `places` requests.
    fn send(&self, answer: &Answer<'_>, places: usize) {
        let mut frame = Vec::new();
        answer.encode(&mut frame);
        {
            let mut state = self.state();
            state.open -= places;
            if !state.closed {
                state.out.push_back(frame);
            }
        }
        self.bell.ring();
    }

    fn freed(&self) {
        self.state().open -= 1;
        self.bell.ring();
    }

    fn done(&self, id: u64, outcome: &Outcome) {
        let (code, slot, text) = match outcome {
            Ok(slot) => (Code::Ok, *slot, String::new()),
            Err(failed) => (failed.code, 0, format!("{}\n{}", failed.detail, failed.hint)),
        };
        let (code, text) = (code as u8, &text);
        self.send(&Answer::Done { id, code, slot, text }, 1);
    }

    /// Sends the outcomes of a bundle of `values` values.
    fn appended(&self, id: u64, values: usize, ends: &Ends) {
        let Ends { slot, count, otherwise } = ends;
        let why = otherwise.as_ref().filter(|_| *count < values);
        match why {
            Some(why) if why.code != Code::Full => self.done(id, &Err(why.clone())),
            _ => {
                let text = why.map(|why| format!("{}\n{}", why.detail, why.hint));
                let text = text.as_deref().unwrap_or_default();
                let (slot, count) = (*slot, u32::try_from(*count).unwrap_or(u32::MAX));
                self.send(&Answer::Appended { id, slot, count, text }, 1);
            }
        }
    }

    fn no_session(&self, id: u64) {
        let (code, slot, text) = (NO_SESSION, 0, "the session is unknown");
        self.send(&Answer::Done { id, code, slot, text }, 1);
    }
}
