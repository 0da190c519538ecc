//! Command statistics of a node: counts and times.

use quorate_replica::front::Front as _;

use crate::common::{Node, request};

/// Returns those lines of a section of INFO that begin with `start`.
fn told(node: &mut Node, section: &str, start: &str) -> Vec<String> {
    let client = node.connect();
    let text = node.say(client, &format!("INFO {section}"));
    node.front.handle_closed(client, &mut node.world);
    let lines = text.split('|').filter(|line| line.starts_with(start));
    lines.map(str::to_owned).collect()
}

#[test]
fn commandstats_count_calls_times_and_failures() {
    let mut node = Node::memory();
    let client = node.connect();
    node.say(client, "SET text x");
    // Two writes, which take 7 ms and 3 ms from arrival to reply.
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
    // An invalid request does not count as a call of the previous command.
    node.world.command_bytes_max = 100;
    node.say(client, "SET k v");
    let long = "x".repeat(1000);
    assert!(node.ask(client, &["SET", "k", &long]).starts_with("-TOOBIG"));
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

#[test]
fn info_counts_finds_errors_and_bytes() {
    let mut node = Node::memory();
    let client = node.connect();
    node.say(client, "CONFIG RESETSTAT");
    for words in ["SET k v", "GET k", "GET absent", "HGETALL absent", "EXISTS absent", "TTL k"] {
        node.say(client, words);
    }
    assert!(node.say(client, "INCR k").starts_with("-ERR"));
    assert!(node.say(client, "LPUSH k v").starts_with("-WRONGTYPE"));
    assert!(node.say(client, "NONSENSE").starts_with("-ERR"));
    let info = node.say(client, "INFO");
    for line in [
        "keyspace_hits:2",
        "keyspace_misses:3",
        "total_error_replies:3",
        "errorstat_ERR:count=2",
        "errorstat_WRONGTYPE:count=1",
        "total_commands_processed:10",
        "used_cpu_user:0.000000",
        "loading:0",
    ] {
        assert!(info.contains(&format!("|{line}|")), "{line} is not in {info}");
    }
    let received = request(&["SET", "k", "v"]).len();
    node.say(client, "CONFIG RESETSTAT");
    node.ask(client, &["SET", "k", "v"]);
    let bytes = |node: &mut Node, line: &str| -> usize {
        let info = node.say(client, "INFO stats");
        let (_, rest) = info.split_once(line).expect("a line of INFO");
        rest.split('|').next().unwrap().parse().unwrap()
    };
    // CONFIG RESETSTAT resets the counters before its reply is sent.
    assert_eq!(bytes(&mut node, "total_net_output_bytes:"), "+OK\r\n+OK\r\n".len());
    assert!(bytes(&mut node, "total_net_input_bytes:") >= received);
    assert!(!node.say(client, "INFO errorstats").contains("errorstat_"));
}

/// Executes a request whose reply takes `ms` milliseconds.
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
    // Of the first slow command, only the name is recorded.
    slowly(&mut node, client, &["SET", "k", "v"], 10);
    slowly(&mut node, client, &["GET", "k"], 12);
    slowly(&mut node, client, &["GET", "k"], 3);
    assert_eq!(
        node.say(client, "SLOWLOG GET"),
        "*2|*6|:1|:1000|:12000|*3|$3|GET|$1|k|$39|(0 ms until sent, 12 ms until answered)|$13|10.0.0.1:5000|$3|joe|\
         *6|:0|:1000|:10000|*3|$3|set|$62|(arguments not kept: no command was slow in the minute before)|\
         $39|(0 ms until sent, 10 ms until answered)|$13|10.0.0.1:5000|$3|joe|"
    );
    let one = node.say(client, "SLOWLOG GET 1");
    assert!(one.starts_with("*1|*6|:1|"), "{one}");
    for (words, expected) in [
        ("SLOWLOG LEN", ":2|"),
        ("SLOWLOG GET 0", "*0|"),
        ("SLOWLOG GET -2", "-ERR count should be greater than or equal to -1|"),
        ("SLOWLOG GET x", "-ERR value is not an integer or out of range|"),
        ("SLOWLOG GET 1 2", "-ERR wrong number of arguments for 'slowlog|get' command|"),
        ("SLOWLOG NOW", "-ERR unknown subcommand 'NOW'. Try SLOWLOG HELP.|"),
        ("SLOWLOG RESET", "+OK|"),
        ("SLOWLOG LEN", ":0|"),
    ] {
        assert_eq!(node.say(client, words), expected, "{words}");
    }
    // After a minute, arguments are no longer recorded. The ids continue.
    node.world.wall_ms += 60_000;
    slowly(&mut node, client, &["SET", "k", "w"], 10);
    let one = node.say(client, "SLOWLOG GET -1");
    assert!(one.starts_with("*1|*6|:2|") && one.contains("not kept"), "{one}");
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
    assert!(told.contains("|*33|$4|MGET|"), "{told}");
    assert!(told.contains(&format!("{}... (1 more bytes)|", "x".repeat(128))), "{told}");
    assert!(told.contains("|$22|... (2 more arguments)|"), "{told}");
    let idle = node.front.held_bytes();
    for _ in 0..300 {
        node.feed(client, &request(&["SET", "k", &long]));
    }
    node.world.wall_ms += 20;
    node.settle();
    node.take(client);
    assert_eq!(node.say(client, "SLOWLOG LEN"), ":128|");
    let all = node.say(client, "SLOWLOG GET -1");
    assert!(all.starts_with("*128|*6|:301|"), "{}", &all[..40]);
    assert!(node.front.held_bytes() < idle + 64 * 1024, "and given back");
}

