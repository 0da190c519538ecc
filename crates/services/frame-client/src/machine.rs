//! State machine of a frame client, without its sockets: decides what to send when, and determines
//! which batches have been executed ([offload-22]–[offload-24]).
//!
//! Batches are numbered, and execute in the order of their numbers or not at all. A lost batch
//! therefore invalidates those sent after it, and all outstanding batches are sent again, which has
//! no effect on those already decided. Frames and the connection carry the same bytes under the
//! same name.

use std::collections::VecDeque;

use quorate_offload::{
    Address, Descriptor, Encapsulation, Header, Port, Reason, Setup, Type,
    admit::{parse_and_check, parse_frame},
    header::COORDINATOR,
    link::multicast_addresses,
};
use quorate_wire::{
    checksum,
    frame_clients::{
        BATCH_OVERHEAD_BYTES, COMMAND_OVERHEAD_BYTES, DevicePlace, LentName, NodePosition,
        encode_batch,
    },
};

use super::walk::{HeardDecision, IgnoreReason, SlotWalk};

mod leaving;

/// Microseconds on any monotonic clock.
pub type Micros = u64;

/// Maximum number of outstanding batches, in flight or queued.
pub const OUTSTANDING_MAX: usize = 1 << 14;
/// Bound on slots and batch numbers that no log or session reaches. Larger ones are rejected, so
/// that arithmetic cannot overflow.
const SLOT_OR_NUMBER_MAX: u64 = 1 << 62;
/// Initial and maximum time on the connection only, after frames were late. Doubles each time.
const FRAMES_PAUSE_US: (Micros, Micros) = (20_000, 1_000_000);

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
pub struct CompletedBatch {
    /// Tag assigned by the caller.
    pub tag: u64,
    /// Outcome, as far as known.
    pub outcome: Outcome,
}

/// Reason for refusing a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// The batch does not fit in a frame.
    BatchTooLong,
    /// [`OUTSTANDING_MAX`] batches are outstanding.
    TooManyOutstanding,
    /// The session is gone, and a new client is needed.
    SessionGone,
}

