//! Errors of stream requests.

use std::{error, fmt, io};

use quorate_wire::streams::ErrorCode;

/// A permanent failure. Failures that another attempt or node could resolve are retried instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A node refused the request permanently.
    Refused(Refusal),
    /// No node served the request in time. Contains the last failure.
    Unreachable(String),
    /// Acknowledged bytes have been lost: a node continues the stream at an earlier position.
    AcknowledgedLost {
        /// Position below which all bytes were acknowledged.
        acknowledged_position: u64,
        /// Position at which a node continues the stream.
        node_position: u64,
    },
    /// A node reports more bytes from this writer than were ever sent.
    NodeAhead {
        /// End of the sent bytes.
        sent_position: u64,
        /// End of the stream, according to a node.
        node_position: u64,
    },
    /// The stream was closed before the last written byte.
    ClosedEarly {
        /// End of the written bytes.
        written_position: u64,
        /// Position at which the stream was closed.
        closed_position: u64,
    },
    /// A node sent bytes from a position other than the requested one.
    WrongPosition {
        /// Position of the next byte that the reader expected.
        expected_position: u64,
        /// Position of the first byte that arrived.
        received_position: u64,
    },
    /// The stream was removed while it was read, and another one has taken its name.
    StreamReplaced,
    /// The machine lacks a resource, such as a thread or random numbers.
    LocalResource(String),
}

/// Error response of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Number of the [`ErrorCode`], which a node newer than this client may have added.
    pub code: u16,
    /// Position whose meaning depends on the code; 0 if unused.
    pub position: u64,
    /// Human-readable description.
    pub detail: String,
    /// Human-readable advice.
    pub hint: String,
}

impl Error {
    /// Returns the code, or `None` if this version does not have it.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused(refusal) => ErrorCode::from_number(refusal.code),
            _ => None,
        }
    }

    /// Returns the error if one of this crate's `Write`, `Read` or `Seek` implementations wrapped
    /// it in an `std::io::Error`.
    pub fn from_io_error(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// Returns the error for a login that does not fit into a frame. No user can have such a login.
    pub(super) fn bad_login() -> Self {
        Self::Refused(Refusal {
            code: ErrorCode::WrongPassword.number(),
            position: 0,
            detail: "no user has so long a name or password".to_owned(),
            hint: "`quorate user list` shows who there is".to_owned(),
        })
    }

    /// Returns the error for a name that does not fit into a frame. No stream can have such a name.
    pub(super) fn bad_name(name: &str) -> Self {
        Self::Refused(Refusal {
            code: ErrorCode::Name.number(),
            position: 0,
            detail: format!("a name of {} bytes", name.len()),
            hint: "a shorter one".to_owned(),
        })
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::other(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(Refusal { code, detail, .. }) => match detail.as_str() {
                "" => write!(f, "refused with code {code}"),
                detail => f.write_str(detail),
            },
            Self::Unreachable(why) => write!(f, "no node did it; the last obstacle: {why}"),
            Self::AcknowledgedLost {
                acknowledged_position: acknowledged,
                node_position: position,
            } => write!(
                f,
                "data loss: all bytes below position {acknowledged} were acknowledged, but the \
                 stream goes on at {position}"
            ),
            Self::NodeAhead { sent_position: sent, node_position: position } => write!(
                f,
                "a node has bytes up to position {position}, but none from {sent} on were sent"
            ),
            Self::ClosedEarly { written_position: written, closed_position: position } => write!(
                f,
                "the stream was closed at position {position}, before the end of what was written, \
                 {written}"
            ),
            Self::WrongPosition { expected_position: expected, received_position: position } => {
                write!(f, "a node sent what is at position {position} where {expected} was due")
            }
            Self::StreamReplaced => {
                f.write_str("the stream was removed, and there is another one of its name")
            }
            Self::LocalResource(what) => f.write_str(what),
        }
    }
}

impl error::Error for Error {}

/// Failure of one attempt at one node.
#[derive(Debug)]
pub(super) enum AttemptError {
    /// Another attempt or another node may succeed.
    Retryable(String),
    /// The failure is permanent, and no further attempt is made.
    Permanent(Error),
}

impl AttemptError {
    /// Converts a node's error for the caller.
    pub(super) fn from_response(code: u16, position: u64, detail: &str, hint: &str) -> Self {
        match ErrorCode::from_number(code) {
            Some(
                ErrorCode::Busy
                | ErrorCode::NoQuorum
                | ErrorCode::Stopping
                | ErrorCode::Unavailable
                | ErrorCode::Uncertain,
            ) => Self::Retryable(detail.to_owned()),
            _ => Self::Permanent(Error::Refused(Refusal {
                code,
                position,
                detail: detail.to_owned(),
                hint: hint.to_owned(),
            })),
        }
    }

    /// Returns the error for a frame that the protocol does not allow in this state.
    pub(super) fn unexpected_frame() -> Self {
        Self::Retryable("the node sent an unrequested message".to_owned())
    }
}

impl From<io::Error> for AttemptError {
    fn from(error: io::Error) -> Self {
        Self::Retryable(error.to_string())
    }
}

impl From<Error> for AttemptError {
    fn from(error: Error) -> Self {
        Self::Permanent(error)
    }
}