/// When memory is short, the client that uses most of it is disconnected. Arguments recorded for
/// the slow log do not count, because with them a client could become the largest after a single
/// command.
#[test]
fn noting_arguments_makes_no_client_heavier() {
    let mut node = Node::memory();
    let client = node.connect();
    let open = |node: &mut Node| {
        let client = node.connect();
        node.feed(client, &request(&["SET", "key", "value"]));
        (client, node.front.held_bytes_of(client))
    };
    let (_, before) = open(&mut node);
    slowly(&mut node, client, &["SET", "k", "v"], 10);
    let (last, after) = open(&mut node);
    assert_eq!(after, before);
    // The recorded arguments of a disconnected client are dropped. The next client in its slot must
    // not inherit them.
    node.front.handle_closed(last, &mut node.world);
    node.world.asked.clear();
    assert!(!format!("{:?}", node.front).contains("[118, 97, 108, 117, 101]"));
}

#[test]
fn latency_has_spikes_and_their_parts() {
    let mut node = Node::memory();
    let client = node.connect();
    assert_eq!(node.say(client, "LATENCY LATEST"), "*0|");
    slowly(&mut node, client, &["SET", "k", "v"], 30);
    slowly(&mut node, client, &["SET", "k", "v"], 20);
    node.world.wall_ms += 1000;
    // WATCH waits for the preceding write.
    node.feed(client, &request(&["SET", "k", "v"]));
    node.feed(client, &request(&["WATCH", "k"]));
    node.world.wall_ms += 40;
    node.execute(0);
    node.tell(0);
    node.world.wall_ms += 15;
    node.settle();
    node.take(client);
    for (words, expected) in [
        (
            "LATENCY LATEST",
            "*3|*4|$7|command|:1001|:55|:55|*4|$14|command-queued|:1001|:40|:40|\
             *4|$12|command-sent|:1001|:40|:40|",
        ),
        ("LATENCY HISTORY Command", "*2|*2|:1000|:30|*2|:1001|:55|"),
        ("LATENCY HISTORY fork", "*0|"),
        ("LATENCY RESET command fork", ":1|"),
        ("LATENCY HISTORY command", "*0|"),
        ("LATENCY GRAPH command", "-ERR LATENCY GRAPH is not supported: use LATENCY HISTORY|"),
        ("LATENCY NOW", "-ERR unknown subcommand 'NOW'. Try LATENCY HELP.|"),
    ] {
        assert_eq!(node.say(client, words), expected, "{words}");
    }
    let report = node.say(client, "LATENCY DOCTOR");
    assert!(report.contains("command-queued ("), "{report}");
    assert!(node.say(client, "LATENCY HISTOGRAM").starts_with("-ERR LATENCY HISTOGRAM is not"));
    assert_eq!(node.say(client, "LATENCY RESET"), ":2|");
    assert!(node.say(client, "LATENCY DOCTOR").contains("No command took 10 ms"));
}

/// Credentials never appear in the slow log.
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
    assert!(told.starts_with("*2|") && !told.contains("hunter2"), "{told}");
}
