//! Errors of a node's home, each with a message, a detail and a hint.

use std::{error::Error, fmt, io, path::PathBuf};

use quorate_core::{level::Level, node_id::NodeId};
use quorate_log::disk::{DiskError, is_full};

/// Maximum number of founding members and of admitted nodes. It limits how much data
/// unauthenticated nodes can cause a folder to store.
pub(super) const NODES_MAX: usize = 1024;

/// Reason why a folder cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityError {
    /// An operation on a file failed.
    Io { detail: String, kind: io::ErrorKind },
    /// The folder is in use by another process.
    InUse { folder: PathBuf },
    /// The folder contains the file or folder `found_entry`, which does not belong to a node.
    Foreign { folder: PathBuf, found_entry: String },
    /// The folder contains no identity.
    Missing { folder: PathBuf },
    /// The folder already contains an identity.
    AlreadyExists { folder: PathBuf },
    /// A file of the identity is damaged.
    Damaged { file: PathBuf, reason: String },
    /// The file was written by a newer release.
    NewerRelease { file: PathBuf },
    /// [level-8] The contents of the folder need a newer release.
    LevelUnsupported { file: PathBuf, level: Level, supported_level: Level },
    /// The folder has another value of `setting` than the command line.
    Mismatch { setting: &'static str, stored: String, configured: String },
    /// [era-11] The node id was admitted with another nonce. The folder that used it was lost or
    /// replaced, so votes may be forgotten.
    AlreadyAdmitted { node: NodeId },
    /// [member-1] The node was removed from its group.
    Removed { folder: PathBuf, node: NodeId },
    /// The founder has already admitted the maximum number of nodes.
    TooManyNodes,
    /// A counter, named by the text, is exhausted.
    CounterExhausted(&'static str),
}

impl IdentityError {
    /// Returns whether the cause is a lack of disk space, so that a retry may succeed.
    pub const fn is_full(&self) -> bool {
        matches!(self, Self::Io { kind, .. } if is_full(*kind))
    }

    /// Returns advice for the operator on how to fix the problem.
    pub fn hint(&self) -> String {
        match self {
            Self::Io { .. } => "check that the folder exists, is writable and has room, and that the \
                                process may open more files (ulimit -n)"
                .into(),
            Self::InUse { .. } => "stop the other process, or use another --data folder".into(),
            Self::Foreign { .. } => "use an empty folder, or one created by quorate".into(),
            Self::Missing { .. } => "start a new node with --node and --cluster".into(),
            Self::AlreadyExists { .. } => "start without --cluster, or use an empty folder".into(),
            Self::Damaged { .. } => {
                "keep the folder, and let the other nodes continue without this one: an older copy \
                 of the file would use numbers again that were used already"
                    .into()
            }
            Self::NewerRelease { .. } => "start the newer version of the program".into(),
            Self::LevelUnsupported { .. } => "install the release that the other nodes of the cluster run: a cluster never goes \
                                   back to a lower level, and nothing in the folder was changed"
                .into(),
            Self::Mismatch { setting: what, stored, .. } => {
                format!("leave --{what} out or set it to {stored}, or use another --data folder")
            }
            Self::AlreadyAdmitted { node } => {
                format!("bring back the folder of node {node}, or let it join under a new id")
            }
            Self::Removed { .. } => "its data is not needed any more: to run a node here again, let it join \
                                     with an empty folder, under a new id (quorate start --data DIR --join ADMIN)"
                .into(),
            Self::TooManyNodes => "remove nodes, or found a new cluster".into(),
            Self::CounterExhausted(_) => "replace the node under a new id".into(),
        }
    }
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { detail, .. } => f.write_str(detail),
            Self::InUse { folder } => {
                write!(f, "{}: another process is using this folder", folder.display())
            }
            Self::Foreign { folder, found_entry: found } => {
                write!(f, "{}: not a quorate data folder: {found}", folder.display())
            }
            Self::Missing { folder } => {
                write!(f, "{}: this folder has no node yet", folder.display())
            }
            Self::AlreadyExists { folder } => {
                write!(f, "{}: this folder already has a node", folder.display())
            }
            Self::Damaged { file, reason } => write!(f, "{}: {reason}", file.display()),
            Self::NewerRelease { file } => {
                write!(f, "{}: written by a newer version of the program", file.display())
            }
            Self::LevelUnsupported { file, level, supported_level: supports } => write!(
                f,
                "{}: this folder needs level {level}, and this release supports {supports} at most",
                file.display()
            ),
            Self::Mismatch { setting: what, stored, configured: asked } => {
                write!(f, "this folder has {what} {stored}, not {asked}")
            }
            Self::AlreadyAdmitted { node } => {
                write!(f, "node {node} was admitted with another folder than this one")
            }
            Self::Removed { folder, node } => {
                write!(f, "node {node} of {} was removed from its cluster", folder.display())
            }
            Self::TooManyNodes => write!(f, "more than {NODES_MAX} nodes"),
            Self::CounterExhausted(what) => write!(f, "the {what} counter is used up"),
        }
    }
}

impl Error for IdentityError {}

impl From<DiskError> for IdentityError {
    fn from(error: DiskError) -> Self {
        Self::Io { kind: error.kind, detail: error.to_string() }
    }
}
