//! Outcome of a read or write of a socket, with or without TLS.

use rustix::io::Errno;

/// Outcome of a read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// This many bytes were transferred, and more may be possible.
    Some(usize),
    /// The socket is not ready.
    Blocked,
    /// The other side closed the connection, or the connection is broken.
    Ended(Option<Errno>),
}
