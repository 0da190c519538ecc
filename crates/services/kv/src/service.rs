//! The service: executes commands in log order and answers queries.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
};

use quorate_core::{level::Level, slot::Slot};
use quorate_lua::Interpreter;
use quorate_replica::service::{
    CommandId, Health, Imaged, LoadError, MetaChange, Scrubbed, StateMachine, Weight,
};

use crate::{
    commands::{
        Budget,
        events::Setting,
        exec, execute, first_key, may_change, operations, read,
        scripts::{self, Costs},
        selection::{in_database, within},
        state::{Notice, ReadContext, WriteContext, notice},
        transactions::ABSENT_LEVEL,
        visits::{self, VISITS_MAX, execute_bounded, execute_within},
        waiting::elements,
    },
    encode::Fault,
    expiry::{Sweeps, sweep},
    op::{Op, Split},
    resp::reply::Reply,
    store::{
        self, Database, Metadata, Position, Store, Version,
        image::{ImageChecker, LoadedPart, encode_head, encode_part, encode_removals, encode_wait},
        removals::Removals,
    },
    waits::{Wait, Waits},
};

/// Key-value state machine on top of a store.
pub struct Service {
    store: Box<dyn Store>,
    applied_position: Slot,
    budget: Budget,
    /// Interpreter of scripts, which queries use too.
    interpreter: RefCell<Interpreter>,
    costs: Costs,
    /// Number of visits (see `commands/visits.rs`) of the last query.
    queried: Cell<u64>,
    /// Scratch buffers for the positions of keys to prefetch, one for each database.
    prefetched: [Vec<Position>; Database::COUNT],
    /// Notices from executed commands that the fronts have not taken yet.
    notices: Vec<Notice>,
    events: Setting,
    /// True if a command has been executed since the last commit.
    uncommitted: bool,
    waits: Waits,
    /// Sweeps that this node has proposed.
    sweeps: Sweeps,
    /// Snapshot in progress.
    imaging: Imaging,
    /// Snapshot being loaded.
    loading: Option<ImageChecker>,
}

impl Service {
    pub fn new(store: Box<dyn Store>) -> Self {
        Self {
            store,
            applied_position: Slot::FIRST,
            budget: Budget::default(),
            interpreter: RefCell::new(Interpreter::new()),
            costs: Costs::default(),
            queried: Cell::new(0),
            prefetched: Default::default(),
            notices: Vec::new(),
            events: Setting::default(),
            uncommitted: false,
            waits: Waits::default(),
            sweeps: Sweeps::default(),
            imaging: Imaging::default(),
            loading: None,
        }
    }

    /// Returns a fingerprint of all contents, equal on all nodes at a position. Reads all data.
    pub fn digest(&self) -> u128 {
        self.waits.digest(store::digest(&*self.store))
    }

    /// Sets the applied position, and resets the state that depends on it.
    fn set_applied(&mut self, applied_to: Slot) {
        self.applied_position = applied_to;
        self.budget = Budget::default();
        self.uncommitted = false;
        self.loading = None;
    }

    /// Returns this node's event setting, which the front shares and may change.
    pub fn events(&self) -> Setting {
        self.events.clone()
    }

    /// [visit-1] Returns an upper bound for the visits of a replicated command in the current
    /// state, not counting those for its arguments. Above the limit, the bound is inexact.
    pub fn visits(&self, command: &[u8]) -> u64 {
        let (store, waits) = (&*self.store, &self.waits);
        let state = ReadContext { store, applied_to: self.applied_position, wall_ms: None, waits };
        visits::visits(command, &state, VISITS_MAX)
    }

    pub fn store(&self) -> &dyn Store {
        &*self.store
    }
}

/// Parts of a snapshot that have not been returned yet.
#[derive(Debug, Default)]
struct Imaging {
    /// Number of keys, for the head of the snapshot; `None` once returned.
    key_count: Option<u64>,
    /// Item after the head, with the versions of removed keys.
    removals: Option<Vec<u8>>,
    keys_are_done: bool,
    /// Clients that were blocked when the snapshot began. Encoded after the keys.
    waits: VecDeque<(Version, Wait)>,
}

impl Imaging {
    fn of(keys: u64, removals: &Removals, waits: &Waits) -> Self {
        let mut item = Vec::new();
        let removals = encode_removals(removals, &mut item).then_some(item);
        let waits = waits.clients_in_order().collect();
        Self { key_count: Some(keys), removals, keys_are_done: false, waits }
    }

    fn pass_blocked_clients(&mut self, bytes: usize, each: &mut dyn FnMut(&[u8])) -> Imaged {
        let (mut item, mut passed) = (Vec::new(), 0);
        while let Some((since, wait)) = self.waits.pop_front() {
            encode_wait(since, &wait.encode(), &mut item);
            each(&item);
            passed += item.len();
            if passed >= bytes && !self.waits.is_empty() {
                return Imaged::More;
            }
        }
        Imaged::End
    }
}

