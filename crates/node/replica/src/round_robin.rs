//! Round-robin: a set whose members take turns.

use std::{collections::BTreeSet, ops::Bound};

/// Members in order, without duplicates. The next member is the first after the one served last.
#[derive(Clone, Debug, Default)]
pub struct RoundRobin<T> {
    members: BTreeSet<T>,
    last_served: Option<T>,
}

impl<T: Copy + Ord> RoundRobin<T> {
    pub const fn new() -> Self {
        Self { members: BTreeSet::new(), last_served: None }
    }

    /// Adds a member. Returns `false` if it was already present.
    pub fn insert(&mut self, member: T) -> bool {
        self.members.insert(member)
    }

    /// Removes a member. Returns whether it was present.
    pub fn remove(&mut self, member: &T) -> bool {
        self.members.remove(member)
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Returns the next member. It remains the same until its turn is [over](Self::end_turn).
    pub fn peek_next(&self) -> Option<T> {
        let behind = self.last_served.map_or(Bound::Unbounded, Bound::Excluded);
        let mut later = self.members.range((behind, Bound::Unbounded));
        later.next().or_else(|| self.members.first()).copied()
    }

    /// Ends the turn of this member. The member remains in the set.
    pub fn end_turn(&mut self, member: T) {
        self.last_served = Some(member);
    }

    /// Returns the next member and ends its turn.
    pub fn take_turn(&mut self) -> Option<T> {
        let member = self.peek_next()?;
        self.end_turn(member);
        Some(member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_gets_its_turn_despite_changes() {
        let mut robin = RoundRobin::new();
        assert_eq!(robin.take_turn(), None);
        assert!([5, 1, 9].into_iter().all(|member| robin.insert(member)));
        assert!(!robin.insert(5), "once");
        assert_eq!([robin.take_turn(), robin.take_turn()], [Some(1), Some(5)]);
        assert!(robin.remove(&5) && robin.insert(7) && robin.insert(0));
        let rest: Vec<_> = (0..4).filter_map(|_| robin.take_turn()).collect();
        assert_eq!(rest, [7, 9, 0, 1], "who came before the last waits for the next round");
        assert_eq!(robin.len(), 4);
        assert_eq!([robin.peek_next(), robin.peek_next()], [Some(7); 2], "its turn is not over");
    }
}
