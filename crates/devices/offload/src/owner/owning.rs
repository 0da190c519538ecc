//! The owner of one device: accepts requests, reports events, and does the work due in each turn.

use alloc::vec::Vec;

use crate::{
    Type,
    header::{COORDINATOR, HINT},
    port::{Device, Drained, FrameOrigin, Program, Shape},
};
use quorate_core::{ballot::Ballot, slot::Slot, time::Time, value::Value};

use crate::owner::{
    desk::TurnContext,
    event::{Event, Loss, SlotValue, Start},
    frames::{Frames, ReceivedFrame},
    giving::CoordinatorDriver,
    ring::Ring,
    settings::Settings,
    value::{NotCarried, descriptor, meaning},
    voting::AcceptorDriver,
    waiting::NotSubmitted,
};

/// Counters of an owner, for metrics. They never decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of frames from the port that are not valid frames from the group.
    pub foreign: u64,
    /// Number of votes treated as no-ops because their descriptor is invalid or does not match the
    /// bytes ([offload-21]).
    pub unknown: u64,
    /// Number of control calls sent, including repetitions.
    pub calls: u64,
    /// Number of frames that the device lost for lack of space.
    pub lost: u64,
}

/// Progress of the requested drain, if there is one.
#[derive(Clone, Copy, Debug)]
enum Drain {
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
    frames: Frames,
    counter: u64,
    voting: AcceptorDriver,
    giving: CoordinatorDriver,
    drain: Drain,
    /// A ballot, and those of its slots whose decisions have been reported.
    decided: (u64, Ring),
    /// Set if decisions of other ballots are reported as well.
    listens: bool,
    lost: Option<Loss>,
    /// Number of memory losses reported by the device.
    forgot: u64,
    counts: Counts,
    now: Time,
    /// Set if a request has been made since the last turn.
    is_due: bool,
    frame: Vec<u8>,
}

impl Owner {
    /// Creates an owner. Its first call sets the device's boot. An earlier owner may have left the
    /// device armed, which only a fence determines. Panics if a boot is 0, the number of cells is
    /// not a power of two, or the size of the value area is invalid.
    pub fn new(settings: Settings, shape: Shape) -> Self {
        assert!(settings.owner_boot > 0, "owners' boots begin at 1");
        assert!(settings.device_boot > 0, "devices' boots begin at 1");
        assert!(shape.cells.is_power_of_two(), "{} cells", shape.cells);
        let fits = shape.room <= crate::header::ROOM_BYTES_MAX;
        assert!(fits && shape.room.is_multiple_of(8), "a room of {} bytes", shape.room);
        let frames = Frames::new(shape);
        let boot = |program| frames.plain(program, Type::Boot);
        Self {
            voting: AcceptorDriver::new(boot(Program::Acceptor), &shape),
            giving: CoordinatorDriver::new(boot(Program::Coordinator), &shape, settings.window),
            settings,
            frames,
            counter: 0,
            drain: Drain::None,
            decided: (0, Ring::new(shape.cells.into())),
            listens: false,
            lost: None,
            forgot: 0,
            counts: Counts::default(),
            now: Time(0),
            is_due: true,
            frame: Vec::new(),
        }
    }

    /// [offload-5] Arms the acceptor to vote in `ballot`, starting at slot `floor`. The replica
    /// must first have raised its promise to `ballot` and fenced the acceptor. The outcome is
    /// [`Event::Armed`] or [`Event::ArmRefused`], unless a fence ends the request.
    pub fn arm(&mut self, ballot: Ballot, position: u8, floor: Slot) {
        self.voting.arm(ballot, position, floor);
        self.is_due = true;
    }

    /// [offload-8] Disarms the acceptor, drains it, reads out its votes and checks its boot. The
    /// outcome is [`Event::Fenced`]. Later requests to arm wait for it. A restarted owner must
    /// fence first.
    pub fn fence(&mut self) {
        self.voting.fence();
        self.is_due = true;
    }

    /// [offload-10] Fences the acceptor without reading out its votes. For votes that are only
    /// hints, or that belong to an earlier owner. The outcome is [`Event::Fenced`] without votes.
    pub fn disarm(&mut self) {
        self.voting.disarm();
        self.is_due = true;
    }

