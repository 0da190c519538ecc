//! A client of devices without sockets: what leaves when, and what is known to be executed
//! ([offload-22]–[offload-24]).
//!
//! Its batches are numbered, and execute in the order of their numbers or not at all. So what is
//! lost breaks what was sent behind it: all is sent again from the oldest on, which changes nothing
//! where it was decided before. The same bytes under the same name go by frames and by the
//! connection.

use std::collections::VecDeque;

use quorate_offload::{
    Address, Descriptor, Form, Header, Port, Reason, Setup, Type,
    admit::{admit, arrive},
    header::COORDINATOR,
    link::stations,
};
use quorate_wire::{
    checksum,
    frame_clients::{BATCH_BYTES, COMMAND_BYTES, Name, Place, Stand, batch},
};

use super::walk::{Heard, Unheard, Walk};

mod leaving;

/// Microseconds of any clock that does not go back.
pub type Micros = u64;

/// Batches that may wait, on their way or not.
pub const OPEN_MAX: usize = 1 << 14;
/// No log, and no session, gets that far: who says so is not believed, and nothing that is added to
/// a number overflows.
const NUMBER_MAX: u64 = 1 << 62;
/// After frames were late the connection is kept to for so long; twice as long each time, up to the
/// second.
const REST_US: (Micros, Micros) = (20_000, 1_000_000);

/// Outcome of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Executed once: in this slot, if that was heard.
    Executed(Option<u64>),
    /// Its session is gone, so the outcome is unknown; the batch will not be executed any more.
    Unknown,
}

/// A batch that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// As it was submitted.
    pub tag: u64,
    /// Its outcome.
    pub outcome: Outcome,
}

/// Why a batch was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// Too long for a frame.
    TooLong,
    /// Too many wait.
    Full,
    /// The session is gone: a new client is needed.
    Over,
}

/// Action for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act<'a> {
    /// Send this frame.
    Send(&'a [u8]),
    /// Ask a node how the log stands; the leader, if it is known.
    Ask,
    /// Offer this batch to the leader by the connection.
    Offer(u64, &'a [u8]),
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames sent.
    pub sent: u64,
    /// Offers by the connection.
    pub offered: u64,
    /// Times that a node was asked.
    pub asked: u64,
    /// Batches that were known to be executed by frames alone.
    pub by_frames: u64,
    /// Times that all was sent again from the oldest on.
    pub back: u64,
    /// *Full*.
    pub full: u64,
    /// Times that frames were left for the connection.
    pub left: u64,
    /// Frames ignored because they were for another client, damaged or stale.
    pub unheard: u64,
    /// Two values for one slot, or a log that went back.
    pub conflicts: u64,
}

/// One batch.
#[derive(Debug)]
struct Batch {
    tag: u64,
    bytes: Vec<u8>,
    crc: u32,
    /// When it left last, and first.
    sent: Option<(Micros, Micros)>,
}

/// Path of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Frames,
    /// Until frames may be tried again.
    Connection(Micros),
}

/// A client of one name.
#[derive(Debug)]
pub struct Machine {
    name: Name,
    cluster: u128,
    session: u64,
    own: [u8; 6],
    place: Option<Place>,
    room: Vec<u8>,
    frame: Vec<u8>,
    window: u64,
    walk: Walk,
    way: Way,
    rest: Micros,
    open: VecDeque<Batch>,
    /// The number of the oldest that is open.
    first: u64,
    /// The number of the next that is sent, and offered.
    cursor: u64,
    offered: u64,
    offered_at: Micros,
    /// When a batch was known to be executed last.
    progress_at: Micros,
    /// From this number on all is to be sent again; and when that was done last.
    back: Option<u64>,
    back_at: Micros,
    stuck_since: Option<Micros>,
    /// The connection state, and whether an answer is expected.
    is_connected: bool,
    asks: bool,
    asked_at: Micros,
    done: VecDeque<Done>,
    is_over: bool,
    trusts_frames: bool,
    counts: Counts,
}

impl Machine {
    /// A client of this name at this station; a node says that its session is registered. At most
    /// `window` batches are on their way.
    pub fn new(name: Name, own: [u8; 6], stand: &Stand, window: usize) -> Self {
        let mut machine = Self {
            name,
            cluster: stand.cluster,
            session: stand.session,
            own,
            place: None,
            room: Vec::new(),
            frame: Vec::new(),
            window: window.max(1) as u64,
            walk: Walk::new(stand.applied_to, stand.era),
            way: Way::Connection(0),
            rest: REST_US.0,
            open: VecDeque::new(),
            first: stand.next.max(1),
            cursor: stand.next.max(1),
            offered: stand.next.max(1),
            offered_at: 0,
            progress_at: 0,
            back: None,
            back_at: 0,
            stuck_since: None,
            is_connected: true,
            asks: false,
            asked_at: 0,
            done: VecDeque::new(),
            is_over: stand.session == 0,
            trusts_frames: true,
            counts: Counts::default(),
        };
        if is_possible(stand) {
            machine.choose_way(0, stand);
        } else {
            machine.is_over = true;
        }
        machine
    }

