//! Queue of notifications to front ends: completed requests in order, with their replies in one
//! shared buffer, and the few results for operators.

use std::collections::{BTreeSet, VecDeque};

use quorate_core::{slot::Slot, time::Time};

use crate::{
    group::Reply,
    outlasting::HeldReplies,
    ports::outcome::{Completion, Failure, SessionId, StreamTag, Tag},
    proposing::gather::Waiter,
    reading::evidence::Evidence,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The request was executed. Contains the length of its reply in the reply buffer.
    Written(usize),
    InMemory(Slot),
    Registered(SessionId),
    Readable(Evidence),
    Read,
    Failed(Failure),
}

/// Completed requests that were taken out of the queue to notify a front of them.
#[derive(Debug, Default)]
pub struct Ended {
    list: VecDeque<(Tag, Outcome)>,
    replies: Vec<u8>,
    next_index: usize,
}

impl Ended {
    pub fn next_completion(&mut self) -> Option<Completion<'_>> {
        let (tag, outcome) = self.list.pop_front()?;
        Some(self.completion(tag, outcome))
    }

    /// Returns the next completion, skipping requests that the front has dropped.
    pub(crate) fn next_not_forgotten(
        &mut self,
        queue: &mut Completions,
    ) -> Option<(Completion<'_>, Evidence)> {
        loop {
            let (tag, outcome) = self.list.pop_front()?;
            if !queue.dropped.remove(&tag) {
                let evidence = match outcome {
                    Outcome::Readable(evidence) => evidence,
                    _ => Evidence::Confirmed,
                };
                return Some((self.completion(tag, outcome), evidence));
            }
            if let Outcome::Written(length) = outcome {
                self.next_index += length;
            }
        }
    }

    fn completion(&mut self, tag: Tag, outcome: Outcome) -> Completion<'_> {
        match outcome {
            Outcome::Written(length) => {
                let from = self.next_index;
                self.next_index += length;
                Completion::Written(tag, &self.replies[from..self.next_index])
            }
            Outcome::InMemory(slot) => Completion::InMemory(tag, slot),
            Outcome::Registered(session) => Completion::Registered(tag, session),
            Outcome::Readable(_) => Completion::Readable(tag),
            Outcome::Read => Completion::Read(tag),
            Outcome::Failed(failure) => Completion::Failed(tag, failure),
        }
    }
}

/// Queue of completions, bounded by its callers: no values are applied while [`Completions::bytes`]
/// is at the limit, and every other completion ends a request of a bounded queue.
#[derive(Debug, Default)]
pub(crate) struct Completions {
    ended: Ended,
    /// Requests that their front dropped.
    dropped: BTreeSet<Tag>,
    open: usize,
    /// [offload-9] Requests without a quorum fail because this node's device does not answer.
    device_is_late: bool,
    /// A front is currently being notified of completions that were taken out of the queue.
    is_notifying: bool,
    /// Numbers of operators' requests that can be checked against the currently applied state.
    judged: VecDeque<u64>,
    /// Results of operators' requests to the group, by request number.
    group: VecDeque<(u64, Result<Reply, Failure>)>,
    /// Replies held until their commands are on stable storage at a quorum.
    outlasting: HeldReplies,
    /// Stream requests that are ready or have failed.
    streams: VecDeque<(StreamTag, Result<(), Failure>)>,
}

impl Completions {
    /// Counts an accepted request. Every request completes exactly once.
    pub(crate) fn opened(&mut self) {
        self.open += 1;
    }

    pub(crate) fn open_count(&self) -> usize {
        self.open
    }

    pub(crate) fn bytes(&self) -> usize {
        self.ended.replies.len() + self.ended.list.len() * size_of::<(Tag, Outcome)>()
    }

    pub(crate) fn written(&mut self, tag: Tag, reply: &[u8]) {
        if self.ends(tag) {
            self.ended.replies.extend_from_slice(reply);
            self.ended.list.push_back((tag, Outcome::Written(reply.len())));
        }
    }

    /// [less-2] Reports that the command of `tag`, in slot `slot`, is in memory at a quorum.
    pub(crate) fn in_memory(&mut self, tag: Tag, slot: Slot) {
        if self.ends(tag) {
            self.ended.list.push_back((tag, Outcome::InMemory(slot)));
        }
    }

