//! Tests of the stream commands, command by command.

use quorate_core::level::Level;
use quorate_replica::front::ConnectionId;

use crate::common::{Node, on_both_stores};

const MAX: &str = "18446744073709551615";
const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
const INVALID: &str = "-ERR Invalid stream ID specified as stream command argument|";
const SMALLER: &str =
    "-ERR The ID specified in XADD is equal or smaller than the target stream top item|";

/// Runs a test on both stores, in a group that knows streams.
pub(super) fn on_both(test: impl Fn(&mut Node)) {
    on_both_stores(|node| {
        node.world.level = Level(10);
        test(node);
    });
}

/// Runs a script of lines `command => reply` on one connection. `HIGHEST` stands for the highest
/// number.
fn check(script: &str) {
    on_both(|node| {
        let client = node.connect();
        check_on(node, client, script);
    });
}

fn check_on(node: &mut Node, client: ConnectionId, script: &str) {
    for line in script.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.replace("HIGHEST", MAX).replace("WRONGTYPE", WRONG_TYPE);
        let (command, expected) = line.split_once("=>").expect("command => reply");
        let reply = node.say(client, command);
        let expected = match expected.trim() {
            "INVALID" => INVALID,
            "SMALLER" => SMALLER,
            expected => expected,
        };
        assert_eq!(reply, expected, "{command}");
    }
}

/// Adds entries `ms-0` with a field.
fn fill(node: &mut Node, client: ConnectionId, key: &str, ids: std::ops::Range<u64>) {
    for ms in ids {
        node.say(client, &format!("XADD {key} {ms}-0 f {ms}"));
    }
}

/// Returns the ids in a reply of XRANGE.
pub(super) fn ids(node: &mut Node, client: ConnectionId, command: &str) -> Vec<String> {
    let reply = node.say(client, command);
    let is_id = |line: &&str| line.contains('-') && !line.starts_with(['*', '$', '-']);
    reply.split('|').filter(is_id).map(str::to_owned).collect()
}

#[test]
fn ids_increase() {
    check(
        "
        XADD s 1-1 a b => $3|1-1|
        XADD s 1-1 a b => SMALLER
        XADD s 1-0 a b => SMALLER
        XADD s 0-5 a b => SMALLER
        XADD s 1-2 a b => $3|1-2|
        XADD s 2 a b => $3|2-0|
        XADD s 2-* a b => $3|2-1|
        XADD s 5-* a b => $3|5-0|
        XADD s 3-* a b => SMALLER
        XADD s 5-HIGHEST a b => $22|5-HIGHEST|
        XADD s 5-* a b => SMALLER
        XADD s 6-* a b => $3|6-0|
        XLEN s => :7|
        XADD zero 0-0 a b => -ERR The ID specified in XADD must be greater than 0-0|
        XADD zero 0 a b => -ERR The ID specified in XADD must be greater than 0-0|
        EXISTS zero => :0|
        XADD zero 0-* a b => $3|0-1|
        XADD s - a b => INVALID
        XADD s + a b => INVALID
        XADD s x a b => INVALID
        XADD s 1-x a b => INVALID
        XADD s -* a b => INVALID
        XADD s 7-0 a => -ERR wrong number of arguments for 'xadd' command|
        XADD s 7-0 a b c => -ERR wrong number of arguments for 'xadd' command|
        XADD s MAXLEN 5 a b => INVALID
        XADD s MAXLEN 5 NOMKSTREAM => -ERR wrong number of arguments for 'xadd' command|
        XADD last HIGHEST-HIGHEST a b => $41|HIGHEST-HIGHEST|
        XADD last * a b => -ERR The stream has exhausted the last possible ID, unable to add more items|
        XADD last HIGHEST-* a b => -ERR The stream has exhausted the last possible ID, unable to add more items|
        XADD last 1-1 a b => -ERR The stream has exhausted the last possible ID, unable to add more items|
        XLEN last => :1|
        XLEN nope => :0|
        XADD nope NOMKSTREAM 1-1 a b => $-1|
        EXISTS nope => :0|
        XADD s NOMKSTREAM 7-1 a b => $3|7-1|
        SET text x => +OK|
        XADD text 1-1 a b => WRONGTYPE
        XLEN text => WRONGTYPE
        ",
    );
}

