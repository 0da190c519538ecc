//! The client against a group that loses, repeats and reorders frames. Each batch reported as
//! executed was executed once, in the reported slot.

use quorate_core::{
    ballot::{Ballot, Era},
    dice::Dice,
    node_id::NodeId,
};
use quorate_offload::{
    PackedBallot,
    checksum::ones_complement_sum,
    header::{HINT, REPEAT},
};

use super::{leaving::RESEND_AGE_US, *};

const GROUP: u32 = 0x0102_0304;
const ROOM: usize = 128;
const CLIENT: [u8; 6] = [2, 0, 0, 0, 0, 9];
const NAME: LentName = LentName { origin: 1 << 31 | 5, boot: 3 };
/// Slot in which the client was registered.
const SESSION: u64 = 4;

#[derive(Clone, Debug)]
struct Entry {
    value: Descriptor,
    room: Vec<u8>,
}

/// The group, and the network between it and the client.
struct Group {
    dice: Dice,
    now: Micros,
    /// Entries from slot 0 on.
    log: Vec<Entry>,
    /// Slots in which the client's batches were executed.
    executed: Vec<u64>,
    era: u32,
    station: u8,
    gives: bool,
    limit: usize,
    /// Percentage of frames lost in each direction.
    lost: u64,
    repeated: u64,
    damaged: u64,
    to_group: Vec<(Micros, Vec<u8>)>,
    to_client: Vec<(Micros, Vec<u8>)>,
    stands: Vec<(Micros, NodePosition)>,
    offers: Vec<(Micros, u64, Vec<u8>)>,
    /// First slot without the client's session.
    ended_at: Option<usize>,
}

fn address(mac: [u8; 6]) -> Address {
    Address { mac, ..Address::default() }
}

fn frame(from: [u8; 6], to: [u8; 6], header: &Header, room: &[u8]) -> Vec<u8> {
    let mut buffer = vec![0; Encapsulation::Raw.room_offset() + ROOM];
    let made =
        Encapsulation::Raw.write_frame(&mut buffer, &address(from), &address(to), header, room);
    made.unwrap().to_vec()
}

impl Group {
    fn new(seed: u64) -> Self {
        let none = Entry { value: Descriptor::NONE, room: vec![0; ROOM] };
        Self {
            dice: Dice::new(seed),
            now: 0,
            log: vec![none; 10],
            executed: Vec::new(),
            era: 1,
            station: 1,
            gives: true,
            limit: usize::MAX,
            lost: 0,
            repeated: 0,
            damaged: 0,
            to_group: Vec::new(),
            to_client: Vec::new(),
            stands: Vec::new(),
            offers: Vec::new(),
            ended_at: None,
        }
    }

    const fn station(&self) -> [u8; 6] {
        [2, 0, 0, 0, 1, self.station]
    }

    fn place(&self) -> Option<DevicePlace> {
        self.gives.then(|| DevicePlace {
            group: GROUP,
            room: u16::try_from(ROOM).unwrap(),
            station_mac: self.station(),
        })
    }

    /// Applies the client's batch by the rule of `sessions/nodes.rs`.
    fn apply(&mut self, entry: &Entry) {
        let Descriptor { kind, origin, .. } = entry.value;
        let own = kind == 2 && (origin, entry.value.origin_boot) == (NAME.origin, NAME.boot);
        let bytes = &entry.room[..entry.value.length.into()];
        let slot = self.log.len();
        let is_gone = self.ended_at.is_some_and(|end| end <= slot);
        if own && !is_gone && checksum(bytes) == entry.value.crc {
            let number = u64::from_le_bytes(bytes[9..17].try_into().unwrap());
            assert_eq!(number, entry.value.counter);
            if number == self.executed.len() as u64 + 1 {
                self.executed.push(slot as u64);
            }
        }
    }

    fn stand_at(&self, to: usize) -> NodePosition {
        let is_gone = self.ended_at.is_some_and(|end| end < to);
        let next = 1 + self.executed.partition_point(|slot| *slot < to as u64) as u64;
        NodePosition {
            cluster: 7,
            is_leader: true,
            device_place: self.place(),
            era: self.era,
            applied_to: to as u64,
            session_slot: if is_gone { 0 } else { SESSION },
            next: if is_gone { 0 } else { next },
        }
    }

    fn stand(&self) -> NodePosition {
        self.stand_at(self.log.len())
    }

