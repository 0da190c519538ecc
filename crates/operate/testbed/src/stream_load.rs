//! Byte stream clients that record their observations while faults are injected into the nodes.
//!
//! A *lane* is one stream with its writers, a reader that follows it, and their history. There are
//! several kinds: some writers prefer the leader, and some use only a single node, which then owns
//! their bytes; one stream is trimmed while it grows, and one is taken over repeatedly.

use std::{
    fs::File,
    hash::{DefaultHasher, Hasher as _},
    io::{self, BufRead as _, BufWriter, Write as _},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use quorate_client::stream::{Code, Error, How, Options, StreamReader, StreamWriter, Streams};
use quorate_core::dice::Dice;

use crate::{
    nodes::PATIENCE,
    stream_bytes::fill,
    stream_history::{Note, Part, judge},
    wait,
};

/// Size of an occasional large write in bytes.
const BURST: u64 = 200 << 10;
/// Pause between two writes, because the nodes share their CPUs with the tests.
const PAUSE: Duration = Duration::from_millis(5);
/// Range for the number of writes between two takeovers, or between two trims.
const TAKEOVER: (u64, u64) = (50, 400);
const TRIM: Duration = Duration::from_millis(200);
/// Minimum number of bytes retained by a trim.
const KEPT: u64 = 256 << 10;
/// Number of bytes that must become durable to count as progress.
const GOING_ON: u64 = 32 << 10;

/// Returns client options whose timeouts exceed any fault, so that every error is a finding.
pub fn options() -> Options {
    Options {
        buffer: 512 << 10,
        stall: Duration::from_secs(3),
        silence: Duration::from_secs(3),
        open: PATIENCE,
        patience: PATIENCE,
        tls: crate::trust::certificate(),
        ..Options::default()
    }
}

/// Running clients of all lanes.
#[derive(Debug)]
pub struct Load {
    lanes: Vec<Arc<Lane>>,
    threads: Vec<(String, JoinHandle<Result<(), String>>)>,
    part: u64,
    stop: Arc<AtomicBool>,
}

/// One stream with its clients and their history.
#[derive(Debug)]
pub struct Lane {
    pub name: String,
    addresses: Vec<String>,
    part: u64,
    notes: Mutex<Vec<Note>>,
    durable: AtomicU64,
    takeovers: AtomicU32,
    trimmed: AtomicU64,
    readers: AtomicU32,
    stop: Arc<AtomicBool>,
}

/// Totals over all lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub streams: u64,
    pub bytes: u64,
    pub takeovers: u64,
    pub trimmed: u64,
}

/// Scenario of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Steady,
    Trimmed,
    Taken,
}

impl Load {
    /// Starts clients of the nodes at `addresses`. Most writes are at most `part` bytes long. With
    /// `pinned`, each node also gets a lane whose writer uses only that node.
    pub fn start(addresses: &[String], pinned: bool, part: u64, seed: u64) -> io::Result<Self> {
        let mut load = Self {
            lanes: Vec::new(),
            threads: Vec::new(),
            part,
            stop: Arc::new(AtomicBool::new(false)),
        };
        let mut dice = Dice::new(seed);
        let mut start = |kind, name: String, writers: &[String]| {
            load.lane(kind, name, writers, addresses, &mut dice)
        };
        start(Kind::Steady, "free".to_owned(), addresses)?;
        start(Kind::Trimmed, "trimmed".to_owned(), addresses)?;
        start(Kind::Taken, "taken".to_owned(), addresses)?;
        if pinned {
            for (node, address) in (1..).zip(addresses) {
                let name = format!("at-{node}");
                start(Kind::Steady, name, std::slice::from_ref(address))?;
            }
        }
        Ok(load)
    }

