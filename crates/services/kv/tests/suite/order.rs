//! Order and limits on one connection: replies in order, reads after writes, bounded queues.

use quorate_core::node_id::NodeId;
use quorate_replica::front::{ConnectionId, Failure, Front as _};

use crate::common::{Asked, Node, Random, Told, request};

fn write_count(node: &Node) -> usize {
    node.world.asked.iter().filter(|asked| matches!(asked, Asked::Write(..))).count()
}

/// Returns the front end's pending requests, as one word each.
fn asked(node: &Node) -> String {
    let word = |asked: &Asked| match asked {
        Asked::Write(..) => "write",
        Asked::Register(_) => "register",
        Asked::Read(_) => "read",
        Asked::ReadWithin(..) => "within",
        Asked::ReadInOrder(_) => "between",
    };
    let words: Vec<&str> = node.world.asked.iter().map(word).collect();
    words.join(" ")
}

fn read_count(node: &Node) -> usize {
    node.world.asked.iter().filter(|asked| matches!(asked, Asked::Read(_))).count()
}

#[test]
fn writes_go_out_together_and_replies_come_back_in_order() {
    let mut node = Node::memory();
    let client = node.connect();
    node.feed(client, b"INCR n\r\nINCR n\r\nPING\r\nINCR n\r\nECHO x\r\n");
    assert_eq!(write_count(&node), 3);
    (0..3).for_each(|_| node.execute(0));
    // The answers arrive in reverse order.
    node.tell(2);
    node.tell(1);
    assert_eq!(node.take(client), "");
    node.tell(0);
    assert_eq!(node.take(client), ":1|:2|+PONG|:3|$1|x|");
    assert_eq!(node.front.open_requests(), 0);
}

#[test]
fn reads_share_one_confirmation_if_no_write_is_near() {
    let mut node = Node::memory();
    let client = node.connect();
    node.feed(client, b"GET a\r\nGET b\r\nPING\r\nGET c\r\n");
    assert_eq!(asked(&node), "read");
    node.settle();
    assert_eq!(node.take(client), "$-1|$-1|+PONG|$-1|");
}

/// [read-4] If the confirmation of a run expires half-way, the unanswered reads are requested again
/// and answered in order.
#[test]
fn run_whose_ground_is_gone_asks_again_for_what_is_left() {
    for left in 0..3 {
        let mut node = Node::memory();
        let client = node.connect();
        node.say(client, "MSET a 1 b 2 c 3");
        node.feed(client, b"GET a\r\nGET b\r\nPING\r\nGET c\r\n");
        node.world.overtaken = Some(left);
        node.execute(0);
        node.tell(0);
        assert_eq!(asked(&node), "read");
        node.feed(client, b"SET a 9\r\n");
        assert_eq!(asked(&node), "read", "a write waits for reads before it");
        node.settle();
        assert_eq!(node.take(client), "$1|1|$1|2|+PONG|$1|3|+OK|");
        assert_eq!(node.front.open_requests(), 0);
    }
}

