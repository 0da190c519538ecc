//! Behaviour shared by all types: generic commands, deadlines, transactions, size limits.

use quorate_kv::key::FIELD_BYTES_MAX;

use crate::common::{Node, check, on_both_stores, request};

#[test]
fn keys_of_all_types_are_keys() {
    check(
        "
        HSET h a 1 => :1|
        RPUSH l a b => :2|
        SADD s a => :1|
        ZADD z 1 a => :1|
        SET t x => +OK|
        DBSIZE => :5|
        EXISTS h l s z t => :5|
        OBJECT ENCODING h => $8|listpack|
        OBJECT ENCODING l => $8|listpack|
        OBJECT REFCOUNT z => :1|
        SCAN 0 TYPE hash => *2|$1|0|*1|$1|h|
        SCAN 0 TYPE list => *2|$1|0|*1|$1|l|
        SCAN 0 TYPE set => *2|$1|0|*1|$1|s|
        SCAN 0 TYPE zset => *2|$1|0|*1|$1|z|
        SCAN 0 TYPE string => *2|$1|0|*1|$1|t|
        COPY l m => :1|
        LPUSH m x => :3|
        LRANGE l 0 -1 => *2|$1|a|$1|b|
        COPY l m => :0|
        COPY l m REPLACE => :1|
        LRANGE m 0 -1 => *2|$1|a|$1|b|
        RENAME l l => +OK|
        LLEN l => :2|
        RENAME l h => +OK|
        LLEN h => :2|
        EXISTS l => :0|
        RENAMENX h z => :0|
        RENAMENX h new => :1|
        PEXPIRE new 100 => :1|
        RPUSH new c => :3|
        PTTL new => :100|
        PERSIST new => :1|
        PEXPIRE new 0 => :1|
        EXISTS new => :0|
        DEL m s z t => :4|
        DBSIZE => :0|
        ",
    );
}

#[test]
fn memory_usage_grows_with_elements() {
    on_both_stores(|node| {
        let client = node.connect();
        let mut before = 0;
        for number in 0..5 {
            node.say(client, &format!("ZADD z {number} member:{number}"));
            let usage = node.say(client, "MEMORY USAGE z");
            let usage = usage[1..].trim_end_matches('|').parse::<u64>().unwrap();
            assert!(usage > before + 100, "{usage} {before}");
            before = usage;
        }
    });
}

/// A command that recreates an expired collection sees none of the old elements.
#[test]
fn a_collection_that_ended_begins_anew() {
    on_both_stores(|node| {
        let client = node.connect();
        for begin in ["HSET k a 1 b 2", "RPUSH k a b", "SADD k a b", "ZADD k 1 a 2 b"] {
            node.say(client, begin);
            node.say(client, "PEXPIRE k 50");
            node.world.wall_ms += 50;
            assert!(node.pass());
            assert_eq!(node.say(client, "EXISTS k"), ":0|");
            assert_eq!(node.say(client, "TYPE k"), "+none|");
            assert_eq!(node.say(client, "HSET k c 3"), ":1|");
            assert_eq!(node.say(client, "HGETALL k"), "*2|$1|c|$1|3|");
            assert_eq!(node.say(client, "PTTL k"), ":-1|");
            assert_eq!(node.sweep(), 0);
            node.say(client, "DEL k");
        }
        node.say(client, "RPUSH k a b c");
        node.say(client, "PEXPIRE k 50");
        node.world.wall_ms += 50;
        assert!(node.pass());
        assert_eq!(node.sweep(), 1);
        assert_eq!(node.say(client, "RPUSH k x"), ":1|");
        assert_eq!(node.say(client, "LRANGE k 0 -1"), "*1|$1|x|");
    });
}

#[test]
fn transactions_hold_commands_of_all_types() {
    on_both_stores(|node| {
        let client = node.connect();
        node.say(client, "MULTI");
        for command in [
            "HSET h a 1",
            "RPUSH l x y",
            "SADD l x",
            "SADD s x",
            "RENAME l h",
            "DEL s",
            "SADD s y",
            "LRANGE h 0 -1",
            "SMEMBERS s",
        ] {
            assert_eq!(node.say(client, command), "+QUEUED|");
        }
        let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
        assert_eq!(
            node.say(client, "EXEC"),
            format!("*9|:1|:2|{wrong}:1|+OK|:1|:1|*2|$1|x|$1|y|*1|$1|y|")
        );
    });
}

#[test]
fn whoever_watches_a_collection_sees_each_change() {
    for (begin, change, same) in [
        ("HSET k a 1", "HSET k a 2", "HDEL k nope"),
        ("HSET k a 1", "HDEL k a", "HGET k a"),
        ("RPUSH k a", "LSET k 0 b", "LREM k 0 x"),
        ("RPUSH k a", "RPUSH k b", "LINSERT k BEFORE x y"),
        ("SADD k a", "SADD k b", "SADD k a"),
        ("SADD k a", "SPOP k", "SREM k x"),
        ("ZADD k 1 a", "ZADD k 2 a", "ZADD k 1 a"),
        ("ZADD k 1 a", "ZPOPMIN k", "ZREM k x"),
        ("RPUSH k a", "PEXPIRE k 5000", "LTRIM k 0 -1"),
    ] {
        on_both_stores(|node| {
            let (client, other) = (node.connect(), node.connect());
            node.say(other, begin);
            for (command, expected) in [(same, "*1|+PONG|"), (change, "*-1|")] {
                node.say(client, "WATCH k");
                node.say(other, command);
                node.say(client, "MULTI");
                node.say(client, "PING");
                assert_eq!(node.say(client, "EXEC"), expected, "{begin}, {command}");
            }
        });
    }
}

