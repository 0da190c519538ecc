//! Deadlines of hash fields: replies are as in Redis 7.4, and no command sees an expired field
//! ([time-2]).

use quorate_core::slot::Slot;
use quorate_kv::{
    service::Service,
    store::{lsm::LsmStore, memory::MemoryStore},
};
use quorate_replica::service::{CommandId, StateMachine as _};

use crate::{
    common::{Node, check, on_both_stores},
    waiting::group::{image, load},
};

#[test]
fn deadlines_of_fields_are_set_and_read() {
    check(
        "
        HSET h a 1 b 2 c 3 => :3|
        HTTL h FIELDS 2 a nope => *2|:-1|:-2|
        HTTL nope FIELDS 2 a b => *2|:-2|:-2|
        HPEXPIRE nope 100 FIELDS 1 a => *1|:-2|
        HPERSIST nope FIELDS 1 a => *1|:-2|
        HEXPIRE h 100 FIELDS 3 a nope b => *3|:1|:-2|:1|
        HTTL h FIELDS 3 a b c => *3|:100|:100|:-1|
        HPTTL h FIELDS 1 a => *1|:100000|
        HPEXPIRE h 1001 FIELDS 1 a => *1|:1|
        HPTTL h FIELDS 1 a => *1|:1001|
        HTTL h FIELDS 1 a => *1|:2|
        HPERSIST h FIELDS 3 a c nope => *3|:1|:-1|:-2|
        HTTL h FIELDS 1 a => *1|:-1|
        HEXPIREAT h 4000000000 FIELDS 1 a => *1|:1|
        HEXPIRETIME h FIELDS 1 a => *1|:4000000000|
        HPEXPIRETIME h FIELDS 2 a c => *2|:4000000000000|:-1|
        HPEXPIREAT h 4000000000001 FIELDS 1 a => *1|:1|
        HEXPIRETIME h FIELDS 1 a => *1|:4000000001|
        hpexpiretime h fields 1 a => *1|:4000000000001|
        HPEXPIREAT h 70368744177663 FIELDS 1 a => *1|:1|
        HPEXPIRETIME h FIELDS 1 a => *1|:70368744177663|
        HGETALL h => *6|$1|b|$1|2|$1|c|$1|3|$1|a|$1|1|
        HPEXPIRE h 5 FIELDS 2 a a => *2|:1|:1|
        HEXPIRE h 0 FIELDS 3 a nope a => *3|:2|:-2|:-2|
        HEXPIREAT h 1 FIELDS 1 b => *1|:2|
        HLEN h => :1|
        HPEXPIREAT h 0 FIELDS 1 c => *1|:2|
        EXISTS h => :0|
        ",
    );
}

#[test]
fn conditions_are_those_of_redis() {
    check(
        "
        HSET h a 1 b 2 => :2|
        HEXPIRE h 100 XX FIELDS 1 a => *1|:0|
        HEXPIRE h 100 GT FIELDS 1 a => *1|:0|
        HEXPIRE h 100 nx FIELDS 1 a => *1|:1|
        HEXPIRE h 200 NX FIELDS 2 a b => *2|:0|:1|
        HEXPIRE h 100 GT FIELDS 1 a => *1|:0|
        HEXPIRE h 101 GT FIELDS 1 a => *1|:1|
        HEXPIRE h 101 LT FIELDS 1 a => *1|:0|
        HEXPIRE h 99 lt FIELDS 1 a => *1|:1|
        HTTL h FIELDS 2 a b => *2|:99|:200|
        HPERSIST h FIELDS 1 a => *1|:1|
        HEXPIRE h 1000 LT FIELDS 1 a => *1|:1|
        HEXPIRE h 0 GT FIELDS 1 a => *1|:0|
        HEXPIRE h 0 NX FIELDS 1 a => *1|:0|
        HEXPIRE h 0 XX FIELDS 1 a => *1|:2|
        HEXPIRE h 0 LT FIELDS 1 b => *1|:2|
        EXISTS h => :0|
        ",
    );
}

