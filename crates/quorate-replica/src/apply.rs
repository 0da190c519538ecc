//! Decisions to the service, in slot order, each once; and what the origin's clients hear of it.

use std::collections::VecDeque;

use quorate_core::{
    node_id::NodeId,
    slot::{Slot, SlotRange},
    time::Time,
    value::{BatchName, Value},
};

use crate::{
    batch::{Batch, Entry},
    completions::Completions,
    counters::Counters,
    front::{Failure, Front, State, Tag},
    gather::{Item, Waiter},
    origin::Origin,
    service::{CommandId, MetaChange, StateMachine},
    sessions::{Sessions, Turn, Unreadable, Verdict},
};

/// Commands that the service is told of before it gets the first of them: enough that it can wait for
/// memory once for many, few enough that what it fetched is still near when they come.
const FORESEEN: usize = 64;

/// Replies up to this are never dropped: their commands were larger.
const SHORT_REPLY: usize = 64;

/// What an application may touch besides the service and the sessions.
pub(crate) struct Listeners<'a> {
    pub(crate) now: Time,
    pub(crate) wall_ms: u64,
    /// Reads run in it, between commands.
    pub(crate) front: &'a mut dyn Front,
    /// With so many bytes of replies waiting, further ones are dropped.
    pub(crate) reply_bytes: usize,
    pub(crate) origin: &'a mut Origin,
    pub(crate) completions: &'a mut Completions,
    pub(crate) counters: &'a mut Counters,
}

/// What is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// All that is decided is applied.
    Nothing,
    /// This value, which was told to [`Applier::decided`].
    Value(SlotRange, Value),
    /// Slots that were decided before this process, or are not in memory any more: from the log.
    FromLog(SlotRange),
}

/// The service with its sessions, and the queue in front of them.
pub(crate) struct Applier<S> {
    node: NodeId,
    boot: u32,
    pub(crate) service: S,
    sessions: Sessions,
    applied_to: Slot,
    committed_to: Slot,
    queue: VecDeque<(SlotRange, Value)>,
    reply: Vec<u8>,
    changes: Vec<MetaChange>,
}

impl<S: StateMachine> Applier<S> {
    /// The service goes on where its last commit was.
    pub(crate) fn new(node: NodeId, boot: u32, mut service: S) -> Result<Self, Unreadable> {
        let (applied_to, meta) = service.recovered();
        let applied_to = applied_to.max(Slot::FIRST);
        Ok(Self {
            node,
            boot,
            service,
            sessions: Sessions::restore(meta)?,
            applied_to,
            committed_to: applied_to,
            queue: VecDeque::new(),
            reply: Vec::new(),
            changes: Vec::new(),
        })
    }

    /// Every slot below is applied.
    pub(crate) fn applied_to(&self) -> Slot {
        self.applied_to
    }

    /// Decided entries that wait.
    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// These slots are decided. In slot order, without gaps.
    pub(crate) fn decided(&mut self, range: SlotRange, value: Value) {
        if range.to > self.applied_to {
            self.queue.push_back((range, value));
        }
    }

    /// What this slot was told to have decided, if that is still known here.
    pub(crate) fn told(&self, slot: Slot) -> Option<Value> {
        let told = self.queue.iter().find(|(range, _)| range.to > slot);
        told.filter(|(range, _)| range.contains(slot))
            .map(|(_, value)| *value)
    }

    /// What to apply next, if slots below `decided_to` are decided.
    pub(crate) fn next(&self, decided_to: Slot) -> Next {
        match self.queue.front() {
            Some((range, value)) if range.from <= self.applied_to => {
                Next::Value(SlotRange::new(self.applied_to, range.to), *value)
            }
            Some((range, _)) => Next::FromLog(SlotRange::new(self.applied_to, range.from)),
            None if self.applied_to < decided_to => {
                Next::FromLog(SlotRange::new(self.applied_to, decided_to))
            }
            None => Next::Nothing,
        }
    }

    /// Applies what is decided in `range`, which begins at [`Applier::applied_to`].
    pub(crate) fn apply(
        &mut self,
        range: SlotRange,
        value: &Value,
        payload: Option<&[u8]>,
        to: &mut Listeners<'_>,
    ) {
        assert_eq!(
            range.from, self.applied_to,
            "slots are applied in order, each once"
        );
        match *value {
            Value::Batch(name) => {
                let bytes = payload.expect("the caller looked for the bytes of a batch first");
                self.apply_batch(range.from, &name, bytes, to);
            }
            Value::RegisterSession {
                origin,
                boot,
                number,
            } => {
                self.apply_registration(range.from, origin, boot, number, to);
            }
            Value::ExpireSession { session } => self.sessions.expire(session),
            // The core itself acts on a reconfiguration; streams are not served by this version.
            Value::NoOp
            | Value::Content { .. }
            | Value::CloseStream(_)
            | Value::Reconfigure { .. }
            | Value::AllocateNode { .. } => {}
        }
        self.applied_to = range.to;
        while self
            .queue
            .pop_front_if(|(range, _)| range.to <= self.applied_to)
            .is_some()
        {}
    }

