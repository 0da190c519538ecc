//! Errors of disk operations.

use std::{fmt, io};

use rustix::io::Errno;
use thiserror::Error;

/// Something that the disk refused or failed to do. Names the file; what it says is for people, and
/// `kind` and `lack` are for decisions.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{detail}")]
pub struct DiskError {
    /// The operating system's kind of error.
    pub kind: io::ErrorKind,
    /// The resource that ran out, if that is all.
    pub lack: Option<Lack>,
    /// Which operation on which file failed, and how.
    detail: String,
}

/// A resource that a machine can run out of and regain: nothing is broken, so a caller that can
/// wait waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// Room on the disk.
    Room,
    /// Descriptors, of the process or of the machine: a file cannot be opened.
    Descriptors,
}

impl Lack {
    fn of(error: &io::Error) -> Option<Self> {
        match (error.kind(), Errno::from_io_error(error)) {
            (kind, _) if is_full(kind) => Some(Self::Room),
            (_, Some(Errno::MFILE | Errno::NFILE)) => Some(Self::Descriptors),
            _ => None,
        }
    }
}

impl DiskError {
    /// An error while doing `action` to `file`.
    pub fn new(action: &str, file: impl fmt::Display, error: &io::Error) -> Self {
        Self {
            kind: error.kind(),
            detail: format!("{action} {file}: {error}"),
            lack: Lack::of(error),
        }
    }

    /// Fewer bytes arrived than were asked for.
    pub fn short(action: &str, file: impl fmt::Display, done: usize, wanted: usize) -> Self {
        let detail = format!("{action} {file}: only {done} of {wanted} bytes were transferred");
        Self { kind: io::ErrorKind::WriteZero, detail, lack: None }
    }
}

/// Returns whether disk space is missing.
pub const fn is_full(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
