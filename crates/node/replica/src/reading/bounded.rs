//! Reads with bounded staleness ([read-6]).
//!
//! Staleness is measured from the time at which a confirmed request was *sent*: everything
//! acknowledged before that is in slots below the answer's. A message from the leader proves
//! nothing, since another node may have taken over in the meantime.

use std::collections::VecDeque;

use quorate_core::{slot::Slot, time::Time};

use super::evidence::ReadEvidence;
use crate::{
    completions::Completions,
    ports::front::{Failure, Tag},
    wake::earliest_time,
};

/// Maximum number of answers that wait until their slots are applied.
const PENDING_MAX: usize = 8;

#[derive(Debug)]
struct WaitingRead {
    tag: Tag,
    max_age_us: u64,
    deadline: Time,
}

/// Answer to a request for confirmation: the time at which the request was sent, and the first slot
/// that the answer does not cover.
type FreshnessAnswer = (Time, Slot);

/// Waiting reads with a bound, and the freshness of this node.
#[derive(Debug, Default)]
pub(crate) struct BoundedReads {
    waiting_reads: VecDeque<WaitingRead>,
    /// Latest answer whose slots are all applied.
    applied_answer: Option<FreshnessAnswer>,
    /// Later answers, whose slots have not all been applied yet.
    pending_answers: VecDeque<FreshnessAnswer>,
    /// A read with a bound has been requested. Until then, answers are not retained.
    is_used: bool,
}

impl BoundedReads {
    /// Returns the number of reads that have not completed.
    pub(crate) fn len(&self) -> usize {
        self.waiting_reads.len()
    }

    pub(crate) fn push(&mut self, tag: Tag, most_us: u64, deadline: Time) {
        self.is_used = true;
        self.waiting_reads.push_back(WaitingRead { tag, max_age_us: most_us, deadline });
    }

    /// Records the answer to a request that was sent at `asked_at`.
    pub(crate) fn on_confirmed(&mut self, asked_at: Time, slot: Slot) {
        if self.is_used {
            if self.pending_answers.len() >= PENDING_MAX {
                self.pending_answers.pop_front();
            }
            self.pending_answers.push_back((asked_at, slot));
        }
    }

    /// Drops the pending answers, whose slots may never be decided in a new ballot.
    pub(crate) fn on_new_ballot(&mut self) {
        self.pending_answers.clear();
    }

    /// Returns whether to query the leader: no pending answer is recent enough for a read.
    pub(crate) fn needs_question(&self, now: Time) -> bool {
        let newest = self.pending_answers.back();
        let fresh = |waiting: &WaitingRead| {
            newest.is_some_and(|(asked_at, _)| now.since_us(*asked_at) <= waiting.max_age_us)
        };
        self.waiting_reads.iter().any(|waiting| !fresh(waiting))
    }

    /// Releases the reads for which this node's applied state is fresh enough.
    pub(crate) fn release_fresh(
        &mut self,
        now: Time,
        applied_to: Slot,
        completions: &mut Completions,
    ) {
        if !self.is_used {
            return;
        }
        while let Some(answer) = self.pending_answers.pop_front_if(|(_, slot)| *slot <= applied_to)
        {
            self.applied_answer = Some(answer);
        }
        let Some((asked_at, slot)) = self.applied_answer.filter(|(_, slot)| *slot <= applied_to)
        else {
            return;
        };
        self.waiting_reads.retain(|waiting| {
            let most_us = waiting.max_age_us;
            if now.since_us(asked_at) > most_us {
                return true;
            }
            let evidence =
                ReadEvidence::FreshWithin { requested_at: asked_at, slot, max_age_us: most_us };
            completions.report_readable(waiting.tag, evidence);
            false
        });
    }

    /// Fails the reads that have timed out, and returns their number.
    pub(crate) fn fail_expired(&mut self, now: Time, completions: &mut Completions) -> u64 {
        let before = self.waiting_reads.len();
        self.waiting_reads.retain(|waiting| {
            let late = waiting.deadline <= now;
            if late {
                completions.complete_failed(waiting.tag, Failure::Stale);
            }
            !late
        });
        (before - self.waiting_reads.len()) as u64
    }

    /// Returns the time at which reads with a bound next need a turn, even without further input.
    pub(crate) fn wake_at(&self) -> Option<Time> {
        let first = self.waiting_reads.iter().map(|waiting| waiting.deadline).min();
        earliest_time([first])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::front::Completion;

    fn ended(completions: &mut Completions) -> Vec<String> {
        let mut list = Vec::new();
        let Some(mut ended) = completions.take_ended() else {
            return list;
        };
        while let Some(completion) = ended.next_completion() {
            list.push(match completion {
                Completion::Readable(tag) => format!("{} runs", tag.0),
                Completion::Failed(tag, why) => format!("{} {why:?}", tag.0),
                other => format!("{other:?}"),
            });
        }
        list
    }

    fn reads(bounds_us: &[u64]) -> (BoundedReads, Completions) {
        let (mut bounded, mut completions) = (BoundedReads::default(), Completions::default());
        for (tag, most_us) in (1..).zip(bounds_us) {
            completions.count_opened();
            bounded.push(Tag(tag), *most_us, Time(1000));
        }
        (bounded, completions)
    }

    #[test]
    fn bound_counts_from_the_request_and_needs_the_answered_slot() {
        let (mut bounded, mut completions) = reads(&[50, 10]);
        assert!(bounded.needs_question(Time(100)));
        bounded.on_confirmed(Time(100), Slot(7));
        bounded.release_fresh(Time(105), Slot(6), &mut completions);
        assert_eq!(ended(&mut completions), [""; 0], "not applied yet");
        assert!(!bounded.needs_question(Time(105)));
        assert!(bounded.needs_question(Time(120)), "too old for the second");
        bounded.release_fresh(Time(120), Slot(7), &mut completions);
        assert_eq!(ended(&mut completions), ["1 runs"]);
        bounded.on_confirmed(Time(121), Slot(7));
        bounded.release_fresh(Time(131), Slot(7), &mut completions);
        assert_eq!(ended(&mut completions), ["2 runs"]);
    }

    /// The applied position is no evidence after the service was rebuilt from an earlier state.
    #[test]
    fn rebuilt_service_invalidates_earlier_confirmations() {
        let (mut bounded, mut completions) = reads(&[500]);
        bounded.on_confirmed(Time(100), Slot(7));
        bounded.release_fresh(Time(101), Slot(7), &mut completions);
        completions.count_opened();
        bounded.push(Tag(2), 500, Time(1000));
        bounded.release_fresh(Time(102), Slot(5), &mut completions);
        assert_eq!(ended(&mut completions), ["1 runs"]);
        assert!(bounded.needs_question(Time(102)));
        bounded.on_new_ballot();
        assert_eq!(bounded.fail_expired(Time(1000), &mut completions), 1);
        assert_eq!(ended(&mut completions), ["2 Stale"]);
    }
}
