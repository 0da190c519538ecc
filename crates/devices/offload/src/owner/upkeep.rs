//! The owner's work while its coordinator is started: reports its slots in order, requests
//! retransmission of undecided proposals, and raises the floor and the limit.

use alloc::collections::BTreeMap;

use crate::{
    Descriptor, Header, Type,
    port::{DeviceShape, Program},
};
use quorate_core::{slot::Slot, time::Time};

use crate::owner::{
    call::{CallResponse, ControlCall},
    desk::TurnContext,
    event::{Event, LossReason, SlotValue},
    reader::CellReader,
    ring::SeenSlots,
    settings::{Settings, Timeouts},
    stuck::StallTimer,
    waiting::SubmittedValues,
};

/// Maximum number of proposals to retransmit at a time.
const RETRANSMITS_MAX: usize = 8;
/// Maximum number of unknown slots to read concurrently.
const GAP_READS_MAX: usize = 64;

/// Slots assigned since the coordinator was started.
#[derive(Debug)]
pub(crate) struct AssignedSlots {
    /// Slot below which all assigned slots have been reported.
    reported_to: u64,
    /// Slots that cannot be reported yet, because the value of an earlier slot is unknown.
    unreported_slots: BTreeMap<u64, (Descriptor, SlotValue)>,
    /// Next slot, as reported by the coordinator.
    next: u64,
    decided_slots: SeenSlots,
    decided_to: u64,
    floor: u64,
    limit: u64,
    /// Floor and limit to be set.
    wanted_floor_and_limit: (u64, u64),
    call: Option<ControlCall>,
    gap_timer: StallTimer,
    undecided_timer: StallTimer,
    /// Backoff for raising floor or limit while nothing is in flight.
    idle_timer: StallTimer,
}

impl AssignedSlots {
    pub(crate) fn new(shape: &DeviceShape) -> Self {
        Self {
            reported_to: 0,
            unreported_slots: BTreeMap::new(),
            next: 0,
            decided_slots: SeenSlots::new(shape.cells.into()),
            decided_to: 0,
            floor: 0,
            limit: 0,
            wanted_floor_and_limit: (0, 0),
            call: None,
            gap_timer: StallTimer::default(),
            undecided_timer: StallTimer::default(),
            idle_timer: StallTimer::default(),
        }
    }

    /// Resets the state for a start that assigns slots from `first` to `limit`.
    pub(crate) fn begin(&mut self, first: u64, limit: u64) {
        (self.reported_to, self.next, self.decided_to) = (first, first, first);
        (self.floor, self.limit) = (first, limit);
        self.wanted_floor_and_limit.1 = self.wanted_floor_and_limit.1.max(limit);
        self.unreported_slots.clear();
        self.decided_slots.clear();
        self.call = None;
        (self.gap_timer, self.undecided_timer) = (StallTimer::default(), StallTimer::default());
    }

    /// Resets the limit, which belongs to one start only.
    pub(crate) const fn forget_limit(&mut self) {
        self.wanted_floor_and_limit.1 = 0;
    }

    /// Returns one past the last slot reported by [`Event::Assigned`].
    pub(crate) const fn reported_to(&self) -> u64 {
        self.reported_to
    }

    /// Returns one past the highest slot whose value is known, reported or not.
    pub(crate) fn known_end(&self) -> u64 {
        let ahead = self.unreported_slots.keys().next_back();
        ahead.map_or(self.reported_to, |slot| slot.saturating_add(1))
    }

    pub(crate) fn is_known(&self, slot: u64) -> bool {
        self.unreported_slots.contains_key(&slot)
    }

    /// [offload-14] Raises the floor and limit to be set. Returns whether either changed.
    pub(crate) fn raise_floor(&mut self, floor: Slot, limit: Slot) -> bool {
        let before = self.wanted_floor_and_limit;
        self.wanted_floor_and_limit = (before.0.max(floor.0), before.1.max(limit.0));
        self.wanted_floor_and_limit != before
    }

