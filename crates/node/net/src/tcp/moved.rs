//! Outcome of a read or write of a socket, with or without TLS.

use rustix::io::Errno;

/// Outcome of a read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// This number of bytes was transferred; more may be possible.
    Some(usize),
    /// No transfer is possible now.
    Blocked,
    /// The other side closed the connection, or it is broken.
    Ended(Option<Errno>),
}
