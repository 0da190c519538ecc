//! The owner of one device: accepts requests, reports events, and does the work due in each turn.

use alloc::vec::Vec;

use crate::{
    Type,
    header::{COORDINATOR, HINT},
    port::{Device, DeviceShape, Drained, FrameOrigin, Program},
};
use quorate_core::{ballot::Ballot, slot::Slot, time::Time, value::Value};

use crate::owner::{
    desk::TurnContext,
    event::{Event, LossReason, SlotValue, Start},
    frames::{FrameCodec, ReceivedFrame},
    giving::CoordinatorDriver,
    ring::SeenSlots,
    settings::Settings,
    value::{NotOffloadable, describe_value, interpret},
    voting::AcceptorDriver,
    waiting::NotSubmitted,
};

/// Counters of an owner, for metrics. They never decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerCounters {
    /// Number of frames from the port that are not valid frames from the group.
    pub foreign_frames: u64,
    /// Number of votes treated as no-ops because their descriptor is invalid or does not match the
    /// bytes ([offload-21]).
    pub invalid_votes: u64,
    /// Number of control calls sent, including repetitions.
    pub calls_sent: u64,
    /// Number of frames that the device lost for lack of space.
    pub frames_lost: u64,
}

/// Progress of the requested drain, if there is one.
#[derive(Clone, Copy, Debug)]
enum DrainProgress {
    None,
    /// Start time, and the number of checks made since.
    Begun(Time, u32),
    /// No drained step is running any more, but their responses may still be in the device's queue.
    Over,
}

/// The owner of one device. Converts a replica's requests to frames, and the device's frames to
/// events.
#[derive(Debug)]
pub struct Owner {
    settings: Settings,
    frames: FrameCodec,
    counter: u64,
    acceptor: AcceptorDriver,
    coordinator: CoordinatorDriver,
    drain: DrainProgress,
    /// A ballot, and those of its slots whose decisions have been reported.
    decided: (u64, SeenSlots),
    /// Set if decisions of other ballots are reported as well.
    reports_all_decisions: bool,
    loss: Option<LossReason>,
    /// Number of memory losses reported by the device.
    memory_losses: u64,
    counts: OwnerCounters,
    now: Time,
    /// Set if a request has been made since the last turn.
    has_new_request: bool,
    frame_buffer: Vec<u8>,
}

impl Owner {
    /// Creates an owner. Its first call sets the device's boot. An earlier owner may have left the
    /// device armed, which only a fence determines. Panics if a boot is 0, the number of cells is
    /// not a power of two, or the size of the value area is invalid.
    pub fn new(settings: Settings, shape: DeviceShape) -> Self {
        assert!(settings.owner_boot > 0, "owners' boots begin at 1");
        assert!(settings.device_boot > 0, "devices' boots begin at 1");
        assert!(shape.cells.is_power_of_two(), "{} cells", shape.cells);
        let fits = shape.room <= crate::header::ROOM_BYTES_MAX;
        assert!(fits && shape.room.is_multiple_of(8), "a room of {} bytes", shape.room);
        let frames = FrameCodec::new(shape);
        let boot = |program| frames.empty_header(program, Type::Boot);
        Self {
            acceptor: AcceptorDriver::new(boot(Program::Acceptor), &shape),
            coordinator: CoordinatorDriver::new(
                boot(Program::Coordinator),
                &shape,
                settings.window,
            ),
            settings,
            frames,
            counter: 0,
            drain: DrainProgress::None,
            decided: (0, SeenSlots::new(shape.cells.into())),
            reports_all_decisions: false,
            loss: None,
            memory_losses: 0,
            counts: OwnerCounters::default(),
            now: Time(0),
            has_new_request: true,
            frame_buffer: Vec::new(),
        }
    }

    /// [offload-5] Arms the acceptor to vote in `ballot`, starting at slot `floor`. The replica
    /// must first have raised its promise to `ballot` and fenced the acceptor. The outcome is
    /// [`Event::Armed`] or [`Event::ArmRefused`], unless a fence ends the request.
    pub fn arm(&mut self, ballot: Ballot, position: u8, floor: Slot) {
        self.acceptor.arm(ballot, position, floor);
        self.has_new_request = true;
    }

    /// [offload-8] Disarms the acceptor, drains it, reads out its votes and checks its boot. The
    /// outcome is [`Event::Fenced`]. Later requests to arm wait for it. A restarted owner must
    /// fence first.
    pub fn fence(&mut self) {
        self.acceptor.fence();
        self.has_new_request = true;
    }

