//! CLIENT REPLY: which replies to suppress. As in Redis, messages and confirmations of
//! subscriptions are always sent.

/// Suppression of replies, as set by CLIENT REPLY.
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
    /// Counts a request and returns whether to suppress its reply.
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