#[test]
fn requests_are_checked_as_redis_does() {
    let missing = "-ERR Mandatory argument FIELDS is missing or not at the right position|";
    let count = "-ERR The `numfields` parameter must match the number of arguments|";
    let positive = "-ERR Number of fields must be a positive integer|";
    let greater = "-ERR Parameter `numFields` should be greater than 0|";
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
    on_both_stores(|node| {
        let one = node.connect();
        node.say(one, "SET s x");
        for (command, reply) in [
            ("HEXPIRE h 1 FIELDS 1", "-ERR wrong number of arguments for 'hexpire' command|"),
            ("HTTL h FIELDS 1", "-ERR wrong number of arguments for 'httl' command|"),
            ("HPERSIST h FIELDS 1", "-ERR wrong number of arguments for 'hpersist' command|"),
            ("HEXPIRE h x FIELDS 1 a", "-ERR value is not an integer or out of range|"),
            ("HEXPIRE h -1 FIELDS 1 a", "-ERR invalid expire time, must be >= 0|"),
            (
                "HPEXPIREAT h 70368744177664 FIELDS 1 a",
                "-ERR invalid expire time in 'hpexpireat' command|",
            ),
            (
                "HEXPIRE h 9223372036854775807 FIELDS 1 a",
                "-ERR invalid expire time in 'hexpire' command|",
            ),
            (
                "HPEXPIRE h 70368744177663 FIELDS 1 a",
                "-ERR invalid expire time in 'hpexpire' command|",
            ),
            ("HEXPIRE h 1 FIELD 1 a", missing),
            ("HEXPIRE h 1 NX XX FIELDS 1 a", missing),
            ("HEXPIRE h 1 FIELDS NX 1 a", greater),
            ("HTTL h 1 FIELDS a", missing),
            ("HPERSIST h a FIELDS 1", missing),
            ("HEXPIRE h 1 FIELDS 0 a", greater),
            ("HEXPIRE h 1 FIELDS x a", greater),
            ("HTTL h FIELDS 0 a", positive),
            ("HPERSIST h FIELDS -1 a", positive),
            ("HEXPIRE h 1 FIELDS 2 a", count),
            ("HEXPIRE h 1 GT FIELDS 1 a b", count),
            ("HTTL h FIELDS 9223372036854775807 a", count),
            ("HPERSIST h FIELDS 3 a b", count),
            ("HEXPIRE s 1 FIELDS 1 a", wrong),
            ("HTTL s FIELDS 1 a", wrong),
            ("HPEXPIRETIME s FIELDS 1 a", wrong),
            ("HPERSIST s FIELDS 1 a", wrong),
        ] {
            assert_eq!(node.say(one, command), reply, "{command}");
        }
    });
}

#[test]
fn what_writes_a_field_keeps_its_deadline_or_takes_it_away() {
    check(
        "
        HSET h a 1 b 2 c 3 d 4 => :4|
        HPEXPIRE h 1000 FIELDS 4 a b c d => *4|:1|:1|:1|:1|
        HSET h a 5 => :0|
        HINCRBY h b 1 => :3|
        HINCRBYFLOAT h c 0.5 => $3|3.5|
        HSETNX h d 9 => :0|
        HPTTL h FIELDS 4 a b c d => *4|:-1|:1000|:1000|:1000|
        HMSET h b 1 => +OK|
        HPTTL h FIELDS 1 b => *1|:-1|
        HDEL h c => :1|
        HSET h c 1 => :1|
        HPTTL h FIELDS 2 c d => *2|:-1|:1000|
        COPY h copy => :1|
        HPTTL copy FIELDS 2 c d => *2|:-1|:1000|
        HDEL h d => :1|
        HPTTL copy FIELDS 1 d => *1|:1000|
        RENAME copy other => +OK|
        HPTTL other FIELDS 2 c d => *2|:-1|:1000|
        HSET h d 1 => :1|
        HPTTL h FIELDS 1 d => *1|:-1|
        ",
    );
}

