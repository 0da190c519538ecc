//! Sixteen databases: SELECT and what a connection does with it, commands on several databases, and
//! databases in transactions, scripts, waits and notices.

use std::collections::BTreeMap;

use quorate_core::{level::Level, node_id::NodeId, slot::Slot};
use quorate_kv::{
    commands::{
        transactions::ABSENT_LEVEL,
        waiting::{GONE, WAITING, encode_await, encode_claim},
    },
    encode::Encoder,
    front::{ClusterMode, RespFront, Settings},
    op::Op,
    waits::FrontId,
};
use quorate_replica::{
    front::{ConnectionId, Failure, Front as _},
    service::{CommandId, StateMachine as _},
};

use crate::{
    common::{Asked, Node, Random, Told, check_at, on_both_stores, request},
    waiting::group::Group,
};

const NEEDS_LEVEL: &str = "-ERR not executed: databases other than the first need feature level 10, which the cluster \
    reaches once all nodes are upgraded; see `quorate member feature`|";

/// Runs a test in a group of level 10, on both stores.
fn on_both(test: impl Fn(&mut Node)) {
    on_both_stores(|node| {
        node.world.level = ABSENT_LEVEL;
        test(node);
    });
}

/// Stores the number of each database under the key `db` of it.
fn mark(node: &mut Node) {
    let client = node.connect();
    for number in 0..16 {
        assert_eq!(node.say(client, &format!("SELECT {number}")), "+OK|");
        assert_eq!(node.say(client, &format!("SET db {number}")), "+OK|");
    }
}

