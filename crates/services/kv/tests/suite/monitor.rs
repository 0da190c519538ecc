//! MONITOR: shown and hidden commands, and the end of monitoring.

use quorate_replica::front::{ConnectionId, Front as _};

use crate::common::Node;

fn watched() -> (Node, ConnectionId, ConnectionId) {
    let mut node = Node::memory();
    let (monitor, client) = (node.connect(), node.connect());
    assert_eq!(node.say(monitor, "MONITOR"), "+OK|");
    (node, monitor, client)
}

#[test]
fn a_command_is_a_line_in_the_form_of_redis() {
    let (mut node, monitor, client) = watched();
    node.world.wall_ms = 1_339_518_083_107;
    assert_eq!(node.say(client, "keys *"), "*0|");
    assert_eq!(node.take(monitor), "+1339518083.107000 [0 10.0.0.2:5000] \"keys\" \"*\"|");
    node.ask(client, &["SET", "a\"\\\n\r\t\u{7}\u{8}", "\u{1}é \u{7f}"]);
    let line = node.take(monitor);
    let escaped = r#""SET" "a\"\\\n\r\t\a\b" "\x01\xc3\xa9 \x7f"|"#;
    assert!(line.ends_with(escaped), "{line}");
    node.ask(client, &["SET", "k", &"x".repeat(200)]);
    assert!(node.take(monitor).contains("x... (72 more bytes)\"|"), "shortened as in SLOWLOG");
    // Refused commands are not shown; queued commands are.
    for words in ["NONSENSE 1", "GET", "MULTI", "GET k", "EXEC"] {
        node.say(client, words);
    }
    let lines = node.take(monitor);
    let said: Vec<&str> =
        lines.split('|').filter_map(|line| Some(line.split_once("] ")?.1)).collect();
    assert_eq!(said, ["\"MULTI\"", "\"GET\" \"k\"", "\"EXEC\""]);
}

#[test]
fn a_password_is_never_shown() {
    let (mut node, monitor, client) = watched();
    for words in [
        "AUTH hunter2",
        "AUTH joe hunter2",
        "HELLO 3 AUTH joe hunter2",
        "ACL SETUSER joe >hunter2",
        "CONFIG SET requirepass hunter2",
        "QUORATE SEQ 1 AUTH joe hunter2",
        "COMMAND GETKEYS AUTH joe hunter2",
        "SLOWLOG GET",
        "LATENCY LATEST",
        "AUHT joe hunter2",
    ] {
        node.say(client, words);
        assert_eq!(node.take(monitor), "", "{words}");
    }
    node.say(client, "PING");
    assert!(node.take(monitor).ends_with("\"PING\"|"));
}

#[test]
fn a_monitor_that_does_not_read_is_disconnected_and_counted() {
    let (mut node, slow, client) = watched();
    let other = node.connect();
    assert_eq!(node.say(other, "MONITOR"), "+OK|");
    node.take(slow);
    let value = "x".repeat(100);
    let mut most = 0;
    for _ in 0..10_000 {
        node.feed_only(client, &["SET", "k", &value]);
        // Output is sent to all clients except the slow monitor.
        node.front.take_output(other);
        node.front.take_output(client);
        if node.front.should_close(slow) {
            break;
        }
        most = node.front.output(slow).len();
    }
    assert!(node.front.should_close(slow));
    assert!((900_000..1 << 20).contains(&most), "{most}");
    assert!(!node.front.should_close(other));
    node.pump();
    assert!(node.take(slow).contains("-ERR MONITOR ended: "));
    let told = node.say(client, "INFO");
    assert!(told.contains("|monitor_clients:1|"), "{told}");
    assert!(told.contains("|monitors_disconnected:1|"), "{told}");
}

#[test]
fn reset_quit_and_the_end_of_the_connection_end_it() {
    let (mut node, monitor, client) = watched();
    assert_eq!(
        node.say(monitor, "GET k"),
        "-ERR Can't execute 'get': only PING / QUIT / RESET are allowed after MONITOR|"
    );
    let told = node.say(client, "CLIENT LIST");
    assert!(told.contains(" flags=O "), "{told}");
    assert!(node.take(monitor).contains("\"CLIENT\" \"LIST\""));
    assert_eq!(node.say(monitor, "RESET"), "+RESET|");
    node.say(client, "PING");
    assert_eq!(node.take(monitor), "");
    assert_eq!(node.say(monitor, "GET k"), "$-1|");
    for end in ["QUIT", ""] {
        let monitor = node.connect();
        node.say(monitor, "MONITOR");
        assert!(node.say(client, "INFO").contains("|monitor_clients:1|"));
        node.take(monitor);
        if end.is_empty() {
            node.front.handle_closed(monitor, &mut node.world);
        } else {
            assert_eq!(node.say(monitor, end), "+OK|");
        }
        assert!(node.say(client, "INFO").contains("|monitor_clients:0|"));
    }
    // MONITOR is refused within a transaction, where replies are sent in another order.
    node.say(client, "MULTI");
    assert_eq!(node.say(client, "MONITOR"), "-ERR Command not allowed inside a transaction|");
}
