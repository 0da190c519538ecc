//! Keyspace events: the events that each command causes, and the clients that receive them.

use quorate_core::slot::Slot;
use quorate_kv::{commands::state::notice, service::Service, store::memory::MemoryStore};
use quorate_replica::{
    front::ConnectionId,
    service::{Imaged, StateMachine as _},
};

use crate::{
    common::{Node, on_both_stores},
    waiting::group::Group,
};

/// Returns the events, with their keys, in the output for a subscriber.
fn events(sent: &str) -> String {
    let lines: Vec<&str> = sent.split('|').collect();
    // A message has nine lines. The last four are channel and text, each after its length.
    let messages = lines.chunks_exact(9).map(|message| {
        let event = message[6].strip_prefix("__keyevent@0__:").unwrap();
        format!("{event} {}", message[8])
    });
    messages.collect::<Vec<_>>().join(", ")
}

/// Connects a client that receives the selected events of this node.
fn listener(node: &mut Node, setting: &str) -> ConnectionId {
    let client = node.connect();
    let set = format!("CONFIG SET notify-keyspace-events {setting}");
    assert_eq!(node.say(client, &set), "+OK|");
    node.say(client, "PSUBSCRIBE __keyevent@0__:*");
    client
}

/// Commands and their events in Redis 7.0.
const OF_COMMANDS: &str = "
    SET s 1 => new s, set s
    SET s 1 EX 100 => set s, expire s
    SETEX s 100 1 => set s, expire s
    SETNX s 1 =>
    SETNX s2 1 => new s2, set s2
    GETSET s 5 => set s
    MSET s 1 a 2 => set s, new a, set a
    MSETNX b 1 c 2 => new b, set b, new c, set c
    MSETNX b 1 d 2 =>
    INCR s => incrby s
    DECRBY s 2 => incrby s
    INCRBYFLOAT s 1.5 => incrbyfloat s
    APPEND s x => append s
    SETRANGE s 0 y => setrange s
    SETRANGE s 0 '' =>
    SETBIT bits 3 1 => new bits, setbit bits
    BITFIELD bits SET u8 0 1 => setbit bits
    BITFIELD bits GET u8 0 =>
    BITOP AND bits2 bits => new bits2, set bits2
    BITOP AND bits2 none => del bits2
    GETEX s PERSIST =>
    GETEX s EX 100 => expire s
    GETEX s PERSIST => persist s
    GETEX s EXAT 1 => del s
    GETDEL a => del a
    EXPIRE b 100 => expire b
    PERSIST b => persist b
    PERSIST b =>
    EXPIRE b 100 NX => expire b
    EXPIRE b 200 NX =>
    EXPIRE b 0 => del b
    DEL c c none => del c
    UNLINK s2 => del s2
    SET a 1 => new a, set a
    RENAME a b => new b, rename_from a, rename_to b
    RENAMENX b c => new c, rename_from b, rename_to c
    COPY c d => new d, copy_to d
    COPY c d =>
    RENAME c c =>
    RPUSH l a b c d => new l, rpush l
    LPUSH l x y => lpush l
    LPUSHX l z => lpush l
    RPUSHX none z =>
    LSET l 0 w => lset l
    LINSERT l BEFORE a q => linsert l
    LINSERT l BEFORE nope q =>
    LREM l 0 q => lrem l
    LREM l 0 nope =>
    LTRIM l 0 -1 => ltrim l
    LTRIM l 1 -2 => ltrim l
    LPOP l => lpop l
    RPOP l 2 => rpop l
    LPOP l 0 =>
    LMOVE l m LEFT RIGHT => new m, rpush m, lpop l
    RPOPLPUSH l l => lpush l, rpop l
    LMOVE l m LEFT LEFT => lpush m, lpop l, del l
    LMPOP 1 m LEFT COUNT 5 => lpop m, del m
    LPOP none =>
    RPUSH l a b => new l, rpush l
    LTRIM l 5 9 => ltrim l, del l
    RPUSH l b a => new l, rpush l
    SORT l ALPHA STORE m => new m, sortstore m
    SORT none STORE m => del m
    SORT none STORE m =>
    BLPOP l 1 => lpop l
    BLMOVE l m LEFT LEFT 1 => new m, lpush m, lpop l, del l
    SADD t a b c => new t, sadd t
    SADD t a =>
    SREM t a nope => srem t
    SREM t nope =>
    SMOVE t u b => srem t, new u, sadd u
    SMOVE t u nope =>
    SADD t b => sadd t
    SMOVE t u b => srem t
    SPOP t 5 => spop t, del t
    SADD t a b c => new t, sadd t
    SPOP t 2 => spop t
    SUNIONSTORE v t u => new v, sunionstore v
    SDIFFSTORE v none => del v
    SDIFFSTORE v none =>
    SINTERSTORE v none =>
    SREM u b => srem u, del u
    HSET h a 1 b 2 => new h, hset h
    HSET h a 1 => hset h
    HSETNX h a 1 =>
    HSETNX h c 1 => hset h
    HMSET h a 1 => hset h
    HINCRBY h a 1 => hincrby h
    HINCRBYFLOAT h a 1 => hincrbyfloat h
    HDEL h a nope => hdel h
    HDEL h nope =>
    HDEL h b c => hdel h, del h
    ZADD z 1 a 2 b 3 c 4 d 5 e => new z, zadd z
    ZADD z 1 a =>
    ZADD z XX CH 2 a => zadd z
    ZADD z INCR 1 a => zincr z
    ZADD z NX INCR 1 a =>
    ZINCRBY z 1 a => zincr z
    ZREM z a nope => zrem z
    ZREM z nope =>
    ZREMRANGEBYSCORE z 2 2 => zremrangebyscore z
    ZREMRANGEBYRANK z 0 0 => zremrangebyrank z
    ZREMRANGEBYLEX z [d [d => zremrangebylex z
    ZREMRANGEBYLEX z [d [d =>
    ZADD z 1 a 2 b 3 c => zadd z
    ZPOPMIN z => zpopmin z
    ZPOPMAX z 2 => zpopmax z
    ZPOPMAX z 2 => zpopmax z, del z
    ZADD y 1 a 2 b => new y, zadd y
    ZRANGESTORE x y 0 0 => new x, zrangestore x
    ZRANGESTORE x y 9 10 => del x
    ZUNIONSTORE x 2 z y => new x, zunionstore x
    ZINTERSTORE x 2 z y => del x
    ZDIFFSTORE x 2 y none => new x, zdiffstore x
    ZDIFFSTORE x 1 none => del x
    ZMPOP 2 none y MAX COUNT 9 => zpopmax y, del y
    DEL z =>
    FLUSHALL =>
";

#[test]
fn commands_make_the_events_that_redis_makes() {
    on_both_stores(|node| {
        let (hears, one) = (listener(node, "EAn"), node.connect());
        for line in OF_COMMANDS.lines().filter(|line| !line.is_empty()) {
            let (command, expected) = line.split_once("=>").unwrap();
            let words: Vec<String> =
                command.split_whitespace().map(|word| word.replace("''", "")).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            node.ask(one, &words);
            assert_eq!(events(&node.take(hears)), expected.trim(), "{command}");
        }
    });
}

/// Events about deadlines, which Redis 7.0 lacks or generates differently.
#[test]
fn deadlines_make_events() {
    on_both_stores(|node| {
        let (hears, one) = (listener(node, "EA"), node.connect());
        for (command, expected) in [
            ("HSET h a 1 b 2 c 3", "hset h"),
            ("HPEXPIRE h 10 FIELDS 2 a b", "hexpire h"),
            ("HPEXPIRE h 10 NX FIELDS 1 a", ""),
            ("HPERSIST h FIELDS 2 b c", "hpersist h"),
            ("HPERSIST h FIELDS 1 c", ""),
            ("HPEXPIRE h 0 FIELDS 1 c", "hdel h"),
            ("HPEXPIRE h 0 FIELDS 2 a b", "hdel h, del h"),
            ("SET a 1 EXAT 1", ""),
            ("SET a 1 PX 10", "set a, expire a"),
            ("SET a 1 EXAT 1", "del a"),
            ("DELIFEQ a 1", ""),
            ("SET a 1", "set a"),
            ("DELIFEQ a 1", "del a"),
        ] {
            node.say(one, command);
            assert_eq!(events(&node.take(hears)), expected, "{command}");
        }
        node.say(one, "MSET a 1 b 2 c 3 d 4");
        for key in ["a", "b", "c"] {
            node.say(one, &format!("PEXPIRE {key} 10"));
        }
        node.say(one, "HSET h a 1 b 2 c 3");
        node.say(one, "HPEXPIRE h 10 FIELDS 2 a b");
        node.say(one, "HSET i a 1");
        node.say(one, "HPEXPIRE i 10 FIELDS 1 a");
        node.say(one, "HSET j a 1");
        node.say(one, "HPEXPIRE j 10 FIELDS 1 a");
        node.say(one, "PEXPIRE j 9");
        node.take(hears);
        node.world.wall_ms += 10;
        assert!(node.pass());
        // The first write to an expired key generates the expiry event.
        node.say(one, "SET a 2");
        assert_eq!(events(&node.take(hears)), "expired a, set a");
        node.say(one, "DEL b");
        assert_eq!(events(&node.take(hears)), "expired b");
        node.say(one, "HSET h a 9");
        assert_eq!(events(&node.take(hears)), "hexpired h, hset h");
        node.say(one, "GET c");
        assert_eq!(node.take(hears), "", "a read removes nothing");
        node.sweep();
        node.say(one, "PING");
        let Node { front, world, .. } = node;
        let service = &mut world.service;
        service.take_notices(&mut |subject, message| {
            quorate_replica::front::Front::deliver_notice(front, subject, message);
        });
        node.pump();
        let swept = "expired j, expired c, hexpired i, del i, hexpired h";
        assert_eq!(events(&node.take(hears)), swept);
        node.sweep();
        node.say(one, "SET d 5");
        assert_eq!(events(&node.take(hears)), "set d", "each once");
    });
}

#[test]
fn a_setting_chooses_what_is_told_and_how() {
    let mut node = Node::memory();
    let (hears, one) = (node.connect(), node.connect());
    node.say(hears, "PSUBSCRIBE __key*");
    let mut told = |setting: &str| {
        let set = ["CONFIG", "SET", "notify-keyspace-events", setting];
        assert_eq!(node.ask(one, &set), "+OK|");
        for command in ["SET a 1", "RPUSH l 1", "DEL l", "EXPIRE a 9"] {
            node.say(one, command);
        }
        let sent = node.take(hears);
        let messages: Vec<&str> = sent.split('|').collect();
        let messages = messages.chunks_exact(9).map(|message| {
            let (channel, text) = (message[6], message[8]);
            format!("{} {text}", channel.strip_prefix("__key").unwrap())
        });
        messages.collect::<Vec<_>>().join(", ")
    };
    assert_eq!(told(""), "");
    assert_eq!(told("A"), "", "neither K nor E");
    assert_eq!(told("K"), "");
    assert_eq!(told("E$"), "event@0__:set a");
    assert_eq!(told("Kl"), "space@0__:l rpush");
    assert_eq!(
        told("KE$g"),
        "space@0__:a set, event@0__:set a, space@0__:l del, event@0__:del l, space@0__:a expire, \
         event@0__:expire a"
    );
    assert_eq!(told("Ez"), "");
    assert_eq!(told("Kx"), "");
    assert_eq!(told(""), "");
}

#[test]
fn a_transaction_tells_what_it_did_and_nothing_if_it_was_not_executed() {
    let mut node = Node::memory();
    let (hears, one, other) = (listener(&mut node, "EA"), node.connect(), node.connect());
    for command in ["WATCH w", "MULTI", "SET a 1", "LPUSH l 1", "INCR l", "DEL a"] {
        node.say(one, command);
    }
    assert_eq!(node.take(hears), "", "nothing is executed yet");
    node.say(one, "EXEC");
    assert_eq!(events(&node.take(hears)), "set a, lpush l, del a");
    for command in ["WATCH w", "MULTI", "SET a 1"] {
        node.say(one, command);
    }
    node.say(other, "SET w 1");
    assert_eq!(events(&node.take(hears)), "set w");
    assert_eq!(node.say(one, "EXEC"), "*-1|");
    assert_eq!(node.take(hears), "");
}

/// Each node has its own setting. Nodes with the same setting generate the same events.
#[test]
fn each_node_tells_its_own_listeners() {
    let mut group = Group::memory(3);
    let hears: Vec<_> = (0..2).map(|node| (node, listener(&mut group.nodes[node], "EA"))).collect();
    let deaf = group.connect(2);
    group.say(deaf, "PSUBSCRIBE __key*");
    let (waits, pushes) = (group.connect(0), group.connect(1));
    group.say(waits, "BLPOP l 0");
    assert_eq!(group.take(hears[0]), "", "one who waits changes nothing");
    group.say(pushes, "RPUSH l a");
    for _ in 0..5 {
        for node in 0..3 {
            group.turn(node);
        }
        group.settle();
    }
    assert_eq!(group.take(waits), "*2|$1|l|$1|a|");
    for client in &hears {
        assert_eq!(events(&group.take(*client)), "rpush l, lpop l, del l");
    }
    assert_eq!(group.take(deaf), "");
}

/// Loading a snapshot generates no events.
#[test]
fn what_an_image_brings_makes_no_events() {
    let mut node = Node::memory();
    let one = node.connect();
    node.say(one, "SET a 1");
    node.say(one, "RPUSH l a b");
    let at = Slot(node.world.slot);
    let mut items = Vec::new();
    let service = &mut node.world.service;
    assert!(service.begin_image());
    while service.next_image(1 << 10, &mut |item| items.push(item.to_vec())) == Imaged::More {}
    let mut behind = Service::new(Box::new(MemoryStore::new()));
    let setting = behind.events();
    setting.set(quorate_kv::commands::events::Setting::parse(b"KEAn").unwrap());
    let first = &node.world.log[0];
    behind.apply(first.0, &first.1, &mut Vec::new());
    behind.commit(Slot(first.0.slot.0 + 1), &[]);
    behind.begin_load().unwrap();
    for item in &items {
        behind.load(item).unwrap();
    }
    behind.finish_load(at, &[]).unwrap();
    // Only that what the front knew may no longer hold.
    behind.take_notices(&mut |subject, _| assert_eq!(subject, notice::ALL_CHANGED));
    assert_eq!(setting.text(), "AnKE", "the setting is the node's own");
    let id = quorate_replica::service::CommandId { slot: at, index: 0 };
    let command = &node.world.log[0].1;
    behind.apply(id, command, &mut Vec::new());
    let mut heard = 0;
    behind.take_notices(&mut |_, _| heard += 1);
    assert_eq!(heard, 2);
}
