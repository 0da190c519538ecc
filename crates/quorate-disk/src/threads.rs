//! The portable driver: a few threads that block, so that the node need not.

use std::{
    collections::VecDeque,
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{Builder, JoinHandle},
};

use crate::{
    Buffer, Buffers, Completed, Disk, DiskCounters, DiskError, Durability, Family, FileId,
    FileInfo, Position, Source, Zeros,
    buffer::Pool,
    event::Event,
    folder::{self, Abilities, Folder, Home},
    mailbox::{Inbox, Mailbox},
    maker::Makers,
    operation::{Operation, Task},
};

/// As many as a log has writes in flight.
const THREADS: usize = 4;

type Job = (Operation, Arc<File>);

struct Worker {
    jobs: Arc<Mutex<Receiver<Job>>>,
    mailbox: Mailbox<Completed>,
    abilities: Abilities,
    /// Keep the folders locked for as long as anything may be in flight.
    _homes: Vec<Home>,
}

impl Worker {
    fn run(self) {
        loop {
            let job = self
                .jobs
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .recv();
            let Ok((operation, file)) = job else { return };
            self.mailbox.put(self.work(operation, &file));
        }
    }

    fn work(&self, mut operation: Operation, file: &File) -> Completed {
        let (at, file) = (operation.at, file.as_fd());
        let result = match &mut operation.task {
            Task::Write {
                buffer,
                bytes,
                durability,
            } => folder::write(file, at, &buffer[..*bytes], *durability, self.abilities),
            Task::Read { buffer, bytes } => folder::read_exact(file, at, &mut buffer[..*bytes]),
            Task::Flush => folder::flush(file, at),
        };
        operation.end(result)
    }
}

/// Files served by threads.
#[derive(Debug)]
pub(crate) struct Threads {
    folder: Folder,
    pool: Pool,
    jobs: Option<Sender<Job>>,
    workers: Vec<JoinHandle<()>>,
    makers: Makers,
    done: Inbox<Completed>,
    /// Failed before a thread was bothered.
    refused: VecDeque<Completed>,
    event: Arc<Event>,
    counters: DiskCounters,
}

impl Threads {
    pub(crate) fn open(folder: Folder, buffers: Buffers) -> Result<Self, DiskError> {
        let fail =
            |what: &str, error: &io::Error| folder::failed(what, folder.data().path(), error);
        let event = Arc::new(Event::new().map_err(|error| fail("make an event for", &error))?);
        let (mailbox, done) = Mailbox::new(&event);
        let spawn = |error: &io::Error| fail("start threads for", error);
        let makers = Makers::start(&folder, &mailbox).map_err(|error| spawn(&error))?;
        let (jobs, receiver) = channel();
        let receiver = Arc::new(Mutex::new(receiver));
        let mut workers = Vec::new();
        for number in 0..THREADS {
            let worker = Worker {
                jobs: Arc::clone(&receiver),
                mailbox: mailbox.clone(),
                abilities: folder.abilities(),
                _homes: folder.homes().to_vec(),
            };
            let thread = Builder::new().name(format!("disk-{number}"));
            workers.push(
                thread
                    .spawn(move || worker.run())
                    .map_err(|error| spawn(&error))?,
            );
        }
        Ok(Self {
            folder,
            pool: Pool::new(buffers),
            jobs: Some(jobs),
            workers,
            makers,
            done,
            refused: VecDeque::new(),
            event,
            counters: DiskCounters::default(),
        })
    }

    pub(crate) fn path(&self, family: Family) -> &Path {
        self.folder.path(family)
    }

    fn start(&mut self, operation: Operation) {
        operation.count(&mut self.counters);
        match operation.open(&mut self.folder) {
            Ok(file) => {
                let jobs = self.jobs.as_ref().expect("taken only when dropped");
                jobs.send((operation, file))
                    .expect("the threads run while they have a sender");
            }
            Err(error) => {
                self.refused.push_back(operation.end(Err(error)));
                self.event.signal();
            }
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.jobs = None;
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

impl Source for Threads {
    fn files(&mut self, family: Family) -> Result<Vec<FileInfo>, DiskError> {
        self.folder.files(family)
    }

    fn made(&mut self, family: Family) -> Result<Option<FileId>, DiskError> {
        self.folder.made(family)
    }

    fn kept(&mut self, name: &str) -> Result<Option<Vec<u8>>, DiskError> {
        self.folder.kept(name)
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

impl Disk for Threads {
    fn sync_now(&mut self, file: FileId) -> Result<(), DiskError> {
        self.folder.sync(file)
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
        buffer: Buffer,
        bytes: usize,
        durability: Durability,
    ) {
        self.start(Operation::write(token, at, buffer, bytes, durability));
    }

    fn start_read(&mut self, token: u64, at: Position, buffer: Buffer, bytes: usize) {
        self.start(Operation::read(token, at, buffer, bytes));
    }

    fn start_flush(&mut self, token: u64, file: FileId) {
        self.start(Operation::flush(token, file));
    }

    fn open_ahead(&mut self, file: FileId) -> Result<(), DiskError> {
        self.folder.open_ahead(file)
    }

    fn note_made(&mut self, made: FileId) -> Result<(), DiskError> {
        self.folder.note_made(made)
    }

    fn start_prepare(&mut self, file: FileId, bytes: u64, zeros: Zeros) {
        self.counters.prepared += 1;
        self.makers.prepare(file, bytes, zeros);
    }

    fn want_prepared(&mut self, family: Family, bytes: u64) {
        self.makers.want(family, bytes);
    }

    fn hurry_prepare(&mut self, family: Family) {
        self.counters.segment_waits += 1;
        self.makers.hurry(family);
    }

    fn start_retire(&mut self, file: FileId) {
        self.folder.close(file);
        self.makers.retire(file);
    }

    fn start_reuse(&mut self, from: FileId, to: FileId) {
        self.folder.close(from);
        self.makers.reuse(from, to);
    }

    fn start_keep(&mut self, token: u64, name: &'static str, bytes: Vec<u8>) {
        self.makers.keep(token, name, bytes);
    }

    fn sync_names(&mut self) -> Result<(), DiskError> {
        self.folder.sync_names()
    }

    fn descriptor(&mut self, file: FileId) -> Result<Option<BorrowedFd<'_>>, DiskError> {
        self.folder.lend(file).map(Some)
    }

    fn poll(&mut self) -> Option<Completed> {
        if let Some(refused) = self.refused.pop_front() {
            return Some(refused);
        }
        self.done.take()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.event.as_fd())
    }

    fn free_bytes(&self, family: Family) -> Option<u64> {
        self.folder.free_bytes(family)
    }

    fn describe(&self) -> String {
        format!("threads, {}", self.folder.abilities())
    }

    fn counters(&self) -> DiskCounters {
        self.counters
    }
}
