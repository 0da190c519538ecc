//! A small set of nodes without allocation: the receivers of a message.

use core::fmt;

use crate::{configuration::MEMBERS_MAX, node_id::NodeId};

/// Maximum size of a set: the number of other members in the largest configuration.
pub const NODES_MAX: usize = MEMBERS_MAX - 1;

/// A small set of nodes, sorted by id.
///
/// The set is an array of ids rather than a mask over a member list. A message may go to nodes that
/// are not members or that belong to another era, and a consumer of the set (an event log, a plane,
/// a model) has no member list. A set can hold a whole group. A message to more nodes is sent in
/// several parts.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeSet {
    /// Ids of the nodes. Entries at `len` and beyond are zero, so that equal sets compare equal.
    nodes: [NodeId; NODES_MAX],
    len: u8,
}

impl NodeSet {
    /// Creates a set of one node.
    pub fn one(node: NodeId) -> Self {
        let mut set = Self { nodes: [NodeId(0); NODES_MAX], len: 1 };
        set.nodes[0] = node;
        set
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether the set has reached its maximum size.
    pub fn is_full(&self) -> bool {
        self.len() == NODES_MAX
    }

    /// Returns whether this node is in the set.
    pub fn contains(&self, node: NodeId) -> bool {
        self.as_slice().contains(&node)
    }

    /// Adds a node. Returns `false` if the set is full and does not contain the node.
    #[must_use]
    #[inline]
    pub fn insert(&mut self, node: NodeId) -> bool {
        // Senders usually add peers in order.
        let last = self.as_slice().last();
        if !self.is_full() && last.is_none_or(|last| *last < node) {
            self.nodes[self.len()] = node;
            self.len += 1;
            return true;
        }
        self.insert_sorted(node)
    }

    fn insert_sorted(&mut self, node: NodeId) -> bool {
        let at = match self.as_slice().binary_search(&node) {
            Ok(_) => return true,
            Err(_) if self.is_full() => return false,
            Err(at) => at,
        };
        let len = self.len();
        self.nodes.copy_within(at..len, at + 1);
        self.nodes[at] = node;
        self.len += 1;
        true
    }

    /// Returns the nodes of this set for which `keep` returns true.
    #[must_use]
    pub fn filtered(&self, mut keep: impl FnMut(NodeId) -> bool) -> Self {
        let mut kept = Self::default();
        for node in self.iter().filter(|node| keep(*node)) {
            kept.nodes[kept.len()] = node;
            kept.len += 1;
        }
        kept
    }

    /// Returns the nodes, sorted by id.
    pub fn as_slice(&self) -> &[NodeId] {
        &self.nodes[..self.len()]
    }

    /// Returns an iterator over the nodes, sorted by id.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.as_slice().iter().copied()
    }
}

impl From<NodeId> for NodeSet {
    fn from(node: NodeId) -> Self {
        Self::one(node)
    }
}

impl fmt::Debug for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.as_slice()).finish()
    }
}

/// Formats as `2 3 5`.
impl fmt::Display for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, node) in self.iter().enumerate() {
            let space = if index > 0 { " " } else { "" };
            write!(f, "{space}{node}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::{string::ToString, vec::Vec};

    use super::*;

    fn set(nodes: impl IntoIterator<Item = u32>) -> NodeSet {
        let mut set = NodeSet::default();
        for node in nodes {
            assert!(set.insert(NodeId(node)), "{node}");
        }
        set
    }

    #[test]
    fn node_set_is_sorted_and_without_duplicates() {
        let nodes = set([7, u32::MAX, 2, 7, 3, 2]);
        assert_eq!(nodes.to_string(), "2 3 7 4294967295");
        assert_eq!(nodes, set([2, 3, 7, u32::MAX]));
        assert_eq!(nodes.len(), 4);
        assert!(nodes.contains(NodeId(3)) && !nodes.contains(NodeId(0)));
        assert_eq!(NodeSet::one(NodeId(4)), set([4]));
        assert!(NodeSet::default().is_empty());
        assert_eq!(nodes.filtered(|node| node.0 % 2 == 1), set([3, 7, u32::MAX]));
    }

    #[test]
    fn a_full_set_takes_no_other_node() {
        let most = u32::try_from(NODES_MAX).unwrap();
        let mut full = set((1..=most).rev());
        assert!(full.is_full());
        assert!(full.insert(NodeId(1)), "it is there");
        assert!(!full.insert(NodeId(most + 1)));
        let nodes: Vec<u32> = full.iter().map(|node| node.0).collect();
        assert_eq!(nodes, (1..=most).collect::<Vec<_>>());
    }
}
