//! A thread that brings changes into the tree, so that the replica does not wait for it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use fjall::{Database, Keyspace};

use super::{
    changes::Changes,
    layout::{State, data_key, deadline_key, kind, prefix, stored_value},
    must,
};
use crate::store::Position;

/// Keys of a flushed generation that are removed at a time.
const PURGED_MAX: usize = 1024;

/// What the thread is asked for.
enum Job {
    /// One atomic unit.
    Write(Arc<Changes>),
    /// Only to give its memory back: that takes time, too.
    Free(Arc<Changes>),
}

/// The thread as its owner sees it.
#[derive(Debug)]
pub(super) struct Writer {
    /// `None` ends the thread.
    jobs: Option<Sender<Job>>,
    written: Receiver<()>,
    /// Nothing is left of generations below.
    purged_below: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

/// The thread ended, which it does only with a message of its own on standard error.
#[derive(Debug)]
pub(super) struct Stopped;

impl Writer {
    pub(super) fn start(
        database: Database,
        keyspace: Keyspace,
        state: State,
    ) -> std::io::Result<Self> {
        let (jobs, asked) = channel();
        let (tell, written) = channel();
        let purged_below = Arc::new(AtomicU64::new(state.oldest));
        let mut work = Work {
            database,
            keyspace,
            purge: Purge {
                from: Vec::new(),
                below: state.generation,
                purged_below: Arc::clone(&purged_below),
            },
        };
        let thread = thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || work.run(&asked, &tell))?;
        Ok(Self {
            jobs: Some(jobs),
            written,
            purged_below,
            thread: Some(thread),
        })
    }

    pub(super) fn write(&self, changes: Arc<Changes>) -> Result<(), Stopped> {
        self.ask(Job::Write(changes))
    }

    pub(super) fn free(&self, changes: Arc<Changes>) -> Result<(), Stopped> {
        self.ask(Job::Free(changes))
    }

    fn ask(&self, job: Job) -> Result<(), Stopped> {
        let jobs = self.jobs.as_ref().ok_or(Stopped)?;
        jobs.send(job).map_err(|_| Stopped)
    }

    /// Whether what was asked to be written is; waits for it at most so long.
    pub(super) fn has_written(&self, patience: Duration) -> Result<bool, Stopped> {
        match self.written.recv_timeout(patience) {
            Ok(()) => Ok(true),
            Err(RecvTimeoutError::Timeout) => Ok(false),
            Err(RecvTimeoutError::Disconnected) => Err(Stopped),
        }
    }

    pub(super) fn wait_until_written(&self) -> Result<(), Stopped> {
        self.written.recv().map_err(|_| Stopped)
    }

    pub(super) fn purged_below(&self) -> u64 {
        self.purged_below.load(Ordering::Acquire)
    }

    /// Ends the thread. What was asked of it is done.
    pub(super) fn end(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // If it panicked, it has said why.
            let _ = thread.join();
        }
    }
}

/// The thread's own.
struct Work {
    database: Database,
    keyspace: Keyspace,
    purge: Purge,
}

impl Work {
    fn run(&mut self, asked: &Receiver<Job>, tell: &Sender<()>) {
        loop {
            let job = if self.purge.is_done() {
                asked.recv().map_err(|_| TryRecvError::Disconnected)
            } else {
                asked.try_recv()
            };
            match job {
                Ok(Job::Write(changes)) => {
                    self.write(&changes);
                    self.purge.begin(changes.state.generation);
                    // Before it is told, so that the owner's is the last one.
                    drop(changes);
                    if tell.send(()).is_err() {
                        return;
                    }
                }
                Ok(Job::Free(changes)) => drop(changes),
                Err(TryRecvError::Empty) => self.purge.step(&self.database, &self.keyspace),
                Err(TryRecvError::Disconnected) => return,
            }
        }
    }

    fn write(&self, changes: &Changes) {
        let generation = changes.state.generation;
        let mut batch = self.database.batch();
        // In the order of the tree.
        let state = changes.state.to_bytes();
        batch.insert(&self.keyspace, [kind::STATE], state);
        for (key, value) in &changes.meta {
            let key = [&[kind::META], &**key].concat();
            match value {
                Some(value) => batch.insert(&self.keyspace, key, &**value),
                None => batch.remove(&self.keyspace, key),
            }
        }
        for ((deadline, key), present) in &changes.deadlines {
            let key = deadline_key(generation, *deadline, key);
            if *present {
                batch.insert(&self.keyspace, key, []);
            } else {
                batch.remove(&self.keyspace, key);
            }
        }
        for (position, record) in changes.data.from(Position::START) {
            let key = data_key(generation, position, record.key());
            if record.is_absent() {
                batch.remove(&self.keyspace, key);
            } else {
                batch.insert(&self.keyspace, key, stored_value(&record.entry()));
            }
        }
        must(batch.commit());
    }
}

/// The removal of generations that FLUSHALL ended. Nobody sees them, so it needs no atomicity.
struct Purge {
    /// Where it goes on.
    from: Vec<u8>,
    /// Generations below this one are ended.
    below: u64,
    purged_below: Arc<AtomicU64>,
}

impl Purge {
    fn is_done(&self) -> bool {
        self.purged_below.load(Ordering::Acquire) >= self.below
    }

    /// Generations below this one have ended by now. What ended since the last time lies before where
    /// it goes on, too.
    fn begin(&mut self, below: u64) {
        if self.below != below {
            self.below = below;
            self.from.clear();
        }
    }

    /// Removes some.
    fn step(&mut self, database: &Database, keyspace: &Keyspace) {
        let mut batch = database.batch();
        let mut left = PURGED_MAX;
        for kind in [kind::DEADLINE, kind::DATA] {
            let from = prefix(kind, 0).max(self.from.clone());
            let before = prefix(kind, self.below);
            if from >= before {
                continue;
            }
            for guard in keyspace.range::<Vec<u8>, _>(from..before).take(left) {
                let key = must(guard.key());
                left -= 1;
                self.from = key.to_vec();
                batch.remove(keyspace, key);
            }
            if left == 0 {
                break;
            }
        }
        must(batch.commit());
        if left > 0 {
            self.from.clear();
            self.purged_below.store(self.below, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use fjall::KeyspaceCreateOptions;

    use super::*;

    /// Puts so many keys of a generation into the tree, each with a deadline.
    fn fill(keyspace: &Keyspace, generation: u64, keys: u64) {
        for number in 1..=keys {
            let key = number.to_be_bytes();
            let stored = [
                deadline_key(generation, number, &key),
                data_key(generation, Position::of(&key), &key),
            ];
            for key in stored {
                must(keyspace.insert(key, []));
            }
        }
    }

    #[test]
    fn a_generation_that_ends_while_another_is_removed_is_removed_whole() {
        let folder = tempfile::tempdir().unwrap();
        let database = must(Database::builder(folder.path()).open());
        let keyspace = must(database.keyspace("kv", KeyspaceCreateOptions::default));
        let mut purge = Purge {
            from: Vec::new(),
            below: 1,
            purged_below: Arc::new(AtomicU64::new(0)),
        };
        // All deadlines of the first, and then some of its keys.
        fill(&keyspace, 0, PURGED_MAX as u64 + 1);
        purge.step(&database, &keyspace);
        purge.step(&database, &keyspace);
        assert_eq!(purge.from.first(), Some(&kind::DATA));
        fill(&keyspace, 1, 10);
        fill(&keyspace, 2, 3);
        purge.begin(2);
        while !purge.is_done() {
            purge.step(&database, &keyspace);
        }
        assert_eq!(must(keyspace.len()), 6, "what is not ended stays");
    }
}
