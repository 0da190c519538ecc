//! Why a stream cannot be written, read or changed.

use std::{error, fmt, io};

use quorate_wire::streams::Code;

/// A permanent failure: one that another attempt or another node could mend is not reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A node says no.
    Refused(Refusal),
    /// No node did it in time. The text is the last obstacle.
    Unreachable(String),
    /// Bytes that were acknowledged are not there any more: the stream now goes on before them.
    Lost {
        /// All bytes below were acknowledged.
        acknowledged: u64,
        /// Position at which a node continues the stream.
        position: u64,
    },
    /// A node has more of this writer's bytes than were ever sent.
    Ahead {
        /// Nothing from here on was sent.
        sent: u64,
        /// End of the stream, according to a node.
        position: u64,
    },
    /// A node closed the stream before the last byte that was written.
    Short {
        /// End of the bytes written.
        written: u64,
        /// End of the stream.
        position: u64,
    },
    /// A node sent other bytes than those that were asked for.
    Skipped {
        /// Position of the next byte that the reader expected.
        expected: u64,
        /// Position of the bytes that arrived.
        position: u64,
    },
    /// The stream was removed while it was read, and there is another one of its name.
    Replaced,
    /// This machine cannot do it: no thread, no random numbers.
    Machine(String),
}

/// A node's own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The number of a [`Code`], if this version knows it.
    pub code: u16,
    /// Meaning given by the code; else 0.
    pub position: u64,
    /// Description, for people.
    pub detail: String,
    /// Advice, for people.
    pub hint: String,
}

impl Error {
    /// The code of a refusal that this version knows.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Refused(refusal) => Code::of(refusal.code),
            _ => None,
        }
    }

    /// The error inside one of `std::io::Write`, `Read` or `Seek` of this crate.
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// No user has a name or a password that a frame does not take.
    pub(super) fn bad_login() -> Self {
        Self::Refused(Refusal {
            code: Code::WrongPassword.number(),
            position: 0,
            detail: "no user has so long a name or password".to_owned(),
            hint: "`quorate user list` shows who there is".to_owned(),
        })
    }

    /// No name of a stream is so long that a frame does not take it.
    pub(super) fn bad_name(name: &str) -> Self {
        Self::Refused(Refusal {
            code: Code::Name.number(),
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
            Self::Unreachable(why) => write!(f, "no node did it in time; the last obstacle: {why}"),
            Self::Lost { acknowledged, position } => write!(
                f,
                "data loss: all bytes below position {acknowledged} were acknowledged, but the \
                 stream goes on at {position}"
            ),
            Self::Ahead { sent, position } => write!(
                f,
                "a node has bytes up to position {position}, but none from {sent} on were sent"
            ),
            Self::Short { written, position } => write!(
                f,
                "the stream was closed at position {position}, before the end of what was written, \
                 {written}"
            ),
            Self::Skipped { expected, position } => {
                write!(f, "a node sent what is at position {position} where {expected} was due")
            }
            Self::Replaced => {
                f.write_str("the stream was removed, and there is another one of its name")
            }
            Self::Machine(what) => f.write_str(what),
        }
    }
}

impl error::Error for Error {}

/// Why one attempt at one node failed.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Another attempt, or another node, may do it.
    Later(String),
    /// None will.
    Final(Error),
}

impl Trouble {
    /// Converts a node's error for the caller.
    pub(super) fn of(code: u16, position: u64, detail: &str, hint: &str) -> Self {
        match Code::of(code) {
            Some(
                Code::Busy | Code::NoQuorum | Code::Stopping | Code::Unavailable | Code::Uncertain,
            ) => Self::Later(detail.to_owned()),
            _ => Self::Final(Error::Refused(Refusal {
                code,
                position,
                detail: detail.to_owned(),
                hint: hint.to_owned(),
            })),
        }
    }

    /// Something else was said than what may be said now.
    pub(super) fn unexpected() -> Self {
        Self::Later("the node sent an unrequested message".to_owned())
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Later(error.to_string())
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Final(error)
    }
}
