//! Tests of the sorted set commands, command by command.

use crate::common::{Node, check, on_both_stores};

const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value|";

#[test]
fn members_get_scores() {
    check(
        "
        ZADD z 1 a 2 b => :2|
        ZADD z 3 a 4 c => :1|
        ZADD z CH 3 a 5 c 6 d => :2|
        ZADD z NX 9 a 9 e => :1|
        ZADD z XX 8 a 8 nope => :0|
        ZADD z XX CH 7 a => :1|
        ZADD z GT CH 6 a => :0|
        ZADD z GT CH 8 a => :1|
        ZADD z LT CH 9 a => :0|
        ZADD z LT CH 1 a => :1|
        ZADD z GT 3 new => :1|
        ZSCORE z a => $1|1|
        ZSCORE z nope => $-1|
        ZSCORE nope a => $-1|
        ZMSCORE z a nope c => *3|$1|1|$-1|$1|5|
        ZADD z INCR 1.5 a => $3|2.5|
        ZADD z NX INCR 1 a => $-1|
        ZADD z XX INCR 1 nope => $-1|
        ZADD nope XX INCR 1 a => $-1|
        ZADD nope XX 1 a => :0|
        ZADD z GT INCR -1 a => $-1|
        ZINCRBY z 0.5 a => $1|3|
        ZINCRBY z -2 other => $2|-2|
        ZCARD z => :7|
        ZREM z a nope other => :2|
        ZREM nope a => :0|
        ZCARD z => :5|
        TYPE z => +zset|
        ZADD i +inf a -inf b => :2|
        ZINCRBY i -inf a => -ERR resulting score is not a number (NaN)|
        ZSCORE i a => $3|inf|
        ZREM i a b => :2|
        EXISTS i => :0|
        ZADD z -0 zero => :1|
        ZSCORE z zero => $1|0|
        ZADD z CH 0 zero => :0|
        ZADD f 0.1 a => :1|
        ZINCRBY f 0.2 a => $19|0.30000000000000004|
        ZADD f 1e20 b 123456789012 c => :2|
        ZMSCORE f b c => *2|$5|1e+20|$12|123456789012|
        ",
    );
}