    fn lane(
        &mut self,
        kind: Kind,
        name: String,
        writers: &[String],
        readers: &[String],
        dice: &mut Dice,
    ) -> io::Result<()> {
        let lane = Arc::new(Lane {
            name,
            addresses: writers.to_vec(),
            part: self.part,
            notes: Mutex::default(),
            durable: AtomicU64::new(0),
            takeovers: AtomicU32::new(0),
            trimmed: AtomicU64::new(0),
            readers: AtomicU32::new(0),
            stop: Arc::clone(&self.stop),
        });
        let mut readers = readers.to_vec();
        let count = readers.len();
        readers.rotate_left(self.lanes.len() % count);
        let (opened, hear_opened) = mpsc::channel();
        let (mut writes, at) = (dice.fork(), Arc::clone(&lane));
        match kind {
            Kind::Taken => {
                self.spawn(&lane, "writers", move || at.take_over_and_over(&mut writes, &opened))
            }
            Kind::Steady | Kind::Trimmed => {
                self.spawn(&lane, "writer", move || at.write(0, How::Create, &mut writes, &opened))
            }
        }
        let what = format!("stream {} to be opened", lane.name);
        if hear_opened.recv_timeout(PATIENCE).is_err() {
            self.check()?;
            return Err(io::Error::other(format!("waited in vain for {what}")));
        }
        let at = Arc::clone(&lane);
        let addresses = readers.clone();
        self.spawn(&lane, "reader", move || at.follow(&addresses));
        if kind == Kind::Trimmed {
            let at = Arc::clone(&lane);
            self.spawn(&lane, "trimmer", move || at.trim(&readers));
        }
        self.lanes.push(lane);
        Ok(())
    }

    fn spawn(
        &mut self,
        lane: &Lane,
        what: &str,
        work: impl FnOnce() -> Result<(), String> + Send + 'static,
    ) {
        let name = format!("{what} of stream {}", lane.name);
        self.threads.push((name, thread::spawn(work)));
    }

    /// Returns an error if a client has ended prematurely.
    fn check(&mut self) -> io::Result<()> {
        let ended = self.threads.iter().position(|(_, one)| one.is_finished());
        let Some(at) = ended.filter(|_| !self.stop.load(Ordering::Relaxed)) else {
            return Ok(());
        };
        let (name, thread) = self.threads.swap_remove(at);
        let why = match thread.join() {
            Ok(Ok(())) => "ended".to_owned(),
            Ok(Err(why)) => why,
            Err(_) => "panicked".to_owned(),
        };
        Err(io::Error::other(format!("{name}: {why}")))
    }

    pub fn lanes(&self) -> Vec<Arc<Lane>> {
        self.lanes.clone()
    }

    /// Returns the number of durable bytes, summed over all streams.
    pub fn durable(&self) -> u64 {
        let durable = |lane: &Arc<Lane>| lane.durable.load(Ordering::Relaxed);
        self.lanes.iter().map(durable).sum()
    }

    /// Waits until every stream has grown. An error names a stream that has not.
    pub fn wait_going_on(&mut self) -> io::Result<()> {
        self.wait_going_on_without(&[])
    }

    /// Waits as [`Self::wait_going_on`] does, but ignores lanes whose writers use only nodes in
    /// `down`.
    pub fn wait_going_on_without(&mut self, down: &[String]) -> io::Result<()> {
        let lanes = self.lanes.clone();
        let goes_on = |lane: &Lane| !lane.addresses.iter().all(|address| down.contains(address));
        for lane in lanes.into_iter().filter(|lane| goes_on(lane)) {
            let from = lane.durable.load(Ordering::Relaxed);
            let mut failed = Ok(());
            let what = format!("stream {} to go on from {from}", lane.name);
            wait::at_most(PATIENCE, &what, || {
                failed = self.check();
                let now = lane.durable.load(Ordering::Relaxed);
                (now >= from + GOING_ON || failed.is_err()).then_some(())
            })?;
            failed?;
        }
        Ok(())
    }

    /// Closes all streams permanently, and waits until readers have received everything.
    pub fn finish(mut self) -> io::Result<()> {
        self.check()?;
        self.stop.store(true, Ordering::Relaxed);
        for (name, thread) in self.threads.drain(..) {
            wait::at_most(PATIENCE, &format!("the {name} to end"), || {
                thread.is_finished().then_some(())
            })?;
            let ended = thread.join();
            let ended = ended.map_err(|_| io::Error::other(format!("{name} panicked")))?;
            ended.map_err(|why| io::Error::other(format!("{name}: {why}")))?;
        }
        Ok(())
    }
}

