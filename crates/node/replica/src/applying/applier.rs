//! Passes decisions to the service, each once and in slot order, and results to own clients.

use std::collections::VecDeque;

use quorate_core::{
    group_time::GroupTime,
    level::Level,
    node_id::NodeId,
    slot::{Slot, SlotRange},
    time::Time,
    value::{BatchName, StreamName, Value},
};

use quorate_stream::{Table, command::encode_reply};

use crate::{
    applying::{
        access::Access,
        digest::Digest,
        health::ServiceCondition,
        membership::Membership,
        sessions::{BatchVerdict, CommandVerdict, Sessions, UnreadableMetadata},
    },
    clock::Clock,
    completions::Completions,
    counters::Counters,
    group::command::{CommandDenied, CommandEffect},
    limits::Limits,
    ports::{
        front::{Failure, Front, State, Tag},
        payload::Payload,
        service::{CommandId, Health, MetaChange, Metadata, StateMachine, Weight, position},
    },
    proposing::{
        batch::{Batch, BatchEntry, Kind},
        gather::{QueuedItem, Waiter},
        origin::Origin,
    },
};

/// Number of commands that the service may prefetch before it executes the first of them: enough to
/// overlap many cache misses, few enough that the prefetched lines are still cached.
const PREFETCH_COMMANDS_MAX: usize = 64;
/// Metadata key of the digest in a persistent service, distinct from the keys of sessions.
pub(crate) const DIGEST_KEY: &[u8] = b"digest";
/// Metadata key of the group's time in a persistent service, distinct from the keys of sessions.
pub(crate) const TIME_KEY: &[u8] = b"time";

/// Size in bytes up to which a reply is never dropped: it takes less memory than its command did.
const SHORT_REPLY_BYTES: usize = 64;

/// State outside the service and the sessions that applying a value may change.
pub(crate) struct ApplyContext<'a> {
    pub(crate) now: Time,
    /// Clock that measures the duration of the turn, if the host set one.
    pub(crate) clock: Option<&'a Clock>,
    pub(crate) wall_ms: u64,
    /// Front that runs reads between commands.
    pub(crate) front: &'a mut dyn Front,
    pub(crate) origin: &'a mut Origin,
    pub(crate) completions: &'a mut Completions,
    pub(crate) counters: &'a mut Counters,
    /// Bytes that applied values appended to streams.
    pub(crate) appended_bytes: &'a mut Vec<AppendedBytes>,
    /// Applied runs of content. The flag is set if a part of the run was a no-op.
    pub(crate) applied_runs: &'a mut Vec<(StreamName, SlotRange, bool)>,
    /// Executed commands on streams, with their replies.
    pub(crate) executed_stream_commands: &'a mut Vec<(Waiter, quorate_stream::Reply)>,
}

#[derive(Clone, Debug)]
pub(crate) struct AppendedBytes {
    pub(crate) stream: StreamName,
    /// Position of the first byte.
    pub(crate) position: u64,
    /// Number of leading bytes to skip, because their positions have already been appended.
    pub(crate) skipped_bytes: u64,
    /// Number of bytes, including the skipped ones.
    pub(crate) length: u64,
    /// The bytes; `None` if they are in the store of streams.
    pub(crate) bytes: Option<Payload>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Everything decided has been applied, so there is no work.
    Nothing,
    /// A value that was passed to [`Applier::queue_decided`].
    Value(SlotRange, Value),
    /// Slots to read from the log, decided before this start or no longer in memory.
    FromLog(SlotRange),
}

/// The service, its sessions, and the queue of decided values.
pub(crate) struct Applier<S> {
    node: NodeId,
    boot: u32,
    service: S,
    sessions: Sessions,
    membership: Membership,
    access: Access,
    streams: Table,
    time: GroupTime,
    /// The latest group time has not been passed to the service for storage.
    is_time_unsaved: bool,
    digest: Digest,
    applied_to: Slot,
    committed_to: Slot,
    queue: VecDeque<(SlotRange, Value)>,
    /// Maximum number of entries queued while the service accepts none. The rest are read from the
    /// log.
    queued_max: usize,
    /// Size of the waiting completions, in bytes, above which further replies are dropped.
    reply_bytes_max: usize,
    reply_buffer: Vec<u8>,
    metadata_changes: Vec<MetaChange>,
    condition: ServiceCondition,
    /// Slot below which the notices of commands have already been passed on.
    noticed_to: Slot,
}