    fn decided(&self, slot: usize) -> Header {
        let entry = &self.log[slot];
        Header {
            kind: Type::Decided,
            slot: slot as u64,
            ballot: self.ballot(),
            voted: self.ballot().0,
            flags: COORDINATOR,
            ..Header::new_submit(GROUP, entry.value, ones_complement_sum(0, &entry.room))
        }
    }

    fn ballot(&self) -> PackedBallot {
        let ballot = Ballot { era: Era(self.era), round: self.station.into(), node: NodeId(1) };
        PackedBallot::pack(ballot).unwrap()
    }

    fn decision(&self, slot: usize) -> Vec<u8> {
        let to = multicast_addresses(GROUP)[1].mac;
        frame(self.station(), to, &self.decided(slot), &self.log[slot].room)
    }

    /// Sends a frame to the client, unless it is lost. Some frames are sent twice.
    fn tell(&mut self, bytes: Vec<u8>) {
        for _ in 0..1 + u64::from(self.dice.chance(self.repeated, 100)) {
            if !self.dice.chance(self.lost, 100) {
                let spread = if self.lost > 0 { 300 } else { 0 };
                let at = self.now + 10 + self.dice.below(spread + 1);
                self.to_client.push((at, bytes.clone()));
            }
        }
    }

    /// Assigns the next slot to a value, by a device or by the leader, which sends no frames to
    /// clients.
    fn give(&mut self, entry: Entry, by_device: bool) {
        self.apply(&entry);
        self.log.push(entry);
        if by_device {
            let slot = self.log.len() - 1;
            let bytes = self.decision(slot);
            self.tell(bytes);
        }
    }

    fn other(&mut self, kind: u8) -> Entry {
        let value = Descriptor {
            kind,
            origin: 2,
            origin_boot: 1,
            counter: self.dice.word(),
            length: 8,
            crc: 0,
        };
        Entry { value, room: vec![5; ROOM] }
    }

    fn on_submit(&mut self, bytes: &[u8]) {
        let setup = Setup {
            group: GROUP,
            room: ROOM,
            own_address: address(self.station()),
            heard_group: multicast_addresses(GROUP)[0].mac,
            owner: Address::default(),
        };
        let Ok(said) =
            parse_and_check(&setup, Port::Network, bytes, |said| said.kind == Type::Submit)
        else {
            return;
        };
        let refuse = match () {
            () if !self.gives => Some(Reason::Disarmed),
            () if self.log.len() >= self.limit => Some(Reason::Full),
            () => None,
        };
        if let Some(reason) = refuse {
            let header = Header {
                kind: Type::Refused,
                reason: reason as u8,
                flags: COORDINATOR,
                ..said.header
            };
            let bytes = frame(self.station(), CLIENT, &header, said.room);
            return self.tell(bytes);
        }
        let mut room = said.room.to_vec();
        if self.dice.chance(self.damaged, 100) {
            // The frame checksums are correct; a batch with another CRC is a no-op.
            room[20] ^= 1;
        }
        let value = said.header.value;
        self.give(Entry { value, room }, true);
    }

    fn on_offer(&mut self, counter: u64, bytes: &[u8]) {
        if counter <= self.executed.len() as u64 {
            return;
        }
        let mut room = bytes.to_vec();
        room.resize(ROOM, 0);
        let value = Descriptor {
            kind: 2,
            origin: NAME.origin,
            origin_boot: NAME.boot,
            counter,
            length: u16::try_from(bytes.len()).unwrap(),
            crc: checksum(bytes),
        };
        self.give(Entry { value, room }, false);
    }

    fn turn(&mut self, client: &mut Machine) {
        while let Some(act) = client.next_act(self.now) {
            let spread = if self.lost > 0 { 20 } else { 1 };
            let delay = self.now + 5 + self.dice.below(spread);
            match act {
                Act::SendFrame(bytes) if !self.dice.chance(self.lost, 100) => {
                    for _ in 0..1 + u64::from(self.dice.chance(self.repeated, 100)) {
                        self.to_group.push((delay, bytes.to_vec()));
                    }
                }
                Act::SendFrame(_) => {}
                Act::RequestPosition => {
                    // Nodes lag behind each other.
                    let lag = self.dice.index(4).min(self.log.len() - 10);
                    let stand = self.stand_at(self.log.len() - lag);
                    self.stands.push((self.now + 60, stand));
                }
                Act::OfferBatch(counter, bytes) => {
                    self.offers.push((self.now + 60, counter, bytes.to_vec()));
                }
            }
        }
        let due = |at: Micros| at <= self.now;
        let (now, later) = take(&mut self.to_group, |(at, _)| due(*at));
        self.to_group = later;
        now.iter().for_each(|(_, bytes)| self.on_submit(bytes));
        let now_us = self.now;
        let (now, later) = take(&mut self.offers, |(at, ..)| *at <= now_us);
        self.offers = later;
        (now.iter()).for_each(|(_, counter, bytes)| self.on_offer(*counter, bytes));
        let (now, later) = take(&mut self.to_client, |(at, _)| *at <= now_us);
        self.to_client = later;
        (now.iter()).for_each(|(_, bytes)| client.on_frame(now_us, bytes));
        let (now, later) = take(&mut self.stands, |(at, _)| *at <= now_us);
        self.stands = later;
        (now.iter()).for_each(|(_, stand)| client.on_position(now_us, stand));
        self.now += 10;
    }

