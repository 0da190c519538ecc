//! Outcome of a read or write of a socket, with or without TLS.

use rustix::io::Errno;

/// Outcome of one read from a socket or one write to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// This many bytes were transferred, and more may be possible.
    Some(usize),
    /// No transfer is possible until the socket is ready.
    Blocked,
    /// The other side closed the connection, or the connection is broken.
    Ended(Option<Errno>),
}
