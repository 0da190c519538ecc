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

/// A request whose reply takes so long.
fn slowly(node: &mut Node, client: quorate_replica::front::ConnectionId, words: &[&str], ms: u64) {
    node.feed(client, &request(words));
    node.world.wall_ms += ms;
    node.settle();
    node.take(client);
}

#[test]
fn slowlog_has_what_took_ten_milliseconds_and_who_asked() {
    let mut node = Node::memory();
    let client = node.connect();
    node.say(client, "CLIENT SETNAME joe");
    slowly(&mut node, client, &["SET", "k", "secret"], 9);
    assert_eq!(node.say(client, "SLOWLOG LEN"), ":0|");
    // Of the first one nothing but the name is known.
    slowly(&mut node, client, &["SET", "k", "v"], 10);
    slowly(&mut node, client, &["GET", "k"], 12);
    slowly(&mut node, client, &["GET", "k"], 3);
    assert_eq!(
        node.say(client, "SLOWLOG GET"),
        "*2|*6|:1|:1000|:12000|*2|$3|GET|$1|k|$13|10.0.0.1:5000|$3|joe|\
         *6|:0|:1000|:10000|*2|$3|set|$62|(arguments not kept: no command was slow in the minute before)|\
         $13|10.0.0.1:5000|$3|joe|"
    );
    let one = node.say(client, "SLOWLOG GET 1");
    assert!(one.starts_with("*1|*6|:1|"), "{one}");
    for (words, expected) in [
        ("SLOWLOG LEN", ":2|"),
        ("SLOWLOG GET 0", "*0|"),
        (
            "SLOWLOG GET -2",
            "-ERR count should be greater than or equal to -1|",
        ),
        (
            "SLOWLOG GET x",
            "-ERR value is not an integer or out of range|",
        ),
        (
            "SLOWLOG GET 1 2",
            "-ERR wrong number of arguments for 'slowlog|get' command|",
        ),
        (
            "SLOWLOG NOW",
            "-ERR unknown subcommand 'NOW'. Try SLOWLOG HELP.|",
        ),
        ("SLOWLOG RESET", "+OK|"),
        ("SLOWLOG LEN", ":0|"),
    ] {
        assert_eq!(node.say(client, words), expected, "{words}");
    }
    // A minute later arguments are kept no more; numbers go on.
    node.world.wall_ms += 60_000;
    slowly(&mut node, client, &["SET", "k", "w"], 10);
    let one = node.say(client, "SLOWLOG GET -1");
    assert!(
        one.starts_with("*1|*6|:2|") && one.contains("not kept"),
        "{one}"
    );
}

#[test]
fn slowlog_is_bounded_and_shortens_as_redis_does() {
    let mut node = Node::memory();
    let client = node.connect();
    slowly(&mut node, client, &["SET", "k", "v"], 10);
    let long = "x".repeat(129);
    let mut words = vec!["MGET"; 33];
    words[1] = &long;
    slowly(&mut node, client, &words, 10);
    let told = node.say(client, "SLOWLOG GET 1");
    assert!(told.contains("|*32|$4|MGET|"), "{told}");
    assert!(
        told.contains(&format!("{}... (1 more bytes)|", "x".repeat(128))),
        "{told}"
    );
    assert!(told.contains("|$22|... (2 more arguments)|"), "{told}");
    let idle = node.front.held_bytes();
    for _ in 0..300 {
        node.feed(client, &request(&["SET", "k", &long]));
    }
    assert!(
        node.front.held_bytes() > idle + 300 * 128,
        "what is kept is counted"
    );
    node.world.wall_ms += 20;
    node.settle();
    node.take(client);
    assert_eq!(node.say(client, "SLOWLOG LEN"), ":128|");
    let all = node.say(client, "SLOWLOG GET -1");
    assert!(all.starts_with("*128|*6|:301|"), "{}", &all[..40]);
    assert!(node.front.held_bytes() < idle + 64 * 1024, "and given back");
}

/// What a client says of who it is never gets there, however slow the node is.
#[test]
fn slowlog_has_no_secrets() {
    let mut node = Node::memory();
    let client = node.connect();
    slowly(&mut node, client, &["SET", "k", "v"], 10);
    for words in [
        &["SET", "k", "v"][..],
        &["AUTH", "joe", "hunter2"],
        &["HELLO", "2", "AUTH", "joe", "hunter2"],
    ] {
        node.feed(client, &request(words));
    }
    node.world.wall_ms += 50;
    node.settle();
    node.take(client);
    let told = node.say(client, "SLOWLOG GET -1");
    assert!(
        told.starts_with("*2|") && !told.contains("hunter2"),
        "{told}"
    );
}
