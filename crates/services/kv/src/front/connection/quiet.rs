//! CLIENT REPLY: suppresses replies. As in Redis, messages and subscription confirmations are
//! always sent.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Quiet {
    #[default]
    No,
    /// The next reply is suppressed.
    Once,
    /// All replies are suppressed.
    Yes,
}

impl Quiet {
    /// Returns whether to suppress the reply to the next request. Ends [`Self::Once`].
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
