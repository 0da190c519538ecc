//! Untrusted processes at the peer port of real nodes. They know the cluster's id. A node without
//! authentication must report what they did.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use crate::common::{Cluster, NodeProcess, START_TIMEOUT, http, wait_for};
use quorate_client::Reply;
use quorate_core::{
    ballot::{Ballot, Era},
    level::Levels,
    message::{Message, Phase2a},
    node_id::{Member, NodeId},
    slot::{Slot, SlotRange},
    value::Value,
};
use quorate_wire::{BODY_BYTES_MAX, Decoded, Frame, Hello, Lane, decode, encode};

/// Sends a hello to node 1 in the name of node 2 with boot number `boot`, then sends the messages.
fn intrude(cluster: &Cluster, boot: u32, says: &[Message]) -> TcpStream {
    let status = cluster.status(1).unwrap();
    let id = status["cluster"].as_str().unwrap();
    let node = cluster.nodes.all().iter().find(|node| node.ready.node == 1);
    let mut stream = TcpStream::connect(&node.unwrap().ready.peer).unwrap();
    stream.set_read_timeout(Some(START_TIMEOUT)).unwrap();
    let from = Member::first(2);
    let mut bytes = Vec::new();
    let hello = Hello {
        levels: Levels::SUPPORTED,
        cluster: u128::from_str_radix(id, 16).unwrap(),
        from,
        boot,
        to: NodeId(1),
        lane: Lane::Control,
        client: "",
        admin: "",
        stream: "",
    };
    encode(from, &Frame::Hello(hello), &mut bytes).unwrap();
    for message in says {
        let message = message.clone();
        let frame = Frame::Protocol { message, bytes: None };
        encode(from, &frame, &mut bytes).unwrap();
    }
    stream.write_all(&bytes).unwrap();
    let mut heard = Vec::new();
    loop {
        let mut chunk = [0; 4096];
        let count = stream.read(&mut chunk).unwrap();
        assert!(count > 0, "it closed the connection");
        heard.extend_from_slice(&chunk[..count]);
        if let Decoded::Frame { frame, .. } = decode(&heard, BODY_BYTES_MAX).unwrap() {
            assert!(matches!(frame, Frame::Welcome(_)), "{frame:?}");
            return stream;
        }
    }
}

fn said(node: &NodeProcess, what: &str) -> usize {
    let text = std::fs::read_to_string(&node.spec.log_path).unwrap();
    text.matches(what).count()
}

/// [ballot-5] A node votes for a stranger's proposal in an era that does not exist, which binds it.
/// Status, readiness and log report this consistently, and the other nodes continue.
#[test]
fn a_promise_to_an_era_that_does_not_exist_is_told() {
    let mut cluster = Cluster::start(3, &[]);
    cluster.client_from(2).run(&[b"SET", b"x", b"1"]).unwrap();
    let ballot = Ballot { era: Era(1 << 31), round: 1, node: NodeId(2) };
    let from = Slot(1);
    let slot = Slot(cluster.status(1).unwrap()["decided"].as_u64().unwrap());
    let proposal = Phase2a {
        ballot,
        range: SlotRange::one(slot),
        value: Value::NoOp,
        prefix: 0,
        decided_to: slot,
        own_volatile_to: Slot(0),
        own_durable_to: Slot(0),
        with_bytes: false,
    };
    let says = [Message::Phase1a { ballot, from }, Message::Phase2a(proposal)];
    // A boot number above that of node 2 would count against node 2 ([lie-5]).
    drop(intrude(&cluster, 1, &says));
    for restart in [false, true] {
        if restart {
            cluster.node(1).kill().unwrap();
            cluster.node(1).restart().unwrap();
        }
        let what = "no connected node knows era 2147483648";
        wait_for("the notice", || {
            let status = cluster.status(1)?;
            let notice = status["notices"][0].as_str()?;
            notice.contains(what).then_some(())
        });
        let admin = cluster.node(1).ready.admin.clone();
        let (code, body) = http(&admin, "/ready").unwrap();
        assert_eq!(code, 503, "{body}");
        assert!(body.contains(what), "{body}");
        assert_eq!(said(cluster.node(1), what), 1 + usize::from(restart));
    }
    let mut client = cluster.client_from(3);
    assert_eq!(client.read(&[b"GET", b"x"]), Ok(Reply::Bulk(b"1".to_vec())));
    client.run(&[b"SET", b"x", b"2"]).unwrap();
    for node in 2..=3 {
        let status = cluster.status(node).unwrap();
        assert_eq!(status["notices"], serde_json::json!([]));
    }
}

/// A pending hello does not displace a peer.
#[test]
fn a_held_hello_with_a_higher_boot_evicts_nobody() {
    let cluster = Cluster::start(3, &[]);
    let mut client = cluster.client_from(1);
    let _held = intrude(&cluster, 1000, &[]);
    for number in 0..100 {
        let value = number.to_string();
        client.run(&[b"SET", b"x", value.as_bytes()]).unwrap();
    }
    let status = cluster.status(1).unwrap();
    let members = status["members"].as_array().unwrap();
    assert!(members.iter().all(|member| member["connected"] == true), "{status}");
    let other = cluster.client_of(2).read(&[b"GET", b"x"]);
    assert_eq!(other, Ok(Reply::Bulk(b"99".to_vec())));
}
