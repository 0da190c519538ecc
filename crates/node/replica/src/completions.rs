//! Queue of notifications to front ends: completed requests in order, with their replies in one
//! shared buffer, and the few results for operators.

use std::collections::{BTreeSet, VecDeque};

use quorate_core::{slot::Slot, time::Time};

use crate::{
    group::CommandReply,
    outlasting::HeldReplies,
    ports::outcome::{Completion, Failure, SessionId, StreamTag, Tag},
    proposing::gather::Waiter,
    reading::evidence::ReadEvidence,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestOutcome {
    /// The request was executed. Contains the length of its reply in the reply buffer.
    Written(usize),
    InMemory(Slot),
    Registered(SessionId),
    Readable(ReadEvidence),
    Read,
    Failed(Failure),
}

/// Completed requests that were taken out of the queue to notify a front of them.
#[derive(Debug, Default)]
pub struct CompletedRequests {
    outcomes: VecDeque<(Tag, RequestOutcome)>,
    replies: Vec<u8>,
    next_index: usize,
}

impl CompletedRequests {
    pub fn next_completion(&mut self) -> Option<Completion<'_>> {
        let (tag, outcome) = self.outcomes.pop_front()?;
        Some(self.completion(tag, outcome))
    }

    /// Returns the next completion, skipping requests that the front has dropped.
    pub(crate) fn next_not_forgotten(
        &mut self,
        queue: &mut Completions,
    ) -> Option<(Completion<'_>, ReadEvidence)> {
        loop {
            let (tag, outcome) = self.outcomes.pop_front()?;
            if !queue.dropped_tags.remove(&tag) {
                let evidence = match outcome {
                    RequestOutcome::Readable(evidence) => evidence,
                    _ => ReadEvidence::Confirmed,
                };
                return Some((self.completion(tag, outcome), evidence));
            }
            if let RequestOutcome::Written(length) = outcome {
                self.next_index += length;
            }
        }
    }

    fn completion(&mut self, tag: Tag, outcome: RequestOutcome) -> Completion<'_> {
        match outcome {
            RequestOutcome::Written(length) => {
                let from = self.next_index;
                self.next_index += length;
                Completion::Written(tag, &self.replies[from..self.next_index])
            }
            RequestOutcome::InMemory(slot) => Completion::InMemory(tag, slot),
            RequestOutcome::Registered(session) => Completion::Registered(tag, session),
            RequestOutcome::Readable(_) => Completion::Readable(tag),
            RequestOutcome::Read => Completion::Read(tag),
            RequestOutcome::Failed(failure) => Completion::Failed(tag, failure),
        }
    }
}

/// Queue of completions, bounded by its callers: no values are applied while [`Completions::bytes`]
/// is at the limit, and every other completion ends a request of a bounded queue.
#[derive(Debug, Default)]
pub(crate) struct Completions {
    ended: CompletedRequests,
    /// Requests that their front dropped.
    dropped_tags: BTreeSet<Tag>,
    open: usize,
    /// [offload-9] Requests without a quorum fail because this node's device does not answer.
    device_is_late: bool,
    /// A front is currently being notified of completions that were taken out of the queue.
    is_notifying: bool,
    /// Numbers of operators' requests that can be checked against the currently applied state.
    checkable_requests: VecDeque<u64>,
    /// Results of operators' requests to the group, by request number.
    group_results: VecDeque<(u64, Result<CommandReply, Failure>)>,
    /// Replies held until their commands are on stable storage at a quorum.
    held_replies: HeldReplies,
    /// Stream requests that are ready or have failed.
    stream_results: VecDeque<(StreamTag, Result<(), Failure>)>,
}

impl Completions {
    /// Counts an accepted request. Every request completes exactly once.
    pub(crate) fn count_opened(&mut self) {
        self.open += 1;
    }

    pub(crate) fn open_count(&self) -> usize {
        self.open
    }

    pub(crate) fn bytes(&self) -> usize {
        self.ended.replies.len() + self.ended.outcomes.len() * size_of::<(Tag, RequestOutcome)>()
    }

    pub(crate) fn complete_write(&mut self, tag: Tag, reply: &[u8]) {
        if self.end_request(tag) {
            self.ended.replies.extend_from_slice(reply);
            self.ended.outcomes.push_back((tag, RequestOutcome::Written(reply.len())));
        }
    }

    /// [less-2] Reports that the command of `tag`, in slot `slot`, is in memory at a quorum.
    pub(crate) fn complete_in_memory(&mut self, tag: Tag, slot: Slot) {
        if self.end_request(tag) {
            self.ended.outcomes.push_back((tag, RequestOutcome::InMemory(slot)));
        }
    }

