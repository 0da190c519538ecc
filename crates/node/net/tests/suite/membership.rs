//! Changes to the set of peers at run time: new, moved, removed and unknown nodes.

use crate::common::{Bound, Event, Node, Raw, Start, Task, hello, lone};
use quorate_core::{
    level::{Level, Levels},
    message::Message,
    node_id::{Member, NodeId},
};
use quorate_net::{Limits, PeerAddress};
use quorate_replica::group::{NODES_MAX, asking::PeerTable};
use quorate_wire::{Frame, Hello, Lane, RefusalCode};

fn table(nodes: &[PeerAddress], removed: &[u32]) -> PeerTable {
    PeerTable {
        peers: nodes.iter().map(|peer| (peer.node, peer.address.clone())).collect(),
        removed_nodes: removed.iter().copied().map(NodeId).collect(),
    }
}

fn set_table(node: &Node, table: PeerTable) {
    node.shared.change(|world| world.table = Some(table));
    node.shared.wait_until("the table", |world| world.table.is_none());
}

/// Sends a message in the name of node `from` and waits until it has arrived.
fn speak(node: &Node, raw: &mut Raw, from: u32, id: u64) {
    let message = Message::ReadRequest { id };
    let bytes = None;
    raw.send(Member::first(from), &Frame::Protocol { message, bytes });
    node.shared.wait_event(&Event::Read(NodeId(from), id));
}

fn hasty() -> Limits {
    Limits { removed_grace_ms: 50, reminder_interval_ms: 20, ..Limits::default() }
}

fn wait_notice(node: &Node, what: &str) {
    let noticed = |notices: Vec<String>| notices.iter().any(|notice| notice.contains(what));
    let start = std::time::Instant::now();
    while !noticed(node.handle.status().unwrap().notices) {
        assert!(start.elapsed() < crate::common::DEADLINE, "no notice of {what}");
        std::thread::yield_now();
    }
}

/// Peers admit a node that they do not know yet. A joining node has the highest id, so it dials.
#[test]
fn a_node_that_nobody_has_heard_of_is_let_in_and_answered() {
    let (one, two) = (Start::node(1).bind(), Start::node(2).bind());
    let (at_one, at_two) = (one.peer_address(), two.peer_address());
    let one = one.run(std::slice::from_ref(&at_one));
    let two = two.run(&[at_one, at_two]);
    one.shared.wait_event(&Event::Up(NodeId(2), 1));
    two.shared.wait_event(&Event::Up(NodeId(1), 1));
    let task = Task::Ask(NodeId(2), 7);
    one.shared.change(|world| world.tasks.push_back(task));
    two.shared.wait_event(&Event::Read(NodeId(1), 7));
}

#[test]
fn a_node_is_dialled_when_the_table_has_it() {
    let bounds: Vec<Bound> = [1, 2].map(|node| Start::node(node).bind()).into();
    let all: Vec<_> = bounds.iter().map(Bound::peer_address).collect();
    let mut nodes = bounds.into_iter();
    let one = nodes.next().unwrap().run(&all[..1]);
    let two = nodes.next().unwrap().run(&all[1..]);
    assert_eq!(two.handle.metrics().unwrap().stats.dials, 0);
    set_table(&two, table(&all, &[]));
    one.shared.wait_event(&Event::Up(NodeId(2), 1));
    two.shared.wait_event(&Event::Up(NodeId(1), 1));
}

/// A node that moved is dialled at its new address once its old connection breaks.
#[test]
fn a_node_that_moved_is_found_at_its_new_address() {
    let (one, two) = (Start::node(1).bind(), Start::node(2).bind());
    let mut all = vec![one.peer_address(), two.peer_address()];
    let (one, two) = (one.run(&all), two.run(&all));
    two.shared.wait_event(&Event::Up(NodeId(1), 1));
    let moved = Start { boot: 2, ..Start::node(1) };
    let moved = moved.bind();
    all[0] = moved.peer_address();
    set_table(&two, table(&all, &[]));
    let task = Task::Ask(NodeId(1), 7);
    two.shared.change(|world| world.tasks.push_back(task));
    one.shared.wait_event(&Event::Read(NodeId(2), 7));
    assert!(!two.shared.has_event(&Event::Down(NodeId(1))));
    one.stop();
    let _moved = moved.run(&all);
    two.shared.wait_event(&Event::Up(NodeId(1), 2));
}

