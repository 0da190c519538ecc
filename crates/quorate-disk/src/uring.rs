//! The io_uring driver: writes and reads without a thread, completions in shared memory.
//!
//! **Why it is sound.** The kernel reads and writes the memory of operations in flight. Each such
//! memory is a [`Buffer`] that was moved into this module with its operation and sits in `slots`
//! until the operation's completion was seen; nobody else can name it. A `Buffer` never moves its
//! bytes: moving the struct moves a pointer to them. If the ring stops answering, what is in `slots`
//! is leaked, never freed. The file of an operation is kept open beside its buffer. The rest of the
//! crate may rely on: a buffer that comes back is no longer touched by the kernel.
//!
//! The ring is made disabled and enabled by the first operation: the thread that starts it is the
//! only one that may use it (single issuer), and a log is often opened before its reactor runs.

mod read;
mod setup;
mod write;

use std::{
    collections::VecDeque,
    fmt,
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd},
    path::Path,
    sync::Arc,
};

use io_uring::{IoUring, squeue};

use super::{
    Buffer, Completed, Disk, DiskCounters, OPERATIONS_MAX, Place, Segment, SegmentFile, Source,
    Zeros,
    event::Event,
    file::Maker,
    folder::{self, Folder},
    mailbox::{Inbox, Mailbox},
};
use crate::error::DiskError;

pub(super) use setup::Parts;

/// Which operation a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Write,
    Read,
}

/// An operation in flight, with all that the kernel uses of it.
#[derive(Debug)]
struct Operation {
    kind: Kind,
    token: u64,
    at: Place,
    buffer: Buffer,
    bytes: usize,
    file: Arc<File>,
}

impl Operation {
    fn end(self, result: Result<(), DiskError>) -> Completed {
        let Self {
            kind,
            token,
            buffer,
            ..
        } = self;
        match kind {
            Kind::Write => Completed::Written {
                token,
                buffer,
                result,
            },
            Kind::Read => Completed::Read {
                token,
                buffer,
                result,
            },
        }
    }

    fn judge(&self, result: i32) -> Result<(), DiskError> {
        let action = match self.kind {
            Kind::Write => "write",
            Kind::Read => "read",
        };
        match usize::try_from(result) {
            Ok(done) if done >= self.bytes => Ok(()),
            Ok(done) => Err(DiskError::short(action, self.at, done, self.bytes)),
            Err(_) => Err(DiskError::new(
                action,
                self.at,
                &io::Error::from_raw_os_error(-result),
            )),
        }
    }
}

/// Files served by a ring.
pub(super) struct Ring {
    ring: IoUring,
    enabled: bool,
    /// Index = user data of the operation.
    slots: Vec<Option<Operation>>,
    in_flight: usize,
    ready: VecDeque<Completed>,
    /// The ring does not answer any more.
    broken: Option<DiskError>,
    /// Memory that the kernel knows in advance.
    registered: Vec<Buffer>,
    folder: Folder,
    maker: Maker,
    made: Inbox<Completed>,
    event: Arc<Event>,
    shape: String,
    counters: DiskCounters,
}

impl Ring {
    /// Tries to make a ring, and to do something with it.
    pub(super) fn open(folder: &Folder) -> io::Result<Parts> {
        setup::open(folder)
    }