    /// Returns the counts so far.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Batches without an outcome.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Returns whether its session is gone.
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns whether batches leave by frames at the moment.
    pub const fn uses_frames(&self) -> bool {
        matches!(self.way, Way::Frames)
    }

    /// Bytes of commands that one batch of so many has room for.
    pub fn room(&self, commands: usize) -> usize {
        let place = self.place.map_or(0, |place| usize::from(place.room));
        place.saturating_sub(BATCH_BYTES + commands * COMMAND_BYTES)
    }

    /// These commands, in one batch: one value, in one slot. The name of the batch is bound to them
    /// for ever.
    pub fn submit<'c>(
        &mut self,
        tag: u64,
        commands: impl Iterator<Item = &'c [u8]>,
    ) -> Result<(), NotTaken> {
        if self.is_over {
            return Err(NotTaken::Over);
        }
        if self.open.len() >= OPEN_MAX {
            return Err(NotTaken::Full);
        }
        let number = self.first + self.open.len() as u64;
        let bytes = batch(self.session, number, commands);
        let room = self.place.map_or(usize::MAX, |place| place.room.into());
        if bytes.len() > room.min(quorate_offload::header::ROOM_BYTES_MAX) {
            return Err(NotTaken::TooLong);
        }
        self.open.push_back(Batch { tag, crc: checksum(&bytes), bytes, sent: None });
        Ok(())
    }

    /// The oldest outcome that was not taken.
    pub fn take_done(&mut self) -> Option<Done> {
        self.done.pop_front()
    }

    /// Handles an arriving frame, whatever its sender and contents.
    pub fn on_frame(&mut self, now: Micros, frame: &[u8]) {
        let Some(place) = self.place.filter(|_| self.trusts_frames) else {
            return;
        };
        let setup = Setup {
            group: place.group,
            room: place.room.into(),
            own: Address { mac: self.own, ..Address::default() },
            heard: stations(place.group)[1].mac,
            owner: Address::default(),
        };
        let decided =
            |header: &Header| header.kind == Type::Decided && header.flags & COORDINATOR != 0;
        if let Ok(said) = admit(&setup, Port::Network, frame, decided) {
            self.on_decided(now, &said.header, said.room);
        } else if let Ok(said) = arrive(&setup, Port::Network, frame)
            && said.header.kind == Type::Refused
        {
            self.on_refused(now, &said.header);
        } else {
            self.counts.unheard += 1;
        }
    }

    fn on_decided(&mut self, now: Micros, said: &Header, room: &[u8]) {
        let value = &said.value;
        let is_whole = !self.is_own(value)
            || (room.get(..value.length.into())).is_some_and(|bytes| checksum(bytes) == value.crc);
        match self.walk.hear(said, is_whole) {
            Ok(()) => self.go_on(now),
            Err(Unheard::Conflict) => self.distrust(now),
            Err(Unheard::Far) => self.stuck_since = self.stuck_since.or(Some(now)),
            Err(Unheard::Stale | Unheard::Foreign) => self.counts.unheard += 1,
        }
    }

    fn is_own(&self, value: &Descriptor) -> bool {
        value.kind == 2 && (value.origin, value.origin_boot) == (self.name.origin, self.name.boot)
    }

    /// All slots that are next.
    fn go_on(&mut self, now: Micros) {
        while let Some((slot, heard)) = self.walk.step() {
            self.stuck_since = None;
            if self.is_own(&heard.value) && !self.is_over {
                self.on_own(now, slot, &heard);
            }
        }
        self.stuck_since = (self.walk.is_stuck()).then(|| self.stuck_since.unwrap_or(now));
    }

    /// [session-2], one level up: what every node does in this slot.
    fn on_own(&mut self, now: Micros, slot: u64, heard: &Heard) {
        let number = heard.value.counter;
        let Some(ahead) = number.checked_sub(self.first) else {
            // Executed before.
            return;
        };
        let known = usize::try_from(ahead).ok().and_then(|at| self.open.get(at));
        let is_ours = known.is_some_and(|batch| {
            (batch.crc, batch.bytes.len()) == (heard.value.crc, heard.value.length.into())
        });
        if heard.is_whole && !is_ours {
            // Another client made a batch of this name: what the session has executed is not known
            // any more.
            self.end();
        } else if ahead == 0 && heard.is_whole {
            self.executed(now, Some(slot));
            self.counts.by_frames += 1;
            self.rest = REST_US.0;
        } else {
            // An earlier one is missing, or its bytes were others on their way: nothing was
            // executed.
            self.go_back_to(self.first);
        }
    }

    fn go_back_to(&mut self, number: u64) {
        self.back = Some(self.back.map_or(number, |back| back.min(number)));
    }

    fn executed(&mut self, now: Micros, slot: Option<u64>) {
        self.progress_at = now;
        if let Some(batch) = self.open.pop_front() {
            self.done.push_back(Done { tag: batch.tag, outcome: Outcome::Executed(slot) });
        }
        self.first += 1;
        self.cursor = self.cursor.max(self.first);
        self.offered = self.offered.max(self.first);
    }

    /// The coordinator gave no slot; it is believed no further than that another try may be worth
    /// it.
    fn on_refused(&mut self, now: Micros, said: &Header) {
        if said.value.kind != 2 || !self.is_own(&said.value) || said.value.counter < self.first {
            self.counts.unheard += 1;
        } else if said.reason == Reason::Full as u8 {
            self.counts.full += 1;
            self.go_back_to(said.value.counter);
        } else if self.uses_frames() {
            self.leave_frames(now);
        }
    }

    /// A node says how the log stands there.
    pub fn on_stand(&mut self, now: Micros, stand: &Stand) {
        self.asks = false;
        // One of another cluster knows nothing of this one.
        if self.is_over || stand.cluster != self.cluster || !is_possible(stand) {
            return;
        }
        if stand.applied_to > self.session && stand.session != self.session {
            return self.end();
        }
        if stand.applied_to > self.walk.next() {
            let next = self.first + self.open.len() as u64;
            if !(self.first..=next).contains(&stand.next) {
                // The session executed a batch that was never submitted, or other bytes: the group
                // lost its memory, or a frame was forged.
                self.counts.conflicts += 1;
                return self.end();
            }
            while self.first < stand.next {
                self.executed(now, None);
            }
            self.walk.jump(stand.applied_to, stand.era);
            self.go_on(now);
        } else if stand.next > self.first
            || (stand.applied_to == self.walk.next() && stand.next < self.first)
        {
            // What frames said of the slots that it knows is not what was executed there.
            self.counts.conflicts += 1;
            return self.end();
        } else if self.stuck_since.is_some() {
            self.stuck_since = Some(now);
        }
        self.choose_way(now, stand);
    }

    fn choose_way(&mut self, now: Micros, stand: &Stand) {
        if !stand.leads {
            return;
        }
        match (stand.place, self.way) {
            (None, Way::Frames) => self.leave_frames(now),
            (None, Way::Connection(_)) => {}
            (Some(place), way) => {
                if self.place != Some(place) {
                    let room = usize::from(place.room);
                    if !room.is_multiple_of(8) || room > quorate_offload::header::ROOM_BYTES_MAX {
                        return;
                    }
                    self.room = vec![0; room];
                    self.frame = vec![0; Form::Raw.room_at() + room];
                    self.place = Some(place);
                    if self.cursor > self.first {
                        self.go_back_to(self.first);
                    }
                }
                if let Way::Connection(until) = way
                    && now >= until
                    && self.trusts_frames
                {
                    self.way = Way::Frames;
                    self.cursor = self.first;
                    for batch in &mut self.open {
                        batch.sent = None;
                    }
                }
            }
        }
    }

    /// There is a connection to a node, maybe another one.
    pub fn on_connected(&mut self) {
        self.is_connected = true;
    }

    /// The connection to the node broke: who was asked does not answer any more.
    pub fn on_disconnected(&mut self) {
        (self.is_connected, self.asks) = (false, false);
        (self.offered, self.offered_at) = (self.first, 0);
    }

    fn leave_frames(&mut self, now: Micros) {
        self.counts.left += 1;
        self.way = Way::Connection(now + self.rest);
        self.rest = (self.rest * 2).min(REST_US.1);
        (self.offered, self.offered_at) = (self.first, now);
    }

    /// [count-1] No frame is believed any more.
    fn distrust(&mut self, now: Micros) {
        self.counts.conflicts += 1;
        self.trusts_frames = false;
        if self.uses_frames() {
            self.leave_frames(now);
        }
    }

    fn end(&mut self) {
        self.is_over = true;
        while let Some(batch) = self.open.pop_front() {
            self.done.push_back(Done { tag: batch.tag, outcome: Outcome::Unknown });
        }
    }
}

/// Returns whether a log may be in this state.
const fn is_possible(stand: &Stand) -> bool {
    stand.applied_to < NUMBER_MAX && stand.next < NUMBER_MAX
}

#[cfg(test)]
mod tests;
