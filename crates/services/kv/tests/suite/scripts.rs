//! Scripts: EVAL, EVALSHA and their read-only variants, seen from clients and replicas.

use std::fmt::Write as _;

use quorate_access::{Command, Password, Role, Users, Who};
use quorate_core::{level::Level, slot::Slot};
use quorate_kv::{command::Handler, commands::FAMILIES, scripts::hash_of, service::Service};
use quorate_replica::{
    front::Front as _,
    service::{CommandId, StateMachine as _, Weight},
};

use crate::common::{Asked, Node, Random, World, on_both_stores, request};

/// Runs a test on both stores, in a group whose feature level allows scripts.
fn on_both(test: impl Fn(&mut Node)) {
    on_both_stores(|node| {
        node.world.level = Level(10);
        test(node);
    });
}

/// Evaluates scripts and compares their replies. An expected error need only match the beginning.
fn check(node: &mut Node, all: &[(&str, &str)]) {
    let client = node.connect();
    for (text, expected) in all {
        let reply = node.ask(client, &["EVAL", text, "1", "k", "arg"]);
        // The script's hash follows the error.
        let part = if expected.starts_with('-') { reply.get(..expected.len()) } else { None };
        assert_eq!(part.unwrap_or(&reply), *expected, "{text}");
    }
}

#[test]
fn commands_of_a_script_are_those_of_clients() {
    on_both(|node| {
        check(
            node,
            &[
                ("return redis.call('set', KEYS[1], ARGV[1])", "+OK|"),
                ("return redis.call('GET', KEYS[1])", "$3|arg|"),
                ("return redis.call('get', 'undeclared')", "$-1|"),
                ("return redis.call('incrby', 'n', 5) + 1", ":6|"),
                ("return redis.call('lpush', KEYS[1], 'x')", "-WRONGTYPE Operation against"),
                (
                    "return redis.pcall('lpush', KEYS[1], 'x').err",
                    "$65|WRONGTYPE Operation against a key holding the wrong kind of value|",
                ),
                (
                    "redis.call('hset', 'h', 'b', 1, 'a', 2); return redis.call('hgetall', 'h')",
                    "*4|$1|b|$1|1|$1|a|$1|2|",
                ),
                ("redis.setresp(3); return redis.call('hgetall', 'h').map.a", "$1|2|"),
                (
                    "redis.call('zadd', 'z', 1.5, 'm'); return redis.call('zrange', 'z', 0, -1, 'withscores')",
                    "*2|$1|m|$3|1.5|",
                ),
                ("redis.setresp(3); return redis.call('zscore', 'z', 'm').double * 2", ":3|"),
                (
                    "return redis.call('nonsense')",
                    "-ERR Unknown Redis command called from script script: ",
                ),
                (
                    "return redis.call('get')",
                    "-ERR Wrong number of args calling Redis command from script script: ",
                ),
                ("return redis.call('set', 'k', 'v', 'nonsense')", "-ERR syntax error script: "),
                (
                    "return redis.call('multi')",
                    "-ERR This Redis command is not allowed from script",
                ),
                (
                    "return redis.call('eval', 'return 1', 0)",
                    "-ERR This Redis command is not allowed from script",
                ),
                (
                    "return redis.call('subscribe', 'x')",
                    "-ERR This Redis command is not allowed from script",
                ),
                (
                    "return redis.call('watch', 'x')",
                    "-ERR This Redis command is not allowed from script",
                ),
                ("return redis.call('blpop', 'none', 0)", "$-1|"),
                (
                    "return {redis.call('ping'), redis.call('echo', 'x'), redis.call('select', '0')}",
                    "*3|+PONG|$1|x|+OK|",
                ),
                ("return redis.call('time')[1]", "$4|1000|"),
                (
                    "redis.call('set', 'e', 'v', 'ex', 10); return redis.call('pttl', 'e')",
                    ":10000|",
                ),
                ("return redis.call('set', string.rep('k', 70000), 'v')", "-TOOBIG"),
                ("return {1, redis.call('del', 'n', 'h', 'z'), 'x'}", "*3|:1|:3|$1|x|"),
                ("return {err = 'BAD \\255\\r\\n'}", "-BAD \u{fffd}  "),
                ("return redis.sha1hex('')", "$40|da39a3ee5e6b4b0d3255bfef95601890afd80709|"),
                ("return redis.REDIS_VERSION", "$5|7.2.0|"),
            ],
        );
    });
}

