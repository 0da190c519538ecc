//! Simulates a group of devices with minimal owners, on a network that loses, repeats and reorders
//! frames. Checks that a chosen value stays chosen in any order of delivery.
//!
//! There are three acceptors and two coordinators. Each is a reference program or a switch. The
//! owners ([`OmittedRule`], `owner.rs`) implement Paxos in a few lines, independently of the
//! production core. Coordinators may lose their memory. Acceptors may not, because a volatile
//! member that loses its votes becomes another member ([offload-9]).

mod owner;

use std::collections::BTreeMap;

use quorate_core::dice::Dice;
use quorate_offload::{Encapsulation, Header, Port, Type, header::HEADER_BYTES};

use crate::{
    Device, Event, Program,
    device::Reference,
    frames::{CELL_COUNT, ROOM_BYTES, client_frame, empty_header, filled_room, submit_header},
    p4::{Sources, Switch},
};

/// Number of events in a run: enough for a dozen ballots, or for a few laps of a ring.
pub const EVENT_COUNT: usize = 6_000;
const MEMBER_COUNT: usize = 3;
const QUORUM_SIZE: usize = 2;
const COORDINATOR_COUNT: usize = 2;
/// Maximum number of frames in flight. Further frames are lost.
const IN_FLIGHT_MAX: usize = 200;
/// Maximum number of control calls that are recorded so that they can be repeated.
const LATE_CALLS_MAX: usize = 40;

type Slot = u64;
type Ballot = u64;

/// Receiver of a frame.
#[derive(Clone, Copy, Debug)]
enum Station {
    Acceptor(usize),
    Coordinator(usize),
}

/// Rule that the owners violate, to test that the checks detect the violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OmittedRule {
    /// [offload-8] Owners promise without fencing the device, which continues to vote in lower
    /// ballots.
    Fence,
    /// [offload-8] Owners promise without reading the device's votes.
    ReadVotes,
    /// [offload-8] Owners stop reading votes at the first hole.
    ReadPastHoles,
    /// [offload-12] Owners revoke a coordinator's slots without stopping the coordinator.
    Stop,
    /// [offload-12] Owners fill the slots that a coordinator assigned with no-ops.
    Adoption,
    /// [offload-9] Owners restart a coordinator that lost its memory in the same ballot.
    StepDown,
    /// [offload-9] Owners do not change the boot number of a device that lost its memory, so the
    /// device obeys old calls.
    NewBoot,
}

impl OmittedRule {
    pub const ALL: [Self; 7] = [
        Self::Fence,
        Self::ReadVotes,
        Self::ReadPastHoles,
        Self::Stop,
        Self::Adoption,
        Self::StepDown,
        Self::NewBoot,
    ];
}

/// Voting node with its device.
struct Member {
    device: Box<dyn Device>,
    call_count: u64,
    promised: Ballot,
    /// Votes that were read from the device, and votes that the owner cast itself.
    votes: BTreeMap<Slot, (Ballot, u64)>,
    floor: Slot,
}

impl Member {
    fn new(device: Box<dyn Device>) -> Self {
        Self { device, call_count: 0, promised: 0, votes: BTreeMap::new(), floor: 0 }
    }
}

/// Coordinator with the state that its owner knows.
struct Proposer {
    device: Box<dyn Device>,
    boot: u32,
    call_count: u64,
    floor: Slot,
    slot_limit: Slot,
}

impl Proposer {
    fn new(device: Box<dyn Device>) -> Self {
        Self { device, boot: 1, call_count: 0, floor: 0, slot_limit: 0 }
    }
}

/// State of the most recent leader.
#[derive(Debug, Default)]
struct LeaderState {
    node: usize,
    ballot: Ballot,
    /// Members that promised and whose devices are armed. Empty if the leader stepped down, or died
    /// before it armed them.
    armed_members: Vec<usize>,
    /// Slot after the last one that the leader itself proposed.
    next: Slot,
    /// Set if the coordinator is assigning slots.
    coordinator_started: bool,
}

