//! Reasons for refusals, as sent to clients.

use std::borrow::Cow;

use quorate_access::{NotChecked, Role};
use quorate_replica::front::Failure;
use quorate_stream::{BadName, Denied, table::LocateError};
use quorate_wire::streams::{Answer, Code, Malformed, VERSION};

/// Refusal of a request, sent as an [`Answer::Error`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: Code,
    position: u64,
    detail: Cow<'static, str>,
    hint: &'static str,
}

impl Refusal {
    const fn of(code: Code, detail: &'static str, hint: &'static str) -> Self {
        Self { code, position: 0, detail: Cow::Borrowed(detail), hint }
    }

    pub(crate) const fn out_of_order(detail: &'static str) -> Self {
        Self::of(Code::OutOfOrder, detail, "docs/spec/streams-client.md has the order of frames")
    }

    pub(crate) fn version(theirs: u32) -> Self {
        Self {
            detail: format!("this node speaks version {VERSION}, not {theirs}").into(),
            ..Self::of(Code::Version, "", "use a client of the node's release")
        }
    }

    pub(crate) const fn unknown() -> Self {
        Self::of(Code::Unknown, "there is no such stream", "'quorate stream ls' lists the streams")
    }

    pub(crate) fn forbidden(who: &str, needs: Role) -> Self {
        Self {
            detail: format!("{who} lacks the role {needs}").into(),
            ..Self::of(
                Code::Forbidden,
                "",
                "an admin can grant it: quorate user set NAME --role ROLE",
            )
        }
    }

    pub(crate) const fn wrong_password() -> Self {
        Self::of(
            Code::WrongPassword,
            "no user has this name and password",
            "'quorate user list' shows the users and who has a password",
        )
    }

    pub(crate) const fn replaced() -> Self {
        Self::of(Code::Unknown, "the stream was deleted", "what was sent so far is complete")
    }

    pub(crate) fn trimmed(start: u64) -> Self {
        Self {
            position: start,
            detail: format!("the stream starts at position {start}: earlier bytes were trimmed")
                .into(),
            ..Self::of(Code::Trimmed, "", "read from there")
        }
    }

    pub(crate) fn behind_end(end: u64) -> Self {
        Self {
            position: end,
            detail: format!("the stream ends at position {end}").into(),
            ..Self::of(Code::BehindEnd, "", "choose a position up to there")
        }
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    pub(crate) fn answer(&self) -> Answer<'_> {
        Answer::Error {
            code: self.code.number(),
            position: self.position,
            detail: &self.detail,
            hint: self.hint,
        }
    }
}

impl From<NotChecked> for Refusal {
    fn from(why: NotChecked) -> Self {
        match why {
            NotChecked::Never => Self::of(
                Code::Unavailable,
                "this node does not accept passwords",
                "ask another node, or use a certificate",
            ),
            NotChecked::Busy => Self::of(
                Code::Busy,
                "too many passwords are being checked",
                "try again in a moment",
            ),
        }
    }
}

impl From<Malformed> for Refusal {
    fn from(malformed: Malformed) -> Self {
        Self {
            detail: format!("not a frame of the byte stream protocol: {malformed}").into(),
            ..Self::of(
                Code::Malformed,
                "",
                "this port is for byte streams (--stream); use the --client port for commands",
            )
        }
    }
}

impl From<BadName> for Refusal {
    fn from(bad: BadName) -> Self {
        Self { detail: bad.to_string().into(), ..Self::of(Code::Name, "", "choose another name") }
    }
}

impl From<LocateError> for Refusal {
    fn from(nowhere: LocateError) -> Self {
        match nowhere {
            LocateError::Unknown => Self::unknown(),
            LocateError::Trimmed { start } => Self::trimmed(start),
            LocateError::BehindEnd { end, .. } => Self::behind_end(end),
        }
    }
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Self {
        let (code, hint) = match denied {
            Denied::Unknown => return Self::unknown(),
            Denied::PastEnd { end } => return Self::behind_end(end),
            Denied::Exists => (Code::Exists, "append to it, resume it, or choose another name"),
            Denied::Finished => (Code::Finished, "choose another name"),
            Denied::InUse => (
                Code::InUse,
                "wait until it is closed, or take it over, which locks out the other writer permanently",
            ),
            Denied::Fenced => (Code::Fenced, "this writer can no longer append"),
            Denied::TooManyStreams => (Code::TooManyStreams, "remove some"),
            Denied::TooManyPieces => (Code::TooManyPieces, "trim it, or choose another name"),
            // The owner chooses the piece and makes the command, so a retry makes another one.
            Denied::Malformed | Denied::Reused => (Code::Unavailable, "try again"),
        };
        Self { detail: denied.to_string().into(), ..Self::of(code, "", hint) }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        let (code, detail, hint) = match failure {
            Failure::Busy | Failure::Stale | Failure::Overtaken => {
                (Code::Busy, "the node is overloaded; nothing was done", "try again in a moment")
            }
            Failure::NoQuorum => (
                Code::NoQuorum,
                "no leader was found in time; nothing was done",
                "'quorate status' shows which nodes are missing",
            ),
            Failure::Stopping => {
                (Code::Stopping, "the node is stopping; nothing was done", "ask another node")
            }
            Failure::Removed => (
                Code::Stopping,
                "this node was removed from the cluster; nothing was done",
                "ask another node",
            ),
            Failure::Voteless => (
                Code::Stopping,
                "this node cannot vote, since its log failed, or its device does not answer or lost votes; nothing was done",
                "ask another node; 'quorate status' says which it is",
            ),
            Failure::Unavailable => (
                Code::Unavailable,
                "this node cannot serve byte streams at the moment; nothing was done",
                "ask another node",
            ),
            Failure::DiskFull(_) => (
                Code::Unavailable,
                "a disk is full; nothing was done",
                "`quorate status` shows which; free space on it",
            ),
            Failure::Diverged => (
                Code::Unavailable,
                "this node and others have different data, and this one may be wrong; nothing was done",
                "ask another node, and see docs/operate/divergence.md",
            ),
            Failure::Level => (
                Code::Unavailable,
                "it needs a feature level that the cluster does not use yet; nothing was done",
                "upgrade all nodes, then `quorate member feature --raise`",
            ),
            // No request about streams waits for more than the group's class.
            Failure::Unknown
            | Failure::NotLasting
            | Failure::TooBig
            | Failure::NoSession
            | Failure::ReplyForgotten
            | Failure::SessionFull => (
                Code::Uncertain,
                "the outcome is unknown: it may have been done",
                "check the stream before trying again",
            ),
        };
        Self::of(code, detail, hint)
    }
}
