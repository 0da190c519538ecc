//! Packet planes of several nodes, over a network that loses, repeats and reorders datagrams.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use quorate_core::dice::Dice;
use quorate_core::{
    ballot::Ballot,
    message::{Message, Phase2a},
    node_id::{Member, NodeId},
    node_set::NodeSet,
    slot::{Slot, SlotRange},
    time::Time,
    value::Value,
};
use quorate_packets::plane::{
    Carrier, Event, GroupPath, PacketEngine, Settings, port::SendOutcome,
};
use quorate_packets::{
    endpoint::{self, Destination},
    limits::Limits,
    receive::Delivery,
    trust::{GroupIdentity, Key, KeyRing},
};
use quorate_wire::{Frame, encode, header::proposed_end};

/// Network faults, per 1000 datagrams.
#[derive(Clone, Copy, Default)]
struct NetworkFaults {
    lost: u64,
    repeated: u64,
    late: u64,
}

/// Nodes 1 to n, and the datagrams in flight between them.
struct World {
    now: u64,
    planes: BTreeMap<u32, PacketEngine>,
    flying: BTreeMap<(u64, u64), (u32, Vec<u8>)>,
    next: u64,
    dice: Dice,
    weather: NetworkFaults,
    /// Nodes that do not receive the group.
    deaf: BTreeSet<u32>,
    /// Pairs of nodes between which nothing arrives.
    cut: BTreeSet<(u32, u32)>,
    got: BTreeMap<(u32, u32), Vec<Vec<u8>>>,
    ups: BTreeMap<u32, Vec<(u32, bool, bool)>>,
    sent_to_group: u64,
    blocked: VecDeque<SendOutcome>,
}

fn plane(node: u32, boot: u32, reach: GroupPath, now: Time) -> PacketEngine {
    plane_on(node, boot, (reach, false), Limits::for_mtu(1500), now)
}

/// Returns a plane that chooses its path, on a link of 100 Mbit/s.
fn choosing_plane(node: u32, now: Time) -> PacketEngine {
    let limits = Limits { link_bytes_s: 12_500_000, ..Limits::for_mtu(1500) };
    plane_on(node, 1, (GroupPath::Multicast, true), limits, now)
}

fn plane_on(
    node: u32,
    boot: u32,
    (reach, chooses): (GroupPath, bool),
    limits: Limits,
    now: Time,
) -> PacketEngine {
    let mut dice = Dice::new(u64::from(node) << 32 | u64::from(boot));
    PacketEngine::new(
        Settings {
            endpoint: endpoint::Settings {
                own_member: Member::first(node),
                boot,
                group: GroupIdentity { cluster: 9, group: 1, generation: 0 },
                keys: KeyRing::one(1, Key::new([3; 32])).unwrap(),
                limits,
                delivery: Delivery::InOrder,
                retains_datagrams: true,
                seed: u64::from(node),
            },
            initial_group_path: reach,
            is_adaptive: chooses,
            next_nonce: Box::new(move || dice.below(u64::MAX)),
        },
        now,
    )
}

impl World {
    fn new(nodes: u32, reach: GroupPath, weather: NetworkFaults, seed: u64) -> Self {
        let planes = (1..=nodes).map(|node| (node, plane(node, 1, reach, Time(1))));
        Self::of(planes.collect(), weather, seed)
    }

    /// Creates a world of nodes that choose their paths.
    fn choosing(nodes: u32, weather: NetworkFaults, seed: u64) -> Self {
        let planes = (1..=nodes).map(|node| (node, choosing_plane(node, Time(1))));
        Self::of(planes.collect(), weather, seed)
    }

    fn of(planes: BTreeMap<u32, PacketEngine>, weather: NetworkFaults, seed: u64) -> Self {
        let nodes = planes.len() as u32;
        let mut world = Self {
            now: 1,
            planes,
            flying: BTreeMap::new(),
            next: 0,
            dice: Dice::new(seed),
            weather,
            deaf: BTreeSet::new(),
            cut: BTreeSet::new(),
            got: BTreeMap::new(),
            ups: BTreeMap::new(),
            sent_to_group: 0,
            blocked: VecDeque::new(),
        };
        for one in 1..=nodes {
            for two in one + 1..=nodes {
                world.connect(one, two);
            }
        }
        world
    }

    fn plane(&mut self, node: u32) -> &mut PacketEngine {
        self.planes.get_mut(&node).unwrap()
    }

