//! Client reads, linearizable or with bounded staleness, and the readiness probe.

mod bounded;
mod confirmations;
pub(crate) mod evidence;
pub(crate) mod probe;

use quorate_core::{input::ReadToken, node::LeasedRead, slot::Slot, time::Time};

use crate::{
    completions::Completions,
    limits::Limits,
    outbox::RETRY_MS,
    ports::front::{Failure, Tag},
    pressure::Pressure,
    proposing::gather::Waiter,
    reading::{
        bounded::BoundedReads,
        confirmations::Reads,
        probe::{Probe, ProbeOutcome},
    },
    wake::earliest_time,
};

/// Reads that wait for a confirmation or for slots that must be applied first.
pub(crate) struct Reading {
    reads: Reads,
    bounded_reads: BoundedReads,
    probe: Probe,
    /// Probe that shows that the table of users is current ([access-4]).
    access_probe: Probe,
    /// This node serves linearizable reads under its lease while it leads ([read-4]).
    serves_by_lease: bool,
    /// Maximum rate by which this node's clock may run slow, in parts per million.
    drift_ppm: u64,
    /// Time in milliseconds after which a waiting read fails.
    timeout_ms: u64,
    /// Time in milliseconds after which an unanswered request for confirmation is abandoned.
    confirmation_timeout_ms: u64,
    /// Maximum number of waiting reads.
    waiting_max: usize,
    /// [read-9] Time before which no read is released ahead of its slots.
    no_ahead_before: Option<Time>,
    /// Visits of the queries of this turn.
    turn_visits: u64,
}

/// Visits of queries after which a turn answers no more of them, so that heartbeats go out.
const TURN_VISITS_MAX: u64 = 1 << 17;

impl Reading {
    pub(crate) fn new(
        timeout_ms: u64,
        patience_ms: u64,
        limits: &Limits,
        leases: bool,
        drift_ppm: u64,
    ) -> Self {
        Self {
            reads: Reads::default(),
            bounded_reads: BoundedReads::default(),
            serves_by_lease: leases,
            drift_ppm: drift_ppm.min(1_000_000),
            probe: Probe::new(patience_ms),
            access_probe: Probe::for_access(patience_ms),
            timeout_ms,
            confirmation_timeout_ms: patience_ms,
            waiting_max: limits.waiting_requests,
            no_ahead_before: None,
            turn_visits: 0,
        }
    }

    pub(crate) fn begin_turn(&mut self) {
        self.turn_visits = 0;
    }

    /// Counts the visits of a query.
    pub(crate) fn count_visits(&mut self, visits: u64) {
        self.turn_visits = self.turn_visits.saturating_add(visits);
    }

    /// [read-10] Returns whether further queries must wait for the next turn.
    pub(crate) fn is_turn_used_up(&self) -> bool {
        self.turn_visits >= TURN_VISITS_MAX
    }

    /// Queues a client's read. Returns [`Failure::Busy`] if the queue is full.
    pub(crate) fn queue_read(&mut self, now: Time, waiter: Waiter) -> Result<(), Failure> {
        if self.len() >= self.waiting_max {
            return Err(Failure::Busy);
        }
        self.reads.push(waiter, now.plus_ms(self.timeout_ms));
        Ok(())
    }

    /// Queues a client's read with a bound on staleness ([read-6]), or refuses it if the queue is
    /// full. The read waits for the bound or for the time of a confirmation, whichever is longer,
    /// but no longer than its timeout.
    pub(crate) fn queue_bounded_read(
        &mut self,
        now: Time,
        tag: Tag,
        most_ms: u64,
    ) -> Result<(), Failure> {
        if self.len() >= self.waiting_max {
            return Err(Failure::Busy);
        }
        // A slow clock shows less time than has really passed.
        let part = u128::from(1_000_000 - self.drift_ppm);
        let most_us = u128::from(most_ms) * part / 1000;
        let most_us = u64::try_from(most_us).unwrap_or(u64::MAX);
        let wait_ms = most_ms.max(self.confirmation_timeout_ms).min(self.timeout_ms);
        self.bounded_reads.push(tag, most_us, now.plus_ms(wait_ms));
        Ok(())
    }

    fn len(&self) -> usize {
        self.reads.len() + self.bounded_reads.len()
    }

    /// Returns whether reads are waiting that a lease could serve.
    pub(crate) fn wants_lease(&self) -> bool {
        self.serves_by_lease && self.reads.has_waiting()
    }

    /// Releases the waiting reads under the leader's lease, and returns their number.
    pub(crate) fn release_leased(&mut self, leased: LeasedRead) -> u64 {
        self.reads.release_leased(leased)
    }

    pub(crate) fn pressure(&self) -> Pressure {
        Pressure::from_queued_bytes(self.len(), self.waiting_max / 2)
    }