    /// [class-2] Holds a reply until the command in this slot is on stable storage at a quorum, at
    /// most until the deadline `until`.
    pub(crate) fn hold_reply(&mut self, tag: Tag, slot: Slot, until: Time, reply: &[u8]) {
        self.outlasting.hold_reply(tag, slot, until, reply);
    }

    pub(crate) fn outlasting(&mut self) -> &mut HeldReplies {
        &mut self.outlasting
    }

    /// [class-2] Sends the replies held for slots below `to`.
    pub(crate) fn lasts(&mut self, to: Slot) {
        self.outlasting.lasts(to);
        while let Some((tag, reply)) = self.outlasting.next_durable() {
            self.written(tag, &reply);
        }
    }

    pub(crate) fn lasting_deadline(&self) -> Option<Time> {
        self.outlasting.deadline()
    }

    /// [last-4] Fails the requests whose held replies are overdue, and returns their number.
    pub(crate) fn expire_lasting(&mut self, now: Time) -> u64 {
        let mut expired = 0;
        while let Some(tag) = self.outlasting.next_overdue(now) {
            self.failed(tag, Failure::NotLasting);
            expired += 1;
        }
        expired
    }

    pub(crate) fn registered(&mut self, tag: Tag, session: SessionId) {
        if self.ends(tag) {
            self.ended.list.push_back((tag, Outcome::Registered(session)));
        }
    }

    /// Reports that a read may run now.
    pub(crate) fn runs(&mut self, waiter: Waiter, evidence: Evidence) {
        match waiter {
            Waiter::Front(tag) => self.readable(tag, evidence),
            Waiter::Stream(tag) => self.streams.push_back((tag, Ok(()))),
            Waiter::Operator(asked) => self.judged.push_back(asked),
            Waiter::Lasting(_)
            | Waiter::Early(_)
            | Waiter::Told
            | Waiter::Service
            | Waiter::Gone => {}
        }
    }

    pub(crate) fn take_stream(&mut self) -> Option<(StreamTag, Result<(), Failure>)> {
        self.streams.pop_front()
    }

    pub(crate) fn readable(&mut self, tag: Tag, evidence: Evidence) {
        if self.ends(tag) {
            self.ended.list.push_back((tag, Outcome::Readable(evidence)));
        }
    }

    /// Completes a read that is about to run between commands. Returns `false` if the front has
    /// dropped the read, which must then not run.
    pub(crate) fn read(&mut self, tag: Tag) -> bool {
        let wanted = self.ends(tag);
        if wanted {
            self.ended.list.push_back((tag, Outcome::Read));
        }
        wanted
    }

    /// Records the reply to an operator's executed request.
    pub(crate) fn granted(&mut self, asked: u64, reply: Reply) {
        self.group.push_back((asked, Ok(reply)));
    }

    /// Takes the next operator's request that can be checked now.
    pub(crate) fn take_judged(&mut self) -> Option<u64> {
        self.judged.pop_front()
    }

    /// Takes the next result of an operator's request, with the number of the request.
    pub(crate) fn take_group(&mut self) -> Option<(u64, Result<Reply, Failure>)> {
        self.group.pop_front()
    }

    /// [offload-9] Records whether this node's device fails to answer.
    pub(crate) const fn note_late_device(&mut self, is_late: bool) {
        self.device_is_late = is_late;
    }

    /// Completes a pending request with a failure. Returns `false` if no client waits.
    pub(crate) fn fail(&mut self, waiter: Waiter, failure: Failure) -> bool {
        let failure = match failure {
            Failure::NoQuorum if self.device_is_late => Failure::Voteless,
            other => other,
        };
        match waiter {
            Waiter::Front(tag) | Waiter::Lasting(tag) | Waiter::Early(tag) => {
                self.failed(tag, failure);
            }
            Waiter::Operator(asked) => self.group.push_back((asked, Err(failure))),
            Waiter::Stream(tag) => self.streams.push_back((tag, Err(failure))),
            Waiter::Told | Waiter::Service | Waiter::Gone => return false,
        }
        true
    }