/// Creates a hash in which `a` and `b` have expired but are still stored, and `c` expires later.
fn half_ended(node: &mut Node) {
    let one = node.connect();
    node.say(one, "FLUSHALL");
    node.say(one, "HSET h a 1 b 22 c 333 d 4444");
    node.say(one, "HPEXPIRE h 10 FIELDS 2 a b");
    node.say(one, "HPEXPIRE h 20 FIELDS 1 c");
    assert!(!node.pass(), "nothing is due");
    node.world.wall_ms += 10;
    // The clock of a single node has no effect.
    assert_eq!(node.say(one, "HPTTL h FIELDS 1 a"), "*1|:0|");
    assert_eq!(node.say(one, "HGET h a"), "$1|1|");
    assert!(node.pass());
}

#[test]
fn a_field_that_has_ended_exists_for_no_command_and_its_removal_changes_no_answer() {
    on_both_stores(|node| {
        let one = node.connect();
        for (command, reply) in [
            ("HGET h a", "$-1|"),
            ("HMGET h a c", "*2|$-1|$3|333|"),
            ("HEXISTS h b", ":0|"),
            ("HSTRLEN h b", ":0|"),
            ("HLEN h", ":2|"),
            ("HTTL h FIELDS 3 a c d", "*3|:-2|:1|:-1|"),
            ("HEXPIRE h 9 FIELDS 2 a d", "*2|:-2|:1|"),
            ("HPERSIST h FIELDS 2 b c", "*2|:-2|:1|"),
            ("HDEL h a b", ":0|"),
            ("HDEL h a c", ":1|"),
            ("HSETNX h a 5", ":1|"),
            ("HSET h a 5 b 6 c 7", ":2|"),
            ("HINCRBY h b 3", ":3|"),
            ("HINCRBYFLOAT h b 2.5", "$3|2.5|"),
            ("HKEYS h", "*2|$1|d|$1|c|"),
            ("HVALS h", "*2|$4|4444|$3|333|"),
            ("HGETALL h", "*4|$1|d|$4|4444|$1|c|$3|333|"),
            ("HSCAN h 0", "*2|$1|0|*4|$1|d|$4|4444|$1|c|$3|333|"),
            ("HRANDFIELD h 9", "*2|$1|d|$1|c|"),
            ("OBJECT ENCODING h", "$8|listpack|"),
            ("TYPE h", "+hash|"),
            ("COPY h i", ":1|"),
        ] {
            for swept in [false, true] {
                half_ended(node);
                if swept {
                    assert_eq!(node.sweep(), 2);
                }
                assert_eq!(node.say(one, command), reply, "{command} {swept}");
                // The removal of expired fields after the command changes no reply either.
                let all = ["HLEN h", "HGETALL h", "HTTL h FIELDS 4 a b c d", "HLEN i"];
                let before = all.map(|command| node.say(one, command));
                node.sweep();
                let after = all.map(|command| node.say(one, command));
                assert_eq!(before, after, "{command} {swept}");
            }
        }
        half_ended(node);
        for _ in 0..20 {
            node.world.wall_ms += 1;
            let drawn = node.say(one, "HRANDFIELD h");
            assert!(["$1|c|", "$1|d|"].contains(&&*drawn), "{drawn}");
            let drawn = node.say(one, "HRANDFIELD h -3");
            assert!(!drawn.contains("|a|") && !drawn.contains("|b|"), "{drawn}");
        }
        half_ended(node);
        node.say(one, "RPUSH l a c");
        let sorted = node.say(one, "SORT l BY nothing GET h->*");
        assert_eq!(sorted, "*2|$-1|$-1|");
        node.say(one, "RPUSH keys h");
        assert_eq!(node.say(one, "SORT keys BY nothing GET *->a"), "*1|$-1|");
        assert_eq!(node.say(one, "SORT keys BY nothing GET *->c"), "*1|$3|333|");
    });
}

