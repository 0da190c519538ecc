//! The service: executes commands in the order of the log, answers queries.

use quorate_core::slot::Slot;
use quorate_replica::service::{CommandId, Health, MetaChange, StateMachine};

use crate::{
    commands::{
        Budget, exec, execute, first_key, read,
        state::{Notice, Reading, Writing},
    },
    encode::{Decoder, Fault},
    expiry::Proposals,
    op::Op,
    resp::reply::Reply,
    store::{self, Metadata, Position, Store},
};

/// The key-value state machine on any store.
pub struct Service {
    store: Box<dyn Store>,
    applied_to: Slot,
    proposals: Proposals,
    budget: Budget,
    /// Kept for its memory.
    prefetched: Vec<Position>,
    /// What commands told since the last look.
    notices: Vec<Notice>,
}

impl Service {
    /// Serves `store`.
    pub fn new(store: Box<dyn Store>) -> Self {
        Self {
            store,
            applied_to: Slot::FIRST,
            proposals: Proposals::default(),
            budget: Budget::default(),
            prefetched: Vec::new(),
            notices: Vec::new(),
        }
    }

    /// A fingerprint of all contents, to compare nodes at equal positions. Reads everything.
    pub fn digest(&self) -> u128 {
        store::digest(&*self.store)
    }

    /// The data.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }
}

impl StateMachine for Service {
    fn prefetch(&mut self, commands: &mut dyn Iterator<Item = &[u8]>) {
        self.prefetched.clear();
        let keys = commands.filter_map(first_key).map(Position::of);
        self.prefetched.extend(keys);
        self.store.prefetch(&self.prefetched);
    }

    fn apply(&mut self, id: CommandId, command: &[u8], reply: &mut Vec<u8>) {
        let start = reply.len();
        let mut decoder = Decoder(command);
        self.budget.enter(id.slot.0);
        let mut state = Writing {
            store: &mut *self.store,
            applied_to: self.applied_to,
            version: id.into(),
            budget: &mut self.budget,
            notices: &mut self.notices,
        };
        let done = match decoder.byte().ok().and_then(Op::from_byte) {
            None => Err(Fault::Malformed),
            Some(Op::Exec) => exec::exec(&mut decoder, &mut state, &mut Reply(reply)),
            Some(Op::Versions) => Err(Fault::Malformed),
            Some(op) => execute(op, &mut decoder, &mut state, &mut Reply(reply)),
        };
        if let Err(fault) = done {
            reply.truncate(start);
            Reply(reply).error(fault.text());
        }
        self.proposals.applied(command);
    }

    fn query(&self, query: &[u8], wall_ms: u64, reply: &mut Vec<u8>) {
        let start = reply.len();
        let mut decoder = Decoder(query);
        let state = Reading {
            store: &*self.store,
            applied_to: self.applied_to,
            wall_ms: Some(wall_ms),
        };
        let done = match decoder.byte().ok().and_then(Op::from_byte) {
            Some(op) => read(op, &mut decoder, &state, &mut Reply(reply)),
            None => Err(Fault::Malformed),
        };
        if let Err(fault) = done {
            reply.truncate(start);
            Reply(reply).error(fault.text());
        }
    }

    fn commit(&mut self, applied_to: Slot, meta: &[MetaChange]) {
        self.store.commit(applied_to, meta);
        self.applied_to = applied_to;
    }

    fn recovered(&mut self) -> (Slot, Metadata) {
        let (applied_to, meta) = self.store.recovered();
        self.applied_to = applied_to;
        self.budget = Budget::default();
        (applied_to, meta)
    }

    fn logged(&mut self, to: Slot) {
        self.store.logged(to);
    }

    fn health(&mut self) -> Health {
        self.store.health()
    }

    fn has_failed(&self) -> bool {
        self.store.has_failed()
    }

    fn take_notices(&mut self, each: &mut dyn FnMut(&[u8], &[u8])) {
        for (channel, message) in self.notices.drain(..) {
            each(&channel, &message);
        }
        self.notices.shrink_to(1024);
    }

    fn due(&mut self, wall_ms: u64, limit: usize, each: &mut dyn FnMut(&[u8])) {
        self.proposals.due(&*self.store, wall_ms, limit, each);
    }
}