    pub(crate) fn failed(&mut self, tag: Tag, failure: Failure) {
        if self.ends(tag) {
            self.ended.list.push_back((tag, Outcome::Failed(failure)));
        }
    }

    /// Drops a request from the front end: its completion is removed from the queue, now or when it
    /// arrives. The tags of requests without a completion are cleared once no requests are open.
    pub(crate) fn drop_request(&mut self, tag: Tag) {
        if let Some(at) = self.ended.list.iter().position(|(ended, _)| *ended == tag) {
            self.remove(at);
        } else if self.open > 0 || self.is_notifying {
            self.dropped.insert(tag);
        }
    }

    fn remove(&mut self, at: usize) {
        let mut from = 0;
        for (_, outcome) in self.ended.list.range(..at) {
            if let Outcome::Written(length) = outcome {
                from += length;
            }
        }
        if let Some((_, Outcome::Written(length))) = self.ended.list.remove(at) {
            self.ended.replies.drain(from..from + length);
        }
    }

    fn ends(&mut self, tag: Tag) -> bool {
        self.open = self.open.saturating_sub(1);
        let wanted = self.dropped.is_empty() || !self.dropped.remove(&tag);
        if self.open == 0 && !self.is_notifying {
            self.dropped.clear();
        }
        wanted
    }

    /// Takes all completed requests out of the queue; `None` if there are none.
    pub(crate) fn take_ended(&mut self) -> Option<Ended> {
        self.is_notifying = !self.ended.list.is_empty();
        self.is_notifying.then(|| std::mem::take(&mut self.ended))
    }

    /// Returns the buffers of a completed notification to the queue for reuse.
    pub(crate) fn recycle(&mut self, mut ended: Ended) {
        self.is_notifying = false;
        if self.open == 0 {
            self.dropped.clear();
        }
        if self.ended.list.is_empty() && self.ended.replies.is_empty() {
            ended.list.clear();
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
        (0..4).for_each(|_| completions.opened());
        completions.written(Tag(1), b"one");
        completions.failed(Tag(2), Failure::Busy);
        completions.written(Tag(3), b"");
        completions.written(Tag(4), b"four");
        completions.drop_request(Tag(1));
        let mut ended = completions.take_ended().unwrap();
        assert_eq!(ended.next_completion(), Some(Completion::Failed(Tag(2), Failure::Busy)));
        assert_eq!(ended.next_completion(), Some(Completion::Written(Tag(3), b"")));
        assert_eq!(ended.next_completion(), Some(Completion::Written(Tag(4), b"four")));
        assert_eq!(ended.next_completion(), None);
        completions.recycle(ended);
        assert_eq!((completions.open_count(), completions.bytes()), (0, 0));
    }

    /// A front end notified of some requests may drop others, e.g. by closing a connection.
    #[test]
    fn request_dropped_during_notification_is_not_notified() {
        let mut completions = Completions::default();
        (0..3).for_each(|_| completions.opened());
        completions.failed(Tag(1), Failure::Busy);
        completions.written(Tag(2), b"two");
        completions.written(Tag(3), b"three");
        let mut ended = completions.take_ended().unwrap();
        assert!(ended.next_not_forgotten(&mut completions).is_some());
        completions.drop_request(Tag(2));
        let next = ended.next_not_forgotten(&mut completions);
        let next = next.map(|(completion, _)| completion);
        assert_eq!(next, Some(Completion::Written(Tag(3), b"three")));
        completions.recycle(ended);
        assert!(completions.dropped.is_empty());
    }

    #[test]
    fn dropped_request_completes_without_notification() {
        let mut completions = Completions::default();
        (0..2).for_each(|_| completions.opened());
        completions.drop_request(Tag(1));
        completions.written(Tag(1), b"one");
        assert!(completions.take_ended().is_none());
        completions.drop_request(Tag(9));
        completions.readable(Tag(2), Evidence::Confirmed);
        let ended = completions.take_ended().unwrap();
        completions.recycle(ended);
        assert!(completions.dropped.is_empty(), "nothing is open, nothing to remember");
    }
}
