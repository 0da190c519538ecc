//! Transactions: the commands MULTI, EXEC and WATCH.

use quorate_core::{level::Level, slot::Slot};
use quorate_kv::{
    commands::transactions::ABSENT_LEVEL, service::Service, store::memory::MemoryStore,
};
use quorate_replica::{
    front::{ConnectionId, Front as _},
    service::{Imaged, StateMachine},
};

use crate::common::{Node, Random, check, on_both_stores};

#[test]
fn transactions() {
    check(
        "
        MULTI => +OK|
        SET a 1 => +QUEUED|
        INCR a => +QUEUED|
        GET a => +QUEUED|
        PING => +QUEUED|
        ECHO x => +QUEUED|
        TTL a => +QUEUED|
        EXEC => *6|+OK|:2|$1|2|+PONG|$1|x|:-1|
        EXEC => -ERR EXEC without MULTI|
        DISCARD => -ERR DISCARD without MULTI|
        MULTI => +OK|
        EXEC => *0|
        MULTI => +OK|
        SET a 9 => +QUEUED|
        DISCARD => +OK|
        GET a => $1|2|
        MULTI => +OK|
        MULTI => -ERR MULTI calls can not be nested|
        WATCH a => -ERR WATCH inside MULTI is not allowed|
        UNWATCH => +QUEUED|
        INCRBY a x => +QUEUED|
        INCR a => +QUEUED|
        EXEC => *3|+OK|-ERR value is not an integer or out of range|:3|
        MULTI => +OK|
        INCR a => +QUEUED|
        GET => -ERR wrong number of arguments for 'get' command|
        EXEC => -EXECABORT Transaction discarded because of previous errors.|
        MULTI => +OK|
        NONSENSE => -ERR unknown command 'NONSENSE', see docs/commands.md|
        INCR a => +QUEUED|
        EXEC => -EXECABORT Transaction discarded because of previous errors.|
        GET a => $1|3|
        MULTI => +OK|
        SET t 1 EX 50 => +QUEUED|
        TTL t => +QUEUED|
        EXPIRE t 0 => +QUEUED|
        GET t => +QUEUED|
        SCAN 0 => +QUEUED|
        FLUSHALL => +QUEUED|
        SET z 1 => +QUEUED|
        KEYS * => +QUEUED|
        DBSIZE => +QUEUED|
        EXEC => *9|+OK|:50|:1|$-1|*2|$1|0|*1|$1|a|+OK|+OK|*1|$1|z|:1|
        MULTI => +OK|
        QUIT => +OK|
        ",
    );
}

#[test]
fn exec_fails_if_a_watched_key_changed() {
    on_both_stores(|node| {
        let (one, other) = (node.connect(), node.connect());
        // Commands of another client between WATCH and EXEC, each with whether EXEC succeeds.
        let cases = [
            ("PING", true),
            ("GET a", true),
            ("SET b 1", true),
            ("SET a 1", false),
            ("DEL a", false),
            ("EXPIRE a 100", false),
            ("APPEND a x", false),
            ("RENAME a c", false),
            ("FLUSHALL", false),
            ("DEL none", true),
            ("SET none 1", false),
            ("SETNX a 2", true),
        ];
        for (meanwhile, through) in cases {
            node.say(one, "DEL none");
            node.say(one, "SET a 1");
            assert_eq!(node.say(one, "WATCH a none"), "+OK|");
            node.say(other, meanwhile);
            node.say(one, "MULTI");
            node.say(one, "SET d 1");
            let expected = if through { "*1|+OK|" } else { "*-1|" };
            assert_eq!(node.say(one, "EXEC"), expected, "{meanwhile}");
            // EXEC has ended the watch, whether it succeeded or not.
            node.say(other, "SET a 5");
            node.say(one, "MULTI");
            assert_eq!(node.say(one, "EXEC"), "*0|");
        }
        node.say(one, "HELLO 3");
        node.say(one, "WATCH a");
        node.say(other, "SET a 6");
        node.say(one, "MULTI");
        assert_eq!(node.say(one, "EXEC"), "_|");
    });
}

#[test]
fn unwatch_and_discard_end_the_watch() {
    let mut node = Node::memory();
    let (one, other) = (node.connect(), node.connect());
    for end in [&["UNWATCH"][..], &["MULTI", "DISCARD"]] {
        node.say(one, "WATCH a");
        node.say(other, "INCR a");
        end.iter().for_each(|command| {
            node.say(one, command);
        });
        node.say(one, "MULTI");
        assert_eq!(node.say(one, "EXEC"), "*0|");
    }
}

