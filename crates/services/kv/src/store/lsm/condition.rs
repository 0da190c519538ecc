//! Health of the store on disk and of its disk.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Well,
    /// The writer waits for the disk. Commits continue in memory while the limit allows it.
    WaitingForDisk(String),
    /// The tree accepts no more writes, but remains readable.
    Failed(String),
    Closed(String),
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Well => f.write_str("the store is well"),
            Self::WaitingForDisk(why) => write!(f, "the store waits to write: {why}"),
            Self::Failed(why) => write!(f, "the store cannot write: {why}"),
            Self::Closed(why) => write!(f, "the store is not open: {why}"),
        }
    }
}