    fn connect(&mut self, one: u32, two: u32) {
        let now = Time(self.now);
        let said = [(one, two), (two, one)]
            .map(|(from, to)| self.plane(from).register_peer(Member::first(to), now).unwrap());
        assert!(self.plane(two).introduce(&said[0], now));
        assert!(self.plane(one).introduce(&said[1], now));
    }

    /// Puts everything that nodes have to send in flight.
    fn flush(&mut self) {
        let Self {
            planes,
            flying,
            next,
            dice,
            weather,
            deaf,
            cut,
            now,
            sent_to_group,
            blocked,
            ..
        } = self;
        let nodes: Vec<u32> = planes.keys().copied().collect();
        for (&from, plane) in planes {
            plane.send_due(Time(*now), |outgoing| {
                if let Some(left) = blocked.pop_front() {
                    return left;
                }
                for datagram in outgoing.bytes.chunks(outgoing.segment_bytes) {
                    let to: Vec<u32> = match outgoing.destination {
                        Destination::Node(node) => vec![node.0],
                        Destination::Group => {
                            *sent_to_group += 1;
                            let hears = |node: &u32| *node != from && !deaf.contains(node);
                            nodes.iter().copied().filter(hears).collect()
                        }
                    };
                    for to in to {
                        if cut.contains(&(from, to)) {
                            continue;
                        }
                        let copies = if dice.chance(weather.repeated, 1000) { 2 } else { 1 };
                        for _ in 0..copies {
                            if dice.chance(weather.lost, 1000) {
                                continue;
                            }
                            let late = if dice.chance(weather.late, 1000) { 2000 } else { 0 };
                            let at = *now + 20 + dice.below(10) + late;
                            *next += 1;
                            flying.insert((at, *next), (to, datagram.to_vec()));
                        }
                    }
                }
                SendOutcome::All
            });
        }
        for (&node, plane) in &mut self.planes {
            while let Some(event) = plane.next_event() {
                match event {
                    Event::Frame { from, bytes } => {
                        self.got.entry((from.node.0, node)).or_default().push(bytes);
                    }
                    Event::Up { node: of, is_by_group: by_group, .. } => {
                        self.ups.entry(node).or_default().push((of.0, by_group, true));
                    }
                    Event::Down { node: of, is_by_group: by_group } => {
                        self.ups.entry(node).or_default().push((of.0, by_group, false));
                    }
                }
            }
        }
    }