    /// Checks that every reported outcome is true.
    fn check(&self, client: &mut Machine, told: &mut u64) {
        while let Some(done) = client.take_completed() {
            let Outcome::Executed(slot) = done.outcome else {
                panic!("unknown: {done:?}");
            };
            assert_eq!(done.tag, *told, "in their order");
            let place = self.executed.get(usize::try_from(*told).unwrap());
            let place = place.unwrap_or_else(|| panic!("{done:?} is not executed"));
            assert!(slot.is_none_or(|slot| slot == *place), "{done:?}: {place}");
            *told += 1;
        }
    }
}

fn take<T>(all: &mut Vec<T>, is_due: impl Fn(&T) -> bool) -> (Vec<T>, Vec<T>) {
    std::mem::take(all).into_iter().partition(is_due)
}

fn client(group: &Group) -> Machine {
    Machine::new(NAME, CLIENT, &group.stand(), 16)
}

fn submit(client: &mut Machine, tag: u64) {
    let commands = [&tag.to_le_bytes()[..], b"second"];
    client.submit(tag, commands.into_iter()).unwrap();
}

/// Runs until `count` batches are reported as executed, with some in flight. Calls `interfere` in
/// each turn.
fn run(group: &mut Group, count: u64, mut interfere: impl FnMut(&mut Group)) -> Counters {
    let mut client = client(group);
    let (mut submitted, mut told) = (0, 0);
    while told < count {
        while submitted < count && client.open() < 12 {
            submit(&mut client, submitted);
            submitted += 1;
        }
        interfere(group);
        group.turn(&mut client);
        group.check(&mut client, &mut told);
        assert!(group.now < 20_000_000, "stuck at {told}: {client:?}");
    }
    assert_eq!(client.counters().conflicts, 0);
    client.counters()
}

#[test]
fn without_faults_nothing_is_queried_or_sent_twice() {
    let mut group = Group::new(1);
    let counts = run(&mut group, 500, |_| {});
    assert_eq!((counts.frames_sent, counts.learned_by_frames), (500, 500));
    assert_eq!((counts.position_requests, counts.batches_offered, counts.full_resends), (0, 0, 0));
}

#[test]
fn decisions_of_other_origins_are_skipped() {
    let mut group = Group::new(2);
    let counts = run(&mut group, 300, |group| {
        if group.dice.chance(1, 3) {
            let kind = group.dice.pick(&[1, 2, 4, 8]);
            let other = group.other(kind);
            group.give(other, true);
        }
    });
    assert_eq!((counts.position_requests, counts.learned_by_frames), (0, 300));
}

/// [offload-24] Each batch is executed once despite loss, repetition, reordering, damage that no
/// checksum detects, slots taken by connections and other sessions, and full windows.
#[test]
fn each_batch_is_executed_once_despite_network_faults() {
    for seed in 0..60 {
        let mut group = Group::new(seed);
        (group.lost, group.repeated) = (group.dice.below(20), group.dice.below(20));
        group.damaged = group.dice.below(3);
        run(&mut group, 150, |group| match group.dice.below(400) {
            0 => {
                let other = group.other(5);
                group.give(other, true);
            }
            1..4 => {
                let other = group.other(2);
                group.give(other, false);
            }
            4 => group.limit = group.log.len() + group.dice.index(8),
            5..15 => group.limit = usize::MAX,
            _ => {}
        });
    }
}

