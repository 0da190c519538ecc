//! CLIENT REPLY: the replies that a client wants. Messages and confirmations of subscriptions are
//! sent in any case, as in Redis.

/// Suppression of replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Quiet {
    /// All replies are sent.
    #[default]
    No,
    /// The next reply is suppressed.
    Once,
    /// Replies are suppressed until the client turns them on.
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
