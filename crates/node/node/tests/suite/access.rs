//! Client permissions, by certificate or password, until they are revoked.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
};

use quorate_access::{Checker, Command, Password, Role, Who};
use quorate_node::streams::StreamFront;
use quorate_replica::front::{ConnectionId, Front as _, ListenerKind};
use quorate_wire::streams::{self, ClientFrame, OpenMode, VERSION};

use crate::node::Node;

fn set(node: &mut Node<StreamFront>, name: &str, role: Role) {
    let command =
        Command::Set { name: name.to_owned(), role: Some(role), password: Password::None };
    let users = node.played.users.as_mut().unwrap();
    users.execute(&command.encode()).unwrap();
}

fn client(node: &mut Node<StreamFront>, name: &str) -> ConnectionId {
    let id = node.at_as(ListenerKind::Streams, Who::Client(name.to_owned()));
    node.send_request(id, ClientFrame::Hello { version: VERSION });
    assert!(node.take_answers(id)[0].starts_with("Welcome"));
    id
}

fn open(name: &str) -> ClientFrame<'_> {
    ClientFrame::Open { mode: OpenMode::Create, writer: 1, name }
}

const READ: ClientFrame<'_> = ClientFrame::Read { from: 0, to: u64::MAX, follow: true, name: "s" };

fn guarded() -> Node<StreamFront> {
    let mut node = Node::new();
    node.stream("s", b"abc");
    for (name, role) in [("ann", Role::Admin), ("bob", Role::Reader), ("web", Role::Writer)] {
        set(&mut node, name, role);
    }
    node
}

/// [access-1] Readers may read, and only writers may change anything.
#[test]
fn readers_read_and_only_writers_change_anything() {
    let mut node = guarded();
    let asks = || {
        [
            (Role::Reader, ClientFrame::Stat { name: "s" }),
            (Role::Reader, ClientFrame::List { after_name: "" }),
            (Role::Writer, open("t")),
            (Role::Writer, ClientFrame::Trim { retain_from: 0, name: "s" }),
            (Role::Writer, ClientFrame::Remove { name: "s" }),
        ]
    };
    for (who, role) in [("eve", None), ("bob", Some(Role::Reader)), ("web", Some(Role::Writer))] {
        for (needs, ask) in asks() {
            let id = client(&mut node, who);
            node.send_request(id, ask);
            node.run_until_quiet();
            let heard = node.take_answers(id);
            let refused = heard[0].starts_with("error forbidden");
            assert_eq!(refused, role < Some(needs), "{who}: {heard:?}");
        }
    }
    // A connection continues after a refusal, and may make all requests for which it has the role.
    let id = client(&mut node, "bob");
    node.send_request(id, open("u"));
    node.send_request(id, ClientFrame::List { after_name: "" });
    node.run_until_quiet();
    let heard = node.take_answers(id);
    assert!(heard[0].starts_with("error forbidden"), "{heard:?}");
    assert!(heard.len() > 1, "{heard:?}");
}

/// [access-2] A revoked permission is lost even by writers and readers in the middle of their work.
#[test]
fn what_is_taken_away_is_gone_for_writers_and_readers_under_way() {
    let mut node = guarded();
    let writer = client(&mut node, "web");
    node.send_request(writer, open("t"));
    node.run_until_quiet();
    assert_eq!(node.take_answers(writer), ["Opened { position: 0 }"]);
    node.send_request(writer, ClientFrame::Data(b"abc"));
    set(&mut node, "web", Role::Reader);
    node.send_request(writer, ClientFrame::Data(b"def"));
    node.run_until_quiet();
    let heard = node.take_answers(writer);
    assert!(heard[0].starts_with("error forbidden"), "{heard:?}");
    assert_eq!(node.played.abandoned.len(), 1, "its piece is left");
    let ann = client(&mut node, "ann");
    node.send_request(ann, ClientFrame::Stat { name: "t" });
    node.run_until_quiet();
    let heard = node.take_answers(ann);
    assert!(
        heard[0].starts_with("t [0, 3) "),
        "what was sent before stays, and no more: {heard:?}"
    );

    let mut node = guarded();
    let reader = client(&mut node, "bob");
    let gone = Command::Remove { name: "bob".to_owned() };
    let users = node.played.users.as_mut().unwrap();
    users.execute(&gone.encode()).unwrap();
    node.send_request(reader, READ);
    node.run_until_quiet();
    let heard = node.take_answers(reader);
    assert!(heard[0].starts_with("error forbidden"), "{heard:?}");
}

#[test]
fn the_raw_port_is_for_writers() {
    let mut node = guarded();
    for who in [Who::Anonymous, Who::Client("bob".to_owned())] {
        let id = node.at_as(ListenerKind::StreamsRaw, who);
        node.run_until_quiet();
        let why = node.resets.pop().expect("it is reset");
        assert!(why.contains("lacks the role writer"), "{why}");
        let _ = id;
    }
    node.at_as(ListenerKind::StreamsRaw, Who::Client("web".to_owned()));
    node.run_until_quiet();
    assert_eq!(node.resets, [""; 0]);
}