    /// Records the value of a slot, from any source. Fails if a different value is already known
    /// ([count-1]).
    pub(crate) fn record_value(
        &mut self,
        named: Descriptor,
        held: SlotValue,
        cells: u64,
    ) -> Result<(), LossReason> {
        let slot = held.slot.0;
        if slot < self.reported_to || slot - self.reported_to >= cells {
            return Ok(());
        }
        let (before, _) = self.unreported_slots.entry(slot).or_insert((named, held));
        if *before == named { Ok(()) } else { Err(LossReason::Contradiction) }
    }

    /// Reports the slots that are next in order and whose values are known.
    pub(crate) fn report_in_order(
        &mut self,
        desk: &mut TurnContext<'_>,
        waiting: &mut SubmittedValues,
    ) {
        while let Some((named, held)) = self.unreported_slots.remove(&self.reported_to) {
            waiting.on_assigned(&named);
            desk.push_event(Event::Assigned(held));
            self.reported_to += 1;
        }
    }

    pub(crate) fn on_decided(&mut self, slot: u64) {
        if slot >= self.decided_to && slot - self.decided_to < self.decided_slots.cell_count() {
            self.decided_slots.mark_seen(slot);
        }
    }

    pub(crate) fn on_next_slot(&mut self, next: u64, cells: u64) {
        self.next = self.next.max(next.min(self.reported_to.saturating_add(cells)));
    }

    /// Handles a response to the call that raises floor and limit. Returns `false` for any other
    /// frame.
    pub(crate) fn hear(
        &mut self,
        said: &Header,
        settings: &Settings,
        waiting: &mut SubmittedValues,
    ) -> bool {
        let Some(answer) = self.call.as_mut().and_then(|call| call.on_frame(said, settings)) else {
            return false;
        };
        let header = self.call.take().map(|call| call.request_header());
        if let (CallResponse::Done(said), Some(asked)) = (answer, header) {
            (self.floor, self.limit) = (said.slot, self.limit.max(asked.voted));
            waiting.resume_sending();
        }
        true
    }

    /// Does all work that is due while the coordinator is started. `is_open` is set if values wait
    /// because the ring is full.
    pub(crate) fn do_due_work(
        &mut self,
        desk: &mut TurnContext<'_>,
        reader: &mut CellReader,
        is_open: bool,
    ) -> Result<(), LossReason> {
        let slot_us = desk.timeouts().slot_retry_us;
        // Proposals need no retransmission in slots that the replica knows to be decided.
        let decided = self.decided_to.max(self.wanted_floor_and_limit.0.min(self.reported_to));
        self.decided_to = self.decided_slots.first_unseen(decided);
        self.raise_bounds_if_due(desk, is_open)?;

        let end = self.next.max(self.known_end());
        let gap = (self.reported_to < end).then_some(self.reported_to);
        if self.gap_timer.is_due(desk.now, gap, slot_us) {
            let gaps =
                (self.reported_to..end).filter(|slot| !self.unreported_slots.contains_key(slot));
            gaps.take(GAP_READS_MAX).for_each(|slot| reader.read_slot(slot));
        }
        // [offload-19] Retransmits the oldest undecided slot and some after it, because losses
        // occur in bursts.
        let undecided = (self.decided_to < self.reported_to).then_some(self.decided_to);
        if self.undecided_timer.is_due(desk.now, undecided, slot_us) {
            let slots = (self.decided_to..self.reported_to)
                .filter(|slot| !self.decided_slots.is_seen(*slot));
            for slot in slots.take(RETRANSMITS_MAX) {
                let mut header = desk.frames.empty_header(Program::Coordinator, Type::Tick);
                header.slot = slot;
                desk.put_frame(Program::Coordinator, &header, &[]);
            }
        }
        Ok(())
    }

