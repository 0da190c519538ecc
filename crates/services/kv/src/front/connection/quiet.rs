//! CLIENT REPLY: the replies that a client wants. Messages of subscriptions, and their
//! confirmations, are sent in any case, as in Redis.

/// The replies that a connection wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Quiet {
    /// All.
    #[default]
    No,
    /// All but the next.
    Once,
    /// None, until it says otherwise.
    Yes,
}

impl Quiet {
    /// Counts a request; returns whether its reply is suppressed.
    pub(super) const fn next(&mut self) -> bool {
        match self {
            Self::No => false,
            Self::Once => {
                *self = Self::No;
                true
            }
            Self::Yes => true,
        }
    }
}
