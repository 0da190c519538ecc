//! This node's batches that it has not yet applied, in the order of their numbers.

use std::collections::VecDeque;

use quorate_core::{ballot::Ballot, slot::Slot, time::Time, value::BatchName};

use crate::{
    completions::Completions,
    ports::{outcome::Failure, payload::Payload},
    proposing::{
        batch::{self, Batch, BatchEntry, BatchHeader},
        gather::{QueuedItem, Waiter},
    },
};

/// A numbered batch that this node has not applied yet.
#[derive(Debug)]
pub(crate) struct InFlightBatch {
    pub(super) name: BatchName,
    pub(super) payload: Payload,
    /// Commands of the batch, and the reads between them.
    pub(crate) items: Vec<QueuedItem>,
    /// Number of items that are commands.
    pub(super) command_count: usize,
    /// Number of leading items whose requests timed out with an unknown outcome.
    expired_count: usize,
    /// Number of items whose clients are to be notified once the batch is in memory at a quorum.
    early_count: usize,
    last_vote: Option<(Ballot, Slot)>,
    pub(super) formed_at: Time,
}

impl InFlightBatch {
    /// Creates a batch of the given items; `commands` of them are commands, the others reads.
    pub(super) fn new(
        name: BatchName,
        payload: Payload,
        items: Vec<QueuedItem>,
        commands: usize,
        formed: Time,
    ) -> Self {
        let waits = |item: &&QueuedItem| matches!(item.waiter, Waiter::FrontEarly(_));
        let early = items.iter().filter(waits).count();
        Self {
            name,
            payload,
            items,
            command_count: commands,
            expired_count: 0,
            early_count: early,
            last_vote: None,
            formed_at: formed,
        }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&QueuedItem, BatchEntry<'_>)> {
        let batch = Batch::parse(&self.payload).expect("formed here");
        let commands = self.items.iter().filter(|item| !item.is_read());
        commands.zip(batch.entries())
    }

    /// Iterates over all items with their encoded entries; reads have none.
    pub(super) fn encoded_items(&self) -> impl Iterator<Item = (QueuedItem, &[u8])> {
        let mut from = batch::HEADER_BYTES;
        self.items.iter().map(move |item| {
            let to = from + item.encoded_bytes;
            let encoded = &self.payload[from..to];
            from = to;
            (*item, encoded)
        })
    }

    /// Returns the batch's position in this node's order, as encoded in the batch.
    fn header(&self) -> BatchHeader {
        Batch::header(&self.payload).expect("formed here")
    }

    /// Fails all requests of the batch. The batch was executed, but its replies are not known here.
    pub(super) fn end_all(&mut self, completions: &mut Completions) {
        self.fail_expired(Time(u64::MAX), completions);
    }

    /// [less-2] Notifies the clients that wait until the batch is in memory at a quorum. It is, in
    /// this slot, and so is everything that executes before it. The batch remains in flight.
    fn notify_early(&mut self, slot: Slot, completions: &mut Completions) {
        if std::mem::take(&mut self.early_count) == 0 {
            return;
        }
        for item in &mut self.items {
            if let Waiter::FrontEarly(tag) = item.waiter {
                completions.complete_in_memory(tag, slot);
                item.waiter = Waiter::AlreadyNotified;
            }
        }
    }

    /// Fails the requests whose deadline has passed, and returns their number.
    fn fail_expired(&mut self, now: Time, completions: &mut Completions) -> u64 {
        let mut expired = 0;
        while let Some(item) = self.items.get_mut(self.expired_count)
            && item.deadline <= now
        {
            self.expired_count += 1;
            // A command may have been sent to other nodes; a read never is.
            let failure = if item.is_read() { Failure::NoQuorum } else { Failure::Unknown };
            if completions.fail(item.waiter, failure) {
                item.waiter = Waiter::TimedOut;
                expired += 1;
            }
        }
        expired
    }
}

/// Batches in flight, in the order of their numbers.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    batches: VecDeque<InFlightBatch>,
    /// Number of leading batches that were offered to the current leader.
    offered_count: usize,
    /// Total number of offers that were repeated.
    repeated_count: u64,
}

