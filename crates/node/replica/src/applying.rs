//! Execution of decided values by the service, and the state that is kept about it.

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
use quorate_log::{Body, Values};
use quorate_stream::Table;

use crate::{
    applying::{
        access::Access,
        applier::{Applier, Listeners, Next, ask},
        digest::Digest,
        health::Condition,
        history::History,
        membership::Membership,
        pace::Pace,
        sessions::Sessions,
    },
    clock::Clock,
    completions::Completions,
    contents::{Bytes, Contents},
    front::{Failure, Front},
    limits::Limits,
    observing::events::Event,
    payload::Payload,
    service::{LoadError, Metadata, StateMachine, Weight},
};

/// A turn of this duration applies nothing more: peers wait for votes and heartbeats. A single
/// value is never divided, and each turn applies one.
const TURN_US: u64 = 10_000;
/// Bytes charged to the apply budget for a value without bytes.
const CHARGE_BYTES: usize = 64;

/// The service, with everything in front of it.
pub(crate) struct Applying<S> {
    applier: Applier<S>,
    history: History,
    /// Maximum of bytes that are applied in one turn.
    turn_bytes: usize,
    pace: Pace,
    /// Limit of waiting completions, in bytes, above which nothing more is applied.
    completion_bytes: usize,
    /// A snapshot was taken in, or the service made empty.
    reloaded: bool,
    /// The service restarted at an earlier position.
    went_back: bool,
}

impl<S: StateMachine> Applying<S> {
    pub(crate) fn new(applier: Applier<S>, limits: &Limits) -> Self {
        Self {
            applier,
            history: History::default(),
            turn_bytes: limits.apply_bytes,
            pace: Pace::default(),
            completion_bytes: limits.completion_bytes,
            reloaded: false,
            went_back: false,
        }
    }

    /// Returns the first slot that is not applied.
    pub(crate) fn applied_to(&self) -> Slot {
        self.applier.applied_to()
    }

    /// Returns the result of the service's last health check.
    pub(crate) fn condition(&self) -> &Condition {
        self.applier.condition()
    }

    /// Returns the next event for an operator, if any.
    pub(crate) fn news(&mut self) -> Option<Event> {
        let applied_to = self.applied_to();
        self.applier.condition_mut().news(applied_to)
    }