/// Returns the number of the connection's database, if [`mark`] was called.
fn selected(node: &mut Node, client: ConnectionId) -> String {
    let reply = node.say(client, "GET db");
    reply.split('|').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn a_connection_uses_the_database_that_it_selected() {
    check_at(
        ABSENT_LEVEL,
        "
        SET k zero => +OK|
        SELECT 3 => +OK|
        GET k => $-1|
        DBSIZE => :0|
        SET k three => +OK|
        RPUSH l a b => :2|
        KEYS * => *2|$1|k|$1|l|
        SELECT 15 => +OK|
        SET k last => +OK|
        SELECT 16 => -ERR DB index is out of range|
        SELECT -1 => -ERR DB index is out of range|
        SELECT 18446744073709551616 => -ERR value is not an integer or out of range|
        SELECT x => -ERR value is not an integer or out of range|
        SELECT => -ERR wrong number of arguments for 'select' command|
        GET k => $4|last|
        SELECT 0 => +OK|
        GET k => $4|zero|
        DBSIZE => :1|
        SELECT 3 => +OK|
        OBJECT ENCODING l => $8|listpack|
        SCAN 0 => *2|$1|0|*2|$1|k|$1|l|
        DEL k => :1|
        EXISTS k => :0|
        HELLO 2 => *14|$6|server|$7|quorate|$7|version|$5|7.2.0|$5|proto|:2|$2|id|:1|$4|mode|$10|standalone|$4|role|$6|master|$7|modules|*0|
        LLEN l => :2|
        RESET => +RESET|
        GET k => $4|zero|
        CONFIG GET databases => *2|$9|databases|$2|16|
        ",
    );
}

/// Below level 10, a group has the first database alone, and no command says otherwise.
#[test]
fn databases_other_than_the_first_need_a_level() {
    let script = "
        SELECT 1 => NEEDS
        SELECT 0 => +OK|
        SELECT 16 => -ERR DB index is out of range|
        SET k v => +OK|
        MOVE k 1 => NEEDS
        SWAPDB 0 1 => NEEDS
        COPY k j DB 1 => NEEDS
        COPY k j DB 0 => :1|
        COPY k k DB 0 => -ERR source and destination objects are the same|
        MULTI => +OK|
        SELECT 1 => NEEDS
        SET m v => +QUEUED|
        EXEC => -EXECABORT Transaction discarded because of previous errors.|
        GET m => $-1|
        MULTI => +OK|
        SELECT 16 => +QUEUED|
        SET m v => +QUEUED|
        EXEC => *2|-ERR DB index is out of range|+OK|
        GET m => $1|v|
        FLUSHALL => +OK|
        DBSIZE => :0|
        ";
    check_at(Level::BASE, &script.replace("NEEDS", NEEDS_LEVEL));
    let flush = |level, text: &str| {
        let mut node = Node::memory();
        node.world.level = level;
        let client = node.connect();
        node.feed(client, format!("{text}\r\n").as_bytes());
        let Some(Asked::Write(_, None, command)) = node.world.asked.pop_back() else {
            panic!("a write")
        };
        command
    };
    assert_eq!(flush(Level::BASE, "FLUSHALL"), [Op::Flush as u8]);
    assert_eq!(flush(ABSENT_LEVEL, "FLUSHALL"), [Op::FlushAll as u8]);
    assert_eq!(flush(ABSENT_LEVEL, "FLUSHDB"), [Op::Flush as u8]);
}

#[test]
fn a_command_on_another_database_is_of_level_10_wherever_it_stands() {
    let service = Node::memory().world.service;
    let exec = |command: &[u8]| {
        let length = u8::try_from(command.len()).unwrap();
        [&[Op::Exec as u8, 0, 1, length], command].concat()
    };
    let get = [Op::Get as u8, 1, b'k'];
    let of_10: [&[u8]; 10] = [
        &[Op::In as u8, 3, Op::Get as u8, 1, b'k'],
        &[Op::In as u8, 3, Op::Flush as u8],
        &[Op::In as u8, 200, Op::Get as u8, 1, b'k'],
        &[Op::In as u8],
        &[Op::FlushAll as u8],
        &[Op::SwapDb as u8, 0, 1],
        &[Op::MoveDb as u8, 1, 1, b'k'],
        &[Op::CopyTo as u8, 0, 1, 1, b'k', 1, b'j'],
        &[Op::ExecIn as u8, 0, 0],
        &[Op::ExecIn as u8],
    ];
    for command in of_10 {
        assert_eq!(service.level_of(command), ABSENT_LEVEL, "{command:?}");
        assert_eq!(service.level_of(&exec(command)), ABSENT_LEVEL, "{command:?} in EXEC");
    }
    for command in [&get[..], &[Op::Flush as u8]] {
        assert_eq!(service.level_of(command), Level::BASE);
        assert_eq!(service.level_of(&exec(command)), Level::BASE);
    }
}

/// A command has one encoding: any other is malformed, for all nodes alike, and without effect.
#[test]
fn commands_with_wrong_prefixes_have_no_effect() {
    const IN: u8 = Op::In as u8;
    const BOUNDED: u8 = Op::Bounded as u8;
    const FLUSH: u8 = Op::Flush as u8;
    const SET: [u8; 7] = [Op::Set as u8, 0, 0, 1, b'k', 1, b'w'];
    let malformed: Vec<Vec<u8>> = vec![
        vec![IN],
        vec![IN, 3],
        vec![IN, 0, FLUSH],
        vec![IN, 16, FLUSH],
        vec![IN, 200, FLUSH],
        vec![IN, 3, IN, 3, FLUSH],
        vec![IN, 3, BOUNDED, FLUSH],
        vec![BOUNDED, BOUNDED, FLUSH],
        vec![IN, 3, Op::Exec as u8, 0, 0],
        vec![IN, 3, Op::ExecIn as u8, 0, 0],
        vec![IN, 3, Op::FlushAll as u8],
        vec![IN, 3, Op::SwapDb as u8, 0, 1],
        vec![IN, 3, Op::Publish as u8, 1, b'c', 1, b'm'],
        vec![IN, 3, Op::Literal as u8, 5, b'+', b'O', b'K', b'\r', b'\n'],
        vec![IN, 3, 255],
        vec![Op::SwapDb as u8, 0, 16],
        vec![Op::SwapDb as u8, 255, 1],
        vec![Op::SwapDb as u8, 0],
        vec![Op::SwapDb as u8, 0, 1, 1],
        vec![Op::MoveDb as u8, 16, 1, b'k'],
        vec![Op::CopyTo as u8, 0, 16, 1, b'k', 1, b'j'],
        vec![Op::FlushAll as u8, 0],
        [&[Op::ExecIn as u8, 1, 16, 1, b'k'][..], &[0; 9], &[0]].concat(),
    ];
    on_both(|node| {
        let client = node.connect();
        mark(node);
        node.say(client, "SET k v");
        let before = node.world.service.digest();
        for command in &malformed {
            let reply = node.world.apply(command);
            assert!(reply.starts_with(b"-ERR"), "{command:?}: {reply:?}");
            let mut answer = Vec::new();
            node.world.service.query(command, 1_000_000, &mut answer);
            assert!(answer.starts_with(b"-ERR"), "{command:?}: {answer:?}");
        }
        assert_eq!(node.world.service.digest(), before);
        // In a transaction, each is one reply with an error, and the rest is executed.
        let mut exec = vec![Op::Exec as u8, 0, 4];
        for command in [&SET[..], &[IN, 16, FLUSH], &[IN, 4, FLUSH], &[BOUNDED, FLUSH]] {
            exec.push(u8::try_from(command.len()).unwrap());
            exec.extend_from_slice(command);
        }
        let reply = String::from_utf8(node.world.apply(&exec)).unwrap();
        assert!(reply.starts_with("*4\r\n+OK\r\n-ERR"), "{reply}");
        assert_eq!(node.say(client, "GET k"), "$1|w|");
        node.say(client, "SELECT 4");
        assert_eq!(node.say(client, "DBSIZE"), ":0|");
    });
}

/// Commands that fill a key, and commands that show all of it.
const KINDS: [(&str, &[&str]); 7] = [
    ("SET k v PX 90000", &["GET k", "PTTL k"]),
    ("RPUSH k a b c d", &["LRANGE k 0 -1", "PTTL k"]),
    ("HSET k f 1 g 2 h 3; HPEXPIRE k 5000 FIELDS 1 g", &["HGETALL k", "HPTTL k FIELDS 2 f g"]),
    ("SADD k a b c; PEXPIRE k 7000", &["SMEMBERS k", "PTTL k"]),
    ("ZADD k 1 a 2 b 3 c", &["ZRANGE k 0 -1 WITHSCORES", "ZRANGEBYSCORE k 2 3"]),
    (
        "XADD k 1-1 f v; XADD k 2-1 f w; XGROUP CREATE k g 0; XREADGROUP GROUP g c COUNT 1 STREAMS k >",
        &["XRANGE k - +", "XPENDING k g", "XINFO STREAM k"],
    ),
    ("SET k lock NX PX 300", &["GET k", "TYPE k"]),
];

#[test]
fn keys_of_every_kind_are_moved_and_copied_whole() {
    on_both(|node| {
        let client = node.connect();
        for (fill, shows) in KINDS {
            node.say(client, "FLUSHALL");
            node.say(client, "SELECT 0");
            for line in fill.split("; ") {
                node.say(client, line);
            }
            let shown = |node: &mut Node| -> Vec<String> {
                shows.iter().map(|line| node.say(client, line)).collect()
            };
            let before = shown(node);
            let there = |node: &mut Node, number: u64| {
                node.say(client, &format!("SELECT {number}"));
                node.say(client, "EXISTS k")
            };
            assert_eq!(node.say(client, "COPY k k DB 9"), ":1|", "{fill}");
            assert_eq!(shown(node), before, "{fill}");
            assert_eq!(node.say(client, "MOVE k 5"), ":1|", "{fill}");
            assert_eq!(node.say(client, "DBSIZE"), ":0|");
            for number in [5, 9] {
                assert_eq!(there(node, number), ":1|");
                assert_eq!(shown(node), before, "{fill}");
            }
            // The copies share nothing: one goes, the others stay.
            node.say(client, "DEL k");
            assert_eq!(there(node, 5), ":1|");
            assert_eq!(shown(node), before, "{fill}");
            assert_eq!(node.say(client, "MOVE k 0"), ":1|");
            node.say(client, "FLUSHDB");
            assert_eq!(there(node, 0), ":1|");
            assert_eq!(shown(node), before, "{fill}");
        }
    });
}

#[test]
fn a_move_needs_a_source_and_room_at_the_target() {
    on_both(|node| {
        let client = node.connect();
        for (command, expected) in [
            ("MOVE k 5", ":0|"),
            ("SET k v", "+OK|"),
            ("MOVE k 0", "-ERR source and destination objects are the same|"),
            ("MOVE k 16", "-ERR DB index is out of range|"),
            ("MOVE k x", "-ERR value is not an integer or out of range|"),
            ("COPY k k DB 16", "-ERR DB index is out of range|"),
            ("COPY k k", "-ERR source and destination objects are the same|"),
            ("MOVE k 5", ":1|"),
            ("SET k w", "+OK|"),
            ("MOVE k 5", ":0|"),
            ("COPY k k DB 5", ":0|"),
            ("GET k", "$1|w|"),
            ("COPY k k DB 5 REPLACE", ":1|"),
            ("SELECT 5", "+OK|"),
            ("GET k", "$1|w|"),
            ("PEXPIRE k 10", ":1|"),
            ("SELECT 0", "+OK|"),
        ] {
            assert_eq!(node.say(client, command), expected, "{command}");
        }
        // An ended key at the target does not exist, and is replaced.
        node.world.wall_ms += 10;
        assert!(node.pass());
        assert_eq!(node.say(client, "RPUSH l a b"), ":2|");
        assert_eq!(node.say(client, "MOVE k 5"), ":1|");
        assert_eq!(node.say(client, "MOVE l 5"), ":1|");
        node.say(client, "SELECT 5");
        assert_eq!(node.say(client, "PTTL k"), ":-1|");
        assert_eq!(node.say(client, "DBSIZE"), ":2|");
        assert_eq!(node.sweep(), 0, "no deadline is left");
    });
}

/// [visit-2] A collection that is too large to copy is refused before any change.
#[test]
fn a_move_of_too_many_elements_changes_nothing() {
    let mut node = Node::memory();
    node.world.level = ABSENT_LEVEL;
    let client = node.connect();
    let values: Vec<String> = (0..11_000).map(|value| value.to_string()).collect();
    for _ in 0..20 {
        let mut words = vec!["RPUSH", "k"];
        words.extend(values.iter().map(String::as_str));
        node.ask(client, &words);
    }
    let before = node.world.service.digest();
    for command in ["MOVE k 1", "COPY k k DB 1"] {
        let reply = node.say(client, command);
        assert!(reply.starts_with("-TOOBIG"), "{command}: {reply}");
        assert_eq!(node.world.service.digest(), before, "{command}");
    }
    node.say(client, "LTRIM k 0 99999");
    assert_eq!(node.say(client, "MOVE k 1"), ":1|");
}

#[test]
fn a_flush_empties_one_database_or_all() {
    on_both(|node| {
        let client = node.connect();
        let sizes = |node: &mut Node| -> Vec<String> {
            (0..16)
                .map(|number| {
                    node.say(client, &format!("SELECT {number}"));
                    node.say(client, "DBSIZE").trim_matches([':', '|']).to_owned()
                })
                .collect()
        };
        mark(node);
        node.say(client, "SELECT 3");
        assert_eq!(node.say(client, "FLUSHDB ASYNC"), "+OK|");
        assert_eq!(node.say(client, "FLUSHDB NOW"), "-ERR syntax error|");
        let mut expected = vec!["1"; 16];
        expected[3] = "0";
        assert_eq!(sizes(node), expected);
        // Encoded before the raise of the level and executed after it: the first database only.
        assert_eq!(node.world.apply(&[Op::Flush as u8]), b"+OK\r\n");
        expected[0] = "0";
        assert_eq!(sizes(node), expected);
        node.say(client, "SELECT 7");
        assert_eq!(node.say(client, "FLUSHALL SYNC"), "+OK|");
        assert_eq!(sizes(node), ["0"; 16]);
    });
}

#[test]
fn swapped_databases_have_each_others_keys() {
    on_both(|node| {
        let (client, other) = (node.connect(), node.connect());
        mark(node);
        node.say(client, "RPUSH l a b");
        node.say(client, "SET t v PX 50");
        node.say(other, "SELECT 2");
        for (command, expected) in [
            ("SWAPDB 0 2", "+OK|"),
            ("GET db", "$1|2|"),
            ("DBSIZE", ":1|"),
            ("SWAPDB 5 5", "+OK|"),
            ("SWAPDB 0 16", "-ERR DB index is out of range|"),
            ("SWAPDB x 1", "-ERR invalid first DB index|"),
            ("SWAPDB 1 x", "-ERR invalid second DB index|"),
        ] {
            assert_eq!(node.say(client, command), expected, "{command}");
        }
        assert_eq!(selected(node, other), "0");
        assert_eq!(node.say(other, "DBSIZE"), ":3|");
        assert_eq!(node.say(other, "LRANGE l 0 -1"), "*2|$1|a|$1|b|");
        node.world.wall_ms += 50;
        assert!(node.pass());
        assert_eq!(node.say(other, "DBSIZE"), ":2|");
        assert_eq!(node.say(client, "DBSIZE"), ":1|");
        assert_eq!(node.sweep(), 1);
        // In one transaction: each part has what the ones before it left.
        for line in ["MULTI", "SET x 1", "FLUSHALL", "SELECT 4", "SET y 2", "SWAPDB 4 0", "DBSIZE"]
        {
            node.say(client, line);
        }
        assert_eq!(node.say(client, "EXEC"), "*6|+OK|+OK|+OK|+OK|+OK|:0|");
        assert_eq!(node.say(client, "GET y"), "$-1|");
        node.say(client, "SELECT 0");
        assert_eq!(node.say(client, "KEYS *"), "*1|$1|y|");
    });
}

/// A change of a database as a whole is a change of each of its keys, whatever is there afterwards.
#[test]
fn exec_fails_if_the_database_of_a_watched_key_was_swapped_or_emptied() {
    on_both(|node| {
        let (one, other) = (node.connect(), node.connect());
        // Commands before WATCH, whose last one selects its database; commands of another client
        // between WATCH and EXEC; whether EXEC succeeds.
        let cases = [
            ("SET k v; SELECT 0", "SWAPDB 1 2", true),
            ("SET k v; SELECT 0", "SWAPDB 0 2", false),
            ("SET k v; SELECT 0", "SWAPDB 0 2; GET k; SWAPDB 2 0", false),
            ("SET k v; SELECT 0", "SWAPDB 0 0", true),
            ("SELECT 0", "SWAPDB 0 2", false),
            ("SELECT 0", "SWAPDB 0 2; SWAPDB 0 2", false),
            ("SELECT 2; SET k v; SELECT 0", "SWAPDB 0 2; SWAPDB 0 2", false),
            ("MULTI; SET k v; SELECT 1; SET k v; EXEC; SELECT 0", "SWAPDB 0 1", false),
            ("MULTI; SET k v; SELECT 1; SET k v; EXEC; SELECT 1", "SWAPDB 0 1", false),
            ("SELECT 3", "SET k v; DEL k", true),
            ("SELECT 3", "SELECT 3; SET k v; DEL k", false),
            ("SELECT 0", "SELECT 3; SET k v; DEL k", true),
            ("SET k v; SELECT 0", "SELECT 3; SET k v; FLUSHDB", true),
            ("SET k v; SELECT 0", "FLUSHALL", false),
            ("SELECT 3; SET k v; SELECT 3", "FLUSHDB", true),
            ("SELECT 3; SET k v; SELECT 3", "FLUSHALL", false),
            ("SELECT 3; SET k v; SELECT 3", "SELECT 3; FLUSHDB; SET k v", false),
            ("SELECT 3; SET k v; SELECT 3", "SELECT 3; MOVE k 4", false),
            ("SELECT 4", "SELECT 3; SET k v; MOVE k 4", false),
            ("SELECT 4", "SELECT 3; SET k v; MOVE k 4; SELECT 4; DEL k", false),
            ("SELECT 4", "SET k v; COPY k k DB 4", false),
            ("SELECT 4", "SET k v; COPY k k DB 5", true),
        ];
        for (before, between, succeeds) in cases {
            node.say(other, "SELECT 0");
            node.say(other, "FLUSHALL");
            node.say(one, "SELECT 0");
            before.split("; ").for_each(|line| drop(node.say(one, line)));
            assert_eq!(node.say(one, "WATCH k"), "+OK|");
            between.split("; ").for_each(|line| drop(node.say(other, line)));
            // The transaction is in another database than the watched key.
            for line in ["SELECT 8", "MULTI", "SET done yes"] {
                node.say(one, line);
            }
            let reply = node.say(one, "EXEC");
            let expected = if succeeds { "*1|+OK|" } else { "*-1|" };
            assert_eq!(reply, expected, "{before} / {between}");
            let found = node.say(one, "EXISTS done");
            assert_eq!(found, format!(":{}|", u8::from(succeeds)), "{before} / {between}");
        }
    });
}

/// A flush of more keys than are recorded changes all absent keys of its database, and no others.
#[test]
fn a_large_flush_changes_the_absent_keys_of_its_database() {
    on_both(|node| {
        let (one, other) = (node.connect(), node.connect());
        for (number, succeeds) in [(3, false), (0, true), (4, true)] {
            node.say(other, "SELECT 3");
            for first in 0..2 {
                let mut words = vec!["MSET".to_owned()];
                words.extend((0..1200).map(|key| format!("{}", key / 2 + 600 * first)));
                node.ask(other, &words.iter().map(String::as_str).collect::<Vec<_>>());
            }
            node.say(one, &format!("SELECT {number}"));
            node.say(one, "WATCH absent");
            node.say(other, "FLUSHDB");
            node.say(one, "MULTI");
            let reply = node.say(one, "EXEC");
            assert_eq!(reply, if succeeds { "*0|" } else { "*-1|" }, "{number}");
        }
    });
}

#[test]
fn a_transaction_changes_the_database_of_the_connection_once_it_was_executed() {
    check_at(
        ABSENT_LEVEL,
        "
        SET db 0 => +OK|
        SELECT 4 => +OK|
        SET db 4 => +OK|
        MULTI => +OK|
        GET db => +QUEUED|
        SELECT 0 => +QUEUED|
        GET db => +QUEUED|
        SELECT 99 => +QUEUED|
        SELECT x => +QUEUED|
        GET db => +QUEUED|
        EXEC => *6|$1|4|+OK|$1|0|-ERR DB index is out of range|-ERR value is not an integer or out of range|$1|0|
        GET db => $1|0|
        MULTI => +OK|
        SELECT 4 => +QUEUED|
        DISCARD => +OK|
        GET db => $1|0|
        MULTI => +OK|
        SELECT 4 => +QUEUED|
        NONSENSE => -ERR unknown command 'NONSENSE', see docs/commands.md|
        EXEC => -EXECABORT Transaction discarded because of previous errors.|
        GET db => $1|0|
        WATCH db => +OK|
        SET db 0 => +OK|
        MULTI => +OK|
        SELECT 4 => +QUEUED|
        SET db lost => +QUEUED|
        EXEC => *-1|
        GET db => $1|0|
        MULTI => +OK|
        SELECT 4 => +QUEUED|
        RESET => +RESET|
        GET db => $1|0|
        ",
    );
}

/// State that the test expects of a connection, and the marks of databases.
struct Model {
    database: u64,
    /// Database in the open transaction, and the number of its queued commands.
    multi: Option<(u64, usize)>,
    watches: bool,
}

/// A connection's database changes only by SELECT, RESET and an EXEC that was executed, whatever is
/// pipelined behind it, in which order replies arrive, and which of them are lost.
#[test]
fn only_select_reset_and_an_executed_exec_change_a_connections_database() {
    let mut ends = BTreeMap::new();
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut node = Node::memory();
        node.world.level = ABSENT_LEVEL;
        mark(&mut node);
        let (mut client, other) = (node.connect(), node.connect());
        let mut model = Model { database: 0, multi: None, watches: false };
        for _ in 0..40 {
            let number = random.below(16) as u64;
            match (random.below(8), &mut model.multi) {
                (0 | 1, Some((database, count))) => {
                    assert_eq!(node.say(client, &format!("SELECT {number}")), "+QUEUED|");
                    (*database, *count) = (number, *count + 1);
                }
                (0, None) => {
                    assert_eq!(node.say(client, &format!("SELECT {number}")), "+OK|");
                    model.database = number;
                }
                (1, None) => {
                    node.say(client, "WATCH db");
                    model.watches = true;
                }
                (2, None) => {
                    node.say(client, "MULTI");
                    model.multi = Some((model.database, 0));
                }
                (2, Some((_, count))) => {
                    node.say(client, "SET other 1");
                    *count += 1;
                }
                (3, Some(_)) => {
                    node.say(client, "DISCARD");
                    (model.multi, model.watches) = (None, false);
                }
                (3, None) if random.below(4) == 0 => {
                    assert_eq!(node.say(client, "RESET"), "+RESET|");
                    (model.database, model.watches) = (0, false);
                }
                (4..8, Some(multi)) => {
                    let (database, count) = *multi;
                    let end = exec(&mut node, client, other, &model, &mut random);
                    *ends.entry(end).or_insert(0) += 1;
                    let executed = end == "executed";
                    model.database = if executed { database } else { model.database };
                    assert!(count < 1000);
                    (model.multi, model.watches) = (None, false);
                    if end == "lost" {
                        if database != model.database {
                            assert!(node.front.should_close(client), "its database is unknown");
                        }
                        client = node.connect();
                        model.database = 0;
                    }
                }
                _ => {}
            }
            if model.multi.is_none() {
                assert_eq!(selected(&mut node, client), model.database.to_string(), "seed {seed}");
            }
        }
    }
    for end in ["executed", "failed", "refused", "not executed", "lost"] {
        assert!(ends.get(end).is_some_and(|count| *count > 20), "{ends:?}");
    }
}

