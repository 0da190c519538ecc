//! The portable driver: a few threads that block, so that the log need not.

use std::{
    collections::VecDeque,
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{Builder, JoinHandle},
};

use super::{
    Buffer, Completed, DataFolder, Disk, DiskCounters, Place, Segment, SegmentFile, Source, Zeros,
    event::Event,
    folder::{self, Abilities, Folder},
    mailbox::{Inbox, Mailbox},
    pace::Pace,
};
use crate::error::DiskError;

/// As many as a log has writes in flight.
const THREADS: usize = 4;

enum Job {
    Write {
        token: u64,
        file: Arc<File>,
        at: Place,
        buffer: Buffer,
        bytes: usize,
    },
    Read {
        token: u64,
        file: Arc<File>,
        at: Place,
        buffer: Buffer,
        bytes: usize,
    },
    Prepare {
        segment: Segment,
        bytes: u64,
        zeros: Zeros,
    },
}

/// A thread that makes segments; both drivers have one, as making one takes long.
#[derive(Debug)]
pub(super) struct Maker {
    pace: Arc<Pace>,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Maker {
    pub(super) fn start(folder: &Folder, mailbox: Mailbox<Completed>) -> io::Result<Self> {
        let (jobs, receiver) = channel();
        let worker = Worker::new(folder, Arc::new(Mutex::new(receiver)), mailbox);
        let pace = Arc::clone(&worker.pace);
        let thread = Builder::new()
            .name("segments".into())
            .spawn(move || worker.run())?;
        Ok(Self {
            pace,
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    pub(super) fn want(&self, bytes: u64) {
        self.pace.want(bytes);
    }

    pub(super) fn hurry(&self) {
        self.pace.hurry();
    }

    pub(super) fn prepare(&self, segment: Segment, bytes: u64, zeros: Zeros) {
        self.pace.relax();
        let jobs = self.jobs.as_ref().expect("taken only when dropped");
        let job = Job::Prepare {
            segment,
            bytes,
            zeros,
        };
        jobs.send(job)
            .expect("the thread runs while it has a sender");
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        self.jobs = None;
        self.pace.hurry();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Worker {
    jobs: Arc<Mutex<Receiver<Job>>>,
    mailbox: Mailbox<Completed>,
    pace: Arc<Pace>,
    data: DataFolder,
    path: PathBuf,
    abilities: Abilities,
    /// Keeps the folder locked for as long as anything may be under way.
    folder: Arc<File>,
}

impl Worker {
    fn new(folder: &Folder, jobs: Arc<Mutex<Receiver<Job>>>, mailbox: Mailbox<Completed>) -> Self {
        Self {
            jobs,
            mailbox,
            pace: Arc::default(),
            data: folder.data().clone(),
            path: folder.path().to_owned(),
            abilities: folder.abilities(),
            folder: Arc::clone(folder.handle()),
        }
    }

    fn run(mut self) {
        loop {
            let job = self
                .jobs
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .recv();
            let Ok(job) = job else { return };
            let completed = self.work(job);
            self.mailbox.put(completed);
        }
    }

    fn work(&mut self, job: Job) -> Completed {
        match job {
            Job::Write {
                token,
                file,
                at,
                buffer,
                bytes,
            } => {
                let result =
                    folder::write_durably(file.as_fd(), at, &buffer[..bytes], self.abilities);
                Completed::Written {
                    token,
                    buffer,
                    result,
                }
            }
            Job::Read {
                token,
                file,
                at,
                mut buffer,
                bytes,
            } => {
                let result = folder::read_exact(file.as_fd(), at, &mut buffer[..bytes]);
                Completed::Read {
                    token,
                    buffer,
                    result,
                }
            }
            Job::Prepare {
                segment,
                bytes,
                zeros,
            } => {
                let Self {
                    data,
                    path,
                    abilities,
                    pace,
                    folder,
                    ..
                } = self;
                let place = (data, path.as_path(), &**folder);
                let result = folder::prepare(place, segment, bytes, zeros, *abilities, pace);
                Completed::Prepared { segment, result }
            }
        }
    }
}

/// Files served by threads.
#[derive(Debug)]
pub(super) struct Threads {
    folder: Folder,
    jobs: Option<Sender<Job>>,
    workers: Vec<JoinHandle<()>>,
    maker: Maker,
    done: Inbox<Completed>,
    /// Failed before a thread was bothered.
    refused: VecDeque<Completed>,
    event: Arc<Event>,
    counters: DiskCounters,
}

impl Threads {
    pub(super) fn open(folder: Folder) -> Result<Self, DiskError> {
        let fail = |what: &str, error: &io::Error| folder::failed(what, folder.path(), error);
        let event = Arc::new(Event::new().map_err(|error| fail("make an event for", &error))?);
        let (mailbox, done) = Mailbox::new(&event);
        let spawn = |error: &io::Error| fail("start threads for", error);
        let maker = Maker::start(&folder, mailbox.clone()).map_err(|error| spawn(&error))?;
        let (jobs, receiver) = channel();
        let receiver = Arc::new(Mutex::new(receiver));
        let mut workers = Vec::new();
        for number in 0..THREADS {
            let worker = Worker::new(&folder, Arc::clone(&receiver), mailbox.clone());
            let thread = Builder::new().name(format!("disk-{number}"));
            workers.push(
                thread
                    .spawn(move || worker.run())
                    .map_err(|error| spawn(&error))?,
            );
        }
        let (refused, counters) = (VecDeque::new(), DiskCounters::default());
        Ok(Self {
            folder,
            jobs: Some(jobs),
            workers,
            maker,
            done,
            refused,
            event,
            counters,
        })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    fn send(&mut self, job: Job) {
        let jobs = self.jobs.as_ref().expect("taken only when dropped");
        jobs.send(job)
            .expect("the threads run while they have a sender");
    }

    fn refuse(&mut self, completed: Completed) {
        self.refused.push_back(completed);
        self.event.signal();
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
    fn segments(&mut self) -> Result<Vec<SegmentFile>, DiskError> {
        self.folder.segments()
    }

    fn made(&mut self) -> Result<Option<Segment>, DiskError> {
        self.folder.made()
    }

    fn read_now(&mut self, at: Place, buffer: &mut Buffer, bytes: usize) -> Result<(), DiskError> {
        self.folder.read_now(at, buffer, bytes)
    }
}

impl Disk for Threads {
    fn sync_now(&mut self, segment: Segment) -> Result<(), DiskError> {
        self.folder.sync(segment)
    }

    fn start_write(&mut self, token: u64, at: Place, buffer: Buffer, bytes: usize) {
        self.counters.writes += 1;
        self.counters.flushes += 1;
        self.counters.write_bytes += bytes as u64;
        match self.folder.file_for_write(at.segment) {
            Ok(file) => self.send(Job::Write {
                token,
                file,
                at,
                buffer,
                bytes,
            }),
            Err(error) => self.refuse(Completed::Written {
                token,
                buffer,
                result: Err(error),
            }),
        }
    }

    fn start_read(&mut self, token: u64, at: Place, buffer: Buffer, bytes: usize) {
        self.counters.reads += 1;
        match self.folder.file_for_read(at.segment) {
            Ok(file) => self.send(Job::Read {
                token,
                file,
                at,
                buffer,
                bytes,
            }),
            Err(error) => self.refuse(Completed::Read {
                token,
                buffer,
                result: Err(error),
            }),
        }
    }

    fn open_ahead(&mut self, segment: Segment) -> Result<(), DiskError> {
        self.folder.open_ahead(segment)
    }

    fn note_made(&mut self, made: Segment) -> Result<(), DiskError> {
        self.folder.note_made(made)
    }

    fn start_prepare(&mut self, segment: Segment, bytes: u64, zeros: Zeros) {
        self.counters.prepared += 1;
        self.maker.prepare(segment, bytes, zeros);
    }

    fn want_prepared(&mut self, bytes: u64) {
        self.maker.want(bytes);
    }

    fn hurry_prepare(&mut self) {
        self.counters.segment_waits += 1;
        self.maker.hurry();
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

    fn free_bytes(&self) -> Option<u64> {
        self.folder.free_bytes()
    }

    fn describe(&self) -> String {
        format!("threads, {}", self.folder.abilities())
    }

    fn counters(&self) -> DiskCounters {
        self.counters
    }
}
