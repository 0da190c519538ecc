//! Safety classes of statements ([class-1]).

/// Safety of a vote, and the safety that a group's quorums need ([class-1]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// In the memory of the node.
    Volatile,
    /// On stable storage.
    #[default]
    Durable,
}

impl Class {
    /// Returns the name in files, flags and documents: `durable` or `volatile`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Durable => "durable",
            Self::Volatile => "volatile",
        }
    }
}