    /// [class-2] Holds a reply until the command in this slot is on stable storage at a quorum, at
    /// most until the deadline `until`.
    pub(crate) fn hold_reply(&mut self, tag: Tag, slot: Slot, until: Time, reply: &[u8]) {
        self.held_replies.hold_reply(tag, slot, until, reply);
    }

    pub(crate) fn held_replies(&mut self) -> &mut HeldReplies {
        &mut self.held_replies
    }

    /// [class-2] Sends the replies held for slots below `to`.
    pub(crate) fn release_durable(&mut self, to: Slot) {
        self.held_replies.record_durable(to);
        while let Some((tag, reply)) = self.held_replies.next_durable() {
            self.complete_write(tag, &reply);
        }
    }

    pub(crate) fn next_reply_deadline(&self) -> Option<Time> {
        self.held_replies.deadline()
    }

    /// [last-4] Fails the requests whose held replies are overdue, and returns their number.
    pub(crate) fn fail_overdue_replies(&mut self, now: Time) -> u64 {
        let mut expired = 0;
        while let Some(tag) = self.held_replies.next_overdue(now) {
            self.complete_failed(tag, Failure::NotLasting);
            expired += 1;
        }
        expired
    }

    pub(crate) fn complete_registration(&mut self, tag: Tag, session: SessionId) {
        if self.end_request(tag) {
            self.ended.outcomes.push_back((tag, RequestOutcome::Registered(session)));
        }
    }

    /// Reports that a read may run now.
    pub(crate) fn report_read_may_run(&mut self, waiter: Waiter, evidence: ReadEvidence) {
        match waiter {
            Waiter::Front(tag) => self.report_readable(tag, evidence),
            Waiter::Stream(tag) => self.stream_results.push_back((tag, Ok(()))),
            Waiter::Operator(asked) => self.checkable_requests.push_back(asked),
            Waiter::FrontDurable(_)
            | Waiter::FrontEarly(_)
            | Waiter::AlreadyNotified
            | Waiter::Service
            | Waiter::TimedOut => {}
        }
    }

    pub(crate) fn take_stream_result(&mut self) -> Option<(StreamTag, Result<(), Failure>)> {
        self.stream_results.pop_front()
    }

    pub(crate) fn report_readable(&mut self, tag: Tag, evidence: ReadEvidence) {
        if self.end_request(tag) {
            self.ended.outcomes.push_back((tag, RequestOutcome::Readable(evidence)));
        }
    }

    /// Completes a read that is about to run between commands. Returns `false` if the front has
    /// dropped the read, which must then not run.
    pub(crate) fn complete_read(&mut self, tag: Tag) -> bool {
        let wanted = self.end_request(tag);
        if wanted {
            self.ended.outcomes.push_back((tag, RequestOutcome::Read));
        }
        wanted
    }

    /// Records the reply to an operator's executed request.
    pub(crate) fn complete_group_request(&mut self, asked: u64, reply: CommandReply) {
        self.group_results.push_back((asked, Ok(reply)));
    }

    /// Takes the next operator's request that can be checked now.
    pub(crate) fn take_checkable(&mut self) -> Option<u64> {
        self.checkable_requests.pop_front()
    }

    /// Takes the next result of an operator's request, with the number of the request.
    pub(crate) fn take_group_result(&mut self) -> Option<(u64, Result<CommandReply, Failure>)> {
        self.group_results.pop_front()
    }

    /// [offload-9] Records whether this node's device fails to answer.
    pub(crate) const fn set_device_late(&mut self, is_late: bool) {
        self.device_is_late = is_late;
    }

    /// Completes a pending request with a failure. Returns `false` if no client waits.
    pub(crate) fn fail(&mut self, waiter: Waiter, failure: Failure) -> bool {
        let failure = match failure {
            Failure::NoQuorum if self.device_is_late => Failure::Voteless,
            other => other,
        };
        match waiter {
            Waiter::Front(tag) | Waiter::FrontDurable(tag) | Waiter::FrontEarly(tag) => {
                self.complete_failed(tag, failure);
            }
            Waiter::Operator(asked) => self.group_results.push_back((asked, Err(failure))),
            Waiter::Stream(tag) => self.stream_results.push_back((tag, Err(failure))),
            Waiter::AlreadyNotified | Waiter::Service | Waiter::TimedOut => return false,
        }
        true
    }

