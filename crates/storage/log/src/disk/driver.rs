//! The driver for a node's files, on top of either engine.
//!
//! It owns what the engines share: the folders with their open files, memory, the threads that
//! create files, and the event that signals completions. An engine receives operations with their
//! open files and reports completions.

use std::{
    collections::VecDeque,
    fmt,
    fs::File,
    io,
    os::fd::{AsFd as _, BorrowedFd},
    path::Path,
    sync::Arc,
    time::Duration,
};

use crate::disk::{
    Buffer, Buffers, Completed, Disk, DiskCounters, DiskError, Durability, Family, FileId,
    FileInfo, Output, Position, Source, ZeroFill,
    buffer::Pool,
    event::Event,
    folder::{self, Folder},
    mailbox::{Inbox, Mailbox},
    maker::FileMakers,
    modelled::{Modelled, device_time},
    operation::Operation,
    threads::Threads,
    uring::{Parts, Ring},
};

/// Files on a real disk, accessed through the best available engine.
#[derive(Debug)]
pub struct FileDisk {
    /// Declared first so that it is dropped first: after that, no thread and no kernel operation
    /// accesses a file or memory.
    engine: Engine,
    pool: Pool,
    folder: Folder,
    file_makers: FileMakers,
    event: Arc<Event>,
    counters: DiskCounters,
    /// Tokens and start times of log writes that are not on stable storage yet.
    log_writes_in_flight: VecDeque<(u64, u64)>,
    /// Model of a slower device, for measurements.
    flush_model: Option<Box<Modelled>>,
}

#[derive(Debug)]
enum Engine {
    Ring(Box<Ring>),
    Threads(Box<Threads>),
}

impl Engine {
    /// Returns the error because of which no new operations are accepted, if any.
    fn broken_by(&self) -> Option<&DiskError> {
        match self {
            Self::Ring(ring) => ring.broken_by(),
            Self::Threads(_) => None,
        }
    }

    fn start(&mut self, operation: Operation, file: Arc<File>) {
        match self {
            Self::Ring(ring) => ring.push(operation, file),
            Self::Threads(threads) => threads.queue_operation(operation, file),
        }
    }

    fn refuse_operation(&mut self, operation: Operation, error: DiskError) {
        match self {
            Self::Ring(ring) => ring.refuse_operation(operation, error),
            Self::Threads(threads) => threads.refuse_operation(operation, error),
        }
    }

    fn poll(&mut self) -> Option<Completed> {
        match self {
            Self::Ring(ring) => ring.poll(),
            Self::Threads(threads) => threads.poll(),
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ring(ring) => write!(f, "io_uring ({})", ring.description()),
            Self::Threads(_) => f.write_str("threads"),
        }
    }
}

impl FileDisk {
    pub(crate) fn with_ring(folder: Folder, parts: Parts, pool: Pool) -> Result<Self, DiskError> {
        let event = Arc::clone(&parts.event);
        let place = folder.data().path().to_owned();
        Self::new(folder, pool, event, "start a thread for", |_, _, made| {
            let ring = Ring::new(parts, made, place);
            Ok(Engine::Ring(Box::new(ring)))
        })
    }

    pub(crate) fn with_threads(folder: Folder, buffers: Buffers) -> Result<Self, DiskError> {
        let event = Event::new()
            .map_err(|error| folder::failed("make an event for", folder.data().path(), &error))?;
        let event = Arc::new(event);
        let signalled = Arc::clone(&event);
        let pool = Pool::new(buffers);
        Self::new(folder, pool, event, "start threads for", |folder, mailbox, done| {
            let threads = Threads::start(folder, mailbox, done, signalled)?;
            Ok(Engine::Threads(Box::new(threads)))
        })
    }

    /// Creates a disk. If starting threads fails, the error names `action` as the step that failed.
    fn new(
        folder: Folder,
        pool: Pool,
        event: Arc<Event>,
        action: &str,
        engine: impl FnOnce(&Folder, &Mailbox<Completed>, Inbox<Completed>) -> io::Result<Engine>,
    ) -> Result<Self, DiskError> {
        let (mailbox, ended) = Mailbox::new(&event);
        let failed = |error| folder::failed(action, folder.data().path(), &error);
        let makers = FileMakers::start(&folder, &mailbox).map_err(failed)?;
        let engine = engine(&folder, &mailbox, ended).map_err(failed)?;
        Ok(Self {
            engine,
            pool,
            folder,
            file_makers: makers,
            event,
            counters: DiskCounters::default(),
            log_writes_in_flight: VecDeque::new(),
            flush_model: None,
        })
    }

    pub fn path(&self, family: Family) -> &Path {
        self.folder.path(family)
    }

    /// Makes each flush take at least `flush`, for measurements. Zero has no effect.
    pub fn with_min_flush_time(mut self, flush: Duration) -> Result<Self, DiskError> {
        if !flush.is_zero() {
            let modelled = Modelled::new(self.event.as_fd(), flush).map_err(|error| {
                folder::failed("model the device of", self.path(Family::Log), &error)
            })?;
            self.flush_model = Some(Box::new(modelled));
        }
        Ok(self)
    }

