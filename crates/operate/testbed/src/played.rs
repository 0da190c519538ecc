//! Fake stream nodes, in memory but with real sockets. They follow the protocol literally and
//! inject the faults that a test requests.
//!
//! All nodes share one table of streams. Offered bytes are decided at once, up to a position that
//! the test may set. When a connection ends, a random part of its undecided bytes is still decided.

mod connection;

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use quorate_core::dice::Dice;
use quorate_wire::streams::{ErrorCode, OpenMode, Retention};

/// Fault injected into one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Cut the connection after receiving this many bytes, even within a frame.
    CutInputAfter(usize),
    /// Cut the connection instead of sending the frame with this number. Frame 0 is the welcome.
    CutBeforeFrame(usize),
    /// Stop sending at the frame with this number, but leave the connection open.
    SilenceFromFrame(usize),
    /// Respond to the first request with an error.
    RefuseFirst(ErrorCode),
    /// End the piece after this many offered bytes. Bytes that arrive later have no effect.
    EndPieceAfter(usize),
    /// Like `EndPieceAfter`, but also let another writer take over the stream.
    FenceAfter(usize),
    /// Shift the position in `Opened` and the end in `Info` by this number of bytes.
    ShiftPosition(i64),
    /// Lower the position in `Closed` by this number of bytes.
    LowerClosed(u64),
    /// Raise every acknowledged position by this number of bytes.
    RaiseAcknowledged(u64),
    /// Raise the position of the second part of a read response by this number of bytes.
    SkipInRead(u64),
}

#[derive(Clone, Debug)]
pub struct SimulatedCluster {
    shared: Arc<Shared>,
    addresses: Vec<String>,
}

#[derive(Debug)]
struct Shared {
    world: Mutex<ClusterState>,
    changed: Condvar,
}

#[derive(Debug)]
struct ClusterState {
    streams: BTreeMap<String, Stream>,
    /// Id most recently assigned to a stream, a piece or a connection.
    last_id: u64,
    random: Dice,
    /// Faults to inject into the next connections, in order.
    queued_faults: VecDeque<Fault>,
    /// Position at and above which offered bytes are not decided.
    decide_below: u64,
    leader_index: Option<usize>,
    addresses: Vec<String>,
    /// Pieces that ended while the connection of their writer was open, with their end positions.
    ended_pieces: BTreeMap<u64, u64>,
    /// True for each node that is down, by index.
    is_down: Vec<bool>,
    /// Index of the node that accepted each connection, in order.
    accepted_by: Vec<usize>,
    /// Open connections by id: the index of the node, and a handle of the socket.
    open_connections: BTreeMap<u64, (usize, TcpStream)>,
}

#[derive(Debug)]
struct Stream {
    id: u64,
    bytes: Vec<u8>,
    start: u64,
    is_finished: bool,
    writer: u128,
    piece_count: u32,
    piece: Option<Piece>,
    decide_at_end: bool,
    retention: Retention,
}

/// Bytes that one connection writes under one piece id.
#[derive(Debug)]
struct Piece {
    id: u64,
    /// Index of the node that accepted the piece.
    owner_index: usize,
    /// Bytes that were offered but not decided.
    undecided: Vec<u8>,
}

impl SimulatedCluster {
    /// Starts a cluster of `nodes` nodes. `seed` determines the random choices.
    pub fn start(nodes: usize, seed: u64) -> io::Result<Self> {
        let world = ClusterState {
            streams: BTreeMap::new(),
            last_id: 0,
            random: Dice::new(seed),
            queued_faults: VecDeque::new(),
            decide_below: u64::MAX,
            leader_index: None,
            addresses: Vec::new(),
            ended_pieces: BTreeMap::new(),
            is_down: vec![false; nodes],
            accepted_by: Vec::new(),
            open_connections: BTreeMap::new(),
        };
        let shared = Arc::new(Shared { world: Mutex::new(world), changed: Condvar::new() });
        let mut addresses = Vec::new();
        for node in 0..nodes {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            addresses.push(listener.local_addr()?.to_string());
            let shared = Arc::clone(&shared);
            // The threads end with the process.
            thread::spawn(move || {
                for socket in listener.incoming().flatten() {
                    shared.accept(node, socket);
                }
            });
        }
        shared.lock().addresses.clone_from(&addresses);
        Ok(Self { shared, addresses })
    }

    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Queues faults for the next connections, one for each. Connections after these have no fault.
    pub fn queue_faults(&self, faults: &[Fault]) {
        self.shared.lock().queued_faults.extend(faults);
    }

