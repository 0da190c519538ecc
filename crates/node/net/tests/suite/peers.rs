//! The TCP plane on loopback: handshakes, reconnects, slow and hostile peers, the order of a turn.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    sync::mpsc,
};

use crate::common::{Bound, CLUSTER, Event, Node, Raw, Start, Task, batch, hello, lone, patient};
use quorate_core::{
    level::{Level, Levels},
    message::Message,
    node_id::{Member, NodeId},
};
use quorate_net::{Limits, PeerAddress};
use quorate_replica::Payload;
use quorate_wire::{Frame, Hello, Lane, NO_CLUSTER, encode};

fn run(bounds: Vec<Bound>) -> Vec<Node> {
    let peers: Vec<PeerAddress> = bounds.iter().map(Bound::peer_address).collect();
    bounds.into_iter().map(|bound| bound.run(&peers)).collect()
}

fn wait_connected(node: &Node, lanes: u64) {
    node.wait_stats("all lanes connected", |stats| stats.peers_connected >= lanes);
}

/// [catch-2] Frames arrive in order on both lanes, both ways. Repair has its own connection.
#[test]
fn frames_travel_both_ways_on_both_lanes_in_order() {
    let nodes = run(vec![Start::node(1).bind(), Start::node(2).bind()]);
    nodes[0].shared.wait_event(&Event::Up(NodeId(2), 1));
    nodes[1].shared.wait_event(&Event::Up(NodeId(1), 1));
    let up = nodes[1].shared.lock().peers[&NodeId(1)].clone();
    assert_eq!(up.addresses.client, nodes[0].client);
    assert_eq!(up.addresses.peer, nodes[0].peer);
    assert_eq!(up.addresses.stream, nodes[0].stream);
    for node in &nodes {
        wait_connected(node, 2);
    }
    let sizes = [0, 1, 100, 70_000, 3 << 20, 5];
    let payload = |lane: Lane, size: usize| vec![u8::try_from(lane.index()).unwrap(); size];
    for (from, to) in [(0, NodeId(2)), (1, NodeId(1))] {
        nodes[from].shared.change(|world| {
            for (lane, size) in
                Lane::ALL.into_iter().flat_map(|lane| sizes.map(|size| (lane, size)))
            {
                world.tasks.push_back(Task::Forward(to, lane, payload(lane, size)));
            }
        });
    }
    for (at, from) in [(0, NodeId(2)), (1, NodeId(1))] {
        let shared = &nodes[at].shared;
        shared.wait_until("all frames", |world| world.events.len() == 1 + 2 * sizes.len());
        for lane in Lane::ALL {
            let expected = sizes.map(|size| Event::Forwarded(from, lane, payload(lane, size)));
            let events = shared.lock().events.clone();
            let of_lane = events
                .into_iter()
                .filter(|event| matches!(event, Event::Forwarded(_, other, _) if *other == lane));
            assert!(of_lane.eq(expected), "{lane:?} differs");
        }
    }
}

#[test]
fn a_frame_that_arrives_byte_by_byte_is_one_frame() {
    let node = lone(Limits::default(), &[2]);
    let mut raw = Raw::connect_as(&node, hello(2));
    let mut bytes = Vec::new();
    let frame = Frame::Forward { value: batch(b"drop by drop"), bytes: b"drop by drop" };
    encode(Member::first(2), &frame, &mut bytes).unwrap();
    raw.stream.set_nodelay(true).unwrap();
    for byte in bytes {
        raw.stream.write_all(&[byte]).unwrap();
    }
    let expected = Event::Forwarded(NodeId(2), Lane::Control, b"drop by drop".to_vec());
    node.shared.wait_event(&expected);
}

/// Messages leave before the log write of the same turn begins (design §5).
#[test]
fn sends_leave_before_submit() {
    let node = lone(Limits::default(), &[2]);
    let raw = Raw::connect_as(&node, hello(2));
    node.shared.wait_event(&Event::Up(NodeId(2), 1));
    let mut stream = raw.stream.try_clone().unwrap();
    let (seen, result) = mpsc::channel();
    // If the message were sent after `submit_records`, this read would never return.
    let look = Box::new(move || {
        let mut header = [0; 160];
        seen.send(stream.read_exact(&mut header).map(|()| header[5])).unwrap();
    });
    node.shared.change(|world| world.tasks.push_back(Task::AskThen(NodeId(2), 7, look)));
    let kind = result.recv().unwrap().unwrap();
    assert_eq!(kind, 28, "a read request");
}

