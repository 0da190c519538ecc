//! Why something was not done: a code for programs, and what, detail and hint for people.

use quorate::{Failure, NotDone};

/// The codes of `quorate.h`, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// Done.
    Ok = 0,
    /// An argument makes no sense, or a handle is closed.
    Invalid = 1,
    /// A value, or a buffer, has the wrong size.
    Size = 2,
    /// Too much is open; not submitted.
    Busy = 3,
    /// Too much is held; not submitted before something is trimmed.
    Full = 4,
    /// The slot was forgotten.
    Trimmed = 5,
    /// Not within the time given.
    Timeout = 6,
    /// It may have been done, or may yet be.
    Unknown = 7,
    /// No node serves it now; not done.
    Unavailable = 8,
    /// The node has stopped, or is stopping; not done.
    Stopped = 9,
    /// Another call that excludes this one is in progress.
    InUse = 10,
    /// The environment does not allow it: a folder, a port, another cluster, a setting.
    Refused = 11,
    /// The library found itself wrong.
    Panicked = 12,
}

impl Code {
    /// All of them, with their names in `quorate.h`.
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

    /// The one with this number.
    pub fn of(number: i32) -> Option<Self> {
        let mut codes = Self::ALL.into_iter().map(|(code, _)| code);
        codes.find(|code| *code as i32 == number)
    }

    /// For people: what it says by itself.
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

/// One clear error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// For programs.
    pub code: Code,
    /// Description of the failure.
    pub what: String,
    /// With which values.
    pub detail: String,
    /// Advice; may be empty.
    pub hint: String,
}

impl Failed {
    /// Creates a failure with the usual words of its code.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, what: code.text().to_owned(), detail: detail.into(), hint: String::new() }
    }

    /// With what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }
}

impl From<NotDone> for Failed {
    fn from(why: NotDone) -> Self {
        let code = match why.0 {
            Failure::Busy | Failure::SessionFull => Code::Busy,
            Failure::TooBig => Code::Size,
            Failure::Stopping => Code::Stopped,
            Failure::NoQuorum
            | Failure::Voteless
            | Failure::Unavailable
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
            Code::Unknown | Code::Unavailable => failed.hint(
                "quorate_status says in \"error\" what is wrong with the node, such as a disk without room",
            ),
            _ => failed,
        }
    }
}

impl From<quorate::Error> for Failed {
    fn from(error: quorate::Error) -> Self {
        let code = match error.code {
            quorate::STOPPED => Code::Stopped,
            _ => Code::Refused,
        };
        Self::new(code, format!("{} ({})", error.message, error.code)).hint(error.hint)
    }
}
