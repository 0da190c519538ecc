//! The owner of one device: accepts requests, emits events, and does what is due in a turn.

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

/// Counts of an owner, for metrics. None of them ever decreases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames received from the port that are not valid frames of the group.
    pub foreign: u64,
    /// Votes whose descriptor is not a valid value, or does not match the bytes: no-ops
    /// ([offload-21]).
    pub unknown: u64,
    /// Control calls, repeated ones included.
    pub calls: u64,
    /// Frames that the device lost for lack of space.
    pub lost: u64,
}

/// State of a drain.
#[derive(Clone, Copy, Debug)]
enum Drain {
    None,
    /// Start time, and number of checks.
    Begun(Time, u32),
    /// No step runs; answers of earlier steps may still be waiting.
    Over,
}

/// The owner of one device.
#[derive(Debug)]
pub struct Owner {
    settings: Settings,
    frames: Frames,
    counter: u64,
    voting: AcceptorDriver,
    giving: CoordinatorDriver,
    drain: Drain,
    /// Decisions already reported, of one ballot.
    decided: (u64, Ring),
    /// Decisions of any ballot are reported.
    listens: bool,
    lost: Option<Loss>,
    /// Number of times that the device is known to have lost its memory.
    forgot: u64,
    counts: Counts,
    now: Time,
    /// A request waits for a turn.
    is_due: bool,
    frame: Vec<u8>,
}

impl Owner {
    /// Creates an owner, whose first call sets the device's boot. The previous arming of the device
    /// is unknown until a fence.
    ///
    /// # Panics
    /// If a boot is 0, the number of cells is not a power of two, or the size of the value area is
    /// invalid.
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

    /// [offload-5] Makes the acceptor vote in this ballot, from this slot on. The replica must have
    /// raised its promise to it, and fenced before. Ends with [`Event::Armed`],
    /// [`Event::ArmRefused`], or a fence.
    pub fn arm(&mut self, ballot: Ballot, position: u8, floor: Slot) {
        self.voting.arm(ballot, position, floor);
        self.is_due = true;
    }

    /// [offload-8] Disarms, drains, reads out, checks the boot. Ends with [`Event::Fenced`]; no
    /// later arm is sent before. An owner that was restarted fences first.
    pub fn fence(&mut self) {
        self.voting.fence();
        self.is_due = true;
    }

    /// [offload-10] Fences the acceptor without reading out its votes, which are not needed when
    /// they are hints, or an earlier owner's. Its [`Event::Fenced`] has no votes.
    pub fn disarm(&mut self) {
        self.voting.disarm();
        self.is_due = true;
    }

    /// [offload-5] Makes the coordinator assign slots. Ends with [`Event::Started`] or
    /// [`Event::StartRefused`], or the end of a start.
    pub fn start(&mut self, start: Start) {
        self.giving.start(start);
        self.is_due = true;
    }

    /// [offload-12] Stops, drains, checks the boot, reads the assigned slots. Ends with
    /// [`Event::Withdrawn`], or with [`Event::Stopped`] if there is no start to withdraw.
    pub fn take_back(&mut self) {
        self.giving.take_back();
        self.is_due = true;
    }

    /// Stops after stepping down: stops, drains, reads nothing. Ends with [`Event::Stopped`], and
    /// also ends a withdrawal in progress.
    pub fn stop(&mut self) {
        self.giving.stop();
        self.is_due = true;
    }

    /// [offload-14] Lets both programs forget the slots below `floor`, and the coordinator assign
    /// slots up to `limit`. It is sent when it is worth a call. This replica must know all slots
    /// below `floor` as decided and store them itself.
    pub fn raise_floor(&mut self, floor: Slot, limit: Slot) {
        let votes = self.voting.tap.raise_floor(floor);
        let gives = self.giving.upkeep.raise_floor(floor, limit);
        // Repeated without change, it causes no wake-up.
        self.is_due |= votes || gives;
    }

    /// Submits a value to the coordinator. It waits until it is seen assigned, whatever is lost,
    /// and may be assigned more than once, to different slots.
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

    /// [offload-15] Offers a value to the coordinator of another member, once. Its arrival is not
    /// acknowledged: a value that is not soon seen decided takes another path.
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

    /// [offload-11] Sets whether decisions of ballots in which this owner has no part are reported,
    /// too.
    pub const fn listen(&mut self, listens: bool) {
        self.listens = listens;
    }

    /// [offload-9] Sets how long to wait for a late device, in microseconds
    /// ([`crate::owner::Pace::late_us`]).
    pub const fn set_late_timeout(&mut self, late_us: u64) {
        self.settings.pace.late_us = late_us;
    }