impl<S: StateMachine> Applier<S> {
    /// Creates the applier. It continues from the service's last commit.
    pub(crate) fn new(
        node: NodeId,
        boot: u32,
        limits: &Limits,
        mut membership: Membership,
        mut service: S,
    ) -> Result<Self, UnreadableMetadata> {
        // A service that failed to read all of its state reports a restart later.
        let (applied_to, mut meta) = position(&mut service).unwrap_or_default();
        let applied_to = applied_to.max(Slot::FIRST);
        let digest = take_digest(applied_to, &mut meta);
        membership.restore(&mut meta)?;
        let mut access = Access::default();
        access.restore(&mut meta)?;
        let streams = take_streams(&mut meta)?;
        let time = take_time(&mut meta)?;
        service.set_time(time.ms());
        Ok(Self {
            node,
            boot,
            service,
            sessions: Sessions::restore(meta)?,
            membership,
            access,
            streams,
            time,
            is_time_unsaved: false,
            digest: Digest::new(applied_to, digest),
            applied_to,
            committed_to: applied_to,
            queue: VecDeque::new(),
            queued_max: limits.decided_entries,
            reply_bytes_max: limits.reply_bytes,
            reply_buffer: Vec::new(),
            metadata_changes: Vec::new(),
            condition: ServiceCondition::new(),
            noticed_to: Slot::FIRST,
        })
    }

    /// Checks the service's health and resumes applying if the service has recovered. Returns the
    /// service's note about the recovery.
    pub(crate) fn check_health(&mut self) -> Option<String> {
        match self.service.health() {
            Health::Back(note) => {
                self.follow_rollback();
                note
            }
            health => {
                self.condition.set(health);
                None
            }
        }
    }

    /// Follows a rollback of the service and its sessions. The log still has the slots in between.
    fn follow_rollback(&mut self) {
        let Some((applied_to, meta)) = position(&mut self.service) else {
            // The service failed to read all of its state and will restart once more.
            return self.condition.mark_failed(self.applied_to);
        };
        self.condition.record_seen_by_clients(self.applied_to);
        self.restart_at(applied_to.max(Slot::FIRST), meta);
    }

    /// Continues at `at` after the service has loaded a snapshot of the state below that slot.
    pub(crate) fn resume_from(&mut self, at: Slot, meta: Metadata) {
        self.condition.set_loaded();
        self.restart_at(at, meta);
        while self.queue.pop_front_if(|(range, _)| range.to <= at).is_some() {}
    }

    /// Starts over after the service has been reset to empty.
    pub(crate) fn restart_from_empty(&mut self) {
        self.condition.record_seen_by_clients(self.applied_to);
        self.condition.set_loaded();
        self.restart_at(Slot::FIRST, Metadata::new());
    }

    fn restart_at(&mut self, at: Slot, mut meta: Metadata) {
        self.digest = Digest::new(at, take_digest(at, &mut meta));
        let membership = self.membership.restore(&mut meta);
        let access = membership.and_then(|()| self.access.restore(&mut meta));
        let streams = access.and_then(|()| take_streams(&mut meta));
        let time = take_time(&mut meta);
        let tables = streams.and_then(|streams| Ok((streams, time?, Sessions::restore(meta)?)));
        match tables {
            Ok(tables) => (self.streams, self.time, self.sessions) = tables,
            Err(unreadable) => self.condition.set_unreadable(unreadable.to_string()),
        }
        self.is_time_unsaved = false;
        self.service.set_time(self.time.ms());
        self.applied_to = at;
        self.committed_to = at;
        self.condition.set(Health::Well);
    }

