//! Outcome of a read or write of a socket, with TLS or without.

use rustix::io::Errno;

/// Outcome of a read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// This number of bytes; more may be possible.
    Some(usize),
    /// Nothing is possible now.
    Blocked,
    /// The other side has closed, or the connection is broken.
    Ended(Option<Errno>),
}
