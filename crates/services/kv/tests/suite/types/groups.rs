//! Consumer groups of streams, command by command.

use quorate_core::level::Level;
use quorate_kv::{encode::Encoder, key::FIELD_BYTES_MAX, op::Op, store::stream::EntryId};

use crate::common::{Node, on_both_stores};

/// Runs a script of lines `command => reply` on both stores. `WAIT ms` advances the clock.
fn check(script: &str) {
    on_both_stores(|node| {
        node.world.level = Level(10);
        let client = node.connect();
        for line in script.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(ms) = line.strip_prefix("WAIT ") {
                node.world.wall_ms += ms.parse::<u64>().unwrap();
                continue;
            }
            let (command, expected) = line.split_once("=>").expect("command => reply");
            assert_eq!(node.say(client, command), expected.trim(), "{command}");
        }
    });
}

/// Returns a node on each store with the stream `s` of the entries 1-0 to 3-0 and the group `g`,
/// which has delivered them to `alice`.
fn with_delivered(test: impl Fn(&mut Node, quorate_replica::front::ConnectionId)) {
    on_both_stores(|node| {
        node.world.level = Level(10);
        let client = node.connect();
        for number in 1..=3 {
            node.say(client, &format!("XADD s {number}-0 f v"));
        }
        assert_eq!(node.say(client, "XGROUP CREATE s g 0"), "+OK|");
        let answer = node.say(client, "XREADGROUP GROUP g alice STREAMS s >");
        assert_eq!(answer, format!("*1|*2|$1|s|*3|{}", entries(&[1, 2, 3])));
        test(node, client);
    });
}

/// Returns entries with these ids as a reply has them.
fn entries(ids: &[u64]) -> String {
    ids.iter().map(|id| format!("*2|$3|{id}-0|*2|$1|f|$1|v|")).collect()
}

const NO_KEY: &str = "-ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.|";

#[test]
fn groups_are_created_and_destroyed() {
    check(&format!(
        "
        XGROUP CREATE s g $ => {NO_KEY}
        XGROUP SETID s g 0 => {NO_KEY}
        XGROUP DESTROY s g => {NO_KEY}
        XGROUP CREATECONSUMER s g c => {NO_KEY}
        XGROUP DELCONSUMER s g c => {NO_KEY}
        XGROUP CREATE s g $ MKSTREAM => +OK|
        TYPE s => +stream|
        XLEN s => :0|
        XGROUP CREATE s g 0 => -BUSYGROUP Consumer Group name already exists|
        XGROUP CREATE s g 0 MKSTREAM => -BUSYGROUP Consumer Group name already exists|
        XGROUP CREATE s h 0-1 ENTRIESREAD 3 => +OK|
        XGROUP CREATECONSUMER s g c => :1|
        XGROUP CREATECONSUMER s g c => :0|
        XGROUP CREATECONSUMER s none c => -NOGROUP No such consumer group 'none' for key name 's'|
        XGROUP DELCONSUMER s none c => -NOGROUP No such consumer group 'none' for key name 's'|
        XGROUP SETID s none $ => -NOGROUP No such consumer group 'none' for key name 's'|
        XGROUP DELCONSUMER s g none => :0|
        XGROUP DELCONSUMER s g c => :0|
        XGROUP DESTROY s none => :0|
        XGROUP DESTROY s g => :1|
        XGROUP DESTROY s g => :0|
        XGROUP DESTROY s h => :1|
        # A stream without entries and groups exists.
        EXISTS s => :1|
        SET string v => +OK|
        XGROUP CREATE string g 0 MKSTREAM => -WRONGTYPE Operation against a key holding the wrong kind of value|
        "
    ));
}

