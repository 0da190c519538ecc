//! Reasons for refusals, as sent to clients.

use std::borrow::Cow;

use quorate_access::{NotChecked, Role};
use quorate_replica::front::Failure;
use quorate_stream::{BadName, Denied, table::LocateError};
use quorate_wire::streams::{ErrorCode, Malformed, NodeFrame, VERSION};

/// Refusal of a request, sent as a [`NodeFrame::Error`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: ErrorCode,
    position: u64,
    detail: Cow<'static, str>,
    hint: &'static str,
}

impl Refusal {
    const fn with_code(code: ErrorCode, detail: &'static str, hint: &'static str) -> Self {
        Self { code, position: 0, detail: Cow::Borrowed(detail), hint }
    }

    pub(crate) const fn out_of_order(detail: &'static str) -> Self {
        Self::with_code(
            ErrorCode::OutOfOrder,
            detail,
            "docs/spec/streams-client.md has the order of frames",
        )
    }

    pub(crate) fn unsupported_version(theirs: u32) -> Self {
        Self {
            detail: format!("this node speaks version {VERSION}, not {theirs}").into(),
            ..Self::with_code(ErrorCode::Version, "", "use a client of the node's release")
        }
    }

    pub(crate) const fn unknown_stream() -> Self {
        Self::with_code(
            ErrorCode::Unknown,
            "there is no such stream",
            "'quorate stream ls' lists the streams",
        )
    }

    pub(crate) fn forbidden(who: &str, needs: Role) -> Self {
        Self {
            detail: format!("{who} lacks the role {needs}").into(),
            ..Self::with_code(
                ErrorCode::Forbidden,
                "",
                "an admin can grant it: quorate user set NAME --role ROLE",
            )
        }
    }

    pub(crate) const fn wrong_password() -> Self {
        Self::with_code(
            ErrorCode::WrongPassword,
            "no user has this name and password",
            "'quorate user list' shows the users and who has a password",
        )
    }

    pub(crate) const fn stream_deleted() -> Self {
        Self::with_code(
            ErrorCode::Unknown,
            "the stream was deleted",
            "what was sent so far is complete",
        )
    }

    pub(crate) fn trimmed(start: u64) -> Self {
        Self {
            position: start,
            detail: format!("the stream starts at position {start}: earlier bytes were trimmed")
                .into(),
            ..Self::with_code(ErrorCode::Trimmed, "", "read from there")
        }
    }

    pub(crate) fn beyond_end(end: u64) -> Self {
        Self {
            position: end,
            detail: format!("the stream ends at position {end}").into(),
            ..Self::with_code(ErrorCode::PastEnd, "", "choose a position up to there")
        }
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    pub(crate) fn to_answer(&self) -> NodeFrame<'_> {
        NodeFrame::Error {
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
            NotChecked::Never => Self::with_code(
                ErrorCode::Unavailable,
                "this node does not accept passwords",
                "ask another node, or use a certificate",
            ),
            NotChecked::Busy => Self::with_code(
                ErrorCode::Busy,
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
            ..Self::with_code(
                ErrorCode::Malformed,
                "",
                "this port is for byte streams (--stream); use the --client port for commands",
            )
        }
    }
}

impl From<BadName> for Refusal {
    fn from(bad: BadName) -> Self {
        Self {
            detail: bad.to_string().into(),
            ..Self::with_code(ErrorCode::Name, "", "choose another name")
        }
    }
}

impl From<LocateError> for Refusal {
    fn from(nowhere: LocateError) -> Self {
        match nowhere {
            LocateError::Unknown => Self::unknown_stream(),
            LocateError::Trimmed { start } => Self::trimmed(start),
            LocateError::PastEnd { end, .. } => Self::beyond_end(end),
        }
    }
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Self {
        let (code, hint) = match denied {
            Denied::Unknown => return Self::unknown_stream(),
            Denied::PastEnd { end } => return Self::beyond_end(end),
            Denied::Exists => {
                (ErrorCode::Exists, "append to it, resume it, or choose another name")
            }
            Denied::Finished => (ErrorCode::Finished, "choose another name"),
            Denied::InUse => (
                ErrorCode::InUse,
                "wait until it is closed, or take it over, which locks out the other writer permanently",
            ),
            Denied::Fenced => (ErrorCode::Fenced, "this writer can no longer append"),
            Denied::TooManyStreams => (ErrorCode::TooManyStreams, "remove some"),
            Denied::TooManyPieces => (ErrorCode::TooManyPieces, "trim it, or choose another name"),
            // The owner chooses the piece and makes the command, so a retry makes another one.
            Denied::Malformed | Denied::InnerStreamReused => (ErrorCode::Unavailable, "try again"),
        };
        Self { detail: denied.to_string().into(), ..Self::with_code(code, "", hint) }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        let (code, detail, hint) = match failure {
            Failure::Busy | Failure::Stale | Failure::Overtaken => (
                ErrorCode::Busy,
                "the node is overloaded; nothing was done",
                "try again in a moment",
            ),
            Failure::NoQuorum => (
                ErrorCode::NoQuorum,
                "no leader was found in time; nothing was done",
                "'quorate status' shows which nodes are missing",
            ),
            Failure::Stopping => {
                (ErrorCode::Stopping, "the node is stopping; nothing was done", "ask another node")
            }
            Failure::Removed => (
                ErrorCode::Stopping,
                "this node was removed from the cluster; nothing was done",
                "ask another node",
            ),
            Failure::Voteless => (
                ErrorCode::Stopping,
                "this node cannot vote, since its log failed, or its device does not answer or lost votes; nothing was done",
                "ask another node; 'quorate status' says which it is",
            ),
            Failure::Unavailable => (
                ErrorCode::Unavailable,
                "this node cannot serve byte streams at the moment; nothing was done",
                "ask another node",
            ),
            Failure::DiskFull(_) => (
                ErrorCode::Unavailable,
                "a disk is full; nothing was done",
                "`quorate status` shows which; free space on it",
            ),
            Failure::Diverged => (
                ErrorCode::Unavailable,
                "this node and others have different data, and this one may be wrong; nothing was done",
                "ask another node, and see docs/operate/divergence.md",
            ),
            Failure::Level => (
                ErrorCode::Unavailable,
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
                ErrorCode::Uncertain,
                "the outcome is unknown: it may have been done",
                "check the stream before trying again",
            ),
        };
        Self::with_code(code, detail, hint)
    }
}