    /// Returns the request for confirmation of clients' reads to send now, if any.
    pub(crate) fn next_question(&mut self, now: Time) -> Option<ReadToken> {
        let wanted = self.bounded_reads.needs_question(now);
        self.reads.next_question(now, self.confirmation_timeout_ms, wanted)
    }

    /// Returns the request for confirmation of the probe to send now, if any.
    pub(crate) fn next_probe_question(&mut self, now: Time) -> Option<ReadToken> {
        self.probe.next_question(now)
    }

    /// Returns the request for confirmation of the access rules to send now, if any.
    pub(crate) fn next_access_question(&mut self, now: Time) -> Option<ReadToken> {
        self.access_probe.next_question(now)
    }

    /// [access-4] Returns `true` once for each confirmed linearizable read whose slots this node
    /// has applied. Begins another read unless one is in flight.
    pub(crate) fn take_access_confirmation(&mut self, now: Time, applied_to: Slot) -> bool {
        self.access_probe.end_if_done(now, applied_to);
        let shown = self.access_probe.take_result() == Some(ProbeOutcome::Served);
        if !shown {
            self.access_probe.begin_probe(now, None);
        }
        shown
    }

    /// Handles a confirmation. The confirmed reads may run once everything below `slot` is applied.
    /// Returns whether the confirmation was for clients' reads.
    pub(crate) fn on_confirmed(&mut self, token: ReadToken, slot: Slot) -> bool {
        self.probe.on_confirmed(token, slot);
        self.access_probe.on_confirmed(token, slot);
        let asked_at = self.reads.on_confirmed(token, slot);
        if let Some(asked_at) = asked_at {
            self.record_freshness(asked_at, slot);
        }
        asked_at.is_some()
    }

    /// [read-6] Records that everything acknowledged before `asked_at` is in the slots below
    /// `slot`.
    pub(crate) fn record_freshness(&mut self, asked_at: Time, slot: Slot) {
        self.bounded_reads.on_confirmed(asked_at, slot);
    }

    /// Handles a refused request for confirmation. The request is repeated after a delay.
    pub(crate) fn on_refused(&mut self, now: Time, token: ReadToken) {
        self.probe.on_refused(now, token);
        self.access_probe.on_refused(now, token);
        self.reads.on_refused(token, now.plus_ms(RETRY_MS));
    }

    pub(crate) fn on_new_ballot(&mut self) {
        self.reads.on_new_ballot();
        self.bounded_reads.on_new_ballot();
    }

    /// Releases the reads that waited for slots below `applied_to`.
    pub(crate) fn release_applied(&mut self, applied_to: Slot, completions: &mut Completions) {
        self.reads.release_applied(applied_to, completions);
    }

    /// [read-9] If this leader still `awaits_votes` and decides nothing, releases its confirmed
    /// reads, except shortly after a read that had to wait.
    pub(crate) fn release_ahead(
        &mut self,
        now: Time,
        awaits_votes: bool,
        completions: &mut Completions,
    ) {
        self.no_ahead_before.take_if(|at| *at <= now);
        if awaits_votes && self.no_ahead_before.is_none() {
            self.reads.release_ahead(completions);
        }
    }

    /// Records that a read released ahead of its slots has to wait for them after all.
    pub(crate) fn delay_ahead_reads(&mut self, now: Time) {
        self.no_ahead_before = Some(now.plus_ms(RETRY_MS));
    }

    /// Releases the reads for which the applied state is recent enough.
    pub(crate) fn release_bounded(
        &mut self,
        now: Time,
        applied_to: Slot,
        completions: &mut Completions,
    ) {
        self.bounded_reads.release_fresh(now, applied_to, completions);
    }

    pub(crate) fn fail_expired(&mut self, now: Time, completions: &mut Completions) -> u64 {
        self.reads.fail_expired(now, completions)
            + self.bounded_reads.fail_expired(now, completions)
    }

    pub(crate) fn start_probe(&mut self, now: Time, refused: Option<ProbeOutcome>) {
        self.probe.begin_probe(now, refused);
    }

    pub(crate) fn settle_probe(&mut self, now: Time, applied_to: Slot) {
        self.probe.end_if_done(now, applied_to);
    }

    pub(crate) fn take_probe(&mut self) -> Option<ProbeOutcome> {
        self.probe.take_result()
    }

    /// Returns the time at which clients' reads next need a turn, even without further input.
    pub(crate) fn wake_at(&self, now: Time) -> Option<Time> {
        let ask = self.reads.next_question_at();
        let ask = ask.filter(|_| self.bounded_reads.needs_question(now));
        earliest_time([
            self.reads.wake_at(self.confirmation_timeout_ms),
            self.bounded_reads.wake_at(),
            ask,
            self.no_ahead_before,
        ])
    }

    /// Returns the time at which the probe next needs a turn, even without further input.
    pub(crate) fn probe_at(&self) -> Option<Time> {
        earliest_time([self.probe.wake_at(), self.access_probe.wake_at()])
    }
}