/// [access-4] A client that connects before the access rights are known waits, but not forever.
#[test]
fn a_node_that_does_not_know_who_may_do_what_lets_clients_wait() {
    let mut node = guarded();
    let known = node.played.users.take();
    let framed = node.at_as(ListenerKind::Streams, Who::Client("ann".to_owned()));
    node.send_request(framed, ClientFrame::Hello { version: VERSION });
    node.send_request(framed, ClientFrame::Stat { name: "s" });
    let raw = node.at_as(ListenerKind::StreamsRaw, Who::Client("web".to_owned()));
    node.run_until_quiet();
    assert_eq!(node.take_answers(framed), [""; 0]);
    assert!(node.front.is_busy(framed) && !node.front.should_close(framed));
    assert!(!node.front.accepts_input(framed) && !node.front.should_close(raw));
    node.played.users = known;
    node.run_until_quiet();
    let heard = node.take_answers(framed);
    assert!(heard[0].starts_with("Welcome") && heard[1].starts_with("s [0, 3) "), "{heard:?}");
    assert_eq!(node.resets, [""; 0]);

    let mut node = guarded();
    node.played.users = None;
    let id = node.at_as(ListenerKind::Streams, Who::Client("ann".to_owned()));
    node.send_request(id, ClientFrame::Hello { version: VERSION });
    node.send_request(id, ClientFrame::Stat { name: "s" });
    node.at_as(ListenerKind::StreamsRaw, Who::Client("web".to_owned()));
    node.run_until_quiet();
    for _ in 0..5 {
        node.played.wall_ms += 1_000;
        node.run_until_quiet();
    }
    let heard = node.take_answers(id);
    assert!(heard[1].starts_with("error no-quorum"), "{heard:?}");
    let why = node.resets.pop().expect("it is reset");
    assert!(why.contains("no leader was found in time"), "{why}");
}

/// Prefix that, followed by the password, forms a hash here.
const HASH: &str = "$argon2id$";

/// A password checker that returns each verdict when the test allows it.
#[derive(Clone, Debug, Default)]
struct Desk(Arc<Mutex<Queues>>);

#[derive(Debug, Default)]
struct Queues {
    waiting: VecDeque<(u64, bool)>,
    done: VecDeque<(u64, bool)>,
    full: bool,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.0.lock().unwrap()
    }

    fn judge(&self) {
        let mut queues = self.lock();
        let waiting = std::mem::take(&mut queues.waiting);
        queues.done.extend(waiting);
    }
}

impl Checker for Desk {
    fn check(&mut self, ticket: u64, hash: &str, password: &[u8]) -> bool {
        let mut queues = self.lock();
        let fits = hash.strip_prefix(HASH).map(str::as_bytes) == Some(password);
        if !queues.full {
            queues.waiting.push_back((ticket, fits));
        }
        !queues.full
    }

    fn verdict(&mut self) -> Option<(u64, bool)> {
        self.lock().done.pop_front()
    }
}

/// Returns a node where `web` may write and `bob` read, and its checker of their passwords.
fn with_passwords() -> (Node<StreamFront>, Desk) {
    let desk = Desk::default();
    let mut node = Node::with(StreamFront::default().with_checker(Box::new(desk.clone())));
    node.stream("s", b"abc");
    for (name, role) in [("ann", Role::Admin), ("web", Role::Writer), ("bob", Role::Reader)] {
        let command = Command::Set {
            name: name.to_owned(),
            role: Some(role),
            password: Password::Hash(format!("{HASH}{name}")),
        };
        let users = node.played.users.as_mut().unwrap();
        users.execute(&command.encode()).unwrap();
    }
    (node, desk)
}

fn login<'a>(name: &'a str, password: &'a str) -> ClientFrame<'a> {
    let password = streams::Password(password.as_bytes());
    ClientFrame::Login { name, password }
}

/// Connects a client without a certificate and sends its hello.
fn anonymous(node: &mut Node<StreamFront>) -> ConnectionId {
    let id = node.at_as(ListenerKind::Streams, Who::Anonymous);
    node.send_request(id, ClientFrame::Hello { version: VERSION });
    assert!(node.take_answers(id)[0].starts_with("Welcome"));
    id
}