/// Failures of a command that may have been executed.
const DOUBTFUL: [Failure; 4] =
    [Failure::Unknown, Failure::NotLasting, Failure::NoSession, Failure::ReplyForgotten];
/// Failures of a command that was not executed.
const NOT_EXECUTED: [Failure; 11] = [
    Failure::Busy,
    Failure::NoQuorum,
    Failure::TooBig,
    Failure::Stopping,
    Failure::Removed,
    Failure::Voteless,
    Failure::Unavailable,
    Failure::DiskFull(NodeId(1)),
    Failure::Diverged,
    Failure::SessionFull,
    Failure::Level,
];

/// Sends EXEC with a read pipelined behind it, and returns how it ended.
fn exec(
    node: &mut Node,
    client: ConnectionId,
    other: ConnectionId,
    model: &Model,
    random: &mut Random,
) -> &'static str {
    let (after, _) = model.multi.unwrap();
    let end = match random.below(5) {
        0 => "refused",
        1 => "lost",
        2 => "not executed",
        3 if model.watches => "failed",
        _ => "executed",
    };
    if end == "failed" {
        // Changes no mark, but each one's version.
        node.say(other, "SWAPDB 0 1");
        node.say(other, "SWAPDB 0 1");
        for number in 0..16 {
            node.say(other, &format!("SELECT {number}"));
            node.say(other, &format!("SET db {number}"));
        }
    }
    if end == "refused" {
        node.world.refuse = Some(Failure::NoQuorum);
    }
    let pipelined = [request(&["EXEC"]), request(&["GET", "db"])].concat();
    node.feed(client, &pipelined);
    node.world.refuse = None;
    match end {
        "lost" => fail_exec(node, *random.pick(&DOUBTFUL), random.below(2) == 0),
        "not executed" => fail_exec(node, *random.pick(&NOT_EXECUTED), false),
        _ => {}
    }
    node.settle_randomly(random);
    let replies = node.take(client);
    let database = match end {
        "executed" => after,
        _ => model.database,
    };
    let length = database.to_string().len();
    let read = format!("${length}|{database}|");
    match end {
        "executed" => {
            assert!(replies.starts_with('*') && replies.ends_with(&read), "{replies}");
        }
        "failed" => assert_eq!(replies, format!("*-1|{read}")),
        "not executed" => {
            assert!(replies.starts_with('-') && replies.ends_with(&read), "{replies}");
        }
        _ => assert!(replies.starts_with('-'), "{replies}"),
    }
    end
}

