//! Connections from another process in a peer's name. A hello alone replaces no live connection.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use crate::common::{Event, Node, Raw, Task, hello, lone};
use quorate_core::{
    message::Message,
    node_id::{Member, NodeId},
};
use quorate_net::Limits;
use quorate_wire::{Frame, Hello, Lane};

/// Returns limits under which no handshake times out.
fn patient() -> Limits {
    Limits { handshake_timeout_ms: 60_000, ..Limits::default() }
}

fn hasty() -> Limits {
    Limits { handshake_timeout_ms: 50, ..Limits::default() }
}

fn later(boot: u32) -> Hello<'static> {
    Hello { boot, ..hello(2) }
}

/// Sends a message in the name of node 2 and waits until it has arrived.
fn speak(node: &Node, raw: &mut Raw, id: u64) {
    let message = Message::ReadRequest { id };
    let bytes = None;
    raw.send(Member::first(2), &Frame::Protocol { message, bytes });
    node.shared.wait_event(&Event::Read(NodeId(2), id));
}

/// Returns whether messages from node 1 to node 2 arrive on this connection.
fn is_used(node: &Node, raw: &mut Raw, id: u64) -> bool {
    let ask = Task::Ask(NodeId(2), id);
    node.shared.change(|world| world.tasks.push_back(ask));
    raw.next_answer().contains(&format!("ReadRequest {{ id: {id} }}"))
}

#[test]
fn a_hello_that_nothing_follows_replaces_no_connection_that_lives() {
    let node = lone(hasty(), &[2]);
    let mut real = Raw::connect_as(&node, hello(2));
    speak(&node, &mut real, 1);
    for lane in Lane::ALL {
        let mut held = Raw::connect_as(&node, Hello { lane, ..later(999) });
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(held.next_answer(), "end", "it is given up");
                over.store(true, Ordering::SeqCst);
            });
            for id in 100.. {
                speak(&node, &mut real, id);
                if over.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
        assert!(is_used(&node, &mut real, 1));
    }
    let down = Event::Down(NodeId(2));
    assert!(!node.shared.has_event(&down), "the host heard nothing of it");
}

/// A returning peer is admitted even if another connection occupies its lane.
#[test]
fn a_hello_that_is_held_keeps_nobody_out() {
    let node = lone(patient(), &[2]);
    let mut held = Raw::connect_as(&node, later(999));
    node.shared.wait_event(&Event::Up(NodeId(2), 999));
    let mut real = Raw::connect_as(&node, hello(2));
    assert_eq!(held.next_answer(), "end");
    node.shared.wait_event(&Event::Up(NodeId(2), 1));
    assert!(is_used(&node, &mut real, 1));
}

/// A newer process that sends a frame replaces the older one on all lanes, as after a power loss,
/// when the old connection still looks alive.
#[test]
fn a_newer_process_that_speaks_replaces_the_older_one_on_all_lanes() {
    let node = lone(patient(), &[2]);
    let mut bulk = Raw::connect_as(&node, Hello { lane: Lane::Bulk, ..hello(2) });
    let mut old = Raw::connect_as(&node, hello(2));
    speak(&node, &mut old, 1);
    let mut new = Raw::connect_as(&node, later(2));
    let mut new_bulk = Raw::connect_as(&node, Hello { lane: Lane::Bulk, ..later(2) });
    assert!(is_used(&node, &mut old, 7), "nothing was said by the new one");
    speak(&node, &mut new, 2);
    assert_eq!(old.next_answer(), "end");
    assert_eq!(bulk.next_answer(), "end");
    assert!(is_used(&node, &mut new, 8));
    let task = Task::Forward(NodeId(2), Lane::Bulk, vec![7; 9]);
    node.shared.change(|world| world.tasks.push_back(task));
    assert_eq!(new_bulk.next_answer(), "forward of 9");
    let events = node.shared.lock().events.clone();
    let peer = NodeId(2);
    let expected = [
        Event::Up(peer, 1),
        Event::Read(peer, 1),
        Event::Down(peer),
        Event::Up(peer, 2),
        Event::Read(peer, 2),
    ];
    assert_eq!(events, expected);
}

/// A newer process that sends nothing replaces the older one once the older one has been silent for
/// the duration of a handshake.
#[test]
fn a_newer_process_replaces_one_that_fell_silent() {
    let node = lone(hasty(), &[2]);
    let mut old = Raw::connect_as(&node, hello(2));
    speak(&node, &mut old, 1);
    let mut new = Raw::connect_as(&node, later(2));
    node.shared.wait_event(&Event::Up(NodeId(2), 2));
    assert_eq!(old.next_answer(), "end");
    assert!(is_used(&node, &mut new, 1));
}

#[test]
fn an_older_process_does_not_come_back_while_the_newer_one_lives() {
    let node = lone(patient(), &[2]);
    let mut newer = Raw::connect_as(&node, later(2));
    speak(&node, &mut newer, 1);
    let mut older = Raw::connect(&node);
    older.send_hello(&hello(2));
    assert_eq!(
        older.next_answer(),
        "DuplicateNode: a newer process is connected as node 2 (boot 2 > 1)"
    );
    assert!(is_used(&node, &mut newer, 2));
}

/// The number of waiting hellos is bounded, because each uses a descriptor and a little memory.
#[test]
fn held_hellos_are_bounded() {
    let limits = Limits { strangers_max: 8, ..patient() };
    let node = lone(limits, &[2]);
    let mut real = Raw::connect_as(&node, hello(2));
    speak(&node, &mut real, 1);
    let mut held: Vec<_> = (0..30).map(|n| Raw::connect_as(&node, later(100 + n))).collect();
    for raw in &mut held[..22] {
        assert_eq!(raw.next_answer(), "end", "the oldest make room");
    }
    assert!(is_used(&node, &mut real, 1));
}

/// [model-1] A frame after a waiting hello is accepted only in the name of the greeter.
#[test]
fn garbage_after_a_held_hello_replaces_nothing() {
    let node = lone(patient(), &[2, 3]);
    let mut real = Raw::connect_as(&node, hello(2));
    speak(&node, &mut real, 1);
    let message = Message::ReadRequest { id: 5 };
    let bytes = None;
    let frame = Frame::Protocol { message, bytes };
    for from in [3, 1] {
        let mut held = Raw::connect_as(&node, later(999));
        held.send(Member::first(from), &frame);
        assert_eq!(held.next_answer(), "end");
    }
    let mut held = Raw::connect_as(&node, later(999));
    held.send_hello(&later(1000));
    assert_eq!(held.next_answer(), "end");
    assert!(is_used(&node, &mut real, 1));
    let down = Event::Down(NodeId(2));
    assert!(!node.shared.has_event(&down));
}