#[test]
fn requests_are_checked_as_redis_does() {
    check(
        "
        ZADD z 1 => -ERR wrong number of arguments for 'zadd' command|
        ZADD z NX 1 => -ERR syntax error|
        ZADD z 1 a 2 => -ERR syntax error|
        ZADD z NX XX 1 a => -ERR XX and NX options at the same time are not compatible|
        ZADD z GT LT 1 a => -ERR GT, LT, and/or NX options at the same time are not compatible|
        ZADD z NX GT 1 a => -ERR GT, LT, and/or NX options at the same time are not compatible|
        ZADD z INCR 1 a 2 b => -ERR INCR option supports a single increment-element pair|
        ZADD z x a => -ERR value is not a valid float|
        ZADD z nan a => -ERR value is not a valid float|
        ZADD z 1 a x b => -ERR value is not a valid float|
        EXISTS z => :0|
        ZINCRBY z x a => -ERR value is not a valid float|
        ZCOUNT z x 1 => -ERR min or max is not a float|
        ZLEXCOUNT z x y => -ERR min or max not valid string range item|
        ZRANGE z 0 x => -ERR value is not an integer or out of range|
        ZRANGE z 0 1 LIMIT 0 1 => -ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX|
        ZREVRANGE z 0 1 LIMIT 0 1 => -ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX|
        ZRANGE z [a [b BYLEX WITHSCORES => -ERR syntax error, WITHSCORES not supported in combination with BYLEX|
        ZRANGE z 0 1 NONSENSE => -ERR syntax error|
        ZREVRANGE z 0 1 REV => -ERR syntax error|
        ZRANGEBYSCORE z 0 1 BYLEX => -ERR syntax error|
        ZRANGE z 0 1 BYSCORE LIMIT 0 => -ERR syntax error|
        ZRANGE z 0 1 BYSCORE LIMIT 0 x => -ERR value is not an integer or out of range|
        ZRANK z a WITHSCORES => -ERR syntax error|
        ZRANK z a b c => -ERR wrong number of arguments for 'zrank' command|
        ZPOPMIN z -1 => -ERR value is out of range, must be positive|
        ZPOPMIN z 1 2 => -ERR syntax error|
        ZMPOP 0 z MIN => -ERR numkeys should be greater than 0|
        ZMPOP 1 z UP => -ERR syntax error|
        ZMPOP 1 z MIN COUNT 0 => -ERR count should be greater than 0|
        ZUNION 0 z => -ERR at least 1 input key is needed for 'zunion' command|
        ZUNION x z => -ERR value is not an integer or out of range|
        ZUNION 2 z => -ERR syntax error|
        ZUNIONSTORE d 0 z => -ERR at least 1 input key is needed for 'zunionstore' command|
        ZUNION 1 z WEIGHTS x => -ERR weight value is not a float|
        ZUNION 1 z AGGREGATE avg => -ERR syntax error|
        ZDIFF 1 z WEIGHTS 1 => -ERR syntax error|
        ZUNIONSTORE d 1 z WITHSCORES => -ERR syntax error|
        ZRANDMEMBER z 1 WITHVALUES => -ERR syntax error|
        ",
    );
}

#[test]
fn ranges_are_by_rank_score_and_name() {
    check(
        "
        ZADD z 1 a 2 b 2 c 3 d 4 e => :5|
        ZRANGE z 0 -1 => *5|$1|a|$1|b|$1|c|$1|d|$1|e|
        ZRANGE z 1 2 WITHSCORES => *4|$1|b|$1|2|$1|c|$1|2|
        ZRANGE z -2 -1 => *2|$1|d|$1|e|
        ZRANGE z 4 1 => *0|
        ZREVRANGE z 0 1 WITHSCORES => *4|$1|e|$1|4|$1|d|$1|3|
        ZRANGE z 0 1 REV => *2|$1|e|$1|d|
        ZRANGE nope 0 -1 => *0|
        ZRANGEBYSCORE z 2 3 => *3|$1|b|$1|c|$1|d|
        ZRANGEBYSCORE z (2 3 => *1|$1|d|
        ZRANGE z ( (2 BYSCORE => *1|$1|a|
        ZRANGEBYSCORE z 2 (3 => *2|$1|b|$1|c|
        ZRANGEBYSCORE z -inf +inf LIMIT 1 2 => *2|$1|b|$1|c|
        ZRANGEBYSCORE z -inf +inf LIMIT -1 2 => *0|
        ZRANGEBYSCORE z -inf +inf LIMIT 3 -1 => *2|$1|d|$1|e|
        ZREVRANGEBYSCORE z 3 2 WITHSCORES => *6|$1|d|$1|3|$1|c|$1|2|$1|b|$1|2|
        ZRANGE z 3 (2 BYSCORE REV => *1|$1|d|
        ZCOUNT z 2 3 => :3|
        ZCOUNT z (2 +inf => :2|
        ZCOUNT nope 0 1 => :0|
        ZRANK z a => :0|
        ZRANK z e => :4|
        ZREVRANK z e => :0|
        ZRANK z nope => $-1|
        ZRANK nope a => $-1|
        ZRANK z c WITHSCORE => *2|:2|$1|2|
        ZRANK z nope WITHSCORE => *-1|
        ZADD n 0 a 0 b 0 c 0 d => :4|
        ZRANGEBYLEX n - + => *4|$1|a|$1|b|$1|c|$1|d|
        ZRANGEBYLEX n [b (d => *2|$1|b|$1|c|
        ZRANGEBYLEX n (b + LIMIT 1 1 => *1|$1|d|
        ZREVRANGEBYLEX n [c [b => *2|$1|c|$1|b|
        ZRANGEBYLEX n + - => *0|
        ZLEXCOUNT n [b + => :3|
        ZREMRANGEBYLEX n [b [c => :2|
        ZREMRANGEBYSCORE z 2 2 => :2|
        ZREMRANGEBYRANK z 0 0 => :1|
        ZRANGE z 0 -1 => *2|$1|d|$1|e|
        ZREMRANGEBYRANK z 0 -1 => :2|
        EXISTS z => :0|
        ZREMRANGEBYRANK z 0 -1 => :0|
        ",
    );
}

#[test]
fn members_are_popped_and_stored() {
    check(
        "
        ZADD z 1 a 2 b 3 c 4 d => :4|
        ZPOPMIN z => *2|$1|a|$1|1|
        ZPOPMAX z 2 => *4|$1|d|$1|4|$1|c|$1|3|
        ZPOPMIN z 0 => *0|
        ZPOPMIN z 9 => *2|$1|b|$1|2|
        EXISTS z => :0|
        ZPOPMIN z => *0|
        ZADD z 1 a 2 b => :2|
        ZMPOP 2 nope z MIN => *2|$1|z|*1|*2|$1|a|$1|1|
        ZMPOP 1 z MAX COUNT 5 => *2|$1|z|*1|*2|$1|b|$1|2|
        ZMPOP 1 z MAX => *-1|
        ZADD z 1 a 2 b 3 c => :3|
        ZRANGESTORE d z 0 1 => :2|
        ZRANGE d 0 -1 WITHSCORES => *4|$1|a|$1|1|$1|b|$1|2|
        ZRANGESTORE d z 2 +inf BYSCORE LIMIT 1 1 => :1|
        ZRANGESTORE z z 5 6 => :0|
        EXISTS z => :0|
        ZRANDMEMBER d => $1|c|
        ZRANDMEMBER d -2 WITHSCORES => *4|$1|c|$1|3|$1|c|$1|3|
        ZRANDMEMBER nope => $-1|
        ZRANDMEMBER nope 2 => *0|
        ZSCAN d 0 => *2|$1|0|*2|$1|c|$1|3|
        ",
    );
}

#[test]
fn sorted_sets_are_combined() {
    check(
        "
        ZADD a 1 x 2 y => :2|
        ZADD b 10 y 20 z => :2|
        SADD s x y => :2|
        ZUNION 2 a b WITHSCORES => *6|$1|x|$1|1|$1|y|$2|12|$1|z|$2|20|
        ZINTER 2 a b WITHSCORES => *2|$1|y|$2|12|
        ZDIFF 2 a b WITHSCORES => *2|$1|x|$1|1|
        ZINTER 2 a s WITHSCORES => *4|$1|x|$1|2|$1|y|$1|3|
        ZUNION 2 a b WEIGHTS 2 0.5 AGGREGATE MAX WITHSCORES => *6|$1|x|$1|2|$1|y|$1|5|$1|z|$2|10|
        ZUNION 1 nope => *0|
        ZUNIONSTORE d 2 a b => :3|
        ZINTERSTORE d 2 a b AGGREGATE MIN => :1|
        ZRANGE d 0 -1 WITHSCORES => *2|$1|y|$1|2|
        ZDIFFSTORE d 2 a b => :1|
        ZINTERSTORE d 2 a nope => :0|
        EXISTS d => :0|
        ZINTERCARD 2 a s => :2|
        ZINTERCARD 0 a => -ERR at least 1 input key is needed for 'zintercard' command|
        ZINTERCARD x a => -ERR value is not an integer or out of range|
        ZINTERCARD 3 a s => -ERR syntax error|
        ZINTERCARD 2 a s LIMIT 1 => :1|
        ZADD p inf m => :1|
        ZADD q -inf m => :1|
        ZUNION 2 p q WITHSCORES => *2|$1|m|$1|0|
        ZUNION 1 p WEIGHTS 0 WITHSCORES => *2|$1|m|$1|0|
        ",
    );
}

#[test]
fn other_types_are_refused() {
    for command in [
        "ZADD k 1 a",
        "ZADD k XX 1 a",
        "ZINCRBY k 1 a",
        "ZREM k a",
        "ZSCORE k a",
        "ZMSCORE k a",
        "ZCARD k",
        "ZRANK k a",
        "ZCOUNT k 0 1",
        "ZLEXCOUNT k - +",
        "ZRANGE k 0 1",
        "ZRANGESTORE d k 0 1",
        "ZREMRANGEBYRANK k 0 1",
        "ZPOPMIN k",
        "ZMPOP 2 k z MIN",
        "ZRANDMEMBER k",
        "ZSCAN k 0",
        "ZUNION 2 z k",
        "ZINTERSTORE d 2 nope k",
        "ZINTERCARD 1 k",
        "GET z",
        "SADD z a",
        "HSET z a 1",
    ] {
        on_both_stores(|node| {
            let client = node.connect();
            node.say(client, "RPUSH k x");
            node.say(client, "ZADD z 1 a");
            assert_eq!(node.say(client, command), WRONG, "{command}");
            assert_eq!(node.say(client, "ZCARD z"), ":1|");
            assert_eq!(node.say(client, "EXISTS d"), ":0|");
        });
    }
}

#[test]
fn ranks_are_found_from_both_ends() {
    on_both_stores(|node| {
        let client = node.connect();
        for number in 0..1500 {
            node.feed(client, format!("ZADD z {number} m{number}\r\n").as_bytes());
            if number % 200 == 0 {
                node.settle();
            }
        }
        node.settle();
        node.take(client);
        for number in [0, 1, 254, 255, 256, 257, 700, 1243, 1244, 1245, 1498, 1499] {
            let rank = node.say(client, &format!("ZRANK z m{number}"));
            assert_eq!(rank, format!(":{number}|"));
            let rank = node.say(client, &format!("ZREVRANK z m{number}"));
            assert_eq!(rank, format!(":{}|", 1499 - number));
            let found = node.say(client, &format!("ZRANGE z {number} {number}"));
            assert!(found.ends_with(&format!("|m{number}|")), "{found}");
            let found = node.say(client, &format!("ZREVRANGE z {number} {number}"));
            assert!(found.ends_with(&format!("|m{}|", 1499 - number)), "{found}");
        }
    });
}

#[test]
fn resp3_has_doubles_and_pairs() {
    let mut node = Node::memory();
    let client = node.connect();
    node.say(client, "HELLO 3");
    node.say(client, "ZADD z 1.5 a 2 b");
    assert_eq!(node.say(client, "ZSCORE z a"), ",1.5|");
    assert_eq!(node.say(client, "ZADD z INCR 1 a"), ",2.5|");
    assert_eq!(node.say(client, "ZRANGE z 0 -1 WITHSCORES"), "*2|*2|$1|b|,2|*2|$1|a|,2.5|");
    assert_eq!(node.say(client, "ZPOPMIN z"), "*2|$1|b|,2|");
    assert_eq!(node.say(client, "ZPOPMIN z 1"), "*1|*2|$1|a|,2.5|");
    assert_eq!(node.say(client, "ZRANK z a WITHSCORE"), "_|");
    assert_eq!(node.say(client, "ZSCAN z 0"), "*2|$1|0|*0|");
}

fn member(number: u32) -> String {
    format!("m{number:04}")
}

fn members(numbers: &[u32]) -> String {
    let items: String = numbers.iter().map(|number| format!("$5|{}|", member(*number))).collect();
    format!("*{}|{items}", numbers.len())
}

/// Ranks and offsets are correct in a set of several thousand members. One store counts rows per
/// subtree; the other walks over the rows.
#[test]
fn ranks_and_offsets_are_right_in_large_sets() {
    on_both_stores(|node| {
        let client = node.connect();
        for from in (0..3000).step_by(500) {
            let pairs = |divisor: u32| {
                let pair = |number| format!("{} {}", number / divisor, member(number));
                (from..from + 500).map(pair).collect::<Vec<_>>().join(" ")
            };
            assert_eq!(node.say(client, &format!("ZADD z {}", pairs(7))), ":500|");
            assert_eq!(node.say(client, &format!("ZADD same {}", pairs(9999))), ":500|");
        }
        let mut said = |text: &str| node.say(client, text);
        for number in [0, 1, 6, 7, 1499, 1500, 2998, 2999] {
            let name = member(number);
            assert_eq!(said(&format!("ZRANK z {name}")), format!(":{number}|"));
            assert_eq!(said(&format!("ZREVRANK z {name}")), format!(":{}|", 2999 - number));
        }
        for (asked, expected) in [
            ("ZRANGE z 1500 1502", &[1500, 1501, 1502][..]),
            ("ZRANGE z 1500 1502 REV", &[1499, 1498, 1497]),
            ("ZRANGE z -2 -1", &[2998, 2999]),
            ("ZRANGE z 2999 5000 REV", &[0]),
            ("ZRANGE z 3000 5000", &[]),
            ("ZRANGEBYSCORE z 10 20 LIMIT 30 2", &[100, 101]),
            ("ZRANGEBYSCORE z 10 20 LIMIT 76 2", &[146]),
            ("ZRANGEBYSCORE z 10 20 LIMIT 77 2", &[]),
            ("ZRANGEBYSCORE z 20 10 LIMIT 1 2", &[]),
            ("ZREVRANGEBYSCORE z 20 (10 LIMIT 30 2", &[116, 115]),
            ("ZREVRANGEBYSCORE z 20 (10 LIMIT 69 2", &[77]),
            ("ZREVRANGEBYSCORE z 20 (10 LIMIT 70 2", &[]),
            ("ZRANGEBYLEX same (m0100 + LIMIT 50 1", &[151]),
            ("ZRANGEBYLEX same [m0100 (m0102", &[100, 101]),
            ("ZREVRANGEBYLEX same + - LIMIT 10 1", &[2989]),
            ("ZRANGEBYLEX same - - LIMIT 1 1", &[]),
            ("ZRANGEBYLEX z [m2000 + LIMIT 5 1", &[2005]),
        ] {
            assert_eq!(said(asked), members(expected), "{asked}");
        }
        for (asked, expected) in [
            ("ZCOUNT z (10 20", 70),
            ("ZCOUNT z 20 10", 0),
            ("ZCOUNT z -inf +inf", 3000),
            ("ZLEXCOUNT same [m0100 (m0200", 100),
            ("ZLEXCOUNT same + -", 0),
            ("ZLEXCOUNT same - +", 3000),
            ("ZLEXCOUNT z [m0100 (m0200", 100),
            ("ZREMRANGEBYRANK z 100 199", 100),
            ("ZRANK z m0200", 100),
            ("ZREVRANK z m0099", 2800),
            ("ZREMRANGEBYSCORE z 100 +inf", 2300),
            ("ZRANK z m0699", 599),
            ("ZCOUNT z 0 1000", 600),
        ] {
            assert_eq!(said(asked), format!(":{expected}|"), "{asked}");
        }
    });
}