impl StateMachine for Service {
    fn prefetch(&mut self, commands: &mut dyn Iterator<Item = &[u8]>) {
        for (database, key) in commands.filter_map(first_key) {
            self.prefetched[database.index()].push(Position::of(key));
        }
        for database in Database::all() {
            let keys = &mut self.prefetched[database.index()];
            if !keys.is_empty() {
                in_database(&*self.store, database, || self.store.prefetch(keys));
                keys.clear();
            }
        }
    }

    /// Returns the feature level that a command needs: the base level, except for transactions that
    /// watch absent keys ([watch-4]), bounded commands ([visit-2]), and newer operations.
    fn level_of(&self, command: &[u8]) -> Level {
        let bounded = command.first() == Some(&(Op::Bounded as u8));
        let newer = operations::watches_absent_keys(command) || operations::is_of_level_10(command);
        match bounded || newer {
            true => ABSENT_LEVEL,
            false => Level::BASE,
        }
    }

    fn weigh(&self, command: &[u8]) -> Weight {
        let mut weight = visits::weight_of_visits(self.visits(command));
        scripts::each_text(command, |text| {
            if weight == Weight::Light {
                weight = self.costs.weigh_script(text);
            }
        });
        weight
    }

    fn grows(&self, command: &[u8]) -> bool {
        operations::may_add_data(command)
    }

    fn may_change(&self, command: &[u8], query: &[u8]) -> bool {
        may_change(command, query)
    }

    fn apply(&mut self, id: CommandId, command: &[u8], reply: &mut Vec<u8>) {
        self.uncommitted = true;
        self.budget.start_command(id.slot.0);
        let visits_left = self.budget.visits_left();
        debug_assert_eq!(self.store.selected(), Database::ZERO, "left by an earlier command");
        let Some(Split { op, mut from, bounded, database }) = Op::split(command) else {
            Reply(reply).error(Fault::Malformed.text());
            return;
        };
        let (start, reply) = (reply.len(), &mut Reply(reply));
        let state = &mut WriteContext {
            store: &mut *self.store,
            applied_to: self.applied_position,
            version: id.into(),
            budget: &mut self.budget,
            is_bounded: bounded,
            begun: 0,
            events: self.events.selected_classes(),
            notices: &mut self.notices,
            waits: &mut self.waits,
            interpreter: &self.interpreter,
        };
        let done = within(state, database, |state| match op {
            Op::Exec | Op::ExecIn => exec::exec(op, &mut from, state, reply),
            Op::Script | Op::ScriptRo => scripts::run::apply(op, &mut from, state, reply),
            Op::Versions | Op::Look | Op::XUndelivered => Err(Fault::Malformed),
            op if bounded => execute_bounded(op, &mut from, state, reply),
            op => execute(op, &mut from, state, reply),
        });
        if let Err(fault) = done {
            reply.0.truncate(start);
            reply.error(fault.text());
        }
        if matches!(op, Op::Exec | Op::ExecIn) || op.is_script() {
            let cost = visits_left - self.budget.visits_left();
            // A refused script reveals nothing about its cost.
            if cost > 0 {
                scripts::each_text(command, |text| self.costs.record_cost(text, cost));
            }
        }
    }

    fn query(&self, query: &[u8], wall_ms: u64, reply: &mut Vec<u8>) {
        let start = reply.len();
        self.queried.set(VISITS_MAX);
        let state = ReadContext {
            store: &*self.store,
            applied_to: self.applied_position,
            wall_ms: Some(wall_ms),
            waits: &self.waits,
        };
        let done = match Op::split(query).filter(|split| !split.bounded) {
            // A digest reads all data, so its visits are unlimited.
            Some(Split { op: Op::Digest, mut from, .. }) => {
                read(Op::Digest, &mut from, &state, &mut Reply(reply))
            }
            Some(Split { op, mut from, database, .. }) => {
                let answer = || match op {
                    Op::ScriptRo => {
                        let (interpreter, reply) = (&self.interpreter, &mut Reply(reply));
                        scripts::run::read(&mut from, &state, interpreter, reply)
                    }
                    op => read(op, &mut from, &state, &mut Reply(reply)),
                };
                let store = &*self.store;
                in_database(store, database, || execute_within(VISITS_MAX, store, answer))
                    .map(|visits| self.queried.set(visits))
            }
            None => Err(Fault::Malformed),
        };
        if let Err(fault) = done {
            reply.truncate(start);
            Reply(reply).error(fault.text());
        }
    }

    fn query_visits(&self) -> u64 {
        self.queried.get()
    }

    fn commit(&mut self, applied_to: Slot, meta: &[MetaChange]) {
        let store = &*self.store;
        let mut changed = match self.waits.is_unchanged() {
            true => Vec::new(),
            false => self.waits.commit(&|database, key| {
                in_database(store, database, || elements(store, key)).is_some()
            }),
        };
        if !store.removals().is_unchanged() {
            changed.append(&mut self.store.removals_mut().commit());
        }
        match changed.is_empty() {
            true => self.store.commit(applied_to, meta),
            false => self.store.commit(applied_to, &[meta, &changed].concat()),
        }
        self.applied_position = applied_to;
        self.uncommitted = false;
    }