    /// Discards the queued faults.
    pub fn clear_faults(&self) {
        self.shared.lock().queued_faults.clear();
    }

    /// Makes the other nodes report a node as the leader.
    pub fn set_leader(&self, node: usize) {
        self.shared.lock().leader_index = Some(node);
    }

    /// Takes a node down and closes its connections, or brings the node up again.
    pub fn set_down(&self, node: usize, down: bool) {
        let mut world = self.shared.lock();
        world.is_down[node] = down;
        if down {
            for (_, socket) in world.open_connections.values().filter(|(of, _)| *of == node) {
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
    }

    /// Stops bytes at and above `position` from being decided. `u64::MAX` lifts the limit.
    pub fn stop_deciding_at(&self, position: u64) {
        let mut world = self.shared.lock();
        world.decide_below = position;
        world.decide_offered();
        drop(world);
        self.shared.changed.notify_all();
    }

    /// Decides all offered bytes of a stream when its piece ends, even above
    /// [`Self::stop_deciding_at`].
    pub fn decide_all_at_end(&self, name: &str) {
        let mut world = self.shared.lock();
        let stream = world.streams.get_mut(name).expect("a stream of a test");
        stream.decide_at_end = true;
    }

    pub fn put_stream(&self, name: &str, bytes: &[u8], finished: bool) {
        let mut world = self.shared.lock();
        let id = world.id();
        let stream = Stream {
            id,
            bytes: bytes.to_vec(),
            start: 0,
            is_finished: finished,
            writer: 0,
            piece_count: 1,
            piece: None,
            decide_at_end: false,
            retention: Retention::default(),
        };
        world.streams.insert(name.to_owned(), stream);
    }

    /// Appends to a stream that has no writer. With `finish`, also closes the stream permanently.
    pub fn append(&self, name: &str, bytes: &[u8], finish: bool) {
        let mut world = self.shared.lock();
        let stream = world.streams.get_mut(name).expect("a stream of a test");
        stream.bytes.extend_from_slice(bytes);
        stream.is_finished = finish;
        drop(world);
        self.shared.changed.notify_all();
    }

    pub fn trim(&self, name: &str, before: u64) {
        let mut world = self.shared.lock();
        let stream = world.streams.get_mut(name).expect("a stream of a test");
        stream.start = before;
    }

    /// Returns the decided bytes of a stream, and whether the stream is permanently closed.
    pub fn decided_bytes(&self, name: &str) -> Option<(Vec<u8>, bool)> {
        let world = self.shared.lock();
        let stream = world.streams.get(name)?;
        Some((stream.bytes.clone(), stream.is_finished))
    }

    pub fn accepted_by(&self) -> Vec<usize> {
        self.shared.lock().accepted_by.clone()
    }

    /// Waits for `bytes` decided or offered bytes of a stream. Returns `false` on timeout.
    pub fn wait_for_bytes(&self, name: &str, bytes: u64, at_most: Duration) -> bool {
        let until = Instant::now() + at_most;
        let mut world = self.shared.lock();
        loop {
            let stream = world.streams.get(name);
            if stream.is_some_and(|stream| stream.received_bytes() >= bytes) {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.shared.changed.wait_timeout(world, left);
            world = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns the number of decided and offered bytes of a stream.
    pub fn received_bytes(&self, name: &str) -> u64 {
        let world = self.shared.lock();
        world.streams.get(name).map_or(0, Stream::received_bytes)
    }
}

impl Shared {
    /// Locks the state, even if it is poisoned: the thread that panicked reports the failure.
    fn lock(&self) -> MutexGuard<'_, ClusterState> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Self>, node: usize, socket: TcpStream) {
        let mut world = self.lock();
        if world.is_down[node] {
            return;
        }
        let fault = world.queued_faults.pop_front().unwrap_or(Fault::None);
        world.accepted_by.push(node);
        let number = world.id();
        if let Ok(kept) = socket.try_clone() {
            world.open_connections.insert(number, (node, kept));
        }
        drop(world);
        let shared = Arc::clone(self);
        thread::spawn(move || {
            connection::serve(&shared, node, socket, fault);
            shared.lock().open_connections.remove(&number);
        });
    }
}

impl ClusterState {
    fn id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Opens a stream by the rules of `quorate_stream`'s table. Returns the id of the piece and the
    /// position of its first byte.
    fn open(
        &mut self,
        owner: usize,
        name: &str,
        how: OpenMode,
        writer: u128,
    ) -> Result<(u64, u64), ErrorCode> {
        let id = self.id();
        if let Some(stream) = self.streams.get(name) {
            let same = stream.writer == writer;
            match how {
                OpenMode::Create if !same => return Err(ErrorCode::Exists),
                OpenMode::Continue if !same => return Err(ErrorCode::Fenced),
                _ if stream.is_finished => return Err(ErrorCode::Finished),
                OpenMode::Append if stream.piece.is_some() && !same => {
                    return Err(ErrorCode::InUse);
                }
                OpenMode::Create | OpenMode::Append | OpenMode::Takeover | OpenMode::Continue => {}
            }
        } else if how != OpenMode::Create {
            return Err(ErrorCode::Unknown);
        }
        self.end_piece_externally(name);
        let stream = self.streams.entry(name.to_owned()).or_insert(Stream {
            id,
            bytes: Vec::new(),
            start: 0,
            is_finished: false,
            writer,
            piece_count: 0,
            piece: None,
            decide_at_end: false,
            retention: Retention::default(),
        });
        stream.writer = writer;
        stream.piece_count += 1;
        stream.piece = Some(Piece { id, owner_index: owner, undecided: Vec::new() });
        Ok((id, stream.bytes.len() as u64))
    }

    /// Ends the current piece of a stream. A random part of its offered bytes is still decided.
    fn end_piece(&mut self, name: &str) {
        let Some(stream) = self.streams.get_mut(name) else {
            return;
        };
        if let Some(piece) = stream.piece.take() {
            let room = self.decide_below.saturating_sub(stream.bytes.len() as u64);
            let most = (piece.undecided.len() as u64).min(room);
            let count = match stream.decide_at_end {
                true => piece.undecided.len() as u64,
                false => self.random.between(0, most),
            };
            let count = usize::try_from(count).expect("a part of a buffer");
            stream.bytes.extend_from_slice(&piece.undecided[..count]);
        }
    }

    /// Ends the current piece of a stream and notifies the writer's connection.
    fn end_piece_externally(&mut self, name: &str) {
        let piece_of = |stream: &Stream| stream.piece.as_ref().map(|piece| piece.id);
        if let Some(piece) = self.streams.get(name).and_then(piece_of) {
            self.end_piece(name);
            self.ended_pieces.insert(piece, self.streams[name].end_position());
        }
    }

    /// Decides all offered bytes below the limit.
    fn decide_offered(&mut self) {
        for stream in self.streams.values_mut() {
            if let Some(piece) = &mut stream.piece {
                let room = self.decide_below.saturating_sub(stream.bytes.len() as u64);
                let most = (piece.undecided.len() as u64).min(room);
                let count = usize::try_from(most).expect("a part of a buffer");
                stream.bytes.extend(piece.undecided.drain(..count));
            }
        }
    }
}

impl Stream {
    fn end_position(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn received_bytes(&self) -> u64 {
        let offered = self.piece.as_ref().map_or(0, |piece| piece.undecided.len());
        self.end_position() + offered as u64
    }
}