/// Executes what was asked before the transaction, and fails the transaction, executed or not.
fn fail_exec(node: &mut Node, failure: Failure, is_executed: bool) {
    let exec_tag = |asked: &Asked| match asked {
        Asked::Write(tag, _, command) => {
            let op = command.iter().find(|byte| **byte != Op::Bounded as u8);
            op.is_some_and(|op| [Op::Exec as u8, Op::ExecIn as u8].contains(op)).then_some(*tag)
        }
        _ => None,
    };
    while let Some(asked) = node.world.asked.front() {
        let tag = exec_tag(asked);
        if tag.is_some() && !is_executed {
            node.world.asked.pop_front();
        } else {
            node.execute(0);
        }
        if let Some(tag) = tag {
            node.world.told.retain(|told| !matches!(told, Told::Written(of, _) if *of == tag));
            node.world.told.push(Told::Failed(tag, failure));
            return;
        }
    }
}

#[test]
fn numbered_commands_are_executed_in_the_selected_database() {
    on_both(|node| {
        let (one, other) = (node.connect(), node.connect());
        mark(node);
        let session = node.say(one, "QUORATE SESSION");
        let session = session.split('|').nth(1).unwrap().to_owned();
        node.say(one, "SELECT 6");
        assert_eq!(node.say(one, "QUORATE SEQ 1 GET db"), "$1|6|");
        assert_eq!(node.say(one, "QUORATE SEQ 2 SET k v"), "+OK|");
        for line in ["MULTI", "SELECT 9", "GET db"] {
            node.say(one, line);
        }
        assert_eq!(node.say(one, "QUORATE SEQ 3 EXEC"), "*2|+OK|$1|9|");
        assert_eq!(selected(node, one), "9");
        // Repeated on another connection: the first reply, and its database.
        node.say(other, &format!("QUORATE SESSION {session}"));
        for line in ["MULTI", "SELECT 9", "GET db"] {
            node.say(other, line);
        }
        assert_eq!(node.say(other, "QUORATE SEQ 3 EXEC"), "*2|+OK|$1|9|");
        assert_eq!(selected(node, other), "9");
        assert_eq!(node.say(other, "EXISTS k"), ":0|");
        node.say(other, "SELECT 6");
        assert_eq!(node.say(other, "EXISTS k"), ":1|");
    });
}

