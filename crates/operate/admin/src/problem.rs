//! Errors of measurement commands, each with a machine-readable code and a message.

use std::{fmt, io};

use crate::client::tls_remedy;

/// Kind of an error. It determines the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The request is invalid.
    Usage,
    /// The operation was refused, or it failed.
    Failed,
    /// No node responds, or the cluster has no leader.
    Unreachable,
}

/// Error for the user, with a suggested remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub kind: Kind,
    /// Machine-readable code: lower-case words joined by `_`.
    pub code: &'static str,
    pub message: String,
    /// Suggested remedy. May be empty.
    pub hint: String,
}

impl Problem {
    /// Creates an error without a hint.
    pub fn new(kind: Kind, code: &'static str, message: impl fmt::Display) -> Self {
        Self { kind, code, message: message.to_string(), hint: String::new() }
    }

    /// Creates an error about an invalid request.
    pub fn usage_error(message: impl fmt::Display) -> Self {
        Self::new(Kind::Usage, "bad_configuration", message)
    }

    /// Creates an error from an I/O error. `what` describes the failed operation.
    pub fn io_error(what: impl fmt::Display, error: &io::Error) -> Self {
        Self::new(Kind::Failed, "io", format_args!("{what}: {error}"))
    }

    /// Creates an error about an address at which no node responds.
    pub fn unreachable_node(address: &str, error: impl fmt::Display) -> Self {
        let what = format!("no node answers at {address}: {error}");
        let usual = "check that the node is running and that this is its --admin address";
        let hint = tls_remedy(&what).unwrap_or(usual);
        Self::new(Kind::Unreachable, "unreachable", what).with_hint(hint)
    }

    /// Sets the suggested remedy.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }
}

impl From<crate::look::NoResponse> for Problem {
    fn from(silent: crate::look::NoResponse) -> Self {
        let hint = silent.hint().to_owned();
        let (kind, code) = match silent.refusal {
            Some(_) => (Kind::Failed, "refused"),
            None => (Kind::Unreachable, "unreachable"),
        };
        Self::new(kind, code, silent).with_hint(hint)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}
