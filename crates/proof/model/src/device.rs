//! A node's device in the model: acceptor and coordinator, a ring of cells, steps that are in
//! flight when orders arrive, and reports that the owner has not received yet ([offload-6],
//! [offload-8], [offload-12], [offload-14]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use quorate_core::{
    ballot::Ballot,
    device::{DeviceReport, Order},
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
enum Draining {
    Fence { ballot: Ballot, hint: bool },
    TakeBack(Ballot),
    Stop(Ballot),
}

/// A device, and the orders and reports between the device and its owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    cells: u64,
    // State of the acceptor.
    armed: Option<(Ballot, u8)>,
    floor: Slot,
    votes: BTreeMap<u64, (Ballot, Slot, Value)>,
    /// A step that found the device armed, but has not stored a vote yet.
    voting: Option<(Frame, u8)>,
    // State of the coordinator.
    started: Option<Start>,
    next: Slot,
    given_floor: Slot,
    given: BTreeMap<u64, AssignedSlot>,
    /// A step that found the coordinator started, but has not assigned a slot yet.
    giving: Option<(Ballot, Value)>,
    // Orders from the owner and reports to it.
    orders: VecDeque<Order>,
    draining: Option<Draining>,
    /// Votes that were cast and have not been reported yet.
    pub tap: Vec<DeviceReport>,
    told_to: Slot,
    first: Slot,
    counted: BTreeSet<Slot>,
    /// Submitted values that wait for a slot.
    submitted: Vec<Value>,
    looks: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepResult {
    /// Frames to send to all devices.
    pub frames: Vec<Frame>,
    /// Reports to send to the owner.
    pub words: Vec<DeviceReport>,
    /// New votes: ballot, slot and value.
    pub votes: Vec<(Ballot, Slot, Value)>,
    /// The device saw two values for the same slot in the same ballot.
    pub conflict: bool,
}

impl Device {
    /// Creates a device with `cells` cells in each of its programs; 0 for no device.
    pub fn new(cells: u64) -> Self {
        Self { cells, ..Self::default() }
    }

    pub fn cells(&self) -> u64 {
        self.cells
    }

    fn cell(&self, slot: Slot) -> u64 {
        slot.0 % self.cells.max(1)
    }

    /// Ends all activity and discards pending orders, because a new process fences the device
    /// before its first message ([offload-9]). Votes, assigned slots and floors remain.
    pub fn leave_owner(&mut self) -> StepResult {
        let done = self.finish();
        let cells = (self.cells, self.floor, self.given_floor, self.next);
        let (votes, given) = (std::mem::take(&mut self.votes), std::mem::take(&mut self.given));
        *self = Self::new(cells.0);
        (self.votes, self.given) = (votes, given);
        (self.floor, self.given_floor, self.next) = (cells.1, cells.2, cells.3);
        done
    }

    /// Handles the end of the owner's process. The device keeps running, and orders that were not
    /// carried out are void.
    pub fn orphan(&mut self) {
        self.orders.clear();
        self.tap.clear();
        self.draining = None;
        self.submitted.clear();
        self.looks = 0;
    }

    /// Simulates a power loss. Returns whether the device had been in use or had orders.
    pub fn forget(&mut self) -> bool {
        let used = self.armed.is_some() || self.started.is_some() || self.draining.is_some();
        let ordered = !self.orders.is_empty();
        *self = Self::new(self.cells);
        used || ordered
    }

    /// Queues an order from the owner.
    pub fn order(&mut self, order: Order) {
        self.orders.push_back(order);
    }

    /// Returns whether an order or a step is in flight.
    pub fn is_busy(&self) -> bool {
        !self.orders.is_empty() || self.draining.is_some() || self.giving.is_some()
    }

