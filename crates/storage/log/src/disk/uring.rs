//! The io_uring engine: writes and reads without threads, completions in shared memory.
//!
//! **Why it is sound.** The kernel reads and writes the memory of operations in flight. Each such
//! memory is a [`Buffer`](super::Buffer) that was moved into this module with its operation. It
//! remains in `slots` until the operation's completion has been seen, and no other code can access
//! it. A `Buffer` never moves its bytes: moving the struct moves a pointer to them. If the ring
//! stops responding, the contents of `slots` are leaked, never freed. The file of an operation is
//! kept open along with its buffer. The rest of the crate may rely on this: the kernel no longer
//! touches a buffer that is returned.
//!
//! The ring is created disabled, and the first operation enables it, because only the thread that
//! enables it may use it (single issuer), and a log is often opened before its reactor runs.

mod entry;
mod setup;

use std::{collections::VecDeque, fmt, fs::File, io, path::PathBuf, sync::Arc};

use io_uring::IoUring;

use crate::disk::{
    Buffers, Completed, DiskError, OPERATIONS_MAX,
    buffer::Pool,
    event::Event,
    folder::{self, Folder},
    mailbox::Inbox,
    operation::Operation,
};

pub(crate) use setup::Parts;
pub use setup::describe_available;

/// An operation in flight, with all memory and files that the kernel uses for it.
#[derive(Debug)]
struct InFlight {
    operation: Operation,
    file: Arc<File>,
}

/// Converts the kernel's result for an operation.
fn convert_result(operation: &Operation, result: i32) -> Result<(), DiskError> {
    let (action, at, bytes) = (operation.action(), operation.at, operation.bytes());
    match usize::try_from(result) {
        Ok(done) if done >= bytes => Ok(()),
        Ok(done) => Err(DiskError::short_transfer(action, at, done, bytes)),
        Err(_) => Err(DiskError::new(action, at, &io::Error::from_raw_os_error(-result))),
    }
}

pub(crate) struct Ring {
    ring: IoUring,
    is_enabled: bool,
    /// Operations in flight. The user data of a ring entry is an index into this list.
    slots: Vec<Option<InFlight>>,
    in_flight: usize,
    /// Operations waiting for a free slot, in order.
    awaiting_slot: VecDeque<InFlight>,
    completions: VecDeque<Completed>,
    /// Error after which the ring no longer responds.
    ring_error: Option<DiskError>,
    results: Inbox<Completed>,
    event: Arc<Event>,
    description: String,
    /// Data folder, for messages.
    data_folder: PathBuf,
}

impl Ring {
    /// Creates a ring for the folders of `folder`, and a buffer pool. The buffers are registered
    /// with the kernel if it allows that. Fails if the kernel has no ring that works.
    pub(crate) fn open(folder: &Folder, buffers: Buffers) -> io::Result<(Parts, Pool)> {
        setup::open(folder, buffers)
    }

    /// Creates the engine for the files in `place`. Completions of file creation arrive through
    /// `made`.
    pub(crate) fn new(parts: Parts, made: Inbox<Completed>, place: PathBuf) -> Self {
        let Parts { ring, event, description: shape } = parts;
        Self {
            ring,
            is_enabled: false,
            slots: (0..OPERATIONS_MAX).map(|_| None).collect(),
            in_flight: 0,
            awaiting_slot: VecDeque::new(),
            completions: VecDeque::new(),
            ring_error: None,
            results: made,
            event,
            description: shape,
            data_folder: place,
        }
    }

    /// Describes the ring that the kernel granted, for log lines.
    pub(crate) fn description(&self) -> &str {
        &self.description
    }

    /// Returns the error that prevents new operations, if any.
    pub(crate) fn broken_by(&self) -> Option<&DiskError> {
        self.ring_error.as_ref()
    }