#[test]
fn requests_are_checked_as_redis_does() {
    check(
        "
        XGROUP => -ERR wrong number of arguments for 'xgroup' command|
        XGROUP NONE => -ERR unknown subcommand 'NONE'. Try XGROUP HELP.|
        XGROUP CREATE s g => -ERR wrong number of arguments for 'xgroup|create' command|
        XGROUP DESTROY s => -ERR wrong number of arguments for 'xgroup|destroy' command|
        XGROUP CREATE s g x MKSTREAM => -ERR Invalid stream ID specified as stream command argument|
        XGROUP CREATE s g - MKSTREAM => -ERR Invalid stream ID specified as stream command argument|
        XGROUP CREATE s g 0 MKSTREAM NOPE => -ERR unknown subcommand or wrong number of arguments for 'CREATE'. Try XGROUP HELP.|
        XGROUP CREATE s g 0 ENTRIESREAD -2 => -ERR value for ENTRIESREAD must be positive or -1|
        XGROUP CREATE s g 0 ENTRIESREAD x => -ERR value is not an integer or out of range|
        XGROUP SETID s g 0 MKSTREAM => -ERR unknown subcommand or wrong number of arguments for 'SETID'. Try XGROUP HELP.|
        EXISTS s => :0|
        XREADGROUP GROUP g c STREAMS s => -ERR wrong number of arguments for 'xreadgroup' command|
        XREADGROUP GROUP g c STREAMS s t > => -ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified.|
        XREADGROUP COUNT 1 NOACK NOACK STREAMS s > => -ERR Missing GROUP option for XREADGROUP|
        XREADGROUP GROUP g c COUNT 1 NOACK s > => -ERR syntax error|
        XREADGROUP GROUP g c COUNT x STREAMS s > => -ERR value is not an integer or out of range|
        XREADGROUP GROUP g c BLOCK x STREAMS s > => -ERR timeout is not an integer or out of range|
        XREADGROUP GROUP g c BLOCK -1 STREAMS s > => -ERR timeout is negative|
        XREADGROUP GROUP g c STREAMS s $ => -ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty result set.|
        XREADGROUP GROUP g c STREAMS s > => -NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option|
        XGROUP CREATE s g 0 MKSTREAM => +OK|
        XREADGROUP GROUP none c STREAMS s > => -NOGROUP No such key 's' or consumer group 'none' in XREADGROUP with GROUP option|
        XREADGROUP GROUP g c STREAMS s none > > => -NOGROUP No such key 'none' or consumer group 'g' in XREADGROUP with GROUP option|
        XACK s g => -ERR wrong number of arguments for 'xack' command|
        XACK s g x => -ERR Invalid stream ID specified as stream command argument|
        XPENDING s => -ERR wrong number of arguments for 'xpending' command|
        XPENDING s g - => -ERR syntax error|
        XPENDING s g - + => -ERR syntax error|
        XPENDING s g IDLE 5 - + => -ERR syntax error|
        XPENDING s g - + x => -ERR value is not an integer or out of range|
        XPENDING s g (18446744073709551615-18446744073709551615 + 1 => -ERR invalid start ID for the interval|
        XPENDING s g - (0-0 1 => -ERR invalid end ID for the interval|
        XPENDING s none => -NOGROUP No such key 's' or consumer group 'none'|
        XPENDING none g - + 1 => -NOGROUP No such key 'none' or consumer group 'g'|
        XCLAIM s g c x 1-0 => -ERR Invalid min-idle-time argument for XCLAIM|
        XCLAIM s g c 0 1-0 NOPE => -ERR Unrecognized XCLAIM option 'NOPE'|
        XCLAIM s g c 0 1-0 IDLE x => -ERR Invalid IDLE option argument for XCLAIM|
        XCLAIM s g c 0 1-0 TIME x => -ERR Invalid TIME option argument for XCLAIM|
        XCLAIM s g c 0 1-0 RETRYCOUNT x => -ERR Invalid RETRYCOUNT option argument for XCLAIM|
        XCLAIM s none c 0 1-0 => -NOGROUP No such key 's' or consumer group 'none'|
        XAUTOCLAIM s g c x - => -ERR Invalid min-idle-time argument for XAUTOCLAIM|
        XAUTOCLAIM s g c 0 ( => -ERR Invalid stream ID specified as stream command argument|
        XAUTOCLAIM s g c 0 - COUNT 0 => -ERR COUNT must be > 0|
        XAUTOCLAIM s g c 0 - COUNT 8070450532247928833 => -ERR COUNT must be > 0|
        XAUTOCLAIM s g c 0 - COUNT => -ERR syntax error|
        XAUTOCLAIM s none c 0 - => -NOGROUP No such key 's' or consumer group 'none'|
        ",
    );
}

#[test]
fn entries_are_delivered_once_and_repeated_until_acknowledged() {
    with_delivered(|node, client| {
        let read = "XREADGROUP GROUP g alice STREAMS s >";
        assert_eq!(node.say(client, read), "*-1|");
        let own = "XREADGROUP GROUP g alice STREAMS s 0";
        assert_eq!(node.say(client, own), format!("*1|*2|$1|s|*3|{}", entries(&[1, 2, 3])));
        assert_eq!(node.say(client, "XACK s g 1-0 1-0 9-9"), ":1|");
        assert_eq!(node.say(client, "XACK s g 1-0"), ":0|");
        assert_eq!(node.say(client, "XACK s none 1-0"), ":0|");
        assert_eq!(node.say(client, "XACK none g 1-0"), ":0|");
        assert_eq!(node.say(client, own), format!("*1|*2|$1|s|*2|{}", entries(&[2, 3])));
        let after = "XREADGROUP GROUP g alice COUNT 1 STREAMS s 1-5";
        assert_eq!(node.say(client, after), format!("*1|*2|$1|s|*1|{}", entries(&[2])));
        // Another consumer has none of its own, and gets what is new.
        let other = "XREADGROUP GROUP g bob STREAMS s";
        assert_eq!(node.say(client, &format!("{other} 0")), "*1|*2|$1|s|*0|");
        node.say(client, "XADD s 4-0 f v");
        node.say(client, "XADD s 5-0 f v");
        let one = "XREADGROUP GROUP g bob COUNT 1 NOACK STREAMS s >";
        assert_eq!(node.say(client, one), format!("*1|*2|$1|s|*1|{}", entries(&[4])));
        assert_eq!(node.say(client, &format!("{other} 0")), "*1|*2|$1|s|*0|");
        assert_eq!(
            node.say(client, &format!("{other} >")),
            format!("*1|*2|$1|s|*1|{}", entries(&[5]))
        );
        assert_eq!(
            node.say(client, "XPENDING s g"),
            "*4|:3|$3|2-0|$3|5-0|*2|*2|$5|alice|$1|2|*2|$3|bob|$1|1|"
        );
        // A removed entry remains pending.
        assert_eq!(node.say(client, "XDEL s 2-0"), ":1|");
        assert_eq!(node.say(client, own), format!("*1|*2|$1|s|*2|*2|$3|2-0|*-1|{}", entries(&[3])));
        node.say(client, "XACK s g 2-0 3-0 5-0");
        assert_eq!(node.say(client, "XPENDING s g"), "*4|:0|$-1|$-1|*-1|");
        // In RESP3, streams are a map.
        node.say(client, "HELLO 3");
        assert_eq!(node.say(client, own), "%1|$1|s|*0|");
        assert_eq!(node.say(client, read), "_|");
    });
}

#[test]
fn several_streams_are_read_at_once() {
    check(
        "
        XADD s 1-0 f v => $3|1-0|
        XADD t 2-0 f v => $3|2-0|
        XGROUP CREATE s g 0 => +OK|
        XGROUP CREATE t g $ => +OK|
        XREADGROUP GROUP g c STREAMS s t > > => *1|*2|$1|s|*1|*2|$3|1-0|*2|$1|f|$1|v|
        XREADGROUP GROUP g c STREAMS s t > > => *-1|
        XREADGROUP GROUP g c BLOCK 0 STREAMS s t 0 0 => *2|*2|$1|s|*1|*2|$3|1-0|*2|$1|f|$1|v|*2|$1|t|*0|
        XADD t 3-0 f v => $3|3-0|
        # One stream may be named twice.
        XREADGROUP GROUP g c COUNT 5 STREAMS t t > 0 => *2|*2|$1|t|*1|*2|$3|3-0|*2|$1|f|$1|v|*2|$1|t|*1|*2|$3|3-0|*2|$1|f|$1|v|
        MULTI => +OK|
        XREADGROUP GROUP g c BLOCK 5 STREAMS s > => +QUEUED|
        XACK s g 1-0 => +QUEUED|
        EXEC => *2|*-1|:1|
        ",
    );
}

/// XGROUP SETID back delivers entries again, even those that are pending for another consumer.
#[test]
fn a_group_that_is_moved_back_delivers_again() {
    with_delivered(|node, client| {
        assert_eq!(node.say(client, "XGROUP SETID s g 1-0"), "+OK|");
        let answer = node.say(client, "XREADGROUP GROUP g bob STREAMS s >");
        assert_eq!(answer, format!("*1|*2|$1|s|*2|{}", entries(&[2, 3])));
        assert_eq!(
            node.say(client, "XPENDING s g"),
            "*4|:3|$3|1-0|$3|3-0|*2|*2|$5|alice|$1|1|*2|$3|bob|$1|2|"
        );
        assert_eq!(
            node.say(client, "XPENDING s g - + 9 bob"),
            "*2|*4|$3|2-0|$3|bob|:0|:1|*4|$3|3-0|$3|bob|:0|:1|"
        );
        assert_eq!(node.say(client, "XGROUP SETID s g -"), "+OK|");
        let answer = node.say(client, "XREADGROUP GROUP g alice COUNT 1 STREAMS s >");
        assert_eq!(answer, format!("*1|*2|$1|s|*1|{}", entries(&[1])));
        assert_eq!(node.say(client, "XPENDING s g - + 9 alice"), "*1|*4|$3|1-0|$5|alice|:0|:1|");
        assert_eq!(node.say(client, "XGROUP SETID s g $"), "+OK|");
        assert_eq!(node.say(client, "XREADGROUP GROUP g alice STREAMS s >"), "*-1|");
    });
}

#[test]
fn pending_entries_are_listed() {
    with_delivered(|node, client| {
        node.world.wall_ms += 20;
        node.say(client, "XADD s 4-0 f v");
        node.say(client, "XREADGROUP GROUP g bob STREAMS s >");
        node.world.wall_ms += 5;
        let one =
            |id: u64, name: &str, ms: u64| format!("*4|$3|{id}-0|${}|{name}|:{ms}|:1|", name.len());
        let [first, second, third] = [1, 2, 3].map(|id| one(id, "alice", 25));
        let fourth = one(4, "bob", 5);
        for (command, expected) in [
            ("- + 9", format!("*4|{first}{second}{third}{fourth}")),
            ("- + 2", format!("*2|{first}{second}")),
            ("- + 0", "*0|".to_owned()),
            ("- + -1", "*0|".to_owned()),
            ("(1-0 (4-0 9", format!("*2|{second}{third}")),
            ("2 3 9", format!("*2|{second}{third}")),
            ("3-0 2-0 9", "*0|".to_owned()),
            ("- + 9 bob", format!("*1|{fourth}")),
            ("- + 1 alice", format!("*1|{first}")),
            ("3-0 + 9 alice", format!("*1|{third}")),
            ("- + 9 none", "*0|".to_owned()),
            ("IDLE 6 - + 9", format!("*3|{first}{second}{third}")),
            ("IDLE 6 - + 9 bob", "*0|".to_owned()),
            ("IDLE 25 3-0 + 9 alice", format!("*1|{third}")),
            ("IDLE 26 - + 9", "*0|".to_owned()),
            ("IDLE -1 4-0 + 9", format!("*1|{fourth}")),
        ] {
            assert_eq!(node.say(client, &format!("XPENDING s g {command}")), expected, "{command}");
        }
        // Repeating counts as a delivery.
        node.say(client, "XREADGROUP GROUP g alice COUNT 1 STREAMS s 0");
        assert_eq!(node.say(client, "XPENDING s g - + 1"), "*1|*4|$3|1-0|$5|alice|:0|:2|");
    });
}

#[test]
fn consumers_and_groups_take_their_pending_entries_along() {
    with_delivered(|node, client| {
        node.say(client, "XCLAIM s g bob 0 3-0");
        assert_eq!(node.say(client, "XGROUP DELCONSUMER s g alice"), ":2|");
        assert_eq!(node.say(client, "XPENDING s g"), "*4|:1|$3|3-0|$3|3-0|*1|*2|$3|bob|$1|1|");
        assert_eq!(node.say(client, "XREADGROUP GROUP g alice STREAMS s 0"), "*1|*2|$1|s|*0|");
        assert_eq!(node.say(client, "XGROUP DESTROY s g"), ":1|");
        assert_eq!(node.say(client, "XACK s g 3-0"), ":0|");
        // A new group of the name is empty.
        assert_eq!(node.say(client, "XGROUP CREATE s g $"), "+OK|");
        assert_eq!(node.say(client, "XPENDING s g"), "*4|:0|$-1|$-1|*-1|");
        assert_eq!(node.say(client, "XREADGROUP GROUP g bob STREAMS s 0"), "*1|*2|$1|s|*0|");
    });
}

#[test]
fn entries_are_claimed() {
    with_delivered(|node, client| {
        node.world.wall_ms += 10;
        let claim = "XCLAIM s g bob";
        assert_eq!(node.say(client, &format!("{claim} 11 1-0")), "*0|");
        assert_eq!(
            node.say(client, &format!("{claim} 10 1-0 9-0")),
            format!("*1|{}", entries(&[1]))
        );
        let pending = "XPENDING s g - + 9 bob";
        assert_eq!(node.say(client, pending), "*1|*4|$3|1-0|$3|bob|:0|:2|");
        // It is no longer idle.
        assert_eq!(node.say(client, "XCLAIM s g alice 10 1-0 2-0 JUSTID"), "*1|$3|2-0|");
        assert_eq!(node.say(client, "XPENDING s g 2 2 9"), "*1|*4|$3|2-0|$5|alice|:0|:1|");
        assert_eq!(
            node.say(client, &format!("{claim} 0 3-0 RETRYCOUNT 7 IDLE 4 JUSTID")),
            "*1|$3|3-0|"
        );
        assert_eq!(node.say(client, "XPENDING s g 3 3 9"), "*1|*4|$3|3-0|$3|bob|:4|:7|");
        assert_eq!(
            node.say(client, &format!("{claim} 0 3-0 RETRYCOUNT -1 TIME 1000007 JUSTID")),
            "*1|$3|3-0|"
        );
        assert_eq!(node.say(client, "XPENDING s g 3 3 9"), "*1|*4|$3|3-0|$3|bob|:3|:7|");
        // Times that make no sense are the present.
        for time in ["IDLE 9223372036854775807", "IDLE -5", "TIME 99999999999", "TIME -1"] {
            node.say(client, &format!("{claim} 0 3-0 {time}"));
            let pending = node.say(client, "XPENDING s g 3 3 9");
            assert!(pending.starts_with("*1|*4|$3|3-0|$3|bob|:0|:"), "{time}: {pending}");
        }
        // FORCE makes an entry pending, and LASTID moves the group.
        node.say(client, "XADD s 4-0 f v");
        node.say(client, "XADD s 5-0 f v");
        assert_eq!(node.say(client, &format!("{claim} 99 4-0 JUSTID")), "*0|");
        assert_eq!(
            node.say(client, &format!("{claim} 99 4-0 7-0 FORCE JUSTID LASTID 4-0")),
            "*1|$3|4-0|"
        );
        assert_eq!(
            node.say(client, "XREADGROUP GROUP g carol STREAMS s >"),
            format!("*1|*2|$1|s|*1|{}", entries(&[5]))
        );
        assert_eq!(
            node.say(client, "XPENDING s g"),
            "*4|:5|$3|1-0|$3|5-0|*3|*2|$5|alice|$1|1|*2|$3|bob|$1|3|*2|$5|carol|$1|1|"
        );
        // What was removed from the stream is no longer pending.
        node.say(client, "XDEL s 1-0 5-0");
        assert_eq!(node.say(client, &format!("{claim} 0 1-0 2-0 5-0 JUSTID")), "*1|$3|2-0|");
        assert_eq!(node.say(client, "XPENDING s g"), "*4|:3|$3|2-0|$3|4-0|*1|*2|$3|bob|$1|3|");
    });
}

#[test]
fn idle_entries_are_claimed_step_by_step() {
    on_both_stores(|node| {
        node.world.level = Level(10);
        let client = node.connect();
        node.say(client, "XGROUP CREATE s g $ MKSTREAM");
        for number in 1..=5 {
            node.say(client, &format!("XADD s {number}-0 f v"));
        }
        node.say(client, "XREADGROUP GROUP g alice COUNT 90 STREAMS s >");
        node.world.wall_ms += 10;
        let claim = "XAUTOCLAIM s g bob";
        assert_eq!(node.say(client, &format!("{claim} 11 -")), "*3|$3|0-0|*0|*0|");
        assert_eq!(
            node.say(client, &format!("{claim} 10 - COUNT 2")),
            format!("*3|$3|3-0|*2|{}*0|", entries(&[1, 2]))
        );
        assert_eq!(
            node.say(client, &format!("{claim} 10 3-0 COUNT 2 JUSTID")),
            "*3|$3|5-0|*2|$3|3-0|$3|4-0|*0|"
        );
        assert_eq!(
            node.say(client, &format!("{claim} 10 (4-0 COUNT 2")),
            format!("*3|$3|0-0|*1|{}*0|", entries(&[5]))
        );
        assert_eq!(
            node.say(client, "XPENDING s g - + 9"),
            "*5|*4|$3|1-0|$3|bob|:0|:2|*4|$3|2-0|$3|bob|:0|:2|*4|$3|3-0|$3|bob|:0|:1|*4|$3|4-0|$3|bob|:0|:1|*4|$3|5-0|$3|bob|:0|:2|"
        );
        // Deleted entries are returned once, and count.
        node.say(client, "XDEL s 1-0 2-0 4-0");
        assert_eq!(node.say(client, "XAUTOCLAIM s g alice 0 - COUNT 1"), "*3|$3|2-0|*0|*1|$3|1-0|");
        assert_eq!(
            node.say(client, "XAUTOCLAIM s g alice 0 2-0"),
            format!("*3|$3|0-0|*2|{}*2|$3|2-0|$3|4-0|", entries(&[3, 5]))
        );
        assert_eq!(node.say(client, "XPENDING s g"), "*4|:2|$3|3-0|$3|5-0|*1|*2|$5|alice|$1|2|");
    });
}

/// XAUTOCLAIM examines ten times as many entries as it may claim.
#[test]
fn the_search_for_idle_entries_is_limited() {
    on_both_stores(|node| {
        node.world.level = Level(10);
        let client = node.connect();
        node.say(client, "XGROUP CREATE s g $ MKSTREAM");
        for number in 1..=30 {
            node.say(client, &format!("XADD s {number} f v"));
        }
        node.say(client, "XREADGROUP GROUP g alice STREAMS s >");
        let claim = "XAUTOCLAIM s g bob 5";
        assert_eq!(node.say(client, &format!("{claim} - COUNT 1")), "*3|$4|11-0|*0|*0|");
        assert_eq!(node.say(client, &format!("{claim} 11 COUNT 2")), "*3|$3|0-0|*0|*0|");
        node.world.wall_ms += 5;
        assert_eq!(
            node.say(client, &format!("{claim} 25 COUNT 1 JUSTID")),
            "*3|$4|26-0|*1|$4|25-0|*0|"
        );
    });
}

/// Returns the last three fields of a group in the reply to XINFO GROUPS.
fn progress(last: &str, read: Option<u64>, lag: Option<i64>) -> String {
    let number = |number: Option<i64>| number.map_or("$-1|".to_owned(), |n| format!(":{n}|"));
    let read = number(read.map(|read| read.try_into().unwrap()));
    format!(
        "$17|last-delivered-id|${}|{last}|$12|entries-read|{read}$3|lag|{}",
        last.len(),
        number(lag)
    )
}

/// Entries read and lag are known as long as Redis knows them.
#[test]
fn groups_know_how_far_behind_they_are() {
    on_both_stores(|node| {
        node.world.level = Level(10);
        let client = node.connect();
        let read = |node: &mut Node, group: &str| {
            node.say(client, &format!("XREADGROUP GROUP {group} c COUNT 1 STREAMS s >"));
        };
        let check = |node: &mut Node, name: &str, expected: String| {
            let groups = node.say(client, "XINFO GROUPS s");
            let one =
                groups.split("*12|").find(|one| one.starts_with(&format!("$4|name|$1|{name}|")));
            assert!(one.unwrap().ends_with(&expected), "{groups} lacks {expected} for {name}");
        };
        // A new stream, and one whose entries are all gone.
        node.say(client, "XGROUP CREATE s a 0 MKSTREAM");
        check(node, "a", progress("0-0", None, Some(0)));
        node.say(client, "XADD s 1-0 f v");
        node.say(client, "XDEL s 1-0");
        check(node, "a", progress("0-0", None, Some(0)));
        node.say(client, "DEL s");
        // Without gaps.
        for number in 1..=5 {
            node.say(client, &format!("XADD s {number}-0 f v"));
        }
        node.say(client, "XGROUP CREATE s a 0");
        node.say(client, "XGROUP CREATE s m 3 ENTRIESREAD 3");
        node.say(client, "XGROUP CREATE s n 3");
        check(node, "a", progress("0-0", None, Some(5)));
        check(node, "m", progress("3-0", Some(3), Some(2)));
        check(node, "n", progress("3-0", None, None));
        read(node, "a");
        check(node, "a", progress("1-0", Some(1), Some(4)));
        for _ in 0..4 {
            read(node, "a");
            read(node, "n");
        }
        check(node, "a", progress("5-0", Some(5), Some(0)));
        check(node, "n", progress("5-0", Some(5), Some(0)));
        node.say(client, "XADD s 6-0 f v");
        check(node, "a", progress("5-0", Some(5), Some(1)));
        node.say(client, "XGROUP SETID s a 2 ENTRIESREAD 2");
        check(node, "a", progress("2-0", Some(2), Some(4)));
        // A gap ahead of a group that knew, which knows again at the end.
        node.say(client, "XDEL s 4-0");
        check(node, "a", progress("2-0", Some(2), None));
        read(node, "a");
        check(node, "a", progress("3-0", None, None));
        read(node, "a");
        read(node, "a");
        check(node, "a", progress("6-0", Some(6), Some(0)));
        // A gap ahead, until the group has passed it or the stream has been trimmed to it.
        node.say(client, "DEL s");
        for number in 1..=5 {
            node.say(client, &format!("XADD s {number}-0 f v"));
        }
        node.say(client, "XDEL s 3-0");
        node.say(client, "XGROUP CREATE s a 0");
        node.say(client, "XGROUP CREATE s b 0");
        for id in ["0-0", "1-0", "2-0", "4-0"] {
            check(node, "a", progress(id, None, None));
            read(node, "a");
        }
        check(node, "a", progress("5-0", Some(5), Some(0)));
        node.say(client, "XADD s 6-0 f v");
        check(node, "a", progress("5-0", Some(5), Some(1)));
        check(node, "b", progress("0-0", None, None));
        node.say(client, "XTRIM s MINID = 3-0");
        check(node, "a", progress("5-0", Some(5), Some(1)));
        check(node, "b", progress("0-0", None, Some(3)));
        node.say(client, "XTRIM s MINID = 5-0");
        check(node, "b", progress("0-0", None, Some(2)));
    });
}

#[test]
fn groups_and_consumers_are_described() {
    with_delivered(|node, client| {
        node.world.wall_ms += 7;
        assert_eq!(node.say(client, "XGROUP CREATECONSUMER s g bob"), ":1|");
        node.world.wall_ms += 3;
        assert_eq!(
            node.say(client, "XINFO CONSUMERS s g"),
            "*2|*8|$4|name|$5|alice|$7|pending|:3|$4|idle|:10|$8|inactive|:10|*8|$4|name|$3|bob|$7|pending|:0|$4|idle|:3|$8|inactive|:-1|"
        );
        assert_eq!(
            node.say(client, "XINFO CONSUMERS s none"),
            "-NOGROUP No such consumer group 'none' for key name 's'|"
        );
        let progress = progress("3-0", Some(3), Some(0));
        assert_eq!(
            node.say(client, "XINFO GROUPS s"),
            format!("*1|*12|$4|name|$1|g|$9|consumers|:2|$7|pending|:3|{progress}")
        );
        let full = node.say(client, "XINFO STREAM s FULL COUNT 1");
        let pending = "$3|1-0|$5|alice|:1000000|:1|";
        let own = "*1|*3|$3|1-0|:1000000|:1|";
        let alice = format!(
            "*10|$4|name|$5|alice|$9|seen-time|:1000000|$11|active-time|:1000000|$9|pel-count|:3|$7|pending|{own}"
        );
        let bob = "*10|$4|name|$3|bob|$9|seen-time|:1000007|$11|active-time|:-1|$9|pel-count|:0|$7|pending|*0|";
        let groups = format!(
            "$6|groups|*1|*14|$4|name|$1|g|{progress}$9|pel-count|:3|$7|pending|*1|*4|{pending}$9|consumers|*2|{alice}{bob}"
        );
        assert!(full.ends_with(&groups), "{full} lacks {groups}");
        let full = node.say(client, "XINFO STREAM s FULL COUNT 0");
        assert!(full.contains("$7|pending|*3|*4|") && full.contains("$7|pending|*3|*3|"), "{full}");
        node.say(client, "HELLO 3");
        let groups = node.say(client, "XINFO GROUPS s");
        assert!(groups.starts_with("*1|%6|$4|name|$1|g|"), "{groups}");
    });
}

#[test]
fn groups_go_along_with_their_stream() {
    with_delivered(|node, client| {
        assert_eq!(node.say(client, "RENAME s t"), "+OK|");
        assert_eq!(node.say(client, "COPY t u"), ":1|");
        assert_eq!(node.say(client, "XACK t g 1-0 2-0"), ":2|");
        assert_eq!(node.say(client, "XACK u g 3-0"), ":1|");
        let own = |stream: &str, ids: &[u64]| {
            format!("*1|*2|$1|{stream}|*{}|{}", ids.len(), entries(ids))
        };
        let read = |stream: &str| format!("XREADGROUP GROUP g alice STREAMS {stream} 0");
        assert_eq!(node.say(client, &read("t")), own("t", &[3]));
        assert_eq!(node.say(client, &read("u")), own("u", &[1, 2]));
        assert_eq!(node.say(client, "DEL t"), ":1|");
        assert_eq!(node.say(client, "XGROUP CREATE t g 0 MKSTREAM"), "+OK|");
        assert_eq!(node.say(client, &read("t")), "*1|*2|$1|t|*0|");
        assert_eq!(node.say(client, &read("u")), own("u", &[1, 2]));
        assert_eq!(node.say(client, "SET u v"), "+OK|");
        assert!(node.say(client, &read("u")).starts_with("-WRONGTYPE"));
    });
}

/// A command returns entries until they are enough, and the next one continues.
#[test]
fn what_a_reply_lacks_is_not_delivered() {
    let mut node = Node::memory();
    node.world.level = Level(10);
    node.world.command_bytes_max = 24 << 20;
    let client = node.connect();
    let value = "v".repeat(5 << 20);
    node.say(client, "XGROUP CREATE s g 0 MKSTREAM");
    for number in 1..=6 {
        node.ask(client, &["XADD", "s", &format!("{number}-0"), "f", &value]);
    }
    let count = |answer: &str, prefix: &str| {
        assert!(answer.starts_with(prefix), "{answer:.60}");
        answer.matches(&value).count()
    };
    let read = "XREADGROUP GROUP g alice STREAMS s";
    assert_eq!(count(&node.say(client, &format!("{read} >")), "*1|*2|$1|s|*3|"), 3);
    assert!(node.say(client, "XPENDING s g").starts_with("*4|:3|"));
    assert_eq!(count(&node.say(client, &format!("{read} >")), "*1|*2|$1|s|*3|"), 3);
    assert_eq!(count(&node.say(client, &format!("{read} 0")), "*1|*2|$1|s|*3|"), 3);
    assert_eq!(count(&node.say(client, &format!("{read} 4")), "*1|*2|$1|s|*2|"), 2);
    let claim = "XCLAIM s g bob 0 1-0 2-0 3-0 4-0 5-0 6-0";
    assert_eq!(count(&node.say(client, claim), "*3|"), 3);
    let own = "XPENDING s g - + 9 alice";
    assert!(node.say(client, own).starts_with("*3|*4|$3|4-0|"));
    let claim = "XAUTOCLAIM s g carol 0 2-0";
    assert_eq!(count(&node.say(client, claim), "*3|$3|5-0|*3|"), 3);
    assert!(node.say(client, own).starts_with("*2|*4|$3|5-0|"));
    // A stream for which there is no room is left out, not empty.
    node.say(client, "XADD t 1-0 f v");
    node.say(client, "XGROUP CREATE t g 0");
    node.say(client, "XGROUP SETID s g 0");
    let both = "XREADGROUP GROUP g dave STREAMS s t > >";
    assert_eq!(count(&node.say(client, both), "*1|*2|$1|s|*3|"), 3);
    assert_eq!(
        node.say(client, "XREADGROUP GROUP g dave STREAMS t >"),
        "*1|*2|$1|t|*1|*2|$3|1-0|*2|$1|f|$1|v|"
    );
    // A single entry may be larger.
    node.say(client, "XGROUP CREATE u g 0 MKSTREAM");
    let large = "v".repeat(17 << 20);
    for id in ["1-0", "2-0"] {
        assert_eq!(node.ask(client, &["XADD", "u", id, "f", &large]), format!("$3|{id}|"));
    }
    for id in ["1-0", "2-0"] {
        let answer = node.say(client, "XREADGROUP GROUP g erin STREAMS u >");
        assert!(answer.starts_with(&format!("*1|*2|$1|u|*1|*2|$3|{id}|")), "{answer:.60}");
        let answer = node.say(client, "XAUTOCLAIM u g frank 0 0");
        assert!(
            answer.starts_with(&format!(
                "*3|$3|{}",
                if id == "1-0" { "0-0|*1|*2|$3|1-0|" } else { "2-0|*1|*2|$3|1-0|" }
            )),
            "{answer:.60}"
        );
    }
}

/// Commands on many entries are limited, and only the removal of very many is refused.
#[test]
fn long_commands_end() {
    let mut node = Node::memory();
    node.world.level = Level(10);
    let client = node.connect();
    for number in 1..=110_000_u64 {
        let mut command = Vec::new();
        let out = &mut Encoder(&mut command);
        out.byte(Op::XAdd as u8).bytes(b"s").byte(0).byte(2);
        out.0.extend_from_slice(&EntryId { ms: number, seq: 0 }.to_bytes());
        out.length(2).bytes(b"f").bytes(b"v");
        node.world.apply(&command);
    }
    node.say(client, "XGROUP CREATE s g 0");
    for _ in 0..11 {
        let answer = node.say(client, "XREADGROUP GROUP g alice STREAMS s >");
        assert!(answer.starts_with("*1|*2|$1|s|*10000|"), "{answer:.60}");
    }
    assert_eq!(node.say(client, "XREADGROUP GROUP g alice STREAMS s >"), "*-1|");
    let slot = node.world.slot;
    for command in ["XGROUP DESTROY s g", "XGROUP DELCONSUMER s g alice"] {
        let answer = node.say(client, command);
        assert!(answer.starts_with("-TOOBIG"), "{command}: {answer:.60}");
    }
    assert_eq!(node.world.slot, slot, "refused before they are in the log");
    let answer = node.say(client, "XREADGROUP GROUP g alice STREAMS s 0");
    assert!(answer.starts_with("*1|*2|$1|s|*10000|"), "{answer:.60}");
    let answer = node.say(client, "XAUTOCLAIM s g bob 0 - COUNT 1000000 JUSTID");
    assert!(answer.starts_with("*3|$7|10001-0|*10000|"), "{answer:.60}");
    let answer = node.say(client, "XAUTOCLAIM s g bob 1 5001 COUNT 1000000 JUSTID");
    assert_eq!(answer, "*3|$8|105001-0|*0|*0|");
    let answer = node.say(client, "XPENDING s g - + 200000");
    assert!(answer.starts_with("*110000|"), "{answer:.60}");
    let ids: Vec<String> = (1..=10_000).map(|id| id.to_string()).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let claim = [&["XCLAIM", "s", "g", "carol", "0"], &ids[..]].concat();
    assert!(node.ask(client, &claim).starts_with("*10000|"));
    assert_eq!(node.say(client, "XGROUP DELCONSUMER s g carol"), ":10000|");
    assert_eq!(node.say(client, "XGROUP DESTROY s g"), ":1|");
}

#[test]
fn names_may_be_as_long_as_fields() {
    on_both_stores(|node| {
        node.world.level = Level(10);
        let client = node.connect();
        let [name, long] = [0, 1].map(|more| "g".repeat(FIELD_BYTES_MAX + more));
        let (name, long) = (name.as_str(), long.as_str());
        node.say(client, "XADD s 1-0 f v");
        assert_eq!(node.ask(client, &["XGROUP", "CREATE", "s", name, "0"]), "+OK|");
        let read = ["XREADGROUP", "GROUP", name, name, "STREAMS", "s", ">"];
        assert!(node.ask(client, &read).starts_with("*1|*2|"));
        let pending = node.ask(client, &["XPENDING", "s", name, "-", "+", "9", name]);
        assert!(pending.starts_with("*1|*4|$3|1-0|$65472|"), "{pending:.60}");
        for words in [
            &["XGROUP", "CREATE", "s", long, "0"][..],
            &["XGROUP", "SETID", "s", long, "0"],
            &["XGROUP", "DESTROY", "s", long],
            &["XGROUP", "CREATECONSUMER", "s", name, long],
            &["XGROUP", "DELCONSUMER", "s", name, long],
            &["XREADGROUP", "GROUP", long, "c", "STREAMS", "s", ">"],
            &["XREADGROUP", "GROUP", name, long, "STREAMS", "s", ">"],
            &["XACK", "s", long, "1-0"],
            &["XPENDING", "s", long],
            &["XPENDING", "s", name, "-", "+", "9", long],
            &["XCLAIM", "s", long, "c", "0", "1-0"],
            &["XCLAIM", "s", name, long, "0", "1-0"],
            &["XAUTOCLAIM", "s", name, long, "0", "1-0"],
            &["XINFO", "CONSUMERS", "s", long],
        ] {
            let answer = node.ask(client, words);
            assert!(answer.starts_with("-TOOBIG"), "{:.20}: {answer:.60}", words[0]);
        }
    });
}

/// As in Redis, reading in vain changes no key for WATCH; here, all else does.
#[test]
fn an_attempt_in_vain_leaves_the_version_of_the_key() {
    with_delivered(|node, client| {
        let exec = |node: &mut Node, command: &str| {
            node.say(client, "WATCH s");
            let other = node.connect();
            node.say(other, command);
            node.say(client, "MULTI");
            node.say(client, "PING");
            node.say(client, "EXEC")
        };
        node.world.wall_ms += 5;
        assert_eq!(exec(node, "XREADGROUP GROUP g alice STREAMS s >"), "*1|+PONG|");
        let consumers = node.say(client, "XINFO CONSUMERS s g");
        assert!(consumers.contains("$4|idle|:0|$8|inactive|:5|"), "{consumers}");
        assert_eq!(exec(node, "XACK s g 9-0"), "*1|+PONG|");
        for command in [
            "XREADGROUP GROUP g bob STREAMS s >",
            "XREADGROUP GROUP g alice STREAMS s 0",
            "XACK s g 1-0",
            "XGROUP CREATE s h 0",
            "XGROUP DESTROY s h",
        ] {
            assert_eq!(exec(node, command), "*-1|", "{command}");
        }
    });
}

#[test]
fn changes_of_groups_are_events() {
    let mut node = Node::memory();
    node.world.level = Level(10);
    let (client, listener) = (node.connect(), node.connect());
    assert_eq!(node.say(listener, "CONFIG SET notify-keyspace-events Et"), "+OK|");
    node.say(listener, "PSUBSCRIBE __keyevent@0__:*");
    for (command, expected) in [
        ("XGROUP CREATE s g 0 MKSTREAM", &["xgroup-create"][..]),
        ("XGROUP CREATE s g 0", &[]),
        ("XGROUP CREATECONSUMER s g alice", &["xgroup-createconsumer"]),
        ("XGROUP CREATECONSUMER s g alice", &[]),
        ("XREADGROUP GROUP g alice STREAMS s >", &[]),
        ("XREADGROUP GROUP g bob STREAMS s >", &["xgroup-createconsumer"]),
        ("XCLAIM s g carol 0 1-0", &["xgroup-createconsumer"]),
        ("XAUTOCLAIM s g dave 0 0", &["xgroup-createconsumer"]),
        ("XACK s g 1-0", &[]),
        ("XGROUP SETID s g 5", &["xgroup-setid"]),
        ("XGROUP DELCONSUMER s g alice", &["xgroup-delconsumer"]),
        ("XGROUP DELCONSUMER s g alice", &[]),
        ("XGROUP DESTROY s g", &["xgroup-destroy"]),
        ("XGROUP DESTROY s g", &[]),
    ] {
        node.take(listener);
        node.say(client, command);
        let sent = node.take(listener);
        let events: Vec<&str> =
            sent.split('|').filter_map(|line| line.strip_prefix("__keyevent@0__:")).collect();
        let events: Vec<&str> = events.into_iter().filter(|event| *event != "*").collect();
        assert_eq!(events, expected, "{command}");
    }
}
