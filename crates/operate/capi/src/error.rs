//! Errors, each with a code for programs and three texts for people: what, detail and hint.

use quorate::{Failure, RequestError};

/// The codes of `quorate.h`, in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// The call succeeded.
    Ok = 0,
    /// An argument is invalid or the handle is closed.
    Invalid = 1,
    /// A value or buffer has the wrong size.
    Size = 2,
    /// Too many requests are waiting for an answer. The value was not submitted.
    Busy = 3,
    /// The retained values have reached their limit. The value was not submitted; trim first.
    Full = 4,
    /// The slot has been trimmed.
    Trimmed = 5,
    /// The call has timed out.
    Timeout = 6,
    /// The outcome is unknown. The request may have been executed, or may still be executed.
    Unknown = 7,
    /// No node can serve the request now. It was not executed.
    Unavailable = 8,
    /// The node has stopped or is stopping. The request was not executed.
    Stopped = 9,
    /// A call that excludes the current one is in progress.
    InUse = 10,
    /// The environment does not permit the call: for example, a folder, a port, another cluster or
    /// a setting prevents it.
    Refused = 11,
    /// Internal error: the library panicked.
    Panicked = 12,
}

impl Code {
    /// All codes, with their names in `quorate.h`.
    pub const ALL: [(Self, &'static str); 13] = [
        (Self::Ok, "QUORATE_OK"),
        (Self::Invalid, "QUORATE_INVALID"),
        (Self::Size, "QUORATE_SIZE"),
        (Self::Busy, "QUORATE_BUSY"),
        (Self::Full, "QUORATE_FULL"),
        (Self::Trimmed, "QUORATE_TRIMMED"),
        (Self::Timeout, "QUORATE_TIMEOUT"),
        (Self::Unknown, "QUORATE_UNKNOWN"),
        (Self::Unavailable, "QUORATE_UNAVAILABLE"),
        (Self::Stopped, "QUORATE_STOPPED"),
        (Self::InUse, "QUORATE_IN_USE"),
        (Self::Refused, "QUORATE_REFUSED"),
        (Self::Panicked, "QUORATE_PANICKED"),
    ];

    /// Returns the code numbered `number`; `None` if there is none.
    pub fn from_number(number: i32) -> Option<Self> {
        let mut codes = Self::ALL.into_iter().map(|(code, _)| code);
        codes.find(|code| *code as i32 == number)
    }

    /// Returns the default description of the code, for people.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Ok => "done",
            Self::Invalid => "an argument makes no sense",
            Self::Size => "the size is wrong",
            Self::Busy => "too much is open; not submitted",
            Self::Full => "too much is held; not submitted",
            Self::Trimmed => "the slot was forgotten",
            Self::Timeout => "not within the time given",
            Self::Unknown => "it may have been done, or may yet be",
            Self::Unavailable => "no node serves it now; not done",
            Self::Stopped => "the node has stopped; not done",
            Self::InUse => "another call is in progress",
            Self::Refused => "what is there does not allow it",
            Self::Panicked => "the library found itself wrong",
        }
    }
}

/// Error of a call, with a code and three texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Code for programs.
    pub code: Code,
    /// Description of what failed.
    pub what: String,
    /// Details, including the values involved.
    pub detail: String,
    /// Advice on what to do next; may be empty.
    pub hint: String,
}

impl Failed {
    /// Creates an error with the default description of its code and no advice.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, what: code.text().to_owned(), detail: detail.into(), hint: String::new() }
    }

    /// Adds advice on what to do next.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }
}

impl From<RequestError> for Failed {
    fn from(why: RequestError) -> Self {
        let code = match why.0 {
            Failure::Busy | Failure::SessionFull => Code::Busy,
            Failure::TooBig => Code::Size,
            Failure::Stopping => Code::Stopped,
            Failure::NoQuorum
            | Failure::Removed
            | Failure::Voteless
            | Failure::Unavailable
            | Failure::DiskFull(_)
            | Failure::Diverged
            | Failure::Stale
            | Failure::Overtaken
            | Failure::Level => Code::Unavailable,
            Failure::Unknown
            | Failure::NotLasting
            | Failure::NoSession
            | Failure::ReplyForgotten => Code::Unknown,
        };
        let failed = Self::new(code, why.to_string());
        match code {
            Code::Unknown | Code::Unavailable => failed.with_hint(
                "quorate_status says in \"error\" what is wrong with the node, such as a disk without room",
            ),
            _ => failed,
        }
    }
}

impl From<quorate::Error> for Failed {
    fn from(error: quorate::Error) -> Self {
        let code = match error.code {
            quorate::STOPPED_CODE => Code::Stopped,
            _ => Code::Refused,
        };
        Self::new(code, format!("{} ({})", error.message, error.code)).with_hint(error.hint)
    }
}
