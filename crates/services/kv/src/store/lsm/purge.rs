//! Purge: removes generations ended by FLUSHALL or a load, remains of failed loads, and rows of
//! dropped collections. Readers cannot observe the removal, so it need not be atomic.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use fjall::Slice;

use super::{
    failure::Failure,
    layout::{State, behind_rows, ended_key, kind, parse_ended_key, prefix, row_key},
    tree::Tree,
};

/// Maximum number of keys removed per step.
const PURGED_MAX: usize = 1024;

pub(super) struct Purge {
    /// Stored key at which the purge of generations resumes.
    from: Vec<u8>,
    /// Generations below this one have ended.
    below: u64,
    /// Highest generation of a failed load, above the current one.
    left: Option<u64>,
    purged_below: Arc<AtomicU64>,
    /// The current generation may have dropped collections.
    ended: bool,
    /// Dropped collection at which the purge resumes. Starting over would be slow: searches walk
    /// over removed entries for a while.
    ended_from: Vec<u8>,
    /// Row of that collection at which the purge resumes.
    rows_from: Vec<u8>,
    /// The purge has stopped, because the data to remove cannot be read.
    given_up: bool,
}

pub(super) enum PurgeStep {
    /// Keys of ended generations were removed. Contains the stored key at which to resume, if any
    /// are left.
    Generations(Option<Vec<u8>>),
    /// Rows of a dropped collection were removed. Contains the stored keys at which to resume.
    Rows(Vec<u8>, Vec<u8>),
    /// No dropped collections are left from the resume position on.
    Nothing,
}

