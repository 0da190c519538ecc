//! Driver of the device's coordinator: starts it, revokes its allocation, and answers reads.

use alloc::{collections::BTreeMap, vec::Vec};

use crate::{
    Header, PackedBallot, Reason, Type,
    port::{DeviceShape, Program},
};
use quorate_core::{slot::Slot, time::Time};

use crate::owner::{
    ask::{QueriedState, QuerySerial, StateQueries},
    call::{CallResponse, ControlCall},
    desk::TurnContext,
    event::{Event, LossReason, SlotValue, Start},
    frames::{ReceivedFrame, pack_ballot},
    reader::CellReader,
    reads::NextSlotReads,
    settings::Timeouts,
    upkeep::AssignedSlots,
    waiting::SubmittedValues,
};

/// Reason for stopping the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopReason {
    /// The owner has just begun, and an earlier owner may have left the coordinator started.
    OwnerStarted,
    Stop,
    Withdrawal,
}

/// Phase in controlling the coordinator.
#[derive(Debug)]
enum CoordinatorPhase {
    Booting(ControlCall),
    /// [offload-12] First step of stopping, followed by `Draining`, and in a withdrawal by
    /// `Querying` and `Reading`.
    Stopping(ControlCall, StopReason),
    Draining(StopReason, bool),
    Querying(QuerySerial),
    Reading {
        next: u64,
    },
    Idle,
    /// The start was requested. The coordinator may already assign slots.
    Starting(ControlCall),
    Started,
}

/// Starts and stops one coordinator, and reports the slots that it assigns.
#[derive(Debug)]
pub(crate) struct CoordinatorDriver {
    phase: CoordinatorPhase,
    /// Parameters of the latest start, complete or pending.
    start: Option<(PackedBallot, Start)>,
    /// Start that has to wait until the previous one has ended.
    waiting_start: Option<(PackedBallot, Start)>,
    /// Requested stop that has not begun.
    requested_stop: Option<StopReason>,
    pub(crate) assigned_slots: AssignedSlots,
    pub(crate) submitted_values: SubmittedValues,
    /// Cells read during a withdrawal, by slot. `None` is an assigned slot without a value.
    withdrawn_cells: BTreeMap<u64, Option<SlotValue>>,
    reader: CellReader,
    ask: StateQueries,
    slot_reads: NextSlotReads,
    /// Events to report that need no response of the device.
    pending_events: Vec<Event>,
}

impl CoordinatorDriver {
    pub(crate) fn new(boot: Header, shape: &DeviceShape, window: u64) -> Self {
        Self {
            phase: CoordinatorPhase::Booting(ControlCall::new(Program::Coordinator, boot)),
            start: None,
            waiting_start: None,
            requested_stop: None,
            assigned_slots: AssignedSlots::new(shape),
            submitted_values: SubmittedValues::new(window),
            withdrawn_cells: BTreeMap::new(),
            reader: CellReader::new(Program::Coordinator),
            ask: StateQueries::new(Program::Coordinator),
            slot_reads: NextSlotReads::default(),
            pending_events: Vec::new(),
        }
    }

    /// [offload-5] Requests a start of the coordinator.
    pub(crate) fn start(&mut self, start: Start) {
        let Start { ballot, .. } = start;
        let refuse = |reason| Event::StartRefused { ballot, reason };
        let goes_on =
            matches!(self.phase, CoordinatorPhase::Starting(_) | CoordinatorPhase::Started);
        match pack_ballot(ballot).filter(|_| start.first >= Slot::FIRST) {
            None => self.pending_events.push(refuse(Reason::Range)),
            Some(_)
                if self.waiting_start.is_some() || (goes_on && self.requested_stop.is_none()) =>
            {
                self.pending_events.push(refuse(Reason::Armed));
            }
            Some(packed) => {
                self.assigned_slots.forget_limit();
                self.waiting_start = Some((packed, start));
            }
        }
    }

    /// [offload-12] Requests the withdrawal of the coordinator's allocation.
    pub(crate) fn request_withdrawal(&mut self) {
        self.waiting_start = None;
        self.slot_reads.fail_all();
        self.requested_stop.get_or_insert(StopReason::Withdrawal);
    }

    pub(crate) fn stop(&mut self) {
        self.waiting_start = None;
        self.slot_reads.fail_all();
        self.requested_stop = Some(StopReason::Stop);
    }

    /// [offload-18] Queues a read of the next slot. Its query is sent after this call.
    pub(crate) fn queue_slot_read(&mut self, token: u64) {
        let is_started = self.is_started();
        self.slot_reads.push(token, is_started, &mut self.ask);
    }