    /// Returns the reason why the service does not serve as it should, if any.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.condition().trouble(self.applied_to())
    }

    /// Returns whether queries are allowed.
    pub(crate) fn answers(&self) -> bool {
        self.condition().answers(self.applied_to())
    }

    /// Checks that clients' commands can be executed here.
    pub(crate) fn takes_commands(&self) -> Result<(), Failure> {
        if self.condition().is_stuck() { Err(Failure::Unavailable) } else { Ok(()) }
    }

    /// Checks that clients' reads can be answered here.
    pub(crate) fn takes_reads(&self) -> Result<(), Failure> {
        if self.condition().is_down() { Err(Failure::Unavailable) } else { Ok(()) }
    }

    /// Returns whether too many decided entries are waiting for more to be decided.
    pub(crate) fn is_full(&self) -> bool {
        self.applier.is_full()
    }

    pub(crate) fn service(&self) -> &S {
        self.applier.service()
    }

    pub(crate) fn service_mut(&mut self) -> &mut S {
        self.applier.service_mut()
    }

    /// Returns whether the service has everything below [`Applying::applied_to`], committed, and
    /// works.
    pub(crate) fn is_whole(&self) -> bool {
        self.condition().takes() && self.applier.is_committed()
    }

    /// Returns the metadata that this crate stores with the service's state, as of the last commit.
    pub(crate) fn metadata(&self) -> Metadata {
        self.applier.metadata()
    }

    /// Returns whether the service itself, loading or not, reported that it accepts work.
    pub(crate) fn service_takes(&self) -> bool {
        self.condition().said_takes()
    }

    /// Sets the reason why the service's state may be wrong, if it may ([differ-2]).
    pub(crate) fn set_doubt(&mut self, why: Option<String>) {
        self.applier.condition_mut().set_doubt(why);
    }

    /// Marks the service as loading a snapshot, or waiting for one; until [`Applying::loaded`] it
    /// is down.
    pub(crate) fn set_loading(&mut self, why: String) {
        self.applier.condition_mut().set_loading(why);
    }

    /// Records that the service is now the state after all slots below `at`, with `meta` as its
    /// metadata.
    pub(crate) fn loaded(&mut self, at: Slot, meta: Metadata) {
        self.applier.go_on_at(at, meta);
        self.history = History::default();
        self.reloaded = true;
    }

    /// Resets the service, which has a part of a snapshot that cannot be read to its end: it
    /// becomes empty.
    pub(crate) fn begin_again(&mut self) -> Result<(), LoadError> {
        let service = self.applier.service_mut();
        service.begin_load()?;
        service.finish_load(Slot::FIRST, &[])?;
        self.applier.begin_again();
        self.history = History::default();
        self.reloaded = true;
        Ok(())
    }

    /// Returns the table of streams as of the last applied slot.
    pub(crate) fn streams(&self) -> &Table {
        self.applier.streams()
    }

    /// Returns the table of streams, to be notified of their events.
    pub(crate) fn streams_mut(&mut self) -> &mut Table {
        self.applier.streams_mut()
    }

    /// Returns whether, since the last call, the state was replaced by one that does not follow
    /// from the applied slots.
    pub(crate) fn take_loaded(&mut self) -> bool {
        std::mem::take(&mut self.reloaded)
    }

    /// Returns the table and eras of the group as of the last applied slot.
    pub(crate) fn membership(&self) -> &Membership {
        self.applier.membership()
    }

    /// Returns how long a command takes on the state as it stands.
    pub(crate) fn weigh(&self, command: &[u8]) -> Weight {
        self.applier.weigh(command)
    }

    /// [level-9] Returns whether the group uses the level that this command of the service needs.
    pub(crate) fn has_level(&self, command: &[u8]) -> bool {
        self.applier.has_level(command)
    }

    /// Returns the access rules as of the last applied slot.
    pub(crate) fn access(&self) -> &Access {
        self.applier.access()
    }

    /// [access-4] Marks the table as fresh as of a read that was just confirmed.
    pub(crate) fn know_access(&mut self) {
        self.applier.know_access();
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        self.applier.sessions()
    }

    /// Returns the digest of everything that was applied.
    pub(crate) fn digest(&self) -> &Digest {
        self.applier.digest()
    }

    /// Returns the decisions of the latest slots.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// Checks the service's health; returns its remark on a recovery.
    pub(crate) fn tend(&mut self) -> Option<String> {
        let before = self.applied_to();
        let note = self.applier.tend();
        self.went_back |= self.applied_to() < before;
        note
    }

    /// Returns whether the service restarted at an earlier position since the last call.
    pub(crate) fn take_went_back(&mut self) -> bool {
        std::mem::take(&mut self.went_back)
    }

    /// Returns the group's time as of the last applied slot.
    pub(crate) fn time(&self) -> GroupTime {
        self.applier.time()
    }

    /// [time-1] Returns the time that a leader with this clock proposes, if a deadline is due by
    /// it.
    pub(crate) fn stamp(&self, clock_ms: u64) -> Option<u64> {
        let deadline = self.applier.service().next_deadline(clock_ms);
        self.time().stamp(clock_ms, deadline)
    }

    /// Asks the service for its housekeeping.
    pub(crate) fn due(&mut self, each: &mut dyn FnMut(&[u8])) {
        self.applier.service_mut().due(each);
    }

    /// Asks the service a query; `Unavailable` if its state may be older than clients have seen.
    pub(crate) fn query(
        &self,
        query: &[u8],
        wall_ms: u64,
        reply: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        if self.condition().doubt().is_some() {
            return Err(Failure::Diverged);
        }
        if !self.answers() {
            return Err(Failure::Unavailable);
        }
        ask(self.applier.service(), query, wall_ms, reply)
    }

    /// Queues these slots as decided. In slot order, without gaps.
    pub(crate) fn decided(&mut self, range: SlotRange, value: Value) {
        self.applier.decided(range, value);
    }

    /// Returns whether something can be applied immediately.
    pub(crate) fn has_work(
        &self,
        decided_to: Slot,
        contents: &Contents,
        completions: &Completions,
    ) -> bool {
        let next = || match self.applier.next(decided_to) {
            Next::Value(range, value) => !contents.lacks(&value, range, self.streams()),
            Next::FromLog(_) | Next::Nothing => false,
        };
        self.may_apply(completions) && next()
    }

    fn may_apply(&self, completions: &Completions) -> bool {
        completions.bytes() < self.completion_bytes && self.condition().takes()
    }

    /// Applies the decided slots below `decided_to`, within a budget; `again`: something may have
    /// been applied in this turn. Returns the slots that are to be read from the log before it can
    /// go on, if it waits for that.
    pub(crate) fn run(
        &mut self,
        decided_to: Slot,
        contents: &Contents,
        again: bool,
        to: &mut Listeners<'_>,
    ) -> Option<SlotRange> {
        let mut budget = self.turn_bytes;
        while budget > 0 && self.may_apply(to.completions) {
            let (range, value) = match self.applier.next(decided_to) {
                Next::Value(..) if (again || budget < self.turn_bytes) && is_long(to) => {
                    return None;
                }
                Next::Value(range, value) => (range, value),
                Next::FromLog(range) => return Some(range),
                Next::Nothing => return None,
            };
            let (range, bytes) = self.bytes_to_apply(range, &value, contents);
            let payload = match bytes {
                Bytes::None | Bytes::Placed => None,
                Bytes::Here(payload) => Some(payload),
                Bytes::Missing => return Some(range),
            };
            let charge = payload.as_ref().map_or(CHARGE_BYTES, |bytes| bytes.len());
            budget = budget.saturating_sub(charge);
            let measured = matches!(value, Value::Batch(_)) && Pace::measures(charge);
            let clock = to.clock.filter(|_| measured);
            let began = clock.map(Clock::now);
            self.apply(range, value, payload.as_ref(), to);
            if let (Some(clock), Some(began)) = (clock, began) {
                self.pace.note(charge, clock.now().since_us(began));
            }
        }
        None
    }

    /// Returns the maximum size of a batch in bytes, so that executing it does not hold up a turn.
    pub(crate) fn batch_bytes_max(&self) -> usize {
        self.pace.bytes_max()
    }

    /// Returns the known bytes of the next value, as far as that is the same for all callers. Bytes
    /// of content that is a no-op here are not looked up.
    fn bytes_to_apply(
        &self,
        range: SlotRange,
        value: &Value,
        contents: &Contents,
    ) -> (SlotRange, Bytes) {
        match *value {
            Value::Content { stream, offset } if !self.streams().appends(stream, offset, range) => {
                (range, Bytes::None)
            }
            _ => contents.first_part(value, range, self.streams()),
        }
    }

    /// Applies the values read back from the log, as far as they are still next and decided so.
    /// Returns the slots whose bytes are needed and are not in the log, if it stopped at such.
    pub(crate) fn run_from_log(
        &mut self,
        decided_to: Slot,
        values: Values,
        to: &mut Listeners<'_>,
    ) -> Option<SlotRange> {
        for (range, value, body) in values {
            let applied_to = self.applied_to();
            let range = range.intersect(SlotRange::new(applied_to, decided_to));
            if range.is_empty() || range.from != applied_to {
                continue;
            }
            if !self.condition().takes() {
                break;
            }
            // A slot that was decided in this process is applied as decided, not as last recorded.
            if let Some(told) = self.applier.told(range.from)
                && told != value
            {
                break;
            }
            let payload = match body {
                Body::Bytes(bytes) => Some(Payload::new(bytes)),
                Body::Places(_) => None,
            };
            if let Value::Content { stream, offset } = value
                && self.streams().appends(stream, offset, range)
                && payload.as_ref().is_some_and(|payload| payload.len() as u64 != range.len())
            {
                // [disk-8] Content that this node had applied already was recorded without its
                // bytes, and then the service lost that state. Only a peer's log can have the
                // bytes.
                if payload.as_ref().is_some_and(|bytes| bytes.is_empty()) {
                    return Some(range);
                }
                to.counters.frames_mismatched += 1;
                break;
            }
            to.counters.applied_from_log += 1;
            self.apply(range, value, payload.as_ref(), to);
            if is_long(to) {
                break;
            }
        }
        None
    }

    /// Applies this; if the service fails it takes nothing more.
    fn apply(
        &mut self,
        range: SlotRange,
        value: Value,
        payload: Option<&Payload>,
        to: &mut Listeners<'_>,
    ) {
        if self.applier.apply(range, &value, payload, to) {
            self.history.push(range, value);
        }
    }

    /// Ends a run of applications: a persistent service makes it one atomic unit. `logged`: every
    /// slot below is in the log of this node, on stable storage, where that matters.
    pub(crate) fn commit(&mut self, logged: Option<Slot>, front: &mut dyn Front) {
        if let Some(to) = logged {
            self.applier.service_mut().logged(to);
        }
        self.applier.commit();
        self.applier
            .service_mut()
            .take_notices(&mut |subject, message| front.notice(subject, message));
    }
}

/// Returns whether the turn has lasted long enough.
fn is_long(to: &Listeners<'_>) -> bool {
    to.clock.is_some_and(|clock| clock.now().since_us(to.now) >= TURN_US)
}
