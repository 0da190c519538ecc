//! The peer address of a starting node, and the answers to a founder before it founds a cluster.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    time::Duration,
};

use crate::common::{CLUSTER, DEADLINE, Event, Raw, Start, hello, lone, patient};
use quorate_core::{
    node_id::{Member, NodeId},
    witness::Memory,
};
use quorate_net::{
    JoinError, Limits, Listeners, check_waiting_at, find_cluster_members, request_founding,
    request_memories,
};
use quorate_tls::Protection;
use quorate_wire::{Frame, Hello, Join, NO_CLUSTER, encode};

fn listen() -> (Listeners, String) {
    let listeners =
        Listeners::bind("127.0.0.1:0", "127.0.0.1:0", None, Protection::Loopback).unwrap();
    let address = listeners.peer_address().to_string();
    (listeners, address)
}

fn connect(address: &str) -> Raw {
    Raw::from_stream(patient(TcpStream::connect(address).unwrap()))
}

/// Returns the answer to a hello. The node closes the connection afterwards.
fn answer(address: &str, hello: &Hello<'_>) -> String {
    let mut raw = connect(address);
    raw.send_hello(hello);
    let answer = raw.next_answer();
    assert_eq!(raw.next_answer(), "end");
    answer
}

fn unasked() -> Hello<'static> {
    Hello { cluster: NO_CLUSTER, ..hello(2) }
}

#[test]
fn a_starting_node_says_whether_it_belongs_to_a_cluster() {
    let (listeners, address) = listen();
    let starting = listeners.answer_while_starting(NodeId(1), None).unwrap();
    let none = "NotFounded: node 1 starts, and has no cluster yet";
    assert_eq!(answer(&address, &hello(2)), none);
    assert_eq!(answer(&address, &unasked()), none);
    starting.belongs_to(CLUSTER);
    let foreign = "ForeignCluster: node 2 does not belong to the cluster of node 1";
    assert_eq!(answer(&address, &unasked()), foreign);
    let other = Hello { cluster: CLUSTER + 1, ..hello(2) };
    assert_eq!(answer(&address, &other), foreign);
    let ours = answer(&address, &hello(2));
    assert_eq!(ours, "NotServingYet: node 1 is starting");
}

/// A joining node repeats its request after either answer of a starting founder.
#[test]
fn a_join_is_answered_and_waits() {
    let (listeners, address) = listen();
    let starting = listeners.answer_while_starting(NodeId(1), None).unwrap();
    let request = Join { node: NodeId(2), nonce: 1, list_hash: 2 };
    let mut heard = Vec::new();
    let over = std::cell::Cell::new(false);
    let answer = request_founding(&address, request, None, &|| over.get(), &mut |text| {
        heard.push(text.rsplit(": ").next().unwrap().to_owned());
        starting.belongs_to(CLUSTER);
        over.set(heard.len() == 2);
    });
    assert_eq!(answer, Err(JoinError::Stopped));
    let expected = ["node 1 starts, and has no cluster yet", "node 1 is starting"];
    assert_eq!(heard, expected);
}