    /// [offload-5] Starts the coordinator. The outcome is [`Event::Started`] or
    /// [`Event::StartRefused`], unless a stop or a withdrawal ends the request.
    pub fn start(&mut self, start: Start) {
        self.giving.start(start);
        self.is_due = true;
    }

    /// [offload-12] Stops the coordinator, drains it, checks its boot and reads the assigned slots.
    /// The outcome is [`Event::Withdrawn`], or [`Event::Stopped`] if the coordinator was not
    /// started.
    pub fn take_back(&mut self) {
        self.giving.take_back();
        self.is_due = true;
    }

    /// Stops and drains the coordinator without reading its slots, for a leader that has stepped
    /// down. The outcome is [`Event::Stopped`], which also ends a withdrawal in progress.
    pub fn stop(&mut self) {
        self.giving.stop();
        self.is_due = true;
    }

    /// [offload-14] Lets both programs discard the slots below `floor`, and the coordinator assign
    /// slots below `limit`. The call is delayed until the change is large enough. All slots below
    /// `floor` must be decided and stored by this replica.
    pub fn raise_floor(&mut self, floor: Slot, limit: Slot) {
        let votes = self.voting.tap.raise_floor(floor);
        let gives = self.giving.upkeep.raise_floor(floor, limit);
        // A call that changes nothing does not make a turn due.
        self.is_due |= votes || gives;
    }

    /// Submits a value to the coordinator, and repeats that until the value has been assigned a
    /// slot. It may be assigned several slots.
    pub fn submit(&mut self, value: Value, bytes: &[u8]) -> Result<(), NotSubmitted> {
        let named = descriptor(&value, bytes, self.frames.shape().room)
            .map_err(NotSubmitted::NotCarried)?;
        if self.giving.waiting.len() as u64 >= self.frames.cells() {
            return Err(NotSubmitted::Full);
        }
        self.giving.waiting.push(named, value, bytes);
        self.is_due = true;
        Ok(())
    }

    /// [offload-15] Submits a value to another member's coordinator, once and without
    /// acknowledgement. If the value is not decided soon, the caller must send it over TCP.
    pub fn offer(
        &mut self,
        device: &mut dyn Device,
        value: &Value,
        bytes: &[u8],
    ) -> Result<(), NotCarried> {
        let named = descriptor(value, bytes, self.frames.shape().room)?;
        let header = self.frames.submit(named);
        device.send(self.frames.make_for_all(&header, bytes));
        Ok(())
    }

    /// [offload-11] Sets whether to report decisions of ballots in which this owner takes no part.
    pub const fn listen(&mut self, listens: bool) {
        self.listens = listens;
    }

    /// [offload-9] Sets the time in microseconds after which a device that does not respond is
    /// abandoned ([`crate::owner::Pace::late_us`]).
    pub const fn set_late_timeout(&mut self, late_us: u64) {
        self.settings.pace.late_us = late_us;
    }

    /// Returns the number of submitted values that have not yet been seen in a slot.
    pub fn waiting(&self) -> usize {
        self.giving.waiting.len()
    }

    /// Returns whether the caller should submit more values, which is while fewer than two windows
    /// of values are waiting.
    pub fn has_room(&self) -> bool {
        (self.giving.waiting.len() as u64) < 2 * self.settings.window
    }

    pub const fn device_boot(&self) -> u32 {
        self.settings.device_boot
    }

    /// [offload-9] Creates a new owner of the same device after the device has lost its memory.
    /// `found` is the boot that the device reported, or 0.
    #[must_use]
    pub fn after_power(&self, found: u32) -> Self {
        let boot =
            if found == 0 { self.settings.device_boot.wrapping_add(1).max(1) } else { found };
        let settings = Settings { device_boot: boot, ..self.settings };
        Self { forgot: self.forgot, ..Self::new(settings, *self.frames.shape()) }
    }

    /// Removes and returns the submitted values that have not been assigned a slot, oldest first.
    /// After a withdrawal, the leader proposes them itself.
    pub fn withdraw(&mut self) -> Vec<(Value, Vec<u8>)> {
        self.giving.waiting.withdraw()
    }

    /// [offload-18] Queries the coordinator's next slot. The outcome is [`Event::Next`], unless the
    /// device is lost.
    pub fn look_next(&mut self, token: u64) {
        self.giving.look_next(token);
        self.is_due = true;
    }