/// [read-6] QUORATE READ sets the freshness of a connection's reads.
#[test]
fn connection_chooses_how_fresh_its_reads_are() {
    let mut node = Node::memory();
    let client = node.connect();
    assert_eq!(node.say(client, "QUORATE READ"), "+linearizable|");
    assert_eq!(node.say(client, "QUORATE READ Bounded 250"), "+OK|");
    assert_eq!(node.say(client, "QUORATE READ"), "+bounded 250|");
    node.feed(client, b"GET a\r\nQUORATE READ bounded 40\r\nGET b\r\n");
    assert_eq!(asked(&node), "within");
    let Asked::ReadWithin(_, most_ms) = node.world.asked[0] else { panic!("just seen") };
    assert_eq!(most_ms, 40, "the stricter of the run");
    node.settle();
    node.take(client);
    // One linearizable read makes the whole run linearizable.
    node.feed(client, b"GET a\r\nQUORATE READ linearizable\r\nGET b\r\n");
    assert_eq!(asked(&node), "read");
    node.settle();
    assert_eq!(node.take(client), "$-1|+OK|$-1|");
    node.say(client, "QUORATE READ bounded 40");
    node.feed(client, b"WATCH a\r\n");
    assert_eq!(asked(&node), "read");
    node.settle();
    node.take(client);
    assert_eq!(node.say(client, "QUORATE READ stale"), "+OK|");
    assert_eq!(node.say(client, "GET a"), "$-1|");
    assert_eq!(node.say(client, "READWRITE"), "+OK|");
    assert_eq!(node.say(client, "QUORATE READ"), "+linearizable|");
    assert_eq!(node.say(client, "READONLY"), "+OK|");
    assert_eq!(node.say(client, "QUORATE READ"), "+stale|");
    node.say(client, "RESET");
    assert_eq!(node.say(client, "QUORATE READ"), "+linearizable|");
    for (wrong, word) in [
        ("QUORATE READ bounded", "-ERR a bound is"),
        ("QUORATE READ bounded 0", "-ERR a bound is"),
        ("QUORATE READ bounded 3600001", "-ERR a bound is"),
        ("QUORATE READ bounded x", "-ERR a bound is"),
        ("QUORATE READ stale 5", "-ERR reads are"),
        ("QUORATE READ sometimes", "-ERR reads are"),
    ] {
        let reply = node.say(client, wrong);
        assert!(reply.starts_with(word), "{wrong}: {reply}");
    }
}

/// [class-2] QUORATE CLASS sets when later writes of a pipeline are answered, however they are
/// sent: at once, after a read, in a session, or as a transaction.
#[test]
fn connection_chooses_when_its_writes_are_answered() {
    let mut node = Node::memory();
    node.world.volatile = true;
    let client = node.connect();
    assert_eq!(node.say(client, "QUORATE CLASS"), "+volatile|");
    node.say(client, "SET a 1");
    assert!(node.world.lasting.is_empty());
    assert_eq!(node.say(client, "QUORATE CLASS durable"), "+OK|");
    assert_eq!(node.say(client, "QUORATE CLASS"), "+durable|");
    let written = |node: &Node| node.world.lasting.len();
    node.say(client, "SET a 2");
    assert_eq!(written(&node), 1);
    node.say(client, "MULTI");
    node.say(client, "SET a 3");
    node.say(client, "EXEC");
    assert_eq!(written(&node), 2);
    node.say(client, "QUORATE SESSION");
    node.say(client, "QUORATE SEQ 1 SET a 4");
    assert_eq!(written(&node), 3);
    // A write that waits for a read has the class in effect when it arrived.
    node.feed(client, b"GET a\r\nSET a 5\r\nQUORATE CLASS group\r\nSET a 6\r\n");
    node.settle();
    node.take(client);
    assert_eq!(written(&node), 4);
    assert_eq!(node.say(client, "GET a"), "$1|6|");

    // A blocked client is served in the class of the cluster.
    node.say(client, "QUORATE CLASS durable");
    let refused = node.say(client, "BLPOP list 1");
    assert!(refused.contains("QUORATE CLASS group"), "{refused}");
    node.world.volatile = false;
    assert_eq!(node.say(client, "RPUSH list x"), ":1|");
    let popped = node.say(client, "BLPOP list 1");
    assert!(popped.contains("x"), "{popped}");
    node.say(client, "RESET");
    assert_eq!(node.say(client, "QUORATE CLASS"), "+durable|");
    node.world.volatile = true;
    assert_eq!(node.say(client, "QUORATE CLASS"), "+volatile|");
    assert!(node.say(client, "QUORATE CLASS x").starts_with("-ERR"));
    // [less-6] The effect of a command is unknown until it is decided on disk.
    node.world.volatile = false;
    let refused = node.say(client, "QUORATE CLASS volatile");
    assert!(refused.starts_with("-ERR the cluster is durable"), "{refused}");
    assert_eq!(node.say(client, "QUORATE CLASS"), "+durable|");
}