#[test]
fn scripts_are_known_by_their_hashes() {
    on_both(|node| {
        let client = node.connect();
        let text = "return {KEYS[1], ARGV[1]}";
        let hash = hash_of(text.as_bytes());
        let run = ["EVALSHA", &hash, "1", "k", "v"];
        assert_eq!(node.ask(client, &run), "-NOSCRIPT No matching script. Please use EVAL.|");
        assert_eq!(node.ask(client, &["SCRIPT", "LOAD", text]), format!("$40|{hash}|"));
        assert_eq!(node.ask(client, &run), "*2|$1|k|$1|v|");
        assert_eq!(node.ask(client, &["SCRIPT", "EXISTS", &hash, "x"]), "*2|:1|:0|");
        assert_eq!(node.say(client, "SCRIPT KILL"), "-NOTBUSY No scripts in execution right now.|");
        assert_eq!(node.say(client, "SCRIPT FLUSH"), "+OK|");
        assert!(node.ask(client, &run).starts_with("-NOSCRIPT"));
        node.ask(client, &["EVAL", text, "0"]);
        assert_eq!(node.ask(client, &run), "*2|$1|k|$1|v|", "EVAL loads it, too");
        let bad = "-ERR Error compiling script (new function): user_script:1:";
        assert!(node.ask(client, &["SCRIPT", "LOAD", "return +"]).starts_with(bad));
        assert!(node.ask(client, &["EVAL", "return +", "0"]).starts_with(bad));
        let long = "x".repeat(262_145);
        assert!(
            node.ask(client, &["EVAL", &long, "0"]).starts_with("-ERR a script may have 256 KiB")
        );
        for (count, error) in [
            ("-1", "-ERR Number of keys can't be negative|"),
            ("3", "-ERR Number of keys can't be greater than number of args|"),
            ("x", "-ERR value is not an integer or out of range|"),
        ] {
            assert_eq!(node.ask(client, &["EVAL", "return 1", count, "a"]), error);
        }
    });
}

#[test]
fn read_only_scripts_are_queries() {
    on_both(|node| {
        let client = node.connect();
        node.say(client, "SET k v");
        let logged = node.world.log.len();
        assert_eq!(
            node.ask(client, &["EVAL_RO", "return redis.call('get', KEYS[1])", "1", "k"]),
            "$1|v|"
        );
        let refused = "-ERR Write commands are not allowed from read-only scripts.";
        assert!(
            node.ask(client, &["EVAL_RO", "return redis.call('del', 'k')", "0"])
                .starts_with(refused)
        );
        assert!(
            node.ask(client, &["EVAL_RO", "while true do end", "0"])
                .starts_with("-TOOBIG the script was stopped")
        );
        assert_eq!(node.world.log.len(), logged, "nothing is logged");
        // The flag `no-writes` has the same effect as EVAL_RO.
        let no_writes = |text: &str| format!("#!lua flags=no-writes\n{text}");
        let text = no_writes("return redis.call('get', KEYS[1])");
        assert_eq!(node.ask(client, &["EVAL", &text, "1", "k"]), "$1|v|");
        let text = no_writes("return redis.call('del', 'k')");
        assert!(node.ask(client, &["EVAL", &text, "0"]).starts_with(refused));
        let errors = [
            ("EVAL_RO", "#!lua\nreturn 1", "Can not execute a script with write flag"),
            (
                "EVAL",
                "#!lua flags=nonsense\nreturn 1",
                "Unexpected flag in script shebang: nonsense",
            ),
            ("EVAL", "#!python\nreturn 1", "Unexpected engine in script shebang: #!python"),
        ];
        for (command, text, error) in errors {
            let reply = node.ask(client, &[command, text, "0"]);
            assert!(reply.starts_with(&format!("-ERR {error}")), "{reply}");
        }
        assert_eq!(node.world.log.len(), logged, "nothing is logged");
        let hash = hash_of(b"return redis.call('get', KEYS[1])");
        assert_eq!(node.ask(client, &["EVALSHA_RO", &hash, "1", "k"]), "$1|v|");
        node.say(client, "MULTI");
        node.ask(client, &["EVALSHA_RO", &hash, "1", "k"]);
        assert_eq!(node.say(client, "EXEC"), "*1|$1|v|");
        // All reads of a script together have the limit of one command.
        for i in 0..300 {
            let members: Vec<String> = (0..100).map(|n| format!("{i}.{n}")).collect();
            let words: Vec<&str> =
                ["SADD", "big"].into_iter().chain(members.iter().map(String::as_str)).collect();
            node.ask(client, &words);
        }
        let often = "for i = 1, 100 do redis.call('smembers', 'big') end return 1";
        for command in ["EVAL", "EVAL_RO"] {
            let reply = node.ask(client, &[command, often, "0"]);
            assert!(reply.starts_with("-TOOBIG"), "{command}: {reply}");
        }
    });
}