#[test]
fn a_restarted_peer_is_connected_again_with_its_new_boot() {
    for restarted in [0, 1] {
        let mut nodes = run(vec![Start::node(1).bind(), Start::node(2).bind()]);
        let peers: Vec<PeerAddress> = (0u32..)
            .zip(&nodes)
            .map(|(n, node)| PeerAddress { node: NodeId(n + 1), address: node.peer.clone() })
            .collect();
        let id = NodeId(u32::try_from(restarted).unwrap() + 1);
        let node = nodes.remove(restarted);
        nodes[0].shared.wait_event(&Event::Up(id, 1));
        wait_connected(&nodes[0], 2);
        node.stop();
        nodes[0].shared.wait_event(&Event::Down(id));
        let address = peers[restarted].address.clone();
        let again = Start { boot: 2, peer: address, ..Start::node(id.0) }.bind().run(&peers);
        nodes[0].shared.wait_event(&Event::Up(id, 2));
        wait_connected(&nodes[0], 4);
        nodes[0].shared.change(|world| world.tasks.push_back(Task::Ask(id, 9)));
        again.shared.wait_event(&Event::Read(NodeId(if restarted == 0 { 2 } else { 1 }), 9));
    }
}

#[test]
fn strangers_are_refused_with_a_reason() {
    let node = lone(Limits::default(), &[2, 3]);
    let check = |hello: Hello<'_>, expected: &str| {
        let mut raw = Raw::connect(&node);
        raw.send_hello(&hello);
        let answer = raw.next_answer();
        assert_eq!(answer, expected);
        let id = format!("{CLUSTER:x}");
        assert!(!answer.contains(&id), "strangers learn the cluster's id");
        assert_eq!(raw.next_answer(), "end");
    };
    check(
        Hello { cluster: 5, ..hello(2) },
        "ForeignCluster: node 2 does not belong to the cluster of node 1",
    );
    check(
        Hello { levels: Levels { lowest: Level(11), newest: Level(12) }, ..hello(2) },
        "Version: node 1 supports level 10 at most, and the cluster of node 2 is at level 11 or above: install the \
         release on node 1 that the other nodes run",
    );
    check(
        Hello { to: NodeId(3), ..hello(2) },
        "WrongNode: node 3 was expected at this address, node 1 is there",
    );
    check(hello(1), "DuplicateNode: both ends say that they are node 1");
    assert_eq!(node.handle.metrics().unwrap().stats.refusals, 4);
    assert!(node.shared.lock().events.is_empty(), "the host hears of no stranger");
}

#[test]
fn a_peer_with_a_newer_frame_format_hears_why() {
    let node = lone(Limits::default(), &[2]);
    let mut raw = Raw::connect(&node);
    let mut bytes = Vec::new();
    encode(Member::first(2), &Frame::Hello(hello(2)), &mut bytes).unwrap();
    bytes[4] = 2;
    raw.stream.write_all(&bytes).unwrap();
    assert_eq!(raw.next_answer(), "Version: node 1: frame format 2, this build speaks 1");
    assert_eq!(raw.next_answer(), "end");
}

/// Two real nodes of different clusters refuse each other. The dialling node learns the reason,
/// keeps trying, and logs the reason once.
#[test]
fn nodes_of_two_clusters_never_connect() {
    let bounds =
        vec![Start::node(1).bind(), Start { cluster: CLUSTER + 1, ..Start::node(2) }.bind()];
    let nodes = run(bounds);
    for (node, other) in [(&nodes[0], 2), (&nodes[1], 1)] {
        node.wait_stats("several refusals", |stats| stats.refusals >= 4);
        assert!(node.shared.lock().events.is_empty());
        assert_eq!(node.handle.metrics().unwrap().stats.peers_connected, 0);
        // Both notify their operators.
        let notices = node.handle.status().unwrap().notices;
        let expected = format!("node {other} at ");
        assert!(notices[0].starts_with(&expected), "{notices:?}");
        assert!(notices[0].contains("another cluster"), "{notices:?}");
    }
}

