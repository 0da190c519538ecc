//! A node's device in the model: acceptor and coordinator, a ring of cells, steps that are in
//! flight when orders arrive, and reports that the owner has not received yet ([offload-6],
//! [offload-8], [offload-12], [offload-14]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use quorate_core::{
    ballot::Ballot,
    device::{DeviceOrder, DeviceReport},
    slot::{Slot, SlotRange},
    value::Value,
};

/// A frame between devices, which remains in the soup permanently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Frame {
    Propose {
        /// Ballot in which the coordinator proposes.
        ballot: Ballot,
        slot: Slot,
        value: Value,
    },
    /// A vote by the member at this position.
    Vote {
        ballot: Ballot,
        slot: Slot,
        value: Value,
        /// Position of the voter in the configuration of the ballot's era.
        position: u8,
    },
    /// A report that a quorum voted for the value.
    Decided {
        /// Ballot in which the quorum voted.
        ballot: Ballot,
        slot: Slot,
        value: Value,
    },
}

/// A coordinator's state for a slot that it assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct AssignedSlot {
    ballot: Ballot,
    slot: Slot,
    value: Value,
    voters: u16,
}

/// Parameters with which a coordinator was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Start {
    ballot: Ballot,
    limit: Slot,
    quorum: u8,
}

/// An order that takes two steps and whose completion the owner waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum PendingOrder {
    Fence { ballot: Ballot, hint: bool },
    TakeBack(Ballot),
    Stop(Ballot),
}

/// A device, and the orders and reports between the device and its owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    cell_count: u64,
    // State of the acceptor.
    armed_ballot: Option<(Ballot, u8)>,
    floor: Slot,
    votes: BTreeMap<u64, (Ballot, Slot, Value)>,
    /// A step that found the device armed, but has not stored a vote yet.
    pending_vote: Option<(Frame, u8)>,
    // State of the coordinator.
    started_with: Option<Start>,
    next: Slot,
    assigned_floor: Slot,
    assigned_cells: BTreeMap<u64, AssignedSlot>,
    /// A step that found the coordinator started, but has not assigned a slot yet.
    pending_assignment: Option<(Ballot, Value)>,
    // Orders from the owner and reports to it.
    orders: VecDeque<DeviceOrder>,
    pending_order: Option<PendingOrder>,
    /// Votes that were cast and have not been reported yet.
    pub unreported_votes: Vec<DeviceReport>,
    reported_to: Slot,
    first_slot: Slot,
    counted_slots: BTreeSet<Slot>,
    /// Submitted values that wait for a slot.
    waiting_values: Vec<Value>,
    pending_next_reads: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepResult {
    /// Frames to send to all devices.
    pub frames: Vec<Frame>,
    /// Reports to send to the owner.
    pub reports: Vec<DeviceReport>,
    /// New votes: ballot, slot and value.
    pub votes: Vec<(Ballot, Slot, Value)>,
    /// The device saw two values for the same slot in the same ballot.
    pub conflict: bool,
}

impl Device {
    /// Creates a device with `cells` cells in each of its programs; 0 for no device.
    pub fn new(cells: u64) -> Self {
        Self { cell_count: cells, ..Self::default() }
    }

    pub fn cell_count(&self) -> u64 {
        self.cell_count
    }

    fn cell_index(&self, slot: Slot) -> u64 {
        slot.0 % self.cell_count.max(1)
    }

    /// Ends all activity and discards pending orders, because a new process fences the device
    /// before its first message ([offload-9]). Votes, assigned slots and floors remain.
    pub fn detach_owner(&mut self) -> StepResult {
        let done = self.finish_steps();
        let cells = (self.cell_count, self.floor, self.assigned_floor, self.next);
        let (votes, given) =
            (std::mem::take(&mut self.votes), std::mem::take(&mut self.assigned_cells));
        *self = Self::new(cells.0);
        (self.votes, self.assigned_cells) = (votes, given);
        (self.floor, self.assigned_floor, self.next) = (cells.1, cells.2, cells.3);
        done
    }