#[test]
fn fields_and_members_have_one_limit_and_elements_have_none() {
    on_both_stores(|node| {
        let client = node.connect();
        let (long, longer) = ("m".repeat(FIELD_BYTES_MAX), "m".repeat(FIELD_BYTES_MAX + 1));
        let refused = "-TOOBIG not executed: a field or a member may have 65472 bytes; values and elements of lists \
            may be longer|";
        for (words, reply) in [
            (["HSET", "h", "FIELD", "x"], ":1|"),
            (["ZADD", "z", "1", "FIELD"], ":1|"),
            (["ZINCRBY", "z", "1", "FIELD"], "$1|2|"),
            (["HINCRBY", "h2", "FIELD", "1"], ":1|"),
            (["SADD", "s", "x", "FIELD"], ":2|"),
        ] {
            let with = |field: &str| {
                let words = words
                    .map(|word| if word == "FIELD" { field.to_owned() } else { word.to_owned() });
                request(&words)
            };
            for (field, expected) in [(&long, reply), (&longer, refused)] {
                node.feed(client, &with(field));
                node.settle();
                assert_eq!(node.take(client), expected, "{words:?}");
            }
        }
        // A member that is too long to exist may be looked up, or be the bound of a range.
        for words in [
            ["HGET", "h", &longer, ""],
            ["SISMEMBER", "s", &longer, ""],
            ["ZSCORE", "z", &longer, ""],
            ["ZLEXCOUNT", "z", &format!("[{longer}"), &format!("[{longer}x")],
        ] {
            let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
            let reply = node.ask(client, &words);
            assert!(reply == ":0|" || reply == "$-1|", "{reply}");
        }
        let lex = node.ask(client, &["ZLEXCOUNT", "z", "[a", &format!("[{longer}")]);
        assert_eq!(lex, ":1|");
        assert_eq!(node.ask(client, &["RPUSH", "l", &longer]), ":1|");
        assert_eq!(node.ask(client, &["HSET", "h", "f", &longer]), ":1|");
    });
}

/// Copies are charged to the batch's budget. A command that would exceed the budget changes
/// nothing.
#[test]
fn large_copies_are_refused_whole() {
    let mut node = Node::memory();
    let client = node.connect();
    let value = "v".repeat(4 << 20);
    for number in 0..40 {
        node.ask(client, &["HSET", "h", &format!("f{number}"), &value]);
    }
    let digest = node.world.service.digest();
    let reply = node.say(client, "COPY h i");
    assert!(reply.starts_with("-TOOBIG"), "{reply}");
    assert_eq!(node.world.service.digest(), digest);
    let reply = node.say(client, "HGETALL h");
    assert!(reply.starts_with("-TOOBIG"), "{reply}");
    assert_eq!(node.say(client, "RENAME h i"), "+OK|", "that copies nothing");
    assert_eq!(node.say(client, "HLEN i"), ":40|");
    assert_eq!(node.say(client, "PEXPIRE i 1000"), ":1|");
}

/// The size limit of a reply bounds the bytes copied for it, even within a transaction, which every
/// node executes.
#[test]
fn draws_and_combinations_of_what_is_large_end_in_time() {
    let long = "x".repeat(60_000);
    on_both_stores(|node| {
        let id = node.connect();
        node.feed_only(id, &["HSET", "h", "f", &long]);
        node.feed_only(id, &["SADD", "s", &long]);
        node.feed_only(id, &["SET", "k", &"x".repeat(1 << 20)]);
        node.pump();
        node.take(id);
        for draw in ["HRANDFIELD h -5000000 WITHVALUES", "SRANDMEMBER s -5000000"] {
            let reply = node.say(id, draw);
            assert!(reply.starts_with("-TOOBIG"), "{draw}: {reply}");
        }
        let many = ["k"; 300].join(" ");
        let reply = node.say(id, &format!("BITOP OR d {many}"));
        assert!(reply.starts_with("-TOOBIG"), "{reply}");
        assert_eq!(node.say(id, "EXISTS d"), ":0|");
        let few = ["k"; 3].join(" ");
        assert_eq!(node.say(id, &format!("BITOP OR d {few}")), ":1048576|");
    });
}

/// Ranks are correct whether they are counted from the near or the far end.
#[test]
fn ranks_are_found_from_both_ends() {
    on_both_stores(|node| {
        let id = node.connect();
        for number in 0..20 {
            node.say(id, &format!("ZADD z {number} m{number:02}"));
        }
        for (range, first, last) in [("1 2", 1, 2), ("15 16", 15, 16), ("18 -1", 18, 19)] {
            let up = format!("*2|$3|m{first:02}|$3|m{last:02}|");
            assert_eq!(node.say(id, &format!("ZRANGE z {range}")), up, "{range}");
            let (first, last) = (19 - first, 19 - last);
            let down = format!("*2|$3|m{first:02}|$3|m{last:02}|");
            assert_eq!(node.say(id, &format!("ZREVRANGE z {range}")), down);
        }
        assert_eq!(node.say(id, "ZREMRANGEBYRANK z 3 -1"), ":17|");
        assert_eq!(node.say(id, "ZRANGE z 0 -1"), "*3|$3|m00|$3|m01|$3|m02|");
    });
}
