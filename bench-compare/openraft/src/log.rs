//! The log: all entries in memory and, if durable, in one file that is synced before anything is
//! acknowledged. Appends that arrive during a sync share the next one.
//!
//! No node restarts in a comparison, so the file is written and never read.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    fs::File,
    io::{self, Write as _},
    ops::RangeBounds,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
};

use openraft::{
    AnyError, Entry, LogId, LogState, RaftLogReader, StorageError, StorageIOError, Vote,
    storage::{LogFlushed, RaftLogStorage},
};
use serde::Serialize;
use tokio::sync::oneshot;

use crate::Types;

/// Record of the file, stored after its length.
#[derive(Serialize)]
enum LogRecord<'a> {
    Vote(&'a Vote<u64>),
    Entry(&'a Entry<Types>),
    Truncate(LogId<u64>),
    Purge(LogId<u64>),
}

/// Records to write, and the channels to notify.
struct WriteJob {
    bytes: Vec<u8>,
    notify: JobNotification,
}

enum JobNotification {
    Append(LogFlushed<Types>),
    Other(oneshot::Sender<io::Result<()>>),
}

impl JobNotification {
    fn send_result(self, result: io::Result<()>) {
        match self {
            Self::Append(callback) => callback.log_io_completed(result),
            Self::Other(sender) => {
                // The caller may be gone.
                let _ = sender.send(result);
            }
        }
    }
}

#[derive(Default)]
struct LogContents {
    entries: BTreeMap<u64, Entry<Types>>,
    purged_to: Option<LogId<u64>>,
    vote: Option<Vote<u64>>,
}

/// A handle to the log, shared by its readers.
#[derive(Clone)]
pub struct LogHandle {
    state: Arc<Mutex<LogContents>>,
    writer: Option<mpsc::Sender<WriteJob>>,
}

impl LogHandle {
    /// Returns a log that is lost when the process ends.
    pub fn in_memory() -> Self {
        Self { state: Arc::default(), writer: None }
    }

    /// Returns a log with a new file in this folder.
    pub fn on_disk(folder: &Path) -> io::Result<Self> {
        let file = File::create_new(folder.join("log"))?;
        // Makes the file's name durable as well.
        File::open(folder)?.sync_all()?;
        let (writer, jobs) = mpsc::channel();
        thread::Builder::new().name("log".to_owned()).spawn(move || write_jobs(file, &jobs))?;
        Ok(Self { state: Arc::default(), writer: Some(writer) })
    }

    fn lock_state(&self) -> MutexGuard<'_, LogContents> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes and syncs a record before it returns.
    async fn write_record(&self, record: LogRecord<'_>) -> io::Result<()> {
        let Some(writer) = &self.writer else {
            return Ok(());
        };
        let mut bytes = Vec::new();
        append_record(&record, &mut bytes)?;
        let (sender, done) = oneshot::channel();
        let job = WriteJob { bytes, notify: JobNotification::Other(sender) };
        let gone = || io::Error::other("the log's thread is gone");
        writer.send(job).map_err(|_| gone())?;
        done.await.map_err(|_| gone())?
    }
}

fn append_record(record: &LogRecord<'_>, bytes: &mut Vec<u8>) -> io::Result<()> {
    let at = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    bincode::serialize_into(&mut *bytes, record).map_err(io::Error::other)?;
    let length = u32::try_from(bytes.len() - at - 4).map_err(io::Error::other)?;
    bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

/// Writes and syncs all waiting jobs together.
fn write_jobs(mut file: File, jobs: &mpsc::Receiver<WriteJob>) {
    while let Ok(first) = jobs.recv() {
        let mut bytes = first.bytes;
        let mut done = vec![first.notify];
        for job in jobs.try_iter() {
            bytes.extend_from_slice(&job.bytes);
            done.push(job.notify);
        }
        let result = file.write_all(&bytes).and_then(|()| file.sync_data());
        if let Err(error) = result {
            // The contents of the disk are unknown, so this node answers no more clients.
            eprintln!("the log cannot be written: {error}");
            std::process::exit(1);
        }
        for one in done {
            one.send_result(Ok(()));
        }
    }
}

fn storage_error(error: &io::Error) -> StorageError<u64> {
    StorageIOError::write_logs(AnyError::new(error)).into()
}

impl RaftLogReader<Types> for LogHandle {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry<Types>>, StorageError<u64>> {
        let state = self.lock_state();
        Ok(state.entries.range(range).map(|(_, entry)| entry.clone()).collect())
    }
}

impl RaftLogStorage<Types> for LogHandle {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, StorageError<u64>> {
        let state = self.lock_state();
        let last = state.entries.values().next_back();
        Ok(LogState {
            last_purged_log_id: state.purged_to,
            last_log_id: last.map(|entry| entry.log_id).or(state.purged_to),
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<u64>) -> Result<(), StorageError<u64>> {
        let written = self.write_record(LogRecord::Vote(vote)).await;
        written.map_err(|error| StorageIOError::write_vote(AnyError::new(&error)))?;
        self.lock_state().vote = Some(*vote);
        Ok(())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<u64>>, StorageError<u64>> {
        Ok(self.lock_state().vote)
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: LogFlushed<Types>,
    ) -> Result<(), StorageError<u64>>
    where
        I: IntoIterator<Item = Entry<Types>> + Send,
        I::IntoIter: Send,
    {
        let mut bytes = Vec::new();
        {
            let mut state = self.lock_state();
            for entry in entries {
                if self.writer.is_some() {
                    append_record(&LogRecord::Entry(&entry), &mut bytes)
                        .map_err(|error| storage_error(&error))?;
                }
                state.entries.insert(entry.log_id.index, entry);
            }
        }
        match &self.writer {
            None => callback.log_io_completed(Ok(())),
            Some(writer) => {
                let job = WriteJob { bytes, notify: JobNotification::Append(callback) };
                let gone = |_| storage_error(&io::Error::other("the log's thread is gone"));
                writer.send(job).map_err(gone)?;
            }
        }
        Ok(())
    }

    async fn truncate(&mut self, from: LogId<u64>) -> Result<(), StorageError<u64>> {
        let written = self.write_record(LogRecord::Truncate(from)).await;
        written.map_err(|error| storage_error(&error))?;
        self.lock_state().entries.split_off(&from.index);
        Ok(())
    }

    async fn purge(&mut self, upto: LogId<u64>) -> Result<(), StorageError<u64>> {
        let written = self.write_record(LogRecord::Purge(upto)).await;
        written.map_err(|error| storage_error(&error))?;
        let mut state = self.lock_state();
        let kept = state.entries.split_off(&(upto.index + 1));
        state.entries = kept;
        state.purged_to = Some(upto);
        Ok(())
    }
}
