//! Syncing: the position that survives a power loss ([store-1]) and its advance. The tree's journal
//! contains every batch and is synced on request. Unsent changes go to the tree first.

use quorate_core::slot::Slot;

use super::LsmStore;

impl LsmStore {
    pub(super) fn request_sync(&mut self) {
        if self.loading.is_none() {
            self.requested_sync = self.requested_sync.max(self.state.applied_position);
        }
        self.handle_writer_events();
        self.continue_sync();
    }

    /// Takes the next step towards the requested position, if one is possible now.
    pub(super) fn continue_sync(&mut self) {
        let synced = self.synced_position.unwrap_or(Slot::FIRST);
        if self.requested_sync <= synced
            || self.is_syncing
            || self.frozen_changes.is_some()
            || self.tree.is_none()
        {
            return;
        }
        if self.sent_state.applied_position >= self.requested_sync {
            self.is_syncing = true;
            self.writer.sync(self.sent_state.applied_position);
        } else if self.can_write() && !(self.waiting_changes.is_empty() && self.has_uncommitted) {
            self.freeze_oldest_changes();
        }
    }

    pub(super) fn handle_synced(&mut self, to: Slot) {
        self.is_syncing = false;
        // Stays `None` without a tree.
        self.synced_position = self.synced_position.map(|synced| synced.max(to));
        self.end_renewal(to);
    }
}
