//! Errors from disk operations.

use std::{fmt, io};

use rustix::io::Errno;
use thiserror::Error;

/// A disk operation that was refused or failed. The message names the file, for operators; callers
/// use `kind` and `exhausted`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{detail}")]
pub struct DiskError {
    pub kind: io::ErrorKind,
    /// The resource that ran out, if that is the only cause.
    pub exhausted: Option<ExhaustedResource>,
    detail: String,
}

/// A resource that can run out and become available again. Nothing is broken, so a caller that can
/// wait should wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExhaustedResource {
    Space,
    /// File descriptors, of the process or of the system, so that a file cannot be opened.
    Descriptors,
}

impl ExhaustedResource {
    fn of(error: &io::Error) -> Option<Self> {
        match (error.kind(), Errno::from_io_error(error)) {
            (kind, _) if is_full(kind) => Some(Self::Space),
            (_, Some(Errno::MFILE | Errno::NFILE)) => Some(Self::Descriptors),
            _ => None,
        }
    }
}

impl DiskError {
    /// Creates the error of an operation. `action` is its name, `file` its target.
    pub fn new(action: &str, file: impl fmt::Display, error: &io::Error) -> Self {
        Self {
            kind: error.kind(),
            detail: format!("{action} {file}: {error}"),
            exhausted: ExhaustedResource::of(error),
        }
    }

    /// Creates the error of a transfer that stopped after `done` of `wanted` bytes.
    pub fn short_transfer(
        action: &str,
        file: impl fmt::Display,
        done: usize,
        wanted: usize,
    ) -> Self {
        let detail = format!("{action} {file}: only {done} of {wanted} bytes were transferred");
        Self { kind: io::ErrorKind::WriteZero, detail, exhausted: None }
    }
}

/// Returns whether this kind of error means that the disk is full.
pub const fn is_full(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
