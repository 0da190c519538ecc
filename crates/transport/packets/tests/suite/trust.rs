//! Hostile and stale datagrams: changed, repeated, misdirected, from older boots, with other keys
//! ([pkt-1] [pkt-2] [pkt-3] [pkt-4]).

use crate::world::{CHANNEL, Faults, World, name, settings};
use quorate_core::{
    ballot::{Ballot, Era},
    node_id::{Incarnation, Member, NodeId},
    slot::Slot,
    time::Time,
};
use quorate_packets::{
    body::{Body, Chain, ChannelNumbers},
    endpoint::{Destination, Endpoint, Event},
    header::{CONTROL_CHANNEL, Header, Kind},
    receive::Delivery,
    send::PushError,
    trust::{Key, KeyRing, Refusal, TagContext, TagKey},
};

/// Returns a world with traffic of every kind: messages, tails, NAKs, repairs, reports, probes and
/// answers.
fn busy_world(seed: u64) -> World {
    let mut world = World::new(4, Delivery::AsCompleted, seed);
    world.faults = Faults { lost: 150, ..Faults::default() };
    let settled = Time(2_000_000);
    for _ in 0..12 {
        world.send(1, 4000);
        let until = world.now.plus_us(300);
        world.run_to(until);
        world.now = until;
    }
    world.node(2).send_probe(NodeId(3), 77, Time(10_000));
    world.run_to(settled);
    world
}