#[test]
fn reads_among_writes_go_out_with_them_and_run_between_them() {
    let script = b"GET a\r\nSET a 1\r\nGET a\r\nGET b\r\nSET a 2\r\nINCR a\r\nGET a\r\n";
    for readonly in [false, true] {
        let mut node = Node::memory();
        let client = node.connect();
        if readonly {
            assert_eq!(node.say(client, "READONLY"), "+OK|");
        }
        node.feed(client, script);
        // A READONLY connection answers the first read at once.
        let first = if readonly { "" } else { "between " };
        let expected = "write between between write write between";
        assert_eq!(asked(&node), format!("{first}{expected}"));
        let all = node.world.asked.len();
        (0..all).for_each(|_| node.execute(0));
        (0..all).rev().for_each(|at| node.tell(at));
        assert_eq!(node.take(client), "$-1|+OK|$1|1|$-1|+OK|:3|$1|3|");
        assert_eq!(node.front.open_requests(), 0);
    }
}

/// A series of reads after a single write stops using the log once the write is complete.
#[test]
fn reads_behind_a_write_share_confirmations_again_once_it_is_done() {
    let mut node = Node::memory();
    let client = node.connect();
    node.feed(client, b"SET a 1\r\nGET a\r\n");
    assert_eq!(asked(&node), "write between");
    node.execute(0);
    node.tell(0);
    // The write is complete, the read is not. The next reads wait, then share a confirmation.
    node.feed(client, b"GET a\r\nGET b\r\n");
    assert_eq!(asked(&node), "between");
    node.execute(0);
    node.tell(0);
    assert_eq!(asked(&node), "read");
    node.settle();
    assert_eq!(node.take(client), "+OK|$1|1|$1|1|$-1|");
}

/// A write waits for the run before it, but later reads do not wait for the write.
#[test]
fn writes_wait_for_runs_that_were_asked_for() {
    let mut node = Node::memory();
    let client = node.connect();
    node.feed(client, b"GET a\r\n");
    node.feed(client, b"SET a 1\r\nGET a\r\nSET a 2\r\n");
    assert_eq!(asked(&node), "read");
    node.execute(0);
    node.tell(0);
    assert_eq!(asked(&node), "write between write");
    node.settle();
    assert_eq!(node.take(client), "$-1|+OK|$1|1|+OK|");
}

/// A command is sent alone if its reply contains a position, or if later commands depend on it.
#[test]
fn watch_and_digest_wait_for_the_writes_before_them() {
    let mut node = Node::memory();
    let client = node.connect();
    node.feed(client, b"SET a 1\r\nGET a\r\nQUORATE DIGEST\r\nSET a 2\r\n");
    assert_eq!(asked(&node), "write between");
    node.execute(0);
    node.execute(0);
    node.tell(0);
    assert_eq!(asked(&node), "");
    node.tell(0);
    assert_eq!(asked(&node), "read");
    node.settle();
    let replies = node.take(client);
    assert!(replies.starts_with("+OK|$1|1|+2 ") && replies.ends_with("|+OK|"), "{replies}");
    node.feed(client, b"SET a 1\r\nWATCH a\r\nMULTI\r\nGET a\r\nEXEC\r\nGET a\r\n");
    assert_eq!(asked(&node), "write");
    node.execute(0);
    node.tell(0);
    assert_eq!(asked(&node), "read");
    node.execute(0);
    node.tell(0);
    assert_eq!(asked(&node), "write between");
    node.settle();
    assert_eq!(node.take(client), "+OK|+OK|+OK|+QUEUED|*1|$1|1|$1|1|");
}

#[test]
fn a_read_does_not_join_a_confirmation_that_began_before_it_arrived() {
    let mut node = Node::memory();
    let (one, other) = (node.connect(), node.connect());
    node.feed(one, b"GET a\r\n");
    // The read was confirmed before the other client's write, but the confirmation arrives late.
    node.execute(0);
    node.feed(other, b"SET a 1\r\n");
    node.execute(0);
    node.tell(1);
    assert_eq!(node.take(other), "+OK|");
    node.feed(one, b"GET a\r\n");
    assert_eq!(read_count(&node), 1, "it asked for its own");
    node.settle();
    assert!(node.take(one).ends_with("$1|1|"));
}