/// A script starts in its client's database, may select others, and leaves nothing behind.
#[test]
fn a_script_that_selects_leaves_its_clients_database() {
    on_both(|node| {
        let client = node.connect();
        mark(node);
        node.say(client, "SELECT 2");
        let fill = "local a = redis.call('GET', 'db') redis.call('SELECT', ARGV[1]) \
            redis.call('SET', 'k', a) return {a, redis.call('GET', 'db')}";
        assert_eq!(node.ask(client, &["EVAL", fill, "0", "5"]), "*2|$1|2|$1|5|");
        assert_eq!(selected(node, client), "2");
        assert_eq!(node.say(client, "EXISTS k"), ":0|");
        node.say(client, "SELECT 5");
        assert_eq!(node.say(client, "GET k"), "$1|2|");
        // Refused, failed and stopped scripts.
        let wrong = node.ask(client, &["EVAL", "return redis.call('SELECT', '16')", "0"]);
        assert!(wrong.starts_with("-ERR DB index is out of range"), "{wrong}");
        for (text, reply) in [
            ("redis.call('SELECT', '7') redis.call('SET', 'k', 'a') error('no')", "-ERR"),
            ("redis.call('SELECT', '7') redis.call('SET', 'k', 'b') while true do end", "-TOOBIG"),
            (
                "redis.call('SELECT', '7') redis.call('SET', 'k', 'c') return redis.call('NO')",
                "-ERR",
            ),
        ] {
            let found = node.ask(client, &["EVAL", text, "0"]);
            assert!(found.starts_with(reply), "{text}: {found}");
            assert_eq!(selected(node, client), "5", "{text}");
        }
        node.say(client, "SELECT 7");
        assert_eq!(node.say(client, "GET k"), "$1|c|");
        // In transactions, as a query, and on other databases.
        let read = "redis.call('SELECT', '3') return redis.call('GET', 'db')";
        assert_eq!(node.ask(client, &["EVAL_RO", read, "0"]), "$1|3|");
        assert_eq!(selected(node, client), "7");
        for line in ["MULTI", "SELECT 9"] {
            node.say(client, line);
        }
        for name in ["EVAL", "EVAL_RO"] {
            node.ask(client, &[name, "return redis.call('GET', 'db')", "0"]);
            node.ask(client, &[name, read, "0"]);
        }
        node.say(client, "GET db");
        assert_eq!(node.say(client, "EXEC"), "*6|+OK|$1|9|$1|3|$1|9|$1|3|$1|9|");
        // Commands on several databases, with the numbers that the script sees.
        let moves = "redis.call('SET', 'm', '1') redis.call('COPY', 'm', 'm', 'DB', '10') \
            return {redis.call('MOVE', 'm', '11'), redis.call('SWAPDB', '10', '11'), \
            redis.call('EXISTS', 'm')}";
        assert_eq!(node.ask(client, &["EVAL", moves, "0"]), "*3|:1|+OK|:0|");
        assert_eq!(node.ask(client, &["EVAL", "return redis.call('FLUSHALL')", "0"]), "+OK|");
        for number in [0, 9, 11] {
            node.say(client, &format!("SELECT {number}"));
            assert_eq!(node.say(client, "DBSIZE"), ":0|");
        }
    });
}

