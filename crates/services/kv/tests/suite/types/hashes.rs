//! Tests of the hash commands, command by command.

use quorate_core::level::Level;

use crate::common::{Node, check, check_at, on_both_stores};

const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value|";

#[test]
fn fields_are_set_and_read() {
    check(
        "
        HSET h a 1 b 2 => :2|
        HSET h a 3 c 4 => :1|
        HGET h a => $1|3|
        HGET h nope => $-1|
        HGET nope a => $-1|
        HEXISTS h a => :1|
        HEXISTS h nope => :0|
        HLEN h => :3|
        HLEN nope => :0|
        HSTRLEN h a => :1|
        HSTRLEN h nope => :0|
        HMGET h a nope c => *3|$1|3|$-1|$1|4|
        HMGET nope a b => *2|$-1|$-1|
        HSETNX h a 9 => :0|
        HSETNX h d 9 => :1|
        HMSET h d 8 => +OK|
        HGET h d => $1|8|
        TYPE h => +hash|
        HDEL h a b nope => :2|
        HDEL h c d => :2|
        EXISTS h => :0|
        HDEL h a => :0|
        HGETALL h => *0|
        HKEYS h => *0|
        HVALS h => *0|
        HSET h a '' => :1|
        HGETALL h => *2|$1|a|$0||
        HKEYS h => *1|$1|a|
        HVALS h => *1|$0||
        ",
    );
}

#[test]
fn requests_are_checked_as_redis_does() {
    check(
        "
        HSET h a => -ERR wrong number of arguments for 'hset' command|
        HSET h a 1 b => -ERR wrong number of arguments for 'hset' command|
        MULTI => +OK|
        SET k 1 => +QUEUED|
        HSET h a 1 b => +QUEUED|
        EXEC => *2|+OK|-ERR wrong number of arguments for 'hset' command|
        HMSET h a 1 b => -ERR wrong number of arguments for 'hmset' command|
        HSETNX h a => -ERR wrong number of arguments for 'hsetnx' command|
        HGET h => -ERR wrong number of arguments for 'hget' command|
        HDEL h => -ERR wrong number of arguments for 'hdel' command|
        HINCRBY h a x => -ERR value is not an integer or out of range|
        HINCRBYFLOAT h a x => -ERR value is not a valid float|
        HINCRBYFLOAT h a +inf => -ERR value is NaN or Infinity|
        HSCAN h x => -ERR invalid cursor|
        HSCAN h 0 COUNT => -ERR syntax error|
        HSCAN h 0 COUNT 0 => -ERR syntax error|
        HSCAN h 0 COUNT x => -ERR value is not an integer or out of range|
        HRANDFIELD h x => -ERR value is not an integer or out of range|
        HRANDFIELD h 1 WITH => -ERR syntax error|
        HRANDFIELD h 1 WITHVALUES more => -ERR syntax error|
        HRANDFIELD h -9223372036854775808 => -ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807|
        HRANDFIELD h 9223372036854775807 WITHVALUES => -ERR value is out of range|
        ",
    );
}

#[test]
fn fields_count() {
    check(
        "
        HINCRBY h n 5 => :5|
        HINCRBY h n -7 => :-2|
        HSET h text abc float 1.5 big 9223372036854775807 => :3|
        HINCRBY h text 1 => -ERR hash value is not an integer|
        HINCRBY h float 1 => -ERR hash value is not an integer|
        HINCRBY h big 1 => -ERR increment or decrement would overflow|
        HGET h big => $19|9223372036854775807|
        HINCRBYFLOAT h float 0.1 => $3|1.6|
        HINCRBYFLOAT h n 0.5 => $4|-1.5|
        HINCRBYFLOAT h new 3.0e3 => $4|3000|
        HINCRBYFLOAT h text 1 => -ERR hash value is not a float|
        # A command that fails begins no hash.
        SET s x => +OK|
        HINCRBY s n 1 => -WRONGTYPE Operation against a key holding the wrong kind of value|
        HLEN h => :5|
        ",
    );
}

