//! MULTI, EXEC and WATCH.

use crate::common::{Node, check, on_both_stores};

#[test]
fn transactions() {
    check(
        "
        MULTI => +OK|
        SET a 1 => +QUEUED|
        INCR a => +QUEUED|
        GET a => +QUEUED|
        PING => +QUEUED|
        ECHO x => +QUEUED|
        TTL a => +QUEUED|
        EXEC => *6|+OK|:2|$1|2|+PONG|$1|x|:-1|
        EXEC => -ERR EXEC without MULTI|
        DISCARD => -ERR DISCARD without MULTI|
        MULTI => +OK|
        EXEC => *0|
        MULTI => +OK|
        SET a 9 => +QUEUED|
        DISCARD => +OK|
        GET a => $1|2|
        MULTI => +OK|
        MULTI => -ERR MULTI calls can not be nested|
        WATCH a => -ERR WATCH inside MULTI is not allowed|
        UNWATCH => +QUEUED|
        INCRBY a x => +QUEUED|
        INCR a => +QUEUED|
        EXEC => *3|+OK|-ERR value is not an integer or out of range|:3|
        MULTI => +OK|
        INCR a => +QUEUED|
        GET => -ERR wrong number of arguments for 'get' command|
        EXEC => -EXECABORT Transaction discarded because of previous errors.|
        MULTI => +OK|
        NONSENSE => -ERR unknown command 'NONSENSE', see docs/commands.md|
        INCR a => +QUEUED|
        EXEC => -EXECABORT Transaction discarded because of previous errors.|
        GET a => $1|3|
        MULTI => +OK|
        SET t 1 EX 50 => +QUEUED|
        TTL t => +QUEUED|
        EXPIRE t 0 => +QUEUED|
        GET t => +QUEUED|
        SCAN 0 => +QUEUED|
        FLUSHALL => +QUEUED|
        SET z 1 => +QUEUED|
        KEYS * => +QUEUED|
        DBSIZE => +QUEUED|
        EXEC => *9|+OK|:50|:1|$-1|*2|$1|0|*1|$1|a|+OK|+OK|*1|$1|z|:1|
        MULTI => +OK|
        QUIT => +OK|
        ",
    );
}

#[test]
fn exec_fails_if_a_watched_key_changed() {
    on_both_stores(|node| {
        let (one, other) = (node.connect(), node.connect());
        // What the other client does between WATCH and EXEC, and whether EXEC goes through.
        let cases = [
            ("PING", true),
            ("GET a", true),
            ("SET b 1", true),
            ("SET a 1", false),
            ("DEL a", false),
            ("EXPIRE a 100", false),
            ("APPEND a x", false),
            ("RENAME a c", false),
            ("FLUSHALL", false),
            ("DEL none", true),
            ("SET none 1", false),
            ("SETNX a 2", true),
        ];
        for (meanwhile, through) in cases {
            node.say(one, "DEL none");
            node.say(one, "SET a 1");
            assert_eq!(node.say(one, "WATCH a none"), "+OK|");
            node.say(other, meanwhile);
            node.say(one, "MULTI");
            node.say(one, "SET d 1");
            let expected = if through { "*1|+OK|" } else { "*-1|" };
            assert_eq!(node.say(one, "EXEC"), expected, "{meanwhile}");
            // The watch is over either way.
            node.say(other, "SET a 5");
            node.say(one, "MULTI");
            assert_eq!(node.say(one, "EXEC"), "*0|");
        }
        node.say(one, "HELLO 3");
        node.say(one, "WATCH a");
        node.say(other, "SET a 6");
        node.say(one, "MULTI");
        assert_eq!(node.say(one, "EXEC"), "_|");
    });
}

#[test]
fn unwatch_and_discard_end_the_watch() {
    let mut node = Node::memory();
    let (one, other) = (node.connect(), node.connect());
    for end in [&["UNWATCH"][..], &["MULTI", "DISCARD"]] {
        node.say(one, "WATCH a");
        node.say(other, "INCR a");
        end.iter().for_each(|command| {
            node.say(one, command);
        });
        node.say(one, "MULTI");
        assert_eq!(node.say(one, "EXEC"), "*0|");
    }
}

/// A pipelined WATCH is answered after what follows it was read.
#[test]
fn watch_counts_for_the_transaction_it_was_sent_before() {
    let mut node = Node::memory();
    let (one, other) = (node.connect(), node.connect());
    // UNWATCH was read before WATCH got its answer: the watch must not outlive it.
    node.feed(one, b"WATCH a\r\nUNWATCH\r\nMULTI\r\nINCR n\r\nEXEC\r\n");
    node.execute(0);
    node.tell(0);
    node.say(other, "SET a 1");
    node.settle();
    assert_eq!(node.take(one), "+OK|+OK|+OK|+QUEUED|*1|:1|");
    // The whole transaction in one piece; the change comes between WATCH's answer and EXEC.
    node.feed(one, b"WATCH a\r\nMULTI\r\nINCR n\r\nEXEC\r\n");
    let other_write = b"SET a 2\r\n";
    node.execute(0);
    node.feed(other, other_write);
    node.execute(0);
    node.settle();
    while !node.world.told.is_empty() {
        node.tell(0);
    }
    node.settle();
    assert!(node.take(one).starts_with("+OK|+OK|+QUEUED|*1|:2|"));
    node.feed(one, b"WATCH a\r\nMULTI\r\nINCR n\r\nEXEC\r\n");
    node.execute(0);
    node.tell(0);
    // EXEC has been sent now; another write gets into the log before it.
    node.feed(other, b"SET a 3\r\n");
    node.world.asked.swap(0, 1);
    node.settle();
    assert_eq!(node.take(one), "+OK|+OK|+QUEUED|*-1|");
}

#[test]
fn a_watch_without_an_answer_stops_the_transaction() {
    use quorate_replica::front::Failure;
    let mut node = Node::memory();
    let one = node.connect();
    node.world.refuse = Some(Failure::NoQuorum);
    assert!(node.say(one, "WATCH a").starts_with("-NOQUORUM"));
    node.world.refuse = None;
    node.say(one, "MULTI");
    node.say(one, "SET a 1");
    assert!(node.say(one, "EXEC").starts_with("-EXECABORT"));
    node.say(one, "MULTI");
    node.say(one, "SET a 1");
    assert_eq!(node.say(one, "EXEC"), "*1|+OK|");
}

#[test]
fn watching_is_bounded() {
    let mut node = Node::memory();
    let one = node.connect();
    let keys: Vec<String> = (0..4097).map(|n| n.to_string()).collect();
    let words: Vec<&str> = ["WATCH"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    assert!(node.ask(one, &words).starts_with("-ERR too many keys"));
    node.say(one, "MULTI");
    assert!(node.say(one, "EXEC").starts_with("-EXECABORT"));
    assert_eq!(node.ask(one, &words[..4097]), "+OK|");
}