impl LeaderState {
    fn is_leading(&self) -> bool {
        !self.armed_members.is_empty()
    }
}

/// Group under test. Every error that its methods return is a violated rule.
pub struct Group {
    dice: Dice,
    /// Set if leaders change rarely, so that rings wrap around.
    few_leader_changes: bool,
    omitted: Option<OmittedRule>,
    members: Vec<Member>,
    proposers: Vec<Proposer>,
    lead: LeaderState,
    in_flight: Vec<(Station, Vec<u8>)>,
    /// Node whose frames the network loses or delays.
    cut_off_node: Option<usize>,
    /// Earlier control calls that may be repeated, with their receivers.
    late_calls: Vec<(Station, Vec<u8>)>,
    submitted_count: u64,
    /// All votes cast since the start: for each ballot and slot, the value that each member voted
    /// for.
    cast_votes: BTreeMap<(Ballot, Slot), BTreeMap<usize, u64>>,
    chosen_values: BTreeMap<Slot, u64>,
    /// Lowest slot for which no value is chosen.
    decided_to: Slot,
    /// Number of decisions that devices sent.
    pub decision_count: u64,
    /// Number of ballots that were started.
    pub ballot_count: u64,
}

impl Group {
    /// Creates a group from the given devices, whose order determines their positions, and begins
    /// the first ballot. The owners violate the rule `omitted`, if any.
    pub fn new(
        seed: u64,
        acceptors: [Box<dyn Device>; MEMBER_COUNT],
        coordinators: [Box<dyn Device>; COORDINATOR_COUNT],
        omitted: Option<OmittedRule>,
    ) -> Result<Self, String> {
        let mut dice = Dice::new(seed);
        let mut group = Self {
            few_leader_changes: dice.chance(1, 3),
            dice,
            omitted,
            members: acceptors.into_iter().map(Member::new).collect(),
            proposers: coordinators.into_iter().map(Proposer::new).collect(),
            lead: LeaderState::default(),
            in_flight: Vec::new(),
            cut_off_node: None,
            late_calls: Vec::new(),
            submitted_count: 0,
            cast_votes: BTreeMap::new(),
            chosen_values: BTreeMap::new(),
            decided_to: 0,
            decision_count: 0,
            ballot_count: 0,
        };
        group.boot_all()?;
        group.begin_ballot()?;
        Ok(group)
    }

    /// Creates a mixed group. Two acceptors and one coordinator are switches that run `sources`,
    /// the other devices are references.
    pub fn new_mixed(
        seed: u64,
        sources: &Sources,
        omitted: Option<OmittedRule>,
    ) -> Result<Self, String> {
        let reference = |program| -> Box<dyn Device> { Box::new(Reference::new(program)) };
        let switch = |program| -> Result<Box<dyn Device>, String> {
            Ok(Box::new(Switch::new(sources, program)?))
        };
        let acceptors =
            [switch(Program::Acceptor)?, reference(Program::Acceptor), switch(Program::Acceptor)?];
        let coordinators = [switch(Program::Coordinator)?, reference(Program::Coordinator)];
        Self::new(seed, acceptors, coordinators, omitted)
    }

    /// Simulates a number of random events.
    pub fn run(&mut self, events: usize) -> Result<(), String> {
        for _ in 0..events {
            let leaders = if self.few_leader_changes && self.lead.is_leading() { 2 } else { 20 };
            if self.dice.chance(leaders, 1000) {
                self.random_leader_action()?;
                continue;
            }
            match self.dice.below(1000) {
                0..8 => self.continue_leading()?,
                8..28 => self.raise_floors()?,
                28..88 => self.submit_value()?,
                88..108 => self.send_tick()?,
                108..118 => self.repeat_late_call()?,
                118..120 => self.send_foreign_frames()?,
                120..124 => self.cut_off_node = Some(self.dice.index(MEMBER_COUNT + 1)),
                _ => self.deliver_random_frame()?,
            }
        }
        Ok(())
    }

