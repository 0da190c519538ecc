//! Identities: node ids, incarnations, and the pair that holds weight.

use core::fmt;

/// Most peers that a node keeps track of; more are not talked to.
pub const PEERS_MAX: usize = 64;

/// A process with an identity that is never reused. Node ids start at 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// Counts the times that a node may have forgotten a vote or a promise ([volatile-1]).
///
/// A node that restarts with a new incarnation is a new member: it may not contradict statements of
/// its earlier incarnation, because none of its statements count for that one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u32);

/// ⟨node, incarnation⟩: what a configuration gives weight to, and whose votes count ([class-4]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// The node.
    pub node: NodeId,
    /// The node's life, counted in losses of memory.
    pub incarnation: Incarnation,
}

impl Member {
    /// Returns the first incarnation of a node.
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