/// [db-4] A claim names no database: the client's wait does.
#[test]
fn a_claim_takes_from_the_database_of_its_wait() {
    on_both(|node| {
        let owner = FrontId { node: 1, incarnation: 1_000_000 };
        let blpop = [&[Op::Attempt as u8][..], &[0; 8], &[0, 0, 0, 1, 1, b'k']].concat();
        let mut wait = vec![Op::In as u8, 2];
        assert!(encode_await(owner, 7, &blpop, &mut Encoder(&mut wait)));
        assert_eq!(node.world.apply(&wait), WAITING);
        let client = node.connect();
        for (number, value) in [(0, "zero"), (2, "two")] {
            node.say(client, &format!("SELECT {number}"));
            node.say(client, &format!("RPUSH k {value}"));
        }
        let mut claim = Vec::new();
        encode_claim(owner, 7, &mut Encoder(&mut claim));
        let reply = String::from_utf8(node.world.apply(&claim)).unwrap();
        assert_eq!(reply, "*2\r\n$1\r\nk\r\n$3\r\ntwo\r\n");
        assert_eq!(node.world.apply(&claim), GONE);
    });
}

#[test]
fn clients_wait_for_keys_of_their_database() {
    let mut group = Group::memory(2);
    group.nodes.iter_mut().for_each(|node| node.world.level = ABSENT_LEVEL);
    let (first, second, other) = (group.connect(0), group.connect(1), group.connect(1));
    group.say(second, "SELECT 2");
    assert_eq!(group.say(first, "BLPOP k 0") + &group.say(second, "BLPOP k 0"), "");
    group.say(other, "SELECT 3");
    group.say(other, "RPUSH k c");
    assert_eq!(group.take(first) + &group.take(second), "");
    group.say(other, "SELECT 2");
    group.say(other, "RPUSH k b");
    assert_eq!((group.take(first), group.take(second)), (String::new(), "*2|$1|k|$1|b|".into()));
    // A swap brings the list of database 3 to the client that waits in database 0.
    group.say(other, "SWAPDB 0 2");
    assert_eq!(group.take(first), "", "the other database has no such key");
    group.say(other, "SWAPDB 3 0");
    assert_eq!(group.take(first), "*2|$1|k|$1|c|");
    // So does a move.
    assert_eq!(group.say(second, "BRPOPLPUSH k l 0"), "");
    group.say(other, "SELECT 1");
    group.say(other, "RPUSH k d");
    group.say(other, "MOVE k 2");
    assert_eq!(group.take(second), "$1|d|");
    group.say(other, "SELECT 2");
    assert_eq!(group.say(other, "LRANGE l 0 -1"), "*1|$1|d|");
    assert_eq!(group.say(other, "EXISTS k"), ":0|");
}

/// An element may be gone before the client that was told of it claims it; the client then waits on.
#[test]
fn a_claim_finds_what_its_database_has_by_then() {
    for gone in ["FLUSHDB", "SWAPDB 2 7", "FLUSHALL", "MOVE k 9", "DEL k"] {
        let mut group = Group::memory(2);
        group.nodes.iter_mut().for_each(|node| node.world.level = ABSENT_LEVEL);
        let (client, other) = (group.connect(0), group.connect(1));
        group.say(client, "SELECT 2");
        group.say(client, "BLPOP k 0");
        group.send(other, "SELECT 2");
        group.send(other, "RPUSH k a");
        while group.step(1) {}
        group.tell(1);
        // The client's node has seen the list; its claim follows in its next turn.
        group.turn(0);
        assert_eq!(group.nodes[0].world.asked.len(), 1, "a claim");
        group.send(other, gone);
        while group.step(1) {}
        group.settle();
        assert_eq!(group.take(client), "", "{gone}");
        group.take(other);
        group.say(other, "RPUSH k b");
        assert_eq!(group.take(client), "*2|$1|k|$1|b|", "{gone}");
    }
}

