//! Handling of a full or failing disk by the store, and recovery.

use std::{
    cell::{OnceCell, RefCell},
    mem,
};

use quorate_replica::service::Health;

use super::{
    FULL, LsmStore, SLOW, changes::Changes, condition::Condition, failure::Failure,
    scrub::Suspicion, tree::Opened, writer::Event,
};

/// Number of failed reads in one process after which the tree is no longer trusted.
const FAILED_READS_MAX: u32 = 2;

impl LsmStore {
    /// Handles the writer's events and failed reads. Returns the health of the store.
    pub(super) fn look_after_tree(&mut self) -> Health {
        self.handle_writer_events();
        self.on_misread();
        if let Some(note) = self.back.take() {
            return Health::Back(note);
        }
        self.go_on_renewing();
        self.go_on_syncing();
        let much = if self.loading.is_some() { SLOW } else { FULL };
        let full = self.held() >= much;
        match &self.condition {
            condition if self.tree.is_none() => Health::Down(condition.to_string()),
            Condition::Well if full && self.frozen.is_some() => Health::Behind,
            Condition::Well => Health::Well,
            Condition::Waiting(_) if !full => Health::Strained(self.condition.to_string()),
            Condition::Waiting(_) | Condition::Failed(_) | Condition::Closed(_) => {
                Health::Stuck(self.condition.to_string())
            }
        }
    }

    pub(super) fn handle_writer_events(&mut self) {
        while let Some(event) = self.writer.event() {
            self.on_event(event);
        }
    }

    pub(super) fn on_event(&mut self, event: Event) {
        match event {
            Event::Written => {
                self.condition = Condition::Well;
                if let Some(written) = &self.frozen {
                    self.sent = written.exact_state();
                }
                self.blind.get_mut().count(&self.dead);
                if let Some(outdated) = mem::replace(&mut self.settled, self.frozen.take()) {
                    self.writer.free(outdated);
                }
            }
            Event::Synced(to) => self.on_synced(to),
            Event::Waiting(why) => match &mut self.condition {
                Condition::Failed(known) => *known = why,
                condition => *condition = Condition::Waiting(why),
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
            Event::Opened(opened) => self.begin_anew(opened),
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
    fn begin_anew(&mut self, opened: Opened) {
        let Opened { tree, state, newest_generation, note, aside } = opened;
        self.forget_tree();
        self.tree = Some(tree);
        (self.state, self.sent) = (state, state);
        self.newest_generation = newest_generation;
        // fjall syncs its journal before it reads it. After a failure, that sync proves little
        // about earlier writes, because some kernels mark unwritten data as clean.
        self.synced = Some(match self.synced {
            None => state.applied_to,
            Some(synced) => synced.min(state.applied_to),
        });
        (self.wanted, self.syncing) = (self.wanted.min(state.applied_to), false);
        self.loading = None;
        self.active = Changes::new(state);
        self.waiting.clear();
        (self.frozen, self.settled) = (None, None);
        (self.dirty, self.cleared) = (false, false);
        self.blind = RefCell::default();
        self.misread = OnceCell::new();
        self.begin_deadlines();
        self.failed_images = 0;
        if aside.is_some() {
            self.suspicion = Suspicion::default();
        }
        self.set_aside(aside);
        self.condition = Condition::Well;
        self.back = Some(note);
    }

    /// Handles a failed read: reopens the tree. Sets it aside if it is damaged or reads have failed
    /// before.
    fn on_misread(&mut self) {
        let Some(failure) = self.misread.get() else {
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
