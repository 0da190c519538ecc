//! Driver of the device's coordinator: starts it, revokes its allocation, and answers reads.

use alloc::{collections::BTreeMap, vec::Vec};

use crate::{
    Header, PackedBallot, Reason, Type,
    port::{Program, Shape},
};
use quorate_core::{slot::Slot, time::Time};

use crate::owner::{
    ask::{Serial, Stands, StateQueries},
    call::{Answer, Call},
    desk::TurnContext,
    event::{Event, Loss, SlotValue, Start},
    frames::{ReceivedFrame, pack},
    reader::Reader,
    reads::Reads,
    settings::Pace,
    upkeep::Upkeep,
    waiting::Waiting,
};

/// Reason for stopping the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The owner has just begun, and an earlier owner may have left the coordinator started.
    Begin,
    Stop,
    TakeBack,
}

/// Phase in controlling the coordinator.
#[derive(Debug)]
enum Phase {
    Booting(Call),
    /// [offload-12] First step of stopping, followed by `Draining`, and in a withdrawal by
    /// `Looking` and `Reading`.
    Stopping(Call, End),
    Draining(End, bool),
    Looking(Serial),
    Reading {
        next: u64,
    },
    Idle,
    /// The start was requested. The coordinator may already assign slots.
    Starting(Call),
    Started,
}

/// Starts and stops one coordinator, and reports the slots that it assigns.
#[derive(Debug)]
pub(crate) struct CoordinatorDriver {
    phase: Phase,
    /// Parameters of the latest start, complete or pending.
    start: Option<(PackedBallot, Start)>,
    /// Start that has to wait until the previous one has ended.
    wanted: Option<(PackedBallot, Start)>,
    /// Requested stop that has not begun.
    end_wanted: Option<End>,
    pub(crate) upkeep: Upkeep,
    pub(crate) waiting: Waiting,
    /// Cells read during a withdrawal, by slot. `None` is an assigned slot without a value.
    found: BTreeMap<u64, Option<SlotValue>>,
    reader: Reader,
    ask: StateQueries,
    reads: Reads,
    /// Events to report that need no response of the device.
    ends: Vec<Event>,
}

impl CoordinatorDriver {
    pub(crate) fn new(boot: Header, shape: &Shape, window: u64) -> Self {
        Self {
            phase: Phase::Booting(Call::new(Program::Coordinator, boot)),
            start: None,
            wanted: None,
            end_wanted: None,
            upkeep: Upkeep::new(shape),
            waiting: Waiting::new(window),
            found: BTreeMap::new(),
            reader: Reader::new(Program::Coordinator),
            ask: StateQueries::new(Program::Coordinator),
            reads: Reads::default(),
            ends: Vec::new(),
        }
    }

    /// [offload-5] Requests a start of the coordinator.
    pub(crate) fn start(&mut self, start: Start) {
        let Start { ballot, .. } = start;
        let refuse = |reason| Event::StartRefused { ballot, reason };
        let goes_on = matches!(self.phase, Phase::Starting(_) | Phase::Started);
        match pack(ballot).filter(|_| start.first >= Slot::FIRST) {
            None => self.ends.push(refuse(Reason::Range)),
            Some(_) if self.wanted.is_some() || (goes_on && self.end_wanted.is_none()) => {
                self.ends.push(refuse(Reason::Armed));
            }
            Some(packed) => {
                self.upkeep.forget_limit();
                self.wanted = Some((packed, start));
            }
        }
    }

    /// [offload-12] Requests the withdrawal of the coordinator's allocation.
    pub(crate) fn take_back(&mut self) {
        self.wanted = None;
        self.reads.fail_all();
        self.end_wanted.get_or_insert(End::TakeBack);
    }

    pub(crate) fn stop(&mut self) {
        self.wanted = None;
        self.reads.fail_all();
        self.end_wanted = Some(End::Stop);
    }

    /// [offload-18] Queues a read of the next slot. Its query is sent after this call.
    pub(crate) fn look_next(&mut self, token: u64) {
        let is_started = self.is_started();
        self.reads.push(token, is_started, &mut self.ask);
    }

