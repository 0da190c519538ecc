//! The owner's work while its coordinator is started: reports its slots in order, requests
//! retransmission of undecided proposals, and raises the floor and the limit.

use alloc::collections::BTreeMap;

use crate::{
    Descriptor, Header, Type,
    port::{Program, Shape},
};
use quorate_core::{slot::Slot, time::Time};

use crate::owner::{
    call::{Answer, Call},
    desk::TurnContext,
    event::{Event, Loss, SlotValue},
    reader::Reader,
    ring::Ring,
    settings::{Pace, Settings},
    stuck::StallTimer,
    waiting::Waiting,
};

/// Maximum number of proposals to retransmit at a time.
const TICKS_MAX: usize = 8;
/// Maximum number of unknown slots to read concurrently.
const GAPS_MAX: usize = 64;

/// Slots assigned since the coordinator was started.
#[derive(Debug)]
pub(crate) struct Upkeep {
    /// Slot below which all assigned slots have been reported.
    given_to: u64,
    /// Slots that cannot be reported yet, because the value of an earlier slot is unknown.
    ahead: BTreeMap<u64, (Descriptor, SlotValue)>,
    /// Next slot, as reported by the coordinator.
    next: u64,
    decided: Ring,
    decided_to: u64,
    floor: u64,
    limit: u64,
    /// Floor and limit to be set.
    wanted: (u64, u64),
    call: Option<Call>,
    gap: StallTimer,
    undecided: StallTimer,
    /// Backoff for raising floor or limit while nothing is in flight.
    idle: StallTimer,
}

impl Upkeep {
    pub(crate) fn new(shape: &Shape) -> Self {
        Self {
            given_to: 0,
            ahead: BTreeMap::new(),
            next: 0,
            decided: Ring::new(shape.cells.into()),
            decided_to: 0,
            floor: 0,
            limit: 0,
            wanted: (0, 0),
            call: None,
            gap: StallTimer::default(),
            undecided: StallTimer::default(),
            idle: StallTimer::default(),
        }
    }

    /// Resets the state for a start that assigns slots from `first` to `limit`.
    pub(crate) fn begin(&mut self, first: u64, limit: u64) {
        (self.given_to, self.next, self.decided_to) = (first, first, first);
        (self.floor, self.limit) = (first, limit);
        self.wanted.1 = self.wanted.1.max(limit);
        self.ahead.clear();
        self.decided.clear();
        self.call = None;
        (self.gap, self.undecided) = (StallTimer::default(), StallTimer::default());
    }

    /// Resets the limit, which belongs to one start only.
    pub(crate) const fn forget_limit(&mut self) {
        self.wanted.1 = 0;
    }

    /// Returns one past the last slot reported by [`Event::Assigned`].
    pub(crate) const fn given_to(&self) -> u64 {
        self.given_to
    }

    /// Returns one past the highest slot whose value is known, reported or not.
    pub(crate) fn known_to(&self) -> u64 {
        let ahead = self.ahead.keys().next_back();
        ahead.map_or(self.given_to, |slot| slot.saturating_add(1))
    }

    pub(crate) fn is_known(&self, slot: u64) -> bool {
        self.ahead.contains_key(&slot)
    }

    /// [offload-14] Raises the floor and limit to be set. Returns whether either changed.
    pub(crate) fn raise_floor(&mut self, floor: Slot, limit: Slot) -> bool {
        let before = self.wanted;
        self.wanted = (before.0.max(floor.0), before.1.max(limit.0));
        self.wanted != before
    }

    /// Records the value of a slot, from any source. Fails if a different value is already known
    /// ([count-1]).
    pub(crate) fn know(
        &mut self,
        named: Descriptor,
        held: SlotValue,
        cells: u64,
    ) -> Result<(), Loss> {
        let slot = held.slot.0;
        if slot < self.given_to || slot - self.given_to >= cells {
            return Ok(());
        }
        let (before, _) = self.ahead.entry(slot).or_insert((named, held));
        if *before == named { Ok(()) } else { Err(Loss::Contradiction) }
    }

