//! Driver of the device's acceptor: arms it, fences it, and reports its votes.

use alloc::{collections::BTreeMap, vec::Vec};

use crate::{
    Header, PackedBallot, Reason, Type,
    port::{Program, Shape},
};
use quorate_core::{ballot::Ballot, slot::Slot, time::Time};

use crate::owner::{
    ask::{Serial, Stands, StateQueries},
    call::{Answer, Call},
    desk::TurnContext,
    event::{Event, Loss, SlotValue},
    frames::{ReceivedFrame, pack},
    reader::Reader,
    settings::Pace,
    tap::Tap,
};

#[derive(Clone, Copy, Debug)]
struct Arm {
    ballot: PackedBallot,
    position: u8,
    floor: u64,
}

/// Phase in controlling the acceptor.
#[derive(Debug)]
enum Phase {
    Booting(Call),
    /// This owner has not armed the acceptor.
    Idle,
    /// Arming was requested. The acceptor may already vote.
    Arming(Call),
    Armed,
    /// [offload-8] First step of a fence, followed by `Draining`, `Reading` and `Checking`.
    Disarming(Call),
    Draining {
        begun: bool,
    },
    Reading,
    Checking(Serial),
}

/// Arms and fences one acceptor, and reports its votes.
#[derive(Debug)]
pub(crate) struct AcceptorDriver {
    phase: Phase,
    armed: Option<Arm>,
    /// Parameters to arm with once earlier requests are complete.
    wanted: Option<Arm>,
    /// Set if a fence has been requested but has not begun.
    fence_wanted: bool,
    /// Set if the votes must be read out by the requested fence, or by one in progress that has not
    /// drained yet.
    reads_out: bool,
    /// Set if the fence in progress does not read out the votes.
    is_unread: bool,
    /// Set if the acceptor may contain votes that no fence has reported.
    must_read: bool,
    pub(crate) tap: Tap,
    /// Votes read by a fence, by slot, each with its ballot.
    found: BTreeMap<u64, (PackedBallot, SlotValue)>,
    reader: Reader,
    ask: StateQueries,
    /// Events to report that need no response of the device.
    ends: Vec<Event>,
}

impl AcceptorDriver {
    pub(crate) fn new(boot: Header, shape: &Shape) -> Self {
        Self {
            phase: Phase::Booting(Call::new(Program::Acceptor, boot)),
            armed: None,
            wanted: None,
            fence_wanted: false,
            reads_out: false,
            is_unread: false,
            // An earlier owner may have armed the acceptor, so there may be votes.
            must_read: true,
            tap: Tap::new(shape),
            found: BTreeMap::new(),
            reader: Reader::new(Program::Acceptor),
            ask: StateQueries::new(Program::Acceptor),
            ends: Vec::new(),
        }
    }

    /// [offload-5] Requests to arm the acceptor in a ballot.
    pub(crate) fn arm(&mut self, ballot: Ballot, position: u8, floor: Slot) {
        let refuse = |reason| Event::ArmRefused { ballot, reason };
        let (Some(packed), 0..16) = (pack(ballot), position) else {
            self.ends.push(refuse(Reason::Range));
            return;
        };
        let arm = Arm { ballot: packed, position, floor: floor.0 };
        let other = |arm: &Arm| (arm.ballot, arm.position) != (packed, position);
        // [offload-17] A different record requires a fence first.
        let fenced = self.fence_wanted || self.is_fencing();
        if !fenced && self.armed.as_ref().is_some_and(other) {
            self.ends.push(refuse(Reason::Armed));
            return;
        }
        if let Some(before) = self.wanted.take_if(|arm| other(arm)) {
            self.ends
                .push(Event::ArmRefused { ballot: before.ballot.ballot(), reason: Reason::Ballot });
        }
        self.wanted = Some(arm);
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
        self.wanted = None;
        match self.phase {
            Phase::Disarming(_) | Phase::Draining { .. } => self.reads_out = true,
            Phase::Reading | Phase::Checking(_) if !self.is_unread => {}
            _ => (self.fence_wanted, self.reads_out) = (true, true),
        }
    }

