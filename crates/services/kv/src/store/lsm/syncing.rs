//! The position that is safe from a loss of power ([store-1]), and its advance.
//!
//! A unit in the tree is in its journal; the journal is synced on request. Changes that are not on
//! their way to the tree yet go there first.

use quorate_core::slot::Slot;

use super::LsmStore;

impl LsmStore {
    /// Requests a sync of everything that is committed.
    pub(super) fn want_sync(&mut self) {
        if self.loading.is_none() {
            self.wanted = self.wanted.max(self.state.applied_to);
        }
        self.hear();
        self.go_on_syncing();
    }

    /// Does what can be done for it now; there is something if more is wanted than is synced.
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

    /// Notes the position that the writer has synced.
    pub(super) fn on_synced(&mut self, to: Slot) {
        self.syncing = false;
        // None is known while there is no tree.
        self.synced = self.synced.map(|synced| synced.max(to));
        self.end_renewal(to);
    }
}