/// A script runs in a transaction, with a number in a session, and under WATCH.
#[test]
fn scripts_are_commands_like_others() {
    on_both(|node| {
        let (client, other) = (node.connect(), node.connect());
        let text = "return redis.call('incr', KEYS[1])";
        node.say(client, "SET n 0");
        node.say(client, "WATCH n");
        node.say(client, "MULTI");
        assert_eq!(node.ask(client, &["EVAL", text, "1", "n"]), "+QUEUED|");
        node.say(client, "INCR n");
        assert_eq!(node.say(client, "EXEC"), "*2|:1|:2|");
        node.say(client, "WATCH n");
        node.ask(other, &["EVAL", text, "1", "n"]);
        node.say(client, "MULTI");
        node.say(client, "INCR n");
        assert_eq!(node.say(client, "EXEC"), "*-1|", "a script changed the key");
        node.say(client, "QUORATE SESSION");
        for _ in 0..2 {
            assert_eq!(node.ask(client, &["QUORATE", "SEQ", "1", "EVAL", text, "1", "n"]), ":4|");
        }
        // An element that a script pushes goes to a blocked client once the script has ended.
        node.feed(other, &request(&["BLPOP", "l", "0"]));
        node.settle();
        let push = "redis.call('rpush', 'l', 'a'); redis.call('rpush', 'l', 'b'); return redis.call('llen', 'l')";
        assert_eq!(node.ask(client, &["EVAL", push, "0"]), ":2|");
        node.front.run_turn(&mut node.world);
        node.settle();
        assert_eq!(node.take(other), "*2|$1|l|$1|a|");
        // A subscriber receives what a script publishes.
        node.say(other, "SUBSCRIBE ch");
        node.ask(client, &["EVAL", "return redis.call('publish', 'ch', 'hi')", "0"]);
        assert_eq!(node.take(other), "*3|$7|message|$2|ch|$2|hi|");
    });
}

#[test]
fn a_stopped_script_says_what_became_of_it() {
    on_both(|node| {
        let client = node.connect();
        let text = "redis.call('set', 'a', 1); while true do pcall(redis.call, 'incr', 'a') end";
        let reply = node.ask(client, &["EVAL", text, "0"]);
        assert!(reply.starts_with("-TOOBIG the script was stopped, and what it wrote before stays: it reached its limit of work"), "{reply}");
        let count: u64 = node.say(client, "GET a").split('|').nth(1).unwrap().parse().unwrap();
        assert!((1000..1_000_000).contains(&count), "{count}");
        let reply = node.ask(client, &["EVAL", "local s = 'x'; while true do s = s .. s end", "0"]);
        assert!(reply.starts_with('-'), "{reply}");
        assert_eq!(node.ask(client, &["EVAL", "return 1", "0"]), ":1|");
    });
}