/// The clock of the front gives the milliseconds of an automatic id, even if the group's time
/// stands still, and a clock that stands still or goes back gives higher numbers.
#[test]
fn automatic_ids_follow_the_clock_and_never_go_back() {
    on_both(|node| {
        let client = node.connect();
        let add = |node: &mut Node| node.say(client, "XADD s * a b");
        assert_eq!(add(node), "$9|1000000-0|");
        assert_eq!(add(node), "$9|1000000-1|");
        node.world.wall_ms += 5;
        assert_eq!(add(node), "$9|1000005-0|");
        node.world.wall_ms -= 2;
        assert_eq!(add(node), "$9|1000005-1|");
        node.say(client, &format!("XADD s 1000009-{MAX} a b"));
        assert_eq!(add(node), "$9|1000010-0|");
        // The group's time counts if it is later, as for a node whose clock is behind.
        node.say(client, "SET k v PXAT 2000000");
        node.world.wall_ms = 2_000_000;
        assert!(node.pass());
        node.world.wall_ms = 1_500_000;
        assert_eq!(add(node), "$9|2000000-0|");
        assert_eq!(node.say(client, "XADD fresh * a b"), "$9|2000000-0|");
    });
}

#[test]
fn ranges_are_those_of_redis() {
    check(
        "
        XADD s 1-1 a 1 => $3|1-1|
        XADD s 1-2 b 2 c 3 => $3|1-2|
        XADD s 2-0 d 4 => $3|2-0|
        XRANGE s - + => *3|*2|$3|1-1|*2|$1|a|$1|1|*2|$3|1-2|*4|$1|b|$1|2|$1|c|$1|3|*2|$3|2-0|*2|$1|d|$1|4|
        XRANGE s 1-2 1-2 => *1|*2|$3|1-2|*4|$1|b|$1|2|$1|c|$1|3|
        XRANGE s (1-2 + => *1|*2|$3|2-0|*2|$1|d|$1|4|
        XRANGE s - (1-2 => *1|*2|$3|1-1|*2|$1|a|$1|1|
        XRANGE s 1 1 COUNT 1 => *1|*2|$3|1-1|*2|$1|a|$1|1|
        XRANGE s 2 1 => *0|
        XRANGE s - + COUNT 0 => *-1|
        XRANGE s - + COUNT -5 => *-1|
        XRANGE nope - + COUNT 0 => *0|
        XRANGE s - + COUNT 1 COUNT 2 => *2|*2|$3|1-1|*2|$1|a|$1|1|*2|$3|1-2|*4|$1|b|$1|2|$1|c|$1|3|
        XREVRANGE s + - COUNT 1 => *1|*2|$3|2-0|*2|$1|d|$1|4|
        XREVRANGE s 1 1 => *2|*2|$3|1-2|*4|$1|b|$1|2|$1|c|$1|3|*2|$3|1-1|*2|$1|a|$1|1|
        XREVRANGE s (2-0 (1-1 => *1|*2|$3|1-2|*4|$1|b|$1|2|$1|c|$1|3|
        XREVRANGE s - + => *0|
        XRANGE s (- + => INVALID
        XRANGE s - (+ => INVALID
        XRANGE s ( + => INVALID
        XRANGE s (HIGHEST-HIGHEST + => -ERR invalid start ID for the interval|
        XRANGE s - (0-0 => -ERR invalid end ID for the interval|
        XRANGE s - + COUNT => -ERR syntax error|
        XRANGE s - + COUNT x => -ERR value is not an integer or out of range|
        XRANGE s - + LIMIT 1 => -ERR syntax error|
        XRANGE s x + => INVALID
        XRANGE s - => -ERR wrong number of arguments for 'xrange' command|
        SET text x => +OK|
        XRANGE text - + => WRONGTYPE
        XREVRANGE text + - => WRONGTYPE
        ",
    );
}

#[test]
fn options_of_trimming_are_read_as_redis_does() {
    check(
        "
        XTRIM s MAXLEN 1 => :0|
        XTRIM s MAXLEN -1 => -ERR The MAXLEN argument must be >= 0.|
        XTRIM s MAXLEN x => -ERR value is not an integer or out of range|
        XTRIM s MAXLEN ~ => -ERR value is not an integer or out of range|
        XTRIM s MINID x => INVALID
        XTRIM s MINID - => INVALID
        XTRIM s LIMIT 5 => -ERR syntax error, LIMIT cannot be used without specifying a trimming strategy|
        XTRIM s LIMIT 0 => -ERR syntax error, XTRIM must be called with a trimming strategy|
        XTRIM s MAXLEN 5 LIMIT 5 => -ERR syntax error, LIMIT cannot be used without the special ~ option|
        XTRIM s MAXLEN = 5 LIMIT 5 => -ERR syntax error, LIMIT cannot be used without the special ~ option|
        XTRIM s MAXLEN ~ 5 LIMIT -1 => -ERR The LIMIT argument must be >= 0.|
        XTRIM s MAXLEN ~ 5 LIMIT x => -ERR value is not an integer or out of range|
        XTRIM s MAXLEN 5 MINID 5 => -ERR syntax error, MAXLEN and MINID options at the same time are not compatible|
        XTRIM s NOMKSTREAM MAXLEN 5 => -ERR syntax error|
        XTRIM s SIZE 5 => -ERR syntax error|
        XTRIM s MAXLEN => -ERR wrong number of arguments for 'xtrim' command|
        XADD s LIMIT 5 * a b => -ERR syntax error, LIMIT cannot be used without specifying a trimming strategy|
        XADD s LIMIT 0 * a b => -ERR syntax error, LIMIT cannot be used without the special ~ option|
        XADD s MAXLEN 5 LIMIT 5 * a b => -ERR syntax error, LIMIT cannot be used without the special ~ option|
        SET text x => +OK|
        XTRIM text MAXLEN 5 => WRONGTYPE
        XTRIM s maxlen ~ 5 limit 5 => :0|
        ",
    );
}

#[test]
fn streams_are_trimmed_to_a_length_or_from_an_id() {
    on_both(|node| {
        let client = node.connect();
        fill(node, client, "s", 1..11);
        for (command, reply, first) in [
            ("XTRIM s MAXLEN 20", ":0|", "1-0"),
            ("XTRIM s MAXLEN = 9", ":1|", "2-0"),
            ("XTRIM s MAXLEN ~ 4 LIMIT 2", ":2|", "4-0"),
            ("XTRIM s MAXLEN ~ 6 LIMIT 0", ":1|", "5-0"),
            ("XTRIM s MINID 5-0", ":0|", "5-0"),
            ("XTRIM s MINID 5-1", ":1|", "6-0"),
            ("XTRIM s MINID ~ 20 LIMIT 1", ":1|", "7-0"),
            ("XADD s MAXLEN 3 11-0 f 11", "$4|11-0|", "9-0"),
            ("XADD s MINID = 10 12-0 f 12", "$4|12-0|", "10-0"),
            ("XADD s MAXLEN ~ 1 LIMIT 1 13-0 f 13", "$4|13-0|", "11-0"),
        ] {
            assert_eq!(node.say(client, command), reply, "{command}");
            assert_eq!(ids(node, client, "XRANGE s - + COUNT 1"), [first], "{command}");
        }
        assert_eq!(ids(node, client, "XRANGE s - +"), ["11-0", "12-0", "13-0"]);
        // Even the added entry may go, and the stream remains.
        assert_eq!(node.say(client, "XADD s MAXLEN 0 14-0 f 14"), "$4|14-0|");
        assert_eq!(node.say(client, "XADD s MINID 20 15-0 f 15"), "$4|15-0|");
        assert_eq!(node.say(client, "XLEN s"), ":0|");
        assert_eq!(node.say(client, "XADD s 15-0 f 15"), SMALLER);
        assert_eq!(node.say(client, "XADD new MAXLEN 0 15-0 f 15"), "$4|15-0|");
        assert_eq!(node.say(client, "EXISTS s new"), ":2|");
        assert_eq!(node.say(client, "XADD s MAXLEN 1 16-0 f 16"), "$4|16-0|");
        assert_eq!(ids(node, client, "XRANGE s - +"), ["16-0"]);
    });
}

/// Gaps between ids and removed entries do not confuse the place of the first entry.
#[test]
fn first_entry_is_known_after_any_removal() {
    on_both(|node| {
        let client = node.connect();
        check_on(
            node,
            client,
            "
            XADD s 1-1 a b => $3|1-1|
            XADD s 5-1 a b => $3|5-1|
            XADD s 9-1 a b => $3|9-1|
            XADD s 12-1 a b => $4|12-1|
            XDEL s 5-1 => :1|
            XDEL s 1-1 => :1|
            XADD s MAXLEN 2 20-1 a b => $4|20-1|
            XTRIM s MAXLEN 1 => :1|
            ",
        );
        let info = node.say(client, "XINFO STREAM s");
        assert!(info.contains("recorded-first-entry-id|$4|20-1|"), "{info}");
        assert!(info.contains("first-entry|*2|$4|20-1|"), "{info}");
        node.say(client, "XDEL s 20-1");
        let info = node.say(client, "XINFO STREAM s");
        assert!(info.contains("recorded-first-entry-id|$3|0-0|"), "{info}");
        assert!(info.contains("first-entry|$-1|$10|last-entry|$-1|"), "{info}");
    });
}

#[test]
fn entries_are_deleted() {
    check(
        "
        XADD s 1-1 a b => $3|1-1|
        XADD s 2-1 a b => $3|2-1|
        XADD s 3-1 a b => $3|3-1|
        XDEL s 2-1 2-1 9-9 => :1|
        XRANGE s - + => *2|*2|$3|1-1|*2|$1|a|$1|b|*2|$3|3-1|*2|$1|a|$1|b|
        XDEL s 3-1 x => INVALID
        XLEN s => :2|
        XDEL nope 1-1 => :0|
        XINFO STREAM s => *20|$6|length|:2|$15|radix-tree-keys|:1|$16|radix-tree-nodes|:2|$17|last-generated-id|$3|3-1|$20|max-deleted-entry-id|$3|2-1|$13|entries-added|:3|$23|recorded-first-entry-id|$3|1-1|$6|groups|:0|$11|first-entry|*2|$3|1-1|*2|$1|a|$1|b|$10|last-entry|*2|$3|3-1|*2|$1|a|$1|b|
        XDEL s 1-1 3-1 => :2|
        EXISTS s => :1|
        TYPE s => +stream|
        XINFO STREAM s => *20|$6|length|:0|$15|radix-tree-keys|:0|$16|radix-tree-nodes|:1|$17|last-generated-id|$3|3-1|$20|max-deleted-entry-id|$3|3-1|$13|entries-added|:3|$23|recorded-first-entry-id|$3|0-0|$6|groups|:0|$11|first-entry|$-1|$10|last-entry|$-1|
        XADD s 3-1 a b => SMALLER
        SET text x => +OK|
        XDEL text 1-1 => WRONGTYPE
        ",
    );
}

#[test]
fn last_id_is_set() {
    check(
        "
        XSETID s 1-1 => -ERR no such key|
        XADD s 5-1 a b => $3|5-1|
        XADD s 6-1 a b => $3|6-1|
        XSETID s 200-0 => +OK|
        XADD s 199-0 a b => SMALLER
        XSETID s 6-1 ENTRIESADDED 10 MAXDELETEDID 6-0 => +OK|
        XSETID s 6-0 => -ERR The ID specified in XSETID is smaller than the target stream top item|
        XSETID s 5-0 => -ERR The ID specified in XSETID is smaller than current max_deleted_entry_id|
        XSETID s 7-0 MAXDELETEDID 8-0 => -ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id|
        XSETID s 7-0 ENTRIESADDED 1 => -ERR The entries_added specified in XSETID is smaller than the target stream length|
        XSETID s 7-0 ENTRIESADDED -1 => -ERR entries_added must be positive|
        XSETID s 7-0 ENTRIESADDED x => -ERR value is not an integer or out of range|
        XSETID s 7-0 ENTRIESADDED => -ERR syntax error|
        XSETID s 7-0 MAXDELETEDID - => INVALID
        XSETID s - => INVALID
        XDEL s 5-1 6-1 => :2|
        XSETID s 6-1 ENTRIESADDED 0 => +OK|
        XSETID s 6-0 => -ERR The ID specified in XSETID is smaller than current max_deleted_entry_id|
        XADD s 6-2 a b => $3|6-2|
        SET text x => +OK|
        XSETID text 1-1 => WRONGTYPE
        ",
    );
}

#[test]
fn several_streams_are_read() {
    check(
        "
        XADD s 1-1 a 1 => $3|1-1|
        XADD s 1-2 b 2 => $3|1-2|
        XADD t 5-1 c 3 => $3|5-1|
        XREAD STREAMS s 0 => *1|*2|$1|s|*2|*2|$3|1-1|*2|$1|a|$1|1|*2|$3|1-2|*2|$1|b|$1|2|
        XREAD COUNT 1 STREAMS s nope t 0 0 0 => *2|*2|$1|s|*1|*2|$3|1-1|*2|$1|a|$1|1|*2|$1|t|*1|*2|$3|5-1|*2|$1|c|$1|3|
        XREAD STREAMS s t 1-2 5 => *1|*2|$1|t|*1|*2|$3|5-1|*2|$1|c|$1|3|
        XREAD STREAMS s t $ $ => *-1|
        XREAD STREAMS s t HIGHEST-HIGHEST 5-1 => *-1|
        XREAD COUNT 0 STREAMS t 0 => *1|*2|$1|t|*1|*2|$3|5-1|*2|$1|c|$1|3|
        XREAD COUNT -1 STREAMS t 0 => *1|*2|$1|t|*1|*2|$3|5-1|*2|$1|c|$1|3|
        XREAD COUNT 1 COUNT 2 STREAMS s 0 => *1|*2|$1|s|*2|*2|$3|1-1|*2|$1|a|$1|1|*2|$3|1-2|*2|$1|b|$1|2|
        XREAD STREAMS s s 1-1 1-1 => *2|*2|$1|s|*1|*2|$3|1-2|*2|$1|b|$1|2|*2|$1|s|*1|*2|$3|1-2|*2|$1|b|$1|2|
        XREAD STREAMS s t 0 => -ERR Unbalanced 'xread' list of streams: for each stream key an ID or '$' must be specified.|
        XREAD STREAMS s > => -ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.|
        XREAD STREAMS s - => INVALID
        XREAD STREAMS s 0-x => INVALID
        XREAD COUNT x STREAMS s 0 => -ERR value is not an integer or out of range|
        XREAD BLOCK x STREAMS s 0 => -ERR timeout is not an integer or out of range|
        XREAD BLOCK -1 STREAMS s 0 => -ERR timeout is negative|
        XREAD NOACK STREAMS s 0 => -ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.|
        XREAD GROUP g c STREAMS s 0 => -ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.|
        XREAD COUNT 1 s 0 => -ERR syntax error|
        XREAD COUNT 1 COUNT 1 => -ERR syntax error|
        SET text x => +OK|
        XREAD STREAMS s text 0 0 => WRONGTYPE
        XDEL s 1-1 1-2 => :2|
        XREAD STREAMS s 0 => *-1|
        ",
    );
}

/// Maps in RESP3 are arrays of pairs for XREAD, and flat for XINFO, in RESP2.
#[test]
fn replies_of_resp3_are_maps() {
    on_both(|node| {
        let client = node.connect();
        node.say(client, "XADD s 1-1 a 1");
        node.say(client, "HELLO 3");
        check_on(
            node,
            client,
            "
            XREAD STREAMS s 0 => %1|$1|s|*1|*2|$3|1-1|*2|$1|a|$1|1|
            XREAD STREAMS s $ => _|
            XRANGE s - + => *1|*2|$3|1-1|*2|$1|a|$1|1|
            XRANGE s - + COUNT 0 => _|
            XINFO STREAM s FULL => %9|$6|length|:1|$15|radix-tree-keys|:1|$16|radix-tree-nodes|:2|$17|last-generated-id|$3|1-1|$20|max-deleted-entry-id|$3|0-0|$13|entries-added|:1|$23|recorded-first-entry-id|$3|1-1|$7|entries|*1|*2|$3|1-1|*2|$1|a|$1|1|$6|groups|*0|
            ",
        );
        assert!(node.say(client, "XINFO STREAM s").starts_with("%10|$6|length|"));
        node.say(client, "MULTI");
        node.say(client, "XREAD STREAMS s 0");
        node.say(client, "XREAD BLOCK 1000 STREAMS s $");
        assert_eq!(node.say(client, "EXEC"), "*2|%1|$1|s|*1|*2|$3|1-1|*2|$1|a|$1|1|_|");
    });
}

#[test]
fn streams_describe_themselves() {
    on_both(|node| {
        let client = node.connect();
        fill(node, client, "s", 1..21);
        let shown = |node: &mut Node, command: &str| ids(node, client, command).len();
        // Two ids are those of the head, besides the one that is 0-0.
        let head = shown(node, "XINFO STREAM s FULL COUNT 1") - 1;
        assert_eq!(shown(node, "XINFO STREAM s FULL"), head + 10);
        assert_eq!(shown(node, "XINFO STREAM s full count 3"), head + 3);
        assert_eq!(shown(node, "XINFO STREAM s FULL COUNT 0"), head + 20);
        assert_eq!(shown(node, "XINFO STREAM s FULL COUNT -1"), head + 10);
        check_on(
            node,
            client,
            "
            XINFO STREAM nope => -ERR no such key|
            XINFO STREAM s FULL COUNT => -ERR unknown subcommand or wrong number of arguments for 'STREAM'. Try XINFO HELP.|
            XINFO STREAM s HALF => -ERR unknown subcommand or wrong number of arguments for 'STREAM'. Try XINFO HELP.|
            XINFO STREAM s FULL COUNT x => -ERR value is not an integer or out of range|
            XINFO STREAM => -ERR wrong number of arguments for 'xinfo|stream' command|
            XINFO GROUPS s x => -ERR wrong number of arguments for 'xinfo|groups' command|
            XINFO NONSENSE s => -ERR unknown subcommand 'NONSENSE'. Try XINFO HELP.|
            XINFO => -ERR wrong number of arguments for 'xinfo' command|
            SET text x => +OK|
            XINFO STREAM text => WRONGTYPE
            OBJECT ENCODING s => $6|stream|
            TYPE s => +stream|
            SCAN 0 TYPE stream => *2|$1|0|*1|$1|s|
            SCAN 0 TYPE string => *2|$1|0|*1|$4|text|
            COMMAND GETKEYS XREAD COUNT 2 BLOCK 5 STREAMS a b 0 $ => *2|$1|a|$1|b|
            COMMAND GETKEYS XREAD STREAMS streams 0 => *1|$7|streams|
            COMMAND GETKEYS XREAD COUNT 2 STREAMS a b 0 => -ERR Invalid arguments specified for command|
            COMMAND GETKEYS XINFO STREAM s => *1|$1|s|
            ",
        );
        assert!(node.say(client, "XINFO HELP").starts_with("*9|+XINFO <subcommand>"));
        assert!(node.say(client, "MEMORY USAGE s").starts_with(':'));
    });
}

#[test]
fn other_types_and_streams_do_not_mix() {
    check(
        "
        XADD s 1-1 a b => $3|1-1|
        GET s => WRONGTYPE
        APPEND s x => WRONGTYPE
        HSET s a b => WRONGTYPE
        HLEN s => WRONGTYPE
        LPUSH s a => WRONGTYPE
        LLEN s => WRONGTYPE
        SADD s a => WRONGTYPE
        ZADD s 1 a => WRONGTYPE
        ZCARD s => WRONGTYPE
        SETBIT s 1 1 => WRONGTYPE
        SORT s => WRONGTYPE
        HSCAN s 0 => WRONGTYPE
        SUNIONSTORE t s => WRONGTYPE
        XLEN s => :1|
        SET s x => +OK|
        XADD s 1-1 a b => WRONGTYPE
        DEL s => :1|
        XADD s 1-1 a b => $3|1-1|
        XLEN s => :1|
        ",
    );
}

#[test]
fn streams_are_copied_and_renamed() {
    check(
        "
        XADD s 1-1 a b => $3|1-1|
        XADD s 2-1 a b => $3|2-1|
        XDEL s 1-1 => :1|
        COPY s t => :1|
        XADD t 3-1 c d => $3|3-1|
        XLEN s => :1|
        XLEN t => :2|
        XADD t 1-5 a b => SMALLER
        RENAME t s => +OK|
        EXISTS t => :0|
        XRANGE s - + => *2|*2|$3|2-1|*2|$1|a|$1|b|*2|$3|3-1|*2|$1|c|$1|d|
        XDEL s 2-1 3-1 => :2|
        COPY s t => :1|
        RENAME s u => +OK|
        XADD t 3-1 a b => SMALLER
        XADD u 3-1 a b => SMALLER
        XADD u 3-2 a b => $3|3-2|
        XLEN t => :0|
        XLEN u => :1|
        EXPIRE u 100 => :1|
        XADD u 3-3 a b => $3|3-3|
        TTL u => :100|
        DEL t u => :2|
        XLEN u => :0|
        ",
    );
}