    /// Executes a random action: begins a ballot, stops the leader's coordinator, arms another
    /// member, or makes a coordinator lose its memory.
    fn random_leader_action(&mut self) -> Result<(), String> {
        match self.dice.below(10) {
            0..3 => self.begin_ballot(),
            3..5 => self.take_back_slots(),
            5..8 => self.arm_another_member(),
            _ => self.lose_coordinator_memory(),
        }
    }

    /// Returns the lowest slot for which no value is chosen.
    pub fn decided_to(&self) -> u64 {
        self.decided_to
    }

    fn put_in_flight(&mut self, to: Station, bytes: &[u8]) {
        if self.in_flight.len() < IN_FLIGHT_MAX {
            self.in_flight.push((to, readdress_to_device(bytes)));
        }
    }

    /// Delivers, duplicates or drops a random frame that is in flight.
    fn deliver_random_frame(&mut self) -> Result<(), String> {
        if self.in_flight.is_empty() {
            return Ok(());
        }
        let at = self.dice.index(self.in_flight.len());
        let is_cut = matches!(self.in_flight[at].0, Station::Acceptor(member) if self.cut_off_node == Some(member));
        if is_cut && self.dice.chance(3, 4) {
            return Ok(());
        }
        let (to, bytes) = match self.dice.below(10) {
            _ if is_cut => {
                self.in_flight.swap_remove(at);
                return Ok(());
            }
            0 => self.in_flight[at].clone(),
            1 => {
                self.in_flight.swap_remove(at);
                return Ok(());
            }
            _ => self.in_flight.swap_remove(at),
        };
        self.step_device(to, &Event::Frame(Port::Network, bytes))
    }

    fn device_at(&mut self, station: Station) -> &mut dyn Device {
        match station {
            Station::Acceptor(member) => &mut *self.members[member].device,
            Station::Coordinator(proposer) => &mut *self.proposers[proposer].device,
        }
    }