    fn recovered(&mut self) -> (Slot, Metadata) {
        let (applied_to, mut meta) = self.store.recovered();
        self.set_applied(applied_to);
        self.waits = Waits::restore(&mut meta);
        *self.store.removals_mut() = Removals::restore(&mut meta, applied_to);
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
        if self.waits.take_news() {
            each(notice::WAITS, b"");
        }
    }

    fn set_time(&mut self, group_ms: u64) {
        self.store.set_time(group_ms);
    }

    fn next_deadline(&self, until_ms: u64) -> Option<u64> {
        self.store.next_deadline(until_ms)
    }

    fn due(&mut self, each: &mut dyn FnMut(&[u8])) {
        if let Some(command) = sweep(&*self.store, &mut self.sweeps) {
            each(&command);
        }
    }

    fn begin_image(&mut self) -> bool {
        self.end_image();
        // Only the keys and the blocked clients are replicated. The budget belongs to a batch,
        // which a commit ends. Notices and prefetched positions belong to this node, and the
        // replica stores the group's time.
        if self.uncommitted || self.loading.is_some() {
            return false;
        }
        let Some(keys) = self.store.begin_image() else {
            return false;
        };
        self.imaging = Imaging::of(keys, self.store.removals(), &self.waits);
        true
    }

    fn next_image(&mut self, bytes: usize, each: &mut dyn FnMut(&[u8])) -> Imaged {
        let mut item = Vec::new();
        if let Some(keys) = self.imaging.key_count.take() {
            encode_head(keys, &mut item);
            each(&item);
        }
        if let Some(removals) = self.imaging.removals.take() {
            each(&removals);
        }
        if !self.imaging.keys_are_done {
            let imaged = self.store.next_image(bytes, &mut |part| {
                encode_part(part, &mut item);
                each(&item);
            });
            self.imaging.keys_are_done = imaged == Imaged::End;
            if imaged != Imaged::End || !self.imaging.waits.is_empty() {
                return match imaged {
                    Imaged::End => Imaged::More,
                    other => other,
                };
            }
        }
        self.imaging.pass_blocked_clients(bytes, each)
    }

    fn end_image(&mut self) {
        self.imaging = Imaging::default();
        self.store.end_image();
    }

    fn begin_load(&mut self) -> Result<(), LoadError> {
        self.end_image();
        self.loading = None;
        self.store.begin_load()?;
        self.loading = Some(ImageChecker::default());
        Ok(())
    }

    fn load(&mut self, item: &[u8]) -> Result<(), LoadError> {
        // Put back only if the item is valid; an error ends the load.
        let mut items = self.loading.take().ok_or(LoadError::NotLoading)?;
        match items.check_item(item)? {
            None => {}
            Some(LoadedPart::Database(database, since)) => {
                self.store.load_database(database, since)?
            }
            Some(LoadedPart::Key(key, entry)) => {
                self.store.load(key, &entry.value, entry.stamp())?
            }
            Some(LoadedPart::Row(id, name, value)) => self.store.load_row(id, name, value)?,
        }
        self.loading = Some(items);
        Ok(())
    }

    fn finish_load(&mut self, at: Slot, meta: &[MetaChange]) -> Result<(), LoadError> {
        let items = self.loading.take().ok_or(LoadError::NotLoading)?;
        // At the first slot there is no state, and an empty snapshot is valid.
        if at != Slot::FIRST || !items.is_empty() {
            items.end(at)?;
        }
        let (removals, waits) = items.into_rest();
        let removals = removals.unwrap_or_else(|| Removals::from(at));
        let own = waits.as_metadata().chain(removals.as_metadata());
        let all: Vec<MetaChange> = meta.iter().cloned().chain(own).collect();
        self.store.finish_load(at, &all)?;
        *self.store.removals_mut() = removals;
        self.waits = waits;
        self.waits.mark_committed();
        self.notices.clear();
        self.notices.push((notice::ALL_CHANGED.into(), Box::default()));
        self.set_applied(at);
        Ok(())
    }

    fn synced_to(&mut self) -> Option<Slot> {
        self.store.synced_to()
    }

    fn start_sync(&mut self) {
        self.store.start_sync();
    }

    fn start_scrub(&mut self, bytes_per_second: u64) {
        self.store.start_scrub(bytes_per_second);
    }

    fn take_scrubbed(&mut self) -> Scrubbed {
        self.store.take_scrubbed()
    }

    fn wants_scrub(&mut self) -> bool {
        self.store.wants_scrub()
    }

    fn kept_bytes(&self) -> u64 {
        self.store.kept_bytes()
    }

    fn renew(&mut self) -> Result<(), String> {
        self.store.renew()
    }
}
