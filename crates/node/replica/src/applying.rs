//! Applies decided values to the service, and tracks the service's position, health and metadata.

pub(crate) mod access;
pub(crate) mod applier;
pub(crate) mod digest;
mod health;
pub(crate) mod history;
pub(crate) mod membership;
mod pace;
pub mod sessions;

use quorate_core::{
    group_time::GroupTime,
    slot::{Slot, SlotRange},
    value::Value,
};
use quorate_log::{ValueBytes, Values};
use quorate_stream::Table;

use crate::{
    applying::{
        access::Access,
        applier::{Applier, ApplyContext, NextStep, run_query},
        digest::Digest,
        health::ServiceCondition,
        history::History,
        membership::Membership,
        pace::ExecutionPace,
        sessions::Sessions,
    },
    clock::Clock,
    completions::Completions,
    contents::{ByteAvailability, Contents},
    limits::Limits,
    observing::events::Event,
    ports::{
        front::{Failure, Front},
        payload::Payload,
        service::{LoadError, Metadata, StateMachine, Weight},
    },
};

/// Time in microseconds after which a turn applies no further values, since peers wait for votes
/// and heartbeats. A value is never split, and each turn applies at least one.
const TURN_BUDGET_US: u64 = 10_000;
/// Number of bytes charged to the apply budget for a value without payload.
const EMPTY_CHARGE_BYTES: usize = 64;

/// The service, its sessions and its queue of decided values.
pub(crate) struct Applying<S> {
    applier: Applier<S>,
    history: History,
    /// Maximum number of bytes applied in one turn.
    turn_bytes: usize,
    pace: ExecutionPace,
    /// Size of the queued completions, in bytes, above which no more values are applied.
    completion_bytes: usize,
    /// The service has loaded a snapshot or has been reset to empty.
    was_reset_or_loaded: bool,
    /// The service has restarted at an earlier position.
    has_rolled_back: bool,
}

impl<S: StateMachine> Applying<S> {
    pub(crate) fn new(applier: Applier<S>, limits: &Limits) -> Self {
        Self {
            applier,
            history: History::default(),
            turn_bytes: limits.apply_bytes,
            pace: ExecutionPace::default(),
            completion_bytes: limits.completion_bytes,
            was_reset_or_loaded: false,
            has_rolled_back: false,
        }
    }

    /// Returns the first slot that has not been applied.
    pub(crate) fn applied_to(&self) -> Slot {
        self.applier.applied_to()
    }

    /// Returns the result of the service's last health check.
    pub(crate) fn condition(&self) -> &ServiceCondition {
        self.applier.condition()
    }

    pub(crate) fn next_health_event(&mut self) -> Option<Event> {
        let applied_to = self.applied_to();
        self.applier.condition_mut().next_health_event(applied_to)
    }

    /// Returns why the service does not work normally; `None` if it does.
    pub(crate) fn trouble_reason(&self) -> Option<String> {
        self.condition().trouble_reason(self.applied_to())
    }

    /// Returns whether queries may run.
    pub(crate) fn can_answer_queries(&self) -> bool {
        self.condition().can_answer_queries(self.applied_to())
    }

    pub(crate) fn check_accepts_commands(&self) -> Result<(), Failure> {
        if self.condition().is_stuck() { Err(Failure::Unavailable) } else { Ok(()) }
    }

    pub(crate) fn check_accepts_reads(&self) -> Result<(), Failure> {
        if self.condition().is_down() { Err(Failure::Unavailable) } else { Ok(()) }
    }

    /// Returns whether the queue of decided values is full.
    pub(crate) fn is_full(&self) -> bool {
        self.applier.is_full()
    }

    pub(crate) fn service(&self) -> &S {
        self.applier.service()
    }

    pub(crate) fn service_mut(&mut self) -> &mut S {
        self.applier.service_mut()
    }

    /// Returns whether the service is healthy and has committed everything applied.
    pub(crate) fn is_fully_committed(&self) -> bool {
        self.condition().accepts_commands() && self.applier.is_committed()
    }

    /// Returns the metadata that this crate stores with the service's state, as of the last commit.
    pub(crate) fn metadata(&self) -> Metadata {
        self.applier.metadata()
    }

    /// Returns whether the service reported that it accepts commands, or the snapshot that it is
    /// loading.
    pub(crate) fn service_accepts_commands(&self) -> bool {
        self.condition().service_accepts_commands()
    }

    /// Sets the reason to doubt the service's state ([differ-2]); `None` clears the doubt.
    pub(crate) fn set_doubt(&mut self, why: Option<String>) {
        self.applier.condition_mut().set_doubt(why);
    }

    /// Marks the service as loading a snapshot, or waiting for one. It is down until
    /// [`Applying::on_loaded`] is called.
    pub(crate) fn set_loading(&mut self, why: String) {
        self.applier.condition_mut().set_loading(why);
    }

