//! Programs that a device under test can run.

/// A program, or both programs together at one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Program that votes.
    Acceptor,
    /// Program that proposes values and counts votes.
    Coordinator,
    /// Both programs together at one interface.
    Host,
}

impl Program {
    /// All programs, including the combination.
    pub const ALL: [Self; 3] = [Self::Acceptor, Self::Coordinator, Self::Host];
    /// The two individual programs.
    pub const SINGLE: [Self; 2] = [Self::Acceptor, Self::Coordinator];

    /// Returns the name that commands and files use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Acceptor => "acceptor",
            Self::Coordinator => "coordinator",
            Self::Host => "host",
        }
    }

    /// Returns the program called `name`, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|program| program.name() == name)
    }
}
