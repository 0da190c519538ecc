//! Requests of the program that embeds the replica: a front without connections.

use std::collections::BTreeMap;

use quorate_net::Asked;
use quorate_replica::front::{
    Completion, ConnectionId, Endpoints, Failure, Front, Requests, Sequenced, SessionId, Tag,
};

/// Requests that may wait for the reactor; more wait in their callers.
pub(crate) const WAITING_MAX: usize = 4096;

/// What the program wants.
pub(crate) enum Wanted {
    /// Order and execute.
    Execute(Vec<u8>),
    /// The same, once in a session.
    ExecuteOnce(Sequenced, Vec<u8>),
    /// A session.
    Register,
    /// Ask, linearizably.
    Query(Vec<u8>),
    /// Ask the local state as it stands.
    QueryLocal(Vec<u8>),
}

/// How a request ended.
#[derive(Debug)]
pub(crate) enum Done {
    /// The service's reply.
    Reply(Vec<u8>),
    /// A session was registered.
    Session(SessionId),
}

type Hears = dyn FnOnce(Result<Done, Failure>) + Send;

/// Who hears how a request ended: once, whatever happens.
pub(crate) struct Answer(Option<Box<Hears>>);

impl Answer {
    pub(crate) fn new(hears: impl FnOnce(Result<Done, Failure>) + Send + 'static) -> Self {
        Self(Some(Box::new(hears)))
    }

    fn tell(mut self, result: Result<Done, Failure>) {
        if let Some(hears) = self.0.take() {
            hears(result);
        }
    }

    /// Whoever asked is told otherwise.
    pub(crate) fn withdraw(mut self) {
        self.0 = None;
    }
}

impl Drop for Answer {
    /// The node is gone with the request: whether it was executed is not known.
    fn drop(&mut self) {
        if let Some(hears) = self.0.take() {
            hears(Err(Failure::Unknown));
        }
    }
}

/// A request, and where its answer goes.
pub(crate) struct Ask {
    pub(crate) wanted: Wanted,
    pub(crate) answer: Answer,
}

struct Open {
    query: Option<Vec<u8>>,
    answer: Answer,
}

/// The reactor's side of a program's requests.
pub(crate) struct LocalFront {
    asks: Asked<Ask>,
    open: BTreeMap<Tag, Open>,
    last: u64,
}

impl LocalFront {
    pub(crate) fn new(asks: Asked<Ask>) -> Self {
        Self {
            asks,
            open: BTreeMap::new(),
            last: 0,
        }
    }

    fn ask(&mut self, ask: Ask, requests: &mut dyn Requests) {
        let Ask { wanted, answer } = ask;
        self.last += 1;
        let tag = Tag(self.last);
        let (taken, query) = match wanted {
            Wanted::Execute(command) | Wanted::ExecuteOnce(_, command)
                if command.len() > requests.command_bytes_max() =>
            {
                (Err(Failure::TooBig), None)
            }
            Wanted::Execute(command) => (requests.write(tag, &command), None),
            Wanted::ExecuteOnce(at, command) => (requests.write_once(tag, at, &command), None),
            Wanted::Register => (requests.register(tag), None),
            Wanted::Query(query) => (requests.read(tag), Some(query)),
            Wanted::QueryLocal(query) => {
                let mut reply = Vec::new();
                let asked = requests.query(&query, &mut reply);
                return answer.tell(asked.map(|()| Done::Reply(reply)));
            }
        };
        match taken {
            Ok(()) => drop(self.open.insert(tag, Open { query, answer })),
            Err(failure) => answer.tell(Err(failure)),
        }
    }
}

impl Front for LocalFront {
    fn poll(&mut self, requests: &mut dyn Requests) {
        self.asks.begin();
        while let Some(ask) = self.asks.next() {
            self.ask(ask, requests);
        }
    }

    fn opened(&mut self, _: ConnectionId, _: Endpoints, _: &mut dyn Requests) {}

    fn received(&mut self, _: ConnectionId, bytes: &[u8], _: &mut dyn Requests) -> usize {
        bytes.len()
    }

    fn ready(&self, _: ConnectionId) -> bool {
        true
    }

    fn completed(&mut self, completion: Completion<'_>, requests: &mut dyn Requests) {
        let (tag, result) = match completion {
            Completion::Written(tag, reply) => (tag, Ok(Done::Reply(reply.to_vec()))),
            Completion::Failed(tag, failure) => (tag, Err(failure)),
            Completion::Registered(tag, session) => (tag, Ok(Done::Session(session))),
            // Not asked for.
            Completion::Read(tag) => (tag, Err(Failure::Unknown)),
            Completion::Readable(tag) => {
                let mut reply = Vec::new();
                let query = self.open.get(&tag).and_then(|open| open.query.as_deref());
                let asked = query.map_or(Ok(()), |query| requests.answer(tag, query, &mut reply));
                if asked == Err(Failure::Overtaken) && requests.read(tag).is_ok() {
                    return;
                }
                (tag, asked.map(|()| Done::Reply(reply)))
            }
        };
        if let Some(open) = self.open.remove(&tag) {
            open.answer.tell(result);
        }
    }

    fn next_dirty(&mut self) -> Option<ConnectionId> {
        None
    }

    fn output(&mut self, _: ConnectionId) -> &[u8] {
        &[]
    }

    fn sent(&mut self, _: ConnectionId, _: usize) {}

    fn closing(&self, _: ConnectionId) -> bool {
        true
    }

    fn closed(&mut self, _: ConnectionId, _: &mut dyn Requests) {}

    fn is_busy(&self, _: ConnectionId) -> bool {
        false
    }

    fn open_requests(&self) -> usize {
        self.open.len()
    }

    fn connections(&self) -> usize {
        0
    }
}