    fn apply_registration(
        &mut self,
        slot: Slot,
        origin: NodeId,
        boot: u32,
        number: u64,
        to: &mut Listeners<'_>,
    ) {
        self.sessions.register(slot, origin, boot, number);
        if (origin, boot) != (self.node, self.boot) {
            return;
        }
        let node_session = self.sessions.node_session(origin, boot, number);
        let client_session = || {
            self.sessions
                .client_session(origin, boot, number)
                .map(|id| id.slot)
        };
        if let Some(session) = node_session.or_else(client_session) {
            to.origin
                .on_registered(to.now, number, session, to.completions);
        }
    }

    fn apply_batch(&mut self, slot: Slot, name: &BatchName, bytes: &[u8], to: &mut Listeners<'_>) {
        let Some(batch) = Batch::parse(bytes) else {
            // The same on every node: nothing of it is executed.
            to.counters.batches_malformed += 1;
            return;
        };
        let own = (name.origin, name.boot) == (self.node, self.boot);
        match self.sessions.take_turn(slot, name, batch.header) {
            Turn::Now => self.execute(slot, name, &batch, own, to),
            Turn::Past => to.counters.batches_skipped += 1,
            Turn::Early => {
                to.counters.batches_out_of_order += 1;
                if own {
                    to.origin.on_out_of_order(name);
                }
            }
            Turn::Never => {
                to.counters.batches_unknown_session += 1;
                if own {
                    to.origin.on_session_lost(name);
                }
            }
        }
    }

    fn execute(
        &mut self,
        slot: Slot,
        name: &BatchName,
        batch: &Batch<'_>,
        own: bool,
        to: &mut Listeners<'_>,
    ) {
        to.counters.batches_applied += 1;
        let flight = if own {
            to.origin.claim(to.now, name)
        } else {
            None
        };
        let mut items = flight
            .as_ref()
            .map_or(&[][..], |flight| &flight.items)
            .iter();
        let mut ahead = batch.entries();
        for (index, entry) in (0..).zip(batch.entries()) {
            if (index as usize).is_multiple_of(FORESEEN) {
                let group = ahead.by_ref().take(FORESEEN);
                self.service.foresee(&mut group.map(|entry| entry.command));
            }
            to.counters.commands_applied += 1;
            let item = self.read_up_to_command(&mut items, to);
            let outcome = self.execute_one(CommandId { slot, index }, &entry);
            if let Some(Waiter::Front(tag)) = item.map(|item| item.waiter) {
                tell(to, tag, outcome, &self.reply);
            }
        }
        self.read_up_to_command(&mut items, to);
    }

    /// Lets the reads run that come before the next command of an own batch; that is returned.
    fn read_up_to_command<'i>(
        &self,
        items: &mut std::slice::Iter<'i, Item>,
        to: &mut Listeners<'_>,
    ) -> Option<&'i Item> {
        for item in items {
            if !item.is_read() {
                return Some(item);
            }
            if let Waiter::Front(tag) = item.waiter
                && to.completions.read(tag)
            {
                let state = Moment {
                    service: &self.service,
                    wall_ms: to.wall_ms,
                };
                to.front.read_now(tag, &state);
            }
        }
        None
    }

    /// Executes one command, or finds what it once replied; the reply is in `self.reply`.
    fn execute_one(&mut self, id: CommandId, entry: &Entry<'_>) -> Result<(), Failure> {
        self.reply.clear();
        let Some(at) = entry.at else {
            self.service.apply(id, entry.command, &mut self.reply);
            return Ok(());
        };
        match self.sessions.verdict(id.slot, at) {
            Verdict::Execute => {
                self.service.apply(id, entry.command, &mut self.reply);
                self.sessions.executed(at, &self.reply);
            }
            Verdict::Stored(reply) => self.reply.extend_from_slice(reply),
            Verdict::Forgotten => return Err(Failure::ReplyForgotten),
            Verdict::Full => return Err(Failure::SessionFull),
            Verdict::Unknown => return Err(Failure::NoSession),
        }
        Ok(())
    }

    /// Ends a run of applications: a persistent service makes it one atomic unit.
    pub(crate) fn commit(&mut self) {
        if self.committed_to == self.applied_to {
            return;
        }
        self.sessions.take_changes(&mut self.changes);
        self.service.commit(self.applied_to, &self.changes);
        self.changes.clear();
        self.committed_to = self.applied_to;
    }
}

/// The service between two commands.
struct Moment<'a, S> {
    service: &'a S,
    wall_ms: u64,
}

impl<S: StateMachine> State for Moment<'_, S> {
    fn query(&self, query: &[u8], reply: &mut Vec<u8>) {
        self.service.query(query, self.wall_ms, reply);
    }
}

fn tell(to: &mut Listeners<'_>, tag: Tag, outcome: Result<(), Failure>, reply: &[u8]) {
    match outcome {
        Ok(()) if reply.len() <= SHORT_REPLY || to.completions.bytes() <= to.reply_bytes => {
            to.completions.written(tag, reply);
        }
        Ok(()) => {
            to.counters.replies_dropped += 1;
            to.completions.failed(tag, Failure::Unknown);
        }
        Err(failure) => to.completions.failed(tag, failure),
    }
}
