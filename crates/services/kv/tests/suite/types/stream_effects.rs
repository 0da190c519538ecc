//! Streams and other features: WATCH, keyspace events, client-side caching, levels, scripts.

use quorate_core::level::Level;
use quorate_replica::service::StateMachine as _;

use super::stream::on_both;
use crate::common::Node;

/// A command without effect changes no version, so WATCH lets a transaction pass.
#[test]
fn only_changes_end_a_watch() {
    on_both(|node| {
        let client = node.connect();
        let other = node.connect();
        for (command, changes) in [
            ("XADD s 9-9 a b", true),
            ("XTRIM s MAXLEN 5", false),
            ("XDEL s 1-1", false),
            ("XADD s 1-1 a b", false),
            ("XSETID s 9-9", true),
            ("XTRIM s MAXLEN 0", true),
        ] {
            node.say(client, "WATCH s");
            node.say(client, "MULTI");
            node.say(client, "PING");
            node.say(other, command);
            let expected = if changes { "*-1|" } else { "*1|+PONG|" };
            assert_eq!(node.say(client, "EXEC"), expected, "{command}");
        }
    });
}

#[test]
fn changes_are_announced() {
    on_both(|node| {
        let client = node.connect();
        let listener = node.connect();
        node.say(client, "CONFIG SET notify-keyspace-events Et");
        node.say(listener, "PSUBSCRIBE *");
        for (command, events) in [
            ("XADD s 1-1 a b", &["xadd"][..]),
            ("XADD s MAXLEN 1 2-1 a b", &["xadd", "xtrim"]),
            ("XADD s MAXLEN 5 3-1 a b", &["xadd"]),
            ("XTRIM s MAXLEN 5", &[]),
            ("XTRIM s MAXLEN 1", &["xtrim"]),
            ("XDEL s 1-1", &[]),
            ("XDEL s 3-1", &["xdel"]),
            ("XSETID s 9-9", &["xsetid"]),
        ] {
            node.say(client, command);
            let told = node.take(listener);
            let parts = told.split("__keyevent@0__:").skip(1);
            let names: Vec<&str> = parts.filter_map(|part| part.split('|').next()).collect();
            assert_eq!(names, events, "{command}");
        }
    });
}

/// XREAD enters its keys, which are not at fixed places, in the table of cached keys.
#[test]
fn read_streams_are_tracked() {
    on_both(|node| {
        let (client, other) = (node.connect(), node.connect());
        node.say(client, "HELLO 3");
        node.say(client, "CLIENT TRACKING ON");
        node.say(client, "XREAD COUNT 5 STREAMS s t 0 0");
        assert_eq!(node.say(other, "XADD t 1-1 a b"), "$3|1-1|");
        assert_eq!(node.take(client), ">2|$10|invalidate|*1|$1|t|");
        node.say(other, "XADD u 1-1 a b");
        assert_eq!(node.take(client), "");
        node.say(client, "XRANGE u - +");
        node.say(other, "XDEL u 1-1");
        assert_eq!(node.take(client), ">2|$10|invalidate|*1|$1|u|");
    });
}

/// Streams need level 10, also within a transaction or in an operation that is older.
#[test]
fn streams_need_a_level() {
    let mut node = Node::memory();
    let client = node.connect();
    let needs = "-ERR not executed: streams need feature level 10";
    for command in
        ["XADD s 1-1 a b", "XLEN s", "XRANGE s - +", "XREAD STREAMS s 0", "SCAN 0 TYPE stream"]
    {
        let reply = node.say(client, command);
        assert!(reply.starts_with(needs), "{command}: {reply}");
    }
    node.world.level = Level(10);
    for command in ["XADD s 1-1 a b", "XLEN s", "SCAN 0 TYPE stream"] {
        node.say(client, "MULTI");
        node.say(client, command);
        node.say(client, "EXEC");
        let (_, command) = node.world.log.last().unwrap();
        assert_eq!(node.world.service.level_of(command), Level(10));
    }
    assert_eq!(node.world.log.len(), 3);
}

#[test]
fn scripts_use_streams() {
    on_both(|node| {
        let client = node.connect();
        for (text, expected) in [
            ("return redis.call('xadd', KEYS[1], '1-1', 'a', 'b')", "$3|1-1|"),
            ("return redis.call('xadd', KEYS[1], '*', 'a', 'b')", "$9|1000000-0|"),
            ("return redis.call('xread', 'STREAMS', KEYS[1], '0')[1][2][1][1]", "$3|1-1|"),
            (
                "redis.setresp(3) return redis.call('xread', 'STREAMS', KEYS[1], '0').map.s[1][1]",
                "$3|1-1|",
            ),
            (
                "return redis.pcall('xread', 'BLOCK', 0, 'STREAMS', KEYS[1], '$').err",
                "$63|ERR xread command is not allowed with BLOCK option from scripts|",
            ),
            ("return redis.call('xread', 'STREAMS', KEYS[1], '$')", "$-1|"),
        ] {
            let reply = node.ask(client, &["EVAL", text, "1", "s"]);
            assert_eq!(reply, expected, "{text}");
        }
    });
}