    fn run(&mut self, us: u64) {
        let end = self.now + us;
        self.flush();
        loop {
            let arrival = self.flying.first_key_value().map(|((at, _), _)| *at);
            let dues = self.planes.values().filter_map(PacketEngine::next_due);
            let due = dues.map(|due| due.0).min();
            let Some(at) = arrival.into_iter().chain(due).min().filter(|at| *at <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(at).max(self.now + u64::from(arrival.is_none()));
            while let Some(entry) = self.flying.first_entry()
                && entry.key().0 <= self.now
            {
                let (to, datagram) = entry.remove();
                let now = Time(self.now);
                self.plane(to).on_datagram(&datagram, now);
            }
            let now = Time(self.now);
            self.planes.values_mut().for_each(|plane| plane.poll(now));
            self.flush();
        }
    }

    fn send(&mut self, from: u32, to: &[u32], bytes: &[u8]) -> Vec<u32> {
        let mut set = NodeSet::default();
        to.iter().for_each(|node| assert!(set.insert(NodeId(*node))));
        let (header, body) = bytes.split_at(bytes.len().min(160));
        let sent = self.plane(from).send(set, header, body);
        sent.iter().map(|node| node.0).collect()
    }

    fn got(&self, from: u32, to: u32) -> &[Vec<u8>] {
        self.got.get(&(from, to)).map_or(&[], Vec::as_slice)
    }
}

fn proposal(slot: u64, length: usize) -> Vec<u8> {
    let message = Message::Phase2a(Phase2a {
        ballot: Ballot::ZERO,
        range: SlotRange::new(Slot(slot), Slot(slot + 1)),
        value: Value::NoOp,
        prefix: slot,
        decided_to: Slot(1),
        own_volatile_to: Slot(1),
        own_durable_to: Slot(1),
        with_bytes: false,
    });
    let mut bytes = Vec::new();
    encode(Member::first(1), &Frame::Protocol { message, bytes: None }, &mut bytes).unwrap();
    bytes.resize(bytes.len() + length, 7);
    bytes
}

fn slot_of(frame: &[u8]) -> u64 {
    proposed_end(frame).unwrap().0 - 1
}

/// [plane-1] Packets are sent only after probes in both directions, and no longer once these go
/// unanswered.
#[test]
fn a_way_is_up_when_probes_come_back_and_down_when_they_do_not() {
    let mut world = World::new(2, GroupPath::Unicast, NetworkFaults::default(), 1);
    assert!(world.send(1, &[2], b"early").is_empty());
    world.run(1000);
    assert_eq!(world.ups[&1], [(2, false, true)]);
    assert_eq!(world.send(1, &[2], b"now"), [2]);
    world.run(1000);
    assert_eq!(world.got(1, 2), [b"now"]);
    // One direction alone is not enough.
    world.cut.insert((2, 1));
    world.run(600_000);
    assert_eq!(world.ups[&1], [(2, false, true), (2, false, false)]);
    assert_eq!(world.ups[&2], [(1, false, true), (1, false, false)]);
    assert!(
        world.send(1, &[2], b"lost").is_empty()
            && !world.plane(1).link(NodeId(2)).unwrap().unicast_path.is_up()
    );
    world.cut.clear();
    world.run(200_000);
    assert_eq!(world.ups[&1].len(), 3);
    assert_eq!(world.send(1, &[2], b"again"), [2]);
    world.run(1000);
    assert_eq!(world.got(1, 2), [&b"now"[..], b"again"]);
}

/// [gap-2] A heartbeat overtakes proposals that wait for pacing. They are not missing: no node
/// requests them, and the heartbeat is still delivered after them.
#[test]
fn what_waits_for_its_pace_is_not_missing() {
    let mut world = World::new(3, GroupPath::Multicast, NetworkFaults::default(), 1);
    world.run(1000);
    for slot in 1..=20 {
        assert_eq!(world.send(1, &[2, 3], &proposal(slot, 50_000)), [2, 3]);
    }
    assert_eq!(world.send(1, &[2], b"heartbeat"), [2]);
    world.run(5_000);
    let got = world.got(1, 2).len();
    assert!((1..20).contains(&got), "some of them have left: {got}");
    world.run(100_000);
    let got = world.got(1, 2);
    assert_eq!(got.len(), 21);
    assert_eq!(got[20], b"heartbeat");
    for node in [2, 3] {
        assert_eq!(world.plane(node).repairs().ranges_requested, 0);
    }
}

/// [rate-3] [gap-2] A leader that learns of a higher ballot withdraws the numbers of its unsent
/// messages. Messages to one node that follow them wait only until the leader's next message.
#[test]
fn what_was_taken_back_holds_nothing_up() {
    let mut world = World::new(3, GroupPath::Multicast, NetworkFaults::default(), 1);
    world.run(1000);
    let ballot = |node| Ballot { node: NodeId(node), round: node, ..Ballot::ZERO };
    let now = Time(world.now);
    world.plane(1).record_decided(ballot(1), Slot(1), now);
    for slot in 1..=20 {
        assert_eq!(world.send(1, &[2, 3], &proposal(slot, 50_000)), [2, 3]);
    }
    assert_eq!(world.send(1, &[2], b"before"), [2]);
    world.run(1_000);
    let now = Time(world.now);
    world.plane(2).record_decided(ballot(2), Slot(1), now);
    world.run(20_000);
    // It is a follower now and sends nothing to the group.
    for _ in 0..3 {
        assert_eq!(world.send(1, &[2], b"behind"), [2]);
        world.run(20_000);
    }
    let got = world.got(1, 2);
    assert!(got.len() < 20, "it was stopped");
    let alone: Vec<_> = got.iter().filter(|frame| frame.len() == 6).collect();
    assert_eq!(alone, [b"before", b"behind", b"behind", b"behind"]);
    // Its numbers are reused, and the order is preserved.
    let now = Time(world.now);
    world.plane(1).record_decided(ballot(3), Slot(1), now);
    assert_eq!(world.send(1, &[2, 3], &proposal(30, 50_000)), [2, 3]);
    assert_eq!(world.send(1, &[2], b"behind"), [2]);
    world.run(100_000);
    let got = world.got(1, 2);
    assert_eq!(slot_of(&got[got.len() - 2]), 30);
    assert_eq!(got[got.len() - 1], b"behind");
}

/// [learn-1] [pkt-7] A voter retains what it receives for others and answers their requests. A
/// learner does neither until it votes.
#[test]
fn learners_keep_nothing_for_others() {
    let rain = NetworkFaults { lost: 30, ..NetworkFaults::default() };
    let mut world = World::new(4, GroupPath::Multicast, rain, 1);
    world.run(500_000);
    let mut repaired_by_the_last = |voters: &[u32]| {
        for node in 1..=4 {
            let voters = voters.iter().map(|node| NodeId(*node)).collect();
            world.plane(node).set_voters(voters);
        }
        let before = [2, 3, 4].map(|node| world.plane(node).repairs().repaired_to_one);
        for slot in 1..=300 {
            world.send(1, &[2, 3, 4], &proposal(slot, 5_000));
            world.run(2_000);
            let now = Time(world.now);
            world.plane(1).record_decided(Ballot::ZERO, Slot(slot), now);
        }
        let after = [2, 3, 4].map(|node| world.plane(node).repairs().repaired_to_one);
        assert!(after[0] > before[0] && after[1] > before[1], "{after:?}");
        after[2] - before[2]
    };
    assert_eq!(repaired_by_the_last(&[1, 2, 3]), 0);
    assert!(repaired_by_the_last(&[1, 2, 3, 4]) > 0);
}

/// [gap-2] Frames arrive once and whole. Those to the multicast group and those to one node each
/// arrive in order, and the latter after everything that was sent to the group before them,
/// whatever happens to datagrams. What is given up leaves only a gap.
#[test]
fn frames_arrive_in_order_and_once_whatever_the_network_does() {
    for (seed, lost, at_least) in [(1, 0, 400), (2, 10, 400), (3, 50, 395), (4, 150, 330)] {
        let weather = NetworkFaults { lost, repeated: 30, late: 20 };
        let mut world = World::new(4, GroupPath::Multicast, weather, seed);
        world.run(400_000);
        let mut sent: BTreeMap<u32, Vec<Vec<u8>>> = BTreeMap::new();
        for slot in 1..=400_u64 {
            let frame = proposal(slot, usize::try_from(slot * 37 % 5000).unwrap());
            let to: &[u32] = if slot % 3 == 0 { &[2] } else { &[2, 3, 4] };
            for node in world.send(1, to, &frame) {
                sent.entry(node).or_default().push(frame.clone());
            }
            world.plane(1).record_decided(Ballot::ZERO, Slot(slot), Time(slot));
            world.run(150);
        }
        world.run(100_000);
        for (node, sent) in sent {
            // Frames to the group reach every node that receives it, including frames for others.
            let mut got = world.got(1, node).iter();
            let missing = sent.iter().filter(|frame| !got.clone().any(|one| one == *frame)).count();
            assert!(
                sent.len() - missing >= at_least * sent.len() / 400,
                "{missing} of {} missing at {node}, {lost}",
                sent.len()
            );
            let place = |frame: &Vec<u8>| got.clone().position(|one| one == frame);
            let mut last_of_group = None;
            for frame in &sent {
                let slot = slot_of(frame);
                match (place(frame), slot.is_multiple_of(3)) {
                    (None, _) => {}
                    (place, false) => {
                        assert!(place > last_of_group, "slot {slot} in order");
                        last_of_group = place;
                    }
                    (place, true) => {
                        assert!(place > last_of_group, "slot {slot} behind the group's")
                    }
                }
            }
            let alone: Vec<usize> = sent
                .iter()
                .filter(|frame| slot_of(frame).is_multiple_of(3))
                .filter_map(place)
                .collect();
            assert!(alone.is_sorted(), "those to one node in order");
            let all: BTreeSet<&Vec<u8>> = got.clone().collect();
            assert_eq!(all.len(), got.len(), "each once");
            assert!(got.all(|frame| sent.contains(frame) || node != 2));
        }
    }
}

/// [gap-2] If a message to one node is given up, this proves nothing about earlier messages to the
/// multicast group.
#[test]
fn what_was_given_up_of_one_channel_frees_nothing_of_another() {
    let mut world = World::new(3, GroupPath::Multicast, NetworkFaults::default(), 1);
    world.run(200_000);
    (0..10).for_each(|_| assert_eq!(world.send(1, &[2], b"before"), [2]));
    world.run(1000);
    // The message is lost, and requested in vain.
    world.cut = [(1, 2)].into();
    world.send(1, &[2], b"lost");
    world.flush();
    world.cut = [(2, 1), (2, 3), (3, 2)].into();
    world.send(1, &[2], b"behind it");
    world.run(3000);
    // Later the group's message is lost as well, and a message to node 2 waits for it.
    world.cut.insert((1, 2));
    assert_eq!(world.send(1, &[2, 3], b"group"), [2, 3]);
    world.flush();
    world.cut.remove(&(1, 2));
    world.send(1, &[2], b"waits");
    world.run(2800);
    assert_eq!(world.got(1, 2)[10..], [b"behind it"], "the lost one is given up");
    world.cut.clear();
    world.run(20_000);
    assert_eq!(world.got(1, 2)[11..], [&b"group"[..], b"waits"]);
}

/// A node that does not receive multicast is reached at its own address.
#[test]
fn the_group_is_used_for_those_who_hear_it() {
    let mut world = World::new(4, GroupPath::Multicast, NetworkFaults::default(), 1);
    world.deaf.insert(4);
    world.run(200_000);
    assert!(world.ups[&1].contains(&(3, true, true)) && !world.ups[&1].contains(&(4, true, true)));
    let before = world.sent_to_group;
    let mut expected = Vec::new();
    for slot in 1..20 {
        let frame = proposal(slot, 3000);
        assert_eq!(world.send(1, &[2, 3, 4], &frame), [2, 3, 4]);
        expected.push(frame);
    }
    // No tail or probe is due yet: three datagrams for each frame, for all that receive the group.
    world.flush();
    assert_eq!(world.sent_to_group - before, 19 * 3);
    world.run(5000);
    for node in 2..=4 {
        assert_eq!(world.got(1, node), expected);
    }
    // A single receiver of the group gets it separately.
    let before = world.sent_to_group;
    world.run(50_000);
    let quiet = world.sent_to_group - before;
    let before = world.sent_to_group;
    world.send(1, &[2, 4], &proposal(30, 100));
    world.flush();
    assert_eq!(world.sent_to_group - before, 0, "{quiet} tails and probes before");
    world.run(1000);
    assert_eq!(world.got(1, 3).len(), 19);
    // Node 3 no longer receives the group.
    world.deaf.insert(3);
    world.run(600_000);
    assert!(world.ups[&1].contains(&(3, true, false)));
    let frame = proposal(31, 10);
    assert_eq!(world.send(1, &[2, 3, 4], &frame), [2, 3, 4]);
    world.run(1000);
    assert_eq!(world.got(1, 3).last(), Some(&frame));
}

/// [chain-1] A frame for all leaves its sender once, reaches all in order, and each node forwards
/// it to one other.
#[test]
fn along_a_chain_each_node_sends_what_is_for_all_once() {
    let mut world = World::new(5, GroupPath::Chain, NetworkFaults::default(), 1);
    world.run(200_000);
    for node in 1..=5 {
        let ups = &world.ups[&node];
        assert_eq!(ups.iter().filter(|(_, by_group, _)| *by_group).count(), 4);
    }
    let relayed = |world: &mut World, node| world.plane(node).repairs().forwarded;
    let before: Vec<u64> = (1..=5).map(|node| relayed(&mut world, node)).collect();
    let others = [1, 2, 4, 5];
    for slot in 1..=50 {
        // Two datagrams each.
        assert_eq!(world.send(3, &others, &proposal(slot, 2000)), others);
    }
    world.run(100_000);
    for node in others {
        let slots: Vec<u64> = world.got(3, node).iter().map(|frame| slot_of(frame)).collect();
        assert_eq!(slots, (1..=50).collect::<Vec<_>>());
        assert_eq!(world.plane(node).repairs().ranges_requested, 0);
    }
    let handed_on: Vec<u64> =
        (1..=5).map(|node| relayed(&mut world, node) - before[node as usize - 1]).collect();
    // From 3 to 4, 5, 1 and 2, which is the last one. Adds a few probes and tails of all.
    for (node, handed_on) in (1..).zip(handed_on) {
        let of_proposals = if [4, 5, 1].contains(&node) { 100 } else { 0 };
        let of_others = handed_on - of_proposals;
        assert!((1..60).contains(&of_others), "{node} handed on {handed_on}");
    }
}

/// [chain-1] A node that does not forward is bypassed: at first all nodes after it are reached
/// separately, then it becomes the last.
#[test]
fn a_node_that_hands_nothing_on_becomes_the_last() {
    let mut world = World::new(4, GroupPath::Chain, NetworkFaults::default(), 1);
    world.run(200_000);
    let hears =
        |world: &mut World, node| world.plane(1).link(NodeId(node)).unwrap().group_path.is_up();
    assert!((2..=4).all(|node| hears(&mut world, node)));
    // 2 still answers all nodes, but nothing from it reaches 3.
    world.cut.insert((2, 3));
    let mut slot = 0;
    let mut say = |world: &mut World| {
        slot += 1;
        assert_eq!(world.send(1, &[2, 3, 4], &proposal(slot, 100)).len(), 3);
    };
    for _ in 0..20 {
        say(&mut world);
        world.run(100_000);
    }
    // 2 and 3 are at the end, 4 is first, and each node receives frames for all again.
    assert!((2..=4).all(|node| hears(&mut world, node)));
    let before = world.plane(1).counters().frames_to_one;
    for _ in 0..20 {
        say(&mut world);
    }
    world.run(100_000);
    assert_eq!(world.plane(1).counters().frames_to_one, before);
    for node in 2..=4 {
        // Frames sent separately do not wait for what the group received before.
        let slots: BTreeSet<u64> = world.got(1, node).iter().map(|frame| slot_of(frame)).collect();
        assert_eq!(slots, (1..=slot).collect(), "to node {node}");
    }
}

/// [chain-1] A node that leaves causes no gap: its predecessor forwards to its successor at once,
/// which requests what it missed.
#[test]
fn a_node_that_goes_is_left_out_at_once() {
    let mut world = World::new(4, GroupPath::Chain, NetworkFaults::default(), 1);
    world.run(200_000);
    for slot in 1..=30 {
        let there: &[u32] = if slot <= 10 { &[2, 3, 4] } else { &[2, 4] };
        assert_eq!(world.send(1, there, &proposal(slot, 3000)).len(), there.len());
        world.run(300);
        if slot == 10 {
            world.planes.remove(&3);
            for node in [1, 2, 4] {
                world.plane(node).remove_peer(NodeId(3));
            }
        }
    }
    world.run(50_000);
    let slots: Vec<u64> = world.got(1, 4).iter().map(|frame| slot_of(frame)).collect();
    assert_eq!(slots, (1..=30).collect::<Vec<_>>());
    assert_eq!(world.ups[&1].iter().filter(|(_, _, up)| !up).count(), 0);
}

/// A frame for more nodes than a set holds is sent in several calls, but to the multicast group
/// only once.
#[test]
fn parts_of_one_send_are_one_message_to_the_group() {
    let mut world = World::new(5, GroupPath::Multicast, NetworkFaults::default(), 1);
    world.run(200_000);
    let frame = proposal(1, 100);
    let before = world.plane(1).counters().frames_to_group;
    assert_eq!(world.send(1, &[2, 3], &frame), [2, 3]);
    assert_eq!(world.send(1, &[4, 5], &frame), [4, 5]);
    assert_eq!(world.send(1, &[3], &frame), [3], "a part may have one node");
    assert_eq!(world.plane(1).counters().frames_to_group - before, 1);
    world.run(1000);
    for node in 2..=5 {
        assert_eq!(world.got(1, node).len(), 1);
    }
    // Sent again later, it is another message.
    assert_eq!(world.send(1, &[2, 3], &frame), [2, 3]);
    world.run(1000);
    assert_eq!(world.got(1, 5).len(), 2);
}

/// [pkt-1] A process that restarts is introduced again. It receives nothing from before, and
/// nothing that it sent earlier is accepted.
#[test]
fn who_starts_again_gets_nothing_of_before() {
    let mut world = World::new(3, GroupPath::Multicast, NetworkFaults::default(), 1);
    world.run(100_000);
    world.send(1, &[2, 3], &proposal(1, 50_000));
    world.send(1, &[2], &proposal(2, 50_000));
    let now = Time(world.now);
    for node in [1, 3] {
        world.plane(node).remove_peer(NodeId(2));
    }
    world.planes.insert(2, plane(2, 2, GroupPath::Multicast, now));
    world.connect(1, 2);
    world.connect(2, 3);
    world.run(200_000);
    assert!(world.got(1, 2).is_empty());
    assert_eq!(world.got(1, 3).len(), 1);
    assert_eq!(world.send(1, &[2, 3], b"to both"), [2, 3]);
    assert_eq!(world.send(1, &[2], b"to one"), [2]);
    world.run(5000);
    assert_eq!(world.got(1, 2), [&b"to both"[..], b"to one"]);
}

/// [pkt-1] A connection that breaks and returns does not reset numbers: datagrams in flight from
/// before are not mistaken for later ones.
#[test]
fn what_flies_from_before_a_connection_is_not_taken() {
    let mut world = World::new(2, GroupPath::Multicast, NetworkFaults::default(), 1);
    world.run(1000);
    assert_eq!(world.send(1, &[2], b"before"), [2]);
    world.flush();
    let flying: Vec<Vec<u8>> =
        world.flying.values().map(|(_, datagram)| datagram.clone()).collect();
    world.run(1000);
    for node in [1, 2] {
        world.plane(node).remove_peer(NodeId(3 - node));
    }
    world.connect(1, 2);
    world.run(1000);
    let now = Time(world.now);
    let refused = world.plane(2).refusals().sum();
    for datagram in &flying {
        world.plane(2).on_datagram(datagram, now);
    }
    assert_eq!(world.plane(2).refusals().sum(), refused + flying.len() as u64);
    assert_eq!(world.send(1, &[2], b"behind"), [2]);
    world.run(1000);
    assert_eq!(world.got(1, 2), [&b"before"[..], b"behind"]);
}

/// [rate-1] Undecided messages fill the window. Decided ones free space.
#[test]
fn a_full_window_takes_nothing_until_something_is_decided() {
    let mut world = World::new(2, GroupPath::Unicast, NetworkFaults::default(), 1);
    world.run(1000);
    let mut slot = 0;
    while world.send(1, &[2], &proposal(slot + 1, 1 << 20)) == [2] {
        slot += 1;
    }
    assert!((3..20).contains(&slot), "{slot}");
    assert!(!world.plane(1).can_send(NodeId(2), 1 << 20));
    world.run(1_000_000);
    assert_eq!(world.got(1, 2).len(), usize::try_from(slot).unwrap());
    assert!(world.send(1, &[2], &proposal(90, 1 << 20)).is_empty(), "sent is not decided");
    let now = Time(world.now);
    world.plane(1).record_decided(Ballot::ZERO, Slot(3), now);
    assert!(world.plane(1).can_send(NodeId(2), 1 << 20));
    assert_eq!(world.send(1, &[2], &proposal(91, 1 << 20)), [2]);
}

/// Frames of every length are accepted or refused, including empty ones and those beyond the limit
/// of any packet plane.
#[test]
fn frames_of_every_length_are_taken_or_refused() {
    let mut world = World::new(2, GroupPath::Unicast, NetworkFaults::default(), 1);
    world.run(1000);
    assert_eq!(world.send(1, &[2], b""), [2]);
    assert_eq!(world.send(1, &[2], &[1]), [2]);
    // The parts must fit into the ring buffer of a channel to one node.
    assert!(world.send(1, &[2], &vec![0; 17 << 20]).is_empty());
    assert!(world.send(1, &[3], b"never").is_empty());
    world.run(1000);
    assert_eq!(world.got(1, 2), [&b""[..], &[1]]);
}

/// A full socket ends a turn. Datagrams that it did not accept are requested again.
#[test]
fn a_full_socket_loses_datagrams_and_nothing_else() {
    let mut world = World::new(2, GroupPath::Unicast, NetworkFaults::default(), 1);
    world.run(1000);
    for slot in 1..10 {
        world.send(1, &[2], &proposal(slot, 2000));
        world.blocked =
            [SendOutcome::Dropped, SendOutcome::Blocked(1), SendOutcome::Blocked(0)].into();
        world.run(200);
    }
    world.blocked.clear();
    world.run(100_000);
    assert_eq!(world.got(1, 2).len(), 9);
}

/// Sends `per_second` proposals of 8 KiB from node 1 to the others, for `seconds`. Those that the
/// plane does not accept use connections.
fn offer(world: &mut World, per_second: u64, seconds: u64) {
    let others: Vec<u32> = (2..=world.planes.len() as u32).collect();
    for _ in 0..per_second * seconds {
        let slot = world.plane(1).counters().frames_to_group + 1;
        world.send(1, &others, &proposal(slot, 8192));
        let now = Time(world.now);
        world.plane(1).record_decided(Ballot::ZERO, Slot(slot), now);
        world.run(1_000_000 / per_second);
    }
}

/// [plane-3] Frames use connections until sending them once to all is cheaper. A group that reaches
/// no node is replaced by a chain at once, without oscillation.
#[test]
fn the_way_is_chosen_by_load_and_by_who_hears() {
    let mut world = World::choosing(5, NetworkFaults::default(), 1);
    world.run(5_000_000);
    assert_eq!(world.send(1, &[2, 3, 4, 5], &proposal(1, 100)), Vec::<u32>::new());
    assert_eq!(world.plane(1).carrier(), Carrier::TcpConnections);
    offer(&mut world, 350, 5);
    assert_eq!(world.plane(1).carrier(), Carrier::MulticastDatagrams);
    assert_eq!(world.plane(1).counters().path_changes, 1);
    let why = world.plane(1).explain_carrier().unwrap();
    assert!(why.starts_with("auto: multicast for 3"), "{why}");
    // A switch resets which nodes receive the group.
    world.deaf = (1..=5).collect();
    offer(&mut world, 350, 6);
    assert_eq!(world.plane(1).carrier(), Carrier::Chain);
    let changes = world.plane(1).counters().path_changes;
    assert!(changes <= 3, "by way of what works, to the chain: {changes}");
    // The chain works, so the group is not tried again needlessly.
    offer(&mut world, 350, 10);
    assert_eq!(world.plane(1).carrier(), Carrier::Chain);
    assert_eq!(world.plane(1).counters().path_changes, changes);
    // A node that never chose a path for all still answers, and receives what others send.
    assert_eq!(world.plane(3).carrier(), Carrier::TcpConnections);
    assert_eq!(world.plane(3).counters().path_changes, 0);
}

/// [plane-2] [plane-3] Whatever the path, and however often it changes, everything that a plane
/// accepted arrives.
#[test]
fn changes_of_the_way_lose_nothing() {
    const ALL: [Carrier; 4] = [
        Carrier::TcpConnections,
        Carrier::UnicastDatagrams,
        Carrier::MulticastDatagrams,
        Carrier::Chain,
    ];
    for seed in 0..40 {
        let weather = NetworkFaults { lost: 0, repeated: 20, late: 20 };
        let mut world = World::choosing(4, weather, seed);
        world.run(300_000);
        let mut dice = Dice::new(seed);
        let mut sent: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
        for slot in 1..=120 {
            if dice.chance(1, 6) {
                let now = Time(world.now);
                world.plane(1).set_carrier(dice.pick(&ALL), now);
            }
            for node in world.send(1, &[2, 3, 4], &proposal(slot, 3000)) {
                sent.entry(node).or_default().insert(slot);
            }
            world.run(dice.below(40_000));
        }
        world.run(2_000_000);
        assert!(world.plane(1).counters().path_changes >= 10);
        for (node, slots) in sent {
            let got = world.got(1, node).iter().map(|frame| slot_of(frame));
            let got: BTreeSet<u64> = got.collect();
            let lost: Vec<&u64> = slots.difference(&got).collect();
            assert!(lost.is_empty(), "seed {seed}, to node {node}: {lost:?}");
        }
    }
}

/// [chain-1] A node in an ended chain forwards nothing. Otherwise frames sent to the group's
/// address would arrive twice.
#[test]
fn a_chain_that_ended_is_told_so() {
    let mut world = World::choosing(4, NetworkFaults::default(), 1);
    world.run(300_000);
    world.plane(1).set_carrier(Carrier::Chain, Time(301_000));
    world.run(300_000);
    world.send(1, &[2, 3, 4], &proposal(1, 3000));
    world.run(10_000);
    let relayed = |world: &World| {
        let planes = world.planes.values();
        planes.map(|plane| plane.repairs().forwarded).sum::<u64>()
    };
    assert!(relayed(&world) >= 4, "two datagrams, by two nodes");
    let now = Time(world.now);
    world.plane(1).set_carrier(Carrier::MulticastDatagrams, now);
    world.run(300_000);
    let before = relayed(&world);
    for slot in 2..20 {
        world.send(1, &[2, 3, 4], &proposal(slot, 3000));
    }
    world.run(300_000);
    assert_eq!(relayed(&world), before);
    assert_eq!(world.got(1, 3).len(), 19);
}

/// [rate-4] Frames for all fill a socket repeatedly. Heartbeats to single nodes are still sent.
#[test]
fn a_full_socket_takes_what_is_for_one_first() {
    let mut world = World::new(3, GroupPath::Multicast, NetworkFaults::default(), 1);
    world.run(300_000);
    for slot in 1..10 {
        assert_eq!(world.send(1, &[2, 3], &proposal(slot, 1000)), [2, 3]);
    }
    assert_eq!(world.send(1, &[2], b"heartbeat"), [2]);
    let mut first = None;
    let now = Time(world.now);
    world.plane(1).send_due(now, |outgoing| {
        first = Some(outgoing.destination);
        SendOutcome::Blocked(0)
    });
    assert_eq!(first, Some(Destination::Node(NodeId(2))));
    world.run(100_000);
    assert_eq!(world.got(1, 2).len(), 10);
    assert_eq!(world.got(1, 3).len(), 9);
}