/// A pipelined WATCH is answered after later commands have been parsed. It counts only for its own
/// transaction.
#[test]
fn watch_counts_for_the_transaction_it_was_sent_before() {
    let mut node = Node::memory();
    let (one, other) = (node.connect(), node.connect());
    // UNWATCH is parsed before WATCH is answered, and must still end it.
    node.feed(one, b"WATCH a\r\nUNWATCH\r\nMULTI\r\nINCR n\r\nEXEC\r\n");
    node.execute(0);
    node.tell(0);
    node.say(other, "SET a 1");
    node.settle();
    assert_eq!(node.take(one), "+OK|+OK|+OK|+QUEUED|*1|:1|");
    // The whole transaction is pipelined. The key changes after the answer to WATCH and before
    // EXEC.
    node.feed(one, b"WATCH a\r\nMULTI\r\nINCR n\r\nEXEC\r\n");
    let other_write = b"SET a 2\r\n";
    node.execute(0);
    node.feed(other, other_write);
    node.execute(0);
    node.settle();
    while !node.world.told.is_empty() {
        node.tell(0);
    }
    node.settle();
    assert!(node.take(one).starts_with("+OK|+OK|+QUEUED|*1|:2|"));
    node.feed(one, b"WATCH a\r\nMULTI\r\nINCR n\r\nEXEC\r\n");
    node.execute(0);
    node.tell(0);
    // EXEC has been sent, but the log contains another write before it.
    node.feed(other, b"SET a 3\r\n");
    node.world.asked.swap(0, 1);
    node.settle();
    assert_eq!(node.take(one), "+OK|+OK|+QUEUED|*-1|");
}

#[test]
fn a_watch_without_an_answer_stops_the_transaction() {
    use quorate_replica::front::Failure;
    let mut node = Node::memory();
    let one = node.connect();
    node.world.refuse = Some(Failure::NoQuorum);
    assert!(node.say(one, "WATCH a").starts_with("-NOQUORUM"));
    node.world.refuse = None;
    node.say(one, "MULTI");
    node.say(one, "SET a 1");
    assert!(node.say(one, "EXEC").starts_with("-EXECABORT"));
    node.say(one, "MULTI");
    node.say(one, "SET a 1");
    assert_eq!(node.say(one, "EXEC"), "*1|+OK|");
}