    /// Passes an event to a device, and routes the frames that the device sends.
    fn step_device(&mut self, at: Station, event: &Event) -> Result<(), String> {
        for (port, bytes) in self.device_at(at).step(event)? {
            let header = parse_header(&bytes)?;
            match (at, header.kind, port) {
                (Station::Acceptor(member), Type::Phase2b, Port::Owner) => {
                    self.record_vote(member, header.ballot.0, header.slot, header.value.counter)?;
                }
                (Station::Acceptor(_), Type::Phase2b, Port::Network) => {
                    for proposer in 0..COORDINATOR_COUNT {
                        self.put_in_flight(Station::Coordinator(proposer), &bytes);
                    }
                }
                (Station::Coordinator(_), Type::Phase2a, Port::Network) => {
                    for member in 0..MEMBER_COUNT {
                        self.put_in_flight(Station::Acceptor(member), &bytes);
                    }
                }
                (Station::Coordinator(_), Type::Decided, Port::Network) => {
                    self.decision_count += 1;
                    let (slot, number) = (header.slot, header.value.counter);
                    let chosen = self.chosen_values.get(&slot);
                    if chosen != Some(&number) {
                        return Err(format!("slot {slot}: decided {number}, chosen {chosen:?}"));
                    }
                    check_value_bytes(&bytes, &header)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Records a vote that a device or its owner cast. Checks that a value chosen by a quorum of
    /// votes never changes.
    fn record_vote(
        &mut self,
        member: usize,
        ballot: Ballot,
        slot: Slot,
        number: u64,
    ) -> Result<(), String> {
        let votes = self.cast_votes.entry((ballot, slot)).or_default();
        let before = votes.insert(member, number);
        if before.is_some_and(|before| before != number) {
            return Err(format!("{member} voted twice in {ballot} for slot {slot}"));
        }
        let agreed = votes.values().filter(|voted| **voted == number).count();
        if agreed >= QUORUM_SIZE {
            let before = *self.chosen_values.entry(slot).or_insert(number);
            if before != number {
                return Err(format!("slot {slot}: chosen {before}, then {number} in {ballot}"));
            }
            while self.chosen_values.contains_key(&self.decided_to) {
                self.decided_to += 1;
            }
        }
        Ok(())
    }

    /// Submits a new or a recent value, in most cases to the leader.
    fn submit_value(&mut self) -> Result<(), String> {
        let again = self.submitted_count > 0 && self.dice.chance(1, 2);
        let number = if again {
            self.submitted_count - self.dice.below(self.submitted_count.min(3))
        } else {
            self.submitted_count + 1
        };
        self.submitted_count = self.submitted_count.max(number);
        let bytes = client_frame(Encapsulation::Udp, &submit_header(number), &filled_room(number));
        let to = self.pick_likely_leader();
        self.step_device(Station::Coordinator(to), &Event::Frame(Port::Network, bytes))
    }

    /// Sends a tick for a slot that may be undecided.
    fn send_tick(&mut self) -> Result<(), String> {
        let mut header = empty_header(Type::Tick);
        header.slot = self.decided_to + self.dice.below(8);
        let bytes = client_frame(Encapsulation::Udp, &header, &[0; ROOM_BYTES]);
        let to = self.pick_likely_leader();
        self.step_device(Station::Coordinator(to), &Event::Frame(Port::Owner, bytes))
    }

    /// Returns the leader in most cases, else any coordinator. A former leader may not know of its
    /// successor.
    fn pick_likely_leader(&mut self) -> usize {
        if self.dice.chance(3, 4) { self.lead.node } else { self.dice.index(COORDINATOR_COUNT) }
    }

    /// [offload-17] Repeats an earlier control call whose caller no longer waits for the answer.
    fn repeat_late_call(&mut self) -> Result<(), String> {
        if self.late_calls.is_empty() {
            return Ok(());
        }
        let (to, bytes) = self.late_calls[self.dice.index(self.late_calls.len())].clone();
        self.step_device(to, &Event::Frame(Port::Owner, bytes))
    }

    /// [offload-16] Sends foreign frames, some of them in immediate succession. Devices must
    /// forward each one unchanged.
    fn send_foreign_frames(&mut self) -> Result<(), String> {
        let mut bytes = client_frame(Encapsulation::Udp, &submit_header(1), &filled_room(1));
        bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
        for _ in 0..self.dice.between(1, 6) {
            for member in 0..MEMBER_COUNT {
                let event = Event::Frame(Port::Network, bytes.clone());
                let sent = self.members[member].device.step(&event)?;
                if sent != [(Port::Owner, bytes.clone())] {
                    return Err(format!("{member} keeps a frame of others, or changes it"));
                }
            }
        }
        Ok(())
    }
}

fn parse_header(bytes: &[u8]) -> Result<Header, String> {
    let header: Option<&[u8; HEADER_BYTES]> =
        bytes[Encapsulation::Udp.header_offset()..].first_chunk();
    header.and_then(Header::read).ok_or_else(|| "a frame without a header".to_owned())
}

/// Checks that a frame contains the bytes of the value in its header.
fn check_value_bytes(bytes: &[u8], header: &Header) -> Result<(), String> {
    let (slot, number) = (header.slot, header.value.counter);
    if bytes[Encapsulation::Udp.room_offset()..] == filled_room(number) {
        Ok(())
    } else {
        Err(format!("slot {slot}: the bytes are not those of {number}"))
    }
}

/// Changes the destination of a frame to a device's address. The network fabric does so for
/// multicast addresses.
fn readdress_to_device(bytes: &[u8]) -> Vec<u8> {
    let header = parse_header(bytes).expect("a device sent it");
    client_frame(Encapsulation::Udp, &header, &bytes[Encapsulation::Udp.room_offset()..])
}

/// Number of slots above a floor for which a ring has cells.
const WINDOW_SLOTS: u64 = CELL_COUNT as u64;