/// [offload-24] Leaders change, with and without devices, in new eras, and old frames arrive late.
#[test]
fn batches_survive_changes_of_leader_and_era() {
    for seed in 0..60 {
        let mut group = Group::new(1000 + seed);
        (group.lost, group.repeated) = (group.dice.below(5), group.dice.below(10));
        let mut old: Vec<Vec<u8>> = Vec::new();
        run(&mut group, 300, |group| match group.dice.below(1000) {
            0 => group.gives = !group.gives,
            1 => group.station += 1,
            2 => {
                // A reconfiguration is proposed over connections.
                let other = group.other(1);
                group.give(other, false);
                group.era += 1;
                group.station += 1;
            }
            3..20 => {
                let slot = group.dice.index(group.log.len());
                let era = group.era;
                let bytes = group.decision(slot);
                // Genuine frames only: slots of an earlier era have other ballots.
                if slot >= 10 && era == 1 {
                    old.push(bytes);
                }
            }
            20..40 => {
                if let Some(bytes) = old.pop() {
                    group.tell(bytes);
                }
            }
            _ => {}
        });
    }
}

/// [offload-11] [offload-23] A frame is ignored unless it is a decision of a volatile group in the
/// era of the walk.
#[test]
fn frames_that_are_no_valid_decision_are_ignored() {
    let mut group = Group::new(3);
    let mut client = client(&group);
    submit(&mut client, 0);
    group.turn(&mut client);
    let (_, bytes) = group.to_group[0].clone();
    // The slot that the batch would get.
    group.on_submit(&bytes);
    group.to_client.clear();
    let slot = group.log.len() - 1;
    let (to, room) = (multicast_addresses(GROUP)[1].mac, group.log[slot].room.clone());
    let sound = group.decided(slot);
    let other = |change: &dyn Fn(&mut Header)| {
        let mut header = sound;
        change(&mut header);
        frame(group.station(), to, &header, &room)
    };
    let era = |era: u32| PackedBallot::pack(Ballot { era: Era(era), round: 1, node: NodeId(1) });
    let unsound: [Vec<u8>; 9] = [
        other(&|header| header.flags |= HINT),
        other(&|header| header.flags = 0),
        other(&|header| header.group ^= 1),
        other(&|header| header.ballot = era(0).unwrap()),
        other(&|header| header.ballot = era(2).unwrap()),
        other(&|header| header.kind = Type::Phase2b),
        other(&|header| header.kind = Type::Phase2a),
        other(&|header| header.slot += 1),
        frame(group.station(), [2, 0, 0, 0, 0, 8], &sound, &room),
    ];
    for (number, bytes) in unsound.iter().enumerate() {
        client.on_frame(100, bytes);
        assert_eq!(client.take_completed(), None, "{number}");
    }
    // Flips each bit of the frame in transit.
    let whole = frame(group.station(), to, &sound, &room);
    for bit in 0..whole.len() * 8 {
        // The checksum does not cover the sender's address.
        if (48..96).contains(&bit) {
            continue;
        }
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        client.on_frame(100, &bytes);
        assert_eq!(client.take_completed(), None, "bit {bit}");
    }
    let mut told = 0;
    client.on_frame(100, &other(&|header| header.flags |= REPEAT));
    group.check(&mut client, &mut told);
    assert_eq!(told, 1);
}

/// [count-1] After two values for a slot, the connection takes over and frames are no longer
/// trusted.
#[test]
fn two_values_for_a_slot_end_the_use_of_frames() {
    let mut group = Group::new(4);
    let mut client = client(&group);
    let slot = group.log.len() + 1;
    for counter in [1, 2] {
        let other = group.other(2);
        let header = Header {
            kind: Type::Decided,
            slot: slot as u64,
            ballot: group.ballot(),
            flags: COORDINATOR,
            ..Header::new_submit(GROUP, Descriptor { counter, ..other.value }, 0)
        };
        let to = multicast_addresses(GROUP)[1].mac;
        client.on_frame(0, &frame(group.station(), to, &header, &other.room));
    }
    assert_eq!(client.counters().conflicts, 1);
    let mut told = 0;
    for tag in 0..50 {
        submit(&mut client, tag);
    }
    while told < 50 {
        group.turn(&mut client);
        group.check(&mut client, &mut told);
        assert!(group.now < 20_000_000, "stuck at {told}");
    }
    assert_eq!((client.counters().frames_sent, client.counters().learned_by_frames), (0, 0));
}