#[test]
fn stale_reads_ask_nobody_but_see_their_own_writes() {
    let mut node = Node::memory();
    let client = node.connect();
    node.feed(client, b"READONLY\r\nGET a\r\n");
    assert_eq!(node.take(client), "+OK|$-1|");
    node.feed(client, b"SET a 1\r\nGET a\r\n");
    assert_eq!(asked(&node), "write between");
    node.execute(0);
    node.execute(0);
    assert_eq!(node.take(client), "");
    node.tell(0);
    assert_eq!(node.take(client), "+OK|$1|1|");
    node.tell(0);
    node.feed(client, b"WATCH a\r\n");
    assert_eq!(read_count(&node), 1, "a watch is never stale");
    node.settle();
    assert_eq!(node.take(client), "+OK|");
    node.feed(client, b"READWRITE\r\nGET a\r\n");
    assert_eq!(read_count(&node), 1);
    node.settle();
    assert_eq!(node.take(client), "+OK|$1|1|");
}

/// A node without a quorum answers stale reads, even after failed writes, except before a write
/// that was sent and may have been executed.
#[test]
fn stale_reads_behind_failed_writes_are_answered() {
    let mut node = Node::memory();
    let client = node.connect();
    node.say(client, "SET a 1");
    node.say(client, "READONLY");
    node.feed(client, b"SET a 2\r\nGET a\r\nSET a 3\r\nGET a\r\nREADWRITE\r\nGET a\r\n");
    fail_all(&mut node, Failure::NoQuorum);
    let reply = node.take(client);
    let replies: Vec<&str> = reply.split_terminator('|').collect();
    let failed = |reply: &str| reply.starts_with("-NOQUORUM");
    assert!(replies[..3].iter().all(|reply| failed(reply)), "{replies:?}");
    assert_eq!(replies[3..6], ["$1", "1", "+OK"]);
    assert!(failed(replies[6]) && replies.len() == 7, "{replies:?}");
}

/// A connection gets the same replies from a slow replica as from an instant one.
#[test]
fn a_connection_cannot_tell_a_slow_replica_from_an_instant_one() {
    for seed in 0..150 {
        let mut random = Random::new(seed);
        let script: Vec<String> = (0..60).map(|_| any_command(&mut random)).collect();
        let mut instant = Node::memory();
        let client = instant.connect();
        let expected: String = script.iter().map(|line| instant.say(client, line)).collect();

        let mut slow = Node::memory();
        let client = slow.connect();
        let bytes: Vec<u8> = script
            .iter()
            .flat_map(|line| request(&line.split_whitespace().collect::<Vec<_>>()))
            .collect();
        let mut rest = &*bytes;
        while !rest.is_empty() {
            let (piece, tail) = rest.split_at((1 + random.below(120)).min(rest.len()));
            rest = tail;
            slow.feed(client, piece);
            for _ in 0..random.below(6) {
                slow.step_randomly(&mut random);
            }
        }
        slow.settle_randomly(&mut random);
        assert_eq!(slow.take(client), expected, "seed {seed}: {script:#?}");
        assert_eq!(slow.front.open_requests(), 0);
        assert_eq!(slow.world.service.digest(), instant.world.service.digest());
    }
}

fn any_command(random: &mut Random) -> String {
    let key = *random.pick(&["a", "b", "c"]);
    match random.below(24) {
        0..4 => format!("SET {key} {}", random.below(10)),
        4..8 => format!("GET {key}"),
        8..10 => format!("INCR {key}"),
        10 => format!("SET {key} 1 GET"),
        11 => format!("DEL {key} a"),
        12 => "PING".into(),
        13 => format!("GETDEL {key}"),
        14 => "DBSIZE".into(),
        15 => "MGET a b c".into(),
        16 => format!("WATCH {key}"),
        17 => "UNWATCH".into(),
        18 => "MULTI".into(),
        19 => "EXEC".into(),
        20 => "DISCARD".into(),
        21 => (*random.pick(&["HELLO 3", "HELLO 2", "READONLY", "READWRITE"])).into(),
        22 => (*random.pick(&["NOSUCH", "GET", "INCRBY a x", "SCAN 0 COUNT 100"])).into(),
        _ => format!("APPEND {key} 1"),
    }
}