/// A connection with another cluster's id in the name of a connected peer is not that peer, and a
/// peer that returns to this cluster is no longer reported as foreign.
#[test]
fn a_peer_of_our_own_cluster_is_never_called_foreign() {
    let node = lone(Limits::default(), &[2, 3]);
    let stranger = Hello { cluster: CLUSTER + 1, ..hello(2) };
    let foreign = |of: &Hello<'_>| {
        let mut raw = Raw::connect(&node);
        raw.send_hello(of);
        assert!(raw.next_answer().starts_with("ForeignCluster"));
        node.handle.status().unwrap().notices
    };
    assert_eq!(foreign(&stranger).len(), 1);
    let _home = Raw::connect_as(&node, hello(2));
    node.shared.wait_event(&Event::Up(NodeId(2), 1));
    assert!(node.handle.status().unwrap().notices.is_empty());
    assert!(foreign(&stranger).is_empty());
    // A node that only asks before founding a cluster, and an unknown node.
    let asks = Hello { cluster: NO_CLUSTER, ..hello(3) };
    assert!(foreign(&asks).is_empty());
    let unknown = Hello { cluster: CLUSTER + 1, ..hello(9) };
    assert!(foreign(&unknown).is_empty());
}

#[test]
fn a_second_connection_of_a_peer_replaces_the_first() {
    let limits = Limits { handshake_timeout_ms: 60_000, ..Limits::default() };
    let node = lone(limits, &[2]);
    let mut first = Raw::connect_as(&node, hello(2));
    let mut bulk = Raw::connect_as(&node, Hello { lane: Lane::Bulk, ..hello(2) });
    let mut second = Raw::connect_as(&node, hello(2));
    assert_eq!(first.next_answer(), "end");
    node.shared.change(|world| world.tasks.push_back(Task::Ask(NodeId(2), 1)));
    assert!(second.next_answer().contains("ReadRequest { id: 1 }"));

    // A newer process replaces all lanes of the older one.
    let mut newer = Raw::connect_as(&node, Hello { boot: 2, ..hello(2) });
    assert_eq!(second.next_answer(), "end");
    assert_eq!(bulk.next_answer(), "end");

    // An older process cannot replace it while the newer one is alive.
    let message = Message::ReadRequest { id: 3 };
    let bytes = None;
    newer.send(Member::first(2), &Frame::Protocol { message, bytes });
    let spoke = Event::Read(NodeId(2), 3);
    node.shared.wait_event(&spoke);
    let mut older = Raw::connect(&node);
    older.send_hello(&hello(2));
    assert_eq!(
        older.next_answer(),
        "DuplicateNode: a newer process is connected as node 2 (boot 2 > 1)"
    );
    node.shared.change(|world| world.tasks.push_back(Task::Ask(NodeId(2), 2)));
    assert!(newer.next_answer().contains("ReadRequest { id: 2 }"));
    let events = node.shared.lock().events.clone();
    let (up, down) = (|boot| Event::Up(NodeId(2), boot), Event::Down(NodeId(2)));
    assert_eq!(events, [up(1), down.clone(), up(1), down, up(2), spoke]);
}

