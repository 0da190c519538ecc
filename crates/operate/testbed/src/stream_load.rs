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

use quorate_client::stream::{
    Error, ErrorCode, OpenMode, Options, StreamReader, StreamWriter, Streams,
};
use quorate_core::dice::Dice;

use crate::{
    nodes::START_TIMEOUT,
    stream_bytes::fill_bytes,
    stream_history::{Note, ReadPart, check_history},
    wait,
};

/// Size of an occasional large write in bytes.
const BURST_BYTES: u64 = 200 << 10;
/// Pause between two writes, because the nodes share their CPUs with the tests.
const WRITE_PAUSE: Duration = Duration::from_millis(5);
/// Range for the number of writes between two takeovers, or between two trims.
const TAKEOVER_INTERVAL: (u64, u64) = (50, 400);
const TRIM_INTERVAL: Duration = Duration::from_millis(200);
/// Minimum number of bytes retained by a trim.
const RETAINED_BYTES_MIN: u64 = 256 << 10;
/// Number of bytes that must become durable to count as progress.
const PROGRESS_BYTES: u64 = 32 << 10;

/// Returns client options whose timeouts exceed any fault, so that every error is a finding.
pub fn patient_options() -> Options {
    Options {
        buffer_bytes_max: 512 << 10,
        stall_timeout: Duration::from_secs(3),
        silence_timeout: Duration::from_secs(3),
        open: START_TIMEOUT,
        give_up_timeout: START_TIMEOUT,
        tls: crate::trust::certificate(),
        ..Options::default()
    }
}

/// Running clients of all lanes.
#[derive(Debug)]
pub struct StreamLoad {
    lanes: Vec<Arc<Lane>>,
    threads: Vec<(String, JoinHandle<Result<(), String>>)>,
    part_number: u64,
    stop: Arc<AtomicBool>,
}

/// One stream with its clients and their history.
#[derive(Debug)]
pub struct Lane {
    pub name: String,
    addresses: Vec<String>,
    part_number: u64,
    notes: Mutex<Vec<Note>>,
    durable_position: AtomicU64,
    takeover_count: AtomicU32,
    trimmed_below: AtomicU64,
    reader_count: AtomicU32,
    stop: Arc<AtomicBool>,
}

/// Totals over all lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadTotals {
    pub stream_count: u64,
    pub bytes: u64,
    pub takeover_count: u64,
    pub trimmed_bytes: u64,
}

/// Scenario of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Steady,
    Trimmed,
    TakenOver,
}

impl StreamLoad {
    /// Starts clients of the nodes at `addresses`. Most writes are at most `part` bytes long. With
    /// `pinned`, each node also gets a lane whose writer uses only that node.
    pub fn start(addresses: &[String], pinned: bool, part: u64, seed: u64) -> io::Result<Self> {
        let mut load = Self {
            lanes: Vec::new(),
            threads: Vec::new(),
            part_number: part,
            stop: Arc::new(AtomicBool::new(false)),
        };
        let mut dice = Dice::new(seed);
        let mut start = |kind, name: String, writers: &[String]| {
            load.spawn_lane(kind, name, writers, addresses, &mut dice)
        };
        start(Kind::Steady, "free".to_owned(), addresses)?;
        start(Kind::Trimmed, "trimmed".to_owned(), addresses)?;
        start(Kind::TakenOver, "taken".to_owned(), addresses)?;
        if pinned {
            for (node, address) in (1..).zip(addresses) {
                let name = format!("at-{node}");
                start(Kind::Steady, name, std::slice::from_ref(address))?;
            }
        }
        Ok(load)
    }

