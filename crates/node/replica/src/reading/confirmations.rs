//! Linearizable reads: they share quorum confirmations, and then wait for applied slots ([read-2]).

use std::collections::VecDeque;

use quorate_core::{input::ReadToken, node::LeasedRead, slot::Slot, time::Time};

use super::evidence::ReadEvidence;
use crate::{
    completions::Completions, ports::front::Failure, proposing::gather::Waiter, wake::earliest_time,
};

type WaitingReads = VecDeque<(Waiter, Time)>;

/// The request for confirmation in flight, with the reads that wait for it.
#[derive(Debug)]
struct PendingConfirmation {
    token: ReadToken,
    sent_at: Time,
    waiters: WaitingReads,
}

/// Confirmed reads, which may run once enough slots are applied.
#[derive(Debug)]
struct ConfirmedReads {
    slot: Slot,
    evidence: ReadEvidence,
    waiters: WaitingReads,
}

/// All linearizable reads of this node.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    /// Reads that arrived after the last request was sent and thus need the next one ([read-2]).
    waiting: WaitingReads,
    pending: Option<PendingConfirmation>,
    confirmed: Vec<ConfirmedReads>,
    last_token: u64,
    retry_at: Time,
    read_count: usize,
}

impl Reads {
    /// Returns the number of reads that have not completed.
    pub(crate) fn len(&self) -> usize {
        self.read_count
    }

