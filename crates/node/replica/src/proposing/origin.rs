//! Commands accepted by this node: numbered, offered to the leader, and repeated until applied.
//!
//! This is the accepting side of exactly-once execution. Batches have consecutive numbers in this
//! node's session and execute in this order. So after any event that may have lost a batch (a new
//! leader, a refusal, a reconnection, silence), all batches that are not applied are offered again,
//! oldest first. Leaders drop batches that they already have in flight, and the session table drops
//! batches that were executed.

use std::collections::BTreeSet;

use quorate_core::{
    ballot::Ballot,
    node_id::NodeId,
    slot::Slot,
    time::Time,
    value::{BatchName, Value},
};
use quorate_tuner::Anticipation;

use crate::{
    applying::sessions::{BatchVerdict, Sessions},
    clock::to_moment,
    completions::Completions,
    counters::{BatchCompletion, OriginTotals},
    limits::{COMMAND_OVERHEAD_BYTES, Limits, OPEN_BATCHES_MAX},
    offers::Offer,
    ports::{
        outcome::{Failure, Tag},
        payload::Payload,
    },
    pressure,
    proposing::{
        batch::{self, Batch, BatchEntry, BatchHeader, Kind},
        fitting::BatchLengthLimit,
        gather::{CommandQueue, QueuedItem, Waiter},
        in_flight::{InFlight, InFlightBatch},
        registrations::Registrations,
    },
    wake::earliest_time,
};

/// Requests that this node accepted and that have not completed.
#[derive(Debug)]
pub(crate) struct Origin {
    node: NodeId,
    boot: u32,
    timeout_ms: u64,
    repeat_ms: u64,
    limits: Limits,
    queue: CommandQueue,
    registrations: Registrations,
    in_flight: InFlight,
    /// Commands of the service itself that are not applied yet.
    service_commands: BTreeSet<Vec<u8>>,
    /// Time of the last offer or completion, from which silence is measured.
    last_progress_at: Time,
    /// Time before which no offers are made.
    no_offers_until: Time,
    /// Decides, with a window of one, whether the next batch waits for answered clients.
    anticipation: Anticipation,
    batch_length_limit: BatchLengthLimit,
    totals: OriginTotals,
    /// Executed batches that the caller has not taken yet.
    completed_batches: Vec<BatchCompletion>,
}

impl Origin {
    pub(crate) fn new(
        node: NodeId,
        boot: u32,
        timeout_ms: u64,
        repeat_ms: u64,
        limits: Limits,
    ) -> Self {
        Self {
            node,
            boot,
            timeout_ms,
            repeat_ms,
            limits,
            queue: CommandQueue::default(),
            registrations: Registrations::new(node, boot),
            in_flight: InFlight::default(),
            service_commands: BTreeSet::new(),
            last_progress_at: Time(0),
            no_offers_until: Time(0),
            anticipation: Anticipation::default(),
            batch_length_limit: BatchLengthLimit::new(),
            totals: OriginTotals::default(),
            completed_batches: Vec::new(),
        }
    }

    /// Sets the size of batches and the maximum number in flight. Returns whether either changed.
    pub(crate) fn set_batching(&mut self, batch_bytes: usize, window: usize) -> bool {
        let before = (self.batch_bytes(), self.limits.window_batches);
        self.limits.batch_bytes = batch_bytes.max(1);
        self.limits.window_batches = window.clamp(1, OPEN_BATCHES_MAX);
        if self.limits.window_batches > 1 {
            self.anticipation.cancel();
        }
        before != (self.batch_bytes(), self.limits.window_batches)
    }

    /// Sets the size of a batch that fits into a frame for this node's device; `None` if there is
    /// no device. Returns whether the limit on batches changed.
    pub(crate) fn set_frame_value_bytes(&mut self, now: Time, room: Option<usize>) -> bool {
        if room.is_none() && !self.batch_length_limit.has_device() {
            return false;
        }
        let before = self.batch_bytes();
        let room = room.map(|room| room.saturating_sub(batch::HEADER_BYTES));
        self.batch_length_limit.compare_costs(now, room);
        before != self.batch_bytes()
    }

    /// Returns the maximum length of a batch's entries, in bytes. Only a batch of one command may
    /// exceed it.
    fn batch_bytes(&self) -> usize {
        self.batch_length_limit.batch_bytes_max(self.limits.batch_bytes)
    }