/// Commands and replies within a script do not pass through a client connection, so their bytes
/// consume fuel.
#[test]
fn a_script_pays_for_the_bytes_that_it_moves() {
    on_both(|node| {
        let client = node.connect();
        let moved = |node: &mut Node, call: &str| {
            let text = format!(
                "local s = string.rep('x', 500000) redis.call('set', 'big', s) \
                redis.call('hset', 'h', 'f', s) redis.call('set', 'n', 0) while true do {call} redis.call('incr', 'n') end"
            );
            let reply = node.ask(client, &["EVAL", &text, "0"]);
            assert!(reply.starts_with("-TOOBIG the script was stopped"), "{reply}");
            node.say(client, "GET n").split('|').nth(1).unwrap().parse::<u64>().unwrap()
        };
        for call in [
            "redis.call('set', 'k', s)",
            "redis.call('get', 'big')",
            "redis.call('append', 'big', 'x')",
            "redis.call('setrange', 'big', 0, 'x')",
            "redis.call('setbit', 'big', 0, 1)",
            "redis.call('bitcount', 'big')",
            "redis.call('getrange', 'big', 0, 0)",
            "redis.call('strlen', 'big')",
            "redis.call('hstrlen', 'h', 'f')",
            "redis.call('hset', 'h', 'f', s)",
            "redis.call('hsetnx', 'h', 'f', '')",
            "redis.call('pexpire', 'big', 10000)",
        ] {
            let often = moved(node, call);
            assert!((10..300).contains(&often), "{call}: {often} times half a megabyte");
        }
    });
}

/// A script is stopped at the same command on all nodes, whatever the settings of a node.
#[test]
fn settings_of_a_node_cost_a_script_nothing() {
    let text = "redis.call('set', 'big', string.rep('x', 500000)) \
        while true do redis.call('setrange', 'big', 0, 'x') redis.call('incr', 'n') end";
    let run = |settings: &[&str]| {
        let mut node = Node::memory();
        node.world.level = Level(10);
        let client = node.connect();
        for words in settings {
            assert_eq!(node.say(client, words), "+OK|");
        }
        let reply = node.ask(client, &["EVAL", text, "0"]);
        assert!(reply.starts_with("-TOOBIG the script was stopped"), "{reply}");
        let plain = node.connect();
        (node.say(plain, "GET n"), node.world.service.digest())
    };
    let expected = run(&[]);
    assert_eq!(run(&["CONFIG SET notify-keyspace-events KEAn"]), expected);
    assert_eq!(run(&["CLIENT TRACKING ON BCAST"]), expected);
}

/// A read-only script in the log has its own limit, and the fuel it used counts towards the batch.
#[test]
fn read_only_scripts_of_a_transaction_share_its_batch() {
    let mut node = Node::memory();
    node.world.level = Level(10);
    let client = node.connect();
    node.say(client, "MULTI");
    for text in
        ["return 1", "while true do end", "while true do redis.call('get', 'k') end", "return 1"]
    {
        node.ask(client, &["EVAL_RO", text, "0"]);
    }
    let reply = node.say(client, "EXEC");
    let replies: Vec<&str> = reply.split('|').collect();
    assert_eq!(replies[..2], ["*4", ":1"], "{reply}");
    assert!(replies[2].starts_with("-TOOBIG the script was stopped"), "{reply}");
    assert!(replies[3..5].iter().all(|reply| reply.starts_with("-TOOBIG not executed")), "{reply}");
}

/// If a command is refused after admission because its cost has grown, the batch is charged for
/// computing that cost.
#[test]
fn refused_commands_of_a_transaction_are_not_free() {
    let mut node = Node::memory();
    node.world.level = Level(10);
    let client = node.connect();
    for words in [
        "RPUSH big x",
        "RPUSH small x",
        "MULTI",
        "LPOS big none",
        "LPOS big none",
        "LRANGE small 0 -1",
    ] {
        node.say(client, words);
    }
    assert_eq!(node.say(client, "EXEC"), "*3|$-1|$-1|*1|$1|x|");
    let (_, exec) = node.world.log.last().unwrap().clone();
    // The list grows after the admission of the transaction.
    let members: Vec<String> = (0..20_000).map(|number| number.to_string()).collect();
    let words: Vec<&str> =
        ["RPUSH", "big"].into_iter().chain(members.iter().map(String::as_str)).collect();
    for _ in 0..53 {
        node.ask(client, &words);
    }
    let (id, mut reply) = (CommandId { slot: Slot(1 << 40), index: 0 }, Vec::new());
    node.world.service.apply(id, &exec, &mut reply);
    let reply = String::from_utf8(reply).unwrap();
    assert_eq!(reply.matches("-TOOBIG not executed").count(), 3, "{reply}");
}

