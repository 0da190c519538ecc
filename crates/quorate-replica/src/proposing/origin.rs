//! What this node accepted: numbered, offered to whoever leads, repeated until it is applied here.
//!
//! Exactly once, from the accepting side. Batches carry consecutive numbers in this node's session
//! and execute in their order, so after anything that may have lost one (a new leader, a refusal, a
//! reconnection, silence) all that are not applied are offered again, oldest first; leaders drop
//! what they have in flight, and the session table what was executed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use quorate_core::{
    node_id::NodeId,
    time::Time,
    value::{BatchName, Value},
};
use quorate_tuner::Anticipation;

use crate::{
    applying::sessions::NODE_SESSION,
    completions::Completions,
    contents::payloads::Payload,
    front::{Failure, SessionId, Tag},
    limits::{COMMAND_OVERHEAD_BYTES, Limits, OPEN_BATCHES_MAX},
    pressure,
    proposing::batch::{self, Batch, Entry, Header},
    proposing::gather::{Gather, Item, Waiter},
    tuning::moment,
};

/// A numbered batch that is not applied here yet.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) name: BatchName,
    pub(crate) payload: Payload,
    /// Its commands, and the reads between them.
    pub(crate) items: Vec<Item>,
    /// Of the items: those that are commands.
    commands: usize,
    /// Waiters of items before this one were told "unknown" in time.
    expired: usize,
    formed: Time,
}

/// What has been taken and formed since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Commands taken.
    pub(crate) accepted: u64,
    /// Batches formed,
    pub(crate) batches: u64,
    /// the commands in them,
    pub(crate) commands: u64,
    /// and their bytes.
    pub(crate) bytes: u64,
}

/// A batch of this process that was executed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Landed {
    /// When its first command was taken,
    pub(crate) accepted_first: Time,
    /// and its last.
    pub(crate) accepted_last: Time,
    pub(crate) formed: Time,
    pub(crate) commands: u32,
    pub(crate) bytes: usize,
}

/// Something that the leader should propose.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) value: Value,
    pub(crate) payload: Option<Payload>,
}

/// This node's own session: what numbers its batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Session {
    /// Not needed so far, or lost.
    None,
    /// Its registration should be proposed, or is on its way.
    Asked { on_way: bool },
    /// Registered in this slot; `next` is the number of the next batch.
    Open { slot: u64, next: u64 },
}

#[derive(Clone, Copy, Debug)]
struct Registration {
    tag: Tag,
    deadline: Time,
    /// On its way to the present leader,
    on_way: bool,
    /// or to an earlier one: it may take effect.
    offered: bool,
}