    /// Submits an operation to the kernel, or queues it until a slot is free.
    pub(crate) fn push(&mut self, operation: Operation, file: Arc<File>) {
        self.awaiting_slot.push_back(InFlight { operation, file });
        if self.submit_queued() {
            self.submit();
        }
    }

    /// Moves waiting operations into free slots. Returns whether any was moved.
    fn submit_queued(&mut self) -> bool {
        let before = self.in_flight;
        while self.in_flight < self.slots.len()
            && let Some(next) = self.awaiting_slot.pop_front()
        {
            let free = self.slots.iter().position(Option::is_none);
            let index = free.expect("one slot for each operation in flight");
            let entry =
                entry::ring_entry_for(self.slots[index].insert(next)).user_data(index as u64);
            // SAFETY: the memory and the file that `entry` names belong to the operation in the
            // slot. They remain there until its completion has been seen, or are leaked (see the
            // module).
            let pushed = unsafe { self.ring.submission().push(&entry) };
            pushed.expect("the queue has more entries than there are slots");
            self.in_flight += 1;
        }
        self.in_flight > before
    }

    pub(crate) fn refuse_operation(&mut self, operation: Operation, error: DiskError) {
        self.completions.push_back(operation.end(Err(error)));
        self.event.signal();
    }

    /// Notifies the kernel of new entries and lets it post completions.
    fn submit(&mut self) {
        let submitted = match self.is_enabled {
            true => Ok(()),
            false => self.ring.submitter().register_enable_rings(),
        };
        self.is_enabled = true;
        match submitted.and_then(|()| self.ring.submit()) {
            Ok(_) => {}
            // Nothing is lost, because the entries remain queued for the next call.
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
            Err(error) => self.fail_all(&error),
        }
    }

    /// Fails all operations in flight. The kernel may still access their memory, so it is leaked.
    fn fail_all(&mut self, error: &io::Error) {
        let error = folder::failed("use the ring of", &self.data_folder, error);
        for slot in &mut self.slots {
            if let Some(in_flight) = slot.take() {
                let stub = in_flight.operation.without_memory();
                std::mem::forget(in_flight);
                self.completions.push_back(stub.end(Err(error.clone())));
            }
        }
        self.in_flight = 0;
        // The kernel never saw these operations, so their memory can be freed.
        for InFlight { operation, .. } in self.awaiting_slot.drain(..) {
            self.completions.push_back(operation.end(Err(error.clone())));
        }
        self.ring_error = Some(error);
        self.event.signal();
    }

    /// Processes all completions in the shared queue.
    fn collect_completions(&mut self) {
        while let Some(entry) = self.ring.completion().next() {
            let slot = usize::try_from(entry.user_data()).unwrap_or(usize::MAX);
            let Some(ended) = self.slots.get_mut(slot).and_then(Option::take) else {
                continue;
            };
            self.in_flight -= 1;
            let result = convert_result(&ended.operation, entry.result());
            self.completions.push_back(ended.operation.end(result));
        }
        if self.submit_queued() {
            self.submit();
        }
    }

    pub(crate) fn poll(&mut self) -> Option<Completed> {
        if let Some(ready) = self.completions.pop_front() {
            return Some(ready);
        }
        // Draining before the check makes sure that any later completion signals again.
        self.event.drain();
        if self.in_flight > 0 {
            let waits = {
                let queue = self.ring.submission();
                queue.taskrun() || queue.cq_overflow() || !queue.is_empty()
            };
            if waits {
                self.submit();
            }
            self.collect_completions();
        }
        self.completions.pop_front().or_else(|| self.results.try_receive())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.in_flight > 0 && self.ring_error.is_none() {
            match self.ring.submit_and_wait(1) {
                Ok(_) => self.collect_completions(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => self.fail_all(&error),
            }
        }
        // Releases the folders' locks now rather than when the kernel gets to it.
        let _ = self.ring.submitter().unregister_files();
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ring({}, {} in flight)", self.data_folder.display(), self.in_flight)
    }
}
