//! Replies to blocking commands: immediate, delayed, after a timeout, and where blocking is
//! forbidden.

use crate::common::{World, check};

use super::group::Group;

#[test]
fn what_is_there_is_taken_at_once_as_redis_says_it() {
    check(
        "
        RPUSH l a b c d e f g => :7|
        BLPOP none l 0 => *2|$1|l|$1|a|
        BRPOP l none 0.5 => *2|$1|l|$1|g|
        BLMOVE l m LEFT RIGHT 0 => $1|b|
        BRPOPLPUSH l m 0 => $1|f|
        LRANGE m 0 -1 => *2|$1|f|$1|b|
        BLMPOP 0 2 none l LEFT => *2|$1|l|*1|$1|c|
        BLMPOP 1.5 1 l RIGHT COUNT 9 => *2|$1|l|*2|$1|e|$1|d|
        EXISTS l => :0|
        ZADD z 1 a 2 b 3.5 c 4 d => :4|
        BZPOPMIN none z 0 => *3|$1|z|$1|a|$1|1|
        BZPOPMAX z 0 => *3|$1|z|$1|d|$1|4|
        BZMPOP 0 2 none z MAX COUNT 5 => *2|$1|z|*2|*2|$1|c|$3|3.5|*2|$1|b|$1|2|
        EXISTS z => :0|
        ",
    );
}

#[test]
fn errors_are_those_of_redis_and_nobody_waits() {
    check(
        "
        SET s x => +OK|
        RPUSH l a => :1|
        ZADD z 1 a => :1|
        BLPOP s 0 => -WRONGTYPE Operation against a key holding the wrong kind of value|
        BLPOP none s l 0 => -WRONGTYPE Operation against a key holding the wrong kind of value|
        BLPOP z 0 => -WRONGTYPE Operation against a key holding the wrong kind of value|
        BZPOPMIN l 0 => -WRONGTYPE Operation against a key holding the wrong kind of value|
        BLMOVE l s LEFT LEFT 0 => -WRONGTYPE Operation against a key holding the wrong kind of value|
        LLEN l => :1|
        BLPOP l x => -ERR timeout is not a float or out of range|
        BLPOP l nan => -ERR timeout is not a float or out of range|
        BLPOP l -1 => -ERR timeout is negative|
        BLPOP l 1e300 => -ERR timeout is out of range|
        BLPOP l 0x7FFFFFFFFFFFFF => -ERR timeout is out of range|
        BLPOP l => -ERR wrong number of arguments for 'blpop' command|
        BLMOVE l m UP LEFT 0 => -ERR syntax error|
        BLMPOP 0 0 l LEFT => -ERR numkeys should be greater than 0|
        BLMPOP 0 1 l MIN => -ERR syntax error|
        BLMPOP 0 1 l LEFT COUNT 0 => -ERR count should be greater than 0|
        BLMPOP x 1 l LEFT => -ERR timeout is not a float or out of range|
        BZMPOP 0 1 z LEFT => -ERR syntax error|
        BZMPOP 0 5 z MIN => -ERR syntax error|
        ",
    );
}

/// Within a transaction, a blocking command does not block and replies as after a timeout.
#[test]
fn within_a_transaction_nobody_waits() {
    check(
        "
        MULTI => +OK|
        BLPOP l 0 => +QUEUED|
        BLMOVE l m LEFT LEFT 0 => +QUEUED|
        BLMPOP 0 1 l LEFT => +QUEUED|
        BZPOPMIN z 0 => +QUEUED|
        BZMPOP 0 1 z MIN => +QUEUED|
        RPUSH l a => +QUEUED|
        BLPOP l 0 => +QUEUED|
        EXEC => *7|*-1|$-1|*-1|*-1|*-1|:1|*2|$1|l|$1|a|
        PING => +PONG|
        ",
    );
}

#[test]
fn a_numbered_command_makes_one_attempt() {
    check(
        "
        QUORATE SESSION => $3|1.0|
        QUORATE SEQ 1 BLPOP l 0 => *-1|
        RPUSH l a => :1|
        QUORATE SEQ 2 BLPOP l 0 => *2|$1|l|$1|a|
        QUORATE SEQ 2 BLPOP l 0 => *2|$1|l|$1|a|
        ",
    );
}