/// A dial to a former address that accepts and stays silent is abandoned when the node has moved.
#[test]
fn a_dial_that_leads_nowhere_ends_when_the_node_has_moved() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (one, two) = (Start::node(1).bind(), Start::node(2));
    let patient = Limits { handshake_timeout_ms: 60_000, ..Limits::default() };
    let two = Start { limits: patient, ..two };
    let two = two.bind();
    let mut all = vec![one.peer_address(), two.peer_address()];
    all[0].address = silent.local_addr().unwrap().to_string();
    let two = two.run(&all);
    let (dialled, _) = silent.accept().unwrap();
    all[0] = one.peer_address();
    let one = one.run(&all);
    set_table(&two, table(&all, &[]));
    one.shared.wait_event(&Event::Up(NodeId(2), 1));
    drop(dialled);
}

#[test]
fn a_removed_node_is_refused_and_told_whichever_side_dials() {
    let start = |node| Start { limits: hasty(), ..Start::node(node) };
    for (here, removed) in [(1, 2), (2, 1)] {
        let (one, two) = (start(here).bind(), start(removed).bind());
        let all = [one.peer_address(), two.peer_address()];
        let (one, two) = (one.run(&all[..1]), two.run(&all));
        set_table(&one, table(&all[..1], &[removed]));
        wait_notice(&two, "this node was removed");
        one.wait_stats("refusals", |stats| stats.refusals >= 3);
        assert!(!two.shared.has_event(&Event::Up(NodeId(here), 1)) || removed > here);
    }
}

/// A peer that is removed while connected may learn decisions before it is disconnected.
#[test]
fn a_peer_that_is_removed_while_it_is_connected_is_told() {
    let limits = Limits { removed_grace_ms: 1_000, ..hasty() };
    let node = lone(limits, &[2, 3]);
    let mut bulk = Raw::connect_as(&node, Hello { lane: Lane::Bulk, ..hello(2) });
    let mut raw = Raw::connect_as(&node, hello(2));
    let mut other = Raw::connect_as(&node, hello(3));
    speak(&node, &mut raw, 2, 1);
    let three = PeerAddress { node: NodeId(3), address: "127.0.0.1:1".to_owned() };
    set_table(&node, table(&[three], &[2]));
    let task = Task::Ask(NodeId(2), 5);
    node.shared.change(|world| world.tasks.push_back(task));
    let answer = raw.next_answer();
    assert!(answer.contains("ReadRequest { id: 5 }"), "{answer}");
    speak(&node, &mut raw, 2, 2);
    let removed = "NodeRemoved: node 2 was removed from the cluster";
    assert_eq!(raw.next_answer(), removed);
    assert_eq!(raw.next_answer(), "end");
    assert_eq!(bulk.next_answer(), "end");
    node.shared.wait_event(&Event::Down(NodeId(2)));
    for lane in Lane::ALL {
        let mut again = Raw::connect(&node);
        again.send_hello(&Hello { lane, ..hello(2) });
        assert_eq!(again.next_answer(), removed);
    }
    speak(&node, &mut other, 3, 3);
    assert!(!node.shared.has_event(&Event::Down(NodeId(3))));
}

/// [level-7] A connection with the previous release is kept until the group uses a level that the
/// release does not know. Then the peer is notified and refused.
#[test]
fn who_is_too_old_for_the_level_is_told_and_refused() {
    let node = lone(hasty(), &[2, 3]);
    let old =
        |lane| Hello { levels: Levels { lowest: Level(8), newest: Level(8) }, lane, ..hello(2) };
    let mut bulk = Raw::connect_as(&node, old(Lane::Bulk));
    let mut raw = Raw::connect_as(&node, old(Lane::Control));
    let mut other = Raw::connect_as(&node, hello(3));
    speak(&node, &mut raw, 2, 1);
    node.shared.change(|world| world.raised = true);
    let told = raw.next_answer();
    let expected =
        "Version: node 2 supports level 8 at most, and the cluster of node 1 is at level 10 now";
    assert!(told.starts_with(expected), "{told}");
    assert_eq!((raw.next_answer(), bulk.next_answer()), ("end".to_owned(), "end".to_owned()));
    node.shared.wait_event(&Event::Down(NodeId(2)));
    let mut again = Raw::connect(&node);
    again.send_hello(&old(Lane::Control));
    let answer = again.next_answer();
    assert!(answer.starts_with("Version: node 2 supports level 8"), "{answer}");
    speak(&node, &mut other, 3, 3);
    // The release that the refusal asked for.
    let mut new = Raw::connect_as(&node, hello(2));
    speak(&node, &mut new, 2, 4);
}