/// [session-4] A client whose session expired reports all outstanding batches as unknown.
#[test]
fn ended_session_makes_all_outcomes_unknown() {
    let mut group = Group::new(5);
    let mut client = client(&group);
    for tag in 0..3 {
        submit(&mut client, tag);
    }
    group.ended_at = Some(group.log.len());
    // Another client's registration evicted the session. The walk stops there.
    let other = group.other(5);
    group.give(other, true);
    for _ in 0..10_000 {
        group.turn(&mut client);
    }
    let ends: Vec<_> = std::iter::from_fn(|| client.take_completed()).collect();
    let unknown = |tag| CompletedBatch { tag, outcome: Outcome::Unknown };
    assert_eq!(ends, [0, 1, 2].map(unknown));
    let refused = client.submit(3, [&b"x"[..]].into_iter());
    assert_eq!(refused, Err(SubmitError::SessionGone));
}

/// A client checks what nodes state: they may belong to another cluster, lag, or contradict frames.
#[test]
fn node_positions_are_checked() {
    let group = Group::new(6);
    let mut client = client(&group);
    submit(&mut client, 0);
    let sound = group.stand();
    let strange = NodePosition { cluster: 8, next: 2, applied_to: 100, ..sound };
    let behind = NodePosition { applied_to: SESSION, session_slot: 0, next: 0, ..sound };
    for stand in [strange, behind] {
        client.on_position(0, &stand);
        assert_eq!((client.take_completed(), client.open()), (None, 1));
    }
    let ahead = NodePosition { next: 9, applied_to: 100, ..sound };
    client.on_position(0, &ahead);
    assert_eq!(client.take_completed().map(|done| done.outcome), Some(Outcome::Unknown));
    assert_eq!(client.counters().conflicts, 1);
}

/// Positions that no log can reach are rejected without overflow.
#[test]
fn positions_that_no_log_can_reach_are_rejected() {
    let group = Group::new(3);
    for (applied_to, next) in [(u64::MAX, 1), (20, u64::MAX)] {
        let stand = NodePosition { applied_to, next, ..group.stand() };
        let mut client = client(&group);
        submit(&mut client, 0);
        client.on_position(0, &stand);
        assert!(!client.is_session_gone());
        assert_eq!((client.open(), client.counters().conflicts), (1, 0));
        assert!(Machine::new(NAME, CLIENT, &stand, 16).is_session_gone());
    }
}

/// [offload-24] The decision after a lost batch makes the client resend without a timeout.
#[test]
fn lost_batch_and_later_ones_are_resent_without_a_timeout() {
    let mut group = Group::new(8);
    let mut client = client(&group);
    for tag in 0..5 {
        submit(&mut client, tag);
    }
    group.turn(&mut client);
    group.to_group.remove(1);
    let mut told = 0;
    while told < 5 {
        group.turn(&mut client);
        group.check(&mut client, &mut told);
        assert!(group.now < RESEND_AGE_US, "stuck at {told}");
    }
    let counts = client.counters();
    assert_eq!((counts.frames_sent, counts.full_resends, counts.learned_by_frames), (9, 1, 5));
}

/// A client stops when it sees a batch under its name that it did not submit, since it no longer
/// knows what was executed.
#[test]
fn batch_of_another_client_with_the_same_name_ends_a_client() {
    for number in [1, 3] {
        let mut group = Group::new(9);
        let mut client = client(&group);
        for tag in 0..2 {
            submit(&mut client, tag);
        }
        let bytes = encode_batch(SESSION, number, [&b"forged"[..]].into_iter());
        let mut room = bytes.clone();
        room.resize(ROOM, 0);
        let value = Descriptor {
            kind: 2,
            origin: NAME.origin,
            origin_boot: NAME.boot,
            counter: number,
            length: u16::try_from(bytes.len()).unwrap(),
            crc: checksum(&bytes),
        };
        group.give(Entry { value, room }, true);
        let (_, decision) = group.to_client.pop().unwrap();
        client.on_frame(0, &decision);
        let ends: Vec<_> = std::iter::from_fn(|| client.take_completed()).collect();
        let unknown = ends.iter().all(|done| done.outcome == Outcome::Unknown);
        assert!(unknown && ends.len() == 2 && client.is_session_gone(), "{number}");
    }
}

#[test]
fn batches_too_long_or_too_many_are_refused() {
    let group = Group::new(7);
    let mut client = client(&group);
    let room = client.batch_capacity(1);
    let mut of = |bytes: usize| client.submit(0, [&vec![1; bytes][..]].into_iter());
    assert_eq!(of(room), Ok(()));
    assert_eq!(of(room + 1), Err(SubmitError::BatchTooLong));
    for _ in 1..OUTSTANDING_MAX {
        assert_eq!(of(1), Ok(()));
    }
    assert_eq!(of(1), Err(SubmitError::TooManyOutstanding));
}