    /// Handles the end of the owner's process. The device keeps running, and orders that were not
    /// carried out are void.
    pub fn end_owner_process(&mut self) {
        self.orders.clear();
        self.unreported_votes.clear();
        self.pending_order = None;
        self.waiting_values.clear();
        self.pending_next_reads = 0;
    }

    /// Simulates a power loss. Returns whether the device had been in use or had orders.
    pub fn lose_power(&mut self) -> bool {
        let used = self.armed_ballot.is_some()
            || self.started_with.is_some()
            || self.pending_order.is_some();
        let ordered = !self.orders.is_empty();
        *self = Self::new(self.cell_count);
        used || ordered
    }

    /// Queues an order from the owner.
    pub fn queue_order(&mut self, order: DeviceOrder) {
        self.orders.push_back(order);
    }

    /// Returns whether an order or a step is in flight.
    pub fn is_busy(&self) -> bool {
        !self.orders.is_empty() || self.pending_order.is_some() || self.pending_assignment.is_some()
    }

    /// Carries out the next order, or the second step of an order. With `whole`, an order that
    /// takes two steps completes at once.
    pub fn carry_out_order(&mut self, whole: bool) -> StepResult {
        if let Some(draining) = self.pending_order.take() {
            return self.finish_order(draining);
        }
        let mut done = StepResult::default();
        let Some(order) = self.orders.pop_front() else {
            return done;
        };
        match order {
            DeviceOrder::Arm { ballot, position, floor } => {
                self.armed_ballot = Some((ballot, position));
                self.floor = self.floor.max(floor);
                done.reports.push(DeviceReport::Armed { ballot });
            }
            DeviceOrder::Fence { ballot, hint } => {
                self.armed_ballot = None;
                self.pending_order = Some(PendingOrder::Fence { ballot, hint });
            }
            DeviceOrder::RaiseFloor { floor: to } => self.floor = self.floor.max(to),
            DeviceOrder::Start { ballot, first, limit, quorum, .. } => {
                self.started_with = Some(Start { ballot, limit, quorum });
                (self.next, self.reported_to, self.first_slot) = (first, first, first);
                self.assigned_floor = first;
                self.counted_slots.clear();
                done.reports.push(DeviceReport::Started { ballot });
            }
            DeviceOrder::AllowSlots { floor, limit } => {
                if let Some(start) = &mut self.started_with {
                    self.assigned_floor = self.assigned_floor.max(floor);
                    start.limit = start.limit.max(limit);
                }
            }
            DeviceOrder::TakeBack { ballot } => {
                self.started_with = None;
                self.pending_order = Some(PendingOrder::TakeBack(ballot));
            }
            DeviceOrder::Stop { ballot } => {
                self.started_with = None;
                self.pending_order = Some(PendingOrder::Stop(ballot));
            }
            DeviceOrder::Submit { value } => self.waiting_values.push(value),
            DeviceOrder::QueryNextSlot => self.pending_next_reads += 1,
        }
        if self.pending_next_reads > 0 && self.pending_order.is_none() {
            self.pending_next_reads -= 1;
            let slot = Some(self.next);
            done.reports.push(DeviceReport::NextSlot { slot });
        }
        if whole && let Some(draining) = self.pending_order.take() {
            let rest = self.finish_order(draining);
            done.frames.extend(rest.frames);
            done.reports.extend(rest.reports);
            done.votes.extend(rest.votes);
            done.conflict |= rest.conflict;
        }
        done
    }

