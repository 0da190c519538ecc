//! Tests of LCS: replies of a Redis 7.0, and its limit.

use quorate_core::level::Level;

use crate::common::{check_at, on_both_stores};

const LEVEL: Level = Level(10);

#[test]
fn subsequences_are_those_of_redis() {
    check_at(
        LEVEL,
        "
        MSET a ohmytext b mynewtext => +OK|
        LCS a b => $6|mytext|
        LCS a b LEN => :6|
        LCS a b IDX => *4|$7|matches|*2|*2|*2|:4|:7|*2|:5|:8|*2|*2|:2|:3|*2|:0|:1|$3|len|:6|
        LCS a b IDX MINMATCHLEN 4 => *4|$7|matches|*1|*2|*2|:4|:7|*2|:5|:8|$3|len|:6|
        LCS a b IDX MINMATCHLEN 4 WITHMATCHLEN => *4|$7|matches|*1|*3|*2|:4|:7|*2|:5|:8|:4|$3|len|:6|
        LCS a b IDX MINMATCHLEN -1 WITHMATCHLEN => *4|$7|matches|*2|*3|*2|:4|:7|*2|:5|:8|:4|*3|*2|:2|:3|*2|:0|:1|:2|$3|len|:6|
        LCS a b WITHMATCHLEN MINMATCHLEN 4 => $6|mytext|
        LCS a a IDX => *4|$7|matches|*1|*2|*2|:0|:7|*2|:0|:7|$3|len|:8|
        LCS a none => $0||
        LCS none none LEN => :0|
        LCS none a IDX => *4|$7|matches|*0|$3|len|:0|
        LCS a b IDX LEN => -ERR If you want both the length and indexes, please just use IDX.|
        LCS a b MINMATCHLEN => -ERR syntax error|
        LCS a b MINMATCHLEN x => -ERR value is not an integer or out of range|
        LCS a b OTHER => -ERR syntax error|
        LCS a => -ERR wrong number of arguments for 'lcs' command|
        RPUSH l a => :1|
        LCS a l => -ERR The specified keys must contain string values|
        LCS l none LEN => -ERR The specified keys must contain string values|
        ",
    );
}

#[test]
fn strings_of_a_bounded_size_are_compared() {
    on_both_stores(|node| {
        let client = node.connect();
        node.say(client, &format!("MSET a {} b {}", "a".repeat(11_585), "ab".repeat(5793)));
        let refused = "-ERR not executed: LCS, HGETDEL and NOVALUES need feature level 10";
        assert!(node.say(client, "LCS a b").starts_with(refused));
        node.world.level = LEVEL;
        assert!(node.say(client, "LCS a b LEN").starts_with("-TOOBIG not executed: LCS compares"));
        node.say(client, &format!("SET b {}", "ab".repeat(5792)));
        assert_eq!(node.say(client, "LCS a b LEN"), ":5792|");
        node.say(client, "MULTI");
        node.say(client, "LCS a b LEN");
        assert_eq!(node.say(client, "EXEC"), "*1|:5792|");
        let script = "return redis.call('lcs', 'a', 'b', 'len')";
        assert_eq!(node.ask(client, &["EVAL", script, "0"]), ":5792|");
        // One comparison is allowed, many are not.
        let script = "for i = 1, 100 do redis.call('lcs', 'a', 'b', 'len') end";
        let reply = node.ask(client, &["EVAL", script, "0"]);
        assert!(reply.starts_with("-TOOBIG the script was stopped"), "{reply}");
    });
}

/// A row of the table has whole words, so a short string makes it sparse.
#[test]
fn comparisons_with_short_strings_are_bounded() {
    on_both_stores(|node| {
        node.world.level = LEVEL;
        let client = node.connect();
        node.say(client, "SET b b");
        node.say(client, "SETRANGE a 4194303 b");
        assert!(node.say(client, "LCS a b LEN").starts_with("-TOOBIG not executed: LCS compares"));
        node.say(client, "DEL a");
        node.say(client, "SETRANGE a 999999 b");
        assert_eq!(node.say(client, "LCS a b LEN"), ":1|");
        node.say(client, "MULTI");
        (0..10).for_each(|_| drop(node.say(client, "LCS a b LEN")));
        assert!(node.say(client, "EXEC").starts_with("-TOOBIG not executed: "));
    });
}
