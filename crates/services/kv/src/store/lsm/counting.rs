//! The number of keys and the index of deadlines, while some keys are set blindly.

use super::{
    LsmStore,
    condition::Condition,
    failure::Failure,
    layout::{State, data_key},
};
use crate::store::{DeadlineKind, Position};

impl LsmStore {
    /// Counts a key as new that no layer contains, until the writer knows what it replaces.
    pub(super) fn set_blindly(&mut self, position: Position, key: &[u8]) {
        let State { generation, indexed, .. } = self.state;
        let stored = data_key(generation, position, key);
        self.active.hold_blind(key);
        if let Some(group) = self.blind.get_mut().push(stored, indexed)
            && self.condition == Condition::Well
        {
            self.writer.look_up(group);
        }
    }

    /// Returns the exact number of stored keys, after looking up what blind writes replace; `None`
    /// if that cannot be read.
    pub(super) fn count_keys(&self) -> Option<u64> {
        let mut blind = self.blind.borrow_mut();
        blind.close(self.state.indexed);
        for group in blind.uncertain() {
            let found = match &self.tree {
                Some(tree) => tree.look_up(group),
                None => Err(Failure::NotOpen),
            };
            self.must_read(found)?;
        }
        blind.count(&self.dead);
        Some(self.state.keys.saturating_sub(blind.surplus()))
    }

    /// Returns whether a deadline found in the index is still that of its key. The tree has those
    /// that blind writes replace until the layer is written.
    pub(super) fn is_current(&self, of: DeadlineKind, deadline: u64, key: &[u8]) -> bool {
        let record = self.above(Position::of(key), key);
        record.is_none_or(|record| record.old().deadlines()[of as usize] == Some(deadline))
    }
}