#[test]
fn every_failure_has_its_word() {
    for (failure, word) in [
        (Failure::Busy, "-BUSY "),
        (Failure::NoQuorum, "-NOQUORUM not executed"),
        (Failure::TooBig, "-TOOBIG "),
        (Failure::Stopping, "-NOQUORUM not executed: this node is stopping"),
        (
            Failure::Removed,
            "-NOQUORUM not executed: this node was removed from the cluster; connect",
        ),
        (Failure::Voteless, "-NOQUORUM not executed: this node cannot vote"),
        (Failure::DiskFull(NodeId(2)), "-DISKFULL not executed: the disk of node 2 is full"),
        (Failure::Diverged, "-DIVERGED not executed"),
        (Failure::Unknown, "-UNKNOWN may have been executed"),
        (Failure::NoSession, "-NOSESSION "),
        (Failure::ReplyForgotten, "-REPLYFORGOTTEN "),
        (Failure::SessionFull, "-SESSIONFULL "),
        (Failure::Stale, "-STALE not executed"),
        (Failure::Level, "-LEVEL not executed"),
        (Failure::NotLasting, "-NOTDURABLE executed"),
    ] {
        let mut node = Node::memory();
        let client = node.connect();
        // Requests refused at once.
        node.world.refuse = Some(failure);
        for command in ["SET a 1", "GET a", "QUORATE SESSION"] {
            let reply = node.say(client, command);
            assert!(reply.starts_with(word), "{command}: {reply}");
        }
        node.world.refuse = None;
        // Requests refused later.
        node.feed(client, b"SET a 1\r\nSET a 2\r\nGET a\r\nGET b\r\n");
        fail_all(&mut node, failure);
        node.feed(client, b"QUORATE SESSION\r\n");
        fail_all(&mut node, failure);
        let reply = node.take(client);
        let replies: Vec<&str> = reply.split_terminator('|').collect();
        assert_eq!(replies.len(), 5);
        assert!(replies.iter().all(|reply| reply.starts_with(word)), "{replies:?}");
        // The connection remains usable.
        assert_eq!(node.say(client, "SET a 3"), "+OK|");
        assert_eq!(node.say(client, "GET a"), "$1|3|");
    }
}

fn fail_all(node: &mut Node, failure: Failure) {
    while let Some(asked) = node.world.asked.pop_front() {
        let (Asked::Write(tag, ..)
        | Asked::Register(tag)
        | Asked::Read(tag)
        | Asked::ReadWithin(tag, _)
        | Asked::ReadInOrder(tag)) = asked;
        node.world.told.push(Told::Failed(tag, failure));
        node.tell(0);
    }
}

#[test]
fn a_client_that_is_gone_is_forgotten() {
    let mut node = Node::memory();
    let (gone, stays) = (node.connect(), node.connect());
    node.feed(gone, b"SET a 1\r\nSET b 2\r\n");
    let reader = node.connect();
    node.feed(reader, b"GET a\r\n");
    assert_eq!(node.front.open_requests(), 3);
    node.front.handle_closed(gone, &mut node.world);
    node.front.handle_closed(reader, &mut node.world);
    assert_eq!((node.front.open_requests(), node.front.connections()), (0, 1));
    assert_eq!(node.world.forgotten.len(), 3);
    node.input.clear();
    node.input.insert(stays, Vec::new());
    node.settle();
    assert!(node.front.output(gone).is_empty());
    assert_eq!(node.front.receive_bytes(gone, b"PING\r\n", &mut node.world), 6);
    assert!(!node.front.accepts_input(gone));
    assert_eq!(node.say(stays, "GET b"), "$1|2|", "executed all the same");
}

