//! Tests of the set commands, command by command.

use crate::common::{Node, check, on_both_stores};

const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value|";

#[test]
fn members_are_added_and_removed() {
    check(
        "
        SADD s a b a => :2|
        SADD s b c => :1|
        SCARD s => :3|
        SCARD nope => :0|
        SISMEMBER s a => :1|
        SISMEMBER s x => :0|
        SISMEMBER nope a => :0|
        SMISMEMBER s a x c => *3|:1|:0|:1|
        SMISMEMBER nope a => *1|:0|
        SREM s a x => :1|
        SREM nope a => :0|
        SMOVE s t b => :1|
        SMOVE s t x => :0|
        SMOVE nope t x => :0|
        SMEMBERS t => *1|$1|b|
        SMEMBERS nope => *0|
        SMOVE t t b => :1|
        SMOVE t t x => :0|
        TYPE t => +set|
        SREM s c => :1|
        EXISTS s => :0|
        SMOVE t s b => :1|
        EXISTS t => :0|
        ",
    );
}

#[test]
fn sets_are_combined() {
    check(
        "
        SADD a 1 2 3 => :3|
        SADD b 2 3 4 => :3|
        SADD c 3 => :1|
        SINTER a b c => *1|$1|3|
        SINTER a nope => *0|
        SDIFF a b => *1|$1|1|
        SDIFF nope a => *0|
        SUNION c nope => *1|$1|3|
        SINTERCARD 2 a b => :2|
        SINTERCARD 2 a b LIMIT 1 => :1|
        SINTERCARD 2 a b LIMIT 0 => :2|
        SINTERCARD 2 a nope => :0|
        SINTERSTORE d a b => :2|
        SCARD d => :2|
        SUNIONSTORE d a b => :4|
        SCARD d => :4|
        SDIFFSTORE d a b => :1|
        SMEMBERS d => *1|$1|1|
        # Into one of the sets themselves.
        SUNIONSTORE a a b => :4|
        SCARD a => :4|
        SINTERSTORE a a nope => :0|
        EXISTS a => :0|
        SET s x => +OK|
        SUNIONSTORE s b => :3|
        TYPE s => +set|
        SINTERCARD 0 b => -ERR numkeys should be greater than 0|
        SINTERCARD x b => -ERR numkeys should be greater than 0|
        SINTERCARD 2 b => -ERR Number of keys can't be greater than number of args|
        SINTERCARD 1 b LIMIT -1 => -ERR LIMIT can't be negative|
        SINTERCARD 1 b LIMIT => -ERR syntax error|
        SINTERCARD 1 b c => -ERR syntax error|
        ",
    );
}

#[test]
fn members_are_drawn() {
    check(
        "
        SPOP nope => $-1|
        SPOP nope 3 => *0|
        SRANDMEMBER nope => $-1|
        SRANDMEMBER nope 3 => *0|
        SRANDMEMBER nope -3 => *0|
        SADD s a => :1|
        SRANDMEMBER s => $1|a|
        SRANDMEMBER s 5 => *1|$1|a|
        SRANDMEMBER s -2 => *2|$1|a|$1|a|
        SRANDMEMBER s 0 => *0|
        SPOP s 0 => *0|
        SPOP s => $1|a|
        EXISTS s => :0|
        SADD s a => :1|
        SPOP s 5 => *1|$1|a|
        EXISTS s => :0|
        SPOP s -1 => -ERR value is out of range, must be positive|
        SPOP s x => -ERR value is out of range, must be positive|
        SPOP s 1 2 => -ERR syntax error|
        SRANDMEMBER s x => -ERR value is not an integer or out of range|
        SRANDMEMBER s 1 2 => -ERR syntax error|
        ",
    );
}

#[test]
fn other_types_are_refused() {
    for command in [
        "SADD k a",
        "SREM k a",
        "SISMEMBER k a",
        "SMISMEMBER k a",
        "SCARD k",
        "SMEMBERS k",
        "SMOVE k s a",
        "SMOVE s k a",
        "SPOP k",
        "SPOP k 1",
        "SRANDMEMBER k",
        "SINTER s k",
        "SINTER nope k",
        "SUNION k s",
        "SDIFF s k",
        "SINTERSTORE d s k",
        "SUNIONSTORE d s k",
        "SDIFFSTORE d k",
        "SINTERCARD 2 s k",
        "SSCAN k 0",
        "GET s",
        "HGET s a",
        "LPUSH s a",
        "ZADD s 1 a",
        "ZSCORE s a",
    ] {
        on_both_stores(|node| {
            let client = node.connect();
            node.say(client, "RPUSH k x");
            node.say(client, "SADD s a");
            assert_eq!(node.say(client, command), WRONG, "{command}");
            assert_eq!(node.say(client, "SCARD s"), ":1|");
            assert_eq!(node.say(client, "EXISTS d"), ":0|");
        });
    }
}

#[test]
fn a_scan_returns_every_member_once() {
    on_both_stores(|node| {
        let client = node.connect();
        for number in 0..200 {
            node.say(client, &format!("SADD s {number}"));
        }
        let (mut cursor, mut seen) = ("0".to_owned(), Vec::new());
        loop {
            let page = node.say(client, &format!("SSCAN s {cursor} COUNT 7"));
            let lines: Vec<&str> = page.split('|').collect();
            cursor = lines[2].to_owned();
            seen.extend(lines[4..].chunks_exact(2).map(|item| item[1].to_owned()));
            if cursor == "0" {
                break;
            }
        }
        seen.sort();
        let all = seen.len();
        seen.dedup();
        assert_eq!((seen.len(), all), (200, 200));
    });
}

/// Draws from a large set vary, and each member is popped exactly once.
#[test]
fn many_members_are_popped_once_each() {
    let mut node = Node::memory();
    let client = node.connect();
    for number in 0..6000 {
        node.feed(client, format!("SADD s {number}\r\n").as_bytes());
    }
    node.settle();
    node.take(client);
    let mut seen = Vec::new();
    for count in [1, 10, 100, 4000, 1000, 5000] {
        let reply = node.say(client, &format!("SPOP s {count}"));
        let lines: Vec<&str> = reply.split('|').collect();
        let drawn = lines[1..].chunks_exact(2).map(|item| item[1].to_owned());
        seen.extend(drawn);
    }
    assert_eq!(node.say(client, "EXISTS s"), ":0|");
    assert_eq!(seen.len(), 6000);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 6000);
}

#[test]
fn resp3_has_sets() {
    let mut node = Node::memory();
    let client = node.connect();
    node.say(client, "HELLO 3");
    node.say(client, "SADD s a");
    assert_eq!(node.say(client, "SMEMBERS s"), "~1|$1|a|");
    assert_eq!(node.say(client, "SINTER s s"), "~1|$1|a|");
    assert_eq!(node.say(client, "SRANDMEMBER s 2"), "*1|$1|a|");
    assert_eq!(node.say(client, "SPOP s 2"), "~1|$1|a|");
    assert_eq!(node.say(client, "SPOP s"), "_|");
}