impl InFlight {
    pub(super) fn len(&self) -> usize {
        self.batches.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    pub(super) fn repeated_count(&self) -> u64 {
        self.repeated_count
    }

    pub(super) fn is_offered(&self) -> bool {
        self.offered_count > 0
    }

    /// Removes and returns the leading batches that have already been executed.
    pub(super) fn take_executed(
        &mut self,
        is_past: impl Fn(&BatchName, BatchHeader) -> bool,
    ) -> Vec<InFlightBatch> {
        let past = self.batches.iter();
        let past = past.take_while(|batch| is_past(&batch.name, batch.header())).count();
        self.offered_count = self.offered_count.saturating_sub(past);
        self.batches.drain(..past).collect()
    }

    pub(super) fn contains(&self, name: &BatchName) -> bool {
        self.batches.iter().any(|batch| batch.name == *name)
    }

    /// Records this node's vote for a batch. Returns whether a client waits until the batch is in
    /// memory at a quorum.
    pub(super) fn record_vote(&mut self, name: &BatchName, ballot: Ballot, slot: Slot) -> bool {
        let mut batches = self.batches.iter_mut();
        let Some(batch) = batches.find(|batch| batch.name == *name) else {
            return false;
        };
        batch.last_vote = Some((ballot, slot));
        batch.early_count > 0
    }

    /// [less-2] Records that a quorum has everything below `to` in memory, in this ballot. Batches
    /// execute in the order of their numbers, so a batch counts only after all earlier ones.
    pub(super) fn on_in_memory(&mut self, ballot: Ballot, to: Slot, completions: &mut Completions) {
        let mut next = Slot(0);
        for batch in &mut self.batches {
            match batch.last_vote {
                Some((in_ballot, slot)) if in_ballot == ballot && next <= slot && slot < to => {
                    next = slot.next();
                    batch.notify_early(slot, completions);
                }
                _ => return,
            }
        }
    }

    pub(super) fn push(&mut self, batch: InFlightBatch) {
        self.batches.push_back(batch);
    }

    pub(super) fn next_to_offer(&self) -> Option<&InFlightBatch> {
        self.batches.get(self.offered_count)
    }

    pub(super) fn take_next_to_offer(&mut self) -> Option<&InFlightBatch> {
        let batch = self.batches.get(self.offered_count)?;
        self.offered_count += 1;
        Some(batch)
    }

    /// Handles the leader's refusal of a batch. The batch will be offered again, together with the
    /// later batches, because these cannot execute before it.
    pub(super) fn on_refused(&mut self, name: &BatchName) {
        let at = self.batches.iter().position(|batch| batch.name == *name);
        if let Some(at) = at.filter(|at| *at < self.offered_count) {
            self.repeated_count += (self.offered_count - at) as u64;
            self.offered_count = at;
        }
    }

    /// Schedules all batches for another offer, since earlier offers may be lost.
    pub(super) fn repeat_all(&mut self) {
        self.repeated_count += self.offered_count as u64;
        self.offered_count = 0;
    }

    /// Removes the first batch, because it is about to be executed here. Returns `None` if the
    /// first batch has another name.
    pub(super) fn complete_first(&mut self, name: &BatchName) -> Option<InFlightBatch> {
        let batch = self.batches.pop_front_if(|batch| batch.name == *name)?;
        self.offered_count = self.offered_count.saturating_sub(1);
        Some(batch)
    }

    pub(super) fn take_all(&mut self) -> VecDeque<InFlightBatch> {
        self.offered_count = 0;
        std::mem::take(&mut self.batches)
    }

    /// Fails the requests whose deadline has passed, and returns their number. Their batches are
    /// retained, since later batches need them.
    pub(super) fn fail_expired(&mut self, now: Time, completions: &mut Completions) -> u64 {
        let batches = self.batches.iter_mut();
        batches.map(|batch| batch.fail_expired(now, completions)).sum()
    }

    /// Returns the earliest deadline. All requests have the same timeout, so it is that of the
    /// oldest.
    pub(super) fn deadline(&self) -> Option<Time> {
        let mut batches = self.batches.iter();
        let item = batches.find_map(|batch| batch.items.get(batch.expired_count));
        item.map(|item| item.deadline)
    }

    #[cfg(test)]
    pub(super) fn names(&self) -> Vec<BatchName> {
        self.batches.iter().map(|batch| batch.name).collect()
    }
}