    /// [offload-8], [offload-12] Completes steps in flight, then reads out the device.
    fn finish_order(&mut self, draining: PendingOrder) -> StepResult {
        let mut done = self.finish_steps();
        match draining {
            PendingOrder::Fence { ballot, hint } => {
                // [offload-10] Votes that are only hints are not read out.
                let mut votes: Vec<(Slot, Value)> = self
                    .votes
                    .values()
                    .filter(|(b, slot, _)| !hint && *b == ballot && *slot >= self.floor)
                    .map(|(_, slot, value)| (*slot, *value))
                    .collect();
                votes.sort_unstable();
                self.unreported_votes.clear();
                done.reports.push(DeviceReport::Fenced { ballot, votes });
            }
            PendingOrder::TakeBack(ballot) => {
                let from = self.reported_to;
                let rest =
                    (from.0..self.next.0).map(|slot| self.assigned_value(ballot, Slot(slot)));
                done.reports.push(DeviceReport::TakenBack {
                    ballot,
                    from,
                    assigned: rest.collect(),
                });
                self.reported_to = self.next;
            }
            PendingOrder::Stop(ballot) => done.reports.push(DeviceReport::Stopped { ballot }),
        }
        done
    }

    fn assigned_value(&self, ballot: Ballot, slot: Slot) -> Option<Value> {
        let given = self.assigned_cells.get(&self.cell_index(slot))?;
        (given.ballot == ballot && given.slot == slot).then_some(given.value)
    }

    /// Completes the steps in flight.
    fn finish_steps(&mut self) -> StepResult {
        let mut done = StepResult::default();
        if let Some((frame, position)) = self.pending_vote.take() {
            self.cast_vote(frame, position, &mut done);
        }
        if let Some((ballot, value)) = self.pending_assignment.take() {
            self.assign_slot(ballot, value, &mut done);
        }
        done
    }

    /// Completes the device steps in flight, as an event of the world.
    pub fn end_steps(&mut self) -> StepResult {
        self.finish_steps()
    }

    /// Assigns a slot to the next waiting value. With `whole`, the step completes at once.
    pub fn assign_waiting_value(&mut self, whole: bool) -> StepResult {
        let mut done = StepResult::default();
        if self.pending_assignment.is_some() || self.waiting_values.is_empty() {
            return done;
        }
        let Some(start) = self.started_with else {
            return done;
        };
        let full =
            self.next >= start.limit || self.next >= self.assigned_floor.plus(self.cell_count);
        if full {
            return done;
        }
        let value = self.waiting_values.remove(0);
        self.pending_assignment = Some((start.ballot, value));
        if whole {
            done = self.finish_steps();
        }
        done
    }

    /// [offload-12] Ends a slot assignment before it stores a value, so that no frame is ever sent
    /// for the slot.
    pub fn cancel_assignment(&mut self) -> StepResult {
        let may = self.started_with.is_some_and(|start| self.next < start.limit);
        if may
            && self.pending_assignment.is_none()
            && self.next < self.assigned_floor.plus(self.cell_count)
        {
            self.next = self.next.next();
        }
        StepResult::default()
    }

    fn assign_slot(&mut self, ballot: Ballot, value: Value, done: &mut StepResult) {
        let slot = self.next;
        self.next = slot.next();
        // The value is stored before the frame is sent.
        let given = AssignedSlot { ballot, slot, value, voters: 0 };
        self.assigned_cells.insert(self.cell_index(slot), given);
        done.frames.push(Frame::Propose { ballot, slot, value });
    }

