//! Packet planes on loopback: transports, fallbacks, and datagrams from strangers.
//!
//! Multicast needs an interface that supports it. Without one, the tests print so and check that
//! datagrams to each peer are used.

use std::{
    io::Write as _,
    net::{SocketAddr, UdpSocket},
    path::Path,
    time::Instant,
};

use crate::common::{Bound, DEADLINE, Event, Node, Raw, Start, Task, hello};
use quorate_core::node_id::{Member, NodeId};
use quorate_net::{
    PeerAddress,
    plane::{KeyFile, PlaneSettings},
};
use quorate_packets::socket::Udp;
use quorate_replica::{Payload, status::PlaneKind};
use quorate_wire::{DatagramChannel, Datagrams, Frame, Lane};

const KEY: &str = "1 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";
const NEXT_KEY: &str = "2 f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff000102030405060708090a0b0c0d0e0f\n";

/// Returns settings with a multicast group that no other test on this machine uses at present.
fn wanted(way: PlaneKind) -> PlaneSettings {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    PlaneSettings {
        plane_kind: way,
        group: Some(format!("239.81.84.70:{port}").parse().unwrap()),
        ..PlaneSettings::default()
    }
}

fn start(node: u32, plane: &PlaneSettings) -> Start {
    Start { plane: plane.clone(), ..Start::node(node) }
}

fn run(starts: Vec<Start>) -> Vec<Node> {
    run_bound(starts.into_iter().map(Start::bind).collect())
}

fn run_bound(bounds: Vec<Bound>) -> Vec<Node> {
    let peers: Vec<PeerAddress> = bounds.iter().map(Bound::peer_address).collect();
    bounds.into_iter().map(|bound| bound.run(&peers)).collect()
}

fn keys(text: &str) -> KeyFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    KeyFile::read(file.path()).unwrap()
}

/// Returns the transport from a node to another, and why no better one is used.
fn way(node: &Node, to: u32) -> Option<(PlaneKind, Option<String>)> {
    let status = node.handle.status().unwrap();
    let peer = status.peers.into_iter().find(|peer| peer.member.node == NodeId(to))?;
    Some((peer.plane.kind, peer.plane.fallback_reason))
}

fn wait_way(node: &Node, to: u32, wanted: PlaneKind) {
    let start = Instant::now();
    while way(node, to).map(|(way, _)| way) != Some(wanted) {
        assert!(start.elapsed() < DEADLINE, "never {wanted:?}: {:?}", way(node, to));
        std::thread::yield_now();
    }
}

fn send(node: &Node, task: Task) {
    node.shared.change(|world| world.tasks.push_back(task));
}

/// Sends a frame from one node to the other and waits until it arrives.
fn send_and_wait((from, from_id): (&Node, u32), (to, to_id): (&Node, u32), bytes: &[u8]) {
    let task = Task::Forward(NodeId(to_id), Lane::Control, bytes.to_vec());
    send(from, task);
    let event = Event::Forwarded(NodeId(from_id), Lane::Control, bytes.to_vec());
    to.shared.wait_event(&event);
}

fn forwarded(node: &Node, from: u32) -> Vec<(Lane, Vec<u8>)> {
    let events = node.shared.lock().events.clone();
    let of = |event| match event {
        Event::Forwarded(node, lane, bytes) if node == NodeId(from) => Some((lane, bytes)),
        _ => None,
    };
    events.into_iter().filter_map(of).collect()
}

/// Returns multicast if the machine supports it, otherwise the next best transport.
fn best(nodes: &[Bound]) -> PlaneKind {
    match nodes.iter().map(|bound| bound.listeners.plane_kind()).collect::<Vec<_>>()[..] {
        [PlaneKind::Multicast, ..] => PlaneKind::Multicast,
        _ => {
            eprintln!("skipped: multicast on loopback: this machine does not take it");
            PlaneKind::Udp
        }
    }
}

/// Returns whether datagrams to an IPv6 group on loopback arrive.
fn has_groups_of_ipv6() -> bool {
    let local = "[::1]:0".parse().unwrap();
    let heard = Udp::bind(local, 1 << 16).and_then(|one| {
        let group: SocketAddr = format!("[ff15::5152:2]:{}", one.local().port()).parse().unwrap();
        let interface = one.set_group_interface("lo")?;
        let mut hears = Udp::join(group, "lo", 1 << 16)?;
        let sent = one.send(interface.with_scope_id(group), b"?", 1);
        // Loopback delivers accepted datagrams immediately.
        Ok(sent.is_ok() && hears.receive(|_, _| ()).is_ok_and(|count| count > 0))
    });
    heard.unwrap_or(false)
}