    pub(crate) fn is_committed(&self) -> bool {
        self.committed_to == self.applied_to
    }

    /// Returns the metadata to store with the service's state.
    pub(crate) fn metadata(&self) -> Metadata {
        let digest = self.digest.current().map(u64::to_le_bytes);
        let digest = digest.map(|digest| (DIGEST_KEY.to_vec(), digest.to_vec()));
        digest
            .into_iter()
            .chain([self.membership.encode_entry()])
            .chain(self.access.encode_entry())
            .chain(self.time_entry())
            .chain(self.streams.all_rows())
            .chain(self.sessions.canonical_entries())
            .collect()
    }

    /// Returns the metadata entry of the group's time; `None` in a group without deadlines.
    fn time_entry(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let kept = (TIME_KEY.to_vec(), self.time.ms().to_le_bytes().to_vec());
        (self.time != GroupTime::START).then_some(kept)
    }

    /// Returns the group's time ([time-1]).
    pub(crate) fn time(&self) -> GroupTime {
        self.time
    }

    pub(crate) fn applied_to(&self) -> Slot {
        self.applied_to
    }

    /// Returns whether the queue is full, in which case the protocol should decide nothing more.
    pub(crate) fn is_full(&self) -> bool {
        self.queue.len() >= self.queued_max && !self.condition.is_stuck()
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    pub(crate) fn streams(&self) -> &Table {
        &self.streams
    }

    pub(crate) fn streams_mut(&mut self) -> &mut Table {
        &mut self.streams
    }

    pub(crate) fn membership(&self) -> &Membership {
        &self.membership
    }

    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// [access-4] Marks the table of users as current, as a confirmed read has just shown.
    pub(crate) fn mark_access_current(&mut self) {
        self.access.mark_current();
    }

    pub(crate) fn digest(&self) -> &Digest {
        &self.digest
    }

    pub(crate) fn condition(&self) -> &ServiceCondition {
        &self.condition
    }

    pub(crate) fn condition_mut(&mut self) -> &mut ServiceCondition {
        &mut self.condition
    }

    pub(crate) fn service(&self) -> &S {
        &self.service
    }

    pub(crate) fn service_mut(&mut self) -> &mut S {
        &mut self.service
    }

    /// Passes on the notices of the commands that were applied since. A service that has failed
    /// executes them again, and then makes their notices again.
    pub(crate) fn pass_notices(&mut self, each: &mut dyn FnMut(&[u8], &[u8])) {
        if !self.service.has_failed() {
            self.service.take_notices(each);
            self.noticed_to = self.noticed_to.max(self.applied_to);
        }
    }

    /// Queues decided slots. Called in slot order, without gaps.
    pub(crate) fn queue_decided(&mut self, range: SlotRange, value: Value) {
        let room = self.queue.len() < self.queued_max || !self.condition.is_stuck();
        if range.to > self.applied_to && room {
            self.queue.push_back((range, value));
        }
    }

    /// Returns the value passed to [`Applier::queue_decided`] for `slot`, if it is still in memory.
    pub(crate) fn queued_value(&self, slot: Slot) -> Option<Value> {
        let told = self.queue.iter().find(|(range, _)| range.to > slot);
        told.filter(|(range, _)| range.contains(slot)).map(|(_, value)| *value)
    }

    /// Returns the next step, given that all slots below `decided_to` are decided.
    pub(crate) fn next_step(&self, decided_to: Slot) -> NextStep {
        match self.queue.front() {
            Some((range, value)) if range.from <= self.applied_to => {
                NextStep::Value(SlotRange::new(self.applied_to, range.to), *value)
            }
            Some((range, _)) => NextStep::FromLog(SlotRange::new(self.applied_to, range.from)),
            None if self.applied_to < decided_to => {
                NextStep::FromLog(SlotRange::new(self.applied_to, decided_to))
            }
            None => NextStep::Nothing,
        }
    }

    /// Applies the value decided in `range`, which begins at [`Applier::applied_to`]. Returns
    /// `false` if the service failed; then nothing of the value counts.
    pub(crate) fn apply(
        &mut self,
        range: SlotRange,
        value: &Value,
        payload: Option<&Payload>,
        to: &mut ApplyContext<'_>,
    ) -> bool {
        assert_eq!(range.from, self.applied_to, "slots are applied in order, each once");
        // [level-8] No part of the value was executed, and no later slot may be.
        if let Some(why) = self.membership.why_unsupported(Level::of(value)) {
            self.condition.set_unreadable(why);
            self.condition.set(Health::Well);
            return false;
        }
        let mut done = true;
        match *value {
            Value::Batch(name) => {
                let bytes = payload.expect("the caller looked for the bytes of a batch first");
                done = self.apply_batch(range.from, &name, bytes, to);
            }
            Value::RegisterSession { origin, boot, number } => {
                self.apply_registration(range.from, origin, boot, number, to);
            }
            Value::ExpireSession { session } => self.sessions.expire_session(session),
            Value::Reconfigure { .. } => self.membership.apply_decided(range.from, value),
            Value::Content { stream, offset } => {
                self.apply_content(stream, offset, range, payload, to);
            }
            Value::CloseStream(stream) => self.streams.close_inner(stream),
            Value::Now { ms } => self.apply_time(ms),
            Value::Raise { .. } => self.membership.apply_raise(value),
            Value::NoOp | Value::AllocateNode { .. } => {}
        }
        if !done {
            self.digest.abandon_slot();
            self.service.take_notices(&mut |_, _| {});
            // Clients may already know that some of its commands were executed.
            self.condition.mark_failed(range.to);
            return false;
        }
        self.digest.add_applied(range, value);
        self.applied_to = range.to;
        if self.applied_to <= self.noticed_to {
            // These notices were passed on before the service went back to its last commit.
            self.service.take_notices(&mut |_, _| {});
        }
        while self.queue.pop_front_if(|(range, _)| range.to <= self.applied_to).is_some() {}
        true
    }

    /// [stream-4] Appends the part of a run of content that the table accepts.
    fn apply_content(
        &mut self,
        stream: StreamName,
        offset: u64,
        range: SlotRange,
        payload: Option<&Payload>,
        to: &mut ApplyContext<'_>,
    ) {
        let appended = self.streams.append(stream, offset, range);
        let skipped = appended.end - appended.start < range.len();
        to.applied_runs.push((stream, range, skipped));
        if appended.is_empty() {
            to.counters.stream_slots_skipped += range.len();
            return;
        }
        to.counters.stream_bytes_appended += appended.end - appended.start;
        to.appended_bytes.push(AppendedBytes {
            stream,
            position: range.from.0 - offset,
            skipped_bytes: appended.start - (range.from.0 - offset),
            length: range.len(),
            bytes: payload.cloned(),
        });
    }

    /// [time-1] Advances the group's time, whichever leader proposed it.
    fn apply_time(&mut self, ms: u64) {
        if self.time.apply(ms) {
            self.is_time_unsaved = true;
            self.service.set_time(self.time.ms());
        }
    }

    fn apply_registration(
        &mut self,
        slot: Slot,
        origin: NodeId,
        boot: u32,
        number: u64,
        to: &mut ApplyContext<'_>,
    ) {
        self.sessions.register(slot, origin, boot, number);
        if (origin, boot) != (self.node, self.boot) {
            return;
        }
        let node_session = self.sessions.node_session(origin, boot, number);
        let client_session =
            || self.sessions.client_session(origin, boot, number).map(|id| id.slot);
        if let Some(session) = node_session.or_else(client_session) {
            to.origin.on_registered(to.now, number, session, to.completions);
        }
    }

    fn apply_batch(
        &mut self,
        slot: Slot,
        name: &BatchName,
        bytes: &[u8],
        to: &mut ApplyContext<'_>,
    ) -> bool {
        let Some(batch) = Batch::parse(bytes) else {
            // Every node sees the same bytes, so no node executes any command of the batch.
            to.counters.batches_malformed += 1;
            return true;
        };
        // Replies sent before the service went back are not sent again: their requests have ended.
        let own = (name.origin, name.boot) == (self.node, self.boot);
        match self.sessions.judge_batch(slot, name, batch.header) {
            BatchVerdict::Execute => return self.execute_batch(slot, name, &batch, own, to),
            BatchVerdict::AlreadyExecuted => to.counters.batches_skipped += 1,
            BatchVerdict::OutOfOrder => {
                to.counters.batches_out_of_order += 1;
                if own {
                    to.origin.on_out_of_order(name);
                }
            }
            BatchVerdict::UnknownSession => {
                to.counters.batches_unknown_session += 1;
                if own {
                    to.origin.on_session_lost(name);
                }
            }
        }
        true
    }

    fn execute_batch(
        &mut self,
        slot: Slot,
        name: &BatchName,
        batch: &Batch<'_>,
        own: bool,
        to: &mut ApplyContext<'_>,
    ) -> bool {
        to.counters.batches_applied += 1;
        let batch_in_flight = if own { to.origin.complete_batch(to.now, name) } else { None };
        let mut items = batch_in_flight.as_ref().map_or(&[][..], |batch| &batch.items).iter();
        let mut ahead = batch.entries();
        let mut failed = false;
        for (index, entry) in (0..).zip(batch.entries()) {
            if !failed && (index as usize).is_multiple_of(PREFETCH_COMMANDS_MAX) {
                let next = ahead.by_ref().take(PREFETCH_COMMANDS_MAX);
                let of_service =
                    next.filter(|entry| matches!(entry.kind, Kind::Plain | Kind::Sequenced(_)));
                self.service.prefetch(&mut of_service.map(|entry| entry.command));
            }
            let item = self.read_up_to_command(&mut items, &mut failed, to);
            let id = CommandId { slot, index };
            let waiter = item.map_or(Waiter::TimedOut, |item| item.waiter);
            let outcome = if failed {
                Err(Failure::Unknown)
            } else {
                to.counters.commands_applied += 1;
                self.execute_one(id, &entry, waiter, to)
            };
            // Other nodes execute the command, and this one will later; the reply is not known yet.
            failed |= outcome == Err(Failure::Unknown);
            if outcome.is_ok() {
                self.digest.add_executed(id, &self.reply_buffer);
            }
            match (waiter, outcome) {
                // [class-2] Durability is more than the client requested.
                (Waiter::Front(tag) | Waiter::FrontEarly(tag), outcome) => {
                    self.complete_request(tag, outcome, to)
                }
                (Waiter::FrontDurable(tag), Ok(())) => {
                    let until = item.map_or(to.now, |item| item.deadline);
                    self.hold_reply(tag, slot, until, to);
                }
                (Waiter::FrontDurable(tag), Err(failure)) => {
                    to.completions.complete_failed(tag, failure)
                }
                (Waiter::Operator(_) | Waiter::Stream(_), Err(failure)) => {
                    to.completions.fail(waiter, failure);
                }
                (Waiter::Operator(_) | Waiter::Stream(_), Ok(()))
                | (Waiter::AlreadyNotified | Waiter::Service | Waiter::TimedOut, _) => {}
            }
        }
        self.read_up_to_command(&mut items, &mut failed, to);
        !failed
    }

    /// Completes the client's request with the reply or the failure. A reply beyond the memory
    /// limit is dropped, and the outcome reported as unknown.
    fn complete_request(&self, tag: Tag, outcome: Result<(), Failure>, to: &mut ApplyContext<'_>) {
        let reply = &self.reply_buffer;
        match outcome {
            Ok(())
                if reply.len() <= SHORT_REPLY_BYTES
                    || to.completions.bytes() <= self.reply_bytes_max =>
            {
                to.completions.complete_write(tag, reply);
            }
            Ok(()) => {
                to.counters.replies_dropped += 1;
                to.completions.complete_failed(tag, Failure::Unknown);
            }
            Err(failure) => to.completions.complete_failed(tag, failure),
        }
    }

    /// [class-2] Holds back the reply to a command until the command is durable, because its client
    /// waits for more than the decision.
    fn hold_reply(&self, tag: Tag, slot: Slot, until: Time, to: &mut ApplyContext<'_>) {
        let held = to.completions.held_replies().bytes();
        if self.reply_buffer.len() > SHORT_REPLY_BYTES && held > self.reply_bytes_max {
            to.counters.replies_dropped += 1;
            return to.completions.complete_failed(tag, Failure::Unknown);
        }
        to.completions.hold_reply(tag, slot, until, &self.reply_buffer);
    }

    /// Returns the next command of a batch of this node, after running the reads that precede it. A
    /// service that has `failed` is not queried.
    fn read_up_to_command<'i>(
        &self,
        items: &mut std::slice::Iter<'i, QueuedItem>,
        failed: &mut bool,
        to: &mut ApplyContext<'_>,
    ) -> Option<&'i QueuedItem> {
        for item in items {
            if !item.is_read() {
                return Some(item);
            }
            let Waiter::Front(tag) = item.waiter else {
                continue;
            };
            if *failed {
                to.completions.complete_failed(tag, Failure::Unavailable);
            } else if to.completions.complete_read(tag) {
                let state = StateBetweenCommands { service: &self.service, wall_ms: to.wall_ms };
                to.front.read_now(tag, &state);
                *failed = self.service.has_failed();
            }
        }
        None
    }

    /// Executes one command, or finds the stored reply of a repeated one, and leaves the reply in
    /// `self.reply_buffer`. `Err(Unknown)` means that the service failed.
    fn execute_one(
        &mut self,
        id: CommandId,
        entry: &BatchEntry<'_>,
        waiter: Waiter,
        to: &mut ApplyContext<'_>,
    ) -> Result<(), Failure> {
        self.reply_buffer.clear();
        // The command was proposed although the group's level is too low. All nodes refuse it,
        // since the level is the same everywhere.
        let of_service = matches!(entry.kind, Kind::Plain | Kind::Sequenced(_));
        if of_service && !self.has_level(entry.command) {
            return Err(Failure::Level);
        }
        let at = match entry.kind {
            Kind::Plain => return self.run_command(id, entry.command),
            Kind::Group => {
                let membership = &mut self.membership;
                let granted = membership.execute(id.slot, entry.command, &mut self.reply_buffer);
                if let Waiter::Operator(asked) = waiter {
                    to.completions.complete_group_request(asked, granted);
                }
                return Ok(());
            }
            Kind::Access => {
                let done = self.access.execute(entry.command, &mut self.reply_buffer);
                if let Waiter::Operator(asked) = waiter {
                    let granted =
                        done.map(|()| CommandEffect::Done).map_err(CommandDenied::UsersDenied);
                    to.completions.complete_group_request(asked, granted);
                }
                return Ok(());
            }
            Kind::Stream => {
                let done = self.streams.execute(id.slot, entry.command);
                encode_reply(&done, &mut self.reply_buffer);
                to.executed_stream_commands.push((waiter, done));
                return Ok(());
            }
            Kind::Sequenced(at) => at,
        };
        match self.sessions.judge_command(id.slot, at) {
            CommandVerdict::Execute => {
                self.run_command(id, entry.command)?;
                self.sessions.store_reply(at, &self.reply_buffer);
            }
            CommandVerdict::Stored(reply) => self.reply_buffer.extend_from_slice(reply),
            CommandVerdict::Forgotten => return Err(Failure::ReplyForgotten),
            CommandVerdict::Full => return Err(Failure::SessionFull),
            CommandVerdict::Unknown => return Err(Failure::NoSession),
        }
        Ok(())
    }

    pub(crate) fn command_cost(&self, command: &[u8]) -> Weight {
        self.service.weigh(command)
    }

    /// [read-9] Returns whether a batch may change the answer to a query.
    pub(crate) fn may_change(&self, batch: &[u8], query: &[u8]) -> bool {
        let changes = |entry: BatchEntry<'_>| {
            let of_service = matches!(entry.kind, Kind::Plain | Kind::Sequenced(_));
            !of_service || self.service.may_change(entry.command, query)
        };
        Batch::parse(batch).is_none_or(|batch| batch.entries().any(changes))
    }

    /// [level-9] Returns whether the group's level permits this service command.
    pub(crate) fn has_level(&self, command: &[u8]) -> bool {
        self.service.level_of(command) <= self.membership.table().level()
    }

    fn run_command(&mut self, id: CommandId, command: &[u8]) -> Result<(), Failure> {
        self.service.apply(id, command, &mut self.reply_buffer);
        if self.service.has_failed() { Err(Failure::Unknown) } else { Ok(()) }
    }

    /// Commits the values applied since the last commit, atomically if the service is persistent.
    pub(crate) fn commit(&mut self) {
        if self.committed_to == self.applied_to || self.service.has_failed() {
            return;
        }
        self.sessions.take_changes(&mut self.metadata_changes);
        if let Some(digest) = self.digest.current() {
            self.metadata_changes.push(MetaChange {
                key: DIGEST_KEY.to_vec(),
                value: Some(digest.to_le_bytes().to_vec()),
            });
        }
        self.metadata_changes.extend(self.membership.take_change());
        self.metadata_changes.extend(self.access.take_change());
        if std::mem::take(&mut self.is_time_unsaved) {
            let kept = self.time_entry();
            self.metadata_changes
                .extend(kept.map(|(key, value)| MetaChange { key, value: Some(value) }));
        }
        let rows = self.streams.take_changed_rows();
        self.metadata_changes.extend(rows.map(|(key, value)| MetaChange { key, value }));
        self.service.commit(self.applied_to, &self.metadata_changes);
        self.metadata_changes.clear();
        self.committed_to = self.applied_to;
    }
}

