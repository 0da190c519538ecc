//! Durability classes of votes and groups ([class-1]).

/// Durability of a vote, and the durability that a group's quorums require ([class-1]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// The vote is in the node's memory.
    Volatile,
    /// The vote is on stable storage.
    #[default]
    Durable,
}

impl Class {
    /// Returns the name used in files, flags and documents: `durable` or `volatile`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Durable => "durable",
            Self::Volatile => "volatile",
        }
    }
}