    pub const fn counts(&self) -> Counts {
        Counts { unknown: self.voting.tap.unknown, calls: self.counter, ..self.counts }
    }

    pub const fn lost(&self) -> Option<Loss> {
        self.lost
    }

    /// [offload-9] Returns whether the device has not responded for longer than a working device
    /// would take. It may still have its memory, so no promise is possible until it has been read
    /// out. After [`crate::owner::Pace::late_us`] it is abandoned.
    pub fn is_late(&self) -> bool {
        let pace = &self.settings.pace;
        let drain = matches!(self.drain, Drain::Begun(since, looks)
            if pace.is_late(looks) && self.now.since_us(since) >= pace.late_from_us());
        self.lost.is_none() && (drain || self.voting.is_late(pace) || self.giving.is_late(pace))
    }

    /// Processes the frames received from the port and does all work that is due. Appends to
    /// `events`.
    pub fn turn(&mut self, now: Time, device: &mut dyn Device, events: &mut Vec<Event>) {
        (self.now, self.is_due) = (now, false);
        if self.lost.is_some() {
            return;
        }
        if let Err(why) = self.work(device, events) {
            self.lost = Some(why);
            events.push(Event::Lost { why });
        }
    }

    /// Returns when [`Self::turn`] is due even if no frame arrives, or `None` if it can wait for a
    /// frame or a request.
    pub fn wake_at(&self) -> Option<Time> {
        if self.lost.is_some() {
            return None;
        }
        if self.is_due {
            return Some(self.now);
        }
        let pace = &self.settings.pace;
        let drain = match self.drain {
            Drain::None => None,
            // The end of a drain is not signalled, so the owner polls for it.
            Drain::Begun(..) if self.is_late() => Some(self.now.plus_us(pace.answer_us)),
            Drain::Begun(..) => Some(self.now.plus_us(pace.answer_us / 10)),
            Drain::Over => return Some(self.now),
        };
        let parts = self.voting.due(pace).chain(self.giving.due(pace));
        let parts = parts.chain(drain);
        // Work that was due but not done in the last turn waits for a frame.
        parts.filter(|due| *due > self.now).min()
    }

    fn work(&mut self, device: &mut dyn Device, events: &mut Vec<Event>) -> Result<(), Loss> {
        // [offload-9] The device itself reports the loss, so there is no need to wait for a missing
        // response.
        let forgot = device.memory_losses();
        if forgot > self.forgot {
            self.forgot = forgot;
            return Err(Loss::Boot { found: 0 });
        }
        // The drain is checked before frames are received, so that the responses of all drained
        // steps are among them.
        self.look_at_drain(device)?;
        let emptied = self.take_all(device, events)?;
        if emptied && matches!(self.drain, Drain::Over) {
            self.drain = Drain::None;
            self.voting.on_drained(self.frames.cells());
            self.giving.on_drained();
        }
        let lost = device.lost();
        if lost > self.counts.lost {
            self.counts.lost = lost;
            self.voting.tap.on_lost(self.now, &self.settings.pace);
            self.giving.on_lost();
        }
        let (mut desk, voting, giving) = self.desk(device, events);
        voting.advance(&mut desk)?;
        giving.advance(&mut desk)?;
        if desk.draining {
            self.drain = Drain::Begun(self.now, 0);
        }
        Ok(())
    }