/// [pkt-4] Full datagrams also arrive between IPv6 peers, whose header is longer.
#[test]
fn peers_of_ipv6_are_reached_by_datagrams_and_by_groups() {
    if UdpSocket::bind("[::1]:0").is_err() {
        eprintln!("skipped: peers of IPv6: this machine has none");
        return;
    }
    for kind in [PlaneKind::Udp, PlaneKind::Multicast] {
        if kind == PlaneKind::Multicast && !has_groups_of_ipv6() {
            eprintln!("skipped: groups of IPv6 on loopback: this machine does not take them");
            continue;
        }
        let mut wanted = wanted(kind);
        let port = wanted.group.map_or(0, |group| group.port());
        wanted.group = Some(format!("[ff15::5152:1]:{port}").parse().unwrap());
        let here = |node| Start { peer: "[::1]:0".to_owned(), ..start(node, &wanted) };
        let nodes = run((1..=3).map(here).collect());
        for to in [2, 3] {
            wait_way(&nodes[0], to, kind);
        }
        for size in [0, 1000, 70_000, 1 << 20] {
            send_and_wait((&nodes[0], 1), (&nodes[1], 2), &vec![7; size]);
        }
    }
}

/// [rate-1] The data in flight fits in the receive buffers, so nothing is lost however long a node
/// is suspended. Without privileges a buffer often has only 208 KiB.
#[test]
fn frames_of_the_protocol_go_by_datagrams_and_the_rest_by_connections() {
    let whole = 16 << 20;
    let granted = Udp::bind("127.0.0.1:0".parse().unwrap(), whole).unwrap().buffered().bytes;
    for (kind, keyed, buffer) in [
        (PlaneKind::Udp, false, whole),
        (PlaneKind::Udp, true, whole),
        (PlaneKind::Udp, true, 212_992),
        (PlaneKind::Chain, true, whole),
        (PlaneKind::Multicast, true, whole),
    ] {
        let mut wanted = PlaneSettings { receive_bytes: Some(buffer), ..wanted(kind) };
        wanted.keys = keyed.then(|| keys(KEY));
        let bounds: Vec<Bound> = (1..=3).map(|node| start(node, &wanted).bind()).collect();
        let best = if kind == PlaneKind::Multicast { best(&bounds) } else { kind };
        let nodes = run_bound(bounds);
        for (at, node) in nodes.iter().enumerate() {
            for to in (1..=3).filter(|to| *to != at + 1) {
                wait_way(node, u32::try_from(to).unwrap(), best);
            }
        }
        let mut sizes = vec![0, 1, 1000, 3000, 70_000];
        if buffer.min(granted) == whole {
            sizes.push(1 << 20);
        }
        let least = 3 * sizes.len() as u64;
        // Larger than the capacity of a channel to one node, so it goes by the connection.
        if kind == PlaneKind::Udp || buffer.min(granted) == whole {
            sizes.push(9 << 20);
        }
        for size in &sizes {
            send(&nodes[0], Task::Forward(NodeId(2), Lane::Control, vec![1; *size]));
            send(&nodes[0], Task::Forward(NodeId(2), Lane::Bulk, vec![2; *size]));
            send(&nodes[0], Task::Share(vec![NodeId(2), NodeId(3)], Payload::new(vec![3; *size])));
            for (to, frames) in [(1, 3), (2, 1)] {
                nodes[to].shared.wait_until("frames of this size", |world| {
                    let is = |event: &&Event| matches!(event, Event::Forwarded(_, _, bytes) if bytes.len() == *size);
                    world.events.iter().filter(is).count() == frames
                });
            }
        }
        let stats = nodes[0].handle.metrics().unwrap().stats;
        let by_datagrams = stats.frames_out_datagrams;
        // Frames to two peers count twice; the bulk lane uses no datagrams.
        assert!(
            (least..=least + 3).contains(&by_datagrams),
            "{by_datagrams} of {}",
            stats.frames_out
        );
        assert_eq!(nodes[1].handle.metrics().unwrap().stats.datagram_frames_refused, 0);
        nodes.into_iter().for_each(Node::stop);
    }
}