#[test]
fn a_new_value_of_a_field_that_ended_has_no_deadline() {
    on_both_stores(|node| {
        let one = node.connect();
        for command in ["HSET h a 9", "HINCRBY h a 9", "HSETNX h a 9"] {
            half_ended(node);
            node.say(one, command);
            assert_eq!(node.say(one, "HGET h a"), "$1|9|", "{command}");
            assert_eq!(node.say(one, "HTTL h FIELDS 1 a"), "*1|:-1|", "{command}");
            assert_eq!(node.say(one, "HLEN h"), ":3|", "{command}");
            assert_eq!(node.sweep(), 1, "{command}");
            assert_eq!(node.say(one, "HLEN h"), ":3|", "{command}");
            assert_eq!(node.say(one, "HGET h a"), "$1|9|", "{command}");
        }
    });
}

#[test]
fn a_hash_ends_with_the_last_of_its_fields() {
    on_both_stores(|node| {
        let one = node.connect();
        let gone = [
            ("EXISTS h", ":0|"),
            ("TYPE h", "+none|"),
            ("HLEN h", ":0|"),
            ("DBSIZE", ":0|"),
            ("KEYS *", "*0|"),
            ("TTL h", ":-2|"),
            ("EXPIRE h 9", ":0|"),
            ("RENAME h i", "-ERR no such key|"),
            ("COPY h i", ":0|"),
        ];
        for swept in [false, true] {
            half_ended(node);
            node.say(one, "HPEXPIRE h 30 FIELDS 1 d");
            assert_eq!(node.say(one, "TTL h"), ":-1|", "the key has none");
            assert_eq!(node.say(one, "PERSIST h"), ":0|");
            node.world.wall_ms += 29;
            assert!(node.pass());
            assert_eq!(node.say(one, "HGETALL h"), "*2|$1|d|$4|4444|");
            node.world.wall_ms += 1;
            assert!(node.pass());
            if swept {
                node.sweep();
            }
            for (command, reply) in gone {
                assert_eq!(node.say(one, command), reply, "{command}");
            }
            node.say(one, "HSET h a 1");
            assert_eq!(node.say(one, "HGETALL h"), "*2|$1|a|$1|1|");
            node.sweep();
            assert_eq!(node.say(one, "HGETALL h"), "*2|$1|a|$1|1|");
        }
        // This also holds if the other fields are deleted, so that only expired ones are left.
        half_ended(node);
        node.say(one, "HDEL h c d");
        for (command, reply) in gone {
            assert_eq!(node.say(one, command), reply, "{command}");
        }
        assert_eq!(node.sweep(), 1);
    });
}

#[test]
fn the_deadline_of_a_key_and_those_of_its_fields_are_apart() {
    on_both_stores(|node| {
        let one = node.connect();
        let start = node.world.wall_ms;
        for (command, reply) in [
            ("HSET h a 1 b 2", ":2|"),
            ("PEXPIRE h 500", ":1|"),
            ("HPEXPIRE h 100 FIELDS 1 a", "*1|:1|"),
            ("PTTL h", ":500|"),
            ("HPEXPIRE h 200 FIELDS 1 b", "*1|:1|"),
            ("PTTL h", ":500|"),
            ("PEXPIRE h 400 GT", ":0|"),
            ("PEXPIRE h 600 GT", ":1|"),
            ("HPTTL h FIELDS 2 a b", "*2|:100|:200|"),
            ("RENAME h i", "+OK|"),
            ("PTTL i", ":600|"),
            ("COPY i h", ":1|"),
            ("PTTL h", ":600|"),
            ("PERSIST h", ":1|"),
            ("PERSIST h", ":0|"),
            ("PTTL h", ":-1|"),
            ("HPERSIST h FIELDS 2 a b", "*2|:1|:1|"),
            ("HPEXPIRE i 900 FIELDS 2 a b", "*2|:1|:1|"),
        ] {
            assert_eq!(node.say(one, command), reply, "{command}");
        }
        node.world.wall_ms = start + 600;
        assert!(node.pass());
        assert_eq!(node.say(one, "EXISTS h i"), ":1|", "its own came first");
        assert_eq!(node.say(one, "HLEN h"), ":2|");
        assert!(!node.pass());
        node.world.wall_ms = start + 10_000;
        assert_eq!(node.sweep(), 1);
        assert!(!node.pass(), "nothing has a deadline any more");
    });
}