    /// [offload-10] Fences the acceptor without reading out its votes. For votes that are only
    /// hints, or that belong to an earlier owner. The outcome is [`Event::Fenced`] without votes.
    pub fn disarm(&mut self) {
        self.acceptor.disarm();
        self.has_new_request = true;
    }

    /// [offload-5] Starts the coordinator. The outcome is [`Event::Started`] or
    /// [`Event::StartRefused`], unless a stop or a withdrawal ends the request.
    pub fn start(&mut self, start: Start) {
        self.coordinator.start(start);
        self.has_new_request = true;
    }

    /// [offload-12] Stops the coordinator, drains it, checks its boot and reads the assigned slots.
    /// The outcome is [`Event::Withdrawn`], or [`Event::Stopped`] if the coordinator was not
    /// started.
    pub fn withdraw_coordinator(&mut self) {
        self.coordinator.request_withdrawal();
        self.has_new_request = true;
    }

    /// Stops and drains the coordinator without reading its slots, for a leader that has stepped
    /// down. The outcome is [`Event::Stopped`], which also ends a withdrawal in progress.
    pub fn stop(&mut self) {
        self.coordinator.stop();
        self.has_new_request = true;
    }

    /// [offload-14] Lets both programs discard the slots below `floor`, and the coordinator assign
    /// slots below `limit`. The call is delayed until the change is large enough. All slots below
    /// `floor` must be decided and stored by this replica.
    pub fn raise_floor(&mut self, floor: Slot, limit: Slot) {
        let votes = self.acceptor.tap.raise_floor(floor);
        let gives = self.coordinator.assigned_slots.raise_floor(floor, limit);
        // A call that changes nothing does not make a turn due.
        self.has_new_request |= votes || gives;
    }

    /// Submits a value to the coordinator, and repeats that until the value has been assigned a
    /// slot. It may be assigned several slots.
    pub fn submit(&mut self, value: Value, bytes: &[u8]) -> Result<(), NotSubmitted> {
        let named = describe_value(&value, bytes, self.frames.shape().room)
            .map_err(NotSubmitted::NotOffloadable)?;
        if self.coordinator.submitted_values.len() as u64 >= self.frames.cells() {
            return Err(NotSubmitted::Full);
        }
        self.coordinator.submitted_values.push(named, value, bytes);
        self.has_new_request = true;
        Ok(())
    }

    /// [offload-15] Submits a value to another member's coordinator, once and without
    /// acknowledgement. If the value is not decided soon, the caller must send it over TCP.
    pub fn send_unacknowledged(
        &mut self,
        device: &mut dyn Device,
        value: &Value,
        bytes: &[u8],
    ) -> Result<(), NotOffloadable> {
        let named = describe_value(value, bytes, self.frames.shape().room)?;
        let header = self.frames.submit_header(named);
        device.send_to_devices(self.frames.encode_for_all(&header, bytes));
        Ok(())
    }

    /// [offload-11] Sets whether to report decisions of ballots in which this owner takes no part.
    pub const fn report_all_decisions(&mut self, listens: bool) {
        self.reports_all_decisions = listens;
    }

    /// [offload-9] Sets the time in microseconds after which a device that does not respond is
    /// abandoned ([`crate::owner::Timeouts::abandon_after_us`]).
    pub const fn set_late_timeout(&mut self, late_us: u64) {
        self.settings.timeouts.abandon_after_us = late_us;
    }

    /// Returns the number of submitted values that have not yet been seen in a slot.
    pub fn waiting_value_count(&self) -> usize {
        self.coordinator.submitted_values.len()
    }

    /// Returns whether the caller should submit more values, which is while fewer than two windows
    /// of values are waiting.
    pub fn has_room(&self) -> bool {
        (self.coordinator.submitted_values.len() as u64) < 2 * self.settings.window
    }

    pub const fn device_boot(&self) -> u32 {
        self.settings.device_boot
    }

    /// [offload-9] Creates a new owner of the same device after the device has lost its memory.
    /// `found` is the boot that the device reported, or 0.
    #[must_use]
    pub fn after_memory_loss(&self, found: u32) -> Self {
        let boot =
            if found == 0 { self.settings.device_boot.wrapping_add(1).max(1) } else { found };
        let settings = Settings { device_boot: boot, ..self.settings };
        Self { memory_losses: self.memory_losses, ..Self::new(settings, *self.frames.shape()) }
    }

    /// Removes and returns the submitted values that have not been assigned a slot, oldest first.
    /// After a withdrawal, the leader proposes them itself.
    pub fn take_unassigned_values(&mut self) -> Vec<(Value, Vec<u8>)> {
        self.coordinator.submitted_values.take_all()
    }