/// Writes the history of each stream to a file in `folder`, one note per line.
pub fn save(lanes: &[Arc<Lane>], folder: &Path) -> io::Result<()> {
    for lane in lanes {
        let mut file = BufWriter::new(File::create(folder.join(format!("{}.notes", lane.name)))?);
        for note in lane.notes().iter() {
            writeln!(file, "{note:?}")?;
        }
        file.flush()?;
    }
    Ok(())
}

/// Reads every stream from each node. Fails if nodes differ or a history violates the rules.
pub fn compare(lanes: &[Arc<Lane>], addresses: &[String]) -> io::Result<Sum> {
    let mut sum = Sum::default();
    for lane in lanes {
        let mut digests = Vec::new();
        for address in addresses {
            let digest = lane.read_all(address);
            digests.push(digest.map_err(|why| {
                io::Error::other(format!("stream {} at {address}: {why}", lane.name))
            })?);
        }
        let found = judge(&lane.notes());
        if !found.is_empty() {
            let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
            let lines = lines.join("\n  ");
            return Err(io::Error::other(format!("stream {}:\n  {lines}", lane.name)));
        }
        digests.dedup();
        if digests.len() != 1 {
            let why = format!("stream {} differs between nodes: {digests:x?}", lane.name);
            return Err(io::Error::other(why));
        }
        sum.streams += 1;
        sum.bytes += lane.durable.load(Ordering::Relaxed);
        sum.takeovers += u64::from(lane.takeovers.load(Ordering::Relaxed));
        sum.trimmed += lane.trimmed.load(Ordering::Relaxed);
    }
    Ok(sum)
}

impl Lane {
    pub fn notes(&self) -> MutexGuard<'_, Vec<Note>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, note: Note) {
        self.notes().push(note);
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Writes until the load ends, then closes the stream permanently.
    fn write(
        &self,
        writer: u16,
        how: How,
        dice: &mut Dice,
        opened: &mpsc::Sender<()>,
    ) -> Result<(), String> {
        match self.write_until(writer, how, dice, opened) {
            Ok(()) => Ok(()),
            Err(error) => Err(format!("writer {writer}: {error}")),
        }
    }

    fn write_until(
        &self,
        writer: u16,
        how: How,
        dice: &mut Dice,
        opened: &mpsc::Sender<()>,
    ) -> Result<(), Error> {
        let open = || StreamWriter::open(&self.addresses, &self.name, how, options());
        let mut stream = retry_until_reachable(open)?;
        let mut durable = stream.first_position();
        self.note(Note::Opened { writer, position: durable });
        // The receiver may no longer be waiting.
        let _ = opened.send(());
        let mut part = vec![0; usize::try_from(BURST).unwrap_or(0)];
        let taken = |error: &io::Error| Error::of(error).cloned();
        while !self.is_over() {
            let most = if dice.chance(1, 50) { BURST } else { self.part };
            let count = 1 + dice.index(usize::try_from(most).unwrap_or(1));
            fill(writer, stream.position(), &mut part[..count]);
            self.note(Note::Sends { writer, count: count as u64 });
            if let Err(error) = stream.write_all(&part[..count]) {
                self.heard(writer, &mut durable, stream.durable_position());
                return Err(taken(&error).unwrap_or_else(|| Error::Machine(error.to_string())));
            }
            self.heard(writer, &mut durable, stream.durable_position());
            thread::sleep(PAUSE);
        }
        let position = stream.finish()?;
        self.note(Note::Closed { writer, position, finished: true });
        self.durable.store(position, Ordering::Relaxed);
        Ok(())
    }

    fn heard(&self, writer: u16, before: &mut u64, position: u64) {
        if position != *before {
            *before = position;
            self.note(Note::Durable { writer, position });
            self.durable.fetch_max(position, Ordering::Relaxed);
        }
    }

