//! Syncing: the position that survives a power loss ([store-1]) and its advance. The tree's journal
//! contains every batch and is synced on request. Unsent changes go to the tree first.

use quorate_core::slot::Slot;

use super::LsmStore;

impl LsmStore {
    pub(super) fn want_sync(&mut self) {
        if self.loading.is_none() {
            self.wanted = self.wanted.max(self.state.applied_to);
        }
        self.handle_writer_events();
        self.go_on_syncing();
    }

    /// Takes the next step towards the requested position, if one is possible now.
    pub(super) fn go_on_syncing(&mut self) {
        let synced = self.synced.unwrap_or(Slot::FIRST);
        if self.wanted <= synced || self.syncing || self.frozen.is_some() || self.tree.is_none() {
            return;
        }
        if self.sent.applied_to >= self.wanted {
            self.syncing = true;
            self.writer.sync(self.sent.applied_to);
        } else if self.can_write() && !(self.waiting.is_empty() && self.dirty) {
            self.freeze();
        }
    }

    pub(super) fn on_synced(&mut self, to: Slot) {
        self.syncing = false;
        // Stays `None` without a tree.
        self.synced = self.synced.map(|synced| synced.max(to));
        self.end_renewal(to);
    }
}
