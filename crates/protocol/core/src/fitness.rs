//! Fitness of a node to lead. Fitness affects liveness only: an unfit node still votes as well as
//! it can.

/// A node's fitness to lead, as assessed by its caller ([live-3], [live-6]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fitness {
    /// The node can lead.
    #[default]
    Fit,
    /// The node has become fit only recently, so leadership is not transferred to it yet.
    Settling,
    /// The node has many decided slots left to apply. It leads only while no other node has fewer
    /// left.
    FarBehind,
    /// The node writes its log, but its service accepts no commands. It leads only while no other
    /// node is fit.
    CannotApply,
    /// The node's log accepts no writes, or accepts them too late. The node does not campaign,
    /// because it could not even record a round.
    CannotWrite,
}

impl Fitness {
    /// Returns whether this node should hand leadership to a fit node, and should campaign only
    /// after other nodes have had the chance.
    pub const fn should_hand_over(self) -> bool {
        matches!(self, Self::FarBehind | Self::CannotApply | Self::CannotWrite)
    }

    /// Returns whether the node accepts a leader's request to take over.
    pub const fn takes_over(self) -> bool {
        !matches!(self, Self::CannotApply | Self::CannotWrite)
    }
}