    /// Reports the slots that are next in order and whose values are known.
    pub(crate) fn tell(&mut self, desk: &mut TurnContext<'_>, waiting: &mut Waiting) {
        while let Some((named, held)) = self.ahead.remove(&self.given_to) {
            waiting.on_given(&named);
            desk.tell(Event::Assigned(held));
            self.given_to += 1;
        }
    }

    pub(crate) fn on_decided(&mut self, slot: u64) {
        if slot >= self.decided_to && slot - self.decided_to < self.decided.cells() {
            self.decided.see(slot);
        }
    }

    pub(crate) fn on_next(&mut self, next: u64, cells: u64) {
        self.next = self.next.max(next.min(self.given_to.saturating_add(cells)));
    }

    /// Handles a response to the call that raises floor and limit. Returns `false` for any other
    /// frame.
    pub(crate) fn hear(
        &mut self,
        said: &Header,
        settings: &Settings,
        waiting: &mut Waiting,
    ) -> bool {
        let Some(answer) = self.call.as_mut().and_then(|call| call.hear(said, settings)) else {
            return false;
        };
        let header = self.call.take().map(|call| call.asked());
        if let (Answer::Done(said), Some(asked)) = (answer, header) {
            (self.floor, self.limit) = (said.slot, self.limit.max(asked.voted));
            waiting.resume();
        }
        true
    }

    /// Does all work that is due while the coordinator is started. `is_open` is set if values wait
    /// because the ring is full.
    pub(crate) fn advance(
        &mut self,
        desk: &mut TurnContext<'_>,
        reader: &mut Reader,
        is_open: bool,
    ) -> Result<(), Loss> {
        let slot_us = desk.pace().slot_us;
        // Proposals need no retransmission in slots that the replica knows to be decided.
        let decided = self.decided_to.max(self.wanted.0.min(self.given_to));
        self.decided_to = self.decided.first_unseen(decided);
        self.raise(desk, is_open)?;

        let end = self.next.max(self.known_to());
        let gap = (self.given_to < end).then_some(self.given_to);
        if self.gap.is_due(desk.now, gap, slot_us) {
            let gaps = (self.given_to..end).filter(|slot| !self.ahead.contains_key(slot));
            gaps.take(GAPS_MAX).for_each(|slot| reader.want(slot));
        }
        // [offload-19] Retransmits the oldest undecided slot and some after it, because losses
        // occur in bursts.
        let undecided = (self.decided_to < self.given_to).then_some(self.decided_to);
        if self.undecided.is_due(desk.now, undecided, slot_us) {
            let slots = (self.decided_to..self.given_to).filter(|slot| !self.decided.has(*slot));
            for slot in slots.take(TICKS_MAX) {
                let mut header = desk.frames.plain(Program::Coordinator, Type::Tick);
                header.slot = slot;
                desk.put(Program::Coordinator, &header, &[]);
            }
        }
        Ok(())
    }

    /// [offload-14] Raises floor and limit once that frees an eighth of the ring or as much as is
    /// left to assign, once a value waits, or once nothing has been in flight for a while. Values
    /// that clients submit directly to the device do not wait here.
    fn raise(&mut self, desk: &mut TurnContext<'_>, is_open: bool) -> Result<(), Loss> {
        if let Some(call) = &mut self.call {
            return call.advance(desk);
        }
        // Cells from there on have not been reported yet, and must remain readable.
        let floor = self.wanted.0.min(self.given_to).max(self.floor);
        let limit = self.wanted.1.max(self.limit);
        let gain = (floor - self.floor).max(limit - self.limit);
        let in_flight = self.decided_to < self.given_to.max(self.next);
        let idle = (gain > 0 && !in_flight).then_some(self.given_to);
        let idle = self.idle.is_due(desk.now, idle, desk.pace().slot_us);
        let left = self.limit.saturating_sub(self.decided_to).max(1);
        let is_half = limit - self.limit >= left;
        let worth = gain >= (desk.frames.cells() / 8).max(1) || is_half || is_open || idle;
        if gain == 0 || !worth {
            return Ok(());
        }
        let header = Header {
            slot: floor,
            voted: limit,
            ..desk.frames.plain(Program::Coordinator, Type::Floor)
        };
        let mut call = Call::new(Program::Coordinator, header);
        call.advance(desk)?;
        self.call = Some(call);
        Ok(())
    }

