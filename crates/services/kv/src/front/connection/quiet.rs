//! CLIENT REPLY: suppresses replies. As in Redis, messages and subscription confirmations are
//! always sent.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ReplyMode {
    #[default]
    On,
    /// The next reply is suppressed.
    SkipNext,
    /// All replies are suppressed.
    Off,
}

impl ReplyMode {
    /// Returns whether to suppress the reply to the next request. Ends [`Self::SkipNext`].
    pub(super) const fn next(&mut self) -> bool {
        match self {
            Self::On => false,
            Self::SkipNext => {
                *self = Self::On;
                true
            }
            Self::Off => true,
        }
    }
}
