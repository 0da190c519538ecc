//! Nodes of byte streams that are played in memory, behind real sockets: what their clients say is
//! taken literally, and everything that may go wrong on the way goes wrong where a test wants it.
//!
//! All nodes share one table of streams. What is offered is decided at once, up to a position that
//! a test may hold back; of what is offered and undecided when a connection ends, dice say how much
//! is decided still.

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
use quorate_wire::streams::{Code, How, Keep};

/// Fate of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Cut after this many bytes from the client, wherever in a frame that is.
    CutIn(usize),
    /// Cut in place of the frame of this number to the client: 0 is the welcome.
    CutOut(usize),
    /// The node stays silent from the frame of this number on, and the connection stands.
    Mute(usize),
    /// The first request is answered with this.
    Refuse(Code),
    /// The piece is ended by the cluster when so many bytes were offered; what is beyond is void.
    End(usize),
    /// The same, and another writer has the stream.
    Fence(usize),
    /// The position in `Opened`, and the end in `Info`, are so much too high, or too low.
    Misplace(i64),
    /// The position in `Closed` is so much too low.
    Shorten(u64),
    /// Everything is acknowledged so much too high.
    Exaggerate(u64),
    /// The position of the second part of the answer to a read is so much too high.
    Skip(u64),
}

/// A cluster that is played.
#[derive(Clone, Debug)]
pub struct Played {
    shared: Arc<Shared>,
    addresses: Vec<String>,
}

#[derive(Debug)]
struct Shared {
    world: Mutex<World>,
    changed: Condvar,
}

#[derive(Debug)]
struct World {
    streams: BTreeMap<String, Stream>,
    /// Last id of streams, pieces and connections.
    last_id: u64,
    dice: Dice,
    /// For the next connections.
    faults: VecDeque<Fault>,
    /// Nothing from here on is decided.
    held: u64,
    leader: Option<usize>,
    /// Addresses of the nodes.
    addresses: Vec<String>,
    /// Pieces that were ended by others than their writers' connections, and where.
    ended: BTreeMap<u64, u64>,
    /// Nodes that are down.
    down: Vec<bool>,
    /// Connections: to which node.
    met: Vec<usize>,
    /// Live connections: number, node, and a hold on the socket.
    live: BTreeMap<u64, (usize, TcpStream)>,
}

#[derive(Debug)]
struct Stream {
    id: u64,
    bytes: Vec<u8>,
    start: u64,
    finished: bool,
    writer: u128,
    pieces: u32,
    piece: Option<Piece>,
    decide_at_end: bool,
    keep: Keep,
}

/// Writes of one connection.
#[derive(Debug)]
struct Piece {
    id: u64,
    /// The node.
    owner: usize,
    /// Not decided.
    offered: Vec<u8>,
}

impl Played {
    /// Starts so many nodes.
    pub fn start(nodes: usize, seed: u64) -> io::Result<Self> {
        let world = World {
            streams: BTreeMap::new(),
            last_id: 0,
            dice: Dice::new(seed),
            faults: VecDeque::new(),
            held: u64::MAX,
            leader: None,
            addresses: Vec::new(),
            ended: BTreeMap::new(),
            down: vec![false; nodes],
            met: Vec::new(),
            live: BTreeMap::new(),
        };
        let shared = Arc::new(Shared { world: Mutex::new(world), changed: Condvar::new() });
        let mut addresses = Vec::new();
        for node in 0..nodes {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            addresses.push(listener.local_addr()?.to_string());
            let shared = Arc::clone(&shared);
            // They end with the process.
            thread::spawn(move || {
                for socket in listener.incoming().flatten() {
                    shared.accept(node, socket);
                }
            });
        }
        shared.lock().addresses.clone_from(&addresses);
        Ok(Self { shared, addresses })
    }

    /// Returns the addresses of the nodes.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Sets the fates of the next connections, in order; later ones are sound.
    pub fn play(&self, faults: &[Fault]) {
        self.shared.lock().faults.extend(faults);
    }

    /// Drops fates that have not been used.
    pub fn sound(&self) {
        self.shared.lock().faults.clear();
    }

    /// The others name this node as the leader.
    pub fn lead(&self, node: usize) {
        self.shared.lock().leader = Some(node);
    }