#[test]
fn quit_waits_for_what_was_asked_before() {
    let mut node = Node::memory();
    let client = node.connect();
    node.feed(client, b"SET a 1\r\nQUIT\r\nSET a 2\r\n");
    assert!(!node.front.should_close(client));
    node.settle();
    assert_eq!(node.take(client), "+OK|+OK|");
    assert!(node.front.should_close(client));
    assert_eq!(node.input[&client], b"", "what follows is thrown away");
}

/// Requests from a browser (sent by a web page) or from a TLS client are not executed.
#[test]
fn other_protocols_are_closed_before_anything_is_executed() {
    let body = "\r\nSET a 1\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n";
    let requests = [
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n",
        "post\r\n",
        "*2\r\n$4\r\nPOST\r\n$1\r\n/\r\n",
        "GET / HTTP/1.1\r\n",
        "PUT /a%20b HTTP/1.1\r\n",
        "OPTIONS * HTTP/1.1\r\n",
        "PROPFIND / HTTP/1.0\r\n",
        "SET a HTTP/1.1\r\n",
        "FLUSHALL /  HTTP/1.1\r\n",
        "NEW METHOD / HTTP/1.1\r\nUser-Agent: y\r\nhOsT: x\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\u{fc}\x03\x03",
    ];
    for request in requests {
        for piece in [1, 7, 1000] {
            let mut node = Node::memory();
            let client = node.connect();
            let bytes: Vec<u8> = request.chars().map(|c| u8::try_from(c).unwrap()).collect();
            for piece in [&bytes, body.as_bytes()].concat().chunks(piece) {
                node.feed(client, piece);
            }
            node.settle();
            assert!(node.front.should_close(client), "{request:?}");
            let reply = node.take(client);
            let last = reply.split_terminator('|').next_back().unwrap();
            assert!(last.starts_with("-ERR Protocol error: "), "{request:?}: {reply}");
            let other = node.connect();
            assert_eq!(node.say(other, "GET a"), "$-1|", "{request:?}");
        }
    }
    // As arguments, the words of HTTP are data.
    let mut node = Node::memory();
    let client = node.connect();
    assert_eq!(node.say(client, "SET post HTTP/1.1"), "+OK|");
    assert_eq!(node.say(client, "EXISTS post host:"), ":1|");
    assert_eq!(node.say(client, "\x16\x16"), "-ERR unknown command '??', see docs/commands.md|");
}

#[test]
fn outstanding_requests_are_bounded_and_go_on_when_there_is_room() {
    let mut node = Node::memory();
    let client = node.connect();
    let many = b"INCR n\r\n".repeat(5000);
    node.feed(client, &many);
    assert_eq!(write_count(&node), 1024);
    assert!(!node.front.accepts_input(client));
    assert!(!node.input[&client].is_empty());
    node.settle();
    assert_eq!(node.take(client).split_terminator('|').count(), 5000);
    assert_eq!(node.say(client, "GET n"), "$4|5000|");
}

#[test]
fn outstanding_bytes_are_bounded() {
    let mut node = Node::memory();
    let client = node.connect();
    let value = "x".repeat(100_000);
    let many = request(&["SET", "a", &value]).repeat(50);
    node.feed(client, &many);
    assert_eq!(write_count(&node), 11);
    node.settle();
    assert_eq!(node.take(client), "+OK|".repeat(50));
}

/// Limits the number of writes in flight if each reply may be as large as a value. Only small
/// replies raise the limit.
#[test]
fn outstanding_writes_that_return_values_are_bounded_by_what_they_returned() {
    let mut node = Node::memory();
    let client = node.connect();
    let elements = vec!["x"; 100];
    let pushes = [&["RPUSH", "small"], elements.as_slice()].concat();
    node.ask(client, &pushes);
    let value = "x".repeat(100_000);
    node.ask(client, &["SET", "large", &value]);

    node.feed(client, &b"LPOP small\r\n".repeat(100));
    assert_eq!(write_count(&node), 8);
    node.settle();
    assert_eq!(node.take(client), "$1|x|".repeat(100));

    node.feed(client, &[b"GETDEL large\r\n".as_slice(), &b"LPOP small\r\n".repeat(99)].concat());
    assert_eq!(write_count(&node), 32, "small replies earned room, up to a bound");
    node.settle();
    node.take(client);
    node.ask(client, &["SET", "large", &value]);
    node.ask(client, &["GETDEL", "large"]);
    node.feed(client, &b"LPOP small\r\n".repeat(100));
    assert_eq!(write_count(&node), 8, "one large reply takes it away");
}