/// [read-10] The visit limit of a turn applies only to confirmed reads. A read-only script is
/// therefore always a confirmed read, even on a READONLY connection or next to a write.
#[test]
fn read_only_scripts_are_confirmed_reads() {
    let mut node = Node::memory();
    node.world.level = Level(10);
    let client = node.connect();
    node.say(client, "READONLY");
    let script = request(&["EVAL_RO", "return redis.call('get', 'n')", "0"]);
    node.feed(client, &script);
    assert!(matches!(node.world.asked.pop_front(), Some(Asked::Read(_))), "not a stale one");
    let client = node.connect();
    node.feed(client, &[request(&["INCR", "n"]), script].concat());
    assert!(matches!(node.world.asked.front(), Some(Asked::Write(..))));
    assert_eq!(node.world.asked.len(), 1, "the script waits for the write");
    node.settle();
    assert_eq!(node.take(client), ":1|$1|1|");
}

/// The commands that scripts can call are part of the replicated format. With a new command or
/// arity, nodes of two releases would differ in their data. Such a change needs a feature level and
/// a new version of scripts; the previous version keeps its table (docs/spec/levels.md).
#[test]
fn commands_of_scripts_are_part_of_the_format() {
    let mut table = String::new();
    for spec in FAMILIES.iter().flat_map(|family| family.commands) {
        if let Handler::Data(_) = spec.handler {
            writeln!(table, "{} {} {:?} {:?}", spec.name, spec.arity, spec.flags, spec.keys)
                .unwrap();
        }
    }
    let hash = xxhash_rust::xxh3::xxh3_64(table.as_bytes());
    assert_eq!(hash, 11_406_882_512_430_026_913, "{table}");
}

/// A script is stopped if one of its commands reaches its limit: the command's work is not charged,
/// so a script could otherwise repeat it.
#[test]
fn a_script_cannot_repeat_a_command_that_reaches_its_limit() {
    on_both(|node| {
        let client = node.connect();
        for part in 0..106 {
            let members: Vec<String> =
                (0..10_000).map(|n| format!("{}", part * 10_000 + n)).collect();
            let words: Vec<&str> =
                ["RPUSH", "l"].into_iter().chain(members.iter().map(String::as_str)).collect();
            node.ask(client, &words);
        }
        for call in
            ["'lpos', 'l', 'none'", "'lrem', 'l', 0, 'none'", "'linsert', 'l', 'before', 'none', 1"]
        {
            node.say(client, "SET n 0");
            let text = format!(
                "for i = 1, 10 do redis.pcall({call}) redis.call('incr', 'n') end return 'end'"
            );
            let reply = node.ask(client, &["EVAL", &text, "0"]);
            assert!(reply.starts_with("-TOOBIG the script was stopped"), "{call}: {reply}");
            assert_eq!(node.say(client, "GET n"), "$1|0|", "{call}");
        }
    });
}

/// Scripts need feature level 10, also within a transaction, and the role of their commands.
#[test]
fn levels_and_roles() {
    let mut node = Node::memory();
    let client = node.connect();
    let needs = "-ERR not executed: scripts need feature level 10";
    for command in ["EVAL", "EVAL_RO"] {
        assert!(node.ask(client, &[command, "return 1", "0"]).starts_with(needs));
    }
    node.world.level = Level(10);
    node.ask(client, &["EVAL", "return 1", "0"]);
    node.say(client, "MULTI");
    node.ask(client, &["EVAL", "return 2", "0"]);
    node.say(client, "EXEC");
    for (_, command) in &node.world.log {
        assert_eq!(node.world.service.level_of(command), Level(10));
    }
    let mut users = Users::NONE;
    let roles = [Role::Admin, Role::Operator, Role::Writer, Role::Reader];
    for role in roles {
        let set = Command::Set {
            name: role.name().to_owned(),
            role: Some(role),
            password: Password::None,
        };
        users.execute(&set.encode()).unwrap();
    }
    node.world.users = Some(users);
    node.world.users_version += 1;
    for role in roles {
        let client = node.connect_as(Who::Client(role.name().to_owned()));
        let set = node.ask(client, &["EVAL", "return redis.call('set', 'a', 1)", "0"]);
        assert_eq!(set == "+OK|", role >= Role::Writer, "{role}: {set}");
        let read = ["EVAL_RO", "return redis.call('exists', 'a')", "0"];
        assert_eq!(node.ask(client, &read), ":1|", "{role}");
        let flush = node.ask(client, &["EVAL", "return redis.call('flushall')", "0"]);
        assert_eq!(flush == "+OK|", role >= Role::Operator, "{role}: {flush}");
        node.world.apply(b"\x40\0\0\x01a\x011");
    }
}