    /// Records the duration of a log write when it completes.
    fn record_write_time(&mut self, completed: &Completed) {
        let Completed::Written { token, file, durability: Durability::Flushed, result, .. } =
            completed
        else {
            return;
        };
        let mine = |(one, _): &(u64, u64)| file.family == Family::Log && one == token;
        let Some((_, since)) = self
            .log_writes_in_flight
            .iter()
            .position(mine)
            .and_then(|at| self.log_writes_in_flight.remove(at))
        else {
            return;
        };
        if result.is_ok() {
            let took = device_time().saturating_sub(since);
            self.counters.flush_times.add_us(took / 1000);
        }
    }

    fn start(&mut self, operation: Operation) {
        operation.count(&mut self.counters);
        let open = match self.engine.broken_by() {
            Some(error) => Err(error.clone()),
            None => operation.open(&mut self.folder),
        };
        match open {
            Ok(file) => self.engine.start(operation, file),
            Err(error) => self.engine.refuse_operation(operation, error),
        }
    }
}

impl fmt::Display for FileDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.engine, self.folder.abilities())?;
        match &self.flush_model {
            Some(modelled) => write!(f, "; MODELLED: a flush takes {:?}", modelled.flush()),
            None => Ok(()),
        }
    }
}

impl Source for FileDisk {
    fn files(&mut self, family: Family) -> Result<Vec<FileInfo>, DiskError> {
        self.folder.files(family)
    }

    fn newest_created(&mut self, family: Family) -> Result<Option<FileId>, DiskError> {
        self.folder.newest_created(family)
    }

    fn read_small_file(&mut self, name: &str) -> Result<Option<Vec<u8>>, DiskError> {
        self.folder.read_small_file(name)
    }

    fn read_now(
        &mut self,
        at: Position,
        buffer: &mut Buffer,
        bytes: usize,
    ) -> Result<(), DiskError> {
        self.folder.read_now(at, buffer, bytes)
    }
}

impl Disk for FileDisk {
    fn sync_now(&mut self, file: FileId) -> Result<(), DiskError> {
        self.folder.sync(file)
    }

    fn sync_file_names(&mut self) -> Result<(), DiskError> {
        self.folder.sync_file_names()
    }

    fn allocate(&mut self, bytes: usize) -> Buffer {
        self.pool.allocate(bytes)
    }

    fn release(&mut self, buffer: Buffer) {
        self.pool.release(buffer);
    }

    fn start_write(
        &mut self,
        token: u64,
        at: Position,
        output: Output,
        bytes: usize,
        durability: Durability,
    ) {
        if at.file.family == Family::Log && durability == Durability::Flushed {
            self.log_writes_in_flight.push_back((token, device_time()));
        }
        self.start(Operation::write(token, at, output, bytes, durability));
    }

    fn start_read(&mut self, token: u64, at: Position, buffer: Buffer, bytes: usize) {
        self.start(Operation::read(token, at, buffer, bytes));
    }

    fn start_flush(&mut self, token: u64, file: FileId) {
        self.start(Operation::flush(token, file));
    }

    fn open_next_file(&mut self, file: FileId) -> Result<(), DiskError> {
        self.folder.open_next_file(file)
    }

    fn record_created(&mut self, made: FileId) -> Result<(), DiskError> {
        self.folder.record_created(made)
    }

    fn start_prepare(&mut self, file: FileId, bytes: u64, zeros: ZeroFill) {
        self.counters.files_prepared += u64::from(file.family == Family::Log);
        self.file_makers.prepare(file, bytes, zeros);
    }

    fn pace_file_creation(&mut self, family: Family, bytes: u64) {
        self.file_makers.pace_prepare(family, bytes);
    }

    fn hurry_file_creation(&mut self, family: Family) {
        // Only waits for log segments are counted, because commands do not wait for other families.
        self.counters.segment_waits += u64::from(family == Family::Log);
        self.file_makers.hurry_prepare(family);
    }

    fn start_retire(&mut self, file: FileId) {
        self.folder.close(file);
        self.file_makers.retire(file);
    }

    fn start_reuse(&mut self, from: FileId, to: FileId) {
        self.folder.close(from);
        self.file_makers.reuse(from, to);
    }

    fn start_replace_small_file(&mut self, token: u64, name: &'static str, bytes: Vec<u8>) {
        self.file_makers.replace_small_file(token, name, bytes);
    }

    fn start_read_small_file(&mut self, token: u64, name: &'static str) {
        self.file_makers.read_small_file(token, name);
    }

    fn descriptor(&mut self, file: FileId) -> Result<Option<BorrowedFd<'_>>, DiskError> {
        self.folder.descriptor(file).map(Some)
    }

    fn poll(&mut self) -> Option<Completed> {
        let completed = match &mut self.flush_model {
            Some(modelled) => modelled.poll(|| self.engine.poll()),
            None => self.engine.poll(),
        };
        self.record_write_time(completed.as_ref()?);
        completed
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(match &self.flush_model {
            Some(modelled) => modelled.wait_fd(),
            None => self.event.as_fd(),
        })
    }

    fn free_bytes(&self, family: Family) -> Option<u64> {
        self.folder.free_bytes(family)
    }

    fn describe(&self) -> String {
        self.to_string()
    }

    fn counters(&self) -> DiskCounters {
        self.counters
    }
}