    /// Records that the service loaded the state of all slots below `at`, with `meta`.
    pub(crate) fn on_loaded(&mut self, at: Slot, meta: Metadata) {
        self.applier.resume_from(at, meta);
        self.history = History::default();
        self.was_reset_or_loaded = true;
    }

    /// Resets the service to empty after a partly loaded snapshot turned out to be unreadable.
    pub(crate) fn restart_from_empty(&mut self) -> Result<(), LoadError> {
        let service = self.applier.service_mut();
        service.begin_load()?;
        service.finish_load(Slot::FIRST, &[])?;
        self.applier.restart_from_empty();
        self.history = History::default();
        self.was_reset_or_loaded = true;
        Ok(())
    }

    pub(crate) fn streams(&self) -> &Table {
        self.applier.streams()
    }

    pub(crate) fn streams_mut(&mut self) -> &mut Table {
        self.applier.streams_mut()
    }

    /// Returns whether a loaded or empty state has replaced this one since the last call.
    pub(crate) fn take_loaded(&mut self) -> bool {
        std::mem::take(&mut self.was_reset_or_loaded)
    }

    pub(crate) fn membership(&self) -> &Membership {
        self.applier.membership()
    }

    /// Estimates the cost of executing a command on the current state.
    pub(crate) fn command_cost(&self, command: &[u8]) -> Weight {
        self.applier.command_cost(command)
    }

    /// [room-2] Returns whether a command may add data.
    pub(crate) fn may_add_data(&self, command: &[u8]) -> bool {
        self.applier.service().grows(command)
    }

    /// [read-9] Returns whether a batch may change the answer to a query.
    pub(crate) fn may_change(&self, batch: &[u8], query: &[u8]) -> bool {
        self.applier.may_change(batch, query)
    }

    /// [level-9] Returns whether the group's level permits this service command.
    pub(crate) fn has_level(&self, command: &[u8]) -> bool {
        self.applier.has_level(command)
    }

    pub(crate) fn access(&self) -> &Access {
        self.applier.access()
    }

    /// [access-4] Marks the table of users as current, as a confirmed read has just shown.
    pub(crate) fn mark_access_current(&mut self) {
        self.applier.mark_access_current();
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        self.applier.sessions()
    }

    pub(crate) fn digest(&self) -> &Digest {
        self.applier.digest()
    }

    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// Checks the service's health, and returns its note if it has recovered.
    pub(crate) fn check_health(&mut self) -> Option<String> {
        let before = self.applied_to();
        let note = self.applier.check_health();
        self.has_rolled_back |= self.applied_to() < before;
        note
    }

    pub(crate) fn take_rolled_back(&mut self) -> bool {
        std::mem::take(&mut self.has_rolled_back)
    }

    pub(crate) fn time(&self) -> GroupTime {
        self.applier.time()
    }

    /// [time-1] Returns the time that a leader whose clock reads `clock_ms` should propose; `None`
    /// if no deadline has passed by then.
    pub(crate) fn time_to_propose(&self, clock_ms: u64) -> Option<u64> {
        let deadline = self.applier.service().next_deadline(clock_ms);
        self.time().stamp(clock_ms, deadline)
    }

    /// Passes to `each` the housekeeping commands that the service wants proposed.
    pub(crate) fn visit_due_commands(&mut self, each: &mut dyn FnMut(&[u8])) {
        self.applier.service_mut().due(each);
    }

    /// Runs a query. Fails with `Unavailable` if clients may already have seen a later state.
    pub(crate) fn query(
        &self,
        query: &[u8],
        wall_ms: u64,
        reply: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        if self.condition().doubt_reason().is_some() {
            return Err(Failure::Diverged);
        }
        if !self.can_answer_queries() {
            return Err(Failure::Unavailable);
        }
        run_query(self.applier.service(), query, wall_ms, reply)
    }

    /// Queues decided slots. Called in slot order, without gaps.
    pub(crate) fn queue_decided(&mut self, range: SlotRange, value: Value) {
        self.applier.queue_decided(range, value);
    }

    /// Returns whether a value can be applied now.
    pub(crate) fn has_work(
        &self,
        decided_to: Slot,
        contents: &Contents,
        completions: &Completions,
    ) -> bool {
        let next = || match self.applier.next_step(decided_to) {
            NextStep::Value(range, value) => !contents.lacks_any(&value, range, self.streams()),
            NextStep::FromLog(_) | NextStep::Nothing => false,
        };
        self.can_apply(completions) && next()
    }

    fn can_apply(&self, completions: &Completions) -> bool {
        completions.bytes() < self.completion_bytes && self.condition().accepts_commands()
    }