impl Purge {
    /// Creates the purge of a tree at `generation`, where `newest` is the highest generation ever
    /// begun.
    pub(super) fn new(generation: u64, newest: u64, purged_below: Arc<AtomicU64>) -> Self {
        Self {
            from: Vec::new(),
            below: generation,
            left: (newest > generation).then_some(newest),
            purged_below,
            ended: true,
            ended_from: Vec::new(),
            rows_from: Vec::new(),
            given_up: false,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.given_up || (!self.ended && self.generations_are_done())
    }

    /// Stops the purge until another tree is opened.
    pub(super) fn give_up(&mut self) {
        self.given_up = true;
    }

    fn generations_are_done(&self) -> bool {
        self.left.is_none() && self.purged_below.load(Ordering::Acquire) >= self.below
    }

    /// Starts purging the generations below `below`. Newly dropped collections may lie before the
    /// resume position.
    pub(super) fn begin(&mut self, below: u64, ended: bool) {
        if ended || self.below != below {
            self.look_for_ended();
        }
        if self.below != below {
            self.below = below;
            self.from.clear();
        }
    }

    fn look_for_ended(&mut self) {
        self.ended = true;
        self.ended_from.clear();
        self.rows_from.clear();
    }

    /// Restarts the purge after another tree was opened.
    pub(super) fn restart(&mut self, state: State, newest: u64) {
        self.look_for_ended();
        self.given_up = false;
        self.from.clear();
        self.below = state.generation;
        self.left = (newest > state.generation).then_some(newest);
        self.purged_below.store(state.oldest, Ordering::Release);
    }

    /// Removes some keys. Returns where to resume.
    pub(super) fn step(&self, tree: &Tree) -> Result<PurgeStep, Failure> {
        if self.generations_are_done() {
            self.step_rows(tree)
        } else {
            self.step_generations(tree).map(PurgeStep::Generations)
        }
    }

    fn step_rows(&self, tree: &Tree) -> Result<PurgeStep, Failure> {
        let generation = self.below;
        let first = prefix(kind::ENDED, generation).max(self.ended_from.clone());
        let mut ended = tree.keys(first..prefix(kind::ENDED, generation + 1));
        let Some(marker) = ended.next().transpose()? else {
            return Ok(PurgeStep::Nothing);
        };
        let id = parse_ended_key(&marker)
            .ok_or_else(|| Failure::damaged("an ended collection makes no sense"))?;
        let first = row_key(generation, id, b"").max(self.rows_from.clone());
        let rows = tree.keys(first..behind_rows(generation, id));
        let mut keys: Vec<Slice> = rows.take(PURGED_MAX).collect::<Result<_, _>>()?;
        let marker = ended_key(generation, id);
        let last = keys.last().map(|key| key.to_vec());
        let rows_from = match last {
            Some(last) if keys.len() == PURGED_MAX => last,
            _ => {
                // The mark is removed with the last rows, or after them.
                keys.push(Slice::from(marker.as_slice()));
                Vec::new()
            }
        };
        tree.remove(keys)?;
        Ok(PurgeStep::Rows(marker, rows_from))
    }

    fn step_generations(&self, tree: &Tree) -> Result<Option<Vec<u8>>, Failure> {
        let mut keys = Vec::with_capacity(PURGED_MAX);
        let behind = self.below + 1;
        // The ranges are in the tree's order.
        let generations = [0..self.below, behind..self.left.map_or(behind, |left| left + 1)];
        let kinds = [kind::DEADLINE, kind::DATA, kind::ROW, kind::ENDED, kind::FIELD_DEADLINE];
        let each = |kind| generations.clone().map(|generations| (kind, generations));
        for (kind, generations) in kinds.into_iter().flat_map(each) {
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

    pub(super) fn went(&mut self, to: PurgeStep) {
        match to {
            PurgeStep::Nothing => self.ended = false,
            PurgeStep::Rows(ended_from, rows_from) => {
                (self.ended_from, self.rows_from) = (ended_from, rows_from);
            }
            PurgeStep::Generations(Some(key)) => self.from = key,
            PurgeStep::Generations(None) => {
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
        DeadlineKind, Position, Version,
        collection::Id,
        lsm::{
            disk::RealDisk,
            layout::{data_key, deadline_key},
            tree::Home,
        },
    };

    fn opened(folder: &tempfile::TempDir) -> Tree {
        let home = Home {
            path: folder.path().to_owned(),
            disk: Arc::new(RealDisk),
            files_max: 16,
            cache_bytes: 1 << 20,
        };
        let Ok(opened) = Tree::open(&home, None) else { panic!("a new folder can be opened") };
        opened.tree
    }

    #[test]
    fn rows_of_ended_collections_are_removed_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let tree = opened(&folder);
        let id = |slot| Id { version: Version { slot, index: 0 }, number: 0 };
        // Rows of neighbouring collections survive.
        for slot in 1..=5 {
            let rows = if slot == 3 { 3 * PURGED_MAX } else { 7 };
            for number in 0..rows {
                tree.insert(row_key(4, id(slot), &number.to_be_bytes()));
            }
        }
        let mut purge = Purge::new(4, 4, Arc::new(AtomicU64::new(4)));
        let run = |purge: &mut Purge| {
            let mut steps = 0;
            while !purge.is_done() {
                let went = purge.step(&tree).unwrap();
                purge.went(went);
                steps += 1;
            }
            steps
        };
        assert_eq!(run(&mut purge), 1, "nothing ended");
        tree.insert(ended_key(4, id(2)));
        tree.insert(ended_key(4, id(3)));
        tree.insert(ended_key(4, id(5)));
        purge.begin(4, true);
        assert_eq!(run(&mut purge), 1 + 4 + 1 + 1);
        assert_eq!(tree.entries().unwrap(), 2 * 7);
        // A collection that was created earlier is dropped later.
        tree.insert(ended_key(4, id(1)));
        purge.begin(4, true);
        run(&mut purge);
        assert_eq!(tree.entries().unwrap(), 7);
        // A new purge also finds it, as after a restart.
        tree.insert(ended_key(4, id(4)));
        run(&mut Purge::new(4, 4, Arc::new(AtomicU64::new(4))));
        assert_eq!(tree.entries().unwrap(), 0);
    }

    fn fill(tree: &Tree, generation: u64, keys: u64) {
        for number in 1..=keys {
            let key = number.to_be_bytes();
            let stored = [
                deadline_key(generation, DeadlineKind::Keys, number, &key),
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
        let tree = opened(&folder);
        let mut purge = Purge::new(1, 1, Arc::default());
        let step = |purge: &mut Purge| {
            let last = purge.step(&tree).unwrap();
            purge.went(last);
        };
        // The first steps remove all deadlines of the first generation, then some of its keys.
        fill(&tree, 0, PURGED_MAX as u64 + 1);
        step(&mut purge);
        step(&mut purge);
        assert_eq!(purge.from.first(), Some(&kind::DATA));
        fill(&tree, 1, 10);
        fill(&tree, 2, 3);
        purge.begin(2, false);
        while !purge.is_done() {
            step(&mut purge);
        }
        assert_eq!(tree.entries().unwrap(), 6, "what is not ended stays");
    }
}
