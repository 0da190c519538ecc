//! Errors of a command that got no reply, with whether it may have been executed.

use std::fmt;

/// Reason why a command has no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The service rejected the command, e.g. because of its type, number of arguments or size.
    /// Nothing was executed, and a retry would be rejected as well.
    Refused(String),
    /// The deadline passed, and the command was **not** executed. Contains the last failure.
    NotExecuted(String),
    /// The deadline passed. The command may have been executed, or may still be executed.
    UnknownOutcome(String),
    /// The session expired. The next command registers a new one.
    SessionLost {
        /// The command was sent in the expired session without a reply, so it must not be repeated
        /// in a new one ([session-4]).
        may_have_run: bool,
    },
    /// The command was executed, but its reply is no longer stored.
    ReplyForgotten,
    /// [`crate::client::OUTSTANDING_MAX`] commands are outstanding. Receive a reply first.
    TooManyOutstanding,
    /// No command is outstanding.
    NoneOutstanding,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(text) => f.write_str(text),
            Self::NotExecuted(text) => write!(f, "not executed: {text}"),
            Self::UnknownOutcome(text) => write!(f, "may have been executed: {text}"),
            Self::SessionLost { may_have_run: true } => {
                f.write_str("the session has expired; the command may have been executed in it")
            }
            Self::SessionLost { may_have_run: false } => {
                f.write_str("the session has expired; the command was not executed")
            }
            Self::ReplyForgotten => f.write_str("executed, but the reply is not kept any more"),
            Self::TooManyOutstanding => {
                f.write_str("too many commands are open; receive a reply first")
            }
            Self::NoneOutstanding => f.write_str("no command is open"),
        }
    }
}

impl std::error::Error for Error {}
