//! Identities: node ids, incarnations, and the pair that carries weight.

use core::fmt;

/// Maximum number of peers that a node tracks. It ignores further peers.
pub const PEERS_MAX: usize = 64;

/// Id of a node, a process with an identity that is never reused. Node ids start at 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// Number of times that a node may have forgotten a vote or a promise ([volatile-1]).
///
/// A node that restarts with a new incarnation is a new member. It cannot contradict statements of
/// its earlier incarnation, because its own statements do not count for the earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u32);

/// ⟨node, incarnation⟩: the identity that has weight in a configuration, and whose votes count
/// ([class-4]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// Id of the node, the same in all its incarnations.
    pub node: NodeId,
    /// Current incarnation of the node.
    pub incarnation: Incarnation,
}

impl Member {
    /// Returns the member that is the first incarnation of a node.
    pub const fn first(node: u32) -> Self {
        Self { node: NodeId(node), incarnation: Incarnation(0) }
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.incarnation.0 {
            0 => self.node.fmt(f),
            later => write!(f, "{}'{later}", self.node),
        }
    }
}