#[test]
fn many_fields_are_removed_in_bites_and_hold_nothing_up() {
    on_both_stores(|node| {
        let one = node.connect();
        for from in 0..4 {
            let pairs = (0..500).flat_map(|at| [format!("f{from}-{at}"), "v".to_owned()]);
            let words: Vec<String> =
                ["HSET".to_owned(), "h".to_owned()].into_iter().chain(pairs).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            node.ask(one, &words);
            let fields = (0..500).map(|at| format!("f{from}-{at}"));
            let words: Vec<String> = ["HPEXPIRE", "h", "10", "FIELDS", "500"]
                .map(str::to_owned)
                .into_iter()
                .chain(fields)
                .collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            node.ask(one, &words);
        }
        node.say(one, "HSET h late 1 stays 2");
        node.say(one, "HPEXPIRE h 20 FIELDS 1 late");
        node.world.wall_ms += 10;
        assert!(node.pass());
        assert_eq!(node.say(one, "HLEN h"), ":2|");
        assert_eq!(node.sweep(), 256);
        assert_eq!(node.say(one, "HLEN h"), ":2|");
        // Later fields expire in time even while most expired ones are still stored.
        node.world.wall_ms += 10;
        assert!(node.pass());
        assert_eq!(node.say(one, "HGETALL h"), "*2|$5|stays|$1|2|");
        let mut removed = 256;
        while removed < 2001 {
            let bite = node.sweep();
            assert!((1..=256).contains(&bite), "{bite}");
            removed += bite;
        }
        assert_eq!((removed, node.sweep()), (2001, 0));
        assert!(!node.pass());
        assert_eq!(node.say(one, "HGETALL h"), "*2|$5|stays|$1|2|");
    });
}

#[test]
fn a_field_that_ends_is_a_change_for_watch_and_its_removal_is_none() {
    on_both_stores(|node| {
        let one = node.connect();
        for (ends, swept, runs) in [(false, true, true), (true, false, false), (true, true, false)]
        {
            half_ended(node);
            node.say(one, "WATCH h");
            if ends {
                node.world.wall_ms += 10;
                assert!(node.pass());
            }
            if swept {
                assert!(node.sweep() > 0);
            }
            node.say(one, "MULTI");
            node.say(one, "PING");
            let reply = node.say(one, "EXEC");
            assert_eq!(reply.starts_with("*1|"), runs, "{ends} {swept}: {reply}");
        }
    });
}

/// A loaded snapshot includes the deadlines of fields.
#[test]
fn an_image_brings_the_order_of_deadlines_along() {
    let mut node = Node::memory();
    let one = node.connect();
    node.say(one, "HSET h a 1 b 2");
    node.say(one, "HPEXPIRE h 10 FIELDS 1 a");
    let at = node.world.slot;
    let end_ms = node.world.wall_ms + 10;
    let items = image(&mut node.world.service);
    let folder = tempfile::tempdir().unwrap();
    let (disk, _) = LsmStore::open(&folder.path().join("kv")).unwrap();
    for mut service in [Service::new(Box::new(MemoryStore::new())), Service::new(Box::new(disk))] {
        load(&mut service, &items, at);
        assert_eq!(service.next_deadline(end_ms - 1), None);
        assert_eq!(service.next_deadline(end_ms), Some(end_ms));
        service.set_time(end_ms);
        let mut sweeps = Vec::new();
        service.due(&mut |command| sweeps.push(command.to_vec()));
        let (slot, mut reply) = (Slot(at), Vec::new());
        service.apply(CommandId { slot, index: 0 }, &sweeps[0], &mut reply);
        assert_eq!(reply, b":1\r\n");
    }
}