#[test]
fn other_types_are_refused_and_refuse_hashes() {
    for command in [
        "HSET s a 1",
        "HSETNX s a 1",
        "HMSET s a 1",
        "HGET s a",
        "HEXISTS s a",
        "HMGET s a",
        "HDEL s a",
        "HLEN s",
        "HSTRLEN s a",
        "HKEYS s",
        "HVALS s",
        "HGETALL s",
        "HINCRBY s a 1",
        "HINCRBYFLOAT s a 1",
        "HRANDFIELD s",
        "HRANDFIELD s 3",
        "HSCAN s 0",
        "GET h",
        "APPEND h x",
        "INCR h",
        "STRLEN h",
        "GETRANGE h 0 1",
        "SETRANGE h 0 x",
        "GETSET h x",
        "GETDEL h",
        "GETEX h PERSIST",
        "INCRBYFLOAT h 1",
        "SET h x GET",
        "DELEX h IFEQ x",
        "DIGEST h",
    ] {
        on_both_stores(|node| {
            let client = node.connect();
            node.say(client, "SET s x");
            node.say(client, "HSET h a 1");
            assert_eq!(node.say(client, command), WRONG, "{command}");
            assert_eq!(node.say(client, "HGETALL h"), "*2|$1|a|$1|1|");
        });
    }
    check(
        "
        HSET h a 1 => :1|
        MGET h => *1|$-1|
        SETNX h x => :0|
        SET h x => +OK|
        GET h => $1|x|
        HSET i a 1 => :1|
        MSET i 1 => +OK|
        TYPE i => +string|
        ",
    );
}

/// A Redisson lock can be read like a hash, but only the lock scripts change it.
#[test]
fn locks_are_read_like_hashes() {
    check(
        "
        EVALSHA 149c5a8bf18676fd99e9e6e24923bd64d9b62f94 1 l 30000 me => $-1|
        HGETALL l => *2|$2|me|$1|1|
        HKEYS l => *1|$2|me|
        HLEN l => :1|
        HMGET l me you => *2|$1|1|$-1|
        HSTRLEN l me => :1|
        HRANDFIELD l => $2|me|
        HRANDFIELD l -2 WITHVALUES => *4|$2|me|$1|1|$2|me|$1|1|
        HSET l me 2 => -WRONGTYPE Operation against a key holding the wrong kind of value|
        HDEL l me => -WRONGTYPE Operation against a key holding the wrong kind of value|
        HGET l me => $1|1|
        ",
    );
}

#[test]
fn a_scan_returns_every_field_once() {
    on_both_stores(|node| {
        let client = node.connect();
        for number in 0..300 {
            node.say(client, &format!("HSET h field:{number} {number}"));
        }
        let (mut cursor, mut seen, mut pages) = ("0".to_owned(), Vec::new(), 0);
        loop {
            let page = node.say(client, &format!("HSCAN h {cursor} COUNT 20"));
            let lines: Vec<&str> = page.split('|').collect();
            cursor = lines[2].to_owned();
            for item in lines[4..].chunks_exact(4) {
                assert_eq!(item[1], format!("field:{}", item[3]));
                seen.push(item[1].to_owned());
            }
            pages += 1;
            if cursor == "0" {
                break;
            }
        }
        seen.sort();
        let all = seen.len();
        seen.dedup();
        assert_eq!((seen.len(), all, pages), (300, 300, 15));
        let page = node.say(client, "HSCAN h 0 MATCH field:29 COUNT 1000");
        assert_eq!(page, "*2|$1|0|*2|$8|field:29|$2|29|");
        assert_eq!(node.say(client, "HSCAN nope 0"), "*2|$1|0|*0|");
    });
}

#[test]
fn resp3_has_maps_and_pairs() {
    let mut node = Node::memory();
    let client = node.connect();
    node.say(client, "HELLO 3");
    node.say(client, "HSET h a 1");
    assert_eq!(node.say(client, "HGETALL h"), "%1|$1|a|$1|1|");
    assert_eq!(node.say(client, "HGETALL nope"), "%0|");
    assert_eq!(node.say(client, "HGET h nope"), "_|");
    assert_eq!(node.say(client, "HRANDFIELD h 1 WITHVALUES"), "*1|*2|$1|a|$1|1|");
    node.say(client, "MULTI");
    node.say(client, "HGETALL h");
    node.say(client, "HRANDFIELD h -1 WITHVALUES");
    assert_eq!(node.say(client, "EXEC"), "*2|%1|$1|a|$1|1|*1|*2|$1|a|$1|1|");
}