#[test]
fn watching_is_bounded() {
    let mut node = Node::memory();
    let one = node.connect();
    let keys: Vec<String> = (0..4097).map(|n| n.to_string()).collect();
    let words: Vec<&str> = ["WATCH"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    assert!(node.ask(one, &words).starts_with("-ERR too many keys"));
    node.say(one, "MULTI");
    assert!(node.say(one, "EXEC").starts_with("-EXECABORT"));
    assert_eq!(node.ask(one, &words[..4097]), "+OK|");
}

/// Moves the state to a new service through a snapshot.
fn move_by_image(node: &mut Node) {
    let (old, at) = (&mut node.world.service, Slot(node.world.slot));
    let mut new = Service::new(Box::new(MemoryStore::new()));
    new.begin_load().unwrap();
    assert!(old.begin_image());
    while old.next_image(100, &mut |item| new.load(item).unwrap()) == Imaged::More {}
    new.finish_load(at, &[]).unwrap();
    assert_eq!(new.digest(), old.digest());
    new.set_time(node.world.wall_ms);
    *old = new;
}

const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Executes a random command. Returns whether the watched key was created and removed again.
fn act(node: &mut Node, other: ConnectionId, watched: &str, random: &mut Random) -> bool {
    let (key, another) = (*random.pick(&KEYS), *random.pick(&KEYS));
    let command = *random.pick(&[
        "SET k 1",
        "SET k 1 PX 40",
        "SET k 1 EX 100",
        "GETDEL k",
        "DEL k",
        "UNLINK k",
        "APPEND k x",
        "RPUSH k x",
        "LPOP k",
        "LMPOP 1 k LEFT COUNT 9",
        "LMOVE k o LEFT LEFT",
        "LTRIM k 5 6",
        "LREM k 0 x",
        "SADD k x",
        "SREM k x",
        "SPOP k",
        "SMOVE k o x",
        "SINTERSTORE k o k",
        "SUNIONSTORE k o k",
        "HSET k f 1",
        "HDEL k f",
        "HPEXPIRE k 40 FIELDS 1 f",
        "ZADD k 1 x",
        "ZREM k x",
        "ZPOPMIN k",
        "ZREMRANGEBYRANK k 0 -1",
        "ZRANGESTORE k o 0 -1",
        "RENAME k o",
        "RENAMENX k o",
        "COPY k o REPLACE",
        "PEXPIRE k 40",
        "EXPIRE k -1",
        "PERSIST k",
        "SORT k BY nosort STORE k",
        "BITOP OR k k o",
        "SETBIT k 1 1",
        "FLUSHALL",
        "multi",
        "wait",
        "time",
        "sweep",
        "image",
    ]);
    match command {
        "multi" => {
            for command in ["MULTI", "DEL k", "SET k 1", "DEL k", "EXEC"] {
                node.say(other, &command.replace('k', key));
            }
            return key == watched;
        }
        "wait" => {
            let waiter = node.connect();
            node.say(waiter, &format!("BLPOP {key} 0"));
            let pushed = node.say(other, &format!("RPUSH {key} x")).starts_with(':');
            node.front.run_turn(&mut node.world);
            node.settle();
            node.front.handle_closed(waiter, &mut node.world);
            node.input.remove(&waiter);
            node.settle();
            return key == watched && pushed;
        }
        "time" => {
            node.world.wall_ms += 30;
            node.pass();
        }
        "sweep" => drop(node.sweep()),
        "image" if node.world.level >= ABSENT_LEVEL => move_by_image(node),
        "image" => {}
        _ => {
            let words = command.split(' ').map(|word| match word {
                "k" => key,
                "o" => another,
                other => other,
            });
            node.ask(other, &words.collect::<Vec<_>>());
        }
    }
    false
}

/// [watch-1] [watch-4] As in Redis, an absent key that was created and removed again counts as
/// changed, whichever commands were used.
#[test]
fn a_key_that_came_and_went_has_changed() {
    for level in [Level::BASE, ABSENT_LEVEL] {
        on_both_stores(|node| {
            node.world.level = level;
            let (one, other, probe) = (node.connect(), node.connect(), node.connect());
            if level == ABSENT_LEVEL {
                // [watch-3] Only the very first transaction always fails.
                node.say(one, "WATCH x");
                node.say(one, "MULTI");
                assert_eq!(node.say(one, "EXEC"), "*-1|");
            }
            let (mut random, mut outcomes) = (Random::new(u64::from(level.0)), [0, 0]);
            while outcomes.iter().any(|count| *count < 60) {
                for _ in 0..random.below(4) {
                    act(node, other, "", &mut random);
                }
                let key = *random.pick(&KEYS);
                let is_there =
                    |node: &mut Node| node.ask(probe, &["EXISTS", key]).as_str() == ":1|";
                if is_there(node) {
                    continue;
                }
                assert_eq!(node.ask(one, &["WATCH", key]), "+OK|");
                let (mut came, from) = (false, node.world.log.len());
                for _ in 0..random.below(6) {
                    came |= act(node, other, key, &mut random);
                    came |= is_there(node);
                }
                let log = node.world.log.len() - from;
                node.say(one, "MULTI");
                node.say(one, "SET done 1");
                let expected = if came { "*-1|" } else { "*1|+OK|" };
                assert_eq!(node.say(one, "EXEC"), expected, "{key} after {log} commands");
                outcomes[usize::from(came)] += 1;
            }
        });
    }
}

/// [watch-2] A flush of many keys counts as a change of every absent key; a flush of a few keys
/// counts only for the removed keys.
#[test]
fn a_flush_changes_the_keys_that_it_takes() {
    on_both_stores(|node| {
        let (one, other) = (node.connect(), node.connect());
        for (keys, through) in [(3, true), (1024, true), (1025, false)] {
            node.say(one, "WATCH none");
            for key in 0..keys {
                node.say(other, &format!("SET {key} 1"));
            }
            node.say(other, "FLUSHALL");
            node.say(one, "MULTI");
            let expected = if through { "*0|" } else { "*-1|" };
            assert_eq!(node.say(one, "EXEC"), expected, "{keys}");
        }
    });
}
