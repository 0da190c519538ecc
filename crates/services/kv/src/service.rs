//! The service: executes commands in the order of the log, answers queries.

use quorate_core::slot::Slot;
use quorate_replica::service::{CommandId, Health, Imaged, LoadError, MetaChange, StateMachine};

use crate::{
    commands::{
        Budget, exec, execute, first_key, read,
        state::{Notice, Reading, Writing},
    },
    encode::{Decoder, Fault},
    expiry::sweep,
    op::Op,
    resp::reply::Reply,
    store::{
        self, Metadata, Position, Store,
        image::{Items, Loaded, encode_head, encode_part},
    },
};

/// The key-value state machine on any store.
pub struct Service {
    store: Box<dyn Store>,
    applied_to: Slot,
    budget: Budget,
    /// Kept for its memory.
    prefetched: Vec<Position>,
    /// What commands told since the last look.
    notices: Vec<Notice>,
    /// Something was executed since the last commit.
    uncommitted: bool,
    /// How many keys the image that was begun has; `None`: its head has been given.
    head: Option<u64>,
    /// The image that comes in.
    loading: Option<Items>,
}

impl Service {
    /// Serves `store`.
    pub fn new(store: Box<dyn Store>) -> Self {
        Self {
            store,
            applied_to: Slot::FIRST,
            budget: Budget::default(),
            prefetched: Vec::new(),
            notices: Vec::new(),
            uncommitted: false,
            head: None,
            loading: None,
        }
    }

    /// A fingerprint of all contents, to compare nodes at equal positions. Reads everything.
    pub fn digest(&self) -> u128 {
        store::digest(&*self.store)
    }

    /// It goes on from here.
    fn stands_at(&mut self, applied_to: Slot) {
        self.applied_to = applied_to;
        self.budget = Budget::default();
        self.uncommitted = false;
        self.loading = None;
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
        self.uncommitted = true;
        self.budget.enter(id.slot.0);
        let mut state = Writing {
            store: &mut *self.store,
            applied_to: self.applied_to,
            version: id.into(),
            budget: &mut self.budget,
            begun: 0,
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
        self.uncommitted = false;
    }

    fn recovered(&mut self) -> (Slot, Metadata) {
        let (applied_to, meta) = self.store.recovered();
        self.stands_at(applied_to);
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

    fn set_time(&mut self, group_ms: u64) {
        self.store.set_time(group_ms);
    }

    fn next_deadline(&self, until_ms: u64) -> Option<u64> {
        self.store.next_deadline(until_ms)
    }

    fn due(&mut self, each: &mut dyn FnMut(&[u8])) {
        if let Some(command) = sweep(&*self.store) {
            each(&command);
        }
    }

    fn begin_image(&mut self) -> bool {
        self.store.end_image();
        self.head = None;
        // Nothing but the keys is replicated: the budget is of one batch, which a commit ends, and
        // notices and what was brought near are this node's own. The replica keeps the group's time.
        if !self.uncommitted && self.loading.is_none() {
            self.head = self.store.begin_image();
        }
        self.head.is_some()
    }

    fn next_image(&mut self, bytes: usize, each: &mut dyn FnMut(&[u8])) -> Imaged {
        let mut item = Vec::new();
        if let Some(keys) = self.head.take() {
            encode_head(keys, &mut item);
            each(&item);
        }
        self.store.next_image(bytes, &mut |part| {
            encode_part(part, &mut item);
            each(&item);
        })
    }

    fn end_image(&mut self) {
        self.head = None;
        self.store.end_image();
    }

    fn begin_load(&mut self) -> Result<(), LoadError> {
        self.store.end_image();
        self.loading = None;
        self.store.begin_load()?;
        self.loading = Some(Items::default());
        Ok(())
    }

    fn load(&mut self, item: &[u8]) -> Result<(), LoadError> {
        // It is back only if all went well.
        let mut items = self.loading.take().ok_or(LoadError::NotLoading)?;
        match items.take(item)? {
            None => {}
            Some(Loaded::Key(key, entry)) => self.store.load(key, &entry.value, entry.stamp())?,
            Some(Loaded::Row(id, name, value)) => self.store.load_row(id, name, value)?,
        }
        self.loading = Some(items);
        Ok(())
    }

    fn finish_load(&mut self, at: Slot, meta: &[MetaChange]) -> Result<(), LoadError> {
        let items = self.loading.take().ok_or(LoadError::NotLoading)?;
        // Before the first slot there is no state, and no image of it.
        if at != Slot::FIRST || !items.is_empty() {
            items.end(at)?;
        }
        self.store.finish_load(at, meta)?;
        self.notices.clear();
        self.stands_at(at);
        Ok(())
    }

    fn synced_to(&mut self) -> Option<Slot> {
        self.store.synced_to()
    }

    fn start_sync(&mut self) {
        self.store.start_sync();
    }
}
