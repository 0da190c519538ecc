//! The removal of generations that FLUSHALL or a load ended, and of what a load left that came to
//! nothing: little by little, and nobody sees them, so it needs no atomicity.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::{
    failure::Failure,
    layout::{State, kind, prefix},
    tree::Tree,
};

/// Keys that are removed at a time.
const PURGED_MAX: usize = 1024;

/// How far it is.
pub(super) struct Purge {
    /// Where it goes on.
    from: Vec<u8>,
    /// Generations below this one are ended.
    below: u64,
    /// The last one of those that a load left, if one did; they are behind the present one.
    left: Option<u64>,
    purged_below: Arc<AtomicU64>,
}

impl Purge {
    /// In a tree that is at this generation, and in which none behind `newest` was ever begun.
    pub(super) fn new(generation: u64, newest: u64, purged_below: Arc<AtomicU64>) -> Self {
        Self {
            from: Vec::new(),
            below: generation,
            left: (newest > generation).then_some(newest),
            purged_below,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.left.is_none() && self.purged_below.load(Ordering::Acquire) >= self.below
    }

    /// Generations below this one have ended by now. What ended since the last time lies before where
    /// it goes on, too.
    pub(super) fn begin(&mut self, below: u64) {
        if self.below != below {
            self.below = below;
            self.from.clear();
        }
    }

    /// Another tree was opened.
    pub(super) fn restart(&mut self, state: State, newest: u64) {
        self.from.clear();
        self.below = state.generation;
        self.left = (newest > state.generation).then_some(newest);
        self.purged_below.store(state.oldest, Ordering::Release);
    }

    /// Removes some; says where to go on, or that nothing is left.
    pub(super) fn step(&self, tree: &Tree) -> Result<Option<Vec<u8>>, Failure> {
        let mut keys = Vec::with_capacity(PURGED_MAX);
        let behind = self.below + 1;
        // In the order of the tree.
        for (kind, generations) in [
            (kind::DEADLINE, 0..self.below),
            (
                kind::DEADLINE,
                behind..self.left.map_or(behind, |left| left + 1),
            ),
            (kind::DATA, 0..self.below),
            (
                kind::DATA,
                behind..self.left.map_or(behind, |left| left + 1),
            ),
        ] {
            let from = prefix(kind, generations.start).max(self.from.clone());
            let before = prefix(kind, generations.end);
            if from >= before {
                continue;
            }
            let room = PURGED_MAX - keys.len();
            for key in tree.keys(from..before).take(room) {
                keys.push(key?);
            }
        }
        let last = (keys.len() == PURGED_MAX).then(|| keys.last().map(|key| key.to_vec()));
        tree.remove(keys)?;
        Ok(last.flatten())
    }

    pub(super) fn went(&mut self, to: Option<Vec<u8>>) {
        match to {
            Some(key) => self.from = key,
            None => {
                self.from.clear();
                self.left = None;
                self.purged_below.store(self.below, Ordering::Release);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{
        Position,
        lsm::{
            disk::RealDisk,
            layout::{data_key, deadline_key},
            tree::Home,
        },
    };

    /// Puts `keys` keys of a generation into the tree, each with a deadline.
    fn fill(tree: &Tree, generation: u64, keys: u64) {
        for number in 1..=keys {
            let key = number.to_be_bytes();
            let stored = [
                deadline_key(generation, number, &key),
                data_key(generation, Position::of(&key), &key),
            ];
            for key in stored {
                tree.insert(key);
            }
        }
    }

    #[test]
    fn a_generation_that_ends_while_another_is_removed_is_removed_whole() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home {
            path: folder.path().to_owned(),
            disk: Arc::new(RealDisk),
            files_max: 16,
        };
        let Ok(opened) = Tree::open(&home, None) else {
            panic!("a new folder can be opened")
        };
        let tree = opened.tree;
        let mut purge = Purge::new(1, 1, Arc::default());
        let step = |purge: &mut Purge| {
            let last = purge.step(&tree).unwrap();
            purge.went(last);
        };
        // All deadlines of the first, and then some of its keys.
        fill(&tree, 0, PURGED_MAX as u64 + 1);
        step(&mut purge);
        step(&mut purge);
        assert_eq!(purge.from.first(), Some(&kind::DATA));
        fill(&tree, 1, 10);
        fill(&tree, 2, 3);
        purge.begin(2);
        while !purge.is_done() {
            step(&mut purge);
        }
        assert_eq!(tree.entries().unwrap(), 6, "what is not ended stays");
    }
}
