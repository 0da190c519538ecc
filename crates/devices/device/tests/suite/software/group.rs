//! Three devices and their owners, all driven by the test's thread.

use std::{
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

use quorate_core::{
    ballot::{Ballot, Era},
    node_id::NodeId,
    slot::Slot,
    time::Time,
    value::{BatchName, Value},
};
use quorate_device::{Settings, SoftwareDevice, Wire};
use quorate_offload::owner::{Event, Owner, SlotValue, Start, Timeouts};
use quorate_offload::{Address, Encapsulation, port::Device as _};

pub(crate) const CELLS: u32 = 64;
pub(crate) const ROOM: usize = 64;
pub(crate) const BALLOT: Ballot = Ballot { era: Era(0), round: 1, node: NodeId(1) };

pub(crate) struct Node {
    pub(crate) device: SoftwareDevice,
    pub(crate) owner: Owner,
    pub(crate) events: Vec<Event>,
}

type Bell = Arc<(Mutex<bool>, Condvar)>;

pub(crate) struct Group {
    pub(crate) nodes: Vec<Node>,
    bell: Bell,
    began: Instant,
}

pub(crate) fn settings(own: Address, all: Address) -> Settings {
    Settings {
        group: 77,
        cells: CELLS,
        room: ROOM,
        form: Encapsulation::Udp,
        own_address: own,
        all_hosts: all,
        decision_address: all,
        // Large, because decisions that a full tap drops are not sent again, and a device that was
        // not scheduled for a while receives many repeated proposals at once.
        tap_frames: 1 << 16,
    }
}

/// Generous time limits, because other tests run in parallel.
pub(crate) const PACE: Timeouts = Timeouts {
    response_us: 20_000,
    late_after_tries: 500,
    abandon_after_us: 0,
    slot_retry_us: 3_000,
    probe_interval_us: 20_000,
};

pub(crate) fn batch(number: u64) -> (Value, Vec<u8>) {
    let bytes = number.to_be_bytes().to_vec();
    let name = BatchName {
        origin: NodeId(1),
        boot: 1,
        counter: number,
        length: 8,
        checksum: quorate_wire::checksum(&bytes),
    };
    (Value::Batch(name), bytes)
}

pub(crate) fn number(held: &SlotValue) -> u64 {
    let Value::Batch(name) = held.value else {
        panic!("{} was not submitted", held.value);
    };
    assert_eq!(held.bytes, name.counter.to_be_bytes());
    name.counter
}

impl Group {
    pub(crate) fn new<W: Wire>(members: Vec<(Settings, W)>) -> Self {
        let bell = Bell::default();
        let nodes = members.into_iter().map(|(settings, wire)| {
            let rung = Arc::clone(&bell);
            let wake = move || {
                *rung.0.lock().unwrap() = true;
                rung.1.notify_one();
            };
            let device = SoftwareDevice::start(settings, wire, Arc::new(wake)).unwrap();
            let owner = Owner::new(owner_settings(), device.shape());
            Node { device, owner, events: Vec::new() }
        });
        Self { nodes: nodes.collect(), bell, began: Instant::now() }
    }

    pub(crate) fn now(&self) -> Time {
        Time(u64::try_from(self.began.elapsed().as_micros()).unwrap())
    }

    pub(crate) fn turn(&mut self) {
        let now = self.now();
        for node in &mut self.nodes {
            node.owner.turn(now, &mut node.device, &mut node.events);
        }
    }

    /// Waits until a device wakes its owner, or an owner's deadline is reached.
    pub(crate) fn wait(&self) {
        let due = self.nodes.iter().filter_map(|node| node.owner.wake_at()).min();
        let now = self.now();
        let left = due.map_or(10_000, |due| due.since_us(now).min(10_000));
        let rung = self.bell.0.lock().unwrap();
        let left = Duration::from_micros(left);
        let (mut rung, _) = self.bell.1.wait_timeout_while(rung, left, |rung| !*rung).unwrap();
        *rung = false;
    }

    /// Runs turns until `what` returns a result.
    pub(crate) fn until<T>(&mut self, mut what: impl FnMut(&mut Self) -> Option<T>) -> T {
        // Far more turns than any test needs, so that a hanging test fails.
        for _ in 0..20_000 {
            self.turn();
            for node in &self.nodes {
                assert_eq!(node.owner.loss(), None);
            }
            if let Some(found) = what(self) {
                return found;
            }
            self.wait();
        }
        let lost: Vec<u64> = self.nodes.iter().map(|node| node.device.lost_frame_count()).collect();
        panic!("it does not come; frames dropped by each tap: {lost:?}");
    }

    pub(crate) fn find<T>(&mut self, node: usize, what: impl Fn(&Event) -> Option<T>) -> Option<T> {
        let events = &mut self.nodes[node].events;
        let mut found = events.iter().enumerate();
        let (at, found) = found.find_map(|(at, event)| Some((at, what(event)?)))?;
        events.remove(at);
        Some(found)
    }

    /// Arms all acceptors; the first node leads.
    pub(crate) fn begin(&mut self) {
        for (position, node) in (0..).zip(&mut self.nodes) {
            node.owner.fence();
            node.owner.arm(BALLOT, position, Slot::FIRST);
        }
        for node in 0..self.nodes.len() {
            let armed = Event::Armed { ballot: BALLOT };
            self.until(|group| group.find(node, |event| (*event == armed).then_some(())));
        }
        let members = u8::try_from(self.nodes.len()).unwrap();
        self.nodes[0].owner.start(Start {
            ballot: BALLOT,
            first: Slot::FIRST,
            limit: Slot(1 + u64::from(CELLS)),
            quorum: members / 2 + 1,
            members,
            hint: false,
        });
        let started = Event::Started { ballot: BALLOT, first: Slot::FIRST };
        self.until(|group| group.find(0, |event| (*event == started).then_some(())));
    }

    /// Submits values from the leader's replica until `values` of them are decided. Returns the
    /// assigned slots, in order.
    pub(crate) fn decide(&mut self, values: u64) -> Vec<SlotValue> {
        let mut submitted = 0;
        let mut given = Vec::new();
        let mut decided = std::collections::BTreeSet::new();
        let mut floor = 1;
        self.until(|group| {
            for event in group.nodes[0].events.drain(..) {
                match event {
                    Event::Assigned(held) => {
                        assert_eq!(held.slot, Slot(1 + given.len() as u64), "in order");
                        given.push(held);
                    }
                    Event::Decided { slot, .. } => {
                        decided.insert(slot.0);
                    }
                    _ => {}
                }
            }
            let to = (floor..).find(|slot| !decided.contains(slot)).unwrap();
            // Replicas do this over TCP.
            for node in &mut group.nodes {
                node.owner.raise_floor(Slot(to), Slot(to + u64::from(CELLS)));
            }
            floor = to;
            while submitted < values {
                let (value, bytes) = batch(submitted);
                if group.nodes[0].owner.submit(value, &bytes).is_err() {
                    break;
                }
                submitted += 1;
            }
            let all = submitted == values && group.nodes[0].owner.waiting_value_count() == 0;
            (all && floor == 1 + given.len() as u64).then_some(())
        });
        given
    }
}

pub(crate) fn owner_settings() -> quorate_offload::owner::Settings {
    quorate_offload::owner::Settings { owner_boot: 1, device_boot: 5, window: 32, timeouts: PACE }
}

/// Checks that every value has a slot. Resubmitted ones may have two.
pub(crate) fn check_all(given: &[SlotValue], values: u64) {
    let numbers: std::collections::BTreeSet<u64> = given.iter().map(number).collect();
    assert!(numbers.into_iter().eq(0..values));
}