/// A script without a known cost gets its own batch. Later, cheap scripts share a batch.
#[test]
fn scripts_are_admitted_by_their_last_cost() {
    let mut node = Node::memory();
    node.world.level = Level(10);
    let client = node.connect();
    let large = "local s = 'x'; for i = 1, 24 do s = s .. s end return #s";
    for text in ["return 1", "for i = 1, 4000000 do end", large] {
        node.ask(client, &["EVAL", text, "0"]);
    }
    let commands: Vec<Vec<u8>> =
        node.world.log.iter().map(|(_, command)| command.clone()).collect();
    let service = &node.world.service;
    assert_eq!(service.weigh(&commands[0]), Weight::Light);
    assert_eq!(service.weigh(&commands[1]), Weight::Heavy);
    assert_eq!(World::memory().service.weigh(&commands[0]), Weight::Heavy, "never seen");
    assert_eq!(service.weigh(&commands[2]), Weight::Heavy, "it creates much in few instructions");
    // The script is cheap with one argument and expensive with another.
    let text = "for i = 1, tonumber(ARGV[1]) do end";
    for count in ["1000000", "1", "1"] {
        node.ask(client, &["EVAL", text, "0", count]);
    }
    let (_, command) = node.world.log.last().unwrap().clone();
    let service = &node.world.service;
    assert_eq!(service.weigh(&command), Weight::Heavy, "it was dear a moment ago");
    let run = |_| service.weigh(&commands[0]) == Weight::Heavy;
    let heavy = (0..4000).map(run).filter(|heavy| *heavy).count();
    assert!((1..40).contains(&heavy), "{heavy}: a batch has room for many, not for any number");
}

/// A batch that has used up its time refuses further scripts instead of stopping them midway.
#[test]
fn a_script_is_not_stopped_for_others_of_its_batch() {
    let mut node = Node::memory();
    node.world.level = Level(10);
    let client = node.connect();
    let part = "redis.call('incr', KEYS[1]); for i = 1, 50000 do end";
    let endless = "redis.call('incr', KEYS[1]); while true do end";
    for (text, key) in [(part, "a"), (endless, "b"), (endless, "c")] {
        node.ask(client, &["EVAL", text, "1", key]);
    }
    let commands: Vec<Vec<u8>> =
        node.world.log.iter().map(|(_, command)| command.clone()).collect();
    let mut service = World::memory().service;
    let replies: Vec<String> = (0..)
        .zip(&commands)
        .map(|(index, command)| {
            let (id, mut reply) = (CommandId { slot: Slot(5), index }, Vec::new());
            service.apply(id, command, &mut reply);
            String::from_utf8(reply).unwrap()
        })
        .collect();
    assert!(replies[1].starts_with("-TOOBIG the script was stopped"), "{replies:?}");
    assert!(replies[2].starts_with("-TOOBIG not executed"), "{replies:?}");
    let mut reply = Vec::new();
    service.query(b"\x02\x01c", 0, &mut reply);
    assert_eq!(reply, b"_\r\n", "nothing of it");
}