    fn spawn_lane(
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
            part_number: self.part_number,
            notes: Mutex::default(),
            durable_position: AtomicU64::new(0),
            takeover_count: AtomicU32::new(0),
            trimmed_below: AtomicU64::new(0),
            reader_count: AtomicU32::new(0),
            stop: Arc::clone(&self.stop),
        });
        let mut readers = readers.to_vec();
        let count = readers.len();
        readers.rotate_left(self.lanes.len() % count);
        let (opened, hear_opened) = mpsc::channel();
        let (mut writes, at) = (dice.fork(), Arc::clone(&lane));
        match kind {
            Kind::TakenOver => self
                .spawn_thread(&lane, "writers", move || at.repeat_takeovers(&mut writes, &opened)),
            Kind::Steady | Kind::Trimmed => self.spawn_thread(&lane, "writer", move || {
                at.write_until_end(0, OpenMode::Create, &mut writes, &opened)
            }),
        }
        let what = format!("stream {} to be opened", lane.name);
        if hear_opened.recv_timeout(START_TIMEOUT).is_err() {
            self.check_clients()?;
            return Err(io::Error::other(format!("waited in vain for {what}")));
        }
        let at = Arc::clone(&lane);
        let addresses = readers.clone();
        self.spawn_thread(&lane, "reader", move || at.follow_to_end(&addresses));
        if kind == Kind::Trimmed {
            let at = Arc::clone(&lane);
            self.spawn_thread(&lane, "trimmer", move || at.trim_repeatedly(&readers));
        }
        self.lanes.push(lane);
        Ok(())
    }

    fn spawn_thread(
        &mut self,
        lane: &Lane,
        what: &str,
        work: impl FnOnce() -> Result<(), String> + Send + 'static,
    ) {
        let name = format!("{what} of stream {}", lane.name);
        self.threads.push((name, thread::spawn(work)));
    }

    /// Returns an error if a client has ended prematurely.
    fn check_clients(&mut self) -> io::Result<()> {
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
    pub fn durable_bytes(&self) -> u64 {
        let durable = |lane: &Arc<Lane>| lane.durable_position.load(Ordering::Relaxed);
        self.lanes.iter().map(durable).sum()
    }

    /// Waits until every stream has grown. An error names a stream that has not.
    pub fn wait_for_progress(&mut self) -> io::Result<()> {
        self.wait_for_progress_without(&[])
    }

    /// Waits as [`Self::wait_for_progress`] does, but ignores lanes whose writers use only nodes in
    /// `down`.
    pub fn wait_for_progress_without(&mut self, down: &[String]) -> io::Result<()> {
        let lanes = self.lanes.clone();
        let goes_on = |lane: &Lane| !lane.addresses.iter().all(|address| down.contains(address));
        for lane in lanes.into_iter().filter(|lane| goes_on(lane)) {
            let from = lane.durable_position.load(Ordering::Relaxed);
            let mut failed = Ok(());
            let what = format!("stream {} to go on from {from}", lane.name);
            wait::wait_at_most(START_TIMEOUT, &what, || {
                failed = self.check_clients();
                let now = lane.durable_position.load(Ordering::Relaxed);
                (now >= from + PROGRESS_BYTES || failed.is_err()).then_some(())
            })?;
            failed?;
        }
        Ok(())
    }

    /// Closes all streams permanently, and waits until readers have received everything.
    pub fn finish(mut self) -> io::Result<()> {
        self.check_clients()?;
        self.stop.store(true, Ordering::Relaxed);
        for (name, thread) in self.threads.drain(..) {
            wait::wait_at_most(START_TIMEOUT, &format!("the {name} to end"), || {
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
pub fn save_histories(lanes: &[Arc<Lane>], folder: &Path) -> io::Result<()> {
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
pub fn compare_nodes(lanes: &[Arc<Lane>], addresses: &[String]) -> io::Result<LoadTotals> {
    let mut sum = LoadTotals::default();
    for lane in lanes {
        let mut digests = Vec::new();
        for address in addresses {
            let digest = lane.read_all(address);
            digests.push(digest.map_err(|why| {
                io::Error::other(format!("stream {} at {address}: {why}", lane.name))
            })?);
        }
        let found = check_history(&lane.notes());
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
        sum.stream_count += 1;
        sum.bytes += lane.durable_position.load(Ordering::Relaxed);
        sum.takeover_count += u64::from(lane.takeover_count.load(Ordering::Relaxed));
        sum.trimmed_bytes += lane.trimmed_below.load(Ordering::Relaxed);
    }
    Ok(sum)
}

impl Lane {
    pub fn notes(&self) -> MutexGuard<'_, Vec<Note>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_note(&self, note: Note) {
        self.notes().push(note);
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Writes until the load ends, then closes the stream permanently.
    fn write_until_end(
        &self,
        writer: u16,
        how: OpenMode,
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
        how: OpenMode,
        dice: &mut Dice,
        opened: &mpsc::Sender<()>,
    ) -> Result<(), Error> {
        let open = || StreamWriter::open(&self.addresses, &self.name, how, patient_options());
        let mut stream = retry_until_reachable(open)?;
        let mut durable = stream.first_position();
        self.add_note(Note::Opened { writer, position: durable });
        // The receiver may no longer be waiting.
        let _ = opened.send(());
        let mut part = vec![0; usize::try_from(BURST_BYTES).unwrap_or(0)];
        let taken = |error: &io::Error| Error::from_io_error(error).cloned();
        while !self.is_over() {
            let most = if dice.chance(1, 50) { BURST_BYTES } else { self.part_number };
            let count = 1 + dice.index(usize::try_from(most).unwrap_or(1));
            fill_bytes(writer, stream.position(), &mut part[..count]);
            self.add_note(Note::AboutToWrite { writer, count: count as u64 });
            if let Err(error) = stream.write_all(&part[..count]) {
                self.on_durable(writer, &mut durable, stream.durable_position());
                return Err(
                    taken(&error).unwrap_or_else(|| Error::LocalResource(error.to_string()))
                );
            }
            self.on_durable(writer, &mut durable, stream.durable_position());
            thread::sleep(WRITE_PAUSE);
        }
        let position = stream.finish()?;
        self.add_note(Note::Closed { writer, position, finished: true });
        self.durable_position.store(position, Ordering::Relaxed);
        Ok(())
    }

    fn on_durable(&self, writer: u16, before: &mut u64, position: u64) {
        if position != *before {
            *before = position;
            self.add_note(Note::Durable { writer, position });
            self.durable_position.fetch_max(position, Ordering::Relaxed);
        }
    }

    /// Starts one writer after another to take over the stream. Each must be notified that it was
    /// fenced.
    fn repeat_takeovers(
        self: &Arc<Self>,
        dice: &mut Dice,
        opened: &mpsc::Sender<()>,
    ) -> Result<(), String> {
        let mut how = OpenMode::Create;
        let mut former: Option<JoinHandle<Result<(), Error>>> = None;
        for writer in 0.. {
            let (is_open, hear_open) = mpsc::channel();
            let (at, mut own) = (Arc::clone(self), dice.fork());
            let next = thread::spawn(move || at.write_until(writer, how, &mut own, &is_open));
            if hear_open.recv_timeout(START_TIMEOUT).is_err() {
                return match next.is_finished().then(|| next.join()) {
                    Some(Ok(Err(error))) => Err(format!("writer {writer}: {error}")),
                    _ => Err(format!("writer {writer} cannot take the stream over")),
                };
            }
            let _ = opened.send(());
            how = OpenMode::Takeover;
            if let Some(former) = former.replace(next) {
                let what = format!("the writer before {writer} to hear that it is fenced");
                let fenced =
                    wait::wait_at_most(START_TIMEOUT, &what, || former.is_finished().then_some(()));
                fenced.map_err(|error| error.to_string())?;
                match former.join() {
                    Ok(Err(error)) if error.code() == Some(ErrorCode::Fenced) => {}
                    ended => return Err(format!("the writer before {writer} ended: {ended:?}")),
                }
                self.takeover_count.fetch_add(1, Ordering::Relaxed);
            }
            for _ in 0..dice.between(TAKEOVER_INTERVAL.0, TAKEOVER_INTERVAL.1) {
                if self.is_over() {
                    break;
                }
                thread::sleep(WRITE_PAUSE);
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
    fn follow_to_end(&self, addresses: &[String]) -> Result<(), String> {
        let mut from = 0;
        loop {
            match retry_until_reachable(|| self.read_stream(addresses, from, true)) {
                Ok(_) => return Ok(()),
                Err(Error::Refused(no))
                    if ErrorCode::from_number(no.code) == Some(ErrorCode::Trimmed) =>
                {
                    from = no.position;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Reads all retained bytes of the stream from a single node, and returns a digest.
    fn read_all(&self, address: &String) -> Result<u64, Error> {
        let addresses = std::slice::from_ref(address);
        let info = Streams::new(addresses, patient_options()).stat(&self.name)?;
        self.read_stream(addresses, info.start, false)
    }

    fn read_stream(&self, addresses: &[String], from: u64, follow: bool) -> Result<u64, Error> {
        let number = self.reader_count.fetch_add(1, Ordering::Relaxed);
        let mut reader = StreamReader::new(addresses, &self.name, patient_options()).from(from);
        if follow {
            reader = reader.follow();
        }
        self.add_note(Note::AboutToRead { reader: number, position: from });
        let (mut hasher, mut like) = (DefaultHasher::new(), 0);
        loop {
            let position = reader.position();
            let bytes = reader.next_bytes()?;
            if bytes.is_empty() {
                break;
            }
            hasher.write(bytes);
            let parts = ReadPart::split_by_origin((like, position), bytes);
            if let Some(ReadPart::FromWriter { writer, .. }) = parts.last() {
                like = *writer;
            }
            let count = bytes.len();
            self.add_note(Note::Read { reader: number, position, parts });
            reader.consume(count);
        }
        if let Some(end) = reader.end() {
            self.add_note(Note::ReachedEnd {
                reader: number,
                position: end.position,
                finished: end.is_finished,
            });
        }
        Ok(hasher.finish())
    }

    /// Trims the stream repeatedly until the load ends.
    fn trim_repeatedly(&self, addresses: &[String]) -> Result<(), String> {
        let mut streams = Streams::new(addresses, patient_options());
        while !self.is_over() {
            let durable = self.durable_position.load(Ordering::Relaxed);
            if let Some(before) = durable.checked_sub(RETAINED_BYTES_MIN) {
                let start = retry_until_reachable(|| streams.trim(&self.name, before));
                let start = start.map_err(|error| format!("trim before {before}: {error}"))?;
                self.trimmed_below.store(start, Ordering::Relaxed);
                if start < before {
                    return Err(format!("trimmed before {before}, it starts at {start}"));
                }
            }
            thread::sleep(TRIM_INTERVAL);
        }
        Ok(())
    }
}

/// Repeats a request while no node is reachable, because all of them may be down for a moment.
fn retry_until_reachable<T>(mut ask: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let mut last = Error::LocalResource("it was not tried".to_owned());
    let done = wait::wait_at_most(START_TIMEOUT, "a node", || match ask() {
        Err(error @ Error::Unreachable(_)) => {
            last = error;
            None
        }
        done => Some(done),
    });
    done.unwrap_or(Err(last))
}
