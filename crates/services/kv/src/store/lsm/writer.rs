//! A thread that brings changes into the tree, so that the replica does not wait for it; and that
//! waits for the disk, and opens the tree again, when that is what it takes.

use std::{
    fs, io,
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use quorate_core::slot::Slot;

use super::{
    changes::Changes,
    disk::Room,
    failure::{self, Failure},
    layout::State,
    purge::Purge,
    tree::{Home, Opened, Tree},
};

/// Room that is left alone, for what the tree and the log do by themselves; less on a small disk.
const RESERVE_BYTES: u64 = 64 << 20;
/// The part of a small disk.
const RESERVE_PART: u64 = 16;
/// Most room that is waited for, however often there was too little; less on a small disk.
const NEEDED_BYTES_MAX: u64 = 1 << 30;
/// The part of a small disk.
const NEEDED_PART: u64 = 4;

/// Delays of the thread before it checks again.
#[derive(Clone, Copy, Debug)]
pub struct Delays {
    /// For the library's own threads.
    pub busy: Duration,
    /// For room.
    pub room: Duration,
    /// After the first failure; it doubles with each further one.
    pub retry_min: Duration,
    /// Maximum delay after a failure.
    pub retry_max: Duration,
}

impl Default for Delays {
    fn default() -> Self {
        Self {
            busy: Duration::from_millis(2),
            room: Duration::from_millis(250),
            retry_min: Duration::from_secs(1),
            retry_max: Duration::from_secs(30),
        }
    }
}

/// Job for the thread.
enum Job {
    /// Write one atomic unit.
    Write(Arc<Changes>),
    /// All that is in the tree is to survive a loss of power; this is its position.
    Sync(Slot),
    /// Only to give its memory back: that takes time, too.
    Free(Arc<Changes>),
    /// A folder that is no longer needed.
    Remove(PathBuf),
    /// The owner has let go of the tree: it is to be opened again, or set aside first for this
    /// reason.
    Reopen(Option<String>),
}

/// Event for the owner.
pub(super) enum Event {
    /// The changes are in the tree.
    Written,
    /// The tree returns to at least this position after any loss of power.
    Synced(Slot),
    /// The changes are not in the tree yet; the thread retries by itself.
    Waiting(String),
    /// The tree takes nothing any more. It can be read.
    Failed {
        why: String,
        /// The failure was in the background, and may have been a compaction that met damage.
        in_the_background: bool,
    },
    /// The tree may recover if it is opened again: the owner must close its handles and report
    /// that.
    LetGo,
    /// The tree could not be opened; another attempt will follow.
    Closed(String),
    Opened(Opened),
}

/// The thread as its owner sees it.
#[derive(Debug)]
pub(super) struct Writer {
    /// `None` ends the thread.
    jobs: Option<Sender<Job>>,
    events: Receiver<Event>,
    /// Nothing is left of generations below.
    purged_below: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread, with the tree or to open it.
    pub(super) fn start(
        home: Home,
        delays: Delays,
        tree: Option<(Tree, State, u64)>,
    ) -> io::Result<Self> {
        let (jobs, asked) = channel();
        let (tell, events) = channel();
        let (state, newest) =
            tree.as_ref().map_or((State::EMPTY, 0), |(_, state, newest)| (*state, *newest));
        let purged_below = Arc::new(AtomicU64::new(state.oldest));
        let mut work = Work {
            home,
            delays,
            tree: tree.map(|(tree, ..)| tree),
            needed: 0,
            failures: 0,
            doubts: false,
            rewriting: None,
            asked,
            tell,
            purge: Purge::new(state.generation, newest, Arc::clone(&purged_below)),
        };
        let thread = thread::Builder::new().name("store".to_owned()).spawn(move || {
            failure::catches_panics();
            // The error says that the owner is gone.
            let Err(Gone) = work.run();
        })?;
        Ok(Self { jobs: Some(jobs), events, purged_below, thread: Some(thread) })
    }

    pub(super) fn write(&self, changes: Arc<Changes>) {
        self.ask(Job::Write(changes));
    }

    pub(super) fn sync(&self, to: Slot) {
        self.ask(Job::Sync(to));
    }

    pub(super) fn free(&self, changes: Arc<Changes>) {
        self.ask(Job::Free(changes));
    }

    pub(super) fn remove(&self, folder: PathBuf) {
        self.ask(Job::Remove(folder));
    }

    pub(super) fn reopen(&self, distrusted: Option<String>) {
        self.ask(Job::Reopen(distrusted));
    }

    fn ask(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // The thread ends only after its owner asked for it.
            let _ = jobs.send(job);
        }
    }

    /// Returns the next event, if there is one.
    pub(super) fn event(&self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    /// The same, but waits at most this long for it.
    pub(super) fn event_within(&self, patience: Duration) -> Option<Event> {
        self.events.recv_timeout(patience).ok()
    }

    /// The same, but waits until something does.
    pub(super) fn next_event(&self) -> Option<Event> {
        self.events.recv().ok()
    }

    pub(super) fn purged_below(&self) -> u64 {
        self.purged_below.load(Ordering::Acquire)
    }

    /// Ends the thread. What was asked of it is done, unless the disk is in the way.
    pub(super) fn end(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Removes a folder. If this fails, it only takes space.
fn remove(folder: &Path) {
    let _ = fs::remove_dir_all(folder);
}

/// The owner is gone.
struct Gone;

/// Result of an endless loop.
enum Never {}

/// Why the thread stops what it does.
enum Break {
    /// The thread ends.
    Gone,
    /// The owner found the tree failing: it is opened again, for this reason.
    Reopen(Option<String>),
}

impl From<Gone> for Break {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

/// The thread's own.
struct Work {
    home: Home,
    delays: Delays,
    tree: Option<Tree>,
    /// Room to wait for, beyond what is to be written.
    needed: u64,
    /// Since the last success.
    failures: u32,
    /// Something failed since everything was last written into new files. What a system could not
    /// write it may take for written, and a later sync of the same file says nothing of it.
    doubts: bool,
    /// Set while everything is written into new files; then this position is synced.
    rewriting: Option<Slot>,
    asked: Receiver<Job>,
    tell: Sender<Event>,
    purge: Purge,
}

impl Work {
    fn run(&mut self) -> Result<Never, Gone> {
        if self.tree.is_none() {
            self.wait(self.delays.retry_min)?;
            self.open(None)?;
        }
        loop {
            match self.serve() {
                Err(Break::Gone) => return Err(Gone),
                Err(Break::Reopen(distrusted)) => self.open(distrusted)?,
                Ok(failure) => {
                    self.say(Event::Failed {
                        why: failure.to_string(),
                        in_the_background: matches!(failure, Failure::Poisoned),
                    })?;
                    let distrusted = self.recover_from(&failure)?;
                    self.open(distrusted)?;
                }
            }
        }
    }

    /// Does what is asked for until the tree fails.
    fn serve(&mut self) -> Result<Failure, Break> {
        loop {
            if let Err(failure) = self.look_after_tables()? {
                return Ok(failure);
            }
            match self.next_job() {
                Ok(Job::Write(changes)) => {
                    self.wait_for_room(changes.held as u64)?;
                    self.wait_for_tree()?;
                    if let Err(failure) = self.guarded(|tree| tree.write(&changes)) {
                        return Ok(failure);
                    }
                    (self.needed, self.failures) = (0, 0);
                    let ended = !changes.ended.is_empty();
                    self.purge.begin(changes.state.generation, ended);
                    // Before the event, so that the owner's is the last one.
                    drop(changes);
                    self.say(Event::Written)?;
                }
                Ok(Job::Sync(to)) => match self.sync() {
                    Ok(()) if self.doubts => self.rewriting = Some(to),
                    Ok(()) => self.say(Event::Synced(to))?,
                    Err(failure) => return Ok(failure),
                },
                Ok(Job::Free(changes)) => drop(changes),
                Ok(Job::Remove(folder)) => remove(&folder),
                Ok(Job::Reopen(distrusted)) => return Err(Break::Reopen(distrusted)),
                Err(RecvTimeoutError::Timeout) if self.rewriting.is_some() => {}
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(failure) = self.purge_some() {
                        return Ok(failure);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Err(Break::Gone),
            }
        }
    }

    /// Returns the next job; a timeout if there is time to purge.
    fn next_job(&self) -> Result<Job, RecvTimeoutError> {
        if self.rewriting.is_some() {
            return self.asked.recv_timeout(self.delays.busy);
        }
        let mut patience = Duration::ZERO;
        while !self.purge.is_done() {
            match self.asked.recv_timeout(patience) {
                Err(RecvTimeoutError::Timeout) if !self.may_purge() => patience = self.delays.room,
                other => return other,
            }
        }
        self.asked.recv().map_err(|_| RecvTimeoutError::Disconnected)
    }

    fn may_purge(&self) -> bool {
        self.lacks_room(0).is_none() && !matches!(self.guarded(Tree::is_free), Ok(false))
    }

    /// Accesses the tree. A panic of the library is a failure like others: nothing in this process
    /// depends on its remains but the tree, and that is opened again.
    fn guarded<T>(&self, work: impl FnOnce(&Tree) -> Result<T, Failure>) -> Result<T, Failure> {
        let Some(tree) = &self.tree else {
            return Err(Failure::NotOpen);
        };
        panic::catch_unwind(AssertUnwindSafe(|| work(tree)))
            .unwrap_or_else(|_| Err(Failure::Panicked))
    }

    /// Brings all that is in the tree to where no loss of power reaches it; in doubt that is only
    /// begun here.
    fn sync(&self) -> Result<(), Failure> {
        self.guarded(Tree::sync)?;
        if self.doubts {
            self.guarded(Tree::start_tables)?;
        }
        Ok(())
    }

    /// Checks that everything is in new files by now, if that is awaited.
    fn look_after_tables(&mut self) -> Result<Result<(), Failure>, Gone> {
        let Some(to) = self.rewriting else {
            return Ok(Ok(()));
        };
        match self.guarded(Tree::has_tables) {
            Ok(false) => {}
            Ok(true) => {
                (self.doubts, self.rewriting) = (false, None);
                self.say(Event::Synced(to))?;
            }
            Err(failure) => return Ok(Err(failure)),
        }
        Ok(Ok(()))
    }

    fn purge_some(&mut self) -> Result<(), Failure> {
        match self.guarded(|tree| self.purge.step(tree)) {
            Ok(went) => self.purge.went(went),
            // [scrub-2] That data is not needed: it takes space, until the store is rebuilt.
            Err(Failure::Damaged(_)) => self.purge.give_up(),
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    fn say(&self, event: Event) -> Result<(), Gone> {
        self.tell.send(event).map_err(|_| Gone)
    }

    /// Waits, and handles a request that arrives meanwhile.
    fn pause(&self, time: Duration) -> Result<(), Break> {
        match self.asked.recv_timeout(time) {
            Ok(Job::Free(changes)) => {
                drop(changes);
                Ok(())
            }
            Ok(Job::Remove(folder)) => {
                remove(&folder);
                Ok(())
            }
            Ok(Job::Reopen(distrusted)) => Err(Break::Reopen(distrusted)),
            // One unit is on its way at a time, and what is asked for of a failed tree is asked for
            // again.
            Ok(Job::Write(_) | Job::Sync(_)) | Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => Err(Break::Gone),
        }
    }

    /// The same, when only the end is of interest.
    fn wait(&self, time: Duration) -> Result<(), Gone> {
        match self.pause(time) {
            Err(Break::Gone) => Err(Gone),
            Ok(()) | Err(Break::Reopen(_)) => Ok(()),
        }
    }

    /// Returns the reason if there is too little space for `bytes` more. If that cannot be
    /// determined, the write itself decides.
    fn lacks_room(&self, bytes: u64) -> Option<String> {
        let Room { free, total } = self.home.disk.room(&self.home.path).ok()?;
        let reserve = RESERVE_BYTES.min(total / RESERVE_PART);
        let reserve = reserve.max(self.needed.min(total / NEEDED_PART));
        // The journal has it once, and a table once more.
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

    /// Waits for space before the tree notices a lack of it: a tree that has met a full disk has to
    /// be opened again.
    fn wait_for_room(&self, bytes: u64) -> Result<(), Break> {
        let mut said = String::new();
        while let Some(why) = self.lacks_room(bytes) {
            if why != said {
                self.say(Event::Waiting(why.clone()))?;
                said = why;
            }
            self.pause(self.delays.room)?;
        }
        Ok(())
    }

    /// Waits for the library's threads. A failure here is met by the write that follows.
    fn wait_for_tree(&self) -> Result<(), Break> {
        while matches!(self.guarded(Tree::is_free), Ok(false)) {
            self.pause(self.delays.busy)?;
        }
        Ok(())
    }

    /// Waits until it may help to open the tree again, and until the owner has let go of it; says
    /// why it is set aside first, if it is.
    fn recover_from(&mut self, failure: &Failure) -> Result<Option<String>, Gone> {
        self.doubts = true;
        if let Failure::Full(_) = failure {
            self.needs_more();
        }
        let told = self.until_it_may_help();
        match told {
            Err(Break::Gone) => return Err(Gone),
            Err(Break::Reopen(distrusted)) => return Ok(distrusted),
            Ok(()) => {}
        }
        self.say(Event::LetGo)?;
        loop {
            match self.asked.recv() {
                Ok(Job::Reopen(distrusted)) => {
                    let damaged = matches!(failure, Failure::Damaged(_));
                    return Ok(distrusted.or(damaged.then(|| failure.to_string())));
                }
                Ok(Job::Remove(folder)) => remove(&folder),
                Ok(Job::Write(_) | Job::Sync(_) | Job::Free(_)) => {}
                Err(_) => return Err(Gone),
            }
        }
    }

    /// Waits until another attempt may help. While the disk takes nothing, the tree as it is can be
    /// read at least.
    fn until_it_may_help(&mut self) -> Result<(), Break> {
        loop {
            let delay = self.delay();
            self.pause(delay)?;
            self.wait_for_room(0)?;
            match self.home.disk.try_writing(&self.home.path) {
                Ok(()) => return Ok(()),
                Err(error) => self.say(Event::Waiting(error.to_string()))?,
            }
        }
    }

    /// Raises the space to wait for: there was less than it seemed, as background work takes some.
    fn needs_more(&mut self) {
        let least = self.needed.max(RESERVE_BYTES / RESERVE_PART);
        self.needed = least.saturating_mul(2).min(NEEDED_BYTES_MAX);
    }

    /// Returns the delay after one more failure.
    fn delay(&mut self) -> Duration {
        let doubled = 1_u32 << self.failures.min(16);
        self.failures = self.failures.saturating_add(1);
        self.delays.retry_min.saturating_mul(doubled).min(self.delays.retry_max)
    }

    /// Opens the tree, however long that takes. There is no other handle.
    fn open(&mut self, mut distrusted: Option<String>) -> Result<(), Gone> {
        // Its threads end here.
        (self.tree, self.rewriting) = (None, None);
        loop {
            let open = || Tree::open(&self.home, distrusted.as_deref());
            let opened = panic::catch_unwind(AssertUnwindSafe(open))
                .unwrap_or_else(|_| Err(Failure::Panicked));
            match opened {
                Ok(opened) => {
                    self.tree = Some(opened.tree.clone());
                    self.purge.restart(opened.state, opened.newest_generation);
                    return self.say(Event::Opened(opened));
                }
                Err(failure) => {
                    self.say(Event::Closed(failure.to_string()))?;
                    let delay = self.delay();
                    match self.pause(delay) {
                        Err(Break::Gone) => return Err(Gone),
                        Err(Break::Reopen(why)) => distrusted = distrusted.or(why),
                        Ok(()) => {}
                    }
                }
            }
        }
    }
}
