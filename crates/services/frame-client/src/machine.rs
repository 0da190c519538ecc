//! State machine of a frame client, without its sockets: decides what to send when, and determines
//! which batches have been executed ([offload-22]–[offload-24]).
//!
//! Batches are numbered, and execute in the order of their numbers or not at all. A lost batch
//! therefore invalidates those sent after it, and all outstanding batches are sent again, which has
//! no effect on those already decided. Frames and the connection carry the same bytes under the
//! same name.

use std::collections::VecDeque;

use quorate_offload::{
    Address, Descriptor, Form, Header, Port, Reason, Setup, Type,
    admit::{admit, arrive},
    header::COORDINATOR,
    link::stations,
};
use quorate_wire::{
    checksum,
    frame_clients::{BATCH_BYTES, COMMAND_BYTES, DevicePlace, Name, NodePosition, batch},
};

use super::walk::{Heard, Unheard, Walk};

mod leaving;

/// Microseconds on any monotonic clock.
pub type Micros = u64;

/// Maximum number of outstanding batches, in flight or queued.
pub const OPEN_MAX: usize = 1 << 14;
/// Bound on slots and batch numbers that no log or session reaches. Larger ones are rejected, so
/// that arithmetic cannot overflow.
const NUMBER_MAX: u64 = 1 << 62;
/// Initial and maximum time on the connection only, after frames were late. Doubles each time.
const REST_US: (Micros, Micros) = (20_000, 1_000_000);

/// Outcome of a batch, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Executed exactly once. The slot is known if the client received the decision.
    Executed(Option<u64>),
    /// The session is gone. The batch may have been executed, but will not be executed later.
    Unknown,
}

/// Completed batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Tag assigned by the caller.
    pub tag: u64,
    /// Outcome, as far as known.
    pub outcome: Outcome,
}

/// Reason for refusing a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// The batch does not fit in a frame.
    TooLong,
    /// [`OPEN_MAX`] batches are outstanding.
    Full,
    /// The session is gone, and a new client is needed.
    Over,
}

/// Action for the caller to perform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act<'a> {
    /// Send this frame.
    Send(&'a [u8]),
    /// Request the state of the log, from the leader if known.
    Ask,
    /// Offer the batch with this number to the leader over the connection.
    Offer(u64, &'a [u8]),
}

/// Counters since the client was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames sent.
    pub sent: u64,
    /// Batches offered over the connection.
    pub offered: u64,
    /// Requests for the state of the log.
    pub asked: u64,
    /// Batches whose execution was learned from frames alone.
    pub by_frames: u64,
    /// Resends of all outstanding batches.
    pub back: u64,
    /// Refusals by a coordinator with a full window.
    pub full: u64,
    /// Fallbacks from frames to the connection.
    pub left: u64,
    /// Frames ignored because they were damaged, stale or for another client.
    pub unheard: u64,
    /// Conflicts: two values for a slot, or a log that went back.
    pub conflicts: u64,
}

/// Submitted batch whose outcome is not known yet.
#[derive(Debug)]
struct Batch {
    tag: u64,
    bytes: Vec<u8>,
    crc: u32,
    /// Last and first transmission.
    sent: Option<(Micros, Micros)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Frames,
    /// By the connection, until frames are tried again at the given time.
    Connection(Micros),
}

/// State of a client, without sockets or a clock.
#[derive(Debug)]
pub struct Machine {
    name: Name,
    cluster: u128,
    session: u64,
    own: [u8; 6],
    place: Option<DevicePlace>,
    room: Vec<u8>,
    frame: Vec<u8>,
    window: u64,
    walk: Walk,
    way: Way,
    rest: Micros,
    open: VecDeque<Batch>,
    /// Oldest outstanding batch.
    first: u64,
    /// Next batch to send.
    cursor: u64,
    offered: u64,
    offered_at: Micros,
    /// Time at which the client last learned of an execution.
    progress_at: Micros,
    /// First batch to be sent again, if any, and the time of the last such resend.
    back: Option<u64>,
    back_at: Micros,
    stuck_since: Option<Micros>,
    /// State of the connection, and whether a response is awaited.
    is_connected: bool,
    asks: bool,
    asked_at: Micros,
    done: VecDeque<Done>,
    is_over: bool,
    trusts_frames: bool,
    counts: Counts,
}

