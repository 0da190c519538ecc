//! Driver of the device's acceptor: arms it, fences it, and reports its votes.

use alloc::{collections::BTreeMap, vec::Vec};

use crate::{
    Header, PackedBallot, Reason, Type,
    port::{DeviceShape, Program},
};
use quorate_core::{ballot::Ballot, slot::Slot, time::Time};

use crate::owner::{
    ask::{QueriedState, QuerySerial, StateQueries},
    call::{CallResponse, ControlCall},
    desk::TurnContext,
    event::{Event, LossReason, SlotValue},
    frames::{ReceivedFrame, pack_ballot},
    reader::CellReader,
    settings::Timeouts,
    tap::VoteTap,
};

#[derive(Clone, Copy, Debug)]
struct ArmRequest {
    ballot: PackedBallot,
    position: u8,
    floor: u64,
}

/// Phase in controlling the acceptor.
#[derive(Debug)]
enum Phase {
    Booting(ControlCall),
    /// This owner has not armed the acceptor.
    Idle,
    /// Arming was requested. The acceptor may already vote.
    Arming(ControlCall),
    Armed,
    /// [offload-8] First step of a fence, followed by `Draining`, `Reading` and `Checking`.
    Disarming(ControlCall),
    Draining {
        begun: bool,
    },
    Reading,
    Checking(QuerySerial),
}

/// Arms and fences one acceptor, and reports its votes.
#[derive(Debug)]
pub(crate) struct AcceptorDriver {
    phase: Phase,
    armed: Option<ArmRequest>,
    /// Parameters to arm with once earlier requests are complete.
    waiting_arm: Option<ArmRequest>,
    /// Set if a fence has been requested but has not begun.
    fence_requested: bool,
    /// Set if the votes must be read out by the requested fence, or by one in progress that has not
    /// drained yet.
    must_read_out: bool,
    /// Set if the fence in progress does not read out the votes.
    skips_read_out: bool,
    /// Set if the acceptor may contain votes that no fence has reported.
    has_unreported_votes: bool,
    pub(crate) tap: VoteTap,
    /// Votes read by a fence, by slot, each with its ballot.
    votes_read: BTreeMap<u64, (PackedBallot, SlotValue)>,
    reader: CellReader,
    state_queries: StateQueries,
    /// Events to report that need no response of the device.
    pending_events: Vec<Event>,
}

impl AcceptorDriver {
    pub(crate) fn new(boot: Header, shape: &DeviceShape) -> Self {
        Self {
            phase: Phase::Booting(ControlCall::new(Program::Acceptor, boot)),
            armed: None,
            waiting_arm: None,
            fence_requested: false,
            must_read_out: false,
            skips_read_out: false,
            // An earlier owner may have armed the acceptor, so there may be votes.
            has_unreported_votes: true,
            tap: VoteTap::new(shape),
            votes_read: BTreeMap::new(),
            reader: CellReader::new(Program::Acceptor),
            state_queries: StateQueries::new(Program::Acceptor),
            pending_events: Vec::new(),
        }
    }

    /// [offload-5] Requests to arm the acceptor in a ballot.
    pub(crate) fn arm(&mut self, ballot: Ballot, position: u8, floor: Slot) {
        let refuse = |reason| Event::ArmRefused { ballot, reason };
        let (Some(packed), 0..16) = (pack_ballot(ballot), position) else {
            self.pending_events.push(refuse(Reason::Range));
            return;
        };
        let arm = ArmRequest { ballot: packed, position, floor: floor.0 };
        let other = |arm: &ArmRequest| (arm.ballot, arm.position) != (packed, position);
        // [offload-17] A different record requires a fence first.
        let fenced = self.fence_requested || self.is_fencing();
        if !fenced && self.armed.as_ref().is_some_and(other) {
            self.pending_events.push(refuse(Reason::Armed));
            return;
        }
        if let Some(before) = self.waiting_arm.take_if(|arm| other(arm)) {
            self.pending_events
                .push(Event::ArmRefused { ballot: before.ballot.unpack(), reason: Reason::Ballot });
        }
        self.waiting_arm = Some(arm);
    }

    const fn is_fencing(&self) -> bool {
        matches!(
            self.phase,
            Phase::Disarming(_) | Phase::Draining { .. } | Phase::Reading | Phase::Checking(_)
        )
    }

    /// [offload-8] Requests a fence that reads out the votes. Drops requests that have not been
    /// sent.
    pub(crate) fn fence(&mut self) {
        self.waiting_arm = None;
        match self.phase {
            Phase::Disarming(_) | Phase::Draining { .. } => self.must_read_out = true,
            Phase::Reading | Phase::Checking(_) if !self.skips_read_out => {}
            _ => (self.fence_requested, self.must_read_out) = (true, true),
        }
    }