    /// Handles a frame. With `whole`, the step completes at once. `has_vote` means that the owner
    /// is a voter.
    pub fn handle_frame(&mut self, frame: Frame, whole: bool, has_vote: bool) -> StepResult {
        match frame {
            Frame::Propose { ballot, .. } => {
                let mut done = self.finish_steps();
                // [offload-6] The device votes only in the ballot in which it is armed.
                if let Some((armed, position)) = self.armed_ballot
                    && armed == ballot
                {
                    self.pending_vote = Some((frame, position));
                    if whole {
                        let rest = self.finish_steps();
                        done.frames.extend(rest.frames);
                        done.reports.extend(rest.reports);
                        done.conflict |= rest.conflict;
                        done.votes.extend(rest.votes);
                    }
                }
                done
            }
            Frame::Vote { ballot, slot, value, position } => {
                self.count_vote(ballot, slot, value, position)
            }
            Frame::Decided { ballot, slot, value } => {
                let range = SlotRange::one(slot);
                let own = self.started_with.is_some_and(|start| start.ballot == ballot);
                let mut done = StepResult::default();
                if !own && has_vote {
                    done.reports.push(DeviceReport::Counted { ballot, range });
                } else if !own {
                    done.reports.push(DeviceReport::CountedValue { ballot, slot, value });
                }
                done
            }
        }
    }

    /// [offload-6] Votes in a single step, which reads the floor and changes one cell.
    fn cast_vote(&mut self, frame: Frame, position: u8, done: &mut StepResult) {
        let Frame::Propose { ballot, slot, value } = frame else {
            return;
        };
        if slot < self.floor || slot >= self.floor.plus(self.cell_count) {
            return;
        }
        let cell = self.cell_index(slot);
        let mut stored = value;
        match self.votes.get(&cell) {
            Some((b, s, known)) if (*b, *s) == (ballot, slot) => stored = *known,
            _ => {
                self.votes.insert(cell, (ballot, slot, value));
                done.votes.push((ballot, slot, value));
                self.unreported_votes.push(DeviceReport::Voted { ballot, slot, value });
            }
        }
        done.frames.push(Frame::Vote { ballot, slot, value: stored, position });
    }

    /// [offload-10] Counts a vote for a slot that was assigned since the coordinator started, in
    /// the same ballot, from a position not counted yet. The quorum is reported once.
    fn count_vote(&mut self, ballot: Ballot, slot: Slot, value: Value, position: u8) -> StepResult {
        let mut done = StepResult::default();
        let Some(start) = self.started_with.filter(|start| start.ballot == ballot) else {
            return done;
        };
        let (first, cell) = (self.first_slot, self.cell_index(slot));
        let given = self.assigned_cells.get_mut(&cell);
        let Some(given) = given.filter(|given| (given.ballot, given.slot) == (ballot, slot)) else {
            return done;
        };
        if slot < first || slot < self.assigned_floor {
            return done;
        }
        if given.value != value {
            done.conflict = true;
            return done;
        }
        let before = given.voters.count_ones();
        given.voters |= 1 << position;
        let after = given.voters.count_ones();
        let quorum = u32::from(start.quorum);
        if before < quorum && after >= quorum {
            self.counted_slots.insert(slot);
            done.frames.push(Frame::Decided { ballot, slot, value });
        }
        done
    }

    pub fn has_report(&self) -> bool {
        let counted = self.counted_slots.first().is_some_and(|slot| *slot < self.reported_to);
        let next = |start: Start| self.assigned_value(start.ballot, self.reported_to);
        let given = self.reported_to < self.next && self.started_with.and_then(next).is_some();
        self.started_with.is_some() && (given || counted)
    }

    /// Returns the coordinator's next report to its owner: the value of the next slot in order, and
    /// the counted slots.
    pub fn take_report(&mut self) -> Vec<DeviceReport> {
        let mut words = Vec::new();
        let Some(Start { ballot, .. }) = self.started_with else {
            return words;
        };
        if self.reported_to < self.next
            && let Some(value) = self.assigned_value(ballot, self.reported_to)
        {
            let slot = self.reported_to;
            self.reported_to = slot.next();
            words.push(DeviceReport::Assigned { ballot, slot, value });
        }
        while let Some(slot) = self.counted_slots.first().copied().filter(|s| *s < self.reported_to)
        {
            self.counted_slots.remove(&slot);
            words.push(DeviceReport::Counted { ballot, range: SlotRange::one(slot) });
        }
        words
    }
}
