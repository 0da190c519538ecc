//! Clients that violate the protocol, many concurrent clients, and the initial hello.

use crate::driver::{self, Seed};
use quorate_replica::front::{ConnectionId, Front};
use quorate_wire::streams::{
    BODY_BYTES_MAX, CONTROL_BODY_BYTES_MAX, ClientFrame, OpenMode, Retention, VERSION,
};

use crate::{check, node::Node};

const HELLO: ClientFrame<'static> = ClientFrame::Hello { version: VERSION };

fn open(writer: u128) -> ClientFrame<'static> {
    ClientFrame::Open { mode: OpenMode::Create, writer, name: "s" }
}

fn sent(asks: &[ClientFrame<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for ask in asks {
        ask.encode(&mut bytes);
    }
    bytes
}

/// Returns the answers to a client that sends `bytes`, and whether its connection stays open.
fn told(bytes: &[u8]) -> (Vec<String>, bool) {
    let mut node = Node::new();
    let id = node.stranger();
    node.send(id, bytes);
    node.run_until_quiet();
    (node.take_answers(id), node.is_open(id))
}

#[test]
fn a_client_is_greeted_and_told_where_the_leader_is() {
    let mut node = Node::new();
    node.played.leader = Some("10.0.0.3:7453".into());
    let id = node.stranger();
    node.send_request(id, HELLO);
    assert_eq!(
        node.take_answers(id),
        [r#"Welcome { version: 1, node: NodeId(1), leader: "10.0.0.3:7453" }"#]
    );
}

/// A protocol violation gets one error and ends the connection. Later input is ignored.
#[test]
fn what_breaks_the_rules_gets_one_error_and_ends() {
    let frame = |kind: u8, length: usize| {
        let [a, b, c, d] = u32::try_from(length).unwrap().to_le_bytes();
        vec![kind, 0, 0, 0, a, b, c, d]
    };
    let after_hello = |bytes: &[u8]| [sent(&[HELLO]), bytes.to_vec()].concat();
    let data = ClientFrame::Data(b"abc");
    let close = ClientFrame::Close { finish: true };
    let stat = ClientFrame::Stat { name: "s" };
    for (bytes, error) in [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "malformed"),
        (b"*1\r\n$4\r\nPING\r\n".to_vec(), "malformed"),
        (b"\0".to_vec(), "malformed"),
        (sent(&[ClientFrame::Hello { version: 2 }]), "version"),
        (sent(&[stat, HELLO]), "out-of-order"),
        (sent(&[data]), "out-of-order"),
        (sent(&[HELLO, HELLO]), "out-of-order"),
        (sent(&[HELLO, data, stat]), "out-of-order"),
        (sent(&[HELLO, close, stat]), "out-of-order"),
        (after_hello(&frame(0x0a, 0)), "malformed"),
        (after_hello(&frame(0x81, 0)), "malformed"),
        (after_hello(&frame(0x05, CONTROL_BODY_BYTES_MAX + 1)), "malformed"),
        (after_hello(&frame(0x03, BODY_BYTES_MAX + 1)), "malformed"),
        (after_hello(&frame(0x03, u32::MAX as usize)), "malformed"),
        (after_hello(&[5, 0, 1, 0, 1, 0, 0, 0, b's']), "malformed"),
        (after_hello(&[5, 0, 0, 0, 1, 0, 0, 0, 0xff]), "malformed"),
    ] {
        let (mut heard, open) = told(&bytes);
        heard.retain(|said| !said.starts_with("Welcome"));
        assert_eq!(heard, [format!("error {error} at 0")], "{bytes:?}");
        assert!(!open, "{bytes:?}");
    }
    // A writer that violates the protocol loses its piece.
    for ask in [open(1), open(2), stat, HELLO, ClientFrame::List { after_name: "" }] {
        let mut node = Node::new();
        let id = node.writer("s", 1);
        node.send(id, &sent(&[data, ask, data]));
        assert_eq!(node.take_answers(id), ["error out-of-order at 0"]);
        assert!(!node.is_open(id));
        assert_eq!(node.left_over(id), 0, "what follows is discarded");
        assert_eq!(node.played.abandoned.len(), 1);
        assert_eq!(node.played.info("s").unwrap().end, 3);
    }
}

#[test]
fn the_longest_frame_is_taken() {
    let bytes = vec![7; BODY_BYTES_MAX];
    let mut node = Node::new();
    node.played.room = 1 << 20;
    let id = node.writer("s", 1);
    node.send_request(id, ClientFrame::Data(&bytes));
    assert_eq!(node.played.undecided(), BODY_BYTES_MAX);
}

#[test]
fn no_bytes_of_a_client_of_streams_break_the_front() {
    let read = |from, to, follow| ClientFrame::Read { from, to, follow, name: "t" };
    let seeds = [
        (
            "write",
            sent(&[
                HELLO,
                open(1),
                ClientFrame::Data(b"abc"),
                ClientFrame::Data(b"def"),
                ClientFrame::Close { finish: true },
            ]),
        ),
        ("leave", sent(&[HELLO, open(1), ClientFrame::Data(b"abc")])),
        ("read", sent(&[HELLO, read(0, u64::MAX, false)])),
        ("part", sent(&[HELLO, read(5, 7, true)])),
        ("follow", sent(&[HELLO, read(3, u64::MAX, true)])),
        (
            "ask",
            sent(&[
                HELLO,
                ClientFrame::Stat { name: "t" },
                ClientFrame::List { after_name: "" },
                ClientFrame::Trim { retain_from: 3, name: "t" },
                ClientFrame::Retain {
                    keep: Retention { bytes: Some(2), age_max_ms: None },
                    name: "t",
                },
                read(3, u64::MAX, false),
                ClientFrame::Remove { name: "t" },
            ]),
        ),
        ("takeover", {
            let takeover = ClientFrame::Open { mode: OpenMode::Takeover, writer: 3, name: "t" };
            sent(&[HELLO, takeover, ClientFrame::Data(b"x")])
        }),
        ("data-first", sent(&[HELLO, ClientFrame::Data(b"x")])),
        ("http", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
    ];
    let seeds = seeds
        .map(|(name, bytes)| Seed { name: name.into(), bytes: [&[3], bytes.as_slice()].concat() });
    driver::run("stream-front", &seeds, 20_000, check::check);
}

#[test]
fn a_thousand_connections_write_and_read_and_little_is_held() {
    const COUNT: usize = 1000;
    let mut node = Node::new();
    let name = |number: usize| format!("stream-{number}");
    let writers: Vec<ConnectionId> =
        (0..COUNT).map(|number| node.writer(&name(number), number as u128)).collect();
    let readers: Vec<ConnectionId> = (0..COUNT)
        .map(|number| {
            let id = node.client();
            node.send_request(
                id,
                ClientFrame::Read { from: 0, to: u64::MAX, follow: true, name: &name(number) },
            );
            id
        })
        .collect();
    node.run_until_quiet();
    assert_eq!(node.front.connections(), 2 * COUNT);
    assert!(
        node.front.held_bytes() <= 2 * COUNT * 256,
        "{} bytes of idle connections",
        node.front.held_bytes()
    );
    for (number, id) in writers.iter().enumerate() {
        let finish = number % 2 == 0;
        let data = vec![number as u8; 100 + number];
        node.queue(*id, &sent(&[ClientFrame::Data(&data), ClientFrame::Close { finish }]));
    }
    node.run_until_quiet();
    for (number, id) in writers.iter().enumerate() {
        let closed = format!("Closed {{ position: {} }}", 100 + number);
        assert_eq!(node.take_answers_now(*id).last(), Some(&closed));
    }
    for (number, id) in readers.iter().enumerate() {
        let heard = node.take_answers_now(*id);
        let end = 100 + number;
        assert_eq!(heard[0], format!("{end} bytes from 0"));
        assert_eq!(heard.len(), if number % 2 == 0 { 2 } else { 1 });
    }
}
