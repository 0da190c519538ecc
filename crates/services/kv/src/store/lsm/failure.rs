//! Failures of the tree, and panics of fjall that the store survives.

use std::{cell::Cell, error::Error as StdError, io, path::PathBuf, thread};

use fjall::LsmError;
use thiserror::Error;

use super::layout::FORMAT;

/// Failure to open the store or to make it durable.
#[derive(Debug, Error)]
#[error("store {}: {failure}", path.display())]
pub struct StoreError {
    pub path: PathBuf,
    #[source]
    pub failure: Failure,
}

/// Reason why an operation on the tree failed.
#[derive(Debug, Error)]
pub enum Failure {
    #[error("{0}")]
    Full(#[source] io::Error),
    #[error("{0}")]
    Disk(#[source] io::Error),
    /// fjall accepts no more writes, because a write failed or one of its threads panicked.
    /// Reopening may help.
    #[error("an earlier write, or one in the background, failed")]
    Poisoned,
    /// Newly written data is damaged, so the disk is at fault.
    #[error("a new tree cannot be read: {0}")]
    NewDataDamaged(#[source] Box<dyn StdError + Send + Sync>),
    /// The contents are damaged. The log can restore them.
    #[error("{0}")]
    Damaged(#[source] Box<dyn StdError + Send + Sync>),
    #[error("in use by another process")]
    InUse,
    #[error("{0}")]
    LibraryVersion(#[source] fjall::Error),
    #[error("format {0}, but this version knows {FORMAT} only")]
    Format(u8),
    /// The tree is being opened or set aside.
    #[error("it is not open")]
    NotOpen,
    #[error("{0}")]
    Unwell(String),
    #[error("a failed assertion")]
    Panicked,
    /// The writer thread could not be started.
    #[error("{0}")]
    Thread(#[source] io::Error),
}

impl Failure {
    pub(super) fn damaged(detail: &str) -> Self {
        Self::Damaged(detail.into())
    }

    /// Returns whether the failure may end by itself or once the disk is repaired.
    pub(super) const fn may_pass(&self) -> bool {
        matches!(self, Self::Full(_) | Self::Disk(_) | Self::Poisoned | Self::NewDataDamaged(_))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full(error),
            // A file is missing or truncated, or its contents are wrong and refer to offsets past
            // its end.
            io::ErrorKind::NotFound
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::InvalidData
            | io::ErrorKind::InvalidInput => Self::Damaged(error.into()),
            _ => Self::Disk(error),
        }
    }
}

impl From<fjall::Error> for Failure {
    fn from(error: fjall::Error) -> Self {
        match error {
            fjall::Error::Io(error) | fjall::Error::Storage(LsmError::Io(error)) => error.into(),
            fjall::Error::Locked => Self::InUse,
            fjall::Error::Poisoned => Self::Poisoned,
            version @ fjall::Error::InvalidVersion(Some(_)) => Self::LibraryVersion(version),
            damage => Self::Damaged(damage.into()),
        }
    }
}

thread_local! {
    static PANICS_ARE_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread as one whose panics are failures of the store.
pub(super) fn catches_panics() {
    PANICS_ARE_CAUGHT.set(true);
}

/// Returns whether the store survives a panic of the calling thread. For a panic hook that ends the
/// process on any other panic.
///
/// A panic in one of fjall's threads reaches the store as [`Failure::Poisoned`] with the next
/// write, but the panic hook runs earlier, on the panicking thread. These threads can be recognized
/// only by their names.
pub fn gets_over_panics_here() -> bool {
    const LIBRARY_THREAD: &str = "fjall:worker";
    PANICS_ARE_CAUGHT.get() || thread::current().name() == Some(LIBRARY_THREAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// fjall's threads have the expected names. A panic in any other thread would end the node.
    #[test]
    fn library_threads_are_recognized_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let database = fjall::Database::builder(folder.path()).open().unwrap();
        let tree = database.keyspace("kv", Default::default).unwrap();
        tree.insert("key", "value").unwrap();
        // A thread sets its name when it starts to run, and one has run once this call returns.
        tree.rotate_memtable_and_wait().unwrap();
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")));
        assert!(names.flatten().any(|name| name.trim() == "fjall:worker"));
        assert!(!gets_over_panics_here());
        let of_the_library = thread::Builder::new().name("fjall:worker".to_owned());
        let known = of_the_library.spawn(gets_over_panics_here).unwrap();
        assert!(known.join().unwrap());
    }
}
