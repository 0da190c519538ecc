//! Fitness of a node to lead. Liveness only: an unfit node still votes as well as it can.

/// A node's fitness to lead, as judged by its caller ([live-3], [live-6]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fitness {
    /// The node can lead.
    #[default]
    Fit,
    /// The node has been fit for a short time only; leadership is not transferred to it yet.
    Settling,
    /// The node has much to apply that is already decided. It leads only while no other node is
    /// closer.
    FarBehind,
    /// The node writes its log, but its service accepts no commands. It leads only while no other
    /// node is fit.
    CannotApply,
    /// The node's log does not accept writes, or not in time. The node could not even record a
    /// round, so it does not campaign.
    CannotWrite,
}

impl Fitness {
    /// Returns whether this node should hand leadership to a fit node, and campaign only after
    /// others.
    pub const fn gives_way(self) -> bool {
        matches!(self, Self::FarBehind | Self::CannotApply | Self::CannotWrite)
    }

    /// Returns whether the node accepts a leader's request to take over.
    pub const fn takes_over(self) -> bool {
        !matches!(self, Self::CannotApply | Self::CannotWrite)
    }
}