/// The fields of a hash are drawn about equally often, whether the hash is small or large.
#[test]
fn chance_is_fair() {
    for (fields, draws) in [(10, 4000), (3000, 9000)] {
        let mut node = Node::memory();
        let client = node.connect();
        for number in 0..fields {
            node.say(client, &format!("HSET h {number} x"));
        }
        let mut tally = vec![0_u32; fields];
        for _ in 0..draws {
            let field = node.say(client, "HRANDFIELD h");
            tally[field.split('|').nth(1).unwrap().parse::<usize>().unwrap()] += 1;
        }
        let most = tally.iter().max().unwrap();
        let limit = if fields == 10 { 500 } else { 20 };
        assert!(*most < limit, "{fields}: {most}");
        let never = tally.iter().filter(|count| **count == 0).count();
        assert!(never < fields / 8, "{fields}: {never} never");
    }
}

/// Replies of Redis 8 (HGETDEL) and 7.4 (NOVALUES).
#[test]
fn fields_are_taken_and_scanned_without_values() {
    check_at(
        Level(10),
        "
        HSET h a 1 b 2 c 3 => :3|
        HGETDEL h FIELDS 3 a nope a => *3|$1|1|$-1|$-1|
        HSCAN h 0 NOVALUES => *2|$1|0|*2|$1|b|$1|c|
        HSCAN h 0 MATCH b NOVALUES COUNT 5 => *2|$1|0|*1|$1|b|
        HEXPIRE h 100 FIELDS 1 b => *1|:1|
        MULTI => +OK|
        HGETDEL h FIELDS 1 b => +QUEUED|
        HSCAN h 0 NOVALUES => +QUEUED|
        EXEC => *2|*1|$1|2|*2|$1|0|*1|$1|c|
        HGETDEL h FIELDS 2 d e => *2|$-1|$-1|
        HGETDEL h fields 1 c => *1|$1|3|
        EXISTS h => :0|
        HGETDEL h FIELDS 2 a b => *2|$-1|$-1|
        HGETDEL h FIELD 1 a => -ERR Mandatory argument FIELDS is missing or not at the right position|
        HGETDEL h FIELDS 0 a => -ERR Number of fields must be a positive integer|
        HGETDEL h FIELDS 2 a => -ERR The `numfields` parameter must match the number of arguments|
        HGETDEL h FIELDS 1 => -ERR wrong number of arguments for 'hgetdel' command|
        SADD s a => :1|
        HGETDEL s FIELDS 1 a => -WRONGTYPE Operation against a key holding the wrong kind of value|
        SSCAN s 0 NOVALUES => -ERR NOVALUES option can only be used in HSCAN|
        ",
    );
}

/// A reply that would be too large removes nothing.
#[test]
fn fields_that_no_reply_can_hold_stay() {
    let mut node = Node::memory();
    node.world.level = Level(10);
    let client = node.connect();
    let value = "v".repeat(7 << 20);
    for field in ["a", "b", "c", "d", "e"] {
        node.ask(client, &["HSET", "h", field, &value]);
    }
    let reply = node.say(client, "HGETDEL h FIELDS 5 a b c d e");
    assert!(reply.starts_with("-TOOBIG the reply would be larger than 32 MiB"), "{reply:.80}");
    assert_eq!(node.say(client, "HLEN h"), ":5|");
    assert!(node.say(client, "HGETDEL h FIELDS 2 a b").starts_with("*2|$7340032|v"));
    assert_eq!(node.say(client, "HLEN h"), ":3|");
}

/// A value counts once towards the size of the reply.
#[test]
fn fields_named_twice_are_taken_once() {
    let mut node = Node::memory();
    node.world.level = Level(10);
    let client = node.connect();
    let value = "v".repeat(6 << 20);
    for field in ["a", "b", "c"] {
        assert_eq!(node.ask(client, &["HSET", "h", field, &value]), ":1|");
    }
    let reply = node.say(client, "HGETDEL h FIELDS 6 a b c a b c");
    assert!(reply.starts_with("*6|$6291456|") && reply.ends_with("|$-1|$-1|$-1|"), "{reply:.100}");
    assert_eq!(node.say(client, "EXISTS h"), ":0|");
}