/// A peer that does not read costs its bounded queue and nothing else, as on every plane.
#[test]
fn a_peer_that_does_not_read_delays_nobody_and_its_queue_is_bounded() {
    const FRAME: usize = 100_000;
    const FRAMES: usize = 400;
    let limits = Limits { peer_control_bytes_max: 1 << 20, ..Limits::default() };
    let node = lone(limits, &[2, 3]);
    let mut reader = Raw::connect_as(&node, hello(2));
    let _stuck = Raw::connect_as(&node, hello(3));
    node.shared.wait_event(&Event::Up(NodeId(3), 1));
    for _ in 0..FRAMES {
        node.shared.change(|world| {
            for to in [3, 2] {
                let task = Task::Forward(NodeId(to), Lane::Control, vec![7; FRAME]);
                world.tasks.push_back(task);
            }
        });
        assert_eq!(reader.next_answer(), format!("forward of {FRAME}"));
    }
    node.shared.wait_until("the last round", |world| {
        let sum = |counts: &std::collections::BTreeMap<NodeId, u64>| counts.values().sum::<u64>();
        sum(&world.accepted_frames) + sum(&world.lost) == 2 * FRAMES as u64
    });
    let world = node.shared.lock();
    assert_eq!(world.accepted_frames[&NodeId(2)], FRAMES as u64);
    assert!(!world.lost.contains_key(&NodeId(2)));
    // Bytes accepted by the kernel, plus the limit of the queue.
    let taken = world.accepted_frames[&NodeId(3)];
    let lost = world.lost[&NodeId(3)];
    drop(world);
    assert_eq!(taken + lost, FRAMES as u64);
    let stats = node.handle.metrics().unwrap().stats;
    let queued =
        taken * (FRAME as u64 + 160) + FRAMES as u64 * (FRAME as u64 + 160) - stats.peer_bytes_out;
    assert!(queued <= 1 << 20, "{queued} bytes wait for a peer that does not read");
    assert_eq!(stats.drops_full, lost);
}

/// A message to several peers is lost only for peers whose queues are full. Its bytes are released
/// once they are no longer needed.
#[test]
fn what_goes_to_several_reaches_all_that_have_room() {
    const BODY: usize = 100_000;
    let limits = Limits { peer_control_bytes_max: 1 << 20, ..Limits::default() };
    let node = lone(limits, &[2, 3, 4]);
    let mut reader = Raw::connect_as(&node, hello(2));
    let stuck = Raw::connect_as(&node, hello(3));
    node.shared.wait_event(&Event::Up(NodeId(3), 1));
    let payload = Payload::new(vec![7; BODY]);
    let to = [2, 3, 4].map(NodeId);
    let mut frames = 0;
    while node.shared.lock().lost.get(&NodeId(3)).is_none_or(|lost| *lost < 20) {
        frames += 1;
        let task = Task::Share(to.to_vec(), payload.clone());
        node.shared.change(|world| world.tasks.push_back(task));
        assert_eq!(reader.next_answer(), format!("forward of {BODY}"));
    }
    let world = node.shared.lock();
    assert_eq!(world.accepted_frames[&NodeId(2)], frames);
    assert_eq!(world.accepted_frames[&NodeId(3)] + 20, frames);
    assert_eq!(world.lost[&NodeId(4)], frames, "it is not connected");
    drop(world);
    let stats = node.handle.metrics().unwrap().stats;
    assert_eq!((stats.drops_full, stats.drops_unconnected), (20, frames));
    assert!(payload.reference_count() > 1, "some wait for the one that does not read");
    drop(stuck);
    node.shared.wait_event(&Event::Down(NodeId(3)));
    assert_eq!(payload.reference_count(), 1);
}