    /// Applies the decided slots below `decided_to`, within a budget. `again` means that values may
    /// already have been applied in this turn. If the next values are not in memory, returns the
    /// slots to read from the log.
    pub(crate) fn apply_decided(
        &mut self,
        decided_to: Slot,
        contents: &Contents,
        again: bool,
        to: &mut ApplyContext<'_>,
    ) -> Option<SlotRange> {
        let mut budget = self.turn_bytes;
        while budget > 0 && self.can_apply(to.completions) {
            let (range, value) = match self.applier.next_step(decided_to) {
                NextStep::Value(..)
                    if (again || budget < self.turn_bytes) && is_turn_used_up(to) =>
                {
                    return None;
                }
                NextStep::Value(range, value) => (range, value),
                NextStep::FromLog(range) => return Some(range),
                NextStep::Nothing => return None,
            };
            let (range, bytes) = self.bytes_to_apply(range, &value, contents);
            let payload = match bytes {
                ByteAvailability::None | ByteAvailability::Placed => None,
                ByteAvailability::InMemory(payload) => Some(payload),
                ByteAvailability::Missing => return Some(range),
            };
            let charge = payload.as_ref().map_or(EMPTY_CHARGE_BYTES, |bytes| bytes.len());
            budget = budget.saturating_sub(charge);
            let measured = matches!(value, Value::Batch(_)) && ExecutionPace::is_measured(charge);
            let clock = to.clock.filter(|_| measured);
            let began = clock.map(Clock::now);
            self.apply(range, value, payload.as_ref(), to);
            if let (Some(clock), Some(began)) = (clock, began) {
                self.pace.record_batch(charge, clock.now().since_us(began));
            }
        }
        None
    }

    /// Returns the maximum size in bytes of a batch that can be executed without delaying a turn.
    pub(crate) fn batch_bytes_max(&self) -> usize {
        self.pace.batch_bytes_max()
    }

    /// Returns the first part of the value's slots with uniform availability, and the bytes of that
    /// part. Content that is a no-op here needs no bytes and is not looked up.
    fn bytes_to_apply(
        &self,
        range: SlotRange,
        value: &Value,
        contents: &Contents,
    ) -> (SlotRange, ByteAvailability) {
        match *value {
            Value::Content { stream, offset }
                if !self.streams().would_append(stream, offset, range) =>
            {
                (range, ByteAvailability::None)
            }
            _ => contents.first_part(value, range, self.streams()),
        }
    }

    /// Applies values read back from the log, as long as each is the next one and matches the
    /// decision. If this stops at slots whose bytes the log lacks, returns these slots.
    pub(crate) fn run_from_log(
        &mut self,
        decided_to: Slot,
        values: Values,
        to: &mut ApplyContext<'_>,
    ) -> Option<SlotRange> {
        for (range, value, body) in values {
            let applied_to = self.applied_to();
            let range = range.intersect(SlotRange::new(applied_to, decided_to));
            if range.is_empty() || range.from != applied_to {
                continue;
            }
            if !self.condition().accepts_commands() {
                break;
            }
            // What this process decided takes precedence over what was last recorded.
            if let Some(told) = self.applier.queued_value(range.from)
                && told != value
            {
                break;
            }
            let payload = match body {
                ValueBytes::Bytes(bytes) => Some(Payload::new(bytes)),
                ValueBytes::Places(_) => None,
            };
            if let Value::Content { stream, offset } = value
                && self.streams().would_append(stream, offset, range)
                && payload.as_ref().is_some_and(|payload| payload.len() as u64 != range.len())
            {
                // [disk-8] This node had applied the content when it recorded it, hence without its
                // bytes. The service has lost that state since, so the bytes must come from a
                // peer's log.
                if payload.as_ref().is_some_and(|bytes| bytes.is_empty()) {
                    return Some(range);
                }
                to.counters.frames_mismatched += 1;
                break;
            }
            to.counters.applied_from_log += 1;
            self.apply(range, value, payload.as_ref(), to);
            if is_turn_used_up(to) {
                break;
            }
        }
        None
    }

    /// Applies a value. After a failure of the service, no further values are applied.
    fn apply(
        &mut self,
        range: SlotRange,
        value: Value,
        payload: Option<&Payload>,
        to: &mut ApplyContext<'_>,
    ) {
        if self.applier.apply(range, &value, payload, to) {
            self.history.push(range, value);
        }
    }

    /// Commits the values applied since the last commit, atomically if the service is persistent.
    /// All slots below `logged` are in this node's log, on stable storage if the class requires it.
    pub(crate) fn commit(&mut self, logged: Option<Slot>, front: &mut dyn Front) {
        if let Some(to) = logged {
            self.applier.service_mut().logged(to);
        }
        self.applier.commit();
        self.applier.pass_notices(&mut |subject, message| front.deliver_notice(subject, message));
    }
}

/// Returns whether the turn has used up its time budget.
fn is_turn_used_up(to: &ApplyContext<'_>) -> bool {
    to.clock.is_some_and(|clock| clock.now().since_us(to.now) >= TURN_BUDGET_US)
}