    /// Requests a fence that does not read out the votes.
    pub(crate) fn disarm(&mut self) {
        self.wanted = None;
        self.fence_wanted |= !self.is_fencing();
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
    ) -> Result<(), Loss> {
        let said = &heard.header;
        match said.kind {
            Type::Phase2b if self.ballot() == Some(said.ballot) => self.tap.on_vote(heard, desk),
            Type::Cell => self.on_cell(heard, desk),
            Type::Done | Type::Refused => {
                if let Some(stands) = self.ask.hear(said, desk.now, desk.settings.owner_boot) {
                    return self.on_stands(&stands, desk);
                }
                let settings = desk.settings;
                if self.tap.hear(said, settings) {
                    return Ok(());
                }
                let call = match &mut self.phase {
                    Phase::Booting(call) | Phase::Arming(call) | Phase::Disarming(call) => call,
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
                self.tap.floor = said.slot;
                self.phase = Phase::Idle;
            }
            (Phase::Arming(_), Answer::Done(said)) => {
                let armed = self.armed.ok_or(Loss::Contradiction)?;
                if (said.ballot, said.position) != (armed.ballot, armed.position) {
                    return Err(Loss::Contradiction);
                }
                self.tap.floor = said.slot;
                self.phase = Phase::Armed;
                let ballot = armed.ballot.ballot();
                desk.tell(Event::Armed { ballot });
            }
            (Phase::Arming(_), Answer::Refused(reason, said)) => {
                let armed = self.armed.ok_or(Loss::Contradiction)?;
                // A repeated call may be refused although the acceptor is armed.
                self.phase = if said.ballot == armed.ballot {
                    Phase::Armed
                } else {
                    self.armed = None;
                    Phase::Idle
                };
                let ballot = armed.ballot.ballot();
                desk.tell(Event::ArmRefused { ballot, reason });
            }
            (Phase::Disarming(_), Answer::Done(said)) => {
                if said.ballot != PackedBallot::NONE {
                    return Err(Loss::Contradiction);
                }
                self.tap.floor = said.slot;
                self.phase = Phase::Draining { begun: false };
            }
            _ => return Err(Loss::Contradiction),
        }
        Ok(())
    }

    fn on_stands(&mut self, stands: &Stands, desk: &mut TurnContext<'_>) -> Result<(), Loss> {
        let said = stands.header;
        match self.phase {
            // [offload-8] This response proves that the boot was still the same after all cells
            // were read.
            Phase::Checking(serial) if stands.serial >= serial => {
                if said.ballot != PackedBallot::NONE {
                    return Err(Loss::Contradiction);
                }
                self.tell_fenced(desk);
            }
            // Another owner disarmed the acceptor.
            Phase::Armed if Some(said.ballot) != self.ballot() => return Err(Loss::Contradiction),
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
        if !self.reader.hear(said.slot) || said.voted == 0 {
            return;
        }
        if fencing {
            let (vote, _) = heard.held();
            let of = PackedBallot(said.voted);
            self.found.insert(said.slot, (of, vote));
        } else if said.voted == said.ballot.0 {
            self.tap.on_vote(heard, desk);
        }
    }

    /// Handles the end of a drain: all steps that saw the acceptor armed have ended, and their
    /// responses have arrived or are lost.
    pub(crate) fn on_drained(&mut self, cells: u64) {
        if matches!(self.phase, Phase::Draining { begun: true }) {
            self.reader.clear();
            self.is_unread = !core::mem::take(&mut self.reads_out);
            if !self.is_unread {
                let floor = self.tap.floor;
                // [offload-8] All cells are read, because there may be votes after a gap.
                (floor..floor.saturating_add(cells)).for_each(|slot| self.reader.want(slot));
            }
            self.phase = Phase::Reading;
        }
    }

    pub(crate) fn advance(&mut self, desk: &mut TurnContext<'_>) -> Result<(), Loss> {
        desk.events.append(&mut self.ends);
        self.begin(desk);
        match &mut self.phase {
            Phase::Booting(call) | Phase::Arming(call) | Phase::Disarming(call) => {
                call.advance(desk)?;
            }
            Phase::Draining { begun } if !*begun => {
                *begun = true;
                desk.drain();
            }
            Phase::Reading if self.reader.is_idle() => {
                self.phase = Phase::Checking(self.ask.want());
            }
            Phase::Armed => {
                if desk.now >= self.ask.heard().plus_us(desk.pace().probe_us) && !self.ask.is_open()
                {
                    self.ask.want();
                }
                self.tap.keep_up(desk, &mut self.reader)?;
            }
            Phase::Idle | Phase::Draining { .. } | Phase::Reading | Phase::Checking(_) => {}
        }
        self.reader.advance(desk)?;
        self.ask.advance(desk)
    }

    /// Returns whether a response of the device is overdue.
    pub(crate) fn is_late(&self, pace: &Pace) -> bool {
        let call = match &self.phase {
            Phase::Booting(call) | Phase::Arming(call) | Phase::Disarming(call) => Some(call),
            _ => None,
        };
        self.ask.is_late(pace)
            || self.reader.is_late(pace)
            || call.into_iter().chain(self.tap.call()).any(|call| call.is_late(pace))
    }

    pub(crate) const fn is_booted(&self) -> bool {
        !matches!(self.phase, Phase::Booting(_))
    }

    pub(crate) fn due(&self, pace: &Pace) -> impl Iterator<Item = Time> {
        let (call, armed) = match &self.phase {
            Phase::Booting(call) | Phase::Arming(call) | Phase::Disarming(call) => {
                (Some(call.due(pace)), false)
            }
            Phase::Armed => (Some(self.ask.heard().plus_us(pace.probe_us)), true),
            _ => (None, false),
        };
        let tap = self.tap.due(pace).filter(move |_| armed);
        let questions = [call, self.reader.due(), self.ask.due(pace)];
        questions.into_iter().flatten().chain(tap)
    }

    /// Begins the requested fence or arming, unless it has to wait.
    fn begin(&mut self, desk: &mut TurnContext<'_>) {
        if matches!(self.phase, Phase::Booting(_)) || self.is_fencing() {
            return;
        }
        if core::mem::take(&mut self.fence_wanted) {
            self.found.clear();
            self.reader.clear();
            self.tap.pause();
            // While there may be unread votes, every fence reads them out.
            if self.must_read {
                let fence = desk.frames.plain(Program::Acceptor, Type::Fence);
                self.phase = Phase::Disarming(Call::new(Program::Acceptor, fence));
                return;
            }
            (self.reads_out, self.is_unread) = (false, false);
            self.tell_fenced(desk);
        }
        if matches!(self.phase, Phase::Arming(_)) {
            return;
        }
        let Some(arm) = self.wanted.take() else {
            return;
        };
        self.ask.forget();
        // [offload-6] The floor never decreases. If the acceptor is armed already, its floor may
        // have been raised since.
        let again = self.armed.is_some();
        let floor = if again { arm.floor.max(self.tap.floor) } else { arm.floor };
        self.tap.begin(floor, again);
        let header = Header {
            position: arm.position,
            slot: floor,
            ballot: arm.ballot,
            ..desk.frames.plain(Program::Acceptor, Type::Arm)
        };
        (self.armed, self.must_read) = (Some(Arm { floor, ..arm }), true);
        self.phase = Phase::Arming(Call::new(Program::Acceptor, header));
    }

    fn tell_fenced(&mut self, desk: &mut TurnContext<'_>) {
        let found = core::mem::take(&mut self.found);
        let armed = self.armed.take().map(|arm| arm.ballot);
        let ballot = armed.or_else(|| found.values().map(|(ballot, _)| *ballot).max());
        let votes = found.into_values();
        let votes = votes.filter_map(|(of, vote)| (Some(of) == ballot).then_some(vote));
        desk.tell(Event::Fenced {
            ballot: ballot.map(PackedBallot::ballot),
            votes: votes.collect(),
        });
        self.must_read = self.is_unread;
        self.phase = Phase::Idle;
    }
}
