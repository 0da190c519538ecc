//! Client sessions: the commands QUORATE SESSION, SEQ and ACK.

use crate::common::{Node, on_both_stores};

#[test]
fn a_repeated_number_gets_the_stored_reply() {
    on_both_stores(|node| {
        let one = node.connect();
        assert!(node.say(one, "QUORATE SEQ 1 INCR n").starts_with("-NOSESSION"));
        let reply = node.say(one, "QUORATE SESSION");
        let id = reply.split('|').nth(1).unwrap().to_owned();
        assert!(id.ends_with(".0"), "{reply}");
        assert_eq!(node.say(one, "QUORATE SEQ 1 INCR n"), ":1|");
        assert_eq!(node.say(one, "QUORATE SEQ 1 INCR n"), ":1|");
        assert_eq!(node.say(one, "QUORATE SEQ 2 GET n"), "$1|1|");
        // Another connection of the same client repeats a number, then continues.
        let again = node.connect();
        assert_eq!(node.say(again, &format!("QUORATE SESSION {id}")), "+OK|");
        assert_eq!(node.say(again, "QUORATE SEQ 1 INCR n"), ":1|");
        assert_eq!(node.say(again, "QUORATE SEQ 3 INCR n"), ":2|");
        assert_eq!(node.say(again, "QUORATE SEQ 2 GET n"), "$1|1|", "a stored read");
        assert_eq!(node.say(again, "QUORATE ACK 3"), "+OK|");
        assert_eq!(node.say(again, "QUORATE SEQ 4 INCR n"), ":3|");
        assert!(node.say(again, "QUORATE SEQ 1 INCR n").starts_with("-REPLYFORGOTTEN"));
        assert_eq!(node.say(again, "GET n"), "$1|3|");
    });
}

#[test]
fn a_transaction_can_be_numbered() {
    let mut node = Node::memory();
    let one = node.connect();
    node.say(one, "QUORATE SESSION");
    for _ in 0..2 {
        node.say(one, "MULTI");
        node.say(one, "INCR n");
        node.say(one, "INCR n");
        assert_eq!(node.say(one, "QUORATE SEQ 1 EXEC"), "*2|:1|:2|");
    }
    assert_eq!(node.say(one, "GET n"), "$1|2|");
    node.say(one, "MULTI");
    assert!(node.say(one, "QUORATE SEQ 2 INCR n").starts_with("-ERR Command not allowed"));
    assert!(node.say(one, "EXEC").starts_with("-EXECABORT"));
    assert!(node.say(one, "QUORATE SEQ 2 EXEC").starts_with("-ERR EXEC without MULTI"));
}

#[test]
fn what_cannot_be_numbered_is_refused() {
    let mut node = Node::memory();
    let one = node.connect();
    node.say(one, "QUORATE SESSION");
    for (command, error) in [
        ("QUORATE SEQ 0 GET a", "-ERR a sequence is a number from 1"),
        ("QUORATE SEQ x GET a", "-ERR a sequence is a number from 1"),
        ("QUORATE SEQ 1 PING", "-ERR only commands that read or write keys"),
        ("QUORATE SEQ 1 NOSUCH", "-ERR only commands that read or write keys"),
        ("QUORATE SEQ 1 GET", "-ERR wrong number of arguments for 'get'"),
        ("QUORATE SEQ 1 INCRBY a x", "-ERR value is not an integer"),
        ("QUORATE SEQ 1", "-ERR unknown subcommand"),
        ("QUORATE ACK x", "-ERR a sequence is a number from 1"),
        ("QUORATE SESSION 7", "-ERR a session id looks like 17.0"),
        ("QUORATE SESSION 7.x", "-ERR a session id looks like 17.0"),
    ] {
        assert!(node.say(one, command).starts_with(error), "{command}");
    }
    assert_eq!(node.say(one, "QUORATE SESSION 99.0"), "+OK|");
    assert!(node.say(one, "QUORATE SEQ 1 INCR a").starts_with("-NOSESSION"));
    assert!(node.say(one, "QUORATE HELP").starts_with("*9|+QUORATE SESSION"));
}

#[test]
fn digests_tell_states_apart() {
    let (mut a, mut b) = (Node::memory(), Node::memory());
    let (one, two) = (a.connect(), b.connect());
    assert_eq!(a.say(one, "QUORATE DIGEST"), b.say(two, "QUORATE DIGEST"));
    a.say(one, "SET a 1");
    b.say(two, "SET a 1");
    let digest = a.say(one, "QUORATE DIGEST");
    assert_eq!(digest, b.say(two, "QUORATE DIGEST"));
    assert!(digest.starts_with("+2 "), "applied below slot 2: {digest}");
    // Equal values with different histories have different versions, which WATCH compares.
    let fingerprint = |reply: &str| reply.split(' ').nth(1).unwrap().to_owned();
    a.say(one, "SET a 1");
    assert_ne!(fingerprint(&a.say(one, "QUORATE DIGEST")), fingerprint(&digest));
    b.say(two, "SET a 1");
    assert_eq!(a.say(one, "QUORATE DIGEST"), b.say(two, "QUORATE DIGEST"));
    a.say(one, "EXPIRE a 100");
    b.say(two, "EXPIRE a 101");
    assert_ne!(a.say(one, "QUORATE DIGEST"), b.say(two, "QUORATE DIGEST"));
}