#[test]
fn waiting_clients_survive_an_image_in_their_database() {
    let mut group = Group::memory(3);
    group.nodes.iter_mut().for_each(|node| node.world.level = ABSENT_LEVEL);
    let (client, other) = (group.connect(0), group.connect(1));
    group.say(client, "SELECT 11");
    group.say(client, "BZPOPMIN z 0");
    group.restart(2, 0);
    group.nodes[2].world.level = ABSENT_LEVEL;
    group.agree();
    group.say(other, "ZADD z 1 zero");
    group.say(other, "SELECT 11");
    group.say(other, "ZADD z 1 a");
    assert_eq!(group.take(client), "*3|$1|z|$1|a|$1|1|");
    group.agree();
}

#[test]
fn readers_of_streams_wait_in_their_database() {
    let mut group = Group::memory(2);
    group.nodes.iter_mut().for_each(|node| node.world.level = ABSENT_LEVEL);
    let (reader, consumer, other) = (group.connect(0), group.connect(0), group.connect(1));
    for client in [reader, consumer, other] {
        group.say(client, "SELECT 4");
    }
    group.say(other, "XGROUP CREATE t g $ MKSTREAM");
    assert_eq!(group.say(reader, "XREAD BLOCK 0 STREAMS s $"), "");
    assert_eq!(group.say(consumer, "XREADGROUP GROUP g c BLOCK 0 STREAMS t >"), "");
    group.say(other, "SELECT 0");
    group.say(other, "XADD s 1-1 f zero");
    group.say(other, "XADD t 1-1 f zero");
    assert_eq!(group.take(reader) + &group.take(consumer), "");
    group.say(other, "SELECT 4");
    group.say(other, "XADD s 2-1 f v");
    group.say(other, "XADD t 2-1 f v");
    let entry = |key: &str| format!("*1|*2|$1|{key}|*1|*2|$3|2-1|*2|$1|f|$1|v|");
    assert_eq!(group.take(reader), entry("s"));
    assert_eq!(group.take(consumer), entry("t"));
    // A swap takes the group away.
    assert_eq!(group.say(consumer, "XREADGROUP GROUP g c BLOCK 0 STREAMS t >"), "");
    group.say(other, "SWAPDB 4 5");
    let reply = group.take(consumer);
    assert!(reply.starts_with("-NOGROUP"), "{reply}");
}

#[test]
fn clients_are_told_of_databases() {
    on_both(|node| {
        let (client, watcher, listener) = (node.connect(), node.connect(), node.connect());
        node.say(watcher, "MONITOR");
        node.say(client, "SELECT 3");
        node.take(watcher);
        node.say(client, "SET k v");
        assert!(node.take(watcher).contains(" [3 10.0.0.1:5000] \"SET\" \"k\" \"v\"|"));
        node.say(watcher, "RESET");
        assert!(node.say(listener, "CLIENT LIST ID 1").contains(" db=3 "));
        assert!(node.say(listener, "CLIENT LIST ID 3").contains(" db=0 "));
        for line in ["MULTI", "SELECT 7", "EXEC"] {
            node.say(client, line);
        }
        assert!(node.say(listener, "CLIENT LIST ID 1").contains(" db=7 "));
        node.say(client, "SELECT 3");
        node.say(client, "PEXPIRE k 5000");
        node.say(client, "SELECT 15");
        node.say(client, "SET k v");
        let info = node.say(client, "INFO keyspace");
        let expected = "# Keyspace|db3:keys=1,expires=1,avg_ttl=0,subexpiry=0|\
            db15:keys=1,expires=0,avg_ttl=0,subexpiry=0|";
        assert!(info.contains(expected), "{info}");
        node.say(listener, "CONFIG SET notify-keyspace-events KEA");
        node.say(listener, "PSUBSCRIBE __key*__:*");
        let events = |node: &mut Node| -> Vec<String> {
            let told = node.take(listener);
            let channels =
                told.split('|').filter(|word| word.starts_with("__key") && !word.ends_with('*'));
            channels.map(str::to_owned).collect()
        };
        node.say(client, "MOVE k 9");
        assert_eq!(
            events(node),
            [
                "__keyspace@15__:k",
                "__keyevent@15__:move_from",
                "__keyspace@9__:k",
                "__keyevent@9__:move_to"
            ]
        );
    });
}

/// Caches are by name: a change in any database ends them, too often rather than too seldom.
#[test]
fn cached_keys_are_told_whichever_database_changes() {
    let mut node = Node::memory();
    node.world.level = ABSENT_LEVEL;
    let (reader, writer) = (node.connect(), node.connect());
    node.say(reader, "HELLO 3");
    node.say(reader, "CLIENT TRACKING ON");
    for change in ["SET k v", "SWAPDB 9 10", "FLUSHDB", "MOVE k 3"] {
        node.say(writer, "SELECT 9");
        node.say(writer, "SET k v");
        node.say(reader, "GET k");
        node.take(reader);
        node.say(writer, change);
        assert!(node.take(reader).starts_with(">2|$10|invalidate|"), "{change}");
    }
}

#[test]
fn cluster_mode_has_the_first_database_only() {
    for mode in [ClusterMode::Emulated, ClusterMode::Leader] {
        let mut node = Node::memory();
        node.world.level = ABSENT_LEVEL;
        node.front = RespFront::new(Settings { cluster_mode: mode, ..Settings::default() });
        let client = node.connect();
        for (command, expected) in [
            ("SET k v", "+OK|"),
            ("SELECT 0", "+OK|"),
            ("SELECT 1", "-ERR SELECT is not allowed in cluster mode|"),
            ("MOVE k 1", "-ERR MOVE is not allowed in cluster mode|"),
            ("SWAPDB 0 1", "-ERR SWAPDB is not allowed in cluster mode|"),
            ("COPY k j DB 1", "-ERR Copying to another database is not allowed in cluster mode|"),
            ("COPY k j DB 0", ":1|"),
            ("FLUSHALL", "+OK|"),
            ("DBSIZE", ":0|"),
            ("MULTI", "+OK|"),
            ("SELECT 1", "-ERR SELECT is not allowed in cluster mode|"),
            ("SET k v", "+QUEUED|"),
            ("EXEC", "-EXECABORT Transaction discarded because of previous errors.|"),
            ("EXISTS k", ":0|"),
        ] {
            assert_eq!(node.say(client, command), expected, "{command}");
        }
    }
}

