//! Tests of HyperLogLogs: replies and values of a Redis 7.0.

use quorate_core::level::Level;

use crate::common::{Node, check_at, on_both_stores, request};

const LEVEL: Level = Level(10);

#[test]
fn counts_are_those_of_redis() {
    check_at(
        LEVEL,
        "
        PFADD h a b c d e f g => :1|
        PFADD h a b => :0|
        PFADD h '' => :1|
        PFCOUNT h => :8|
        PFCOUNT none => :0|
        PFADD n => :1|
        PFADD n => :0|
        PFCOUNT n => :0|
        PFADD i x a => :1|
        PFCOUNT h i none => :9|
        PFMERGE u h i => +OK|
        PFCOUNT u => :9|
        PFMERGE h i => +OK|
        PFCOUNT h => :9|
        PFMERGE e none => +OK|
        PFCOUNT e => :0|
        TYPE h => +string|
        GETRANGE h 0 3 => $4|HYLL|
        EXPIRE h 100 => :1|
        PFADD h z => :1|
        TTL h => :100|
        PFMERGE h i => +OK|
        TTL h => :100|
        ",
    );
}

#[test]
fn other_values_are_refused() {
    check_at(
        LEVEL,
        "
        PFADD h a => :1|
        PFADD i b => :1|
        SET t text => +OK|
        PFADD t a => -WRONGTYPE Key is not a valid HyperLogLog string value.|
        PFCOUNT t => -WRONGTYPE Key is not a valid HyperLogLog string value.|
        PFMERGE t => -WRONGTYPE Key is not a valid HyperLogLog string value.|
        PFMERGE h t => -WRONGTYPE Key is not a valid HyperLogLog string value.|
        PFCOUNT h t => -WRONGTYPE Key is not a valid HyperLogLog string value.|
        APPEND i x => :22|
        PFCOUNT i => -INVALIDOBJ Corrupted HLL object detected|
        PFADD i a => -INVALIDOBJ Corrupted HLL object detected|
        PFADD i => :0|
        PFADD t => -WRONGTYPE Key is not a valid HyperLogLog string value.|
        PFMERGE h i => -INVALIDOBJ Corrupted HLL object detected|
        RPUSH l a => :1|
        PFADD l a => -WRONGTYPE Operation against a key holding the wrong kind of value|
        PFCOUNT l => -WRONGTYPE Operation against a key holding the wrong kind of value|
        PFMERGE h l => -WRONGTYPE Operation against a key holding the wrong kind of value|
        ",
    );
}

/// Adds the numbers below `most`.
fn fill(node: &mut Node, client: quorate_replica::front::ConnectionId, key: &str, most: u32) {
    let numbers: Vec<String> = (0..most).map(|number| number.to_string()).collect();
    for part in numbers.chunks(1000) {
        node.say(client, &format!("PFADD {key} {}", part.join(" ")));
    }
}

#[test]
fn large_counts_are_those_of_redis() {
    on_both_stores(|node| {
        node.world.level = LEVEL;
        let client = node.connect();
        for (key, most, count, bytes) in [
            ("a", 1000, ":1001|", ":1923|"),
            ("b", 5000, ":4985|", ":12304|"),
            ("c", 100_000, ":99565|", ":12304|"),
        ] {
            fill(node, client, key, most);
            assert_eq!(node.say(client, &format!("PFCOUNT {key}")), count);
            assert_eq!(node.say(client, &format!("STRLEN {key}")), bytes);
        }
        assert_eq!(node.say(client, "PFCOUNT a b c"), ":99565|");
        node.say(client, "PFMERGE a c");
        assert_eq!(
            node.say(client, "GETRANGE a 16 99999"),
            node.say(client, "GETRANGE c 16 99999")
        );
    });
}

/// Value that a Redis has written for seven elements.
const OF_REDIS: &[u8] =
    b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80Fm\x80V\x0c\x80D<\x848\x80P\xb1\x84I\x8c\x80Bm\x80BZ";

#[test]
fn values_are_those_of_redis() {
    let mut node = Node::memory();
    node.world.level = LEVEL;
    let client = node.connect();
    node.say(client, "PFADD s a b c d e f g");
    node.feed(client, &request(&[&b"SET"[..], b"r", OF_REDIS]));
    node.settle();
    node.take(client);
    assert_eq!(node.say(client, "GET s"), node.say(client, "GET r"));
    assert_eq!(node.say(client, "PFCOUNT r"), ":7|");
    // A count that Redis has stored in the value is taken, and none is stored.
    node.say(client, "SETRANGE r 8 abcdefg");
    node.say(client, "BITFIELD r SET u8 120 0");
    assert_eq!(node.say(client, "PFCOUNT r"), ":29104508263162465|");
    assert_eq!(node.say(client, "PFCOUNT r none"), ":7|");
    node.say(client, "PFADD r h");
    assert_eq!(node.say(client, "PFCOUNT r"), ":8|");
    assert_eq!(node.say(client, "BITFIELD r GET u8 120"), "*1|:128|");
}