#[test]
fn strangers_do_not_keep_a_starting_node_from_answering() {
    let (listeners, address) = listen();
    let _starting = listeners.answer_while_starting(NodeId(1), None).unwrap();
    let mut silent: Vec<_> = (0..50).map(|_| connect(&address)).collect();
    let none = "NotFounded: node 1 starts, and has no cluster yet";
    assert_eq!(answer(&address, &hello(2)), none);
    for raw in &mut silent[..34] {
        assert_eq!(raw.next_answer(), "end", "the oldest make room");
    }
    let mut large = Vec::new();
    encode(Member::first(2), &Frame::Hello(hello(2)), &mut large).unwrap();
    large[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    for bytes in [b"GET / HTTP/1.1\r\n\r\n".as_slice(), &[0; 500], &large] {
        let mut raw = connect(&address);
        raw.stream.write_all(bytes).unwrap();
        assert_eq!(raw.next_answer(), "end");
    }
    // The request may arrive byte by byte, and input after it is ignored.
    let mut bytes = Vec::new();
    encode(Member::first(2), &Frame::Hello(hello(2)), &mut bytes).unwrap();
    let mut raw = connect(&address);
    for byte in bytes {
        raw.stream.write_all(&[byte]).unwrap();
    }
    assert_eq!(raw.next_answer(), none);
    let _ = raw.stream.write_all(&[0; 5000]);
    assert_eq!(raw.next_answer(), "end");
    assert_eq!(answer(&address, &hello(2)), none);
}

/// The reactor takes over from the starting thread without losing waiting connections.
#[test]
fn the_reactor_goes_on_where_the_start_ended() {
    let bound = Start::node(1).bind();
    let address = bound.peer_address();
    let starting = bound.listeners.answer_while_starting(NodeId(1), None).unwrap();
    starting.belongs_to(CLUSTER);
    let foreign = answer(&address.address, &unasked());
    assert!(foreign.starts_with("ForeignCluster"), "{foreign}");
    drop(starting);
    let mut early = connect(&address.address);
    early.send_hello(&hello(2));
    let other = quorate_net::PeerAddress { node: NodeId(2), address: "127.0.0.1:1".to_owned() };
    let node = bound.run(&[address, other]);
    assert_eq!(early.next_answer(), "welcome");
    node.shared.wait_event(&Event::Up(NodeId(2), 1));
}

fn listed(node: u32, address: &str) -> (NodeId, String) {
    (NodeId(node), address.to_owned())
}

#[test]
fn a_founder_finds_those_that_belong_to_a_cluster() {
    let running = lone(Limits::default(), &[2, 3]);
    let (listeners, recovering) = listen();
    let cluster = Some(CLUSTER);
    let _recovering = listeners.answer_while_starting(NodeId(2), cluster).unwrap();
    let (empty, waiting) = listen();
    let _waiting = empty.answer_while_starting(NodeId(3), None).unwrap();
    let (closed, no_node) = listen();
    drop(closed);
    let nodes = [
        listed(5, &no_node),
        listed(3, &waiting),
        listed(2, &recovering),
        listed(1, &running.peer),
    ];
    let members = find_cluster_members(&nodes, NodeId(4), None, DEADLINE);
    assert_eq!(members, [NodeId(1), NodeId(2)]);
    assert!(running.shared.lock().events.is_empty(), "nothing changed");
}

/// A founder does not wait forever for a listener that sends nothing or nonsense.
#[test]
fn a_founder_does_not_wait_for_who_does_not_answer() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let nodes = [listed(2, &address)];
    let members = find_cluster_members(&nodes, NodeId(1), None, Duration::from_millis(50));
    assert_eq!(members, []);
    let strange = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = strange.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = strange.accept().unwrap();
        let _ = stream.read(&mut [0; 500]);
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    let members = find_cluster_members(&[listed(2, &address)], NodeId(1), None, DEADLINE);
    assert_eq!(members, []);
    server.join().unwrap();
}

/// [lie-3] Each node answers with its memory of the starting node's log. Nodes that are starting,
/// down, or of another cluster give no answer, and are not waited for.
#[test]
fn a_node_that_starts_is_told_what_it_said_of_its_log() {
    let running = lone(Limits::default(), &[2, 3]);
    let (listeners, starting) = listen();
    let cluster = Some(CLUSTER);
    let _starting = listeners.answer_while_starting(NodeId(2), cluster).unwrap();
    let (closed, no_node) = listen();
    drop(closed);
    let nodes = [listed(5, &no_node), listed(2, &starting), listed(1, &running.peer)];
    let memory = Memory { boot: 7, ..Memory::default() };
    assert_eq!(request_memories(&nodes, CLUSTER, NodeId(7), None, DEADLINE), [(NodeId(1), memory)]);
    assert_eq!(request_memories(&nodes[..2], CLUSTER, NodeId(7), None, DEADLINE), []);
    assert_eq!(request_memories(&nodes, CLUSTER + 1, NodeId(7), None, DEADLINE), []);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = listed(3, &silent.local_addr().unwrap().to_string());
    let patience = Duration::from_millis(50);
    assert_eq!(request_memories(&[silent], CLUSTER, NodeId(7), None, patience), []);
    assert!(running.shared.lock().events.is_empty(), "nothing changed");
}

/// A member verifies that a folder requesting an id is at its stated address.
#[test]
fn a_folder_that_waits_for_an_id_is_found_where_it_says() {
    let (listeners, address) = listen();
    let starting = listeners.answer_while_starting(None, None).unwrap();
    let none = "NotFounded: a new node starts, and has no cluster yet";
    assert_eq!(answer(&address, &hello(2)), none);
    starting.set_join_nonce(77);
    assert_eq!(check_waiting_at(&address, 77, None), Ok(()));
    let other = check_waiting_at(&address, 78, None).unwrap_err();
    assert_eq!(other, "another node listens there: another folder waits for an id here");
    starting.set_node(NodeId(4));
    starting.belongs_to(CLUSTER);
    let late = check_waiting_at(&address, 77, None).unwrap_err();
    assert_eq!(late, "another node listens there: node 4 is starting");
    drop((starting, listeners));
    let gone = check_waiting_at(&address, 77, None).unwrap_err();
    assert!(gone.contains("refused"), "{gone}");
}

/// A running node is not taken for a folder that waits for an id. The stated address may be that of
/// the node that is asked, if the flag was left at its default.
#[test]
fn a_node_that_runs_is_no_folder_that_waits() {
    let node = lone(Limits::default(), &[2]);
    let refused = quorate_net::JoinRefusal {
        code: quorate_wire::RefusalCode::UnknownNode,
        reason: "node 0 is not a member of this cluster".to_owned(),
    };
    node.shared.lock().admit = Some(Err(refused));
    let running = check_waiting_at(&node.peer, 77, None).unwrap_err();
    assert!(running.contains("another node listens there"), "{running}");
}