    pub(crate) fn push(&mut self, waiter: Waiter, deadline: Time) {
        self.waiting.push_back((waiter, deadline));
        self.read_count += 1;
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns when the next request may be sent; `None` if one is in flight.
    pub(crate) fn next_question_at(&self) -> Option<Time> {
        self.pending.is_none().then_some(self.retry_at)
    }

    /// [read-4] Releases the waiting reads under the leader's lease, so that they need no request,
    /// and returns their number.
    pub(crate) fn release_leased(&mut self, leased: LeasedRead) -> u64 {
        let waiters = std::mem::take(&mut self.waiting);
        let count = waiters.len() as u64;
        self.confirmed.push(ConfirmedReads {
            slot: leased.slot,
            evidence: ReadEvidence::Leased(leased.ballot),
            waiters,
        });
        count
    }

    /// Returns the request for confirmation to send now, if any. `wanted` is set if another part of
    /// the replica needs the confirmation. Only one request is in flight; it is abandoned after
    /// `patience_ms` without an answer.
    pub(crate) fn next_question(
        &mut self,
        now: Time,
        patience_ms: u64,
        wanted: bool,
    ) -> Option<ReadToken> {
        if self.pending.as_ref().is_some_and(|asked| now >= asked.sent_at.plus_ms(patience_ms)) {
            self.requeue_pending();
        }
        let idle = self.waiting.is_empty() && !wanted;
        if self.pending.is_some() || idle || now < self.retry_at {
            return None;
        }
        self.last_token += 1;
        let token = ReadToken(self.last_token);
        self.pending = Some(PendingConfirmation {
            token,
            sent_at: now,
            waiters: std::mem::take(&mut self.waiting),
        });
        Some(token)
    }

    /// Handles a confirmation. The confirmed reads may run once everything below `slot` is applied.
    /// Returns when the request was sent, if the confirmation is for the request in flight.
    pub(crate) fn on_confirmed(&mut self, token: ReadToken, slot: Slot) -> Option<Time> {
        let asked = self.pending.take_if(|asked| asked.token == token)?;
        if !asked.waiters.is_empty() {
            self.confirmed.push(ConfirmedReads {
                slot,
                evidence: ReadEvidence::Confirmed,
                waiters: asked.waiters,
            });
        }
        Some(asked.sent_at)
    }

    /// Handles a refused request for confirmation. Another request for the same reads is sent at
    /// `retry_at` at the earliest.
    pub(crate) fn on_refused(&mut self, token: ReadToken, retry_at: Time) {
        if self.pending.as_ref().is_some_and(|asked| asked.token == token) {
            self.requeue_pending();
            self.retry_at = retry_at;
        }
    }

    /// Handles a new ballot of the leader. Confirmed reads need a new confirmation, because they
    /// wait for slots that the previous leader had proposed and that may never be decided.
    pub(crate) fn on_new_ballot(&mut self) {
        self.retry_at = Time(0);
        let mut again = WaitingReads::new();
        for mut confirmed in self.confirmed.drain(..) {
            again.append(&mut confirmed.waiters);
        }
        again.append(&mut self.waiting);
        self.waiting = again;
    }

    fn requeue_pending(&mut self) {
        if let Some(mut asked) = self.pending.take() {
            asked.waiters.append(&mut self.waiting);
            self.waiting = asked.waiters;
        }
    }

    /// Releases the reads that waited for slots below `applied_to`.
    pub(crate) fn release_applied(&mut self, applied_to: Slot, completions: &mut Completions) {
        let Self { confirmed, read_count: count, .. } = self;
        confirmed.retain_mut(|one| {
            if one.slot > applied_to {
                return true;
            }
            for (waiter, _) in one.waiters.drain(..) {
                *count -= 1;
                completions.report_read_may_run(waiter, one.evidence);
            }
            false
        });
    }

    /// [read-9] Releases all confirmed reads before the slots that they wait for are applied.
    pub(crate) fn release_ahead(&mut self, completions: &mut Completions) {
        for ConfirmedReads { slot, waiters, .. } in self.confirmed.drain(..) {
            self.read_count -= waiters.len();
            waiters.into_iter().for_each(|(waiter, _)| {
                completions.report_read_may_run(waiter, ReadEvidence::Ahead(slot));
            });
        }
    }

    /// Fails the reads that have timed out, and returns their number.
    pub(crate) fn fail_expired(&mut self, now: Time, completions: &mut Completions) -> u64 {
        let asked = self.pending.iter_mut().map(|asked| &mut asked.waiters);
        let confirmed = self.confirmed.iter_mut().map(|one| &mut one.waiters);
        let mut expired = 0;
        for waiters in asked.chain(confirmed).chain([&mut self.waiting]) {
            while let Some((waiter, _)) = waiters.pop_front_if(|(_, deadline)| *deadline <= now) {
                completions.fail(waiter, Failure::NoQuorum);
                expired += 1;
            }
        }
        self.confirmed.retain(|one| !one.waiters.is_empty());
        self.read_count -= expired;
        expired as u64
    }

    /// Returns the time at which linearizable reads next need a turn, even without further input.
    pub(crate) fn wake_at(&self, patience_ms: u64) -> Option<Time> {
        let asked = self.pending.as_ref().map(|asked| asked.sent_at.plus_ms(patience_ms));
        let retry = (!self.waiting.is_empty() && self.pending.is_none()).then_some(self.retry_at);
        let first = |waiters: &WaitingReads| waiters.front().map(|(_, deadline)| *deadline);
        let confirmed = self.confirmed.iter().filter_map(|one| first(&one.waiters));
        earliest_time([
            asked,
            retry,
            self.pending.as_ref().and_then(|asked| first(&asked.waiters)),
            confirmed.min(),
            first(&self.waiting),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::front::{Completion, Tag};

    const PATIENCE_MS: u64 = 1000;

    const fn front(tag: u64) -> Waiter {
        Waiter::Front(Tag(tag))
    }

    fn ended(completions: &mut Completions) -> Vec<String> {
        let Some(mut ended) = completions.take_ended() else {
            return Vec::new();
        };
        let mut list = Vec::new();
        while let Some(completion) = ended.next_completion() {
            list.push(match completion {
                Completion::Readable(tag) => format!("{} runs", tag.0),
                Completion::Failed(tag, why) => format!("{} {why:?}", tag.0),
                other => format!("{other:?}"),
            });
        }
        list
    }

    fn reads(tags: &[(u64, u64)]) -> (Reads, Completions) {
        let (mut reads, mut completions) = (Reads::default(), Completions::default());
        for (tag, deadline) in tags {
            completions.count_opened();
            reads.push(front(*tag), Time(*deadline));
        }
        (reads, completions)
    }

    #[test]
    fn many_reads_share_a_confirmation_and_late_ones_wait_for_the_next() {
        let (mut reads, mut completions) = reads(&[(1, 100), (2, 100)]);
        let first = reads.next_question(Time(0), PATIENCE_MS, false).unwrap();
        reads.push(front(3), Time(100));
        assert_eq!(
            reads.next_question(Time(0), PATIENCE_MS, false),
            None,
            "one question at a time"
        );
        assert_eq!(reads.on_confirmed(first, Slot(8)), Some(Time(0)));
        reads.release_applied(Slot(7), &mut completions);
        assert_eq!(ended(&mut completions), [""; 0]);
        reads.release_applied(Slot(8), &mut completions);
        assert_eq!(ended(&mut completions), ["1 runs", "2 runs"]);
        let second = reads.next_question(Time(0), PATIENCE_MS, false).unwrap();
        assert!(reads.on_confirmed(first, Slot(9)).is_none(), "an old answer confirms no read");
        assert!(reads.on_confirmed(second, Slot(8)).is_some());
        reads.release_applied(Slot(8), &mut completions);
        assert_eq!(ended(&mut completions), ["3 runs"]);
        assert_eq!(reads.len(), 0);
    }

    #[test]
    fn failed_confirmation_is_repeated_and_keeps_the_order() {
        let (mut reads, mut completions) = reads(&[(1, 100)]);
        let token = reads.next_question(Time(0), PATIENCE_MS, false).unwrap();
        reads.push(front(2), Time(100));
        reads.on_refused(token, Time(5));
        assert_eq!(reads.next_question(Time(4), PATIENCE_MS, false), None);
        assert_eq!(reads.wake_at(PATIENCE_MS), Some(Time(5)));
        let token = reads.next_question(Time(5), PATIENCE_MS, false).unwrap();
        reads.on_confirmed(token, Slot(1));
        reads.release_applied(Slot(1), &mut completions);
        assert_eq!(ended(&mut completions), ["1 runs", "2 runs"]);
    }

    #[test]
    fn expired_read_was_not_executed() {
        let (mut reads, mut completions) = reads(&[(1, 10), (2, 20), (3, 30)]);
        let token = reads.next_question(Time(0), PATIENCE_MS, false).unwrap();
        assert_eq!(reads.fail_expired(Time(10), &mut completions), 1);
        reads.on_confirmed(token, Slot(5));
        assert_eq!(reads.fail_expired(Time(20), &mut completions), 1);
        assert_eq!(ended(&mut completions), ["1 NoQuorum", "2 NoQuorum"]);
        reads.release_applied(Slot(5), &mut completions);
        assert_eq!(ended(&mut completions), ["3 runs"]);
    }

    #[test]
    fn unanswered_confirmation_is_replaced_by_a_new_one() {
        let (mut reads, _) = reads(&[(1, u64::MAX)]);
        let first = reads.next_question(Time(0), PATIENCE_MS, false).unwrap();
        assert_eq!(reads.wake_at(PATIENCE_MS), Some(Time(1_000_000)));
        let second = reads.next_question(Time(1_000_000), PATIENCE_MS, false).unwrap();
        assert_ne!(first, second);
        assert!(reads.on_confirmed(first, Slot(1)).is_none());
        assert!(reads.on_confirmed(second, Slot(1)).is_some());
    }
}