impl Machine {
    /// Creates a client named `name` at the Ethernet address `own`, with up to `window` batches in
    /// flight. `stand` is a node's statement that the client's session is registered.
    pub fn new(name: Name, own: [u8; 6], stand: &NodePosition, window: usize) -> Self {
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

    /// Returns the counters since the client was created.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the number of batches without an outcome.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Returns whether the session is gone.
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns whether batches are sent by frames.
    pub const fn uses_frames(&self) -> bool {
        matches!(self.way, Way::Frames)
    }

    /// Returns the bytes available in a batch of `commands` commands; 0 until a leader with a
    /// device is known.
    pub fn room(&self, commands: usize) -> usize {
        let place = self.place.map_or(0, |place| usize::from(place.room));
        place.saturating_sub(BATCH_BYTES + commands * COMMAND_BYTES)
    }

    /// Queues commands as one batch, i.e. one value in one slot. The batch's name is bound to the
    /// commands permanently.
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

    /// Returns the oldest outcome that has not been returned yet.
    pub fn take_done(&mut self) -> Option<Done> {
        self.done.pop_front()
    }

    /// Handles a received frame, of any sender and contents.
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
        match self.walk.record_decision(said, is_whole) {
            Ok(()) => self.process_decided(now),
            Err(Unheard::Conflict) => self.distrust(now),
            Err(Unheard::Far) => self.stuck_since = self.stuck_since.or(Some(now)),
            Err(Unheard::Stale | Unheard::Foreign) => self.counts.unheard += 1,
        }
    }

    fn is_own(&self, value: &Descriptor) -> bool {
        value.kind == 2 && (value.origin, value.origin_boot) == (self.name.origin, self.name.boot)
    }

    /// Handles the decided slots that follow the last one handled.
    fn process_decided(&mut self, now: Micros) {
        while let Some((slot, heard)) = self.walk.step() {
            self.stuck_since = None;
            if self.is_own(&heard.value) && !self.is_over {
                self.on_own(now, slot, &heard);
            }
        }
        self.stuck_since = (self.walk.is_stuck()).then(|| self.stuck_since.unwrap_or(now));
    }

    /// [session-2] Handles one of this client's values in a decided slot, by the rules by which
    /// every node executes it.
    fn on_own(&mut self, now: Micros, slot: u64, heard: &Heard) {
        let number = heard.value.counter;
        let Some(ahead) = number.checked_sub(self.first) else {
            // The batch was executed earlier.
            return;
        };
        let known = usize::try_from(ahead).ok().and_then(|at| self.open.get(at));
        let is_ours = known.is_some_and(|batch| {
            (batch.crc, batch.bytes.len()) == (heard.value.crc, heard.value.length.into())
        });
        if heard.is_whole && !is_ours {
            // Another client used this name: what the session has executed is no longer known.
            self.end();
        } else if ahead == 0 && heard.is_whole {
            self.executed(now, Some(slot));
            self.counts.by_frames += 1;
            self.rest = REST_US.0;
        } else {
            // An earlier batch is missing, or the bytes were changed in transit: nothing was
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

    /// Handles a refusal by the coordinator. Refusals are not authenticated: the worst effect of a
    /// forged one is that the client stops using frames.
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

    /// Handles a node's statement on the state of its log.
    pub fn on_stand(&mut self, now: Micros, stand: &NodePosition) {
        self.asks = false;
        // A node of another cluster knows nothing about this log.
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
            self.process_decided(now);
        } else if stand.next > self.first
            || (stand.applied_to == self.walk.next() && stand.next < self.first)
        {
            // Frames for slots that the node knows contradict what was executed there.
            self.counts.conflicts += 1;
            return self.end();
        } else if self.stuck_since.is_some() {
            self.stuck_since = Some(now);
        }
        self.choose_way(now, stand);
    }

    fn choose_way(&mut self, now: Micros, stand: &NodePosition) {
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

    /// Handles a connection to a node, possibly another one.
    pub fn on_connected(&mut self) {
        self.is_connected = true;
    }

    /// Handles the loss of the connection: pending requests get no response.
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

    /// [count-1] Permanently stops trusting frames.
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

/// Returns whether a log can be in the stated position.
const fn is_possible(stand: &NodePosition) -> bool {
    stand.applied_to < NUMBER_MAX && stand.next < NUMBER_MAX
}

#[cfg(test)]
mod tests;
