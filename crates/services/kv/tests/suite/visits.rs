//! Bounds on the rows that commands visit ([visit-1] to [visit-3]). Every test also compares the
//! computed bounds with the actual visits.

use quorate_core::slot::Slot;
use quorate_kv::{
    commands::{transactions::ABSENT_LEVEL, visits::VISITS_MAX},
    encode::Encoder,
    op::{Kind, Op},
};
use quorate_replica::service::{CommandId, StateMachine as _, Weight};

use crate::common::{Node, World, on_both_stores};

/// Returns a command that ends with `name` repeated `times` times.
fn named<'a>(before: &[&'a str], name: &'a str, times: usize) -> Vec<&'a str> {
    before.iter().copied().chain(std::iter::repeat_n(name, times)).collect()
}

const TOO_MANY: &str = "-TOOBIG not executed: ";

/// A small set that is named many times costs as much as a large one.
#[test]
fn what_is_named_again_is_visited_again() {
    on_both_stores(|node| {
        let client = node.connect();
        let members: Vec<String> = (0..300).map(|member| member.to_string()).collect();
        for chunk in members.chunks(100) {
            let chunk: Vec<&str> = chunk.iter().map(String::as_str).collect();
            node.ask(client, &[&["SADD", "s"], &chunk[..]].concat());
        }
        let many = "20000";
        for before in [
            &["SUNIONSTORE", "d"][..],
            &["SINTERSTORE", "d"],
            &["SDIFFSTORE", "d", "s", "none"],
            &["SUNION"],
            &["SINTER"],
            &["ZUNIONSTORE", "d", many],
            &["ZINTERSTORE", "d", many],
            &["ZUNION", many],
            &["SINTERCARD", many],
            &["ZINTERCARD", many],
        ] {
            let answer = node.ask(client, &named(before, "s", 20_000));
            assert!(answer.starts_with(TOO_MANY), "{before:?}: {answer}");
            // A large number of keys alone is no reason to refuse a command.
            let few = before.iter().map(|word| if *word == many { "200" } else { word });
            let answer = node.ask(client, &named(&few.collect::<Vec<_>>(), "s", 200));
            assert!(answer.starts_with([':', '*']), "{before:?}: {answer}");
        }
        assert!(node.say(client, "SRANDMEMBER s -1000000").starts_with(TOO_MANY));
        assert!(node.say(client, "SRANDMEMBER s -100000").starts_with("*100000|"));
        // A transaction has the same limit as a single command.
        node.say(client, "MULTI");
        for _ in 0..300 {
            assert_eq!(node.ask(client, &named(&["SUNIONSTORE", "d"], "s", 30)), "+QUEUED|");
        }
        assert!(node.say(client, "EXEC").starts_with(TOO_MANY));
    });
}

/// The most expensive commands on large collections are refused before they enter the log. Cheaper
/// commands on the same collections are accepted.
#[test]
fn the_longest_commands_are_refused_before_they_are_in_the_log() {
    let mut node = Node::memory();
    let client = node.connect();
    let fill = |node: &mut Node, command: &[&str], of: &dyn Fn(u64) -> Vec<String>, count: u64| {
        for from in (0..count).step_by(10_000) {
            let all: Vec<String> = (from..count.min(from + 10_000)).flat_map(of).collect();
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            assert!(node.ask(client, &[command, &all].concat()).starts_with(':'));
        }
    };
    let name = |number: u64| vec![format!("m{number}")];
    let scored = |number: u64| vec![number.to_string(), format!("m{number}")];
    fill(&mut node, &["RPUSH", "list"], &name, VISITS_MAX + 100_000);
    fill(&mut node, &["SADD", "set"], &name, 150_000);
    fill(&mut node, &["ZADD", "zset"], &scored, 150_000);
    let slot = node.world.slot;
    for command in [
        "LRANGE list 0 -1",
        "LPOS list none",
        "LREM list 0 none",
        "LREM list 0 m500000",
        "LINSERT list BEFORE m600000 x",
        "LTRIM list 0 500000",
        "LPOP list 500000",
        "LMPOP 1 list LEFT COUNT 500000",
        "BLMPOP 0 1 list LEFT COUNT 500000",
        "COPY list other",
        "SUNIONSTORE other set",
        "ZUNIONSTORE other 1 zset",
        "ZRANGESTORE other zset 0 -1",
        "ZRANGESTORE other zset -inf +inf BYSCORE",
        "ZREMRANGEBYSCORE zset -inf +inf",
        "ZPOPMIN zset 150000",
        "SPOP set 149999",
        "ZRANDMEMBER zset -1000000",
        "SORT list ALPHA STORE other",
    ] {
        let answer = node.say(client, command);
        assert!(answer.starts_with("-TOOBIG"), "{command}: {answer:.100}");
    }
    assert_eq!(node.world.slot, slot);
    for command in [
        "LRANGE list 0 9",
        "LPOS list none MAXLEN 1000000",
        "LINSERT list BEFORE m9 x",
        "LTRIM list 100000 -1",
        "ZCOUNT zset -inf +inf",
        "ZRANGESTORE other zset 0 9999",
        "ZRANGEBYSCORE zset 5 10",
        "SPOP set 10",
        "SRANDMEMBER set 10",
        "SCARD set",
        "DEL list",
    ] {
        let answer = node.say(client, command);
        assert!(!answer.starts_with('-'), "{command}: {answer:.100}");
    }
}

/// [visit-2] If the data has grown since the front's check, the command fails when it is executed.
#[test]
fn what_has_grown_meanwhile_is_refused_in_the_log() {
    let mut node = Node::memory();
    node.world.level = ABSENT_LEVEL;
    let client = node.connect();
    node.feed(client, &crate::common::request(&["SUNIONSTORE", "d", "set"]));
    let asked = node.world.asked.pop_front();
    let other = node.connect();
    for from in (0..150_000).step_by(10_000) {
        let members: Vec<String> = (from..from + 10_000).map(|n: u64| n.to_string()).collect();
        let members: Vec<&str> = members.iter().map(String::as_str).collect();
        node.ask(other, &[&["SADD", "set"], &members[..]].concat());
    }
    node.world.asked.extend(asked);
    node.settle();
    assert!(node.take(client).starts_with(TOO_MANY));
    assert_eq!(node.say(client, "EXISTS d"), ":0|");
}

/// A faulty node can send commands that no front encodes. They are refused, however deeply they are
/// nested.
#[test]
fn a_prefix_before_a_prefix_and_a_transaction_in_a_transaction_do_nothing() {
    let mut service = World::memory().service;
    let mut transactions = vec![Op::Flush as u8];
    for _ in 0..20_000 {
        let inner = std::mem::take(&mut transactions);
        let mut out = Encoder(&mut transactions);
        out.byte(Op::Exec as u8).length(0).length(1).bytes(&inner);
    }
    let set = [Op::Set as u8, 0, 0, 1, b'k', 1, b'v'];
    let prefixes = [vec![Op::Bounded as u8; 1_000_000], set.to_vec()].concat();
    for (command, expected) in [(prefixes, "-ERR"), (transactions, "*1\r\n-ERR")] {
        assert_eq!(service.visits(&command), 0);
        assert_eq!(service.weigh(&command), Weight::Light);
        assert!(!service.grows(&command) && Kind::of(&command) != Kind::Read);
        service.level_of(&command);
        let mut reply = Vec::new();
        service.apply(CommandId { slot: Slot(1), index: 0 }, &command, &mut reply);
        let reply = String::from_utf8(reply).unwrap();
        assert!(reply.starts_with(expected), "{reply}");
    }
}