#[test]
fn replies_that_nobody_reads_stop_the_input() {
    let mut node = Node::memory();
    let client = node.connect();
    let value = "x".repeat(600_000);
    node.ask(client, &["SET", "a", &value]);
    // The reactor cannot send, so `output` does not shrink.
    let gets = b"GET a\r\n".repeat(3);
    assert_eq!(node.front.receive_bytes(client, &gets, &mut node.world), gets.len());
    node.execute(0);
    let Told::Readable(tag) = node.world.told.remove(0) else { panic!("a read") };
    let readable = quorate_replica::front::Completion::Readable(tag);
    node.front.handle_completion(readable, &mut node.world);
    assert!(!node.front.accepts_input(client));
    assert_eq!(node.front.receive_bytes(client, b"PING\r\n", &mut node.world), 0);
    node.front.take_output(client);
    assert!(node.front.accepts_input(client));
}

/// The reactor is notified when capacity becomes available without output.
#[test]
fn a_connection_with_room_again_is_reported() {
    let mut node = Node::memory();
    let client = node.connect();
    node.feed(client, &b"GETSET a 1\r\n".repeat(9));
    assert!(!node.front.accepts_input(client));
    assert_eq!(node.front.next_dirty(), None);
    node.execute(0);
    node.execute(0);
    let Told::Written(tag, reply) = node.world.told.remove(1) else { panic!("a write") };
    let written = quorate_replica::front::Completion::Written(tag, &reply);
    node.front.handle_completion(written, &mut node.world);
    assert_eq!(node.front.next_dirty(), Some(client));
    assert!(node.front.output(client).is_empty() && node.front.accepts_input(client));
}

#[test]
fn very_many_replies_that_nobody_reads_become_errors() {
    let mut node = Node::memory();
    let client = node.connect();
    let value = "x".repeat(7 << 20);
    node.ask(client, &["SET", "a", &value]);
    node.feed(client, &b"GET a\r\n".repeat(40));
    node.settle();
    let reply = node.take(client);
    assert!(reply.len() < 80 << 20);
    assert_eq!(reply.matches("-BUSY not executed").count(), 30);
}

/// Reads of all connections share a memory limit. Above it, reads are refused, even between writes.
#[test]
fn replies_of_all_connections_are_bounded_together() {
    let mut node = Node::with_client_bytes(3 << 20);
    let writer = node.connect();
    let value = "x".repeat(100_000);
    node.ask(writer, &["SET", "a", &value]);
    node.take(writer);
    let clients: Vec<_> = (0..8).map(|_| node.connect()).collect();
    let full = "-BUSY not executed: replies and requests of all clients fill";
    for script in ["GET a\r\n".repeat(9), "SET b 1\r\nGET a\r\n".repeat(9)] {
        let mut refused = 0;
        // The reactor cannot send, so the outputs do not shrink.
        for &client in &clients {
            node.front.receive_bytes(client, script.as_bytes(), &mut node.world);
        }
        while !node.world.asked.is_empty() || !node.world.told.is_empty() {
            node.execute(0);
            while !node.world.told.is_empty() {
                node.tell_silently(0);
            }
        }
        let held = node.front.held_bytes();
        assert!((2 << 20..5 << 20).contains(&held), "{held}");
        let each = clients.iter().map(|client| node.front.held_bytes_of(*client));
        assert!(held - each.sum::<usize>() < 10_000, "the others hold nearly nothing");
        for &client in &clients {
            let output = node.front.take_output(client);
            refused += String::from_utf8(output).unwrap().matches(full).count();
        }
        assert!((40..60).contains(&refused), "{refused} refused");
        let held = node.front.held_bytes();
        assert!(held < 200_000, "{held} are held for nothing");
    }
    assert!(node.say(writer, "GET a").len() > 100_000);
    for client in clients {
        node.front.handle_closed(client, &mut node.world);
    }
    node.front.handle_closed(writer, &mut node.world);
    assert_eq!(node.front.held_bytes(), 0);
}