    /// Carries out the next order, or the second step of an order. With `whole`, an order that
    /// takes two steps completes at once.
    pub fn obey(&mut self, whole: bool) -> StepResult {
        if let Some(draining) = self.draining.take() {
            return self.drained(draining);
        }
        let mut done = StepResult::default();
        let Some(order) = self.orders.pop_front() else {
            return done;
        };
        match order {
            Order::Arm { ballot, position, floor } => {
                self.armed = Some((ballot, position));
                self.floor = self.floor.max(floor);
                done.words.push(DeviceReport::Armed { ballot });
            }
            Order::Fence { ballot, hint } => {
                self.armed = None;
                self.draining = Some(Draining::Fence { ballot, hint });
            }
            Order::Floor { to } => self.floor = self.floor.max(to),
            Order::Start { ballot, first, limit, quorum, .. } => {
                self.started = Some(Start { ballot, limit, quorum });
                (self.next, self.told_to, self.first) = (first, first, first);
                self.given_floor = first;
                self.counted.clear();
                done.words.push(DeviceReport::Started { ballot });
            }
            Order::Allow { floor, limit } => {
                if let Some(start) = &mut self.started {
                    self.given_floor = self.given_floor.max(floor);
                    start.limit = start.limit.max(limit);
                }
            }
            Order::TakeBack { ballot } => {
                self.started = None;
                self.draining = Some(Draining::TakeBack(ballot));
            }
            Order::Stop { ballot } => {
                self.started = None;
                self.draining = Some(Draining::Stop(ballot));
            }
            Order::Submit { value } => self.submitted.push(value),
            Order::LookNext => self.looks += 1,
        }
        if self.looks > 0 && self.draining.is_none() {
            self.looks -= 1;
            let slot = Some(self.next);
            done.words.push(DeviceReport::Next { slot });
        }
        if whole && let Some(draining) = self.draining.take() {
            let rest = self.drained(draining);
            done.frames.extend(rest.frames);
            done.words.extend(rest.words);
            done.votes.extend(rest.votes);
            done.conflict |= rest.conflict;
        }
        done
    }

    /// [offload-8], [offload-12] Completes steps in flight, then reads out the device.
    fn drained(&mut self, draining: Draining) -> StepResult {
        let mut done = self.finish();
        match draining {
            Draining::Fence { ballot, hint } => {
                // [offload-10] Votes that are only hints are not read out.
                let mut votes: Vec<(Slot, Value)> = self
                    .votes
                    .values()
                    .filter(|(b, slot, _)| !hint && *b == ballot && *slot >= self.floor)
                    .map(|(_, slot, value)| (*slot, *value))
                    .collect();
                votes.sort_unstable();
                self.tap.clear();
                done.words.push(DeviceReport::Fenced { ballot, votes });
            }
            Draining::TakeBack(ballot) => {
                let from = self.told_to;
                let rest = (from.0..self.next.0).map(|slot| self.given_at(ballot, Slot(slot)));
                done.words.push(DeviceReport::TakenBack { ballot, from, rest: rest.collect() });
                self.told_to = self.next;
            }
            Draining::Stop(ballot) => done.words.push(DeviceReport::Stopped { ballot }),
        }
        done
    }

    fn given_at(&self, ballot: Ballot, slot: Slot) -> Option<Value> {
        let given = self.given.get(&self.cell(slot))?;
        (given.ballot == ballot && given.slot == slot).then_some(given.value)
    }

    /// Completes the steps in flight.
    fn finish(&mut self) -> StepResult {
        let mut done = StepResult::default();
        if let Some((frame, position)) = self.voting.take() {
            self.vote(frame, position, &mut done);
        }
        if let Some((ballot, value)) = self.giving.take() {
            self.give(ballot, value, &mut done);
        }
        done
    }

    /// Completes the device steps in flight, as an event of the world.
    pub fn step_ends(&mut self) -> StepResult {
        self.finish()
    }

    /// Assigns a slot to the next waiting value. With `whole`, the step completes at once.
    pub fn submit(&mut self, whole: bool) -> StepResult {
        let mut done = StepResult::default();
        if self.giving.is_some() || self.submitted.is_empty() {
            return done;
        }
        let Some(start) = self.started else {
            return done;
        };
        let full = self.next >= start.limit || self.next >= self.given_floor.plus(self.cells);
        if full {
            return done;
        }
        let value = self.submitted.remove(0);
        self.giving = Some((start.ballot, value));
        if whole {
            done = self.finish();
        }
        done
    }

    /// [offload-12] Ends a slot assignment before it stores a value, so that no frame is ever sent
    /// for the slot.
    pub fn skip(&mut self) -> StepResult {
        let may = self.started.is_some_and(|start| self.next < start.limit);
        if may && self.giving.is_none() && self.next < self.given_floor.plus(self.cells) {
            self.next = self.next.next();
        }
        StepResult::default()
    }