/// A peer without datagrams, or with another key, is reached by TCP, and the status shows why.
#[test]
fn a_peer_without_datagrams_or_with_another_key_is_reached_by_tcp() {
    let (mut one, mut two) = (wanted(PlaneKind::Udp), wanted(PlaneKind::Udp));
    let nodes = run(vec![start(1, &one), Start::node(2)]);
    nodes[0].shared.wait_event(&Event::Up(NodeId(2), 1));
    assert_eq!(
        way(&nodes[0], 2),
        Some((PlaneKind::Tcp, Some("the peer takes no datagrams".to_owned())))
    );
    assert_eq!(way(&nodes[1], 1), Some((PlaneKind::Tcp, None)), "no more was wanted");
    send_and_wait((&nodes[0], 1), (&nodes[1], 2), b"by TCP");
    drop(nodes);

    // [pkt-3] A datagram made with another key is dropped.
    one.keys = Some(keys(KEY));
    two.keys = Some(keys(&NEXT_KEY.replace("2 ", "1 ")));
    let nodes = run(vec![start(1, &one), start(2, &two)]);
    nodes[0].shared.wait_event(&Event::Up(NodeId(2), 1));
    let refused = "quorate_net_datagrams_refused_total{reason=\"tag\"} 0";
    let begun = Instant::now();
    while nodes[1].handle.metrics().unwrap().text.contains(refused) {
        assert!(begun.elapsed() < DEADLINE, "its datagrams are not refused");
    }
    assert_eq!(
        way(&nodes[0], 2),
        Some((PlaneKind::Tcp, Some("datagrams do not come back".to_owned())))
    );
    send_and_wait((&nodes[0], 1), (&nodes[1], 2), b"by TCP");
    drop(nodes);

    // A key on only one side is reported at once.
    two.keys = None;
    let nodes = run(vec![start(1, &one), start(2, &two)]);
    nodes[1].shared.wait_event(&Event::Up(NodeId(1), 1));
    send_and_wait((&nodes[1], 2), (&nodes[0], 1), b"by TCP");
    assert_eq!(way(&nodes[0], 2).unwrap().0, PlaneKind::Tcp);
}

/// [pkt-1] A restarted process is introduced anew, and the channels of its former process are void.
#[test]
fn a_peer_that_starts_again_is_reached_again() {
    let wanted = wanted(PlaneKind::Udp);
    let mut nodes = run(vec![start(1, &wanted), start(2, &wanted)]);
    wait_way(&nodes[0], 2, PlaneKind::Udp);
    let peers: Vec<PeerAddress> = nodes
        .iter()
        .zip(1..)
        .map(|(node, id)| PeerAddress { node: NodeId(id), address: node.peer.clone() })
        .collect();
    let address = nodes[1].peer.clone();
    nodes.pop().unwrap().stop();
    nodes[0].shared.wait_event(&Event::Down(NodeId(2)));
    let again = Start { boot: 2, peer: address, ..start(2, &wanted) };
    let again = again.bind().run(&peers);
    nodes[0].shared.wait_event(&Event::Up(NodeId(2), 2));
    wait_way(&nodes[0], 2, PlaneKind::Udp);
    wait_way(&again, 1, PlaneKind::Udp);
    let before = nodes[0].handle.metrics().unwrap().stats.frames_out_datagrams;
    send_and_wait((&nodes[0], 1), (&again, 2), b"again");
    let after = nodes[0].handle.metrics().unwrap().stats.frames_out_datagrams;
    assert_eq!(after - before, 1);
}

/// [pkt-3] A second key is accepted at once, and used for sending once every peer has it.
#[test]
fn keys_are_exchanged_while_nodes_run() {
    let mut wanted = wanted(PlaneKind::Udp);
    wanted.keys = Some(keys(KEY));
    let nodes = run((1..=3).map(|node| start(node, &wanted)).collect());
    for (from, to) in [(0, 2), (0, 3), (1, 1), (1, 3), (2, 1), (2, 2)] {
        wait_way(&nodes[from], to, PlaneKind::Udp);
    }
    let both = keys(&format!("{KEY}{NEXT_KEY}"));
    let newer = keys(NEXT_KEY);
    for node in &nodes {
        node.handle.announce_keys(both.clone());
    }
    // The older key is removed; datagrams of a node that still used it would be refused.
    for node in &nodes {
        node.handle.announce_keys(newer.clone());
    }
    // A broken connection loses frames, so this repeats until enough have arrived.
    for (from, to) in [(0, 2), (1, 3), (2, 1)] {
        let (sender, receiver) = (&nodes[from], &nodes[to as usize - 1]);
        let begun = Instant::now();
        while forwarded(receiver, u32::try_from(from).unwrap() + 1).len() < 50 {
            assert!(begun.elapsed() < DEADLINE, "frames do not come");
            send(sender, Task::Forward(NodeId(to), Lane::Control, vec![1]));
            sender.shared.wait_until("a turn", |world| world.tasks.is_empty());
        }
    }
    for (from, to) in [(0, 2), (0, 3), (1, 1), (1, 3), (2, 1), (2, 2)] {
        wait_way(&nodes[from], to, PlaneKind::Udp);
    }
}

