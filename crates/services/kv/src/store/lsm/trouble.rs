//! Handling of a full or failing disk by the store, and recovery.

use std::{
    cell::{OnceCell, RefCell},
    mem,
};

use quorate_replica::service::Health;

use super::{
    LsmStore, SLOW, STOP_AT_MULTIPLE, changes::Changes, condition::Condition, failure::Failure,
    scrub::Suspicion, tree::OpenedTree, writer::Event,
};

/// Number of failed reads in one process after which the tree is no longer trusted.
const FAILED_READS_MAX: u32 = 2;

impl LsmStore {
    /// Handles the writer's events and failed reads. Returns the health of the store.
    pub(super) fn handle_tree_events(&mut self) -> Health {
        self.handle_writer_events();
        self.handle_failed_read();
        if let Some(note) = self.reopened_with_loss.take() {
            return Health::Back(note);
        }
        self.continue_renewal();
        self.continue_sync();
        let much = if self.loading.is_some() { SLOW } else { STOP_AT_MULTIPLE };
        let full = self.buffered_multiple() >= much;
        match &self.condition {
            condition if self.tree.is_none() => Health::Down(condition.to_string()),
            Condition::Well if full && self.frozen_changes.is_some() => Health::Behind,
            Condition::Well => Health::Well,
            Condition::WaitingForDisk(_) if !full => Health::Strained(self.condition.to_string()),
            Condition::WaitingForDisk(_) | Condition::Failed(_) | Condition::Closed(_) => {
                Health::Stuck(self.condition.to_string())
            }
        }
    }

    pub(super) fn handle_writer_events(&mut self) {
        while let Some(event) = self.writer.event() {
            self.handle_event(event);
        }
    }

    pub(super) fn handle_event(&mut self, event: Event) {
        match event {
            Event::Written => {
                self.condition = Condition::Well;
                if let Some(written) = &self.frozen_changes {
                    self.sent_state = written.exact_state();
                }
                self.blind_writes.get_mut().count(&self.deadlines[0].expired_keys);
                if let Some(outdated) =
                    mem::replace(&mut self.written_changes, self.frozen_changes.take())
                {
                    self.writer.free(outdated);
                }
            }
            Event::Synced(to) => self.handle_synced(to),
            Event::WriteDelayed(why) => match &mut self.condition {
                Condition::Failed(known) => *known = why,
                condition => *condition = Condition::WaitingForDisk(why),
            },
            Event::Failed { why, in_the_background } => {
                self.condition = Condition::Failed(why);
                if in_the_background {
                    self.suspicion.background_failed();
                }
            }
            Event::LetGo if self.tree.is_some() => {
                self.close_for_reopen("it is being opened again".to_owned(), None);
            }
            // This thread has already closed the tree for another reason.
            Event::LetGo => {}
            Event::Closed(why) => {
                self.forget_tree();
                self.condition = Condition::Closed(why);
            }
            Event::Opened(opened) => self.begin_anew(*opened),
        }
    }

    /// Closes this thread's tree, so that the writer can reopen it.
    pub(super) fn close_for_reopen(&mut self, why: String, distrusted: Option<String>) {
        self.forget_tree();
        self.condition = Condition::Closed(why);
        self.writer.reopen(distrusted);
    }

    /// Drops this thread's handles to the tree.
    fn forget_tree(&mut self) {
        (self.tree, self.image) = (None, None);
    }

    /// Continues with a newly opened tree. Changes in memory are dropped, since they are in the log
    /// or in the snapshot that was being loaded.
    fn begin_anew(&mut self, opened: OpenedTree) {
        let OpenedTree { tree, state, newest_generation, loss_description: note, aside } = opened;
        self.forget_tree();
        self.tree = Some(tree);
        (self.state, self.sent_state) = (state, state);
        self.newest_generation = newest_generation;
        // fjall syncs its journal before it reads it. After a failure, that sync proves little
        // about earlier writes, because some kernels mark unwritten data as clean.
        self.synced_position = Some(match self.synced_position {
            None => state.applied_position,
            Some(synced) => synced.min(state.applied_position),
        });
        (self.requested_sync, self.is_syncing) =
            (self.requested_sync.min(state.applied_position), false);
        self.loading = None;
        self.active_changes = Changes::new(state);
        self.waiting_changes.clear();
        (self.frozen_changes, self.written_changes) = (None, None);
        (self.has_uncommitted, self.needs_purge) = (false, false);
        self.blind_writes = RefCell::default();
        self.first_failed_read = OnceCell::new();
        self.reset_deadlines();
        self.failed_images = 0;
        if aside.is_some() {
            self.suspicion = Suspicion::default();
        }
        self.set_aside(aside);
        self.condition = Condition::Well;
        self.reopened_with_loss = Some(note);
    }

    /// Handles a failed read: reopens the tree. Sets it aside if it is damaged or reads have failed
    /// before.
    fn handle_failed_read(&mut self) {
        let Some(failure) = self.first_failed_read.get() else {
            return;
        };
        if self.tree.is_none() {
            return;
        }
        let why = failure.to_string();
        self.failed_reads += 1;
        let damaged = matches!(failure, Failure::Damaged(_));
        let distrusted = (damaged || self.failed_reads >= FAILED_READS_MAX).then(|| why.clone());
        self.close_for_reopen(why, distrusted);
    }
}
