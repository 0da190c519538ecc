//! Front end without connections that records the results of requests.

use std::collections::BTreeMap;

use quorate_core::{slot::Slot, value::StreamName};
use quorate_stream::{Denied, StreamOutcome, table::LocateError};

use crate::ports::{
    front::{Completion, ConnectionId, Endpoints, Failure, Front, Requests, SessionId, State, Tag},
    stream_front::{StreamEvent, StreamTag},
};

/// Result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The command was executed, with this reply.
    Written(Vec<u8>),
    /// The command is in memory at a quorum, in this slot.
    InMemory(Slot),
    /// Reply to a linearizable query.
    Read(Vec<u8>),
    Registered(SessionId),
    /// The request failed, or its outcome is unknown.
    Failed(Failure),
}

/// Copies of [`StreamEvent`]s, as delivered to a front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveredEvent {
    Executed(StreamTag, StreamOutcome),
    Refused(StreamTag, Denied),
    Failed(StreamTag, Failure),
    UpToDate(StreamTag),
    Bytes(StreamTag, Vec<u8>),
    NoBytes(StreamTag, LocateError),
    Durable(StreamName, u64),
    Ended(StreamName, u64),
}

/// A front without connections that records its events.
#[derive(Default)]
pub(super) struct RecordingFront {
    queries: BTreeMap<Tag, Vec<u8>>,
    /// Results of reads that ran between commands.
    query_answers: BTreeMap<Tag, Result<Vec<u8>, Failure>>,
    outcomes: BTreeMap<Tag, Outcome>,
    /// Stream events that were not taken yet.
    stream_events: Vec<DeliveredEvent>,
    /// Messages of the service's notices.
    notices: Vec<Vec<u8>>,
}

impl RecordingFront {
    /// Records a request that was refused immediately.
    pub(super) fn record_refusal(&mut self, tag: Tag, failure: Failure) {
        self.outcomes.insert(tag, Outcome::Failed(failure));
    }

    /// Stores the query of a read until the read may run.
    pub(super) fn store_query(&mut self, tag: Tag, query: &[u8]) {
        self.queries.insert(tag, query.to_vec());
    }

    pub(super) fn notices(&self) -> &[Vec<u8>] {
        &self.notices
    }

    pub(super) fn take_heard(&mut self) -> Vec<DeliveredEvent> {
        std::mem::take(&mut self.stream_events)
    }

    pub(super) fn outcome(&self, tag: Tag) -> Option<&Outcome> {
        self.outcomes.get(&tag)
    }
}

impl Front for RecordingFront {
    fn handle_opened(&mut self, _: ConnectionId, _: Endpoints, _: &mut dyn Requests) {}

    fn receive_bytes(
        &mut self,
        _connection: ConnectionId,
        bytes: &[u8],
        _requests: &mut dyn Requests,
    ) -> usize {
        bytes.len()
    }

    fn accepts_input(&self, _connection: ConnectionId) -> bool {
        true
    }

    fn handle_completion(&mut self, completion: Completion<'_>, requests: &mut dyn Requests) {
        let (tag, outcome) = match completion {
            Completion::Written(tag, reply) => (tag, Outcome::Written(reply.to_vec())),
            Completion::InMemory(tag, slot) => (tag, Outcome::InMemory(slot)),
            Completion::Registered(tag, session) => (tag, Outcome::Registered(session)),
            Completion::Failed(tag, failure) => (tag, Outcome::Failed(failure)),
            Completion::Readable(tag) => {
                let mut answer = Vec::new();
                let query = self.queries.get(&tag).map_or(&[][..], Vec::as_slice);
                match requests.run_query(tag, query, &mut answer) {
                    Err(Failure::Overtaken) => {
                        if let Err(failure) = requests.read(tag) {
                            self.outcomes.insert(tag, Outcome::Failed(failure));
                        }
                        return;
                    }
                    Ok(()) => (tag, Outcome::Read(answer)),
                    Err(failure) => (tag, Outcome::Failed(failure)),
                }
            }
            Completion::Read(tag) => {
                let answer = self.query_answers.remove(&tag).expect("it ran before");
                (tag, answer.map_or_else(Outcome::Failed, Outcome::Read))
            }
        };
        let twice = self.outcomes.insert(tag, outcome);
        assert!(twice.is_none(), "request {tag:?} ended twice");
    }

    fn deliver_notice(&mut self, _: &[u8], message: &[u8]) {
        self.notices.push(message.to_vec());
    }

    fn handle_stream_event(&mut self, event: StreamEvent<'_>, _: &mut dyn Requests) {
        self.stream_events.push(match event {
            StreamEvent::Executed(tag, done) => DeliveredEvent::Executed(tag, done),
            StreamEvent::Refused(tag, denied) => DeliveredEvent::Refused(tag, denied),
            StreamEvent::Failed(tag, failure) => DeliveredEvent::Failed(tag, failure),
            StreamEvent::UpToDate(tag) => DeliveredEvent::UpToDate(tag),
            StreamEvent::Bytes(tag, bytes) => DeliveredEvent::Bytes(tag, bytes.to_vec()),
            StreamEvent::NoBytes(tag, nowhere) => DeliveredEvent::NoBytes(tag, nowhere),
            StreamEvent::Durable(piece, position) => DeliveredEvent::Durable(piece, position),
            StreamEvent::Ended(piece, position) => DeliveredEvent::Ended(piece, position),
        });
    }

    fn read_now(&mut self, tag: Tag, state: &dyn State) {
        let mut answer = Vec::new();
        let query = self.queries.get(&tag).map_or(&[][..], Vec::as_slice);
        let asked = state.query(query, &mut answer);
        let twice = self.query_answers.insert(tag, asked.map(|()| answer));
        assert!(twice.is_none(), "read {tag:?} ran twice");
    }

    fn next_dirty(&mut self) -> Option<ConnectionId> {
        None
    }

    fn output(&mut self, _connection: ConnectionId) -> &[u8] {
        unreachable!("no connection was opened")
    }

    fn record_sent(&mut self, _connection: ConnectionId, _count: usize) {}

    fn should_close(&self, _connection: ConnectionId) -> bool {
        false
    }

    fn handle_closed(&mut self, _connection: ConnectionId, _requests: &mut dyn Requests) {}

    fn is_busy(&self, _connection: ConnectionId) -> bool {
        false
    }

    fn open_requests(&self) -> usize {
        0
    }

    fn connections(&self) -> usize {
        0
    }
}