/// A script may do what its client may: its front decides, so the log has the same for all nodes.
#[test]
fn scripts_have_the_databases_that_their_clients_have() {
    on_both(|node| {
        mark(node);
        for mode in [ClusterMode::Emulated, ClusterMode::Leader] {
            node.front = RespFront::new(Settings { cluster_mode: mode, ..Settings::default() });
            let client = node.connect();
            let digest = node.world.service.digest();
            for (command, expected) in [
                ("'SELECT', '1'", "-ERR SELECT is not allowed in cluster mode"),
                ("'SELECT', '16'", "-ERR DB index is out of range"),
                ("'SELECT', '0'", "+OK|"),
                ("'MOVE', 'db', '1'", "-ERR MOVE is not allowed in cluster mode"),
                ("'SWAPDB', '1', '2'", "-ERR SWAPDB is not allowed in cluster mode"),
                (
                    "'COPY', 'db', 'k', 'DB', '1'",
                    "-ERR Copying to another database is not allowed in cluster mode",
                ),
                ("'GET', 'db'", "$1|0|"),
            ] {
                let text = format!("return redis.call({command})");
                for name in ["EVAL", "EVAL_RO"] {
                    let reply = node.ask(client, &[name, &text, "0"]);
                    assert!(reply.starts_with(expected), "{name} {command}: {reply}");
                }
            }
            assert_eq!(node.world.service.digest(), digest);
            let copy = "return redis.call('COPY', 'db', 'k', 'DB', '0', 'REPLACE')";
            assert_eq!(node.ask(client, &["EVAL", copy, "0"]), ":1|");
        }
    });
}

/// The sweep takes the database with the oldest passed deadline, so that none has to wait for one
/// in which keys expire without end.
#[test]
fn expired_keys_of_all_databases_are_removed_oldest_first() {
    on_both(|node| {
        let client = node.connect();
        let fill = |node: &mut Node, number: u64, after_ms: u64, count: usize| {
            node.say(client, &format!("SELECT {number}"));
            for key in 0..count {
                node.say(client, &format!("SET {number}:{after_ms}:{key} v PX {after_ms}"));
            }
        };
        fill(node, 0, 50, 300);
        fill(node, 15, 40, 3);
        fill(node, 7, 60, 2);
        node.say(client, "HSET h f v g v");
        node.say(client, "HPEXPIRE h 45 FIELDS 1 f");
        let next = |node: &mut Node| {
            let mut proposed = Vec::new();
            node.world.service.due(&mut |command| proposed.push(command.to_vec()));
            assert!(proposed.len() <= 1);
            proposed.pop()
        };
        assert_eq!(next(node), None);
        let until = node.world.wall_ms + 1000;
        assert!(node.world.service.next_deadline(until).is_some());
        node.world.wall_ms = until;
        assert!(node.pass());
        let mut order = Vec::new();
        while let Some(command) = next(node) {
            let database = match command[0] == Op::In as u8 {
                true => command[1],
                false => 0,
            };
            order.push(database);
            node.world.apply(&command);
        }
        assert_eq!(order, [15, 7, 0, 0], "the earliest deadline of each");
        node.say(client, "SELECT 7");
        assert_eq!(node.say(client, "HLEN h"), ":1|");
        let info = node.say(client, "INFO keyspace");
        assert!(
            info.contains("# Keyspace|db7:keys=1,") && info.matches("db").count() == 1,
            "{info}"
        );
    });
}

/// The number of keys is exact in every database, with ended keys, after swaps and moves.
#[test]
fn counts_are_those_of_the_keys_that_exist() {
    on_both(|node| {
        let client = node.connect();
        let mut random = Random::new(7);
        for round in 0..400 {
            let number = random.below(4);
            node.say(client, &format!("SELECT {number}"));
            let (key, other) = (random.below(6), random.below(4));
            let line = match random.below(9) {
                0 => format!("SET {key} v PX {}", 1 + random.below(40)),
                1 => format!("MOVE {key} {other}"),
                2 => format!("SWAPDB {number} {other}"),
                3 => format!("DEL {key}"),
                4 => format!("RPUSH l{key} a b"),
                5 if random.below(9) == 0 => "FLUSHDB".to_owned(),
                6 => format!("COPY {key} {key} DB {other} REPLACE"),
                7 => format!("MOVE l{key} {other}"),
                _ => format!("SET {key} v"),
            };
            node.say(client, &line);
            node.world.wall_ms += 5;
            if random.below(3) == 0 {
                node.pass();
            }
            if random.below(9) == 0 {
                node.sweep();
            }
            for number in 0..4 {
                node.say(client, &format!("SELECT {number}"));
                let keys = node.say(client, "KEYS *");
                let found = keys.trim_start_matches('*').split('|').next().unwrap().to_owned();
                assert_eq!(node.say(client, "DBSIZE"), format!(":{found}|"), "{round}: {line}");
            }
        }
    });
}

/// The next command in the log may have no prefix.
#[test]
fn the_database_is_selected_between_commands() {
    let mut node = Node::memory();
    node.world.level = ABSENT_LEVEL;
    let client = node.connect();
    mark(&mut node);
    for line in
        ["SELECT 5", "GET db", "SET k v", "MOVE k 9", "COPY db db DB 10 REPLACE", "SWAPDB 1 2"]
    {
        node.say(client, line);
        assert_eq!(node.world.service.store().selected().number(), 0, "{line}");
    }
    let id = CommandId { slot: Slot(node.world.slot), index: 0 };
    let mut reply = Vec::new();
    node.world.service.apply(id, &[Op::In as u8, 5, Op::Get as u8, 1], &mut reply);
    assert!(reply.starts_with(b"-ERR"), "a key is missing");
    assert_eq!(node.world.service.store().selected().number(), 0, "restored behind an error");
}

/// INFO walks over a bounded number of deadlines, however many databases there are.
#[test]
fn info_counts_deadlines_of_all_databases_up_to_one_limit() {
    on_both(|node| {
        let client = node.connect();
        for (number, keys) in [(0, 6000), (1, 5000), (2, 1)] {
            node.say(client, &format!("SELECT {number}"));
            for key in 0..keys {
                node.say(client, &format!("SET {key} v EX 100"));
            }
        }
        let info = node.say(client, "INFO keyspace");
        for line in
            ["db0:keys=6000,expires=6000,", "db1:keys=5000,expires=4000,", "db2:keys=1,expires=0,"]
        {
            assert!(info.contains(line), "{line} in {info}");
        }
    });
}