/// What this node accepted and has not finished.
#[derive(Debug)]
pub(crate) struct Origin {
    node: NodeId,
    boot: u32,
    timeout_ms: u64,
    repeat_ms: u64,
    limits: Limits,
    gather: Gather,
    session: Session,
    /// Counts this node's own sessions, for their registrations.
    session_number: u64,
    batches: u64,
    registrations: u64,
    flights: VecDeque<Flight>,
    /// Flights before are on their way to the present leader.
    cursor: usize,
    clients: BTreeMap<u64, Registration>,
    /// Commands of the service itself that are not applied yet.
    due: BTreeSet<Vec<u8>>,
    /// When something was last offered or applied.
    progress_at: Time,
    /// Nothing is offered before.
    hold_until: Time,
    /// At a window of one: whether the next batch waits for those whom the last one answered.
    anticipation: Anticipation,
    repeated: u64,
    totals: Totals,
    /// Executed, and not yet asked for.
    landed: Vec<Landed>,
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
            gather: Gather::default(),
            session: Session::None,
            session_number: 0,
            batches: 0,
            registrations: 0,
            flights: VecDeque::new(),
            cursor: 0,
            clients: BTreeMap::new(),
            due: BTreeSet::new(),
            progress_at: Time(0),
            hold_until: Time(0),
            anticipation: Anticipation::default(),
            repeated: 0,
            totals: Totals::default(),
            landed: Vec::new(),
        }
    }

    /// How large batches may be, and how many in flight, from now on; whether that is new.
    pub(crate) fn set_batching(&mut self, batch_bytes: usize, window: usize) -> bool {
        let limits = &mut self.limits;
        let before = (limits.batch_bytes, limits.window_batches);
        limits.batch_bytes = batch_bytes.max(1);
        limits.window_batches = window.clamp(1, OPEN_BATCHES_MAX);
        if limits.window_batches > 1 {
            self.anticipation.cancel();
        }
        before != (limits.batch_bytes, limits.window_batches)
    }

    /// Counts of all that was taken and formed.
    pub(crate) fn totals(&self) -> Totals {
        Totals {
            batches: self.batches,
            ..self.totals
        }
    }

    /// Commands that wait for a batch, and batches in flight.
    pub(crate) fn queued(&self) -> (usize, usize) {
        (self.gather.len(), self.flights.len())
    }

    /// What waiting commands are charged for.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.gather.charge()
    }

    /// Above this nobody should be read.
    pub(crate) fn waiting_bound(&self) -> usize {
        pressure::bound(&self.limits)
    }

    /// Own batches that were executed since the last call; keeps the memory of `into`.
    pub(crate) fn take_landed(&mut self, into: &mut Vec<Landed>) {
        into.clear();
        std::mem::swap(&mut self.landed, into);
    }

    /// Takes a command, or says that there is no room.
    pub(crate) fn accept(&mut self, now: Time, tag: Tag, entry: &Entry<'_>) -> Result<(), Failure> {
        self.push(now, Waiter::Front(tag), entry)
            .then_some(())
            .ok_or(Failure::Busy)
    }

    /// Takes a read that runs behind the commands taken so far, before those that come, and in a
    /// batch that does not exist yet: a command that another client was told of before the read was
    /// taken is in a slot before that batch, so the read sees it.
    pub(crate) fn accept_read(&mut self, now: Time, tag: Tag) -> Result<(), Failure> {
        let charge = self.gather.charge() + COMMAND_OVERHEAD_BYTES;
        if charge > self.limits.pending_bytes {
            return Err(Failure::Busy);
        }
        self.gather
            .push_read(Waiter::Front(tag), now.plus_ms(self.timeout_ms));
        if self.session == Session::None {
            self.ask_for_session();
        }
        Ok(())
    }

    /// Takes a command of the service itself, unless it is on its way or there is no room.
    pub(crate) fn accept_due(&mut self, now: Time, command: &[u8]) -> bool {
        if self.due.contains(command) {
            return true;
        }
        let taken = self.push(now, Waiter::Service, &Entry { at: None, command });
        if taken {
            self.due.insert(command.to_vec());
        }
        taken
    }

    fn push(&mut self, now: Time, waiter: Waiter, entry: &Entry<'_>) -> bool {
        let charge = self.gather.charge() + entry.encoded_bytes() + COMMAND_OVERHEAD_BYTES;
        if charge > self.limits.pending_bytes {
            return false;
        }
        self.gather
            .push(waiter, now.plus_ms(self.timeout_ms), entry);
        self.totals.accepted += 1;
        if self.session == Session::None {
            self.ask_for_session();
        }
        true
    }

    /// Takes the registration of a client session.
    pub(crate) fn register(&mut self, now: Time, tag: Tag) -> Result<(), Failure> {
        if self.clients.len() >= self.limits.waiting_requests {
            return Err(Failure::Busy);
        }
        self.registrations += 1;
        let deadline = now.plus_ms(self.timeout_ms);
        self.clients.insert(
            self.registrations,
            Registration {
                tag,
                deadline,
                on_way: false,
                offered: false,
            },
        );
        Ok(())
    }

    /// Whether everything that was accepted has ended.
    pub(crate) fn is_idle(&self) -> bool {
        self.gather.is_empty() && self.flights.is_empty() && self.clients.is_empty()
    }

    fn ask_for_session(&mut self) {
        self.session_number += 1;
        self.session = Session::Asked { on_way: false };
    }

    fn session_request(&self) -> u64 {
        NODE_SESSION | self.session_number
    }

    /// Ends a wait for commands that is over: before anything is asked for or offered.
    pub(crate) fn look(&mut self, now: Time) {
        let full = self.gather.is_full(self.limits.batch_bytes);
        self.anticipation.look(moment(now), self.gather.len(), full);
    }

    /// Bytes of the next thing to offer; zero for one without bytes.
    pub(crate) fn next_bytes(&self, now: Time) -> Option<usize> {
        if now < self.hold_until {
            return None;
        }
        if self.session == (Session::Asked { on_way: false })
            || self
                .clients
                .values()
                .any(|registration| !registration.on_way)
        {
            return Some(0);
        }
        if let Some(flight) = self.flights.get(self.cursor) {
            return Some(flight.payload.len());
        }
        let room =
            self.flights.len() < self.limits.window_batches && self.anticipation.until().is_none();
        let open = matches!(self.session, Session::Open { .. });
        (room && open && !self.gather.is_empty())
            .then(|| batch::HEADER_BYTES + self.gather.next_bytes(self.limits.batch_bytes))
    }

    /// The next thing to offer; it counts as on its way to the leader. Only when the way is free:
    /// a batch that was formed cannot be taken back.
    pub(crate) fn take_offer(&mut self, now: Time) -> Option<Offer> {
        self.next_bytes(now)?;
        self.progress_at = now;
        if self.session == (Session::Asked { on_way: false }) {
            self.session = Session::Asked { on_way: true };
            return Some(self.registration(self.session_request()));
        }
        let waiting = self
            .clients
            .iter_mut()
            .find(|(_, registration)| !registration.on_way);
        if let Some((&number, registration)) = waiting {
            registration.on_way = true;
            registration.offered = true;
            return Some(self.registration(number));
        }
        if self.cursor == self.flights.len() {
            self.form_batch(now);
        }
        let flight = self.flights.get(self.cursor)?;
        self.cursor += 1;
        Some(Offer {
            value: Value::Batch(flight.name),
            payload: Some(flight.payload.clone()),
        })
    }

    fn registration(&self, number: u64) -> Offer {
        let value = Value::RegisterSession {
            origin: self.node,
            boot: self.boot,
            number,
        };
        Offer {
            value,
            payload: None,
        }
    }

    fn form_batch(&mut self, now: Time) {
        let Session::Open { slot, next } = &mut self.session else {
            return;
        };
        let header = Header {
            session: *slot,
            sequence: *next,
        };
        *next += 1;
        self.batches += 1;
        let assemble = |entries: &[u8]| batch::assemble(header, entries);
        let waiting = self.gather.len();
        let (items, bytes) = self.gather.take(self.limits.batch_bytes, assemble);
        let commands = waiting - self.gather.len();
        let name = BatchName {
            origin: self.node,
            boot: self.boot,
            counter: self.batches,
            length: u32::try_from(bytes.len())
                .expect("bounded by batch_bytes and command_bytes_max"),
            checksum: quorate_wire::checksum(&bytes),
        };
        self.totals.commands += commands as u64;
        self.totals.bytes += bytes.len() as u64;
        self.flights.push_back(Flight {
            name,
            payload: Payload::new(bytes),
            items,
            commands,
            expired: 0,
            formed: now,
        });
    }

    /// The way to the leader is not free: nothing is offered before.
    pub(crate) fn hold(&mut self, until: Time) {
        self.hold_until = until;
    }

    /// The leader did not take this. It goes again, and what was numbered behind it: that cannot
    /// execute before. What the leader did take is not sent twice.
    pub(crate) fn on_refused(&mut self, value: &Value, until: Time) {
        self.hold_until = self.hold_until.max(until);
        match *value {
            Value::Batch(name) => {
                let at = self.flights.iter().position(|flight| flight.name == name);
                if let Some(at) = at.filter(|at| *at < self.cursor) {
                    self.repeated += (self.cursor - at) as u64;
                    self.cursor = at;
                }
            }
            Value::RegisterSession { number, .. } if number == self.session_request() => {
                if let Session::Asked { on_way } = &mut self.session {
                    *on_way = false;
                }
            }
            Value::RegisterSession { number, .. } => {
                if let Some(registration) = self.clients.get_mut(&number) {
                    registration.on_way = false;
                }
            }
            _ => {}
        }
    }

    /// Whatever is not applied may be lost: offer all of it again.
    pub(crate) fn repeat_all(&mut self) {
        self.repeated += self.cursor as u64;
        self.cursor = 0;
        if let Session::Asked { on_way } = &mut self.session {
            *on_way = false;
        }
        for registration in self.clients.values_mut() {
            registration.on_way = false;
        }
    }

    /// Somebody leads in a ballot in which nothing of this was proposed yet: another leader, or the
    /// same one, whose earlier ballot may have lost what it had taken.
    pub(crate) fn on_new_ballot(&mut self) {
        self.hold_until = Time(0);
        self.repeat_all();
    }

    /// Repeats what has been on its way for too long without any progress.
    pub(crate) fn repeat_if_silent(&mut self, now: Time) {
        if self.on_way() && now >= self.progress_at.plus_ms(self.repeat_ms) {
            self.progress_at = now;
            self.repeat_all();
        }
    }

    fn on_way(&self) -> bool {
        self.cursor > 0
            || self.session == (Session::Asked { on_way: true })
            || self
                .clients
                .values()
                .any(|registration| registration.on_way)
    }

    /// A registration of this node and boot took effect, with this number.
    pub(crate) fn on_registered(
        &mut self,
        now: Time,
        number: u64,
        slot: u64,
        completions: &mut Completions,
    ) {
        self.progress_at = now;
        if number == self.session_request() {
            if matches!(self.session, Session::Asked { .. }) {
                self.session = Session::Open { slot, next: 1 };
            }
        } else if let Some(registration) = self.clients.remove(&number) {
            completions.registered(registration.tag, SessionId { slot, index: 0 });
        }
    }

    /// This batch is about to be executed here. Those who wait for its replies, if it is from this
    /// process.
    pub(crate) fn claim(&mut self, now: Time, name: &BatchName) -> Option<Flight> {
        let flight = self.flights.pop_front_if(|flight| flight.name == *name)?;
        self.cursor = self.cursor.saturating_sub(1);
        self.progress_at = now;
        if self.flights.is_empty() && self.limits.window_batches == 1 {
            let (formed, commands) = (moment(flight.formed), flight.commands);
            self.anticipation
                .on_landed(moment(now), formed, commands, self.gather.len());
        }
        let taken = |item: Option<&Item>| {
            let deadline = item.map_or(Time(0), |item| item.deadline);
            Time(
                deadline
                    .0
                    .saturating_sub(self.timeout_ms.saturating_mul(1000)),
            )
        };
        self.landed.push(Landed {
            accepted_first: taken(flight.items.first()),
            accepted_last: taken(flight.items.last()),
            formed: flight.formed,
            commands: u32::try_from(flight.commands).unwrap_or(u32::MAX),
            bytes: flight.payload.len(),
        });
        if !self.due.is_empty() {
            for (item, entry) in flight.entries() {
                if item.waiter == Waiter::Service {
                    self.due.remove(entry.command);
                }
            }
        }
        Some(flight)
    }

    /// A batch of this process was decided out of its order, and executed nowhere.
    pub(crate) fn on_out_of_order(&mut self, name: &BatchName) {
        if self.flights.iter().any(|flight| flight.name == *name) {
            self.repeat_all();
        }
    }

    /// A batch of this process was decided, and the session that numbered it is gone: it was not
    /// executed and never will be, nor any other of that session ([session-4]). Their commands
    /// start over; nobody was told anything about them.
    pub(crate) fn on_session_lost(&mut self, name: &BatchName) {
        if !self.flights.iter().any(|flight| flight.name == *name) {
            return;
        }
        let flights = std::mem::take(&mut self.flights);
        let living = |item: &Item| item.waiter != Waiter::Gone;
        let commands = flights
            .iter()
            .flat_map(Flight::encoded)
            .filter(|(item, _)| living(item));
        self.gather.put_back(commands.collect());
        self.cursor = 0;
        self.ask_for_session();
    }

    /// Ends what ran out of time; says how many.
    pub(crate) fn expire(&mut self, now: Time, completions: &mut Completions) -> u64 {
        let mut expired = 0;
        while let Some((item, encoded)) = self.gather.expire(now) {
            match item.waiter {
                Waiter::Front(tag) => {
                    completions.failed(tag, Failure::NoQuorum);
                    expired += 1;
                }
                Waiter::Service => self.forget_due(&encoded),
                Waiter::Gone => {}
            }
        }
        for flight in &mut self.flights {
            while let Some(item) = flight.items.get_mut(flight.expired)
                && item.deadline <= now
            {
                flight.expired += 1;
                if let Waiter::Front(tag) = item.waiter {
                    item.waiter = Waiter::Gone;
                    // A command left this node, or may have; a read never does.
                    let failure = if item.is_read() {
                        Failure::NoQuorum
                    } else {
                        Failure::Unknown
                    };
                    completions.failed(tag, failure);
                    expired += 1;
                }
            }
        }
        expired + self.expire_registrations(now, completions)
    }

    /// Ends everything: this process stops.
    pub(crate) fn expire_all(&mut self, completions: &mut Completions) {
        while let Some((item, _)) = self.gather.expire(Time(u64::MAX)) {
            if let Waiter::Front(tag) = item.waiter {
                completions.failed(tag, Failure::Stopping);
            }
        }
        self.expire(Time(u64::MAX), completions);
    }

    fn forget_due(&mut self, encoded: &[u8]) {
        let whole = batch::assemble(
            Header {
                session: 0,
                sequence: 0,
            },
            encoded,
        );
        for entry in Batch::parse(&whole).iter().flat_map(Batch::entries) {
            self.due.remove(entry.command);
        }
    }

    fn expire_registrations(&mut self, now: Time, completions: &mut Completions) -> u64 {
        let mut expired = 0;
        while let Some(first) = self.clients.first_entry()
            && first.get().deadline <= now
        {
            let Registration { tag, offered, .. } = first.remove();
            let failure = if offered {
                Failure::Unknown
            } else {
                Failure::NoQuorum
            };
            completions.failed(tag, failure);
            expired += 1;
        }
        expired
    }

    /// When something here is due, without news from others.
    pub(crate) fn wake_at(&self, now: Time) -> Option<Time> {
        let held = (now < self.hold_until).then_some(self.hold_until);
        let silence = self
            .on_way()
            .then(|| self.progress_at.plus_ms(self.repeat_ms));
        // Taken in this order, and each may wait for equally long: the first is due first.
        let flights = self
            .flights
            .iter()
            .find_map(|flight| flight.items.get(flight.expired));
        let flights = flights.map(|item| item.deadline);
        let registration = self
            .clients
            .first_key_value()
            .map(|(_, first)| first.deadline);
        let anticipated = self.anticipation.until();
        let anticipated = anticipated.map(|until| Time(until.0.div_ceil(1000)));
        [
            held,
            anticipated,
            silence,
            self.gather.deadline(),
            flights,
            registration,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Batches offered again so far.
    pub(crate) fn repeated(&self) -> u64 {
        self.repeated
    }

    /// Batches formed so far.
    pub(crate) fn formed(&self) -> u64 {
        self.batches
    }
}

impl Flight {
    /// The commands, with what is known of them.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&Item, Entry<'_>)> {
        let batch = Batch::parse(&self.payload).expect("formed here");
        let commands = self.items.iter().filter(|item| !item.is_read());
        commands.zip(batch.entries())
    }

    /// Commands as they lie in the batch, and reads without bytes.
    fn encoded(&self) -> impl Iterator<Item = (Item, &[u8])> {
        let mut from = batch::HEADER_BYTES;
        self.items.iter().map(move |item| {
            let to = from + item.encoded_bytes;
            let encoded = &self.payload[from..to];
            from = to;
            (*item, encoded)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::Completion;

    const TIMEOUT_MS: u64 = 100;
    const REPEAT_MS: u64 = 20;

    fn origin() -> Origin {
        let limits = Limits {
            window_batches: 2,
            batch_bytes: 30,
            pending_bytes: 500,
            ..Limits::default()
        };
        Origin::new(NodeId(3), 7, TIMEOUT_MS, REPEAT_MS, limits)
    }

    fn opened() -> (Origin, Completions) {
        let (mut origin, mut completions) = (origin(), Completions::default());
        write(&mut origin, &mut completions, 0, b"first");
        assert_eq!(offers(&mut origin), ["register 3/7/9223372036854775809"]);
        origin.on_registered(Time(0), NODE_SESSION | 1, 40, &mut completions);
        (origin, completions)
    }

    fn write(origin: &mut Origin, completions: &mut Completions, tag: u64, command: &[u8]) {
        completions.opened();
        origin
            .accept(Time(0), Tag(tag), &Entry { at: None, command })
            .unwrap();
    }

    fn offers(origin: &mut Origin) -> Vec<String> {
        std::iter::from_fn(|| origin.take_offer(Time(0)))
            .map(|offer| show(&offer))
            .collect()
    }

    /// The registration, or session.sequence: commands.
    fn show(offer: &Offer) -> String {
        let Some(payload) = &offer.payload else {
            return offer.value.to_string();
        };
        let batch = Batch::parse(payload).unwrap();
        let commands = batch
            .entries()
            .map(|entry| String::from_utf8_lossy(entry.command).into_owned());
        let commands = commands.collect::<Vec<_>>().join(" ");
        format!(
            "{}.{}: {commands}",
            batch.header.session, batch.header.sequence
        )
    }

    fn name(origin: &Origin, at: usize) -> BatchName {
        origin.flights[at].name
    }

    fn failures(completions: &mut Completions) -> Vec<(u64, Failure)> {
        let Some(mut ended) = completions.take() else {
            return Vec::new();
        };
        let mut list = Vec::new();
        while let Some(completion) = ended.next_completion() {
            let Completion::Failed(tag, failure) = completion else {
                panic!("{completion:?}")
            };
            list.push((tag.0, failure));
        }
        list
    }

    /// Pull batching: what cannot leave gathers, and leaves as one.
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
        assert!(origin.claim(Time(0), &first).is_some());
        assert_eq!(offers(&mut origin), ["40.3: b c d"]);
    }

    /// At a window of one; a full batch, a wider window or lost patience end the wait.
    #[test]
    fn next_batch_waits_for_those_who_were_answered() {
        let landed = || {
            let (mut origin, mut completions) = opened();
            origin.set_batching(30, 1);
            assert_eq!(offers(&mut origin), ["40.1: first"]);
            write(&mut origin, &mut completions, 1, b"a");
            let first = name(&origin, 0);
            assert!(origin.claim(Time(400), &first).is_some());
            origin.look(Time(400));
            assert_eq!(offers(&mut origin), [""; 0]);
            assert_eq!(origin.wake_at(Time(400)), Some(Time(500)));
            (origin, completions)
        };
        let (mut origin, mut completions) = landed();
        write(&mut origin, &mut completions, 2, b"b");
        origin.look(Time(401));
        assert_eq!(offers(&mut origin), ["40.2: a b"]);

        let (mut origin, _) = landed();
        origin.look(Time(499));
        assert_eq!(offers(&mut origin), [""; 0]);
        origin.look(Time(500));
        assert_eq!(offers(&mut origin), ["40.2: a"]);

        let (mut origin, _) = landed();
        origin.set_batching(30, 2);
        assert_eq!(offers(&mut origin), ["40.2: a"]);

        let (mut origin, _) = landed();
        origin.set_batching(1, 1);
        origin.look(Time(401));
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
        origin.claim(Time(0), &names[0]).unwrap();
        origin.on_out_of_order(&names[1]);
        assert_eq!(offers(&mut origin), ["40.2: a"]);
        assert!(origin.claim(Time(0), &names[0]).is_none(), "answered once");
    }

    #[test]
    fn refused_batch_goes_again_with_those_behind_it() {
        let (mut origin, mut completions) = opened();
        offers(&mut origin);
        write(&mut origin, &mut completions, 1, b"a");
        offers(&mut origin);
        let values = [0, 1].map(|at| Value::Batch(name(&origin, at)));
        origin.on_refused(&values[1], Time(5));
        assert_eq!(origin.next_bytes(Time(4)), None);
        origin.hold(Time(0));
        assert_eq!(offers(&mut origin), ["40.2: a"]);
        origin.on_refused(&values[0], Time(0));
        origin.on_refused(&values[1], Time(0));
        assert_eq!(offers(&mut origin), ["40.1: first", "40.2: a"]);
        completions.opened();
        origin.register(Time(0), Tag(9)).unwrap();
        assert_eq!(offers(&mut origin), ["register 3/7/1"]);
        let value = Value::RegisterSession {
            origin: NodeId(3),
            boot: 7,
            number: 1,
        };
        origin.on_refused(&value, Time(0));
        assert_eq!(offers(&mut origin), ["register 3/7/1"]);
    }

    #[test]
    fn silence_makes_it_repeat() {
        let (mut origin, _) = opened();
        offers(&mut origin);
        origin.repeat_if_silent(Time(0).plus_ms(REPEAT_MS - 1));
        assert_eq!(offers(&mut origin), [""; 0]);
        origin.repeat_if_silent(Time(0).plus_ms(REPEAT_MS));
        assert_eq!(offers(&mut origin), ["40.1: first"]);
    }

    #[test]
    fn time_out_says_whether_the_command_left() {
        let (mut origin, mut completions) = opened();
        offers(&mut origin);
        write(&mut origin, &mut completions, 1, b"a");
        offers(&mut origin);
        write(&mut origin, &mut completions, 2, b"b");
        completions.opened();
        origin.register(Time(0), Tag(3)).unwrap();
        assert_eq!(origin.wake_at(Time(0)), Some(Time(0).plus_ms(REPEAT_MS)));
        assert_eq!(
            origin.expire(Time(0).plus_ms(TIMEOUT_MS - 1), &mut completions),
            0
        );
        assert_eq!(
            origin.expire(Time(0).plus_ms(TIMEOUT_MS), &mut completions),
            4
        );
        let expected = [
            (2, Failure::NoQuorum),
            (0, Failure::Unknown),
            (1, Failure::Unknown),
            (3, Failure::NoQuorum),
        ];
        assert_eq!(failures(&mut completions), expected);
        // What left is still repeated: batches behind it need it applied.
        origin.on_new_ballot();
        assert_eq!(offers(&mut origin), ["40.1: first", "40.2: a"]);
        assert_eq!(
            origin.expire(Time(0).plus_ms(TIMEOUT_MS), &mut completions),
            0
        );
    }

    /// What is about to be offered again was offered before: it may take effect all the same.
    #[test]
    fn registration_that_left_once_may_take_effect() {
        let (mut origin, mut completions) = opened();
        for tag in [1, 2] {
            completions.opened();
            origin.register(Time(0), Tag(tag)).unwrap();
        }
        origin.take_offer(Time(0)).unwrap();
        origin.on_new_ballot();
        origin.expire(Time(0).plus_ms(TIMEOUT_MS), &mut completions);
        let registrations = failures(&mut completions).split_off(1);
        let expected = [(1, Failure::Unknown), (2, Failure::NoQuorum)];
        assert_eq!(registrations, expected);
    }

    /// [session-4] What cannot run any more under the old session may run under a new one, in its
    /// order; what somebody was told "unknown" about is left alone.
    #[test]
    fn lost_session_starts_its_commands_over_in_order() {
        let (mut origin, mut completions) = opened();
        offers(&mut origin);
        origin.expire(Time(0).plus_ms(TIMEOUT_MS), &mut completions);
        assert_eq!(failures(&mut completions), [(0, Failure::Unknown)]);
        completions.opened();
        origin
            .accept(
                Time(1),
                Tag(1),
                &Entry {
                    at: None,
                    command: b"a",
                },
            )
            .unwrap();
        offers(&mut origin);
        write(&mut origin, &mut completions, 2, b"b");
        let second = name(&origin, 1);
        origin.on_session_lost(&second);
        assert_eq!(offers(&mut origin), ["register 3/7/9223372036854775810"]);
        origin.on_session_lost(&second);
        origin.on_registered(Time(0), NODE_SESSION | 1, 41, &mut completions);
        assert_eq!(
            offers(&mut origin),
            [""; 0],
            "an old registration opens nothing"
        );
        origin.on_registered(Time(0), NODE_SESSION | 2, 50, &mut completions);
        assert_eq!(offers(&mut origin), ["50.1: a b"]);
    }

    #[test]
    fn queue_is_bounded_in_bytes() {
        let mut origin = origin();
        let entry = Entry {
            at: None,
            command: b"",
        };
        let taken = (0..100)
            .take_while(|tag| origin.accept(Time(0), Tag(*tag), &entry).is_ok())
            .count();
        assert_eq!(
            taken,
            500 / (COMMAND_OVERHEAD_BYTES + entry.encoded_bytes())
        );
    }

    #[test]
    fn due_command_is_proposed_once_at_a_time() {
        let (mut origin, _) = opened();
        offers(&mut origin);
        assert!(origin.accept_due(Time(0), b"expire k"));
        assert!(origin.accept_due(Time(0), b"expire k"));
        assert_eq!(offers(&mut origin), ["40.2: expire k"]);
        assert!(origin.accept_due(Time(0), b"expire k"));
        let names = [name(&origin, 0), name(&origin, 1)];
        assert!(
            names
                .iter()
                .all(|name| origin.claim(Time(0), name).is_some())
        );
        assert_eq!(offers(&mut origin), [""; 0]);
        assert!(origin.accept_due(Time(0), b"expire k"));
        assert_eq!(offers(&mut origin), ["40.3: expire k"]);
    }
}
