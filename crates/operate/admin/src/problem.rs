//! Why a measurement has no result: for programs and for people.

use std::{fmt, io};

/// Kind of a problem, by who has to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The request makes no sense.
    Usage,
    /// Refused, or failed.
    Failed,
    /// No node answers, or none leads.
    Unreachable,
}

/// One error: what happened, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub kind: Kind,
    /// For programs: lower-case words joined by `_`.
    pub code: &'static str,
    /// For people.
    pub message: String,
    /// Advice; may be empty.
    pub hint: String,
}

impl Problem {
    /// One of this kind.
    pub fn new(kind: Kind, code: &'static str, message: impl fmt::Display) -> Self {
        Self { kind, code, message: message.to_string(), hint: String::new() }
    }

    /// Creates a problem for a request that makes no sense.
    pub fn usage(message: impl fmt::Display) -> Self {
        Self::new(Kind::Usage, "bad_configuration", message)
    }

    /// The operating system refused.
    pub fn io(what: impl fmt::Display, error: &io::Error) -> Self {
        Self::new(Kind::Failed, "io", format_args!("{what}: {error}"))
    }

    /// No node answers there.
    pub fn unreachable(address: &str, error: impl fmt::Display) -> Self {
        let what = format_args!("no node answers at {address}: {error}");
        Self::new(Kind::Unreachable, "unreachable", what)
            .hint("check that the node is running and that this is its --admin address")
    }

    /// The same with a hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }
}

impl From<crate::look::Silent> for Problem {
    fn from(silent: crate::look::Silent) -> Self {
        Self::new(Kind::Unreachable, "unreachable", silent)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}