fn kinds(world: &World) -> Vec<Kind> {
    let mut kinds: Vec<Kind> =
        world.recorded.iter().map(|(_, bytes)| Header::read(bytes).unwrap().0.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// Returns the visible state of an endpoint.
fn shown(node: &Endpoint) -> (Vec<Option<u64>>, Vec<Option<Time>>, Option<Time>) {
    let owners = 1..=4;
    let done = owners.clone().map(|owner| node.finished_to(name(owner, 1)));
    let alive = owners.map(|owner| node.last_original_at(NodeId(owner)));
    (done.collect(), alive.collect(), node.next_poll_at())
}

/// A flipped bit in any byte of any kind of datagram has no effect, and is counted.
#[test]
fn a_changed_byte_is_refused() {
    let mut world = busy_world(1);
    let all = kinds(&world);
    assert!(all.len() >= 7, "{all:?}");
    let mut tried = 0;
    for kind in all {
        let recorded = world.recorded.clone();
        let of_kind =
            recorded.iter().filter(|(_, bytes)| Header::read(bytes).unwrap().0.kind == kind);
        for (to, bytes) in of_kind.rev().take(2) {
            for at in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << (at % 8);
                let node = world.node(*to);
                let before = (node.refusals().sum(), shown(node));
                assert!(node.handle(&changed, Time(3_000_000)).is_err(), "{kind:?}, byte {at}");
                assert!(node.take_events().is_empty() && node.take_control().is_empty());
                assert_eq!((node.refusals().sum(), shown(node)), (before.0 + 1, before.1));
                tried += 1;
            }
            for length in 0..bytes.len() {
                let node = world.node(*to);
                assert!(node.handle(&bytes[..length], Time(3_000_000)).is_err());
            }
        }
    }
    assert!(tried > 1000);
}

/// [pkt-2] A repeated datagram is refused and has no effect: no message, no answer, no sign of
/// life.
#[test]
fn repeated_datagrams_do_nothing() {
    let mut world = busy_world(2);
    let recorded = std::mem::take(&mut world.recorded);
    // The first time delivers datagrams that were lost. The second repeats all.
    for (to, bytes) in &recorded {
        let _ = world.node(*to).handle(bytes, Time(3_000_000));
    }
    for node in world.nodes.values_mut() {
        node.take_events();
        node.take_control();
    }
    for (to, bytes) in &recorded {
        let node = world.node(*to);
        let before = (node.refusals().sum(), shown(node));
        assert!(node.handle(bytes, Time(4_000_000)).is_err());
        assert!(node.take_events().is_empty() && node.take_control().is_empty());
        assert_eq!((node.refusals().sum(), shown(node)), (before.0 + 1, before.1));
    }
}

/// [pkt-2] A datagram for one node is refused by every other, and a multicast one by its sender.
#[test]
fn a_datagram_for_another_node_is_refused() {
    let world = &mut busy_world(3);
    let recorded = std::mem::take(&mut world.recorded);
    let mut seen = Vec::new();
    for (to, bytes) in recorded {
        let (header, ..) = Header::read(&bytes).unwrap();
        let others = (1..=4).filter(|node| header.is_unicast && *node != to);
        for other in others {
            let refusal = world.node(other).handle(&bytes, Time(3_000_000)).unwrap_err();
            let own = NodeId(other) == header.sender;
            // A number that was seen is refused before its tag is checked.
            let seen_before = [Refusal::Repeated, Refusal::Before];
            let expected = if own { Refusal::Own } else { Refusal::Tag };
            assert!(refusal == expected || seen_before.contains(&refusal), "{refusal:?}");
            seen.push(refusal);
        }
    }
    assert!(seen.contains(&Refusal::Tag) && seen.contains(&Refusal::Own));
}

/// [pkt-1] [pkt-2] Datagrams from an older boot of the sender, and from before this node's own
/// restart, are refused.
#[test]
fn older_boots_are_refused() {
    let mut world = World::new(3, Delivery::InOrder, 4);
    world.send(1, 5000);
    world.run_to(Time(100_000));
    let old = std::mem::take(&mut world.recorded);

    // Node 2 restarts: it has forgotten which numbers it saw, and accepts nothing from before its
    // handshake.
    let introductions: Vec<_> =
        [1, 3].map(|from| world.nodes[&from].introduction_for(NodeId(2))).into();
    *world.node(2) = Endpoint::new(settings(2, 2, Delivery::InOrder), world.now);
    for introduction in &introductions {
        world.node(2).introduce(introduction);
    }
    for (_, bytes) in old.iter().filter(|(to, _)| *to == 2) {
        assert_eq!(world.node(2).handle(bytes, Time(200_000)), Err(Refusal::Before));
    }

    // Node 1 restarts: a node that has seen its new boot accepts nothing of the old one.
    *world.node(1) = Endpoint::new(settings(1, 2, Delivery::InOrder), world.now);
    world.node(1).open(CHANNEL, None, Time(0)).unwrap();
    let introduction = world.nodes[&1].introduction_for(NodeId(3));
    // Before that, its new boot is not trusted, either.
    world.node(1).send(CHANNEL, &[1; 10]).unwrap();
    let bytes = world.node(1).next_data_run(CHANNEL, Time(200_000)).unwrap().1.bytes.to_vec();
    assert_eq!(world.node(3).handle(&bytes, Time(200_000)), Err(Refusal::Boot));
    assert_eq!(world.node(3).last_original_at(NodeId(1)).map(|at| at < Time(200_000)), Some(true));
    world.node(3).introduce(&introduction);
    for (_, bytes) in old.iter().filter(|(to, _)| *to == 3) {
        assert_eq!(world.node(3).handle(bytes, Time(200_000)), Err(Refusal::OldBoot));
    }
    assert_eq!(world.node(3).handle(&bytes, Time(200_000)), Ok(()));
    assert!(matches!(&world.node(3).take_events()[..], [Event::Message { .. }]));
    // The old handshake cannot restore the old boot.
    let older = world.nodes[&2].introduction_for(NodeId(3));
    let older = quorate_packets::trust::Introduction { member: Member::first(1), boot: 1, ..older };
    world.node(3).introduce(&older);
    assert_eq!(world.nodes[&3].finished_to(name(1, 2)), Some(2));
}

/// [pkt-2] Datagrams of other groups, generations and incarnations, and of strangers, are refused.
#[test]
fn foreign_datagrams_are_refused_by_reason() {
    let mut world = World::new(3, Delivery::InOrder, 5);
    let mut datagram_of = |change: &dyn Fn(&mut quorate_packets::endpoint::Settings)| {
        let mut settings = settings(1, 1, Delivery::InOrder);
        change(&mut settings);
        let mut foreign = Endpoint::new(settings, Time(0));
        foreign.open(CHANNEL, None, Time(0)).unwrap();
        foreign.send(CHANNEL, b"x").unwrap();
        let bytes = foreign.next_data_run(CHANNEL, Time(0)).unwrap().1.bytes.to_vec();
        world.node(2).handle(&bytes, Time(1))
    };
    assert_eq!(datagram_of(&|own| own.group.generation = 1), Err(Refusal::Group));
    assert_eq!(datagram_of(&|own| own.own_member = Member::first(9)), Err(Refusal::Stranger));
    assert_eq!(datagram_of(&|own| own.own_member.incarnation = Incarnation(1)), Err(Refusal::Tag));
    let other = |id| KeyRing::one(id, Key::new([8; 32])).unwrap();
    assert_eq!(datagram_of(&|own| own.keys = other(1)), Err(Refusal::Tag));
    assert_eq!(datagram_of(&|own| own.keys = other(2)), Err(Refusal::Key));
    assert_eq!(datagram_of(&|own| own.keys = KeyRing::none()), Err(Refusal::Key));
    assert_eq!(datagram_of(&|_| ()), Ok(()));
}

/// Returns a datagram that node `from` could send to node `to` on its control channel.
fn control(from: u32, to: u32, number: u64, body: &Body<'_>) -> Vec<u8> {
    let header = Header {
        kind: body.kind(),
        key: 1,
        channel: CONTROL_CHANNEL,
        is_unicast: true,
        sender: NodeId(from),
        boot: 1,
        group: crate::world::group().header_hint(),
        number,
        index: 0,
        part_count: 1,
    };
    let mut bytes = header.bytes().to_vec();
    body.write(&mut bytes);
    let place = TagContext {
        group: crate::world::group(),
        sender: Member::first(from),
        boot: 1,
        channel: CONTROL_CHANNEL,
    };
    let seal = TagKey::new(Some(&Key::new([7; 32])), &place);
    seal.write_tag(&mut bytes, Some(Member::first(to)));
    bytes
}

/// [pkt-5] [gap-4] A repair is accepted once if it is a missing original. It does not prove that
/// the original's sender is alive.
#[test]
fn a_repair_is_an_original_that_is_missing() {
    let mut world = World::new(3, Delivery::InOrder, 10);
    for _ in 0..2 {
        world.send(1, 100);
    }
    world.collect();
    let originals = std::mem::take(&mut world.recorded);
    let originals: Vec<Vec<u8>> =
        originals.into_iter().filter_map(|(to, bytes)| (to == 3).then_some(bytes)).collect();
    let node = world.node(3);
    node.handle(&originals[1], Time(5)).unwrap();
    assert!(node.take_events().is_empty());
    let repair = |number, original: &[u8]| control(2, 3, number, &Body::Repair(original));
    // The original has arrived and waits for its turn.
    assert_eq!(node.handle(&repair(100, &originals[1]), Time(6)), Err(Refusal::Unwanted));
    // The original differs from what its owner sealed.
    let mut changed = originals[0].clone();
    changed[60] ^= 1;
    assert_eq!(node.handle(&repair(101, &changed), Time(6)), Err(Refusal::Tag));
    // The content is not an original of a message.
    let nested = repair(1, &originals[0]);
    assert_eq!(node.handle(&repair(102, &nested), Time(6)), Err(Refusal::Unwanted));
    assert!(node.take_events().is_empty());
    node.handle(&repair(103, &originals[0]), Time(7)).unwrap();
    assert_eq!(node.take_events().len(), 2);
    assert_eq!(node.last_original_at(NodeId(1)), Some(Time(5)));
    assert_eq!(node.last_original_at(NodeId(2)), None);
    // Refuses both the repeated repair and the original.
    assert_eq!(node.handle(&repair(103, &originals[0]), Time(8)), Err(Refusal::Repeated));
    assert_eq!(node.handle(&repair(104, &originals[0]), Time(8)), Err(Refusal::Unwanted));
    assert_eq!(node.handle(&originals[0], Time(8)), Err(Refusal::Repeated));
    assert_eq!(node.last_original_at(NodeId(1)), Some(Time(5)));
}

/// [chain-1] A node forwards multicast datagrams, bit for bit, each number once, to its successor
/// in the newest chain that their sender set up, never along an older one.
#[test]
fn what_is_for_all_is_handed_on_once_along_the_newest_chain() {
    let mut world = World::new(4, Delivery::InOrder, 13);
    for _ in 0..6 {
        world.send(1, 100);
    }
    world.collect();
    let originals: Vec<Vec<u8>> = std::mem::take(&mut world.recorded)
        .into_iter()
        .filter_map(|(to, bytes)| (to == 3).then_some(bytes))
        .collect();
    let node = world.node(3);
    let mut hears = |datagram: &[u8]| {
        let _ = node.handle(datagram, Time(5));
        let relayed = node.take_to_forward();
        assert!(relayed.iter().all(|one| one.bytes == datagram));
        relayed.iter().map(|one| one.destination).collect::<Vec<_>>()
    };
    let chain = |from, at, number, nodes: &[u32]| {
        let nodes = nodes.iter().copied().map(NodeId).collect();
        control(from, 3, at, &Body::Chain(Chain { chain_number: number, nodes }))
    };
    assert_eq!(hears(&originals[0]), [], "no chain yet");
    assert_eq!(hears(&chain(1, 100, 7, &[3, 4, 2])), []);
    assert_eq!(hears(&originals[1]), [Destination::Node(NodeId(4))]);
    assert_eq!(hears(&originals[1]), [], "again");
    // An older chain, and that of another node.
    hears(&chain(1, 101, 6, &[3, 2, 4]));
    hears(&chain(2, 102, 9, &[3, 1]));
    assert_eq!(hears(&originals[2]), [Destination::Node(NodeId(4))]);
    hears(&chain(1, 103, 8, &[4, 3, 2]));
    assert_eq!(hears(&originals[3]), [Destination::Node(NodeId(2))]);
    // Neither the last node nor one outside the chain forwards, and none forwards back.
    hears(&chain(1, 104, 9, &[2, 4, 3]));
    assert_eq!(hears(&originals[4]), []);
    hears(&chain(1, 105, 10, &[3, 1]));
    assert_eq!(hears(&originals[5]), []);
}

/// [pkt-1] A request for packets of an older boot, or of an unknown channel, is answered with
/// *gone*.
#[test]
fn packets_of_an_older_boot_are_gone() {
    let mut world = World::new(3, Delivery::InOrder, 11);
    world.send(1, 100);
    world.run_to(Time(100_000));
    // Node 1 is asked as the owner of its own packets, and as a repairer of node 2's.
    for (number, owner, boot, channel) in [(100, 1, 0, 1), (101, 1, 1, 9), (102, 2, 0, 1)] {
        let of = quorate_packets::body::ChannelName { owner: NodeId(owner), boot, channel };
        let numbers = ChannelNumbers { channel: of, ranges: vec![1..4; 1] };
        let nak = control(3, 1, number, &Body::Nak(numbers.clone()));
        world.node(1).handle(&nak, Time(200_000)).unwrap();
        let answers = world.node(1).take_control();
        assert_eq!(answers.len(), 1);
        let (header, _, payload) = Header::read(&answers[0].bytes).unwrap();
        assert_eq!(answers[0].destination, Destination::Node(NodeId(3)));
        assert_eq!(Body::read(header.kind, payload), Ok(Body::Gone(numbers)));
    }
}

/// [pkt-1] Packets that another node lacks may be available elsewhere. Those that the owner no
/// longer has are given up.
#[test]
fn only_the_owner_gives_packets_up() {
    let mut world = World::new(3, Delivery::InOrder, 12);
    let node = world.node(3);
    node.on_next_number(name(1, 1), 4, Time(0));
    let numbers = ChannelNumbers { channel: name(1, 1), ranges: vec![1..4; 1] };
    let gone = |from, number| control(from, 3, number, &Body::Gone(numbers.clone()));
    node.handle(&gone(2, 100), Time(1)).unwrap();
    assert!(node.take_events().is_empty());
    node.handle(&gone(1, 100), Time(2)).unwrap();
    let of = name(1, 1);
    let numbers = 1..4;
    assert_eq!(node.take_events(), [Event::GivenUp { channel: of, numbers }]);
}

/// [pkt-3] Keys are exchanged under traffic: nothing is refused or lost, and repairs sealed with
/// the old key are accepted.
#[test]
fn keys_change_under_traffic() {
    let mut world = World::new(3, Delivery::InOrder, 6);
    world.faults.lost = 100;
    let ids = [NodeId(1), NodeId(2), NodeId(3)];
    for step in 0..40 {
        world.send(1, 2500);
        match step {
            10..=12 => {
                let node = step - 9;
                world.node(node).rekey(|keys| keys.add(2, Key::new([9; 32]))).unwrap();
                for other in world.nodes.values_mut() {
                    other.rekey(|keys| keys.record_announced(NodeId(node), 2));
                }
            }
            20..=22 => assert!(world.node(step - 19).rekey(|keys| keys.switch_to_newest(&ids))),
            _ => {}
        }
        let until = world.now.plus_us(200);
        world.run_to(until);
        world.now = until;
    }
    world.faults.lost = 0;
    let now = world.now;
    world.node(1).set_announced_decided(CHANNEL, Ballot::ZERO, Slot(1), now);
    world.run_to(Time(10_000_000));
    for node in [2, 3] {
        assert!(world.check_events(node, 1, true).is_empty());
        let refusals = world.nodes[&node].refusals();
        assert_eq!((refusals.count_of(Refusal::Key), refusals.count_of(Refusal::Tag)), (0, 0));
    }
    let keys = world.recorded.iter().map(|(_, bytes)| Header::read(bytes).unwrap().0.key);
    assert!(keys.clone().any(|key| key == 1) && keys.clone().any(|key| key == 2));
}

/// [pkt-4] An old leader that fills its quota does not reduce the new leader's.
#[test]
fn one_sender_cannot_evict_what_another_sent() {
    let mut world = World::new(3, Delivery::AsCompleted, 7);
    // A part of the new leader's message is missing.
    world.send(2, 3000);
    world.collect();
    let parts = std::mem::take(&mut world.recorded);
    let parts: Vec<_> = parts.into_iter().filter(|(to, _)| *to == 3).collect();
    world.node(3).handle(&parts[0].1, Time(0)).unwrap();
    world.node(3).handle(&parts[2].1, Time(0)).unwrap();
    // The old leader sends the first part of many messages.
    for _ in 0..600 {
        world.send(1, 3000);
    }
    for _ in 0..100 {
        world.now = world.now.plus_us(10_000);
        world.collect();
    }
    for (to, bytes) in std::mem::take(&mut world.recorded) {
        let (header, ..) = Header::read(&bytes).unwrap();
        if to == 3 && header.sender == NodeId(1) && header.index == 0 {
            let _ = world.node(3).handle(&bytes, Time(1));
            let quota = world.nodes[&3].quota(NodeId(1)).unwrap();
            assert!(quota.partials() <= 256);
        }
    }
    assert_eq!(world.nodes[&3].quota(NodeId(1)).unwrap().partials(), 256);
    world.node(3).take_events();
    world.node(3).handle(&parts[1].1, Time(2)).unwrap();
    let events = world.node(3).take_events();
    assert!(matches!(&events[..], [Event::Message { channel, .. }] if channel.owner == NodeId(2)));
}

/// [pkt-2] An answer to a fresh nonce introduces two peers that share nothing but the group.
#[test]
fn a_challenge_introduces_who_answers_it() {
    let members: Vec<Member> = (1..=3).map(Member::first).collect();
    let mut nodes: Vec<Endpoint> =
        (1..=2).map(|node| Endpoint::new(settings(node, 5, Delivery::InOrder), Time(0))).collect();
    let (mut one, mut two) = (nodes.remove(0), nodes.remove(0));
    one.open(CHANNEL, None, Time(0)).unwrap();
    one.set_allowed_members(&members);
    let ask = |two: &mut Endpoint, nonce| {
        two.send_probe(NodeId(1), nonce, Time(0));
        two.take_control().remove(0).bytes
    };
    let answer_to = |one: &mut Endpoint, probe: &[u8]| {
        one.handle(probe, Time(1)).unwrap();
        let answer = one.take_control().remove(0);
        assert_eq!(answer.destination, Destination::Node(NodeId(2)));
        answer.bytes
    };
    // A node that was not allowed is not probed.
    two.send_probe(NodeId(1), 1, Time(0));
    assert!(two.take_control().is_empty());
    two.set_allowed_members(&members);
    let probe = ask(&mut two, 1);
    let stale = answer_to(&mut one, &probe);
    let probe = ask(&mut two, 2);
    let fresh = answer_to(&mut one, &probe);
    // A node that knows the group's name but no key can neither probe nor answer.
    for (node, datagram) in [(&mut one, &probe), (&mut two, &fresh)] {
        for at in [8, 16, 44, datagram.len() - 1] {
            let mut changed = datagram.clone();
            changed[at] ^= 1;
            let refused = node.handle(&changed, Time(2));
            assert!(matches!(refused, Err(Refusal::Tag | Refusal::OldBoot)), "{refused:?}");
            assert!(node.take_control().is_empty() && node.take_events().is_empty());
        }
    }
    // Only an answer to the outstanding nonce counts, and only once.
    assert_eq!(two.handle(&stale, Time(2)), Err(Refusal::Unasked));
    one.send(CHANNEL, b"before").unwrap();
    let before = one.next_data_run(CHANNEL, Time(2)).unwrap().1.bytes.to_vec();
    assert_eq!(two.handle(&before, Time(2)), Err(Refusal::Stranger));
    two.handle(&fresh, Time(9)).unwrap();
    let events = two.take_events();
    assert!(matches!(
        &events[..],
        [Event::Introduced(known), Event::Answered { rtt_us: 9, .. }] if known.boot == 5
    ));
    assert_eq!(two.handle(&before, Time(10)), Ok(()));
    assert!(two.take_events().iter().any(|event| matches!(event, Event::Message { .. })));
    assert_eq!(two.handle(&stale, Time(10)), Err(Refusal::Before));
}

/// [rate-3] A node that receives a higher ballot's leader by multicast stops, and drops its unsent
/// messages.
#[test]
fn an_older_leader_stops() {
    let ballot = |round, node| Ballot { era: Era(0), round, node: NodeId(node) };
    let mut world = World::new(3, Delivery::InOrder, 8);
    let now = world.now;
    world.node(1).set_announced_decided(CHANNEL, ballot(1, 1), Slot(1), now);
    world.send(1, 100);
    world.run_to(Time(50_000));
    world.node(2).set_announced_decided(CHANNEL, ballot(2, 2), Slot(1), Time(50_000));
    // These are queued, and not sent once the other leader is received.
    for _ in 0..3 {
        world.node(1).send(CHANNEL, &[0; 1000]).unwrap();
    }
    let tail = {
        world.node(2).poll(Time(60_000));
        world.node(2).take_control().remove(0)
    };
    world.node(1).handle(&tail.bytes, Time(60_000)).unwrap();
    assert!(world.node(1).take_events().contains(&Event::MulticastStopped(ballot(2, 2))));
    assert!(world.node(1).next_data_run(CHANNEL, Time(70_000)).is_none());
    assert_eq!(world.node(1).next_number(CHANNEL), Some(2));
    assert_eq!(world.node(1).send(CHANNEL, b"x"), Err(PushError::Stopped));
    // A ballot in between does not restart it, but its own next one does.
    world.node(1).set_announced_decided(CHANNEL, ballot(1, 3), Slot(1), Time(70_000));
    assert_eq!(world.node(1).send(CHANNEL, b"x"), Err(PushError::Stopped));
    world.node(1).set_announced_decided(CHANNEL, ballot(3, 1), Slot(1), Time(70_000));
    assert_eq!(world.node(1).send(CHANNEL, b"x").map(|sent| sent.first), Ok(2));
}

/// On a segment without keys, the checksum detects accidental changes.
#[test]
fn without_keys_accidents_are_found() {
    let mut world = World::with(3, 9, |node| {
        let mut settings = settings(node, 1, Delivery::InOrder);
        settings.keys = KeyRing::none();
        settings
    });
    world.faults = Faults { changed: 100, lost: 20, ..Faults::default() };
    for _ in 0..40 {
        world.send(1, 3000);
    }
    world.run_to(Time(5_000_000));
    for node in [2, 3] {
        world.check_events(node, 1, true);
        assert!(world.nodes[&node].refusals().count_of(Refusal::Tag) > 0);
    }
}