#[test]
fn who_has_a_password_may_what_its_user_may() {
    let (mut node, desk) = with_passwords();
    let id = anonymous(&mut node);
    node.send_request(id, ClientFrame::Stat { name: "s" });
    node.run_until_quiet();
    let heard = node.take_answers(id);
    assert!(heard[0].starts_with("error forbidden"), "{heard:?}");
    // Later input waits and is not lost.
    node.send_request(id, login("web", "web"));
    node.send_request(id, open("t"));
    node.run_until_quiet();
    assert_eq!(node.take_answers(id), [""; 0]);
    assert!(node.front.is_busy(id));
    desk.judge();
    node.run_until_quiet();
    assert_eq!(node.take_answers(id), ["LoginAccepted", "Opened { position: 0 }"]);

    // A password takes precedence over a certificate, and a later one over an earlier one.
    let id = client(&mut node, "ann");
    node.send_request(id, login("bob", "bob"));
    desk.judge();
    node.run_until_quiet();
    node.send_request(id, open("u"));
    node.run_until_quiet();
    let heard = node.take_answers(id);
    assert_eq!(heard[0], "LoginAccepted");
    assert!(heard[1].starts_with("error forbidden"), "{heard:?}");
    // [access-2] A revoked right is gone.
    let gone = Command::Remove { name: "bob".to_owned() };
    let users = node.played.users.as_mut().unwrap();
    users.execute(&gone.encode()).unwrap();
    node.send_request(id, ClientFrame::Stat { name: "s" });
    node.run_until_quiet();
    assert!(node.take_answers(id)[0].starts_with("error forbidden"));
}

#[test]
fn a_wrong_password_ends_the_connection_and_is_counted() {
    let (mut node, desk) = with_passwords();
    for (name, password) in [("web", "bob"), ("eve", "eve"), ("", ""), ("default", "x")] {
        let before = node.front.refusal_counts().wrong_passwords;
        let id = anonymous(&mut node);
        node.send_request(id, login(name, password));
        node.send_request(id, ClientFrame::Stat { name: "s" });
        node.run_until_quiet();
        assert!(node.is_open(id), "no client learns at once which users exist");
        desk.judge();
        node.run_until_quiet();
        let heard = node.take_answers(id);
        assert_eq!(heard.len(), 1, "{heard:?}");
        assert!(heard[0].starts_with("error wrong-password"), "{heard:?}");
        assert!(!node.is_open(id));
        assert_eq!(node.front.refusal_counts().wrong_passwords, before + 1);
    }
    // The password changes before the verdict arrives.
    let id = anonymous(&mut node);
    node.send_request(id, login("web", "web"));
    let command = Command::Set {
        name: "web".to_owned(),
        role: None,
        password: Password::Hash(format!("{HASH}new")),
    };
    let users = node.played.users.as_mut().unwrap();
    users.execute(&command.encode()).unwrap();
    desk.judge();
    node.run_until_quiet();
    assert!(node.take_answers(id)[0].starts_with("error wrong-password"));
    // The verdict for a disconnected client is ignored.
    let id = anonymous(&mut node);
    node.send_request(id, login("web", "new"));
    node.hang_up(id);
    desk.judge();
    node.run_until_quiet();
    assert_eq!(node.front.open_requests(), 0);
}

#[test]
fn who_cannot_be_checked_now_may_try_again() {
    let (mut node, desk) = with_passwords();
    let id = anonymous(&mut node);
    desk.lock().full = true;
    node.send_request(id, login("web", "web"));
    node.run_until_quiet();
    assert!(node.take_answers(id)[0].starts_with("error busy"));
    desk.lock().full = false;
    node.send_request(id, login("web", "web"));
    desk.judge();
    node.run_until_quiet();
    assert_eq!(node.take_answers(id), ["LoginAccepted"]);
    // A login before the hello, or while a stream is written, is out of order.
    let id = node.at_as(ListenerKind::Streams, Who::Anonymous);
    node.send_request(id, login("web", "web"));
    node.run_until_quiet();
    assert!(node.take_answers(id)[0].starts_with("error out-of-order"));
    let id = client(&mut node, "ann");
    node.send_request(id, open("v"));
    node.run_until_quiet();
    node.send_request(id, login("bob", "bob"));
    node.run_until_quiet();
    let heard = node.take_answers(id);
    assert!(heard[1].starts_with("error out-of-order"), "{heard:?}");

    let mut unchecked = guarded();
    let id = anonymous(&mut unchecked);
    unchecked.send_request(id, login("web", "web"));
    unchecked.run_until_quiet();
    assert!(unchecked.take_answers(id)[0].starts_with("error unavailable"));
}

#[test]
fn a_writer_that_lost_its_role_in_the_middle_of_a_frame_is_refused() {
    let mut node = guarded();
    node.played.room = 1 << 20;
    let id = client(&mut node, "web");
    node.send_request(id, open("new"));
    node.run_until_quiet();
    assert_eq!(node.take_answers(id), ["Opened { position: 0 }"]);
    let mut frame = Vec::new();
    ClientFrame::Data(&[1; 200_000]).encode(&mut frame);
    node.send(id, &frame[..100_000]);
    node.turn();
    let filled = node.filled;
    assert!(filled > 20_000, "{filled}");
    set(&mut node, "web", Role::Reader);
    node.send(id, &frame[100_000..]);
    node.turn();
    assert_eq!(node.filled, filled);
    let heard = node.take_answers(id);
    assert!(heard.last().is_some_and(|last| last.contains("error")), "{heard:?}");
}