    fn is_started(&self) -> bool {
        matches!(self.phase, CoordinatorPhase::Started) && self.requested_stop.is_none()
    }

    /// Returns the ballot in which the coordinator is started or being started, or `None` if it is
    /// stopped. Only slots of this ballot are reported.
    pub(crate) fn ballot(&self) -> Option<PackedBallot> {
        let gives = matches!(self.phase, CoordinatorPhase::Starting(_) | CoordinatorPhase::Started);
        self.start.filter(|_| gives).map(|(ballot, _)| ballot)
    }

    /// Handles the report that the device dropped frames for lack of space.
    pub(crate) fn on_frames_lost(&mut self) {
        if self.is_started() {
            self.ask.schedule_query();
        }
    }

    /// Records the value of a slot of the current start, as reported by the device's acceptor or
    /// coordinator.
    pub(crate) fn on_assigned(
        &mut self,
        heard: &ReceivedFrame<'_>,
        cells: u64,
    ) -> Result<(), LossReason> {
        let (held, _) = heard.slot_value();
        self.assigned_slots.record_value(heard.header.value, held, cells)
    }

    /// Handles a frame from the device's coordinator. The caller has checked the frame's boot.
    pub(crate) fn hear(
        &mut self,
        heard: &ReceivedFrame<'_>,
        desk: &mut TurnContext<'_>,
    ) -> Result<(), LossReason> {
        let said = &heard.header;
        // This is the refusal of a submitted value. A start also has a kind, but its slot is not 0.
        if said.kind == Type::Refused && said.value.kind != 0 && said.slot == 0 {
            self.submitted_values.on_refused(&said.value, desk.now, &desk.settings.timeouts);
            return Ok(());
        }
        match said.kind {
            Type::Cell => return self.on_cell(heard, desk.frames.cells()),
            Type::Done | Type::Refused => {
                if let Some(stands) = self.ask.on_frame(said, desk.now, desk.settings.owner_boot) {
                    return self.on_state(&stands, desk);
                }
                let settings = desk.settings;
                if self.assigned_slots.hear(said, settings, &mut self.submitted_values) {
                    return Ok(());
                }
                let call = match &mut self.phase {
                    CoordinatorPhase::Booting(call)
                    | CoordinatorPhase::Stopping(call, _)
                    | CoordinatorPhase::Starting(call) => call,
                    _ => return Ok(()),
                };
                if let Some(answer) = call.on_frame(said, settings) {
                    return self.on_answer(answer, desk);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn on_answer(
        &mut self,
        answer: CallResponse,
        desk: &mut TurnContext<'_>,
    ) -> Result<(), LossReason> {
        match (&self.phase, answer) {
            (_, CallResponse::Refused(Reason::Boot, said)) => {
                return Err(LossReason::Boot { found: said.boot });
            }
            (CoordinatorPhase::Booting(_), CallResponse::Done(said)) => {
                desk.check_booted(&said)?;
                self.phase = phase_after_stop(StopReason::OwnerStarted, desk);
            }
            (CoordinatorPhase::Stopping(_, end), CallResponse::Done(said)) => {
                if said.ballot != PackedBallot::NONE {
                    return Err(LossReason::Contradiction);
                }
                self.phase = CoordinatorPhase::Draining(*end, false);
            }
            (
                CoordinatorPhase::Starting(_),
                CallResponse::Done(said) | CallResponse::Refused(Reason::Armed, said),
            ) => {
                let (ballot, Start { first, .. }) = self.start.ok_or(LossReason::Contradiction)?;
                // The device was drained before, so this must be the requested start, whose
                // response was lost.
                if said.ballot != ballot {
                    return Err(LossReason::Contradiction);
                }
                self.phase = CoordinatorPhase::Started;
                let ballot = ballot.unpack();
                desk.push_event(Event::Started { ballot, first });
            }
            (CoordinatorPhase::Starting(_), CallResponse::Refused(reason, _)) => {
                let (_, Start { ballot, .. }) =
                    self.start.take().ok_or(LossReason::Contradiction)?;
                self.phase = CoordinatorPhase::Idle;
                desk.push_event(Event::StartRefused { ballot, reason });
            }
            _ => return Err(LossReason::Contradiction),
        }
        Ok(())
    }

    fn on_state(
        &mut self,
        stands: &QueriedState,
        desk: &mut TurnContext<'_>,
    ) -> Result<(), LossReason> {
        let said = stands.header;
        let next = said.voted;
        match self.phase {
            CoordinatorPhase::Started => {
                if Some(said.ballot) != self.ballot() {
                    return Err(LossReason::Contradiction);
                }
                self.assigned_slots.on_next_slot(next, desk.frames.cells());
                self.submitted_values.on_next_slot(stands.queried_at, next);
                self.slot_reads.on_state(stands, desk);
            }
            CoordinatorPhase::Querying(serial) if stands.serial >= serial => {
                let (from, cells) = (self.assigned_slots.reported_to(), desk.frames.cells());
                let fits =
                    from <= next && next - from <= cells && self.assigned_slots.known_end() <= next;
                if said.ballot != PackedBallot::NONE || !fits {
                    return Err(LossReason::Contradiction);
                }
                self.reader.clear();
                (from..next).for_each(|slot| self.reader.read_slot(slot));
                self.phase = CoordinatorPhase::Reading { next };
            }
            _ => {}
        }
        Ok(())
    }

    fn on_cell(&mut self, heard: &ReceivedFrame<'_>, cells: u64) -> Result<(), LossReason> {
        let said = &heard.header;
        let (Some((ballot, _)), slot) = (self.start, said.slot) else {
            return Ok(());
        };
        let taking_back = match self.phase {
            CoordinatorPhase::Started if said.ballot == ballot => false,
            // [offload-12] A cell read before the coordinator was stopped and drained may be
            // incomplete.
            CoordinatorPhase::Reading { .. } if said.ballot == PackedBallot::NONE => true,
            _ => return Ok(()),
        };
        let is_held = said.voted == ballot.0;
        if !self.reader.on_cell_read(slot) {
            return Ok(());
        }
        if !taking_back {
            // An empty cell below the next slot is still being written, and is read again later.
            return if is_held { self.on_assigned(heard, cells) } else { Ok(()) };
        }
        if !is_held && self.assigned_slots.is_known(slot) {
            return Err(LossReason::Contradiction);
        }
        let held = is_held.then(|| heard.slot_value().0);
        self.withdrawn_cells.insert(slot, held);
        Ok(())
    }

    /// Handles the end of a drain: all steps that saw the coordinator running have ended, and their
    /// responses have arrived or are lost.
    pub(crate) fn on_drain_complete(&mut self) {
        match self.phase {
            CoordinatorPhase::Draining(StopReason::Withdrawal, true) => {
                self.phase = CoordinatorPhase::Querying(self.ask.schedule_query());
            }
            CoordinatorPhase::Draining(end, true) => {
                self.phase = CoordinatorPhase::Idle;
                if end == StopReason::Stop {
                    self.pending_events.push(Event::Stopped);
                }
            }
            _ => {}
        }
    }

    pub(crate) fn advance(&mut self, desk: &mut TurnContext<'_>) -> Result<(), LossReason> {
        if matches!(self.phase, CoordinatorPhase::Reading { .. }) && self.reader.is_idle() {
            self.report_withdrawn(desk);
        }
        self.begin_stop(desk);
        self.begin_start(desk);
        desk.events.append(&mut self.pending_events);
        self.slot_reads.report_failed(desk);
        match &mut self.phase {
            CoordinatorPhase::Booting(call)
            | CoordinatorPhase::Stopping(call, _)
            | CoordinatorPhase::Starting(call) => {
                call.send_if_due(desk)?;
            }
            CoordinatorPhase::Draining(_, begun) if !*begun => {
                *begun = true;
                desk.begin_drain();
            }
            CoordinatorPhase::Started => self.do_due_work(desk)?,
            CoordinatorPhase::Draining(..)
            | CoordinatorPhase::Querying(_)
            | CoordinatorPhase::Reading { .. }
            | CoordinatorPhase::Idle => {}
        }
        self.reader.advance(desk)?;
        self.ask.send_due(desk)
    }

    fn do_due_work(&mut self, desk: &mut TurnContext<'_>) -> Result<(), LossReason> {
        self.assigned_slots.report_in_order(desk, &mut self.submitted_values);
        let held = self.submitted_values.is_held(desk.now);
        self.assigned_slots.do_due_work(desk, &mut self.reader, held)?;
        let given_to = self.assigned_slots.reported_to();
        let doubt = self.submitted_values.send_due(desk, given_to);
        let probe =
            desk.now >= self.ask.last_response_at().plus_us(desk.timeouts().probe_interval_us);
        if (doubt || probe) && !self.ask.is_open() {
            self.ask.schedule_query();
        }
        Ok(())
    }

    /// Begins the requested stop, unless it has to wait.
    fn begin_stop(&mut self, desk: &mut TurnContext<'_>) {
        let Some(wish) = self.requested_stop else {
            return;
        };
        match &mut self.phase {
            // The assigned slots are unknown until the outcome of the start is. A plain stop does
            // not need them.
            CoordinatorPhase::Starting(_) if wish == StopReason::Withdrawal => return,
            CoordinatorPhase::Booting(_) => return,
            CoordinatorPhase::Starting(_) | CoordinatorPhase::Started => {
                self.assigned_slots.cancel_work();
                self.reader.clear();
                self.withdrawn_cells.clear();
                self.phase = phase_after_stop(wish, desk);
            }
            CoordinatorPhase::Stopping(_, end) | CoordinatorPhase::Draining(end, _) => {
                match (&end, wish) {
                    (StopReason::Withdrawal, StopReason::Withdrawal) => {}
                    (StopReason::OwnerStarted | StopReason::Stop, _)
                    | (_, StopReason::Stop | StopReason::OwnerStarted) => *end = StopReason::Stop,
                }
            }
            // The device is already drained, which suffices for a stop without a withdrawal.
            CoordinatorPhase::Querying(_) | CoordinatorPhase::Reading { .. }
                if wish == StopReason::Stop =>
            {
                self.reader.clear();
                self.phase = CoordinatorPhase::Idle;
                self.pending_events.push(Event::Stopped);
            }
            CoordinatorPhase::Querying(_) | CoordinatorPhase::Reading { .. } => {}
            CoordinatorPhase::Idle => self.pending_events.push(Event::Stopped),
        }
        self.requested_stop = None;
    }

    /// Begins the requested start once the previous one has ended.
    fn begin_start(&mut self, desk: &mut TurnContext<'_>) {
        if !matches!(self.phase, CoordinatorPhase::Idle) {
            return;
        }
        let Some((ballot, start)) = self.waiting_start.take() else {
            return;
        };
        let header = desk.frames.start(ballot, &start);
        self.start = Some((ballot, start));
        self.assigned_slots.begin(start.first.0, start.limit.0);
        self.reader.clear();
        self.ask.abandon_all();
        self.submitted_values.mark_all_unsent();
        self.phase = CoordinatorPhase::Starting(ControlCall::new(Program::Coordinator, header));
    }

    fn report_withdrawn(&mut self, desk: &mut TurnContext<'_>) {
        let (CoordinatorPhase::Reading { next }, Some((ballot, _))) =
            (&self.phase, self.start.take())
        else {
            return;
        };
        let next = Slot(*next);
        let (mut given, mut holes) = (Vec::new(), Vec::new());
        for (slot, held) in core::mem::take(&mut self.withdrawn_cells) {
            match held {
                Some(held) => given.push(held),
                None => holes.push(Slot(slot)),
            }
        }
        self.submitted_values.on_withdrawn(&given, desk.frames.shape().room);
        self.phase = CoordinatorPhase::Idle;
        desk.push_event(Event::Withdrawn {
            ballot: ballot.unpack(),
            next,
            unreported_slots: given,
            slots_without_value: holes,
        });
    }

    /// Returns whether a response of the device is overdue.
    pub(crate) fn is_late(&self, pace: &Timeouts) -> bool {
        let call = match &self.phase {
            CoordinatorPhase::Booting(call)
            | CoordinatorPhase::Stopping(call, _)
            | CoordinatorPhase::Starting(call) => Some(call),
            _ => None,
        };
        self.ask.is_late(pace)
            || self.reader.is_late(pace)
            || call.into_iter().chain(self.assigned_slots.call()).any(|call| call.is_late(pace))
    }

    pub(crate) const fn is_booted(&self) -> bool {
        !matches!(self.phase, CoordinatorPhase::Booting(_))
    }

    pub(crate) fn due_times(&self, pace: &Timeouts) -> impl Iterator<Item = Time> {
        let (call, started) = match &self.phase {
            CoordinatorPhase::Booting(call)
            | CoordinatorPhase::Stopping(call, _)
            | CoordinatorPhase::Starting(call) => (Some(call.next_due_at(pace)), false),
            CoordinatorPhase::Started => {
                (Some(self.ask.last_response_at().plus_us(pace.probe_interval_us)), true)
            }
            _ => (None, false),
        };
        let upkeep =
            self.assigned_slots.due_times(pace).chain(self.submitted_values.next_due_at(pace));
        let questions = [call, self.reader.next_due_at(), self.ask.next_due_at(pace)];
        let all = questions.into_iter().flatten();
        all.chain(upkeep.filter(move |_| started))
    }
}

fn phase_after_stop(end: StopReason, desk: &TurnContext<'_>) -> CoordinatorPhase {
    let stop = desk.frames.empty_header(Program::Coordinator, Type::Fence);
    CoordinatorPhase::Stopping(ControlCall::new(Program::Coordinator, stop), end)
}