    pub(super) fn new(folder: Folder, parts: Parts) -> Result<Self, DiskError> {
        let Parts {
            ring,
            registered,
            event,
            shape,
        } = parts;
        let (mailbox, made) = Mailbox::new(&event);
        let maker = Maker::start(&folder, mailbox)
            .map_err(|error| folder::failed("start a thread for", folder.path(), &error))?;
        Ok(Self {
            ring,
            enabled: false,
            slots: (0..OPERATIONS_MAX).map(|_| None).collect(),
            in_flight: 0,
            ready: VecDeque::new(),
            broken: None,
            registered,
            folder,
            maker,
            made,
            event,
            shape,
            counters: DiskCounters::default(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Hands an operation to the kernel. `entry` describes it for the memory that it owns.
    fn start(&mut self, operation: Operation, entry: impl FnOnce(&mut Operation) -> squeue::Entry) {
        if let Some(error) = &self.broken {
            let error = error.clone();
            self.refuse(operation, error);
            return;
        }
        let free = self.slots.iter().position(Option::is_none);
        let index = free.expect("at most OPERATIONS_MAX operations are asked for at a time");
        let operation = self.slots[index].insert(operation);
        let entry = entry(operation).user_data(index as u64);
        // SAFETY: the memory and the file that `entry` names belong to the operation in the slot,
        // and stay there until its completion was seen, or are leaked (see the module).
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("the queue has more entries than there are slots");
        self.in_flight += 1;
        self.submit();
    }

    fn refuse(&mut self, operation: Operation, error: DiskError) {
        self.ready.push_back(operation.end(Err(error)));
        self.event.signal();
    }

    /// Tells the kernel of new entries, and lets it post what it finished.
    fn submit(&mut self) {
        let submitted = match self.enabled {
            true => Ok(()),
            false => self.ring.submitter().register_enable_rings(),
        };
        self.enabled = true;
        match submitted.and_then(|()| self.ring.submit()) {
            Ok(_) => {}
            // Nothing was lost: the entries wait for the next call.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::Interrupted
                        | io::ErrorKind::WouldBlock
                        | io::ErrorKind::ResourceBusy
                ) =>
            {
                self.event.signal();
            }
            Err(error) => self.give_up(&error),
        }
    }

    /// Whatever is in flight may still be touched by the kernel: its memory is leaked.
    fn give_up(&mut self, error: &io::Error) {
        let error = folder::failed("use the ring of", self.folder.path(), error);
        for slot in &mut self.slots {
            if let Some(operation) = slot.take() {
                let Operation {
                    kind,
                    token,
                    at,
                    bytes,
                    ..
                } = operation;
                let (file, buffer) = (Arc::clone(&operation.file), Buffer::new(0));
                std::mem::forget(operation);
                let stub = Operation {
                    kind,
                    token,
                    at,
                    buffer,
                    bytes,
                    file,
                };
                self.ready.push_back(stub.end(Err(error.clone())));
            }
        }
        self.in_flight = 0;
        self.broken = Some(error);
        self.event.signal();
    }

    /// Takes completions out of the shared queue.
    fn harvest(&mut self) {
        while let Some(entry) = self.ring.completion().next() {
            let slot = usize::try_from(entry.user_data()).unwrap_or(usize::MAX);
            let Some(operation) = self.slots.get_mut(slot).and_then(Option::take) else {
                continue;
            };
            self.in_flight -= 1;
            let result = operation.judge(entry.result());
            self.ready.push_back(operation.end(result));
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.in_flight > 0 && self.broken.is_none() {
            match self.ring.submit_and_wait(1) {
                Ok(_) => self.harvest(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => self.give_up(&error),
            }
        }
        // Lets go of the folder's lock now; otherwise the kernel does so a little later.
        let _ = self.ring.submitter().unregister_files();
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Ring({}, {} in flight)",
            self.folder.path().display(),
            self.in_flight
        )
    }
}

impl Source for Ring {
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

impl Disk for Ring {
    fn sync_now(&mut self, segment: Segment) -> Result<(), DiskError> {
        self.folder.sync(segment)
    }

    fn allocate(&mut self, bytes: usize) -> Buffer {
        match self.registered.pop() {
            Some(buffer) if buffer.len() == bytes => buffer,
            other => {
                self.registered.extend(other);
                Buffer::new(bytes)
            }
        }
    }

    fn release(&mut self, buffer: Buffer) {
        if buffer.registered().is_some() {
            self.registered.push(buffer);
        }
    }

    fn start_write(&mut self, token: u64, at: Place, buffer: Buffer, bytes: usize) {
        self.write(token, at, buffer, bytes);
    }

    fn start_read(&mut self, token: u64, at: Place, buffer: Buffer, bytes: usize) {
        self.read(token, at, buffer, bytes);
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
        if let Some(ready) = self.ready.pop_front() {
            return Some(ready);
        }
        // Drained before the look: whatever ends later signals anew.
        self.event.drain();
        if self.in_flight > 0 {
            let waits = {
                let queue = self.ring.submission();
                queue.taskrun() || queue.cq_overflow() || !queue.is_empty()
            };
            if waits {
                self.submit();
            }
            self.harvest();
        }
        self.ready.pop_front().or_else(|| self.made.look())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.event.as_fd())
    }

    fn free_bytes(&self) -> Option<u64> {
        self.folder.free_bytes()
    }

    fn describe(&self) -> String {
        format!("io_uring ({}), {}", self.shape, self.folder.abilities())
    }

    fn counters(&self) -> DiskCounters {
        self.counters
    }
}