/// Typical scripts of applications: a job queue, a rate limiter, a scheduler.
#[test]
fn scripts_of_programs() {
    const ADD_JOB: &str = "
        local rcall = redis.call
        local opts = cmsgpack.unpack(ARGV[1])
        local id = rcall('INCR', KEYS[1] .. ':id')
        local key = KEYS[1] .. ':' .. id
        rcall('HMSET', key, 'name', opts['name'], 'data', ARGV[2], 'timestamp', opts['ts'], 'attempts', 0)
        local data = cjson.decode(ARGV[2])
        for i, child in ipairs(data.children) do rcall('SADD', key .. ':children', child) end
        if (opts['delay'] or 0) > 0 then
            rcall('ZADD', KEYS[1] .. ':delayed', (opts['ts'] + opts['delay']) * 0x1000 + bit.band(id, 0xfff), id)
        else
            rcall('LPUSH', KEYS[1] .. ':wait', id)
        end
        rcall('PUBLISH', KEYS[1] .. ':events', cjson.encode({event='added', id=tostring(id)}))
        return id .. ''";
    const PROMOTE: &str = "
        local jobs = redis.call('ZRANGEBYSCORE', KEYS[1], 0, ARGV[1], 'LIMIT', 0, 1000)
        if #jobs > 0 then
            redis.call('ZREM', KEYS[1], unpack(jobs))
            for _, id in ipairs(jobs) do redis.call('LPUSH', KEYS[2], id) end
        end
        return jobs";
    const LIMIT: &str = "
        local time = redis.call('TIME')
        local now = time[1] * 1000 + math.floor(time[2] / 1000)
        redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - ARGV[1])
        if redis.call('ZCARD', KEYS[1]) < tonumber(ARGV[2]) then
            redis.call('ZADD', KEYS[1], now, ARGV[3])
            redis.call('PEXPIRE', KEYS[1], ARGV[1])
            return {1, tonumber(ARGV[2]) - redis.call('ZCARD', KEYS[1])}
        end
        return {0, redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]}";
    on_both(|node| {
        let client = node.connect();
        // {"name": "mail", "ts": 1000, "delay": n}, as MessagePack.
        let options = |delay: u8| {
            [b"\x83\xa4name\xa4mail\xa2ts\xcd\x03\xe8\xa5delay".as_slice(), &[delay]].concat()
        };
        for (id, delay) in [(1, 0), (2, 5), (3, 9)] {
            let words: [&[u8]; 6] = [
                b"EVAL",
                ADD_JOB.as_bytes(),
                b"1",
                b"q",
                &options(delay),
                b"{\"children\":[\"a\",\"b\"]}",
            ];
            node.feed(client, &request(&words));
            node.settle();
            assert_eq!(node.take(client), format!("$1|{id}|"));
        }
        assert_eq!(node.say(client, "LRANGE q:wait 0 -1"), "*1|$1|1|");
        assert_eq!(
            node.say(client, "ZRANGE q:delayed 0 -1 WITHSCORES"),
            "*4|$1|2|$7|4116482|$1|3|$7|4132867|"
        );
        assert_eq!(node.say(client, "HMGET q:1 name attempts"), "*2|$4|mail|$1|0|");
        assert_eq!(node.say(client, "SCARD q:1:children"), ":2|");
        let promote = ["EVAL", PROMOTE, "2", "q:delayed", "q:wait", "4120000"];
        assert_eq!(node.ask(client, &promote), "*1|$1|2|");
        assert_eq!(node.ask(client, &promote), "*0|");
        assert_eq!(node.say(client, "LRANGE q:wait 0 -1"), "*2|$1|2|$1|1|");
        for (n, reply) in [(1, "*2|:1|:1|"), (2, "*2|:1|:0|"), (3, "*2|:0|$7|1000000|")] {
            let n = n.to_string();
            assert_eq!(node.ask(client, &["EVAL", LIMIT, "1", "limit", "500", "2", &n]), reply);
        }
        node.world.wall_ms += 600;
        assert_eq!(node.ask(client, &["EVAL", LIMIT, "1", "limit", "500", "2", "4"]), "*2|:1|:1|");
    });
}