    /// Starts one writer after another to take over the stream. Each must be notified that it was
    /// fenced.
    fn take_over_and_over(
        self: &Arc<Self>,
        dice: &mut Dice,
        opened: &mpsc::Sender<()>,
    ) -> Result<(), String> {
        let mut how = How::Create;
        let mut former: Option<JoinHandle<Result<(), Error>>> = None;
        for writer in 0.. {
            let (is_open, hear_open) = mpsc::channel();
            let (at, mut own) = (Arc::clone(self), dice.fork());
            let next = thread::spawn(move || at.write_until(writer, how, &mut own, &is_open));
            if hear_open.recv_timeout(PATIENCE).is_err() {
                return match next.is_finished().then(|| next.join()) {
                    Some(Ok(Err(error))) => Err(format!("writer {writer}: {error}")),
                    _ => Err(format!("writer {writer} cannot take the stream over")),
                };
            }
            let _ = opened.send(());
            how = How::Takeover;
            if let Some(former) = former.replace(next) {
                let what = format!("the writer before {writer} to hear that it is fenced");
                let fenced = wait::at_most(PATIENCE, &what, || former.is_finished().then_some(()));
                fenced.map_err(|error| error.to_string())?;
                match former.join() {
                    Ok(Err(error)) if error.code() == Some(Code::Fenced) => {}
                    ended => return Err(format!("the writer before {writer} ended: {ended:?}")),
                }
                self.takeovers.fetch_add(1, Ordering::Relaxed);
            }
            for _ in 0..dice.between(TAKEOVER.0, TAKEOVER.1) {
                if self.is_over() {
                    break;
                }
                thread::sleep(PAUSE);
            }
            if self.is_over() {
                break;
            }
        }
        match former.map(JoinHandle::join) {
            Some(Ok(Ok(()))) => Ok(()),
            ended => Err(format!("the last writer ended: {ended:?}")),
        }
    }

    /// Reads the stream from its first byte until it is closed permanently.
    fn follow(&self, addresses: &[String]) -> Result<(), String> {
        let mut from = 0;
        loop {
            match retry_until_reachable(|| self.read(addresses, from, true)) {
                Ok(_) => return Ok(()),
                Err(Error::Refused(no)) if Code::of(no.code) == Some(Code::Trimmed) => {
                    from = no.position;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Reads all retained bytes of the stream from a single node, and returns a digest.
    fn read_all(&self, address: &String) -> Result<u64, Error> {
        let addresses = std::slice::from_ref(address);
        let info = Streams::new(addresses, options()).stat(&self.name)?;
        self.read(addresses, info.start, false)
    }

    fn read(&self, addresses: &[String], from: u64, follow: bool) -> Result<u64, Error> {
        let number = self.readers.fetch_add(1, Ordering::Relaxed);
        let mut reader = StreamReader::new(addresses, &self.name, options()).from(from);
        if follow {
            reader = reader.follow();
        }
        self.note(Note::Asks { reader: number, position: from });
        let (mut hasher, mut like) = (DefaultHasher::new(), 0);
        loop {
            let position = reader.position();
            let bytes = reader.next_bytes()?;
            if bytes.is_empty() {
                break;
            }
            hasher.write(bytes);
            let parts = Part::all((like, position), bytes);
            if let Some(Part::Of { writer, .. }) = parts.last() {
                like = *writer;
            }
            let count = bytes.len();
            self.note(Note::Read { reader: number, position, parts });
            reader.consume(count);
        }
        if let Some(end) = reader.end() {
            self.note(Note::End { reader: number, position: end.position, finished: end.finished });
        }
        Ok(hasher.finish())
    }

    /// Trims the stream repeatedly until the load ends.
    fn trim(&self, addresses: &[String]) -> Result<(), String> {
        let mut streams = Streams::new(addresses, options());
        while !self.is_over() {
            let durable = self.durable.load(Ordering::Relaxed);
            if let Some(before) = durable.checked_sub(KEPT) {
                let start = retry_until_reachable(|| streams.trim(&self.name, before));
                let start = start.map_err(|error| format!("trim before {before}: {error}"))?;
                self.trimmed.store(start, Ordering::Relaxed);
                if start < before {
                    return Err(format!("trimmed before {before}, it starts at {start}"));
                }
            }
            thread::sleep(TRIM);
        }
        Ok(())
    }
}

/// Repeats a request while no node is reachable, because all of them may be down for a moment.
fn retry_until_reachable<T>(mut ask: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let mut last = Error::Machine("it was not tried".to_owned());
    let done = wait::at_most(PATIENCE, "a node", || match ask() {
        Err(error @ Error::Unreachable(_)) => {
            last = error;
            None
        }
        done => Some(done),
    });
    done.unwrap_or(Err(last))
}