/// Runs of registers that are too few or too many, and headers of other lengths.
#[test]
fn hostile_values_are_refused() {
    let mut node = Node::memory();
    node.world.level = LEVEL;
    let client = node.connect();
    let header = |form| [b"HYLL", &[form][..], &[0; 10], &[0x80]].concat();
    let value = |form, rest: &[u8]| [&header(form)[..], rest].concat();
    let cases: [(Vec<u8>, &str); 9] = [
        (value(1, b""), "-INVALIDOBJ"),
        (value(1, b"\x7f\xff"), ":0|"),
        (value(1, b"\x7f\xff\x00"), "-INVALIDOBJ"),
        (value(1, b"\x7f\xfe"), "-INVALIDOBJ"),
        (value(1, b"\x7f"), "-INVALIDOBJ"),
        (value(2, b"\x7f\xff"), "-WRONGTYPE"),
        (value(0, b"\x7f\xff"), "-WRONGTYPE"),
        (value(0, &[0xff; 12_288]), ":9223372036854775807|"),
        (header(1)[..15].to_vec(), "-WRONGTYPE"),
    ];
    for (value, expected) in cases {
        node.feed(client, &request(&[&b"SET"[..], b"k", &value]));
        node.settle();
        node.take(client);
        for command in ["PFCOUNT k", "PFMERGE d k", "PFADD k a"] {
            let reply = node.say(client, command);
            assert_eq!(reply.starts_with('-'), expected.starts_with('-'), "{command} {reply}");
            if command == "PFCOUNT k" || reply.starts_with('-') {
                assert!(reply.starts_with(expected), "{command} {reply}");
            }
        }
    }
}

/// A value that is named many times is read as often.
#[test]
fn the_number_of_values_is_bounded() {
    on_both_stores(|node| {
        node.world.level = LEVEL;
        let client = node.connect();
        node.say(client, "PFADD h a b c");
        for command in ["PFCOUNT", "PFMERGE"] {
            let words = |times| [vec![command], vec!["h"; times]].concat();
            let reply = node.ask(client, &words(5000));
            assert!(reply.starts_with("-TOOBIG not executed: "), "{reply}");
            let reply = node.ask(client, &words(2000));
            assert!(reply == ":3|" || reply == "+OK|", "{reply}");
        }
    });
}

/// Adding an element unpacks and packs all registers of a sparse value.
#[test]
fn the_number_of_additions_is_bounded() {
    on_both_stores(|node| {
        node.world.level = LEVEL;
        let client = node.connect();
        for (additions, admitted) in [(8000, true), (9000, false)] {
            node.say(client, "MULTI");
            (0..additions).for_each(|_| drop(node.say(client, "PFADD h a")));
            let reply = node.say(client, "EXEC");
            assert_eq!(reply.starts_with("-TOOBIG not executed: "), !admitted, "{reply:.100}");
        }
        // Registers of a dense value are changed in place.
        fill(node, client, "h", 5000);
        node.say(client, "MULTI");
        (0..9000).for_each(|_| drop(node.say(client, "PFADD h a")));
        assert!(node.say(client, "EXEC").starts_with("*9000|"));
    });
}

#[test]
fn counts_in_transactions_and_scripts() {
    on_both_stores(|node| {
        let client = node.connect();
        let refused = "-ERR not executed: HyperLogLogs need feature level 10";
        for command in ["PFADD h a", "PFCOUNT h", "PFMERGE h"] {
            assert!(node.say(client, command).starts_with(refused), "{command}");
        }
        node.world.level = LEVEL;
        node.say(client, "MULTI");
        for command in ["PFADD h a b", "PFCOUNT h", "PFMERGE g h"] {
            node.say(client, command);
        }
        assert_eq!(node.say(client, "EXEC"), "*3|:1|:2|+OK|");
        let script = "redis.call('pfadd', 'g', 'c') return redis.call('pfcount', 'g', 'h')";
        assert_eq!(node.ask(client, &["EVAL", script, "0"]), ":3|");
    });
}