    fn is_started(&self) -> bool {
        matches!(self.phase, Phase::Started) && self.end_wanted.is_none()
    }

    /// Returns the ballot in which the coordinator is started or being started, or `None` if it is
    /// stopped. Only slots of this ballot are reported.
    pub(crate) fn ballot(&self) -> Option<PackedBallot> {
        let gives = matches!(self.phase, Phase::Starting(_) | Phase::Started);
        self.start.filter(|_| gives).map(|(ballot, _)| ballot)
    }

    /// Handles the report that the device dropped frames for lack of space.
    pub(crate) fn on_lost(&mut self) {
        if self.is_started() {
            self.ask.want();
        }
    }

    /// Records the value of a slot of the current start, as reported by the device's acceptor or
    /// coordinator.
    pub(crate) fn on_given(&mut self, heard: &ReceivedFrame<'_>, cells: u64) -> Result<(), Loss> {
        let (held, _) = heard.held();
        self.upkeep.know(heard.header.value, held, cells)
    }

    /// Handles a frame from the device's coordinator. The caller has checked the frame's boot.
    pub(crate) fn hear(
        &mut self,
        heard: &ReceivedFrame<'_>,
        desk: &mut TurnContext<'_>,
    ) -> Result<(), Loss> {
        let said = &heard.header;
        // This is the refusal of a submitted value. A start also has a kind, but its slot is not 0.
        if said.kind == Type::Refused && said.value.kind != 0 && said.slot == 0 {
            self.waiting.on_refused(&said.value, desk.now, &desk.settings.pace);
            return Ok(());
        }
        match said.kind {
            Type::Cell => return self.on_cell(heard, desk.frames.cells()),
            Type::Done | Type::Refused => {
                if let Some(stands) = self.ask.hear(said, desk.now, desk.settings.owner_boot) {
                    return self.on_stands(&stands, desk);
                }
                let settings = desk.settings;
                if self.upkeep.hear(said, settings, &mut self.waiting) {
                    return Ok(());
                }
                let call = match &mut self.phase {
                    Phase::Booting(call) | Phase::Stopping(call, _) | Phase::Starting(call) => call,
                    _ => return Ok(()),
                };
                if let Some(answer) = call.hear(said, settings) {
                    return self.on_answer(answer, desk);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn on_answer(&mut self, answer: Answer, desk: &mut TurnContext<'_>) -> Result<(), Loss> {
        match (&self.phase, answer) {
            (_, Answer::Refused(Reason::Boot, said)) => {
                return Err(Loss::Boot { found: said.boot });
            }
            (Phase::Booting(_), Answer::Done(said)) => {
                desk.check_booted(&said)?;
                self.phase = stopping(End::Begin, desk);
            }
            (Phase::Stopping(_, end), Answer::Done(said)) => {
                if said.ballot != PackedBallot::NONE {
                    return Err(Loss::Contradiction);
                }
                self.phase = Phase::Draining(*end, false);
            }
            (Phase::Starting(_), Answer::Done(said) | Answer::Refused(Reason::Armed, said)) => {
                let (ballot, Start { first, .. }) = self.start.ok_or(Loss::Contradiction)?;
                // The device was drained before, so this must be the requested start, whose
                // response was lost.
                if said.ballot != ballot {
                    return Err(Loss::Contradiction);
                }
                self.phase = Phase::Started;
                let ballot = ballot.ballot();
                desk.tell(Event::Started { ballot, first });
            }
            (Phase::Starting(_), Answer::Refused(reason, _)) => {
                let (_, Start { ballot, .. }) = self.start.take().ok_or(Loss::Contradiction)?;
                self.phase = Phase::Idle;
                desk.tell(Event::StartRefused { ballot, reason });
            }
            _ => return Err(Loss::Contradiction),
        }
        Ok(())
    }

    fn on_stands(&mut self, stands: &Stands, desk: &mut TurnContext<'_>) -> Result<(), Loss> {
        let said = stands.header;
        let next = said.voted;
        match self.phase {
            Phase::Started => {
                if Some(said.ballot) != self.ballot() {
                    return Err(Loss::Contradiction);
                }
                self.upkeep.on_next(next, desk.frames.cells());
                self.waiting.on_next(stands.asked, next);
                self.reads.on_stands(stands, desk);
            }
            Phase::Looking(serial) if stands.serial >= serial => {
                let (from, cells) = (self.upkeep.given_to(), desk.frames.cells());
                let fits = from <= next && next - from <= cells && self.upkeep.known_to() <= next;
                if said.ballot != PackedBallot::NONE || !fits {
                    return Err(Loss::Contradiction);
                }
                self.reader.clear();
                (from..next).for_each(|slot| self.reader.want(slot));
                self.phase = Phase::Reading { next };
            }
            _ => {}
        }
        Ok(())
    }

    fn on_cell(&mut self, heard: &ReceivedFrame<'_>, cells: u64) -> Result<(), Loss> {
        let said = &heard.header;
        let (Some((ballot, _)), slot) = (self.start, said.slot) else {
            return Ok(());
        };
        let taking_back = match self.phase {
            Phase::Started if said.ballot == ballot => false,
            // [offload-12] A cell read before the coordinator was stopped and drained may be
            // incomplete.
            Phase::Reading { .. } if said.ballot == PackedBallot::NONE => true,
            _ => return Ok(()),
        };
        let is_held = said.voted == ballot.0;
        if !self.reader.hear(slot) {
            return Ok(());
        }
        if !taking_back {
            // An empty cell below the next slot is still being written, and is read again later.
            return if is_held { self.on_given(heard, cells) } else { Ok(()) };
        }
        if !is_held && self.upkeep.is_known(slot) {
            return Err(Loss::Contradiction);
        }
        let held = is_held.then(|| heard.held().0);
        self.found.insert(slot, held);
        Ok(())
    }

    /// Handles the end of a drain: all steps that saw the coordinator running have ended, and their
    /// responses have arrived or are lost.
    pub(crate) fn on_drained(&mut self) {
        match self.phase {
            Phase::Draining(End::TakeBack, true) => {
                self.phase = Phase::Looking(self.ask.want());
            }
            Phase::Draining(end, true) => {
                self.phase = Phase::Idle;
                if end == End::Stop {
                    self.ends.push(Event::Stopped);
                }
            }
            _ => {}
        }
    }

    pub(crate) fn advance(&mut self, desk: &mut TurnContext<'_>) -> Result<(), Loss> {
        if matches!(self.phase, Phase::Reading { .. }) && self.reader.is_idle() {
            self.tell_taken_back(desk);
        }
        self.end(desk);
        self.begin(desk);
        desk.events.append(&mut self.ends);
        self.reads.tell_failed(desk);
        match &mut self.phase {
            Phase::Booting(call) | Phase::Stopping(call, _) | Phase::Starting(call) => {
                call.advance(desk)?;
            }
            Phase::Draining(_, begun) if !*begun => {
                *begun = true;
                desk.drain();
            }
            Phase::Started => self.keep_up(desk)?,
            Phase::Draining(..) | Phase::Looking(_) | Phase::Reading { .. } | Phase::Idle => {}
        }
        self.reader.advance(desk)?;
        self.ask.advance(desk)
    }

    fn keep_up(&mut self, desk: &mut TurnContext<'_>) -> Result<(), Loss> {
        self.upkeep.tell(desk, &mut self.waiting);
        let held = self.waiting.is_held(desk.now);
        self.upkeep.advance(desk, &mut self.reader, held)?;
        let given_to = self.upkeep.given_to();
        let doubt = self.waiting.advance(desk, given_to);
        let probe = desk.now >= self.ask.heard().plus_us(desk.pace().probe_us);
        if (doubt || probe) && !self.ask.is_open() {
            self.ask.want();
        }
        Ok(())
    }

    /// Begins the requested stop, unless it has to wait.
    fn end(&mut self, desk: &mut TurnContext<'_>) {
        let Some(wish) = self.end_wanted else {
            return;
        };
        match &mut self.phase {
            // The assigned slots are unknown until the outcome of the start is. A plain stop does
            // not need them.
            Phase::Starting(_) if wish == End::TakeBack => return,
            Phase::Booting(_) => return,
            Phase::Starting(_) | Phase::Started => {
                self.upkeep.pause();
                self.reader.clear();
                self.found.clear();
                self.phase = stopping(wish, desk);
            }
            Phase::Stopping(_, end) | Phase::Draining(end, _) => match (&end, wish) {
                (End::TakeBack, End::TakeBack) => {}
                (End::Begin | End::Stop, _) | (_, End::Stop | End::Begin) => *end = End::Stop,
            },
            // The device is already drained, which suffices for a stop without a withdrawal.
            Phase::Looking(_) | Phase::Reading { .. } if wish == End::Stop => {
                self.reader.clear();
                self.phase = Phase::Idle;
                self.ends.push(Event::Stopped);
            }
            Phase::Looking(_) | Phase::Reading { .. } => {}
            Phase::Idle => self.ends.push(Event::Stopped),
        }
        self.end_wanted = None;
    }

    /// Begins the requested start once the previous one has ended.
    fn begin(&mut self, desk: &mut TurnContext<'_>) {
        if !matches!(self.phase, Phase::Idle) {
            return;
        }
        let Some((ballot, start)) = self.wanted.take() else {
            return;
        };
        let header = desk.frames.start(ballot, &start);
        self.start = Some((ballot, start));
        self.upkeep.begin(start.first.0, start.limit.0);
        self.reader.clear();
        self.ask.forget();
        self.waiting.forget_sent();
        self.phase = Phase::Starting(Call::new(Program::Coordinator, header));
    }

    fn tell_taken_back(&mut self, desk: &mut TurnContext<'_>) {
        let (Phase::Reading { next }, Some((ballot, _))) = (&self.phase, self.start.take()) else {
            return;
        };
        let next = Slot(*next);
        let (mut given, mut holes) = (Vec::new(), Vec::new());
        for (slot, held) in core::mem::take(&mut self.found) {
            match held {
                Some(held) => given.push(held),
                None => holes.push(Slot(slot)),
            }
        }
        self.waiting.on_taken_back(&given, desk.frames.shape().room);
        self.phase = Phase::Idle;
        desk.tell(Event::Withdrawn { ballot: ballot.ballot(), next, given, holes });
    }

    /// Returns whether a response of the device is overdue.
    pub(crate) fn is_late(&self, pace: &Pace) -> bool {
        let call = match &self.phase {
            Phase::Booting(call) | Phase::Stopping(call, _) | Phase::Starting(call) => Some(call),
            _ => None,
        };
        self.ask.is_late(pace)
            || self.reader.is_late(pace)
            || call.into_iter().chain(self.upkeep.call()).any(|call| call.is_late(pace))
    }

    pub(crate) const fn is_booted(&self) -> bool {
        !matches!(self.phase, Phase::Booting(_))
    }

    pub(crate) fn due(&self, pace: &Pace) -> impl Iterator<Item = Time> {
        let (call, started) = match &self.phase {
            Phase::Booting(call) | Phase::Stopping(call, _) | Phase::Starting(call) => {
                (Some(call.due(pace)), false)
            }
            Phase::Started => (Some(self.ask.heard().plus_us(pace.probe_us)), true),
            _ => (None, false),
        };
        let upkeep = self.upkeep.due(pace).chain(self.waiting.due(pace));
        let questions = [call, self.reader.due(), self.ask.due(pace)];
        let all = questions.into_iter().flatten();
        all.chain(upkeep.filter(move |_| started))
    }
}

fn stopping(end: End, desk: &TurnContext<'_>) -> Phase {
    let stop = desk.frames.plain(Program::Coordinator, Type::Fence);
    Phase::Stopping(Call::new(Program::Coordinator, stop), end)
}