    /// [offload-18] Queries the coordinator's next slot. The outcome is [`Event::NextSlot`], unless
    /// the device is lost.
    pub fn query_next_slot(&mut self, token: u64) {
        self.coordinator.queue_slot_read(token);
        self.has_new_request = true;
    }

    pub const fn counts(&self) -> OwnerCounters {
        OwnerCounters {
            invalid_votes: self.acceptor.tap.invalid_vote_count,
            calls_sent: self.counter,
            ..self.counts
        }
    }

    pub const fn loss(&self) -> Option<LossReason> {
        self.loss
    }

    /// [offload-9] Returns whether the device has not responded for longer than a working device
    /// would take. It may still have its memory, so no promise is possible until it has been read
    /// out. After [`crate::owner::Timeouts::abandon_after_us`] it is abandoned.
    pub fn is_late(&self) -> bool {
        let pace = &self.settings.timeouts;
        let drain = matches!(self.drain, DrainProgress::Begun(since, looks)
            if pace.is_late(looks) && self.now.since_us(since) >= pace.late_after_us());
        self.loss.is_none()
            && (drain || self.acceptor.is_late(pace) || self.coordinator.is_late(pace))
    }

    /// Processes the frames received from the port and does all work that is due. Appends to
    /// `events`.
    pub fn turn(&mut self, now: Time, device: &mut dyn Device, events: &mut Vec<Event>) {
        (self.now, self.has_new_request) = (now, false);
        if self.loss.is_some() {
            return;
        }
        if let Err(why) = self.work(device, events) {
            self.loss = Some(why);
            events.push(Event::Lost { why });
        }
    }

    /// Returns when [`Self::turn`] is due even if no frame arrives, or `None` if it can wait for a
    /// frame or a request.
    pub fn wake_at(&self) -> Option<Time> {
        if self.loss.is_some() {
            return None;
        }
        if self.has_new_request {
            return Some(self.now);
        }
        let pace = &self.settings.timeouts;
        let drain = match self.drain {
            DrainProgress::None => None,
            // The end of a drain is not signalled, so the owner polls for it.
            DrainProgress::Begun(..) if self.is_late() => Some(self.now.plus_us(pace.response_us)),
            DrainProgress::Begun(..) => Some(self.now.plus_us(pace.response_us / 10)),
            DrainProgress::Over => return Some(self.now),
        };
        let parts = self.acceptor.due(pace).chain(self.coordinator.due_times(pace));
        let parts = parts.chain(drain);
        // Work that was due but not done in the last turn waits for a frame.
        parts.filter(|due| *due > self.now).min()
    }

    fn work(&mut self, device: &mut dyn Device, events: &mut Vec<Event>) -> Result<(), LossReason> {
        // [offload-9] The device itself reports the loss, so there is no need to wait for a missing
        // response.
        let forgot = device.memory_loss_count();
        if forgot > self.memory_losses {
            self.memory_losses = forgot;
            return Err(LossReason::Boot { found: 0 });
        }
        // The drain is checked before frames are received, so that the responses of all drained
        // steps are among them.
        self.check_drain(device)?;
        let emptied = self.process_frames(device, events)?;
        if emptied && matches!(self.drain, DrainProgress::Over) {
            self.drain = DrainProgress::None;
            self.acceptor.on_drained(self.frames.cells());
            self.coordinator.on_drain_complete();
        }
        let lost = device.lost_frame_count();
        if lost > self.counts.frames_lost {
            self.counts.frames_lost = lost;
            self.acceptor.tap.on_lost(self.now, &self.settings.timeouts);
            self.coordinator.on_frames_lost();
        }
        let (mut desk, voting, giving) = self.turn_parts(device, events);
        voting.advance(&mut desk)?;
        giving.advance(&mut desk)?;
        if desk.draining {
            self.drain = DrainProgress::Begun(self.now, 0);
        }
        Ok(())
    }

