//! An owner and its faulty device: advances time, makes requests, collects events.

use quorate_core::{
    ballot::{Ballot, Era},
    node_id::NodeId,
    slot::Slot,
    time::Time,
    value::{BatchName, Value},
};
use quorate_offload::owner::{Event, LossReason, Owner, Settings, Start, Timeouts};
use quorate_offload::{PackedBallot, port::Device as _};

use crate::port::{
    device::{Bad, Trouble},
    frames::{MEMBERS, QUORUM},
};

pub(crate) const DEVICE_BOOT: u32 = 7;
/// Maximum number of steps in a run. Most runs take a tenth.
const STEPS_MAX: u64 = 60_000;

pub(crate) struct World {
    pub(crate) device: Bad,
    pub(crate) owner: Owner,
    pub(crate) events: Vec<Event>,
    pub(crate) now: Time,
    pub(crate) seed: u64,
}

pub(crate) fn ballot(round: u32) -> Ballot {
    Ballot { era: Era(1), round, node: NodeId(5) }
}

pub(crate) fn packed(round: u32) -> PackedBallot {
    PackedBallot::pack(ballot(round)).unwrap()
}

pub(crate) fn settings(owner_boot: u32) -> Settings {
    Settings {
        owner_boot,
        device_boot: DEVICE_BOOT,
        window: 4,
        timeouts: Timeouts {
            response_us: 1_000,
            late_after_tries: 60,
            abandon_after_us: 320_000,
            slot_retry_us: 2_000,
            probe_interval_us: 5_000,
        },
    }
}

/// Returns a batch that identifies its number.
pub(crate) fn batch(number: u64) -> (Value, Vec<u8>) {
    let bytes = number.to_be_bytes().to_vec();
    let name = BatchName {
        origin: NodeId(5),
        boot: 1,
        counter: number,
        length: 8,
        checksum: quorate_wire::checksum(&bytes),
    };
    (Value::Batch(name), bytes)
}

/// Returns the port's faults for `seed`. Every fourth seed has none.
pub(crate) fn trouble(seed: u64) -> Trouble {
    Trouble {
        lost: [0, 5, 15, 30][usize::try_from(seed % 4).unwrap()],
        repeated: [0, 20, 5, 10][usize::try_from(seed / 4 % 4).unwrap()],
        holes: 0,
    }
}

impl World {
    pub(crate) fn new(seed: u64, trouble: Trouble) -> Self {
        let device = Bad::new(seed, trouble);
        Self {
            owner: Owner::new(settings(1), device.shape()),
            device,
            events: Vec::new(),
            now: Time(0),
            seed,
        }
    }

    /// Advances time a little. The owner has its turn when there is a frame, or when it is due.
    pub(crate) fn step(&mut self) {
        self.now = self.now.plus_us(self.device.dice.below(60));
        self.device.step();
        let due = self.owner.wake_at().is_some_and(|due| due <= self.now);
        if due || self.device.has_frames() {
            self.owner.turn(self.now, &mut self.device, &mut self.events);
        }
        // Nothing happens before the owner's next turn.
        if !self.device.is_busy() && !self.device.has_frames() {
            self.now = self.now.max(self.owner.wake_at().unwrap_or(self.now));
        }
    }

    pub(crate) fn steps(&mut self, count: u64) {
        (0..count).for_each(|_| self.step());
    }

    /// Runs until there is a matching event.
    pub(crate) fn until<T>(&mut self, mut what: impl FnMut(&mut Self) -> Option<T>) -> T {
        for _ in 0..STEPS_MAX {
            if let Some(found) = what(self) {
                return found;
            }
            self.step();
        }
        panic!("seed {}: it does not come: {:?}", self.seed, self.events.last());
    }

    /// Removes and returns the first matching event. Earlier ones stay.
    pub(crate) fn find<T>(&mut self, what: impl Fn(&Event) -> Option<T>) -> Option<T> {
        let (at, found) =
            self.events.iter().enumerate().find_map(|(at, event)| Some((at, what(event)?)))?;
        self.events.remove(at);
        Some(found)
    }

    pub(crate) fn fenced(&mut self) -> (Option<Ballot>, Vec<quorate_offload::owner::SlotValue>) {
        self.until(|world| {
            world.find(|event| match event {
                Event::Fenced { ballot, votes } => Some((*ballot, votes.clone())),
                _ => None,
            })
        })
    }

    pub(crate) fn lost(&mut self) -> LossReason {
        self.until(|world| {
            world.find(|event| match event {
                Event::Lost { why } => Some(*why),
                _ => None,
            })
        })
    }

    /// Arms the acceptors of the device and of the other members.
    pub(crate) fn arm(&mut self, round: u32, floor: u64) {
        self.device.arm_others(packed(round));
        self.owner.arm(ballot(round), 0, Slot(floor));
        let armed = Event::Armed { ballot: ballot(round) };
        self.until(|world| world.find(|event| (*event == armed).then_some(())));
    }

    pub(crate) fn start(&mut self, round: u32, first: u64, limit: u64) {
        self.owner.start(Start {
            ballot: ballot(round),
            first: Slot(first),
            limit: Slot(limit),
            quorum: QUORUM,
            members: MEMBERS,
            hint: false,
        });
    }

    pub(crate) fn started(&mut self, round: u32, first: u64) {
        let started = Event::Started { ballot: ballot(round), first: Slot(first) };
        self.until(|world| world.find(|event| (*event == started).then_some(())));
    }
}
