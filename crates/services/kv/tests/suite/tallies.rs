//! What a node says of the commands it was asked for: counts and times.

use quorate_replica::front::Front as _;

use crate::common::{Node, request};

/// The lines of one section of INFO that begin so.
fn told(node: &mut Node, section: &str, start: &str) -> Vec<String> {
    let client = node.connect();
    let text = node.say(client, &format!("INFO {section}"));
    node.front.closed(client, &mut node.world);
    let lines = text.split('|').filter(|line| line.starts_with(start));
    lines.map(str::to_owned).collect()
}

#[test]
fn commandstats_count_calls_times_and_failures() {
    let mut node = Node::memory();
    let client = node.connect();
    node.say(client, "SET text x");
    // Two writes take 7 ms and 3 ms from their arrival to their replies.
    node.feed(client, &request(&["INCR", "n"]));
    node.world.wall_ms += 4;
    node.feed(client, &request(&["INCR", "text"]));
    node.world.wall_ms += 3;
    node.settle();
    node.say(client, "INCR");
    node.say(client, "NONSENSE 1");
    node.say(client, "CLIENT NO-EVICT perhaps");
    let command = |name: &str| format!("cmdstat_{name}:");
    let of = |node: &mut Node, name: &str| told(node, "commandstats", &command(name));
    assert_eq!(
        of(&mut node, "incr"),
        ["cmdstat_incr:calls=2,usec=10000,usec_per_call=5000.00,rejected_calls=1,failed_calls=1"]
    );
    assert_eq!(
        of(&mut node, "set"),
        ["cmdstat_set:calls=1,usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=0"]
    );
    assert_eq!(
        of(&mut node, "client"),
        ["cmdstat_client:calls=1,usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=1"]
    );
    assert_eq!(of(&mut node, "get"), [""; 0], "never asked for");
    // What is no request is no call of the one before it.
    node.world.command_bytes_max = 100;
    node.say(client, "SET k v");
    let long = "x".repeat(1000);
    assert!(
        node.ask(client, &["SET", "k", &long])
            .starts_with("-TOOBIG")
    );
    assert!(
        of(&mut node, "set")[0]
            .ends_with("calls=2,usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=0")
    );
    assert_eq!(node.say(client, "CONFIG RESETSTAT"), "+OK|");
    assert_eq!(of(&mut node, "incr"), [""; 0]);
    assert_eq!(
        told(&mut node, "stats", "total_commands_processed:"),
        ["total_commands_processed:2"],
        "the INFO before and this one"
    );
}

#[test]
fn reads_are_counted_when_they_are_answered() {
    let mut node = Node::memory();
    let client = node.connect();
    for words in [&["GET", "k"][..], &["SET", "k", "v"], &["GET", "k"]] {
        node.feed(client, &request(words));
    }
    node.world.wall_ms += 2;
    node.settle();
    let lines = told(&mut node, "commandstats", "cmdstat_get:");
    assert_eq!(
        lines,
        ["cmdstat_get:calls=2,usec=4000,usec_per_call=2000.00,rejected_calls=0,failed_calls=0"]
    );
}

#[test]
fn info_has_commandstats_when_asked_for_all() {
    let mut node = Node::memory();
    let client = node.connect();
    node.say(client, "PING");
    for (words, expected) in [
        ("INFO", false),
        ("INFO default", false),
        ("INFO server", false),
        ("INFO all", true),
        ("INFO everything", true),
        ("INFO CommandStats", true),
    ] {
        let text = node.say(client, words);
        assert_eq!(text.contains("|cmdstat_ping:calls=1,"), expected, "{words}");
    }
}