/// G26: datagrams from a stranger change nothing, are never taken for a member's, and are counted.
#[test]
fn what_strangers_send_is_dropped_and_counted() {
    for kind in [PlaneKind::Udp, PlaneKind::Chain, PlaneKind::Multicast] {
        let wanted = wanted(kind);
        let bounds = vec![start(1, &wanted).bind(), start(2, &wanted).bind()];
        let best = if kind == PlaneKind::Multicast { best(&bounds) } else { kind };
        let nodes = run_bound(bounds);
        wait_way(&nodes[0], 2, best);
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        let target: SocketAddr = nodes[0].peer.parse().unwrap();
        // An empty datagram is not counted.
        stranger.send_to(&[], target).unwrap();
        let mut sent = 0;
        for length in [1, 43, 44, 60, 1400, 60_000] {
            for byte in [0_u8, 0x11, 0x17, 255] {
                sent += u64::from(stranger.send_to(&vec![byte; length], target).is_ok());
            }
        }
        // Well-formed datagrams in the name of node 2, of another boot and with a wrong tag.
        let mut forged = vec![0; 60];
        forged[0] = 0x11;
        forged[2] = 2;
        forged[3] = 1;
        forged[4] = 2;
        forged[16] = 1;
        forged[26] = 1;
        for boot in 0..4 {
            forged[8] = boot;
            sent += u64::from(stranger.send_to(&forged, target).is_ok());
        }
        let total = |node: &Node| -> u64 {
            let text = node.handle.metrics().unwrap().text;
            let lines =
                text.lines().filter(|line| line.starts_with("quorate_net_datagrams_refused_total"));
            lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
        };
        let begun = Instant::now();
        while total(&nodes[0]) < sent {
            assert!(begun.elapsed() < DEADLINE, "{} of {sent} counted", total(&nodes[0]));
        }
        send(&nodes[1], Task::Forward(NodeId(1), Lane::Control, b"goes on".to_vec()));
        nodes[0].shared.wait_event(&Event::Forwarded(
            NodeId(2),
            Lane::Control,
            b"goes on".to_vec(),
        ));
        assert_eq!(forwarded(&nodes[0], 2).len(), 1);
    }
}

/// A peer's introduction of its datagrams may be nonsense, and is validated like the peer's frames.
#[test]
fn what_a_peer_says_of_its_datagrams_may_be_nonsense() {
    let wanted = wanted(PlaneKind::Udp);
    let bound = start(1, &wanted).bind();
    let absent = PeerAddress { node: NodeId(2), address: "127.0.0.1:1".to_owned() };
    let peers = [bound.peer_address(), absent];
    let node = bound.run(&peers);
    let mut raw = Raw::connect_as(&node, hello(2));
    let said = |address: &'static str, channel, next| {
        Frame::Datagrams(Datagrams {
            boot: hello(2).boot + u32::from(channel == 3),
            address,
            key: 0,
            channels: vec![DatagramChannel { channel, is_unicast: true, next }; 16],
        })
    };
    for frame in [
        said("", 1, 1),
        said(":0", 0, u64::MAX),
        said("127.0.0.1:9", 255, 0),
        said("nowhere", 1, 1),
        said("255.255.255.255:9", 1, 1),
        said("127.0.0.1:9", 3, 1), // another process than the one that greeted
    ] {
        raw.send(Member::first(2), &frame);
    }
    raw.send(
        Member::first(2),
        &Frame::Forward { value: crate::common::batch(b"still here"), bytes: b"still here" },
    );
    node.shared.wait_event(&Event::Forwarded(NodeId(2), Lane::Control, b"still here".to_vec()));
    assert_eq!(way(&node, 2).unwrap().0, PlaneKind::Tcp);
}

#[test]
fn a_key_file_is_read_from_where_it_is() {
    assert!(KeyFile::read(Path::new("/nonexistent")).is_err());
}