    /// A node goes, with its connections, or comes back.
    pub fn set_down(&self, node: usize, down: bool) {
        let mut world = self.shared.lock();
        world.down[node] = down;
        if down {
            for (_, socket) in world.live.values().filter(|(of, _)| *of == node) {
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
    }

    /// Nothing from this position on is decided until another is held back; `u64::MAX`: nothing is.
    pub fn hold(&self, position: u64) {
        let mut world = self.shared.lock();
        world.held = position;
        world.decide();
        drop(world);
        self.shared.changed.notify_all();
    }

    /// All that is offered to a stream is decided when its piece is ended, whatever is held back.
    pub fn decide_at_end(&self, name: &str) {
        let mut world = self.shared.lock();
        let stream = world.streams.get_mut(name).expect("a stream of a test");
        stream.decide_at_end = true;
    }

    /// Adds a stream without a writer.
    pub fn put(&self, name: &str, bytes: &[u8], finished: bool) {
        let mut world = self.shared.lock();
        let id = world.id();
        let stream = Stream {
            id,
            bytes: bytes.to_vec(),
            start: 0,
            finished,
            writer: 0,
            pieces: 1,
            piece: None,
            decide_at_end: false,
            keep: Keep::default(),
        };
        world.streams.insert(name.to_owned(), stream);
    }

    /// Appends to a stream without a writer, or closes it permanently.
    pub fn append(&self, name: &str, bytes: &[u8], finish: bool) {
        let mut world = self.shared.lock();
        let stream = world.streams.get_mut(name).expect("a stream of a test");
        stream.bytes.extend_from_slice(bytes);
        stream.finished = finish;
        drop(world);
        self.shared.changed.notify_all();
    }

    /// Forgets what is below.
    pub fn trim(&self, name: &str, before: u64) {
        let mut world = self.shared.lock();
        let stream = world.streams.get_mut(name).expect("a stream of a test");
        stream.start = before;
    }

    /// Returns the decided bytes of a stream, and whether it is permanently closed.
    pub fn stream(&self, name: &str) -> Option<(Vec<u8>, bool)> {
        let world = self.shared.lock();
        let stream = world.streams.get(name)?;
        Some((stream.bytes.clone(), stream.finished))
    }

    /// The node of each connection so far, in order.
    pub fn met(&self) -> Vec<usize> {
        self.shared.lock().met.clone()
    }

    /// Waits until so many bytes of a stream are decided or offered; `false` if that takes longer.
    pub fn wait_for(&self, name: &str, bytes: u64, at_most: Duration) -> bool {
        let until = Instant::now() + at_most;
        let mut world = self.shared.lock();
        loop {
            let stream = world.streams.get(name);
            if stream.is_some_and(|stream| stream.heard() >= bytes) {
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

    /// Decided and offered bytes of a stream at this moment.
    pub fn heard(&self, name: &str) -> u64 {
        let world = self.shared.lock();
        world.streams.get(name).map_or(0, Stream::heard)
    }
}

impl Shared {
    /// A test that failed elsewhere shall say so itself.
    fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Self>, node: usize, socket: TcpStream) {
        let mut world = self.lock();
        if world.down[node] {
            return;
        }
        let fault = world.faults.pop_front().unwrap_or(Fault::None);
        world.met.push(node);
        let number = world.id();
        if let Ok(kept) = socket.try_clone() {
            world.live.insert(number, (node, kept));
        }
        drop(world);
        let shared = Arc::clone(self);
        thread::spawn(move || {
            connection::serve(&shared, node, socket, fault);
            shared.lock().live.remove(&number);
        });
    }
}

impl World {
    fn id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// As `quorate_stream`'s table opens: gives the piece and the position of its first byte.
    fn open(
        &mut self,
        owner: usize,
        name: &str,
        how: How,
        writer: u128,
    ) -> Result<(u64, u64), Code> {
        let id = self.id();
        if let Some(stream) = self.streams.get(name) {
            let same = stream.writer == writer;
            match how {
                How::Create if !same => return Err(Code::Exists),
                How::Continue if !same => return Err(Code::Fenced),
                _ if stream.finished => return Err(Code::Finished),
                How::Append if stream.piece.is_some() && !same => return Err(Code::InUse),
                How::Create | How::Append | How::Takeover | How::Continue => {}
            }
        } else if how != How::Create {
            return Err(Code::Unknown);
        }
        self.end_by_others(name);
        let stream = self.streams.entry(name.to_owned()).or_insert(Stream {
            id,
            bytes: Vec::new(),
            start: 0,
            finished: false,
            writer,
            pieces: 0,
            piece: None,
            decide_at_end: false,
            keep: Keep::default(),
        });
        stream.writer = writer;
        stream.pieces += 1;
        stream.piece = Some(Piece { id, owner, offered: Vec::new() });
        Ok((id, stream.bytes.len() as u64))
    }

    /// Ends the piece of a writer that has given up: some offered bytes are still decided.
    fn end_piece(&mut self, name: &str) {
        let Some(stream) = self.streams.get_mut(name) else {
            return;
        };
        if let Some(piece) = stream.piece.take() {
            let room = self.held.saturating_sub(stream.bytes.len() as u64);
            let most = (piece.offered.len() as u64).min(room);
            let count = match stream.decide_at_end {
                true => piece.offered.len() as u64,
                false => self.dice.between(0, most),
            };
            let count = usize::try_from(count).expect("a part of a buffer");
            stream.bytes.extend_from_slice(&piece.offered[..count]);
        }
    }

    /// The same, and the writer's connection is told.
    fn end_by_others(&mut self, name: &str) {
        let piece_of = |stream: &Stream| stream.piece.as_ref().map(|piece| piece.id);
        if let Some(piece) = self.streams.get(name).and_then(piece_of) {
            self.end_piece(name);
            self.ended.insert(piece, self.streams[name].end());
        }
    }

    /// Decides what may be decided.
    fn decide(&mut self) {
        for stream in self.streams.values_mut() {
            if let Some(piece) = &mut stream.piece {
                let room = self.held.saturating_sub(stream.bytes.len() as u64);
                let most = (piece.offered.len() as u64).min(room);
                let count = usize::try_from(most).expect("a part of a buffer");
                stream.bytes.extend(piece.offered.drain(..count));
            }
        }
    }
}

impl Stream {
    fn end(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn heard(&self) -> u64 {
        let offered = self.piece.as_ref().map_or(0, |piece| piece.offered.len());
        self.end() + offered as u64
    }
}