/// Generates a random script, whose control flow depends on the replies of its commands.
fn any_script(random: &mut Random) -> String {
    const CALLS: [&str; 14] = [
        "redis.pcall('set', K, tostring(x))",
        "redis.pcall('incrby', K, i)",
        "redis.pcall('append', K, cjson.encode({K, i}))",
        "redis.pcall('rpush', K, i, x)",
        "redis.pcall('lpop', K)",
        "redis.pcall('hset', K, i, tostring(x))",
        "redis.pcall('hgetall', K)",
        "redis.pcall('zadd', K, i ^ 1.3, i)",
        "redis.pcall('zrange', K, 0, -1, 'withscores')",
        "redis.pcall('sadd', K, i, math.random(100))",
        "redis.pcall('spop', K)",
        "redis.pcall('srandmember', K, 3)",
        "redis.pcall('pexpire', K, 100 * i)",
        "redis.pcall('del', K)",
    ];
    let mut text = String::from("local x, seen = 1, {}\n");
    text.push_str(&format!("for i = 1, {} do\n", 1 + random.below(6)));
    for _ in 0..=random.below(5) {
        let call = random.pick(&CALLS).replace('K', &format!("'k{}'", random.below(5)));
        text.push_str(&format!("local r = {call}\nseen[#seen + 1] = type(r) == 'table' and (r.err or cjson.encode(r)) or tostring(r)\n"));
        match random.below(4) {
            0 => text.push_str("x = x * 7 % 13.7\n"),
            1 => text.push_str("if #seen % 3 == 0 then x = 0/0 end\n"),
            2 => text.push_str("for k, v in pairs({b=i, a=x, [i]=1}) do x = tostring(k) .. tostring(v) end; x = #x\n"),
            _ => text.push_str("table.sort(seen)\n"),
        }
    }
    text.push_str("end\n");
    match random.below(20) {
        0 => text.push_str("while true do redis.call('incr', 'stop') end\n"),
        1 => text.push_str("error({seen[1]})\n"),
        _ => text.push_str("return {seen, x}\n"),
    }
    text
}

/// Nodes with different stores, histories and interpreter use reach the same state and send the
/// same replies.
#[test]
fn random_scripts_leave_the_same_on_all_nodes() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut origin = Node::memory();
        origin.world.level = Level(10);
        let client = origin.connect();
        let mut replies = Vec::new();
        for _ in 0..12 {
            let text = any_script(&mut random);
            replies.push(origin.ask(client, &["EVAL", &text, "0"]));
            origin.world.wall_ms += 150;
            origin.pass();
        }
        let digest = origin.world.service.digest();
        let folder = tempfile::tempdir().unwrap();
        let (disk, _) = quorate_kv::store::lsm::LsmStore::open(&folder.path().join("kv")).unwrap();
        let mut other = Service::new(Box::new(disk));
        other.recovered();
        let mut wall_ms = 1_000_000;
        for (at, (id, command)) in origin.world.log.iter().enumerate() {
            // Queries that only this node executes.
            let mut unused = Vec::new();
            other.query(b"\x30", 7, &mut unused);
            let mut reply = Vec::new();
            other.apply(*id, command, &mut reply);
            other.commit(Slot(id.slot.0 + 1), &[]);
            let mut rendered = Vec::new();
            quorate_kv::resp::reply::render(
                &reply,
                quorate_kv::resp::reply::Version::Resp2,
                &mut rendered,
            );
            let rendered = String::from_utf8_lossy(&rendered).replace("\r\n", "|");
            assert_eq!(
                rendered,
                replies[at],
                "seed {seed}, script {at}: {}",
                command.escape_ascii()
            );
            wall_ms += 150;
            if other.next_deadline(wall_ms).is_some() {
                other.set_time(wall_ms);
            }
        }
        assert_eq!(other.digest(), digest, "seed {seed}");
    }
}

/// The command table decides which commands a script may call; there is no separate list of names.
#[test]
fn every_command_can_be_called_or_is_refused() {
    let mut node = Node::memory();
    node.world.level = Level(10);
    let client = node.connect();
    for spec in FAMILIES.iter().flat_map(|family| family.commands) {
        let arguments = "'1', ".repeat(usize::from(spec.arity.unsigned_abs()).max(2) - 1);
        let text = format!("return redis.pcall('{}', {}'1').err or 1", spec.name, arguments);
        let reply = node.ask(client, &["EVAL", &text, "0"]);
        let refused =
            reply.contains("not allowed from script") || reply.contains("Wrong number of args");
        if !matches!(spec.handler, Handler::Data(_))
            && !["time", "ping", "echo", "select"].contains(&spec.name)
        {
            assert!(refused, "{}: {reply}", spec.name);
        }
    }
}