fn take_streams(meta: &mut Metadata) -> Result<Table, UnreadableMetadata> {
    let rows = meta.extract_if(.., |(key, _)| Table::is_table_key(key));
    Table::restore(rows).map_err(|_| UnreadableMetadata { key: b"streams".to_vec() })
}

/// Removes the group's time from the service's metadata and returns it. Metadata of versions that
/// had no group time lacks the entry: there, deadlines took effect only by deletion.
fn take_time(meta: &mut Metadata) -> Result<GroupTime, UnreadableMetadata> {
    match meta.extract_if(.., |(key, _)| key == TIME_KEY).next() {
        Some((key, value)) => match <[u8; 8]>::try_from(value) {
            Ok(ms) => Ok(GroupTime::restored(u64::from_le_bytes(ms))),
            Err(_) => Err(UnreadableMetadata { key }),
        },
        None => Ok(GroupTime::START),
    }
}

fn take_digest(applied_to: Slot, meta: &mut Metadata) -> Option<u64> {
    let kept = meta.extract_if(.., |(key, _)| key == DIGEST_KEY).next();
    let kept = kept.and_then(|(_, value)| Some(u64::from_le_bytes(value.try_into().ok()?)));
    kept.or((applied_to == Slot::FIRST).then_some(0))
}

/// The service between two commands, where reads may run.
struct StateBetweenCommands<'a, S> {
    service: &'a S,
    wall_ms: u64,
}

impl<S: StateMachine> State for StateBetweenCommands<'_, S> {
    fn query(&self, query: &[u8], reply: &mut Vec<u8>) -> Result<(), Failure> {
        run_query(self.service, query, self.wall_ms, reply)
    }
}

/// Runs a query, and drops its reply if the service fails meanwhile.
pub(crate) fn run_query<S: StateMachine>(
    service: &S,
    query: &[u8],
    wall_ms: u64,
    reply: &mut Vec<u8>,
) -> Result<(), Failure> {
    let start = reply.len();
    service.query(query, wall_ms, reply);
    if service.has_failed() {
        reply.truncate(start);
        return Err(Failure::Unavailable);
    }
    Ok(())
}
