//! Whether a node should lead. Liveness only: one that should not votes as well as it can.

/// What stands between a node and leading, as its caller sees it ([live-3]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fitness {
    /// Nothing.
    #[default]
    Fit,
    /// Nothing any more, since a short while: leadership is not brought to it.
    Settling,
    /// It writes its log, and its service takes no commands: it leads for as long as nobody is fit.
    CannotApply,
    /// Its log takes nothing more, or not in time. It could not even record a round: it does not
    /// campaign.
    CannotWrite,
}

impl Fitness {
    /// Whether a leader should hand over to somebody who is fit.
    pub const fn gives_way(self) -> bool {
        matches!(self, Self::CannotApply | Self::CannotWrite)
    }
}