/// Action for the caller to perform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act<'a> {
    /// Send this frame.
    SendFrame(&'a [u8]),
    /// Request the state of the log, from the leader if known.
    RequestPosition,
    /// Offer the batch with this number to the leader over the connection.
    OfferBatch(u64, &'a [u8]),
}

/// Counters since the client was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames sent.
    pub frames_sent: u64,
    /// Batches offered over the connection.
    pub batches_offered: u64,
    /// Requests for the state of the log.
    pub position_requests: u64,
    /// Batches whose execution was learned from frames alone.
    pub learned_by_frames: u64,
    /// Resends of all outstanding batches.
    pub full_resends: u64,
    /// Refusals by a coordinator with a full window.
    pub full_window_refusals: u64,
    /// Fallbacks from frames to the connection.
    pub frame_fallbacks: u64,
    /// Frames ignored because they were damaged, stale or for another client.
    pub ignored_frames: u64,
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
    sent_at_last_first: Option<(Micros, Micros)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendPath {
    Frames,
    /// By the connection, until frames are tried again at the given time.
    Connection(Micros),
}

/// State of a client, without sockets or a clock.
#[derive(Debug)]
pub struct Machine {
    name: LentName,
    cluster_id: u128,
    session_id: u64,
    own_mac: [u8; 6],
    device_place: Option<DevicePlace>,
    value_buffer: Vec<u8>,
    frame_buffer: Vec<u8>,
    batches_in_flight_max: u64,
    slot_walk: SlotWalk,
    send_path: SendPath,
    frames_pause_us: Micros,
    open: VecDeque<Batch>,
    /// Oldest outstanding batch.
    oldest_outstanding: u64,
    /// Next batch to send.
    next_to_send: u64,
    next_to_offer: u64,
    last_offer_at: Micros,
    /// Time at which the client last learned of an execution.
    last_progress_at: Micros,
    /// First batch to be sent again, if any, and the time of the last such resend.
    resend_from: Option<u64>,
    last_resend_at: Micros,
    stuck_since: Option<Micros>,
    /// State of the connection, and whether a response is awaited.
    is_connected: bool,
    awaits_position: bool,
    position_requested_at: Micros,
    completed: VecDeque<CompletedBatch>,
    is_session_gone: bool,
    trusts_frames: bool,
    counters: Counters,
}

impl Machine {
    /// Creates a client named `name` at the Ethernet address `own`, with up to `window` batches in
    /// flight. `stand` is a node's statement that the client's session is registered.
    pub fn new(name: LentName, own: [u8; 6], stand: &NodePosition, window: usize) -> Self {
        let mut machine = Self {
            name,
            cluster_id: stand.cluster,
            session_id: stand.session_slot,
            own_mac: own,
            device_place: None,
            value_buffer: Vec::new(),
            frame_buffer: Vec::new(),
            batches_in_flight_max: window.max(1) as u64,
            slot_walk: SlotWalk::new(stand.applied_to, stand.era),
            send_path: SendPath::Connection(0),
            frames_pause_us: FRAMES_PAUSE_US.0,
            open: VecDeque::new(),
            oldest_outstanding: stand.next.max(1),
            next_to_send: stand.next.max(1),
            next_to_offer: stand.next.max(1),
            last_offer_at: 0,
            last_progress_at: 0,
            resend_from: None,
            last_resend_at: 0,
            stuck_since: None,
            is_connected: true,
            awaits_position: false,
            position_requested_at: 0,
            completed: VecDeque::new(),
            is_session_gone: stand.session_slot == 0,
            trusts_frames: true,
            counters: Counters::default(),
        };
        if is_possible_position(stand) {
            machine.choose_send_path(0, stand);
        } else {
            machine.is_session_gone = true;
        }
        machine
    }

    /// Returns the counters since the client was created.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the number of batches without an outcome.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Returns whether the session is gone.
    pub const fn is_session_gone(&self) -> bool {
        self.is_session_gone
    }

    /// Returns whether batches are sent by frames.
    pub const fn uses_frames(&self) -> bool {
        matches!(self.send_path, SendPath::Frames)
    }

    /// Returns the bytes available in a batch of `commands` commands; 0 until a leader with a
    /// device is known.
    pub fn batch_capacity(&self, commands: usize) -> usize {
        let place = self.device_place.map_or(0, |place| usize::from(place.room));
        place.saturating_sub(BATCH_OVERHEAD_BYTES + commands * COMMAND_OVERHEAD_BYTES)
    }

    /// Queues commands as one batch, i.e. one value in one slot. The batch's name is bound to the
    /// commands permanently.
    pub fn submit<'c>(
        &mut self,
        tag: u64,
        commands: impl Iterator<Item = &'c [u8]>,
    ) -> Result<(), SubmitError> {
        if self.is_session_gone {
            return Err(SubmitError::SessionGone);
        }
        if self.open.len() >= OUTSTANDING_MAX {
            return Err(SubmitError::TooManyOutstanding);
        }
        let number = self.oldest_outstanding + self.open.len() as u64;
        let bytes = encode_batch(self.session_id, number, commands);
        let room = self.device_place.map_or(usize::MAX, |place| place.room.into());
        if bytes.len() > room.min(quorate_offload::header::ROOM_BYTES_MAX) {
            return Err(SubmitError::BatchTooLong);
        }
        self.open.push_back(Batch { tag, crc: checksum(&bytes), bytes, sent_at_last_first: None });
        Ok(())
    }

    /// Returns the oldest outcome that has not been returned yet.
    pub fn take_completed(&mut self) -> Option<CompletedBatch> {
        self.completed.pop_front()
    }

    /// Handles a received frame, of any sender and contents.
    pub fn on_frame(&mut self, now: Micros, frame: &[u8]) {
        let Some(place) = self.device_place.filter(|_| self.trusts_frames) else {
            return;
        };
        let setup = Setup {
            group: place.group,
            room: place.room.into(),
            own_address: Address { mac: self.own_mac, ..Address::default() },
            heard_group: multicast_addresses(place.group)[1].mac,
            owner: Address::default(),
        };
        let decided =
            |header: &Header| header.kind == Type::Decided && header.flags & COORDINATOR != 0;
        if let Ok(said) = parse_and_check(&setup, Port::Network, frame, decided) {
            self.on_decided(now, &said.header, said.room);
        } else if let Ok(said) = parse_frame(&setup, Port::Network, frame)
            && said.header.kind == Type::Refused
        {
            self.on_refused(now, &said.header);
        } else {
            self.counters.ignored_frames += 1;
        }
    }

    fn on_decided(&mut self, now: Micros, said: &Header, room: &[u8]) {
        let value = &said.value;
        let is_whole = !self.is_own_value(value)
            || (room.get(..value.length.into())).is_some_and(|bytes| checksum(bytes) == value.crc);
        match self.slot_walk.record_decision(said, is_whole) {
            Ok(()) => self.process_decided(now),
            Err(IgnoreReason::Conflict) => self.distrust_frames(now),
            Err(IgnoreReason::TooFarAhead) => self.stuck_since = self.stuck_since.or(Some(now)),
            Err(IgnoreReason::Stale | IgnoreReason::UntrustedQuorum) => {
                self.counters.ignored_frames += 1
            }
        }
    }

    fn is_own_value(&self, value: &Descriptor) -> bool {
        value.kind == 2 && (value.origin, value.origin_boot) == (self.name.origin, self.name.boot)
    }

    /// Handles the decided slots that follow the last one handled.
    fn process_decided(&mut self, now: Micros) {
        while let Some((slot, heard)) = self.slot_walk.next_decision() {
            self.stuck_since = None;
            if self.is_own_value(&heard.value) && !self.is_session_gone {
                self.on_own_value(now, slot, &heard);
            }
        }
        self.stuck_since = (self.slot_walk.is_stuck()).then(|| self.stuck_since.unwrap_or(now));
    }

    /// [session-2] Handles one of this client's values in a decided slot, by the rules by which
    /// every node executes it.
    fn on_own_value(&mut self, now: Micros, slot: u64, heard: &HeardDecision) {
        let number = heard.value.counter;
        let Some(ahead) = number.checked_sub(self.oldest_outstanding) else {
            // The batch was executed earlier.
            return;
        };
        let known = usize::try_from(ahead).ok().and_then(|at| self.open.get(at));
        let is_ours = known.is_some_and(|batch| {
            (batch.crc, batch.bytes.len()) == (heard.value.crc, heard.value.length.into())
        });
        if heard.is_intact && !is_ours {
            // Another client used this name: what the session has executed is no longer known.
            self.end_session();
        } else if ahead == 0 && heard.is_intact {
            self.on_executed(now, Some(slot));
            self.counters.learned_by_frames += 1;
            self.frames_pause_us = FRAMES_PAUSE_US.0;
        } else {
            // An earlier batch is missing, or the bytes were changed in transit: nothing was
            // executed.
            self.schedule_resend(self.oldest_outstanding);
        }
    }

    fn schedule_resend(&mut self, number: u64) {
        self.resend_from = Some(self.resend_from.map_or(number, |back| back.min(number)));
    }

    fn on_executed(&mut self, now: Micros, slot: Option<u64>) {
        self.last_progress_at = now;
        if let Some(batch) = self.open.pop_front() {
            self.completed
                .push_back(CompletedBatch { tag: batch.tag, outcome: Outcome::Executed(slot) });
        }
        self.oldest_outstanding += 1;
        self.next_to_send = self.next_to_send.max(self.oldest_outstanding);
        self.next_to_offer = self.next_to_offer.max(self.oldest_outstanding);
    }

    /// Handles a refusal by the coordinator. Refusals are not authenticated: the worst effect of a
    /// forged one is that the client stops using frames.
    fn on_refused(&mut self, now: Micros, said: &Header) {
        if said.value.kind != 2
            || !self.is_own_value(&said.value)
            || said.value.counter < self.oldest_outstanding
        {
            self.counters.ignored_frames += 1;
        } else if said.reason == Reason::Full as u8 {
            self.counters.full_window_refusals += 1;
            self.schedule_resend(said.value.counter);
        } else if self.uses_frames() {
            self.fall_back_to_connection(now);
        }
    }

    /// Handles a node's statement on the state of its log.
    pub fn on_position(&mut self, now: Micros, stand: &NodePosition) {
        self.awaits_position = false;
        // A node of another cluster knows nothing about this log.
        if self.is_session_gone || stand.cluster != self.cluster_id || !is_possible_position(stand)
        {
            return;
        }
        if stand.applied_to > self.session_id && stand.session_slot != self.session_id {
            return self.end_session();
        }
        if stand.applied_to > self.slot_walk.next() {
            let next = self.oldest_outstanding + self.open.len() as u64;
            if !(self.oldest_outstanding..=next).contains(&stand.next) {
                // The session executed a batch that was never submitted, or other bytes: the group
                // lost its memory, or a frame was forged.
                self.counters.conflicts += 1;
                return self.end_session();
            }
            while self.oldest_outstanding < stand.next {
                self.on_executed(now, None);
            }
            self.slot_walk.jump_to(stand.applied_to, stand.era);
            self.process_decided(now);
        } else if stand.next > self.oldest_outstanding
            || (stand.applied_to == self.slot_walk.next() && stand.next < self.oldest_outstanding)
        {
            // Frames for slots that the node knows contradict what was executed there.
            self.counters.conflicts += 1;
            return self.end_session();
        } else if self.stuck_since.is_some() {
            self.stuck_since = Some(now);
        }
        self.choose_send_path(now, stand);
    }

    fn choose_send_path(&mut self, now: Micros, stand: &NodePosition) {
        if !stand.is_leader {
            return;
        }
        match (stand.device_place, self.send_path) {
            (None, SendPath::Frames) => self.fall_back_to_connection(now),
            (None, SendPath::Connection(_)) => {}
            (Some(place), way) => {
                if self.device_place != Some(place) {
                    let room = usize::from(place.room);
                    if !room.is_multiple_of(8) || room > quorate_offload::header::ROOM_BYTES_MAX {
                        return;
                    }
                    self.value_buffer = vec![0; room];
                    self.frame_buffer = vec![0; Encapsulation::Raw.room_offset() + room];
                    self.device_place = Some(place);
                    if self.next_to_send > self.oldest_outstanding {
                        self.schedule_resend(self.oldest_outstanding);
                    }
                }
                if let SendPath::Connection(until) = way
                    && now >= until
                    && self.trusts_frames
                {
                    self.send_path = SendPath::Frames;
                    self.next_to_send = self.oldest_outstanding;
                    for batch in &mut self.open {
                        batch.sent_at_last_first = None;
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
        (self.is_connected, self.awaits_position) = (false, false);
        (self.next_to_offer, self.last_offer_at) = (self.oldest_outstanding, 0);
    }

    fn fall_back_to_connection(&mut self, now: Micros) {
        self.counters.frame_fallbacks += 1;
        self.send_path = SendPath::Connection(now + self.frames_pause_us);
        self.frames_pause_us = (self.frames_pause_us * 2).min(FRAMES_PAUSE_US.1);
        (self.next_to_offer, self.last_offer_at) = (self.oldest_outstanding, now);
    }

    /// [count-1] Permanently stops trusting frames.
    fn distrust_frames(&mut self, now: Micros) {
        self.counters.conflicts += 1;
        self.trusts_frames = false;
        if self.uses_frames() {
            self.fall_back_to_connection(now);
        }
    }

    fn end_session(&mut self) {
        self.is_session_gone = true;
        while let Some(batch) = self.open.pop_front() {
            self.completed.push_back(CompletedBatch { tag: batch.tag, outcome: Outcome::Unknown });
        }
    }
}

/// Returns whether a log can be in the stated position.
const fn is_possible_position(stand: &NodePosition) -> bool {
    stand.applied_to < SLOT_OR_NUMBER_MAX && stand.next < SLOT_OR_NUMBER_MAX
}

#[cfg(test)]
mod tests;
