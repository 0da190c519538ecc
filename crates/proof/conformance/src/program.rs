//! Which of the programs a device under test runs.

/// Which program, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Votes.
    Acceptor,
    /// Proposes and counts.
    Coordinator,
    /// Both, at one interface.
    Host,
}

impl Program {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Acceptor, Self::Coordinator, Self::Host];
    /// Programs of every device.
    pub const APART: [Self; 2] = [Self::Acceptor, Self::Coordinator];

    /// As commands and files have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Acceptor => "acceptor",
            Self::Coordinator => "coordinator",
            Self::Host => "host",
        }
    }

    /// By its name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|program| program.name() == name)
    }
}
