//! Compaction: history becomes unreadable at once and is removed in bounded steps.
//!
//! The steps are commands in the log, so all nodes remove the same history at the same point. A
//! step visits changes from the oldest revision on. Below the compacted revision, the record that a
//! change replaced is garbage, and so is the change itself if it deleted the key. Changes at the
//! compacted revision are kept until the next compaction, because a watch may start there.

use std::ops::ControlFlow;

use super::{
    base::Mvcc,
    layout::{
        Change, Revision, history_end_of, history_place_at, parse_history, parse_revision,
        revision_place,
    },
};
use crate::refusal::Refusal;

/// Maximum number of changes per step.
pub const SCRUBBED_CHANGES_MAX: usize = 1000;

impl Mvcc {
    /// Discards the history before revision `at`, whose removal is left to [`Mvcc::scrub`]. Returns
    /// the current revision.
    pub fn compact(&mut self, at: i64) -> Result<i64, Refusal> {
        if at <= self.state.compacted_revision {
            return Err(Refusal::Compacted);
        }
        if at > self.state.revision {
            return Err(Refusal::FutureRevision);
        }
        let mut state = self.state;
        state.compacted_revision = at;
        self.set_state(state);
        Ok(state.revision)
    }

    /// Returns whether discarded history remains to be removed.
    pub const fn has_unscrubbed(&self) -> bool {
        self.state.scrubbed_revision.main < self.state.compacted_revision
    }

    /// Removes discarded history, visiting at most `most` changes.
    pub fn scrub(&mut self, most: usize) {
        if !self.has_unscrubbed() || most == 0 {
            return;
        }
        let before = Revision::first_of(self.state.compacted_revision);
        let mut looked = Vec::new();
        let (from, to) = (revision_place(self.state.scrubbed_revision), revision_place(before));
        self.store.scan(&from, &to, &mut |place, bytes| {
            if let (Some(at), Some(change)) = (parse_revision(place), Change::decode(bytes)) {
                looked.push((at, change));
            }
            match looked.len() < most {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        let mut state = self.state;
        state.scrubbed_revision = match looked.last() {
            Some((last, _)) if looked.len() == most => {
                Revision { main: last.main, sub: last.sub.saturating_add(1) }
            }
            // All changes have been visited.
            _ => before,
        };
        for (at, change) in looked {
            self.remove_previous(&change, at);
            if change.is_deletion {
                self.store.remove(&history_place_at(&change.key, at));
                self.store.remove(&revision_place(at));
            }
        }
        self.set_state(state);
    }

    /// Removes the record that a key had before this change. It is in the adjacent entry, because
    /// older ones were removed along with earlier changes. The search stops there, because a store
    /// on disk would also scan removed entries. A change that created the key needs no search.
    fn remove_previous(&mut self, change: &Change, at: Revision) {
        let key = &change.key;
        let creates = || {
            let record = self.record_at(key, at);
            record.is_some_and(|record| record.version == 1)
        };
        if !change.is_deletion && creates() {
            return;
        }
        // Older revisions sort after newer ones.
        let behind = [&history_place_at(key, at)[..], &[0]].concat();
        if let Some((place, old)) = self.store.first(&behind, &history_end_of(key))
            && let Some((_, found)) = parse_history(&place)
        {
            self.store.replace(&place, Some(&old), None);
            self.store.remove(&revision_place(found));
        }
    }
}