    fn turn_parts<'a>(
        &'a mut self,
        device: &'a mut dyn Device,
        events: &'a mut Vec<Event>,
    ) -> (TurnContext<'a>, &'a mut AcceptorDriver, &'a mut CoordinatorDriver) {
        let desk = TurnContext {
            now: self.now,
            settings: &self.settings,
            frames: &mut self.frames,
            last_call_number: &mut self.counter,
            device,
            draining: false,
            events,
        };
        (desk, &mut self.acceptor, &mut self.coordinator)
    }

    fn check_drain(&mut self, device: &mut dyn Device) -> Result<(), LossReason> {
        if let DrainProgress::Begun(since, looks) = self.drain {
            let pace = &self.settings.timeouts;
            let patience = pace.late_after_us().saturating_add(pace.abandon_after_us);
            match device.drain_progress() {
                Drained::Complete => self.drain = DrainProgress::Over,
                // If this process was suspended, the timeout has expired, but so was the device's
                // thread. Therefore the number of checks counts as well.
                Drained::InProgress
                    if !pace.is_late(looks) || self.now.since_us(since) < patience =>
                {
                    self.drain = DrainProgress::Begun(since, looks.saturating_add(1));
                }
                Drained::InProgress | Drained::Unknown => return Err(LossReason::DrainFailed),
            }
        }
        Ok(())
    }

    /// Processes received frames, and returns whether all of them were processed. One turn
    /// processes at most about two rings of frames, so that the reactor is not blocked.
    fn process_frames(
        &mut self,
        device: &mut dyn Device,
        events: &mut Vec<Event>,
    ) -> Result<bool, LossReason> {
        let mut frame = core::mem::take(&mut self.frame_buffer);
        let most = self.frames.cells().saturating_mul(2).saturating_add(256);
        let mut emptied = false;
        for _ in 0..most {
            let Some((program, came)) = device.take_frame(&mut frame) else {
                emptied = true;
                break;
            };
            match self.frames.decode(came, &frame) {
                Some(heard) => self.on_frame(program, &heard, device, events)?,
                None => self.counts.foreign_frames += 1,
            }
        }
        self.has_new_request |= !emptied;
        self.frame_buffer = frame;
        Ok(emptied)
    }

    fn on_frame(
        &mut self,
        program: Program,
        heard: &ReceivedFrame<'_>,
        device: &mut dyn Device,
        events: &mut Vec<Event>,
    ) -> Result<(), LossReason> {
        let said = &heard.header;
        if heard.origin == FrameOrigin::Network {
            // [offload-21] Frames passed on from the network may be forged, so only counted
            // decisions are used.
            if said.kind == Type::Decided {
                self.on_decided(heard, events);
            }
            return Ok(());
        }
        let (voting, giving) = (self.acceptor.is_booted(), self.coordinator.is_booted());
        let booted = match program {
            Program::Acceptor => voting,
            Program::Coordinator => giving,
        };
        // [offload-9] A device with another boot has lost its memory, regardless of the rest of the
        // frame.
        if booted && said.boot != self.settings.device_boot {
            return Err(LossReason::Boot { found: said.boot });
        }
        let cells = self.frames.cells();
        match said.kind {
            Type::Decided if booted => {
                if said.flags & COORDINATOR != 0 && self.coordinator.ballot() == Some(said.ballot) {
                    self.coordinator.on_assigned(heard, cells)?;
                    self.coordinator.assigned_slots.on_decided(said.slot);
                }
                self.on_decided(heard, events);
                return Ok(());
            }
            // If the acceptor received the proposal from its own coordinator, the vote shows which
            // value that coordinator assigned to the slot.
            Type::Phase2b
                if booted
                    && heard.origin == FrameOrigin::LocalResponse
                    && self.coordinator.ballot() == Some(said.ballot) =>
            {
                self.coordinator.on_assigned(heard, cells)?;
            }
            _ => {}
        }
        let (mut desk, voting, giving) = self.turn_parts(device, events);
        match program {
            Program::Acceptor => voting.hear(heard, &mut desk),
            Program::Coordinator => giving.hear(heard, &mut desk),
        }
    }

    /// [offload-10] Reports a decision once, unless it is a hint or belongs to a ballot that this
    /// owner ignores.
    fn on_decided(&mut self, heard: &ReceivedFrame<'_>, events: &mut Vec<Event>) {
        let said = &heard.header;
        let ours = [self.acceptor.ballot(), self.coordinator.ballot()].contains(&Some(said.ballot));
        // A decision of an older ballot is not needed: its value is already known, or is fetched
        // from a peer.
        let listens = self.reports_all_decisions && said.ballot.0 >= self.decided.0;
        if !(ours || listens) || said.flags & HINT != 0 {
            return;
        }
        let (value, bytes, _) = interpret(&said.value, heard.room);
        let (ballot, told) = &mut self.decided;
        if *ballot != said.ballot.0 {
            *ballot = said.ballot.0;
            told.clear();
        }
        if !told.mark_seen(said.slot) {
            return;
        }
        let (ballot, slot) = (said.ballot.unpack(), Slot(said.slot));
        events.push(if ours {
            Event::Decided { ballot, slot, value }
        } else {
            let bytes = bytes.to_vec();
            Event::OtherDecided { ballot, held: SlotValue { slot, value, bytes } }
        });
    }
}