    /// Requests a fence that does not read out the votes.
    pub(crate) fn disarm(&mut self) {
        self.waiting_arm = None;
        self.fence_requested |= !self.is_fencing();
    }

    /// Returns the ballot in which the acceptor is armed or being armed. Only votes of this ballot
    /// are reported.
    pub(crate) fn ballot(&self) -> Option<PackedBallot> {
        let votes = matches!(self.phase, Phase::Arming(_) | Phase::Armed);
        self.armed.filter(|_| votes).map(|armed| armed.ballot)
    }

    /// Handles a frame from the device's acceptor. The caller has checked the frame's boot.
    pub(crate) fn hear(
        &mut self,
        heard: &ReceivedFrame<'_>,
        desk: &mut TurnContext<'_>,
    ) -> Result<(), LossReason> {
        let said = &heard.header;
        match said.kind {
            Type::Phase2b if self.ballot() == Some(said.ballot) => self.tap.on_vote(heard, desk),
            Type::Cell => self.on_cell(heard, desk),
            Type::Done | Type::Refused => {
                if let Some(stands) =
                    self.state_queries.on_frame(said, desk.now, desk.settings.owner_boot)
                {
                    return self.on_state(&stands, desk);
                }
                let settings = desk.settings;
                if self.tap.hear(said, settings) {
                    return Ok(());
                }
                let call = match &mut self.phase {
                    Phase::Booting(call) | Phase::Arming(call) | Phase::Disarming(call) => call,
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
            (Phase::Booting(_), CallResponse::Done(said)) => {
                desk.check_booted(&said)?;
                self.tap.floor = said.slot;
                self.phase = Phase::Idle;
            }
            (Phase::Arming(_), CallResponse::Done(said)) => {
                let armed = self.armed.ok_or(LossReason::Contradiction)?;
                if (said.ballot, said.position) != (armed.ballot, armed.position) {
                    return Err(LossReason::Contradiction);
                }
                self.tap.floor = said.slot;
                self.phase = Phase::Armed;
                let ballot = armed.ballot.unpack();
                desk.push_event(Event::Armed { ballot });
            }
            (Phase::Arming(_), CallResponse::Refused(reason, said)) => {
                let armed = self.armed.ok_or(LossReason::Contradiction)?;
                // A repeated call may be refused although the acceptor is armed.
                self.phase = if said.ballot == armed.ballot {
                    Phase::Armed
                } else {
                    self.armed = None;
                    Phase::Idle
                };
                let ballot = armed.ballot.unpack();
                desk.push_event(Event::ArmRefused { ballot, reason });
            }
            (Phase::Disarming(_), CallResponse::Done(said)) => {
                if said.ballot != PackedBallot::NONE {
                    return Err(LossReason::Contradiction);
                }
                self.tap.floor = said.slot;
                self.phase = Phase::Draining { begun: false };
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
        match self.phase {
            // [offload-8] This response proves that the boot was still the same after all cells
            // were read.
            Phase::Checking(serial) if stands.serial >= serial => {
                if said.ballot != PackedBallot::NONE {
                    return Err(LossReason::Contradiction);
                }
                self.report_fenced(desk);
            }
            // Another owner disarmed the acceptor.
            Phase::Armed if Some(said.ballot) != self.ballot() => {
                return Err(LossReason::Contradiction);
            }
            _ => {}
        }
        Ok(())
    }

    fn on_cell(&mut self, heard: &ReceivedFrame<'_>, desk: &mut TurnContext<'_>) {
        let said = &heard.header;
        let fencing = match self.phase {
            // A cell read while the acceptor was armed, or read by another owner, may be outdated.
            Phase::Reading if said.ballot == PackedBallot::NONE => true,
            Phase::Armed if Some(said.ballot) == self.ballot() => false,
            _ => return,
        };
        if !self.reader.on_cell_read(said.slot) || said.voted == 0 {
            return;
        }
        if fencing {
            let (vote, _) = heard.slot_value();
            let of = PackedBallot(said.voted);
            self.votes_read.insert(said.slot, (of, vote));
        } else if said.voted == said.ballot.0 {
            self.tap.on_vote(heard, desk);
        }
    }

    /// Handles the end of a drain: all steps that saw the acceptor armed have ended, and their
    /// responses have arrived or are lost.
    pub(crate) fn on_drained(&mut self, cells: u64) {
        if matches!(self.phase, Phase::Draining { begun: true }) {
            self.reader.clear();
            self.skips_read_out = !core::mem::take(&mut self.must_read_out);
            if !self.skips_read_out {
                let floor = self.tap.floor;
                // [offload-8] All cells are read, because there may be votes after a gap.
                (floor..floor.saturating_add(cells)).for_each(|slot| self.reader.read_slot(slot));
            }
            self.phase = Phase::Reading;
        }
    }

    pub(crate) fn advance(&mut self, desk: &mut TurnContext<'_>) -> Result<(), LossReason> {
        desk.events.append(&mut self.pending_events);
        self.begin_next(desk);
        match &mut self.phase {
            Phase::Booting(call) | Phase::Arming(call) | Phase::Disarming(call) => {
                call.send_if_due(desk)?;
            }
            Phase::Draining { begun } if !*begun => {
                *begun = true;
                desk.begin_drain();
            }
            Phase::Reading if self.reader.is_idle() => {
                self.phase = Phase::Checking(self.state_queries.schedule_query());
            }
            Phase::Armed => {
                if desk.now
                    >= self
                        .state_queries
                        .last_response_at()
                        .plus_us(desk.timeouts().probe_interval_us)
                    && !self.state_queries.is_open()
                {
                    self.state_queries.schedule_query();
                }
                self.tap.do_due_work(desk, &mut self.reader)?;
            }
            Phase::Idle | Phase::Draining { .. } | Phase::Reading | Phase::Checking(_) => {}
        }
        self.reader.advance(desk)?;
        self.state_queries.send_due(desk)
    }

    /// Returns whether a response of the device is overdue.
    pub(crate) fn is_late(&self, pace: &Timeouts) -> bool {
        let call = match &self.phase {
            Phase::Booting(call) | Phase::Arming(call) | Phase::Disarming(call) => Some(call),
            _ => None,
        };
        self.state_queries.is_late(pace)
            || self.reader.is_late(pace)
            || call.into_iter().chain(self.tap.call()).any(|call| call.is_late(pace))
    }

    pub(crate) const fn is_booted(&self) -> bool {
        !matches!(self.phase, Phase::Booting(_))
    }

    pub(crate) fn due(&self, pace: &Timeouts) -> impl Iterator<Item = Time> {
        let (call, armed) = match &self.phase {
            Phase::Booting(call) | Phase::Arming(call) | Phase::Disarming(call) => {
                (Some(call.next_due_at(pace)), false)
            }
            Phase::Armed => {
                (Some(self.state_queries.last_response_at().plus_us(pace.probe_interval_us)), true)
            }
            _ => (None, false),
        };
        let tap = self.tap.due_times(pace).filter(move |_| armed);
        let questions = [call, self.reader.next_due_at(), self.state_queries.next_due_at(pace)];
        questions.into_iter().flatten().chain(tap)
    }

    /// Begins the requested fence or arming, unless it has to wait.
    fn begin_next(&mut self, desk: &mut TurnContext<'_>) {
        if matches!(self.phase, Phase::Booting(_)) || self.is_fencing() {
            return;
        }
        if core::mem::take(&mut self.fence_requested) {
            self.votes_read.clear();
            self.reader.clear();
            self.tap.cancel_work();
            // While there may be unread votes, every fence reads them out.
            if self.has_unreported_votes {
                let fence = desk.frames.empty_header(Program::Acceptor, Type::Fence);
                self.phase = Phase::Disarming(ControlCall::new(Program::Acceptor, fence));
                return;
            }
            (self.must_read_out, self.skips_read_out) = (false, false);
            self.report_fenced(desk);
        }
        if matches!(self.phase, Phase::Arming(_)) {
            return;
        }
        let Some(arm) = self.waiting_arm.take() else {
            return;
        };
        self.state_queries.abandon_all();
        // [offload-6] The floor never decreases. If the acceptor is armed already, its floor may
        // have been raised since.
        let again = self.armed.is_some();
        let floor = if again { arm.floor.max(self.tap.floor) } else { arm.floor };
        self.tap.begin_armed(floor, again);
        let header = Header {
            position: arm.position,
            slot: floor,
            ballot: arm.ballot,
            ..desk.frames.empty_header(Program::Acceptor, Type::Arm)
        };
        (self.armed, self.has_unreported_votes) = (Some(ArmRequest { floor, ..arm }), true);
        self.phase = Phase::Arming(ControlCall::new(Program::Acceptor, header));
    }

    fn report_fenced(&mut self, desk: &mut TurnContext<'_>) {
        let found = core::mem::take(&mut self.votes_read);
        let armed = self.armed.take().map(|arm| arm.ballot);
        let ballot = armed.or_else(|| found.values().map(|(ballot, _)| *ballot).max());
        let votes = found.into_values();
        let votes = votes.filter_map(|(of, vote)| (Some(of) == ballot).then_some(vote));
        desk.push_event(Event::Fenced {
            ballot: ballot.map(PackedBallot::unpack),
            votes: votes.collect(),
        });
        self.has_unreported_votes = self.skips_read_out;
        self.phase = Phase::Idle;
    }
}