/// A node that was removed while it was down learns of it only from its peers. One of them may be
/// wrong, so most of them must claim it.
#[test]
fn most_peers_must_say_that_a_node_was_removed() {
    let node = lone(hasty(), &[2, 3, 4]);
    let say = |from: u32| {
        let mut raw = Raw::connect_as(&node, hello(from));
        speak(&node, &mut raw, from, 1);
        let refused = Frame::Refused(RefusalCode::NodeRemoved, "node 1 was removed");
        raw.send(Member::first(from), &refused);
        node.shared.wait_event(&Event::Down(NodeId(from)));
    };
    say(2);
    say(2);
    assert!(!node.shared.has_event(&Event::Removed));
    say(3);
    node.shared.wait_event(&Event::Removed);
}

/// A stranger with the cluster's id may use any node id. The number of such nodes is bounded,
/// silent ones are disconnected first, and none of them displaces a node in the table.
#[test]
fn a_flood_of_unknown_nodes_is_bounded() {
    let limits = Limits { handshake_timeout_ms: 60_000, ..Limits::default() };
    let node = lone(limits, &[2]);
    let mut known = Raw::connect_as(&node, hello(2));
    speak(&node, &mut known, 2, 1);
    // One of the unknown nodes sends messages.
    let mut busy = Raw::connect_as(&node, hello(100));
    speak(&node, &mut busy, 100, 2);
    let count = 3 * u32::try_from(NODES_MAX).unwrap();
    let _flood: Vec<_> = (0..count).map(|n| Raw::connect_as(&node, hello(1000 + n))).collect();
    node.shared.wait_event(&Event::Up(NodeId(1000 + count - 1), 1));
    assert_eq!(node.shared.lock().peers.len(), NODES_MAX - 1);
    speak(&node, &mut busy, 100, 3);
    speak(&node, &mut known, 2, 4);
    for gone in [2, 100] {
        assert!(!node.shared.has_event(&Event::Down(NodeId(gone))));
    }
    // The table grows: its nodes always get an entry.
    let all =
        (2..60).map(|node| PeerAddress { node: NodeId(node), address: "127.0.0.1:1".to_owned() });
    set_table(&node, table(&all.collect::<Vec<_>>(), &[]));
    node.shared.wait_until("room", |world| {
        world.peers.keys().filter(|node| node.0 >= 100).count() <= NODES_MAX - 1 - 58
    });
    let _late = Raw::connect_as(&node, hello(59));
    node.shared.wait_event(&Event::Up(NodeId(59), 1));
    speak(&node, &mut known, 2, 5);
}

/// An unknown node is refused when every entry is used by a node that sends messages.
#[test]
fn where_no_place_is_left_an_unknown_node_is_refused() {
    let limits = Limits { handshake_timeout_ms: 60_000, ..Limits::default() };
    let node = lone(limits, &[2]);
    let count = u32::try_from(NODES_MAX).unwrap() - 2;
    let mut guests: Vec<_> = (0..count).map(|n| Raw::connect_as(&node, hello(1000 + n))).collect();
    for (n, raw) in (0..count).zip(&mut guests) {
        speak(&node, raw, 1000 + n, 1);
    }
    let mut more = Raw::connect(&node);
    more.send_hello(&hello(77));
    let expected = "UnknownNode: node 1 does not know node 77, and has no place for more nodes";
    assert_eq!(more.next_answer(), expected);
    let _known = Raw::connect_as(&node, hello(2));
    drop(guests.pop());
    node.shared.wait_event(&Event::Down(NodeId(1000 + count - 1)));
    let _more = Raw::connect_as(&node, hello(77));
}

/// A hello in the name of an unknown but connected node does not replace that node's connection.
/// The rules are the same as for every peer.
#[test]
fn an_unknown_node_that_is_connected_is_not_pushed_out_by_a_hello_in_its_name() {
    let limits = Limits { handshake_timeout_ms: 60_000, ..Limits::default() };
    let node = lone(limits, &[2]);
    let mut real = Raw::connect_as(&node, hello(9));
    speak(&node, &mut real, 9, 1);
    let _held = Raw::connect_as(&node, Hello { boot: 999, ..hello(9) });
    speak(&node, &mut real, 9, 2);
    assert!(!node.shared.has_event(&Event::Down(NodeId(9))));
    drop(real);
    node.shared.wait_event(&Event::Down(NodeId(9)));
}