    pub(crate) fn complete_failed(&mut self, tag: Tag, failure: Failure) {
        if self.end_request(tag) {
            self.ended.outcomes.push_back((tag, RequestOutcome::Failed(failure)));
        }
    }

    /// Drops a request from the front end: its completion is removed from the queue, now or when it
    /// arrives. The tags of requests without a completion are cleared once no requests are open.
    pub(crate) fn drop_request(&mut self, tag: Tag) {
        if let Some(at) = self.ended.outcomes.iter().position(|(ended, _)| *ended == tag) {
            self.remove(at);
        } else if self.open > 0 || self.is_notifying {
            self.dropped_tags.insert(tag);
        }
    }

    fn remove(&mut self, at: usize) {
        let mut from = 0;
        for (_, outcome) in self.ended.outcomes.range(..at) {
            if let RequestOutcome::Written(length) = outcome {
                from += length;
            }
        }
        if let Some((_, RequestOutcome::Written(length))) = self.ended.outcomes.remove(at) {
            self.ended.replies.drain(from..from + length);
        }
    }

    fn end_request(&mut self, tag: Tag) -> bool {
        self.open = self.open.saturating_sub(1);
        let wanted = self.dropped_tags.is_empty() || !self.dropped_tags.remove(&tag);
        if self.open == 0 && !self.is_notifying {
            self.dropped_tags.clear();
        }
        wanted
    }

    /// Takes all completed requests out of the queue; `None` if there are none.
    pub(crate) fn take_ended(&mut self) -> Option<CompletedRequests> {
        self.is_notifying = !self.ended.outcomes.is_empty();
        self.is_notifying.then(|| std::mem::take(&mut self.ended))
    }

    /// Returns the buffers of a completed notification to the queue for reuse.
    pub(crate) fn recycle_buffers(&mut self, mut ended: CompletedRequests) {
        self.is_notifying = false;
        if self.open == 0 {
            self.dropped_tags.clear();
        }
        if self.ended.outcomes.is_empty() && self.ended.replies.is_empty() {
            ended.outcomes.clear();
            ended.replies.clear();
            ended.next_index = 0;
            ended.replies.shrink_to(1 << 20);
            self.ended = ended;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_returned_with_their_tags() {
        let mut completions = Completions::default();
        (0..4).for_each(|_| completions.count_opened());
        completions.complete_write(Tag(1), b"one");
        completions.complete_failed(Tag(2), Failure::Busy);
        completions.complete_write(Tag(3), b"");
        completions.complete_write(Tag(4), b"four");
        completions.drop_request(Tag(1));
        let mut ended = completions.take_ended().unwrap();
        assert_eq!(ended.next_completion(), Some(Completion::Failed(Tag(2), Failure::Busy)));
        assert_eq!(ended.next_completion(), Some(Completion::Written(Tag(3), b"")));
        assert_eq!(ended.next_completion(), Some(Completion::Written(Tag(4), b"four")));
        assert_eq!(ended.next_completion(), None);
        completions.recycle_buffers(ended);
        assert_eq!((completions.open_count(), completions.bytes()), (0, 0));
    }

    /// A front end notified of some requests may drop others, e.g. by closing a connection.
    #[test]
    fn request_dropped_during_notification_is_not_notified() {
        let mut completions = Completions::default();
        (0..3).for_each(|_| completions.count_opened());
        completions.complete_failed(Tag(1), Failure::Busy);
        completions.complete_write(Tag(2), b"two");
        completions.complete_write(Tag(3), b"three");
        let mut ended = completions.take_ended().unwrap();
        assert!(ended.next_not_forgotten(&mut completions).is_some());
        completions.drop_request(Tag(2));
        let next = ended.next_not_forgotten(&mut completions);
        let next = next.map(|(completion, _)| completion);
        assert_eq!(next, Some(Completion::Written(Tag(3), b"three")));
        completions.recycle_buffers(ended);
        assert!(completions.dropped_tags.is_empty());
    }

    #[test]
    fn dropped_request_completes_without_notification() {
        let mut completions = Completions::default();
        (0..2).for_each(|_| completions.count_opened());
        completions.drop_request(Tag(1));
        completions.complete_write(Tag(1), b"one");
        assert!(completions.take_ended().is_none());
        completions.drop_request(Tag(9));
        completions.report_readable(Tag(2), ReadEvidence::Confirmed);
        let ended = completions.take_ended().unwrap();
        completions.recycle_buffers(ended);
        assert!(completions.dropped_tags.is_empty(), "nothing is open, nothing to remember");
    }
}
