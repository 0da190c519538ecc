//! Linearizable reads: those of clients, and the one that says whether this node is ready.

mod confirmations;
pub(crate) mod probe;

use quorate_core::{input::ReadToken, slot::Slot, time::Time};

use crate::{
    completions::Completions,
    front::{Failure, Tag},
    limits::Limits,
    outbox::RETRY_MS,
    pressure::Pressure,
    reading::{
        confirmations::Reads,
        probe::{Probe, Probed},
    },
};

/// Reads that wait for a confirmation, or for what is to be applied before they run.
pub(crate) struct Reading {
    reads: Reads,
    probe: Probe,
    /// A read that has not run by then fails.
    timeout_ms: u64,
    /// A question without an answer is given up after this.
    patience_ms: u64,
    /// Most reads that wait.
    waiting_max: usize,
}

impl Reading {
    pub(crate) fn new(timeout_ms: u64, patience_ms: u64, limits: &Limits) -> Self {
        Self {
            reads: Reads::default(),
            probe: Probe::new(patience_ms),
            timeout_ms,
            patience_ms,
            waiting_max: limits.waiting_requests,
        }
    }

    /// Takes a client's read, or says that there is no room.
    pub(crate) fn accept(&mut self, now: Time, tag: Tag) -> Result<(), Failure> {
        if self.reads.len() >= self.waiting_max {
            return Err(Failure::Busy);
        }
        self.reads.push(tag, now.plus_ms(self.timeout_ms));
        Ok(())
    }

    /// How full the queue of reads is.
    pub(crate) fn pressure(&self) -> Pressure {
        Pressure::of(self.reads.len(), self.waiting_max / 2)
    }

    /// The question to ask for clients' reads now, if there is one.
    pub(crate) fn next_question(&mut self, now: Time) -> Option<ReadToken> {
        self.reads.next_question(now, self.patience_ms)
    }

    /// The question to ask for the probe now, if there is one.
    pub(crate) fn next_probe_question(&mut self, now: Time) -> Option<ReadToken> {
        self.probe.next_question(now)
    }

    /// The answer to a question: reads may run once everything below `slot` is applied. Says whether
    /// clients' reads waited for it.
    pub(crate) fn confirmed(&mut self, token: ReadToken, slot: Slot) -> bool {
        self.probe.confirmed(token, slot);
        self.reads.confirmed(token, slot)
    }

    /// The other answer: the question is asked again, not at once.
    pub(crate) fn failed(&mut self, now: Time, token: ReadToken) {
        self.probe.failed(now, token);
        self.reads.failed(token, now.plus_ms(RETRY_MS));
    }

    /// A node leads in another ballot than before.
    pub(crate) fn on_new_ballot(&mut self) {
        self.reads.on_new_ballot();
    }

    /// Lets those reads run that waited for `applied_to`.
    pub(crate) fn release(&mut self, applied_to: Slot, completions: &mut Completions) {
        self.reads.release(applied_to, completions);
    }

    /// Ends reads whose time is up; says how many.
    pub(crate) fn expire(&mut self, now: Time, completions: &mut Completions) -> u64 {
        self.reads.expire(now, completions)
    }

    /// Begins an attempt to read, unless one is in flight; where requests are `refused`, it has
    /// ended.
    pub(crate) fn probe(&mut self, now: Time, refused: Option<Probed>) {
        self.probe.begin(now, refused);
    }

    /// Ends the attempt if it is served, or if its time is up.
    pub(crate) fn settle_probe(&mut self, now: Time, applied_to: Slot) {
        self.probe.settle(now, applied_to);
    }

    /// How the last attempt ended, once.
    pub(crate) fn take_probe(&mut self) -> Option<Probed> {
        self.probe.take()
    }

    /// When clients' reads have something due, without answers from others.
    pub(crate) fn wake_at(&self) -> Option<Time> {
        self.reads.wake_at(self.patience_ms)
    }

    /// When the probe has.
    pub(crate) fn probe_at(&self) -> Option<Time> {
        self.probe.wake_at()
    }
}