    /// Returns the number of submitted values that were not seen assigned.
    pub fn waiting(&self) -> usize {
        self.giving.waiting.len()
    }

    /// Returns whether another value would be sent soon: fewer than two windows of values wait or
    /// are in flight.
    pub fn has_room(&self) -> bool {
        (self.giving.waiting.len() as u64) < 2 * self.settings.window
    }

    pub const fn device_boot(&self) -> u32 {
        self.settings.device_boot
    }

    /// [offload-9] Returns a new owner of the same device after it lost power: its frames have
    /// another boot from now on.
    #[must_use]
    pub fn after_power(&self, found: u32) -> Self {
        let boot =
            if found == 0 { self.settings.device_boot.wrapping_add(1).max(1) } else { found };
        let settings = Settings { device_boot: boot, ..self.settings };
        Self { forgot: self.forgot, ..Self::new(settings, *self.frames.shape()) }
    }

    /// Returns the waiting values to the caller, oldest first; after a withdrawal the leader
    /// proposes them itself.
    pub fn withdraw(&mut self) -> Vec<(Value, Vec<u8>)> {
        self.giving.waiting.withdraw()
    }

    /// [offload-18] Queries the coordinator's next slot. Ends with [`Event::Next`], unless the
    /// device is lost.
    pub fn look_next(&mut self, token: u64) {
        self.giving.look_next(token);
        self.is_due = true;
    }

    pub const fn counts(&self) -> Counts {
        Counts { unknown: self.voting.tap.unknown, calls: self.counter, ..self.counts }
    }

    /// Returns why the device is abandoned, if it is.
    pub const fn lost(&self) -> Option<Loss> {
        self.lost
    }

    /// [offload-9] Returns whether the device has owed answers for longer than a working one would.
    /// It may still have its memory: nothing is promised until it was read out, and it is abandoned
    /// after [`crate::owner::Pace::late_us`].
    pub fn is_late(&self) -> bool {
        let pace = &self.settings.pace;
        let drain = matches!(self.drain, Drain::Begun(since, looks)
            if pace.is_late(looks) && self.now.since_us(since) >= pace.late_from_us());
        self.lost.is_none() && (drain || self.voting.is_late(pace) || self.giving.is_late(pace))
    }

    /// Handles the frames received from the port, and does what is due.
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

    /// Returns when the next turn is due without a frame; `None` if only a frame or a request needs
    /// one.
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
            // Its end is not reported; the driver of the device may check earlier.
            Drain::Begun(..) if self.is_late() => Some(self.now.plus_us(pace.answer_us)),
            Drain::Begun(..) => Some(self.now.plus_us(pace.answer_us / 10)),
            Drain::Over => return Some(self.now),
        };
        let parts = self.voting.due(pace).chain(self.giving.due(pace));
        let parts = parts.chain(drain);
        // Work that was due in the last turn and was not done waits for a frame.
        parts.filter(|due| *due > self.now).min()
    }

    fn work(&mut self, device: &mut dyn Device, events: &mut Vec<Event>) -> Result<(), Loss> {
        // [offload-9] The device itself reports it, so there is no need to wait for a missing
        // answer.
        let forgot = device.memory_losses();
        if forgot > self.forgot {
            self.forgot = forgot;
            return Err(Loss::Boot { found: 0 });
        }
        // Checked before frames are taken, so that all frames of the drained steps are among them.
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
                // A process that was suspended finds its timeout expired, but its device's thread
                // was suspended with it.
                Drained::NotYet if !pace.is_late(looks) || self.now.since_us(since) < patience => {
                    self.drain = Drain::Begun(since, looks.saturating_add(1));
                }
                Drained::NotYet | Drained::Unknown => return Err(Loss::Drain),
            }
        }
        Ok(())
    }

    /// Handles waiting frames; returns whether none are left. Takes at most about two rings' worth
    /// in one turn, so that the reactor is not blocked.
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
            // [offload-21] Only decisions counted by a coordinator are of use, and nothing in such
            // frames is trusted as from this device.
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
        // [offload-9] A device with another boot has lost its memory, whatever it reports.
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
            // The device's acceptor voted for the value that its coordinator assigned to the slot,
            // if it received the proposal from that coordinator.
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

    /// [offload-10] Handles a decision, if the count decides and this owner takes part in the
    /// ballot. Each is reported once.
    fn on_decided(&mut self, heard: &ReceivedFrame<'_>, events: &mut Vec<Event>) {
        let said = &heard.header;
        let ours = [self.voting.ballot(), self.giving.ballot()].contains(&Some(said.ballot));
        // An older one is of no use: its contents are known, or requested otherwise.
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