    /// [offload-14] Raises floor and limit once that frees an eighth of the ring or as much as is
    /// left to assign, once a value waits, or once nothing has been in flight for a while. Values
    /// that clients submit directly to the device do not wait here.
    fn raise_bounds_if_due(
        &mut self,
        desk: &mut TurnContext<'_>,
        is_open: bool,
    ) -> Result<(), LossReason> {
        if let Some(call) = &mut self.call {
            return call.send_if_due(desk);
        }
        // Cells from there on have not been reported yet, and must remain readable.
        let floor = self.wanted_floor_and_limit.0.min(self.reported_to).max(self.floor);
        let limit = self.wanted_floor_and_limit.1.max(self.limit);
        let gain = (floor - self.floor).max(limit - self.limit);
        let in_flight = self.decided_to < self.reported_to.max(self.next);
        let idle = (gain > 0 && !in_flight).then_some(self.reported_to);
        let idle = self.idle_timer.is_due(desk.now, idle, desk.timeouts().slot_retry_us);
        let left = self.limit.saturating_sub(self.decided_to).max(1);
        let is_half = limit - self.limit >= left;
        let worth = gain >= (desk.frames.cells() / 8).max(1) || is_half || is_open || idle;
        if gain == 0 || !worth {
            return Ok(());
        }
        let header = Header {
            slot: floor,
            voted: limit,
            ..desk.frames.empty_header(Program::Coordinator, Type::Floor)
        };
        let mut call = ControlCall::new(Program::Coordinator, header);
        call.send_if_due(desk)?;
        self.call = Some(call);
        Ok(())
    }

    /// Cancels all work in progress before a stop.
    pub(crate) fn cancel_work(&mut self) {
        self.call = None;
    }

    pub(crate) const fn call(&self) -> Option<&ControlCall> {
        self.call.as_ref()
    }

    pub(crate) fn due_times(&self, pace: &Timeouts) -> impl Iterator<Item = Time> {
        let call = self.call.as_ref().map(|call| call.next_due_at(pace));
        let stuck = [&self.gap_timer, &self.undecided_timer, &self.idle_timer]
            .map(|stuck| stuck.next_due_at(pace.slot_retry_us));
        stuck.into_iter().chain([call]).flatten()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::{
        Address, Encapsulation,
        owner::frames::FrameCodec,
        port::{Device, Drained, FrameOrigin},
    };

    const NOWHERE: Address = Address { mac: [0; 6], ip: [0; 4], port: 0 };
    const SHAPE: DeviceShape = DeviceShape {
        group: 1,
        cells: 1 << 12,
        room: 64,
        form: Encapsulation::Raw,
        device_address: NOWHERE,
        owner_address: NOWHERE,
        all_hosts: NOWHERE,
    };

    /// A device that never responds.
    struct Silent;

    impl Device for Silent {
        fn shape(&self) -> DeviceShape {
            SHAPE
        }

        fn send_to_devices(&mut self, _: &[u8]) {}

        fn put_frame(&mut self, _: Program, _: &[u8]) {}

        fn take_frame(&mut self, _: &mut Vec<u8>) -> Option<(Program, FrameOrigin)> {
            None
        }

        fn begin_drain(&mut self) {}

        fn drain_progress(&mut self) -> Drained {
            Drained::Complete
        }

        fn lost_frame_count(&self) -> u64 {
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
        let mut upkeep = AssignedSlots::new(&SHAPE);
        upkeep.begin(FIRST, FIRST + WINDOW);
        let settings = Settings {
            owner_boot: 1,
            device_boot: 1,
            window: WINDOW,
            timeouts: Timeouts::default(),
        };
        let (mut frames, mut counter, mut events) = (FrameCodec::new(SHAPE), 0, Vec::new());
        let mut reader = CellReader::new(Program::Coordinator);
        let mut raised = None;
        for decided in 1..=WINDOW {
            // One slot is always in flight.
            upkeep.reported_to = (FIRST + decided + 1).min(FIRST + WINDOW);
            upkeep.on_decided(FIRST + decided - 1);
            upkeep.raise_floor(Slot(0), Slot(FIRST + WINDOW + decided));
            let mut desk = TurnContext {
                now: Time(0),
                settings: &settings,
                frames: &mut frames,
                last_call_number: &mut counter,
                device: &mut Silent,
                draining: false,
                events: &mut events,
            };
            upkeep.do_due_work(&mut desk, &mut reader, false).unwrap();
            if let (None, Some(call)) = (raised, &upkeep.call) {
                raised = Some((decided, call.request_header().voted));
            }
        }
        let half = WINDOW / 2;
        assert_eq!(raised, Some((half, FIRST + WINDOW + half)));
    }
}