    /// Cancels all work in progress before a stop.
    pub(crate) fn pause(&mut self) {
        self.call = None;
    }

    pub(crate) const fn call(&self) -> Option<&Call> {
        self.call.as_ref()
    }

    pub(crate) fn due(&self, pace: &Pace) -> impl Iterator<Item = Time> {
        let call = self.call.as_ref().map(|call| call.due(pace));
        let stuck = [&self.gap, &self.undecided, &self.idle].map(|stuck| stuck.due(pace.slot_us));
        stuck.into_iter().chain([call]).flatten()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::{
        Address, Form,
        owner::frames::Frames,
        port::{Device, Drained, FrameOrigin},
    };

    const NOWHERE: Address = Address { mac: [0; 6], ip: [0; 4], port: 0 };
    const SHAPE: Shape = Shape {
        group: 1,
        cells: 1 << 12,
        room: 64,
        form: Form::Raw,
        own: NOWHERE,
        owner: NOWHERE,
        all_hosts: NOWHERE,
    };

    /// A device that never responds.
    struct Silent;

    impl Device for Silent {
        fn shape(&self) -> Shape {
            SHAPE
        }

        fn send(&mut self, _: &[u8]) {}

        fn put(&mut self, _: Program, _: &[u8]) {}

        fn take(&mut self, _: &mut Vec<u8>) -> Option<(Program, FrameOrigin)> {
            None
        }

        fn drain(&mut self) {}

        fn drained(&mut self) -> Drained {
            Drained::Over
        }

        fn lost(&self) -> u64 {
            0
        }
    }

    /// [offload-14] Clients keep the coordinator busy while no value waits here. The limit is
    /// raised once half of the slots that may be assigned are left, long before the gain is an
    /// eighth of the ring.
    #[test]
    fn limit_is_raised_at_half_while_no_own_value_waits() {
        const FIRST: u64 = 100;
        const WINDOW: u64 = 256;
        let mut upkeep = Upkeep::new(&SHAPE);
        upkeep.begin(FIRST, FIRST + WINDOW);
        let settings =
            Settings { owner_boot: 1, device_boot: 1, window: WINDOW, pace: Pace::default() };
        let (mut frames, mut counter, mut events) = (Frames::new(SHAPE), 0, Vec::new());
        let mut reader = Reader::new(Program::Coordinator);
        let mut raised = None;
        for decided in 1..=WINDOW {
            // One slot is always in flight.
            upkeep.given_to = (FIRST + decided + 1).min(FIRST + WINDOW);
            upkeep.on_decided(FIRST + decided - 1);
            upkeep.raise_floor(Slot(0), Slot(FIRST + WINDOW + decided));
            let mut desk = TurnContext {
                now: Time(0),
                settings: &settings,
                frames: &mut frames,
                counter: &mut counter,
                device: &mut Silent,
                draining: false,
                events: &mut events,
            };
            upkeep.advance(&mut desk, &mut reader, false).unwrap();
            if let (None, Some(call)) = (raised, &upkeep.call) {
                raised = Some((decided, call.asked().voted));
            }
        }
        let half = WINDOW / 2;
        assert_eq!(raised, Some((half, FIRST + WINDOW + half)));
    }
}
