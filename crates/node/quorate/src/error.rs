//! Errors of starting a node, each with a code, a message and a hint.

use std::{fmt, io};

use quorate_log::LogError;
use quorate_net::BindError;
use quorate_node::{boot::BootError, founding::JoiningError, identity::IdentityError};
use quorate_wire::RefusalCode;

/// Code of the error for a start that was aborted on request.
pub const STOPPED_CODE: &str = "stopped";

/// An error, with a code for programs and a message for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Code for programs: lower-case words joined by `_`.
    pub code: &'static str,
    /// Description of the problem, for people.
    pub message: String,
    /// Advice on how to fix the problem; may be empty.
    pub hint: String,
}

impl Error {
    pub(crate) fn new(code: &'static str, message: impl fmt::Display) -> Self {
        Self { code, message: message.to_string(), hint: String::new() }
    }

    pub(crate) fn from_io(what: impl fmt::Display, error: &io::Error) -> Self {
        Self::new("io", format_args!("{what}: {error}"))
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, " (hint: {})", self.hint) }
    }
}

impl std::error::Error for Error {}

impl From<IdentityError> for Error {
    fn from(error: IdentityError) -> Self {
        let code = match error {
            IdentityError::Io { .. } => "io",
            IdentityError::InUse { .. } => "folder_in_use",
            IdentityError::Foreign { .. } => "foreign_folder",
            IdentityError::Missing { .. } => "no_node",
            IdentityError::AlreadyExists { .. } => "node_exists",
            IdentityError::Damaged { .. } => "damaged_identity",
            IdentityError::NewerRelease { .. } => "newer_format",
            IdentityError::LevelUnsupported { .. } => "level_too_high",
            IdentityError::Mismatch { .. } => "mismatch",
            IdentityError::AlreadyAdmitted { .. } => "already_admitted",
            IdentityError::Removed { .. } => "removed",
            IdentityError::TooManyNodes => "too_many_nodes",
            IdentityError::CounterExhausted(_) => "exhausted",
        };
        Self::new(code, &error).hint(error.hint())
    }
}

impl From<LogError> for Error {
    fn from(error: LogError) -> Self {
        let code = match error {
            LogError::ForeignLog { .. } => "foreign_folder",
            LogError::Newer { .. } | LogError::NewerBase { .. } => "newer_format",
            LogError::Damaged { .. } | LogError::BaseDamaged { .. } => "damaged_log",
            _ => "log",
        };
        Self::new(code, &error).hint(error.hint())
    }
}

impl From<JoiningError> for Error {
    fn from(error: JoiningError) -> Self {
        match &error {
            JoiningError::Identity(error) => error.clone().into(),
            JoiningError::SettingDiffers { setting: what, founder_value: theirs, .. } => {
                let hint = format!("leave --{what} out, or set it to {theirs}");
                Self::new("mismatch", &error).hint(hint)
            }
        }
    }
}

impl From<BootError> for Error {
    fn from(error: BootError) -> Self {
        match error {
            BootError::Identity(error) => error.into(),
            BootError::Log(error) => error.into(),
            BootError::InvalidMembers(_) => Self::new("damaged_identity", error)
                .hint("keep the folder, and let the other nodes continue without this one"),
            BootError::Replica(error) => {
                Self::new("cannot_recover", error).hint("run `quorate log verify` on the folder")
            }
            BootError::FarBehind { .. } => Self::new("far_behind", error).hint(
                "if the other node is right, replace this one: `quorate member replace`, with an empty folder",
            ),
            BootError::NoRoom => Self::new(STOPPED_CODE, "stopped while it waited for room on the disk"),
        }
    }
}

impl From<BindError> for Error {
    fn from(error: BindError) -> Self {
        let code = if error.reason.is_in_use() { "port_in_use" } else { "cannot_listen" };
        Self::new(code, &error).hint(error.reason.hint())
    }
}

pub(crate) fn join_refused(code: RefusalCode, reason: &str) -> Error {
    let hint = match code {
        RefusalCode::ListDiffers => "give all nodes the same --cluster",
        RefusalCode::UnknownNode => "the founder's --cluster must list this node",
        RefusalCode::NotFounder => "the lowest id of --cluster must be the node that founded it",
        RefusalCode::DuplicateNode => "bring back this node's own folder, or use another id",
        RefusalCode::Version => "run the same version on all nodes",
        RefusalCode::NodeRemoved => "use an empty folder, and join under a new id",
        RefusalCode::ForeignCluster
        | RefusalCode::WrongNode
        | RefusalCode::NotFounded
        | RefusalCode::UnexpectedFrame
        | RefusalCode::NotServingYet
        | RefusalCode::Other(_) => "check --cluster",
    };
    Error::new("join_refused", format_args!("the founder refused this node: {reason}")).hint(hint)
}