    fn desk<'a>(
        &'a mut self,
        device: &'a mut dyn Device,
        events: &'a mut Vec<Event>,
    ) -> (TurnContext<'a>, &'a mut AcceptorDriver, &'a mut CoordinatorDriver) {
        let desk = TurnContext {
            now: self.now,
            settings: &self.settings,
            frames: &mut self.frames,
            counter: &mut self.counter,
            device,
            draining: false,
            events,
        };
        (desk, &mut self.voting, &mut self.giving)
    }

    fn look_at_drain(&mut self, device: &mut dyn Device) -> Result<(), Loss> {
        if let Drain::Begun(since, looks) = self.drain {
            let pace = &self.settings.pace;
            let patience = pace.late_from_us().saturating_add(pace.late_us);
            match device.drained() {
                Drained::Over => self.drain = Drain::Over,
                // If this process was suspended, the timeout has expired, but so was the device's
                // thread. Therefore the number of checks counts as well.
                Drained::NotYet if !pace.is_late(looks) || self.now.since_us(since) < patience => {
                    self.drain = Drain::Begun(since, looks.saturating_add(1));
                }
                Drained::NotYet | Drained::Unknown => return Err(Loss::Drain),
            }
        }
        Ok(())
    }

    /// Processes received frames, and returns whether all of them were processed. One turn
    /// processes at most about two rings of frames, so that the reactor is not blocked.
    fn take_all(&mut self, device: &mut dyn Device, events: &mut Vec<Event>) -> Result<bool, Loss> {
        let mut frame = core::mem::take(&mut self.frame);
        let most = self.frames.cells().saturating_mul(2).saturating_add(256);
        let mut emptied = false;
        for _ in 0..most {
            let Some((program, came)) = device.take(&mut frame) else {
                emptied = true;
                break;
            };
            match self.frames.hear(came, &frame) {
                Some(heard) => self.hear(program, &heard, device, events)?,
                None => self.counts.foreign += 1,
            }
        }
        self.is_due |= !emptied;
        self.frame = frame;
        Ok(emptied)
    }

    fn hear(
        &mut self,
        program: Program,
        heard: &ReceivedFrame<'_>,
        device: &mut dyn Device,
        events: &mut Vec<Event>,
    ) -> Result<(), Loss> {
        let said = &heard.header;
        if heard.came == FrameOrigin::Network {
            // [offload-21] Frames passed on from the network may be forged, so only counted
            // decisions are used.
            if said.kind == Type::Decided {
                self.on_decided(heard, events);
            }
            return Ok(());
        }
        let (voting, giving) = (self.voting.is_booted(), self.giving.is_booted());
        let booted = match program {
            Program::Acceptor => voting,
            Program::Coordinator => giving,
        };
        // [offload-9] A device with another boot has lost its memory, regardless of the rest of the
        // frame.
        if booted && said.boot != self.settings.device_boot {
            return Err(Loss::Boot { found: said.boot });
        }
        let cells = self.frames.cells();
        match said.kind {
            Type::Decided if booted => {
                if said.flags & COORDINATOR != 0 && self.giving.ballot() == Some(said.ballot) {
                    self.giving.on_given(heard, cells)?;
                    self.giving.upkeep.on_decided(said.slot);
                }
                self.on_decided(heard, events);
                return Ok(());
            }
            // If the acceptor received the proposal from its own coordinator, the vote shows which
            // value that coordinator assigned to the slot.
            Type::Phase2b
                if booted
                    && heard.came == FrameOrigin::Inside
                    && self.giving.ballot() == Some(said.ballot) =>
            {
                self.giving.on_given(heard, cells)?;
            }
            _ => {}
        }
        let (mut desk, voting, giving) = self.desk(device, events);
        match program {
            Program::Acceptor => voting.hear(heard, &mut desk),
            Program::Coordinator => giving.hear(heard, &mut desk),
        }
    }

    /// [offload-10] Reports a decision once, unless it is a hint or belongs to a ballot that this
    /// owner ignores.
    fn on_decided(&mut self, heard: &ReceivedFrame<'_>, events: &mut Vec<Event>) {
        let said = &heard.header;
        let ours = [self.voting.ballot(), self.giving.ballot()].contains(&Some(said.ballot));
        // A decision of an older ballot is not needed: its value is already known, or is fetched
        // from a peer.
        let listens = self.listens && said.ballot.0 >= self.decided.0;
        if !(ours || listens) || said.flags & HINT != 0 {
            return;
        }
        let (value, bytes, _) = meaning(&said.value, heard.room);
        let (ballot, told) = &mut self.decided;
        if *ballot != said.ballot.0 {
            *ballot = said.ballot.0;
            told.clear();
        }
        if !told.see(said.slot) {
            return;
        }
        let (ballot, slot) = (said.ballot.ballot(), Slot(said.slot));
        events.push(if ours {
            Event::Decided { ballot, slot, value }
        } else {
            let bytes = bytes.to_vec();
            Event::OtherDecided { ballot, held: SlotValue { slot, value, bytes } }
        });
    }
}
