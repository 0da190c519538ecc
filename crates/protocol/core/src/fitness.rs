//! Fitness of a node to lead. Liveness only: an unfit node still votes as well as it can.

/// Obstacles between a node and leading, as its caller sees them ([live-3], [live-6]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fitness {
    /// Nothing.
    #[default]
    Fit,
    /// Nothing any more, since a short while: leadership is not brought to it.
    Settling,
    /// Much that is decided is not applied here yet: it leads for as long as no other node is
    /// nearer.
    FarBehind,
    /// The node writes its log, and its service takes no commands: it leads for as long as no other
    /// node is fit.
    CannotApply,
    /// Its log takes nothing more, or not in time. It could not even record a round: it does not
    /// campaign.
    CannotWrite,
}

impl Fitness {
    /// Returns whether a leader should hand over to a node that is fit, and stands last.
    pub const fn gives_way(self) -> bool {
        matches!(self, Self::FarBehind | Self::CannotApply | Self::CannotWrite)
    }

    /// Returns whether a node leads when the leader asks it to.
    pub const fn takes_over(self) -> bool {
        !matches!(self, Self::CannotApply | Self::CannotWrite)
    }
}