    fn give(&mut self, ballot: Ballot, value: Value, done: &mut StepResult) {
        let slot = self.next;
        self.next = slot.next();
        // The value is stored before the frame is sent.
        let given = AssignedSlot { ballot, slot, value, voters: 0 };
        self.given.insert(self.cell(slot), given);
        done.frames.push(Frame::Propose { ballot, slot, value });
    }

    /// Handles a frame. With `whole`, the step completes at once. `has_vote` means that the owner
    /// is a voter.
    pub fn handle_frame(&mut self, frame: Frame, whole: bool, has_vote: bool) -> StepResult {
        match frame {
            Frame::Propose { ballot, .. } => {
                let mut done = self.finish();
                // [offload-6] The device votes only in the ballot in which it is armed.
                if let Some((armed, position)) = self.armed
                    && armed == ballot
                {
                    self.voting = Some((frame, position));
                    if whole {
                        let rest = self.finish();
                        done.frames.extend(rest.frames);
                        done.words.extend(rest.words);
                        done.conflict |= rest.conflict;
                        done.votes.extend(rest.votes);
                    }
                }
                done
            }
            Frame::Vote { ballot, slot, value, position } => {
                self.count(ballot, slot, value, position)
            }
            Frame::Decided { ballot, slot, value } => {
                let range = SlotRange::one(slot);
                let own = self.started.is_some_and(|start| start.ballot == ballot);
                let mut done = StepResult::default();
                if !own && has_vote {
                    done.words.push(DeviceReport::Counted { ballot, range });
                } else if !own {
                    done.words.push(DeviceReport::CountedValue { ballot, slot, value });
                }
                done
            }
        }
    }

    /// [offload-6] Votes in a single step, which reads the floor and changes one cell.
    fn vote(&mut self, frame: Frame, position: u8, done: &mut StepResult) {
        let Frame::Propose { ballot, slot, value } = frame else {
            return;
        };
        if slot < self.floor || slot >= self.floor.plus(self.cells) {
            return;
        }
        let cell = self.cell(slot);
        let mut stored = value;
        match self.votes.get(&cell) {
            Some((b, s, known)) if (*b, *s) == (ballot, slot) => stored = *known,
            _ => {
                self.votes.insert(cell, (ballot, slot, value));
                done.votes.push((ballot, slot, value));
                self.tap.push(DeviceReport::Voted { ballot, slot, value });
            }
        }
        done.frames.push(Frame::Vote { ballot, slot, value: stored, position });
    }

    /// [offload-10] Counts a vote for a slot that was assigned since the coordinator started, in
    /// the same ballot, from a position not counted yet. The quorum is reported once.
    fn count(&mut self, ballot: Ballot, slot: Slot, value: Value, position: u8) -> StepResult {
        let mut done = StepResult::default();
        let Some(start) = self.started.filter(|start| start.ballot == ballot) else {
            return done;
        };
        let (first, cell) = (self.first, self.cell(slot));
        let given = self.given.get_mut(&cell);
        let Some(given) = given.filter(|given| (given.ballot, given.slot) == (ballot, slot)) else {
            return done;
        };
        if slot < first || slot < self.given_floor {
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
            self.counted.insert(slot);
            done.frames.push(Frame::Decided { ballot, slot, value });
        }
        done
    }

    pub fn has_report(&self) -> bool {
        let counted = self.counted.first().is_some_and(|slot| *slot < self.told_to);
        let next = |start: Start| self.given_at(start.ballot, self.told_to);
        let given = self.told_to < self.next && self.started.and_then(next).is_some();
        self.started.is_some() && (given || counted)
    }

    /// Returns the coordinator's next report to its owner: the value of the next slot in order, and
    /// the counted slots.
    pub fn take_report(&mut self) -> Vec<DeviceReport> {
        let mut words = Vec::new();
        let Some(Start { ballot, .. }) = self.started else {
            return words;
        };
        if self.told_to < self.next
            && let Some(value) = self.given_at(ballot, self.told_to)
        {
            let slot = self.told_to;
            self.told_to = slot.next();
            words.push(DeviceReport::Given { ballot, slot, value });
        }
        while let Some(slot) = self.counted.first().copied().filter(|s| *s < self.told_to) {
            self.counted.remove(&slot);
            words.push(DeviceReport::Counted { ballot, range: SlotRange::one(slot) });
        }
        words
    }
}
