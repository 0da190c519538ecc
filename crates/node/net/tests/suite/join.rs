//! Join requests: a node without a cluster connects to its founder's reactor.

use std::{
    cell::Cell,
    io::{Read, Write},
    net::TcpListener,
};

use crate::common::{CLUSTER, Raw, hello, lone};
use quorate_core::{node_id::NodeId, record::Class};
use quorate_net::{Founded, JoinError, JoinRefusal, Limits, request_founding};
use quorate_wire::{Join, RefusalCode};

fn founded() -> Founded {
    Founded {
        cluster: CLUSTER,
        class: Class::Volatile,
        store: "memory".to_owned(),
        members: vec![
            (NodeId(1), "127.0.0.1:7451".to_owned()),
            (NodeId(2), "localhost:8451".to_owned()),
        ],
        terms: Default::default(),
    }
}

const REQUEST: Join = Join { node: NodeId(2), nonce: 77, list_hash: 99 };

#[test]
fn a_new_node_learns_what_was_founded() {
    let node = lone(Limits::default(), &[2]);
    node.shared.lock().admit = Some(Ok(founded()));
    let answer = request_founding(&node.peer, REQUEST, None, &|| false, &mut |_| {});
    assert_eq!(answer, Ok(founded()));
    // Joining does not connect the node; it connects later, with a hello.
    assert!(node.shared.lock().events.is_empty());
    let _raw = Raw::connect_as(&node, hello(2));
}

#[test]
fn a_refusal_is_final_and_tells_why() {
    let node = lone(Limits::default(), &[2]);
    let reason = "the lists of nodes differ".to_owned();
    let refused = JoinRefusal { code: RefusalCode::ListDiffers, reason: reason.clone() };
    node.shared.lock().admit = Some(Err(refused));
    let answer = request_founding(&node.peer, REQUEST, None, &|| false, &mut |_| {});
    assert_eq!(answer, Err(JoinError::Refused(RefusalCode::ListDiffers, reason)));
}

#[test]
fn a_founder_that_is_not_ready_is_asked_again_and_each_reason_is_told_once() {
    let node = lone(Limits::default(), &[2]);
    let attempts = Cell::new(0);
    let mut heard = Vec::new();
    let stop = || {
        attempts.set(attempts.get() + 1);
        if attempts.get() == 8 {
            node.shared.lock().admit = Some(Ok(founded()));
        }
        false
    };
    let answer =
        request_founding(&node.peer, REQUEST, None, &stop, &mut |text| heard.push(text.to_owned()));
    assert_eq!(answer, Ok(founded()));
    assert_eq!(heard, [format!("waiting for the founder at {}: not yet founded", node.peer)]);
}

#[test]
fn who_waits_for_a_founder_that_is_not_there_can_stop() {
    let no_founder = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let asked = Cell::new(0);
    let mut heard = 0;
    let stop = || asked.replace(asked.get() + 1) >= 3;
    let answer = request_founding(&no_founder, REQUEST, None, &stop, &mut |_| heard += 1);
    assert_eq!((answer, heard), (Err(JoinError::Stopped), 1));
}

#[test]
fn a_founder_that_talks_nonsense_is_a_reason_and_no_crash() {
    let strange = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = strange.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        for nonsense in [b"HTTP/1.1 400 Bad Request\r\n\r\n".as_slice(), b"", b"QRTE"] {
            let (mut stream, _) = strange.accept().unwrap();
            let _ = stream.read(&mut [0; 160]);
            stream.write_all(nonsense).unwrap();
        }
    });
    let mut heard = Vec::new();
    let over = Cell::new(false);
    let answer = request_founding(&address, REQUEST, None, &|| over.get(), &mut |text| {
        heard.push(text.rsplit(": ").next().unwrap().to_owned());
        over.set(heard.len() == 3);
    });
    // The third attempt fails like the second, so only the closed port is a new reason.
    assert_eq!(answer, Err(JoinError::Stopped));
    assert_eq!(heard[..2], ["not a quorate frame", "the connection was closed without an answer"]);
    server.join().unwrap();
}
