//! Writer thread: writes changes to the tree in the background, waits for the disk, and reopens the
//! tree.

use std::{
    fs, io,
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use quorate_core::slot::Slot;

use super::{
    blind::Group,
    changes::Changes,
    disk::DiskSpace,
    failure::{self, Failure},
    layout::State,
    purge::{Purge, Purged},
    tree::{OpenedTree, Tree, TreeLocation},
};

/// Number of bytes left free for the log and for background work of the tree; less on a small disk.
const RESERVE_BYTES: u64 = 64 << 20;
/// Divisor of the disk's size that gives the bytes left free on a small disk.
const RESERVE_PART: u64 = 16;
/// Upper limit of the free bytes to wait for, however often less did not suffice; lower on a small
/// disk.
const NEEDED_BYTES_MAX: u64 = 1 << 30;
/// Divisor of the disk's size that gives this upper limit on a small disk.
const NEEDED_PART: u64 = 4;

/// Free bytes that suffice to write lists of tables.
const LISTS_BYTES: u64 = 1 << 20;

/// Delays between checks.
#[derive(Clone, Copy, Debug)]
pub struct Delays {
    /// Delay while fjall's threads are busy.
    pub busy: Duration,
    /// Delay while the disk is full.
    pub while_full: Duration,
    /// Delay after the first failure. Each further failure doubles it.
    pub retry_min: Duration,
    /// Maximum delay after a failure.
    pub retry_max: Duration,
}

impl Default for Delays {
    fn default() -> Self {
        Self {
            busy: Duration::from_millis(2),
            while_full: Duration::from_millis(250),
            retry_min: Duration::from_secs(1),
            retry_max: Duration::from_secs(30),
        }
    }
}

enum Job {
    Write(Arc<Changes>),
    /// Look up the entries that a group of keys replaces, before the layer is written.
    LookUp(Arc<Group>),
    /// Sync the tree, whose position is this slot.
    Sync(Slot),
    /// Free the memory of changes, which takes time too.
    Free(Arc<Changes>),
    /// Remove an obsolete folder.
    Remove(PathBuf),
    /// Reopen the tree after the owner has closed its handles. If there is a reason, set it aside
    /// first.
    Reopen(Option<String>),
}

pub(super) enum Event {
    Written,
    /// The tree is durable up to this position.
    Synced(Slot),
    /// A write is delayed for this reason. The thread retries it.
    WriteDelayed(String),
    /// The tree accepts no more writes but remains readable.
    Failed {
        why: String,
        /// True if the failure occurred in the background, perhaps in a compaction of damaged data.
        in_the_background: bool,
    },
    /// Reopening may help. The owner closes its handles and confirms.
    LetGo,
    /// The tree could not be opened for this reason. The thread retries.
    Closed(String),
    Opened(Box<OpenedTree>),
}

#[derive(Debug)]
pub(super) struct Writer {
    /// Queue of jobs. Dropping it ends the thread.
    jobs: Option<Sender<Job>>,
    events: Receiver<Event>,
    purged: Arc<Purged>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread, which takes an open tree or opens the tree itself.
    pub(super) fn start(
        home: TreeLocation,
        delays: Delays,
        tree: Option<(Tree, State, u64)>,
    ) -> io::Result<Self> {
        let (jobs, asked) = channel();
        let (tell, events) = channel();
        let (state, newest) =
            tree.as_ref().map_or((State::EMPTY, 0), |(_, state, newest)| (*state, *newest));
        let purged = Arc::new(Purged::new(&state));
        let mut work = WriterState {
            home,
            delays,
            tree: tree.map(|(tree, ..)| tree),
            needed_bytes: 0,
            failures: 0,
            distrusts_kernel_cache: false,
            rewrite_position: None,
            jobs: asked,
            events: tell,
            purge: Purge::new(&state, newest, Arc::clone(&purged)),
        };
        let thread = thread::Builder::new().name("store".to_owned()).spawn(move || {
            failure::catches_panics();
            // The loop ends only when the owner is gone.
            let Err(OwnerDropped) = work.run();
        })?;
        Ok(Self { jobs: Some(jobs), events, purged, thread: Some(thread) })
    }

    pub(super) fn write(&self, changes: Arc<Changes>) {
        self.queue_job(Job::Write(changes));
    }

    pub(super) fn queue_look_up(&self, group: Arc<Group>) {
        self.queue_job(Job::LookUp(group));
    }

    pub(super) fn sync(&self, to: Slot) {
        self.queue_job(Job::Sync(to));
    }

    pub(super) fn free(&self, changes: Arc<Changes>) {
        self.queue_job(Job::Free(changes));
    }

    pub(super) fn remove(&self, folder: PathBuf) {
        self.queue_job(Job::Remove(folder));
    }

    pub(super) fn reopen(&self, distrusted: Option<String>) {
        self.queue_job(Job::Reopen(distrusted));
    }

    fn queue_job(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // The thread ends only at its owner's request.
            let _ = jobs.send(job);
        }
    }

    pub(super) fn event(&self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    pub(super) fn event_within(&self, patience: Duration) -> Option<Event> {
        self.events.recv_timeout(patience).ok()
    }

    pub(super) fn next_event(&self) -> Option<Event> {
        self.events.recv().ok()
    }

    /// Returns the lowest generation that may have data without being one of those in `live`, which
    /// are the present ones.
    pub(super) fn purged_below(&self, live: &[u64]) -> u64 {
        self.purged.below(live)
    }

    /// Ends the thread once pending jobs are done or the disk prevents them.
    pub(super) fn end(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Removes a folder. A failure merely costs space.
fn remove(folder: &Path) {
    let _ = fs::remove_dir_all(folder);
}

/// Error: the owner dropped its handle, so the thread ends.
struct OwnerDropped;

/// Uninhabited type, because the loop ends only by an error.
enum Uninhabited {}

/// Reason to interrupt the work of the thread.
enum Interruption {
    OwnerDropped,
    /// The owner found that the tree fails: reopen it. If there is a reason, set it aside first.
    Reopen(Option<String>),
}

impl From<OwnerDropped> for Interruption {
    fn from(_: OwnerDropped) -> Self {
        Self::OwnerDropped
    }
}

struct WriterState {
    home: TreeLocation,
    delays: Delays,
    tree: Option<Tree>,
    /// Free bytes to wait for, in addition to those about to be written.
    needed_bytes: u64,
    /// Number of failures since the last success.
    failures: u32,
    /// True from a failure until all data is in new files. The kernel may have marked unwritten
    /// data as clean, so that a later sync of the same file would report no error.
    distrusts_kernel_cache: bool,
    /// Position to report as synced once all data is in new files; `None` without a rewrite.
    rewrite_position: Option<Slot>,
    jobs: Receiver<Job>,
    events: Sender<Event>,
    purge: Purge,
}

impl WriterState {
    fn run(&mut self) -> Result<Uninhabited, OwnerDropped> {
        if self.tree.is_none() {
            self.wait(self.delays.retry_min)?;
            self.open(None)?;
        }
        loop {
            match self.serve() {
                Err(Interruption::OwnerDropped) => return Err(OwnerDropped),
                Err(Interruption::Reopen(distrusted)) => self.open(distrusted)?,
                Ok(failure) => {
                    self.send_event(Event::Failed {
                        why: failure.to_string(),
                        in_the_background: matches!(failure, Failure::Poisoned),
                    })?;
                    let distrusted = self.recover_from(&failure)?;
                    self.open(distrusted)?;
                }
            }
        }
    }

    /// Handles jobs until the tree fails, and returns the failure.
    fn serve(&mut self) -> Result<Failure, Interruption> {
        loop {
            if let Err(failure) = self.complete_rewrite()? {
                return Ok(failure);
            }
            match self.next_job() {
                Ok(Job::Write(changes)) => {
                    self.wait_for_space(changes.memory_bytes() as u64)?;
                    self.wait_for_tree()?;
                    if let Err(failure) = self.guarded(|tree| tree.write(&changes)) {
                        return Ok(failure);
                    }
                    (self.needed_bytes, self.failures) = (0, 0);
                    let ended = changes.ends_collections();
                    self.purge.begin(&changes.state, ended);
                    // Dropped before the event, so that the owner has the last reference.
                    drop(changes);
                    self.send_event(Event::Written)?;
                }
                Ok(Job::LookUp(group)) => self.look_up_group(&group),
                Ok(Job::Sync(to)) => match self.sync() {
                    Ok(()) if self.distrusts_kernel_cache => self.rewrite_position = Some(to),
                    Ok(()) => self.send_event(Event::Synced(to))?,
                    Err(failure) => return Ok(failure),
                },
                Ok(Job::Free(changes)) => drop(changes),
                Ok(Job::Remove(folder)) => remove(&folder),
                Ok(Job::Reopen(distrusted)) => return Err(Interruption::Reopen(distrusted)),
                Err(RecvTimeoutError::Timeout) if self.rewrite_position.is_some() => {}
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(failure) = self.take_purge_step() {
                        return Ok(failure);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Err(Interruption::OwnerDropped),
            }
        }
    }

    /// Looks up a group before its layer is written. A failure is ignored, as the write repeats it.
    fn look_up_group(&self, group: &Group) {
        let _ = self.guarded(|tree| tree.look_up_group(group));
    }

    /// Waits for the next job. A timeout means that it is time for a purge step.
    fn next_job(&self) -> Result<Job, RecvTimeoutError> {
        if self.rewrite_position.is_some() {
            return self.jobs.recv_timeout(self.delays.busy);
        }
        let mut patience = Duration::ZERO;
        while !self.purge.is_done() {
            match self.jobs.recv_timeout(patience) {
                Err(RecvTimeoutError::Timeout) if !self.may_purge() => {
                    patience = self.delays.while_full
                }
                other => return other,
            }
        }
        self.jobs.recv().map_err(|_| RecvTimeoutError::Disconnected)
    }

    fn may_purge(&self) -> bool {
        let ready = self.guarded(|tree| self.purge.is_ready(tree));
        // Less space suffices for dropping tables, which may be the only way to free some.
        let has_room = match self.purge.needs_free_space() {
            true => self.lack_of_space(0).is_none(),
            false => self.free_bytes() >= LISTS_BYTES,
        };
        has_room && !matches!(ready, Ok(false))
    }

    /// Accesses the tree. A panic in fjall counts as a failure: it affects only the tree, which is
    /// then reopened.
    fn guarded<T>(&self, work: impl FnOnce(&Tree) -> Result<T, Failure>) -> Result<T, Failure> {
        let Some(tree) = &self.tree else {
            return Err(Failure::NotOpen);
        };
        panic::catch_unwind(AssertUnwindSafe(|| work(tree)))
            .unwrap_or_else(|_| Err(Failure::Panicked))
    }

    /// Syncs the tree. If earlier writes are in doubt, also starts to write all data to new files.
    fn sync(&self) -> Result<(), Failure> {
        self.guarded(Tree::sync)?;
        if self.distrusts_kernel_cache {
            self.guarded(Tree::start_tables)?;
        }
        Ok(())
    }

    /// Completes the rewrite to new files, if all tables have been written.
    fn complete_rewrite(&mut self) -> Result<Result<(), Failure>, OwnerDropped> {
        let Some(to) = self.rewrite_position else {
            return Ok(Ok(()));
        };
        match self.guarded(Tree::has_tables) {
            Ok(false) => {}
            Ok(true) => {
                (self.distrusts_kernel_cache, self.rewrite_position) = (false, None);
                self.send_event(Event::Synced(to))?;
            }
            Err(failure) => return Ok(Err(failure)),
        }
        Ok(Ok(()))
    }

    fn take_purge_step(&mut self) -> Result<(), Failure> {
        match self
            .guarded(|tree| self.purge.step(tree, !self.distrusts_kernel_cache, self.free_bytes()))
        {
            Ok(went) => self.purge.record_step(went),
            // [scrub-2] Obsolete data merely takes space until the store is rebuilt.
            Err(Failure::Damaged(_)) => self.purge.give_up(),
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    fn send_event(&self, event: Event) -> Result<(), OwnerDropped> {
        self.events.send(event).map_err(|_| OwnerDropped)
    }

    /// Waits for `time`. A job that arrives earlier is handled and ends the wait.
    fn pause(&self, time: Duration) -> Result<(), Interruption> {
        match self.jobs.recv_timeout(time) {
            Ok(Job::Free(changes)) => {
                drop(changes);
                Ok(())
            }
            Ok(Job::Remove(folder)) => {
                remove(&folder);
                Ok(())
            }
            Ok(Job::Reopen(distrusted)) => Err(Interruption::Reopen(distrusted)),
            Ok(Job::LookUp(group)) => {
                self.look_up_group(&group);
                Ok(())
            }
            // Only one batch is in flight, and the owner repeats the jobs of a failed tree.
            Ok(Job::Write(_) | Job::Sync(_)) | Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => Err(Interruption::OwnerDropped),
        }
    }

    /// Waits for `time`, as [`Self::pause`] does, but ignores a request to reopen.
    fn wait(&self, time: Duration) -> Result<(), OwnerDropped> {
        match self.pause(time) {
            Err(Interruption::OwnerDropped) => Err(OwnerDropped),
            Ok(()) | Err(Interruption::Reopen(_)) => Ok(()),
        }
    }

    /// Returns the number of free bytes on the disk, or `u64::MAX` if unknown.
    fn free_bytes(&self) -> u64 {
        self.home.disk.free_space(&self.home.path).map_or(u64::MAX, |room| room.free)
    }

    /// Returns the reason to wait if the disk lacks space for `bytes` bytes. If the free space is
    /// unknown, the write is attempted.
    fn lack_of_space(&self, bytes: u64) -> Option<String> {
        let DiskSpace { free, total } = self.home.disk.free_space(&self.home.path).ok()?;
        let reserve = RESERVE_BYTES.min(total / RESERVE_PART);
        let reserve = reserve.max(self.needed_bytes.min(total / NEEDED_PART));
        // The bytes are written twice: to the journal, then to a table.
        let wanted = bytes.saturating_mul(2).saturating_add(reserve);
        (free < wanted).then(|| {
            let mib = |bytes: u64| bytes.div_ceil(1 << 20);
            format!(
                "no room on the disk: {} MiB are free, {} MiB are needed",
                free >> 20,
                mib(wanted)
            )
        })
    }

    /// Waits for enough space, because a tree that runs out of space must be reopened.
    fn wait_for_space(&self, bytes: u64) -> Result<(), Interruption> {
        let mut said = String::new();
        while let Some(why) = self.lack_of_space(bytes) {
            if why != said {
                self.send_event(Event::WriteDelayed(why.clone()))?;
                said = why;
            }
            self.pause(self.delays.while_full)?;
        }
        Ok(())
    }

    /// Waits until fjall can take another batch. The next write reports a failure of its threads.
    fn wait_for_tree(&self) -> Result<(), Interruption> {
        while matches!(self.guarded(Tree::is_free), Ok(false)) {
            self.pause(self.delays.busy)?;
        }
        Ok(())
    }

    /// Waits until reopening may help and the owner has closed its handles. Returns the reason if
    /// the tree must be set aside first.
    fn recover_from(&mut self, failure: &Failure) -> Result<Option<String>, OwnerDropped> {
        self.distrusts_kernel_cache = true;
        if let Failure::Full(_) = failure {
            self.needs_more();
        }
        let told = self.wait_before_retry();
        match told {
            Err(Interruption::OwnerDropped) => return Err(OwnerDropped),
            Err(Interruption::Reopen(distrusted)) => return Ok(distrusted),
            Ok(()) => {}
        }
        self.send_event(Event::LetGo)?;
        loop {
            match self.jobs.recv() {
                Ok(Job::Reopen(distrusted)) => {
                    let damaged = matches!(failure, Failure::Damaged(_));
                    return Ok(distrusted.or(damaged.then(|| failure.to_string())));
                }
                Ok(Job::Remove(folder)) => remove(&folder),
                Ok(Job::Write(_) | Job::Sync(_) | Job::LookUp(_) | Job::Free(_)) => {}
                Err(_) => return Err(OwnerDropped),
            }
        }
    }

    /// Waits until another attempt may succeed. Meanwhile, the tree is readable.
    fn wait_before_retry(&mut self) -> Result<(), Interruption> {
        loop {
            let delay = self.delay();
            self.pause(delay)?;
            self.wait_for_space(0)?;
            match self.home.disk.try_writing(&self.home.path) {
                Ok(()) => return Ok(()),
                Err(error) => self.send_event(Event::WriteDelayed(error.to_string()))?,
            }
        }
    }

    /// Raises the free space to wait for, after background work failed for lack of space.
    fn needs_more(&mut self) {
        let least = self.needed_bytes.max(RESERVE_BYTES / RESERVE_PART);
        self.needed_bytes = least.saturating_mul(2).min(NEEDED_BYTES_MAX);
    }

    /// Counts a failure and returns the delay before the next attempt.
    fn delay(&mut self) -> Duration {
        let doubled = 1_u32 << self.failures.min(16);
        self.failures = self.failures.saturating_add(1);
        self.delays.retry_min.saturating_mul(doubled).min(self.delays.retry_max)
    }

    /// Opens the tree, and retries without limit. No other handle of the tree may exist.
    fn open(&mut self, mut distrusted: Option<String>) -> Result<(), OwnerDropped> {
        // Dropping the tree ends fjall's threads.
        (self.tree, self.rewrite_position) = (None, None);
        loop {
            let open = || Tree::open(&self.home, distrusted.as_deref());
            let opened = panic::catch_unwind(AssertUnwindSafe(open))
                .unwrap_or_else(|_| Err(Failure::Panicked));
            match opened {
                Ok(opened) => {
                    self.tree = Some(opened.tree.clone());
                    self.purge.restart(&opened.state, opened.newest_generation);
                    return self.send_event(Event::Opened(Box::new(opened)));
                }
                Err(failure) => {
                    self.send_event(Event::Closed(failure.to_string()))?;
                    let delay = self.delay();
                    match self.pause(delay) {
                        Err(Interruption::OwnerDropped) => return Err(OwnerDropped),
                        Err(Interruption::Reopen(why)) => distrusted = distrusted.or(why),
                        Ok(()) => {}
                    }
                }
            }
        }
    }
}