#[test]
fn hostile_bytes_close_their_connection_and_nothing_else() {
    let limits = Limits { handshake_timeout_ms: 60_000, ..Limits::default() };
    let node = lone(limits, &[2, 3]);
    let mut good = Raw::connect_as(&node, hello(2));
    let mut header = Vec::new();
    encode(Member::first(3), &Frame::Hello(hello(3)), &mut header).unwrap();
    let mut damaged = header.clone();
    damaged[100] ^= 1;
    let mut large = header.clone();
    large[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut joined = Vec::new();
    let message = Message::ReadRequest { id: 1 };
    let early = Frame::Protocol { message, bytes: None };
    encode(Member::first(3), &early, &mut joined).unwrap();
    for bytes in [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".as_slice(),
        b"*1\r\n$4\r\nPING\r\n",
        &[0; 500],
        &damaged,
        &large,
        &joined, // a protocol frame before any hello
    ] {
        let mut raw = Raw::connect(&node);
        raw.stream.write_all(bytes).unwrap();
        assert_eq!(raw.next_answer(), "end");
    }
    // The same frames after the handshake.
    for bytes in [&damaged[..], &header, &joined[..]] {
        let mut raw = Raw::connect_as(&node, hello(3));
        node.shared.wait_until("up", |world| world.peers.contains_key(&NodeId(3)));
        let mut bytes = bytes.to_vec();
        if bytes == joined {
            // A frame in the name of another node.
            bytes.clear();
            encode(Member::first(2), &early, &mut bytes).unwrap();
        }
        raw.stream.write_all(&bytes).unwrap();
        assert_eq!(raw.next_answer(), "end");
        node.shared.wait_until("down", |world| !world.peers.contains_key(&NodeId(3)));
    }
    assert!(!node.shared.has_event(&Event::Read(NodeId(3), 1)));
    assert!(!node.shared.has_event(&Event::Read(NodeId(2), 1)));
    good.send(Member::first(2), &early);
    node.shared.wait_event(&Event::Read(NodeId(2), 1));
    assert!(!node.shared.has_event(&Event::Down(NodeId(2))));
}

#[test]
fn connections_that_never_say_hello_are_closed_and_lock_nobody_out() {
    let limits = Limits { handshake_timeout_ms: 60_000, strangers_max: 8, ..Limits::default() };
    let node = lone(limits, &[2]);
    let silent: Vec<TcpStream> =
        (0..50).map(|_| patient(TcpStream::connect(&node.peer).unwrap())).collect();
    // The oldest connections are closed before their timeout.
    for mut stream in silent.iter().take(40) {
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    }
    let _raw = Raw::connect_as(&node, hello(2));
    drop(silent);
    node.stop();

    let node = lone(Limits { handshake_timeout_ms: 20, ..Limits::default() }, &[2]);
    let mut silent = patient(TcpStream::connect(&node.peer).unwrap());
    let mut half = Vec::new();
    encode(Member::first(2), &Frame::Hello(hello(2)), &mut half).unwrap();
    silent.write_all(&half[..170]).unwrap();
    assert_eq!(silent.read(&mut [0]).unwrap_or(0), 0, "its time is up");
    let _raw = Raw::connect_as(&node, hello(2));
}

/// A dial is abandoned and retried if the other side accepts the connection but sends nothing, like
/// a stopped process or a machine behind a firewall.
#[test]
fn a_dial_that_is_never_answered_is_given_up_and_tried_again() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let bound = Start {
        limits: Limits { handshake_timeout_ms: 20, ..Limits::default() },
        ..Start::node(2)
    };
    let bound = bound.bind();
    let address = silent.local_addr().unwrap().to_string();
    let peers = [PeerAddress { node: NodeId(1), address }, bound.peer_address()];
    let node = bound.run(&peers);
    node.wait_stats("repeated dials", |stats| stats.dials >= 6);
    assert!(node.shared.lock().events.is_empty());
}

#[test]
fn a_peer_that_closes_its_half_is_gone() {
    let node = lone(Limits::default(), &[2]);
    let mut raw = Raw::connect_as(&node, hello(2));
    node.shared.wait_event(&Event::Up(NodeId(2), 1));
    raw.stream.shutdown(Shutdown::Write).unwrap();
    node.shared.wait_event(&Event::Down(NodeId(2)));
    assert_eq!(raw.next_answer(), "end");
}

#[test]
fn peers_may_be_given_by_name() {
    let one = Start::node(1).bind();
    let two = Start::node(2).bind();
    let mut peers = vec![one.peer_address(), two.peer_address()];
    let port = peers[0].address.rsplit(':').next().unwrap().to_owned();
    peers[0].address = format!("localhost:{port}");
    let (one, two) = (one.run(&peers), two.run(&peers));
    one.shared.wait_event(&Event::Up(NodeId(2), 1));
    two.shared.wait_event(&Event::Up(NodeId(1), 1));
    let status = one.handle.status().unwrap();
    let two = status.peers.iter().find(|peer| peer.member.node == NodeId(2)).unwrap();
    assert!(two.plane.rtt_us.is_some_and(|us| us < 1_000_000), "{two:?}");
}

#[test]
fn what_cannot_be_sent_is_lost_and_counted() {
    let node = lone(Limits::default(), &[2]);
    node.shared.change(|world| world.tasks.push_back(Task::Ask(NodeId(2), 1)));
    node.shared.wait_until("the loss", |world| world.lost.get(&NodeId(2)) == Some(&1));
    assert_eq!(node.handle.metrics().unwrap().stats.drops_unconnected, 1);
}
