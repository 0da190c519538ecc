//! Programs that a device under test can run.

/// A program, or both at one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Acceptor, which votes.
    Acceptor,
    /// Coordinator, which proposes and counts votes.
    Coordinator,
    /// Both programs at one interface.
    Host,
}

impl Program {
    /// All programs.
    pub const ALL: [Self; 3] = [Self::Acceptor, Self::Coordinator, Self::Host];
    /// The individual programs.
    pub const APART: [Self; 2] = [Self::Acceptor, Self::Coordinator];

    /// Returns the name used in commands and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Acceptor => "acceptor",
            Self::Coordinator => "coordinator",
            Self::Host => "host",
        }
    }

    /// Returns the program with this name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|program| program.name() == name)
    }
}