    pub(crate) fn totals(&self) -> OriginTotals {
        self.totals
    }

    pub(crate) fn repeated_count(&self) -> u64 {
        self.in_flight.repeated_count()
    }

    /// Returns the number of commands that wait for a batch, and the number of batches in flight.
    pub(crate) fn queued_counts(&self) -> (usize, usize) {
        (self.queue.len(), self.in_flight.len())
    }

    /// Returns the memory of waiting commands, in bytes, that counts towards their limit.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.queue.charged_bytes()
    }

    /// Returns the size of waiting commands, in bytes, above which the node should stop reading
    /// from clients.
    pub(crate) fn waiting_bytes_max(&self) -> usize {
        pressure::queued_bytes_max(&self.limits)
    }

    /// Returns this node's batches that were executed since the last call.
    pub(crate) fn take_completed(&mut self) -> impl Iterator<Item = BatchCompletion> {
        self.completed_batches.drain(..)
    }

    /// Accepts a command; fails if the queue is full.
    pub(crate) fn accept_command(
        &mut self,
        now: Time,
        waiter: Waiter,
        entry: &BatchEntry<'_>,
    ) -> Result<(), Failure> {
        self.push(now, waiter, entry).then_some(()).ok_or(Failure::Busy)
    }

    /// Marks the most recently accepted command to travel in a batch without other commands.
    pub(crate) fn mark_alone_in_batch(&mut self) {
        self.queue.mark_alone_in_batch();
    }

    /// Accepts a read that runs after the commands accepted so far and before later ones. The read
    /// joins a batch that is not formed yet, so it sees every command that was acknowledged to any
    /// client before the read was accepted: these commands are in earlier slots.
    pub(crate) fn accept_read(&mut self, now: Time, tag: Tag) -> Result<(), Failure> {
        let charge = self.queue.charged_bytes() + COMMAND_OVERHEAD_BYTES;
        if charge > self.limits.pending_bytes {
            return Err(Failure::Busy);
        }
        self.queue.push_read(Waiter::Front(tag), now.plus_ms(self.timeout_ms));
        self.registrations.ensure_own_session();
        Ok(())
    }

    /// Accepts a command that the service itself submits. Returns `false` if the queue is full. A
    /// command that is already queued or in flight is not queued again.
    pub(crate) fn accept_service_command(&mut self, now: Time, command: &[u8]) -> bool {
        if self.service_commands.contains(command) {
            return true;
        }
        let taken = self.push(now, Waiter::Service, &BatchEntry { kind: Kind::Plain, command });
        if taken {
            self.service_commands.insert(command.to_vec());
        }
        taken
    }

    /// Accepts a command for the group's table or on streams; fails if the queue is full.
    pub(crate) fn accept_for(
        &mut self,
        now: Time,
        kind: Kind,
        waiter: Waiter,
        command: &[u8],
    ) -> Result<(), Failure> {
        self.push(now, waiter, &BatchEntry { kind, command }).then_some(()).ok_or(Failure::Busy)
    }

    fn push(&mut self, now: Time, waiter: Waiter, entry: &BatchEntry<'_>) -> bool {
        let charge = self.queue.charged_bytes() + entry.encoded_bytes() + COMMAND_OVERHEAD_BYTES;
        if charge > self.limits.pending_bytes {
            return false;
        }
        self.queue.push(waiter, now.plus_ms(self.timeout_ms), entry);
        self.totals.accepted_commands += 1;
        self.registrations.ensure_own_session();
        true
    }

    /// Accepts the registration of a client session; fails if the queue is full.
    pub(crate) fn register(&mut self, now: Time, tag: Tag) -> Result<(), Failure> {
        if self.registrations.waiting_client_count() >= self.limits.waiting_requests {
            return Err(Failure::Busy);
        }
        self.registrations.push(tag, now.plus_ms(self.timeout_ms));
        Ok(())
    }

    /// Returns whether all accepted requests have completed.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
            && self.in_flight.is_empty()
            && self.registrations.waiting_client_count() == 0
    }

    /// Ends the wait for further commands if it is over. Must be called before offers are taken.
    pub(crate) fn end_wait_if_over(&mut self, now: Time) {
        let full = self.queue.is_full(self.batch_bytes());
        self.anticipation.end_wait_if_over(to_moment(now), self.queue.len(), full);
    }

    /// Returns the length of the next offer's payload, if any; 0 for a registration.
    pub(crate) fn next_bytes(&self, now: Time) -> Option<usize> {
        if now < self.no_offers_until {
            return None;
        }
        if self.registrations.is_waiting() {
            return Some(0);
        }
        if let Some(batch) = self.in_flight.next_to_offer() {
            return Some(batch.payload.len());
        }
        let room = self.in_flight.len() < self.limits.window_batches
            && self.anticipation.wait_until().is_none();
        (room && self.registrations.is_own_session_open() && !self.queue.is_empty())
            .then(|| batch::HEADER_BYTES + self.queue.next_bytes(self.batch_bytes()))
    }

    /// Returns the next offer and marks it as made. The caller must have checked that the path to
    /// the leader has free space, since forming a batch cannot be undone.
    pub(crate) fn take_offer(&mut self, now: Time) -> Option<Offer> {
        self.next_bytes(now)?;
        self.last_progress_at = now;
        if let Some(value) = self.registrations.take_next_to_offer() {
            return Some(Offer { value, payload: None });
        }
        if self.in_flight.next_to_offer().is_none() {
            self.form_batch(now);
        }
        let batch = self.in_flight.take_next_to_offer()?;
        Some(Offer { value: Value::Batch(batch.name), payload: Some(batch.payload.clone()) })
    }

    fn form_batch(&mut self, now: Time) {
        let Some(header) = self.registrations.take_next_position() else {
            return;
        };
        let assemble = |entries: &[u8]| batch::encode_batch(header, entries);
        let waiting = self.queue.len();
        let batch_bytes = self.batch_bytes();
        if self.batch_length_limit.has_device() {
            let wanted = self.queue.next_bytes(self.limits.batch_bytes);
            let taken = self.queue.next_bytes(batch_bytes);
            self.batch_length_limit.record_batch(wanted, taken, self.in_flight.len());
        }
        let (items, bytes) = self.queue.take_batch(batch_bytes, assemble);
        let commands = waiting - self.queue.len();
        self.totals.formed_batches += 1;
        self.totals.commands += commands as u64;
        self.totals.bytes += bytes.len() as u64;
        let name = BatchName {
            origin: self.node,
            boot: self.boot,
            counter: self.totals.formed_batches,
            length: u32::try_from(bytes.len())
                .expect("bounded by batch_bytes and command_bytes_max"),
            checksum: quorate_wire::checksum(&bytes),
        };
        self.in_flight.push(InFlightBatch::new(name, Payload::new(bytes), items, commands, now));
    }

    /// Holds offers back until this time, since the path to the leader has no free space.
    pub(crate) fn hold_offers(&mut self, until: Time) {
        self.no_offers_until = until;
    }

    /// Repeats the offer of a value that the leader refused, and of the values numbered after it.
    /// Values that the leader accepted are not sent twice.
    pub(crate) fn on_refused(&mut self, value: &Value, until: Time) {
        self.no_offers_until = self.no_offers_until.max(until);
        match value {
            Value::Batch(name) => self.in_flight.on_refused(name),
            Value::RegisterSession { number, .. } => self.registrations.on_refused(*number),
            _ => {}
        }
    }

    /// Repeats the offers of all values that are not applied, since the earlier offers may be lost.
    fn repeat_all(&mut self) {
        self.in_flight.repeat_all();
        self.registrations.repeat_all();
    }

    /// Handles a new ballot of the leader, in which no value of this node was proposed yet. The
    /// leader may be another node, or the same one after losing the values that it had accepted.
    pub(crate) fn on_new_ballot(&mut self) {
        self.no_offers_until = Time(0);
        self.repeat_all();
    }

    /// Repeats the offers if the oldest one is overdue and there was no progress since.
    pub(crate) fn repeat_if_silent(&mut self, now: Time) {
        if self.is_offered() && now >= self.last_progress_at.plus_ms(self.repeat_ms) {
            self.last_progress_at = now;
            self.repeat_all();
        }
    }

    fn is_offered(&self) -> bool {
        self.in_flight.is_offered() || self.registrations.is_offered()
    }

    /// Returns the numbers of the latest registrations by this process: of the node's own session,
    /// and of a client's session.
    pub(crate) fn registration_numbers(&self) -> [u64; 2] {
        self.registrations.last_numbers()
    }

    /// Handles a registration by this process that took effect in `slot`.
    pub(crate) fn on_registered(
        &mut self,
        now: Time,
        number: u64,
        slot: u64,
        completions: &mut Completions,
    ) {
        self.last_progress_at = now;
        self.registrations.on_registered(number, slot, completions);
    }

    /// Removes a batch that is about to be executed here. If this process formed the batch, returns
    /// the record that assigns the replies to clients.
    pub(crate) fn complete_batch(&mut self, now: Time, name: &BatchName) -> Option<InFlightBatch> {
        let batch = self.in_flight.complete_first(name)?;
        self.last_progress_at = now;
        if self.in_flight.is_empty() && self.limits.window_batches == 1 {
            let (formed, commands) = (to_moment(batch.formed_at), batch.command_count);
            self.anticipation.on_batch_completed(
                to_moment(now),
                formed,
                commands,
                self.queue.len(),
            );
        }
        let completed = self.completion_of(&batch);
        self.completed_batches.push(completed);
        if !self.service_commands.is_empty() {
            for (item, entry) in batch.entries() {
                if item.waiter == Waiter::Service {
                    self.service_commands.remove(entry.command);
                }
            }
        }
        Some(batch)
    }

    fn completion_of(&self, batch: &InFlightBatch) -> BatchCompletion {
        let timeout_us = self.timeout_ms.saturating_mul(1000);
        let taken = |item: Option<&QueuedItem>| {
            let deadline = item.map_or(Time(0), |item| item.deadline);
            Time(deadline.0.saturating_sub(timeout_us))
        };
        BatchCompletion {
            first_accepted_at: taken(batch.items.first()),
            last_accepted_at: taken(batch.items.last()),
            formed_at: batch.formed_at,
            command_count: u32::try_from(batch.command_count).unwrap_or(u32::MAX),
            bytes: batch.payload.len(),
        }
    }

    /// Handles a snapshot that the service loaded in place of slots that this node did not apply.
    /// The table of sessions shows which of this node's values took effect in those slots; their
    /// replies are not known here ([snap-2]).
    pub(crate) fn on_skipped(
        &mut self,
        now: Time,
        sessions: &Sessions,
        completions: &mut Completions,
    ) {
        self.last_progress_at = now;
        for number in self.registrations.unconfirmed_numbers() {
            let (node, boot) = (self.node, self.boot);
            let client = || Some(sessions.client_session(node, boot, number)?.slot);
            let slot = sessions.node_session(node, boot, number).or_else(client);
            if let Some(slot) = slot {
                self.registrations.on_registered(number, slot, completions);
            }
        }
        let is_past = |name: &BatchName, header| {
            sessions.preview_verdict(name, header) == BatchVerdict::AlreadyExecuted
        };
        for mut batch in self.in_flight.take_executed(is_past) {
            for (item, entry) in batch.entries() {
                if item.waiter == Waiter::Service {
                    self.service_commands.remove(entry.command);
                }
            }
            batch.end_all(completions);
        }
        self.repeat_all();
    }

    pub(crate) fn record_vote(&mut self, name: &BatchName, ballot: Ballot, slot: Slot) -> bool {
        let own = name.origin == self.node && name.boot == self.boot;
        own && self.in_flight.record_vote(name, ballot, slot)
    }

    pub(crate) fn on_in_memory(&mut self, ballot: Ballot, to: Slot, completions: &mut Completions) {
        self.in_flight.on_in_memory(ballot, to, completions);
    }

    /// Handles a batch of this process that was decided out of order and therefore not executed.
    pub(crate) fn on_out_of_order(&mut self, name: &BatchName) {
        if self.in_flight.contains(name) {
            self.repeat_all();
        }
    }

    /// Handles a batch of this process that was decided after its session had ended. Neither that
    /// batch nor any other batch of the session will ever be executed ([session-4]). Their commands
    /// are queued again for a new session; no client got a reply to them.
    pub(crate) fn on_session_lost(&mut self, name: &BatchName) {
        if !self.in_flight.contains(name) {
            return;
        }
        let batches = self.in_flight.take_all();
        let living = |item: &QueuedItem| item.waiter != Waiter::TimedOut;
        let commands =
            batches.iter().flat_map(InFlightBatch::encoded_items).filter(|(item, _)| living(item));
        self.queue.put_back(commands.collect());
        self.registrations.renew_own_session();
    }

    /// Fails the requests that have timed out, and returns their number.
    pub(crate) fn fail_expired(&mut self, now: Time, completions: &mut Completions) -> u64 {
        let mut expired = 0;
        while let Some((item, encoded)) = self.queue.pop_expired(now) {
            match item.waiter {
                Waiter::Service => self.forget_service_command(&encoded),
                waiter => expired += u64::from(completions.fail(waiter, Failure::NoQuorum)),
            }
        }
        expired
            + self.in_flight.fail_expired(now, completions)
            + self.registrations.fail_expired(now, completions)
    }

    /// Fails all requests with `failure`.
    pub(crate) fn fail_all(&mut self, failure: Failure, completions: &mut Completions) {
        while let Some((item, _)) = self.queue.pop_expired(Time(u64::MAX)) {
            completions.fail(item.waiter, failure);
        }
        self.fail_expired(Time(u64::MAX), completions);
    }

    fn forget_service_command(&mut self, encoded: &[u8]) {
        let whole = batch::encode_batch(BatchHeader { session: 0, sequence: 0 }, encoded);
        for entry in Batch::parse(&whole).iter().flat_map(Batch::entries) {
            self.service_commands.remove(entry.command);
        }
    }

    /// Returns the time at which the origin next needs a turn, even without further input.
    pub(crate) fn wake_at(&self, now: Time) -> Option<Time> {
        let held = (now < self.no_offers_until).then_some(self.no_offers_until);
        let silence = self.is_offered().then(|| self.last_progress_at.plus_ms(self.repeat_ms));
        let anticipated = self.anticipation.wait_until();
        let anticipated = anticipated.map(|until| Time(until.0.div_ceil(1000)));
        earliest_time([
            held,
            anticipated,
            silence,
            self.queue.deadline(),
            self.in_flight.deadline(),
            self.registrations.deadline(),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{applying::sessions::NODE_SESSION_BIT, ports::outcome::Completion};

    const TIMEOUT_MS: u64 = 100;
    const REPEAT_MS: u64 = 20;

    fn origin() -> Origin {
        let limits =
            Limits { window_batches: 2, batch_bytes: 30, pending_bytes: 500, ..Limits::default() };
        Origin::new(NodeId(3), 7, TIMEOUT_MS, REPEAT_MS, limits)
    }

    fn opened() -> (Origin, Completions) {
        let (mut origin, mut completions) = (origin(), Completions::default());
        write(&mut origin, &mut completions, 0, b"first");
        assert_eq!(offers(&mut origin), ["register 3/7/9223372036854775809"]);
        origin.on_registered(Time(0), NODE_SESSION_BIT | 1, 40, &mut completions);
        (origin, completions)
    }

    fn write(origin: &mut Origin, completions: &mut Completions, tag: u64, command: &[u8]) {
        completions.count_opened();
        origin
            .accept_command(
                Time(0),
                Waiter::Front(Tag(tag)),
                &BatchEntry { kind: Kind::Plain, command },
            )
            .unwrap();
    }

    fn offers(origin: &mut Origin) -> Vec<String> {
        std::iter::from_fn(|| origin.take_offer(Time(0))).map(|offer| show(&offer)).collect()
    }

    /// Returns an offer as text: a registration, or session.sequence and its commands.
    fn show(offer: &Offer) -> String {
        let Some(payload) = &offer.payload else {
            return offer.value.to_string();
        };
        let batch = Batch::parse(payload).unwrap();
        let commands =
            batch.entries().map(|entry| String::from_utf8_lossy(entry.command).into_owned());
        let commands = commands.collect::<Vec<_>>().join(" ");
        format!("{}.{}: {commands}", batch.header.session, batch.header.sequence)
    }

    fn name(origin: &Origin, at: usize) -> BatchName {
        origin.in_flight.names()[at]
    }

    fn failures(completions: &mut Completions) -> Vec<(u64, Failure)> {
        let Some(mut ended) = completions.take_ended() else {
            return Vec::new();
        };
        let mut list = Vec::new();
        while let Some(completion) = ended.next_completion() {
            let Completion::Failed(tag, failure) = completion else { panic!("{completion:?}") };
            list.push((tag.0, failure));
        }
        list
    }

    /// Commands that cannot be sent accumulate and leave as one batch.
    #[test]
    fn next_batch_grows_while_the_window_is_full() {
        let (mut origin, mut completions) = opened();
        assert_eq!(offers(&mut origin), ["40.1: first"]);
        write(&mut origin, &mut completions, 1, b"a");
        assert_eq!(offers(&mut origin), ["40.2: a"]);
        for command in [b"b", b"c", b"d"] {
            write(&mut origin, &mut completions, 2, command);
        }
        assert_eq!(offers(&mut origin), [""; 0]);
        let first = name(&origin, 0);
        assert!(origin.complete_batch(Time(0), &first).is_some());
        assert_eq!(offers(&mut origin), ["40.3: b c d"]);
    }

    /// With a window of one, the next batch waits for the answered clients; a full batch, a wider
    /// window or a timeout ends the wait.
    #[test]
    fn next_batch_waits_for_the_answered_clients() {
        let completed = || {
            let (mut origin, mut completions) = opened();
            origin.set_batching(30, 1);
            assert_eq!(offers(&mut origin), ["40.1: first"]);
            write(&mut origin, &mut completions, 1, b"a");
            let first = name(&origin, 0);
            assert!(origin.complete_batch(Time(400), &first).is_some());
            origin.end_wait_if_over(Time(400));
            assert_eq!(offers(&mut origin), [""; 0]);
            assert_eq!(origin.wake_at(Time(400)), Some(Time(500)));
            (origin, completions)
        };
        let (mut origin, mut completions) = completed();
        write(&mut origin, &mut completions, 2, b"b");
        origin.end_wait_if_over(Time(401));
        assert_eq!(offers(&mut origin), ["40.2: a b"]);

        let (mut origin, _) = completed();
        origin.end_wait_if_over(Time(499));
        assert_eq!(offers(&mut origin), [""; 0]);
        origin.end_wait_if_over(Time(500));
        assert_eq!(offers(&mut origin), ["40.2: a"]);

        let (mut origin, _) = completed();
        origin.set_batching(30, 2);
        assert_eq!(offers(&mut origin), ["40.2: a"]);

        let (mut origin, _) = completed();
        origin.set_batching(1, 1);
        origin.end_wait_if_over(Time(401));
        assert_eq!(offers(&mut origin), ["40.2: a"]);
    }

    #[test]
    fn everything_unapplied_is_repeated_in_order_under_the_same_names() {
        let (mut origin, mut completions) = opened();
        offers(&mut origin);
        write(&mut origin, &mut completions, 1, b"a");
        offers(&mut origin);
        let names = [name(&origin, 0), name(&origin, 1)];
        origin.on_new_ballot();
        assert_eq!(offers(&mut origin), ["40.1: first", "40.2: a"]);
        assert_eq!([name(&origin, 0), name(&origin, 1)], names);
        origin.complete_batch(Time(0), &names[0]).unwrap();
        origin.on_out_of_order(&names[1]);
        assert_eq!(offers(&mut origin), ["40.2: a"]);
        assert!(origin.complete_batch(Time(0), &names[0]).is_none(), "answered once");
    }

    #[test]
    fn refused_batch_is_proposed_again_with_later_ones() {
        let (mut origin, mut completions) = opened();
        offers(&mut origin);
        write(&mut origin, &mut completions, 1, b"a");
        offers(&mut origin);
        let values = [0, 1].map(|at| Value::Batch(name(&origin, at)));
        origin.on_refused(&values[1], Time(5));
        assert_eq!(origin.next_bytes(Time(4)), None);
        origin.hold_offers(Time(0));
        assert_eq!(offers(&mut origin), ["40.2: a"]);
        origin.on_refused(&values[0], Time(0));
        origin.on_refused(&values[1], Time(0));
        assert_eq!(offers(&mut origin), ["40.1: first", "40.2: a"]);
        completions.count_opened();
        origin.register(Time(0), Tag(9)).unwrap();
        assert_eq!(offers(&mut origin), ["register 3/7/1"]);
        let value = Value::RegisterSession { origin: NodeId(3), boot: 7, number: 1 };
        origin.on_refused(&value, Time(0));
        assert_eq!(offers(&mut origin), ["register 3/7/1"]);
    }

    #[test]
    fn missing_progress_causes_a_repeat() {
        let (mut origin, _) = opened();
        offers(&mut origin);
        origin.repeat_if_silent(Time(0).plus_ms(REPEAT_MS - 1));
        assert_eq!(offers(&mut origin), [""; 0]);
        origin.repeat_if_silent(Time(0).plus_ms(REPEAT_MS));
        assert_eq!(offers(&mut origin), ["40.1: first"]);
    }

    #[test]
    fn timeout_reports_whether_the_command_was_sent() {
        let (mut origin, mut completions) = opened();
        offers(&mut origin);
        write(&mut origin, &mut completions, 1, b"a");
        offers(&mut origin);
        write(&mut origin, &mut completions, 2, b"b");
        completions.count_opened();
        origin.register(Time(0), Tag(3)).unwrap();
        assert_eq!(origin.wake_at(Time(0)), Some(Time(0).plus_ms(REPEAT_MS)));
        assert_eq!(origin.fail_expired(Time(0).plus_ms(TIMEOUT_MS - 1), &mut completions), 0);
        assert_eq!(origin.fail_expired(Time(0).plus_ms(TIMEOUT_MS), &mut completions), 4);
        let expected = [
            (2, Failure::NoQuorum),
            (0, Failure::Unknown),
            (1, Failure::Unknown),
            (3, Failure::NoQuorum),
        ];
        assert_eq!(failures(&mut completions), expected);
        // The batch is still repeated, since later batches need it to be applied.
        origin.on_new_ballot();
        assert_eq!(offers(&mut origin), ["40.1: first", "40.2: a"]);
        assert_eq!(origin.fail_expired(Time(0).plus_ms(TIMEOUT_MS), &mut completions), 0);
    }

    /// A registration that was offered once may take effect while it waits to be offered again.
    #[test]
    fn registration_offered_once_may_take_effect_later() {
        let (mut origin, mut completions) = opened();
        for tag in [1, 2] {
            completions.count_opened();
            origin.register(Time(0), Tag(tag)).unwrap();
        }
        origin.take_offer(Time(0)).unwrap();
        origin.on_new_ballot();
        origin.fail_expired(Time(0).plus_ms(TIMEOUT_MS), &mut completions);
        let registrations = failures(&mut completions).split_off(1);
        let expected = [(1, Failure::Unknown), (2, Failure::NoQuorum)];
        assert_eq!(registrations, expected);
    }

    fn write_early(origin: &mut Origin, completions: &mut Completions, tag: u64) {
        completions.count_opened();
        let entry = BatchEntry { kind: Kind::Plain, command: b"early" };
        origin.accept_command(Time(0), Waiter::FrontEarly(Tag(tag)), &entry).unwrap();
    }

    fn told(completions: &mut Completions) -> Vec<(u64, u64)> {
        let Some(mut ended) = completions.take_ended() else {
            return Vec::new();
        };
        let mut list = Vec::new();
        while let Some(completion) = ended.next_completion() {
            let Completion::InMemory(tag, slot) = completion else { panic!("{completion:?}") };
            list.push((tag.0, slot.0));
        }
        completions.recycle_buffers(ended);
        list
    }

    /// [less-2] A batch executes after the earlier batches. Until these are in memory at a quorum,
    /// in the same ballot and in lower slots, no later batch is reported.
    #[test]
    fn early_replies_come_in_the_order_in_which_batches_execute() {
        let (mut origin, mut completions) = opened();
        offers(&mut origin);
        write_early(&mut origin, &mut completions, 1);
        offers(&mut origin);
        let names = [name(&origin, 0), name(&origin, 1)];
        let ballot = |round| Ballot { round, ..Ballot::ZERO };
        assert!(origin.record_vote(&names[1], ballot(1), Slot(6)));
        origin.on_in_memory(ballot(1), Slot(7), &mut completions);
        assert_eq!(told(&mut completions), [], "no member voted for the first");
        assert!(!origin.record_vote(&names[0], ballot(1), Slot(8)), "no client waits for that");
        origin.on_in_memory(ballot(1), Slot(9), &mut completions);
        assert_eq!(told(&mut completions), [], "the first stands behind it");
        origin.record_vote(&names[0], ballot(2), Slot(6));
        origin.record_vote(&names[1], ballot(2), Slot(7));
        origin.on_in_memory(ballot(1), Slot(9), &mut completions);
        assert_eq!(told(&mut completions), [], "that is over");
        origin.on_in_memory(ballot(2), Slot(7), &mut completions);
        assert_eq!(told(&mut completions), [], "only the first is that far");
        origin.on_in_memory(ballot(2), Slot(8), &mut completions);
        assert_eq!(told(&mut completions), [(1, 7)]);
        origin.on_in_memory(ballot(2), Slot(8), &mut completions);
        assert_eq!(told(&mut completions), [], "told once");
        assert!(!origin.record_vote(&names[1], ballot(3), Slot(7)), "no client waits any more");
    }

    /// [less-4] After an early reply, no request waits for the command any more, but it is still
    /// resubmitted in a new session like other clients' commands.
    #[test]
    fn reported_command_is_resubmitted_in_a_new_session() {
        let (mut origin, mut completions) = opened();
        offers(&mut origin);
        write_early(&mut origin, &mut completions, 1);
        offers(&mut origin);
        let first = name(&origin, 0);
        origin.complete_batch(Time(0), &first).unwrap();
        let second = name(&origin, 0);
        origin.record_vote(&second, Ballot::ZERO, Slot(6));
        origin.on_in_memory(Ballot::ZERO, Slot(7), &mut completions);
        assert_eq!(told(&mut completions), [(1, 6)]);
        assert_eq!(origin.fail_expired(Time(u64::MAX), &mut completions), 0);
        origin.on_session_lost(&second);
        assert_eq!(offers(&mut origin), ["register 3/7/9223372036854775810"]);
        assert_eq!(origin.fail_expired(Time(u64::MAX), &mut completions), 0);
        origin.on_registered(Time(0), NODE_SESSION_BIT | 2, 50, &mut completions);
        assert_eq!(offers(&mut origin), ["50.1: early"]);
    }

    /// [session-4] Commands that can no longer run in the old session run in a new one, in order,
    /// except those already reported as "unknown".
    #[test]
    fn commands_of_a_lost_session_are_resubmitted_in_order() {
        let (mut origin, mut completions) = opened();
        offers(&mut origin);
        origin.fail_expired(Time(0).plus_ms(TIMEOUT_MS), &mut completions);
        assert_eq!(failures(&mut completions), [(0, Failure::Unknown)]);
        completions.count_opened();
        origin
            .accept_command(
                Time(1),
                Waiter::Front(Tag(1)),
                &BatchEntry { kind: Kind::Plain, command: b"a" },
            )
            .unwrap();
        offers(&mut origin);
        write(&mut origin, &mut completions, 2, b"b");
        let second = name(&origin, 1);
        origin.on_session_lost(&second);
        assert_eq!(offers(&mut origin), ["register 3/7/9223372036854775810"]);
        origin.on_session_lost(&second);
        origin.on_registered(Time(0), NODE_SESSION_BIT | 1, 41, &mut completions);
        assert_eq!(offers(&mut origin), [""; 0], "an old registration opens nothing");
        origin.on_registered(Time(0), NODE_SESSION_BIT | 2, 50, &mut completions);
        assert_eq!(offers(&mut origin), ["50.1: a b"]);
    }

    #[test]
    fn queue_is_bounded_in_bytes() {
        let mut origin = origin();
        let entry = BatchEntry { kind: Kind::Plain, command: b"" };
        let taken = (0..100)
            .take_while(|tag| {
                origin.accept_command(Time(0), Waiter::Front(Tag(*tag)), &entry).is_ok()
            })
            .count();
        assert_eq!(taken, 500 / (COMMAND_OVERHEAD_BYTES + entry.encoded_bytes()));
    }

    #[test]
    fn due_command_is_proposed_once_at_a_time() {
        let (mut origin, _) = opened();
        offers(&mut origin);
        assert!(origin.accept_service_command(Time(0), b"expire k"));
        assert!(origin.accept_service_command(Time(0), b"expire k"));
        assert_eq!(offers(&mut origin), ["40.2: expire k"]);
        assert!(origin.accept_service_command(Time(0), b"expire k"));
        let names = [name(&origin, 0), name(&origin, 1)];
        assert!(names.iter().all(|name| origin.complete_batch(Time(0), name).is_some()));
        assert_eq!(offers(&mut origin), [""; 0]);
        assert!(origin.accept_service_command(Time(0), b"expire k"));
        assert_eq!(offers(&mut origin), ["40.3: expire k"]);
    }
}