/// Commands queued for EXEC count towards the memory limit. A refusal aborts the transaction and
/// frees its memory.
#[test]
fn transactions_that_are_queued_are_bounded_together() {
    let mut node = Node::with_client_bytes(8 << 20);
    let value = "x".repeat(1 << 20);
    let clients: Vec<_> = (0..6).map(|_| node.connect()).collect();
    let mut full = Vec::new();
    for &client in &clients {
        assert_eq!(node.say(client, "MULTI"), "+OK|");
        for _ in 0..2 {
            let reply = node.ask(client, &["SET", "a", &value]);
            if reply.starts_with("-BUSY not executed") {
                full.push(client);
                break;
            }
            assert_eq!(reply, "+QUEUED|");
        }
        assert!(node.front.held_bytes() < 10 << 20);
    }
    assert!(full.len() >= 2 && !full.contains(&clients[0]), "{full:?}");
    for &client in &clients {
        let expected = if full.contains(&client) {
            "-EXECABORT Transaction discarded because of previous errors.|"
        } else {
            "*2|+OK|+OK|"
        };
        assert_eq!(node.say(client, "EXEC"), expected);
    }
    let held = node.front.held_bytes();
    assert!(held < 100_000, "{held} are held for nothing");
}

/// An idle connection uses little memory, whatever it did before.
#[test]
fn a_connection_at_rest_holds_little() {
    let mut node = Node::memory();
    let client = node.connect();
    let value = "x".repeat(1 << 20);
    node.ask(client, &["SET", "a", &value]);
    node.feed(client, &b"GET a\r\nINCR n\r\n".repeat(20));
    node.settle();
    let keys: Vec<String> = (0..100_000).map(|n| n.to_string()).collect();
    let words: Vec<&str> =
        std::iter::once("EXISTS").chain(keys.iter().map(String::as_str)).collect();
    node.ask(client, &words);
    node.feed(client, &b"GETRANGE a 0 9\r\n".repeat(3000));
    node.settle();
    for _ in 0..3000 {
        node.feed(client, b"WATCH a b c\r\nUNWATCH\r\n");
        node.settle();
    }
    node.take(client);
    let held = node.front.held_bytes_of(client);
    assert!(held < 40_000, "{held}");
}

#[test]
fn large_replies_of_writes_are_few_at_a_time() {
    let mut node = Node::memory();
    let client = node.connect();
    node.feed(client, &b"GETSET a 1\r\n".repeat(100));
    assert_eq!(write_count(&node), 8);
    node.settle();
    assert_eq!(node.take(client).matches('|').count(), 199);
}

/// In every interleaving of two connections, a write acknowledged to one is visible to the other.
#[test]
fn two_connections_see_what_was_acknowledged_to_the_other() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let mut node = Node::memory();
        let clients: [ConnectionId; 2] = [node.connect(), node.connect()];
        let mut acknowledged = 0;
        for round in 1..30 {
            node.feed(clients[0], format!("SET a {round}\r\n").as_bytes());
            let mut floor = None;
            while floor.is_none() {
                if random.below(3) == 0 {
                    floor = Some(acknowledged);
                    node.feed(clients[1], b"GET a\r\n");
                }
                node.step_randomly(&mut random);
                acknowledged += node.take(clients[0]).matches("+OK").count();
            }
            node.settle_randomly(&mut random);
            acknowledged += node.take(clients[0]).matches("+OK").count();
            let reply = node.take(clients[1]);
            let value = reply.split('|').nth(1).and_then(|text| text.parse::<usize>().ok());
            assert!(value.unwrap_or(0) >= floor.unwrap(), "seed {seed} round {round}: {reply}");
        }
    }
}