#[test]
fn an_element_that_comes_later_is_told_and_what_follows_is_answered_then() {
    let cases = [
        ("BLPOP none k 0", "LPUSH k a", "*2|$1|k|$1|a|"),
        ("BRPOP k 0", "RPUSH k a b", "*2|$1|k|$1|b|"),
        ("BLMOVE k l LEFT LEFT 0", "RPUSH k a b", "$1|a|"),
        ("BRPOPLPUSH k l 0", "LPUSH k a", "$1|a|"),
        ("BLMPOP 0 1 k LEFT COUNT 2", "RPUSH k a b c", "*2|$1|k|*2|$1|a|$1|b|"),
        ("BZPOPMIN k 0", "ZADD k 2 a 1 b", "*3|$1|k|$1|b|$1|1|"),
        ("BZPOPMAX k 0", "ZINCRBY k 2 a", "*3|$1|k|$1|a|$1|2|"),
        ("BZMPOP 0 1 k MAX", "ZADD k 2 a 1 b", "*2|$1|k|*1|*2|$1|a|$1|2|"),
        // Other commands that create lists and sorted sets.
        ("BLPOP k 0", "RENAME source k", "*2|$1|k|$1|x|"),
        ("BLPOP k 0", "COPY source k", "*2|$1|k|$1|x|"),
        ("BLPOP k 0", "LMOVE source k LEFT LEFT", "*2|$1|k|$1|x|"),
        ("BZPOPMIN k 0", "ZUNIONSTORE k 1 scores", "*3|$1|k|$1|m|$1|1|"),
        ("BZPOPMIN k 0", "ZRANGESTORE k scores 0 -1", "*3|$1|k|$1|m|$1|1|"),
    ];
    for (waits, comes, expected) in cases {
        let mut group = Group::memory(1);
        let (waiter, other) = (group.connect(0), group.connect(0));
        group.say(other, "RPUSH source x y");
        group.say(other, "ZADD scores 1 m");
        assert_eq!(group.say(waiter, waits), "", "{waits}");
        group.send(waiter, "ECHO behind");
        group.settle();
        assert_eq!(group.take(waiter), "", "{waits}");
        assert!(!group.say(other, comes).starts_with('-'), "{comes}");
        assert_eq!(group.take(waiter), format!("{expected}$6|behind|"), "{waits}");
    }
}

#[test]
fn the_time_of_each_is_over_when_it_said() {
    let mut group = Group::memory(1);
    let all = ["BLPOP k 0.25", "BLMOVE k l LEFT LEFT 1", "BZPOPMIN k 0"];
    let clients = all.map(|waits| {
        let client = group.connect(0);
        assert_eq!(group.say(client, waits), "");
        client
    });
    let mut after = |ms: u64| {
        group.pass_ms(ms);
        group.settle();
        clients.map(|client| group.take(client))
    };
    assert_eq!(after(249), ["", "", ""]);
    assert_eq!(after(1), ["*-1|", "", ""]);
    assert_eq!(after(750), ["", "*-1|", ""]);
    assert_eq!(after(1 << 40), ["", "", ""]);
    // A client is no longer queued after its timeout.
    let other = group.connect(0);
    group.say(other, "RPUSH k a");
    group.pass_ms(5000);
    group.settle();
    assert_eq!(group.say(other, "LRANGE k 0 -1"), "*1|$1|a|");
}

#[test]
fn what_is_there_and_of_another_type_ends_the_wait_when_it_is_tried_again() {
    let mut group = Group::memory(1);
    let (waiter, other) = (group.connect(0), group.connect(0));
    group.say(waiter, "BLPOP k l 0");
    group.say(other, "SET k x");
    assert_eq!(group.take(waiter), "", "as in Redis");
    group.say(other, "RPUSH l a");
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
    assert_eq!(group.take(waiter), wrong);
    // The client received the error and is no longer queued.
    assert_eq!(group.say(waiter, "BLPOP l 0"), "*2|$1|l|$1|a|");
    assert_eq!(group.say(waiter, "BLMOVE l k LEFT LEFT 0"), "");
    group.say(other, "RPUSH l b");
    assert_eq!(group.take(waiter), wrong);
    assert_eq!(group.say(other, "LPOP l"), "$1|b|");
}

#[test]
fn resp3_has_no_other_arrays() {
    let mut group = Group::memory(1);
    let (waiter, other) = (group.connect(0), group.connect(0));
    group.say(waiter, "HELLO 3");
    group.take(waiter);
    group.say(waiter, "BZPOPMIN z 0");
    group.say(other, "ZADD z 1.5 a");
    assert_eq!(group.take(waiter), "*3|$1|z|$1|a|,1.5|");
    group.say(waiter, "BLPOP k 1");
    group.pass_ms(1000);
    group.settle();
    assert_eq!(group.take(waiter), "_|");
}

/// The number and memory of blocked clients are limited.
#[test]
fn as_many_wait_as_may() {
    let mut group = Group::new(vec![World::memory()]);
    let keys: Vec<String> = (0..130_000).map(|number| format!("k{number}")).collect();
    let client = group.connect(0);
    let said = group.say(client, &format!("BLPOP {} 0", keys.join(" ")));
    assert!(said.starts_with("-BUSY not executed: 16384 clients may wait"), "{said}");
    assert_eq!(group.say(client, "PING"), "+PONG|", "it goes on");
}
