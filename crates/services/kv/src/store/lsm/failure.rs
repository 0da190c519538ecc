//! Failures of the tree, and the library's panics that the store survives.

use std::{cell::Cell, error::Error as StdError, io, path::PathBuf, thread};

use fjall::LsmError;
use thiserror::Error;

use super::layout::FORMAT;

/// Error that prevented the store from being opened or made durable.
#[derive(Debug, Error)]
#[error("store {}: {failure}", path.display())]
pub struct StoreError {
    /// Folder of the store.
    pub path: PathBuf,
    #[source]
    pub failure: Failure,
}

/// Why an operation on the tree failed.
#[derive(Debug, Error)]
pub enum Failure {
    /// The disk is full.
    #[error("{0}")]
    Full(#[source] io::Error),
    /// The disk failed; it may recover.
    #[error("{0}")]
    Disk(#[source] io::Error),
    /// The library accepts no more writes because a write failed or one of its threads panicked.
    /// Reopening may help.
    #[error("an earlier write, or one in the background, failed")]
    Poisoned,
    /// Data that was just written is damaged, so the disk is at fault.
    #[error("a new tree cannot be read: {0}")]
    NewIsDamaged(#[source] Box<dyn StdError + Send + Sync>),
    /// The contents are damaged, but the log can rebuild them.
    #[error("{0}")]
    Damaged(#[source] Box<dyn StdError + Send + Sync>),
    /// Another process has opened the tree.
    #[error("in use by another process")]
    InUse,
    /// Another version of the library created the tree.
    #[error("{0}")]
    LibraryVersion(#[source] fjall::Error),
    /// Another version of this program created the tree.
    #[error("format {0}, but this version knows {FORMAT} only")]
    Format(u8),
    /// The tree is being opened or set aside.
    #[error("it is not open")]
    NotOpen,
    /// The store is unavailable for this reason.
    #[error("{0}")]
    Unwell(String),
    /// The library panicked.
    #[error("a failed assertion")]
    Panicked,
    /// The writer's thread could not be started.
    #[error("{0}")]
    Thread(#[source] io::Error),
}

impl Failure {
    pub(super) fn damaged(detail: &str) -> Self {
        Self::Damaged(detail.into())
    }

    /// Returns whether the failure may go away by itself or after an operator has repaired the
    /// disk.
    pub(super) const fn may_pass(&self) -> bool {
        matches!(self, Self::Full(_) | Self::Disk(_) | Self::Poisoned | Self::NewIsDamaged(_))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full(error),
            // A file is missing, truncated, or has wrong contents, which lead to offsets beyond the
            // end.
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

/// Marks the calling thread as one whose panics are caught and reported as failures.
pub(super) fn catches_panics() {
    PANICS_ARE_CAUGHT.set(true);
}

/// Returns whether the store survives a panic of the calling thread. Intended for a panic hook that
/// ends the process at other panics.
///
/// A panic in one of the library's threads reaches the store as [`Failure::Poisoned`] with the next
/// write. But the panic hook runs earlier, on the panicking thread. The library starts its threads
/// without notice, so only their names identify them.
pub fn gets_over_panics_here() -> bool {
    const LIBRARY_THREAD: &str = "fjall:worker";
    PANICS_ARE_CAUGHT.get() || thread::current().name() == Some(LIBRARY_THREAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The library's threads have the expected names. Otherwise a panic in one of them would end
    /// the node.
    #[test]
    fn threads_of_the_library_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let database = fjall::Database::builder(folder.path()).open().unwrap();
        let tree = database.keyspace("kv", Default::default).unwrap();
        tree.insert("key", "value").unwrap();
        // A thread sets its name when it first runs, and one of them has run after this call.
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
