//! Locks: conditional commands, the scripts of lock libraries, and unlock messages.

use quorate_kv::scripts::{KnownScript, Meaning, Scripts, hash_of};
use quorate_replica::front::Front as _;

use crate::common::{Node, check, on_both_stores};

#[test]
fn conditions() {
    check(
        "
        # Of an absent key only IFNE and IFDNE hold.
        SET a 1 IFEQ 1 => $-1|
        SET a 1 IFDEQ 0000000000000000 => $-1|
        GET a => $-1|
        SET a 1 IFNE 1 => +OK|
        SET a 2 IFNE 1 => $-1|
        SET a 2 IFEQ 2 => $-1|
        SET a 2 IFEQ 1 => +OK|
        GET a => $1|2|
        SET a 3 ifeq 2 EX 100 => +OK|
        TTL a => :100|
        SET a 4 IFEQ 3 KEEPTTL => +OK|
        TTL a => :100|
        SET a 5 IFEQ 4 => +OK|
        TTL a => :-1|
        # With GET the old value is the reply, whatever became of it.
        SET a 6 IFEQ 9 GET => $1|5|
        SET a 6 GET IFEQ 5 => $1|5|
        SET b 1 IFEQ 1 GET => $-1|
        EXISTS b => :0|
        # XXH3 of 64 bits.
        SET d foobar => +OK|
        DIGEST d => $16|d78fda63144c5c84|
        DIGEST nope => $-1|
        SET d x IFDEQ 0000000000000001 => $-1|
        SET d x IFDNE D78FDA63144C5C84 => $-1|
        SET d x IFDEQ D78FDA63144C5C84 => +OK|
        SET d y IFDNE d78fda63144c5c84 => +OK|
        # One condition, and none together with NX or XX.
        SET a 1 IFEQ 1 NX => -ERR syntax error|
        SET a 1 XX IFNE 1 => -ERR syntax error|
        SET a 1 IFEQ 1 IFNE 2 => -ERR syntax error|
        SET a 1 IFEQ => -ERR syntax error|
        SET a 1 IFDEQ 12 => -ERR a digest has exactly 16 hexadecimal characters, as DIGEST says it|
        SET a 1 IFDNE +00000000000000a => -ERR a digest has exactly 16 hexadecimal characters, as DIGEST says it|
        # Deletion.
        DELEX a IFEQ 1 => :0|
        DELEX a IFNE 6 => :0|
        DELEX a IFEQ 6 => :1|
        DELEX a IFEQ 6 => :0|
        DELEX a IFNE 6 => :0|
        SET a 1 => +OK|
        DELEX a => :1|
        DELEX a => :0|
        DELEX a IFEQ => -ERR syntax error|
        DELEX a IFXX 1 => -ERR syntax error|
        DELEX a IFEQ 1 2 => -ERR syntax error|
        SET a foobar => +OK|
        DELEX a IFDNE d78fda63144c5c84 => :0|
        DELEX a IFDEQ d78fda63144c5c84 => :1|
        SET a 1 => +OK|
        DELIFEQ a 2 => :0|
        DELIFEQ a 1 => :1|
        DELIFEQ a => -ERR wrong number of arguments for 'delifeq' command|
        ",
    );
}

// Hashes of the scripts as sent by the libraries.
const PY_RELEASE: &str = "c3f8721cbb97f72bc19e972846bd7aaf91901658";
const PY_EXTEND: &str = "a4e8783852e6b949f9ef3a97212805108459a890";
const PY_REACQUIRE: &str = "1cac51482acf5858da00f6d685d68f886cd6b6b2";
const REDLOCK_ACQUIRE: &str = "96da70f7716f27d278a5218544df37fd8b0a5e4c";
const REDLOCK_EXTEND: &str = "aed6f382e410db8ba7926d4e5e9aab410bf2a78a";
const REDLOCK_RELEASE: &str = "e4612211c9f8f51c257e26e056b0a654b3187242";
const LOCK: &str = "149c5a8bf18676fd99e9e6e24923bd64d9b62f94";
const UNLOCK: &str = "3ffe249c16dee540ac8ab32e39bd408626b9aff7";
const UNLOCK_ONCE: &str = "6866459238a13a701d42f4971f12d9f3a50e2442";
const UNLOCK_SPIN: &str = "5b9e58d1bcb8498e14aa1d5b49a1ca5b90748946";
const UNLOCK_SPIN_ONCE: &str = "73ac2729af29ea9a975f95e8097f7ee9a74cce3d";
const RENEW: &str = "8e19a1ddbdee9138df9f32a480c57addab4353d1";
const RENEW_EACH: &str = "6a3d31570dc6f4b0bd32bcdc8e75667747c6f635";
const BREAK: &str = "605e338249a7a1d40df83b04f7658354f883b41b";
const BREAK_SPIN: &str = "51b433c3cc9a6ca991b3aefec63d23490c246318";

/// Replaces the names of scripts with their hashes.
fn script(text: &str) -> String {
    let names = [
        ("PY_RELEASE", PY_RELEASE),
        ("PY_EXTEND", PY_EXTEND),
        ("PY_REACQUIRE", PY_REACQUIRE),
        ("REDLOCK_ACQUIRE", REDLOCK_ACQUIRE),
        ("REDLOCK_EXTEND", REDLOCK_EXTEND),
        ("REDLOCK_RELEASE", REDLOCK_RELEASE),
        ("UNLOCK_SPIN_ONCE", UNLOCK_SPIN_ONCE),
        ("UNLOCK_SPIN", UNLOCK_SPIN),
        ("UNLOCK_ONCE", UNLOCK_ONCE),
        ("UNLOCK", UNLOCK),
        ("RENEW_EACH", RENEW_EACH),
        ("RENEW", RENEW),
        ("BREAK_SPIN", BREAK_SPIN),
        ("BREAK", BREAK),
        (" LOCK ", &format!(" {LOCK} ")),
    ];
    let named = |text: String, (name, hash): &(&str, &str)| text.replace(name, hash);
    let text = names.iter().fold(text.to_owned(), named);
    text.replace("SHA ", "EVALSHA ")
}

#[test]
fn redis_py_takes_extends_and_gives_back() {
    check(&script(
        "
        SET lock mine NX PX 10000 => +OK|
        SHA PY_RELEASE 1 lock other => :0|
        SHA PY_EXTEND 1 lock other 5000 0 => :0|
        SHA PY_EXTEND 1 lock mine 5000 0 => :1|
        PTTL lock => :15000|
        SHA PY_EXTEND 1 lock mine 4000 1 => :1|
        PTTL lock => :4000|
        SHA PY_REACQUIRE 1 lock other 9000 => :0|
        SHA PY_REACQUIRE 1 lock mine 9000 => :1|
        PTTL lock => :9000|
        SHA PY_RELEASE 1 lock mine => :1|
        EXISTS lock => :0|
        SHA PY_RELEASE 1 lock mine => :0|
        SHA PY_EXTEND 1 lock mine 5000 0 => :0|
        # Without a deadline there is nothing to extend, and something to give.
        SET lock mine => +OK|
        SHA PY_EXTEND 1 lock mine 5000 0 => :0|
        SHA PY_EXTEND 1 lock mine 5000 1 => :1|
        PTTL lock => :5000|
        # Time that is taken away, to the end.
        SHA PY_EXTEND 1 lock mine -2000 0 => :1|
        PTTL lock => :3000|
        SHA PY_REACQUIRE 1 lock mine 0 => :1|
        EXISTS lock => :0|
        SHA PY_EXTEND 1 lock mine x 0 => -ERR value is not an integer or out of range|
        SHA PY_EXTEND 1 lock mine 1 => -ERR this script has other keys or arguments|
        SHA PY_RELEASE 2 lock lock2 mine => -ERR this script has other keys or arguments|
        SHA PY_RELEASE 1 lock => -ERR this script has other keys or arguments|
        SHA PY_RELEASE 3 lock mine => -ERR Number of keys can't be greater than number of args|
        SHA PY_RELEASE -1 lock mine => -ERR Number of keys can't be negative|
        SHA PY_RELEASE x lock mine => -ERR value is not an integer or out of range|
        ",
    ));
}

#[test]
fn redlock_takes_several_keys_or_none() {
    check(&script(
        "
        SHA REDLOCK_ACQUIRE 2 a b mine 10000 => :2|
        MGET a b => *2|$4|mine|$4|mine|
        PTTL b => :10000|
        SHA REDLOCK_ACQUIRE 2 b c other 10000 => :0|
        EXISTS c => :0|
        SHA REDLOCK_EXTEND 2 a b other 20000 => :0|
        SHA REDLOCK_EXTEND 2 a b mine 20000 => :2|
        PTTL a => :20000|
        SHA REDLOCK_EXTEND 2 a c mine 20000 => :0|
        SHA REDLOCK_RELEASE 2 a b other => :0|
        SET b other => +OK|
        SHA REDLOCK_RELEASE 3 a b c mine => :1|
        MGET a b => *2|$-1|$5|other|
        SHA REDLOCK_ACQUIRE 1 a mine 0 => -ERR invalid expire time in 'evalsha' command|
        ",
    ));
}

/// A Redisson lock is reentrant: each acquisition needs a release.
#[test]
fn redisson_counts_how_often_a_lock_is_taken() {
    check(&script(
        "
        SHA LOCK 1 l 30000 me:1 => $-1|
        TYPE l => +hash|
        PTTL l => :30000|
        SHA LOCK 1 l 20000 me:1 => $-1|
        SHA LOCK 1 l 10000 me:2 => :20000|
        HEXISTS l me:1 => :1|
        HEXISTS l me:2 => :0|
        HEXISTS nope me:1 => :0|
        HGET l me:1 => $1|2|
        HGET l me:2 => $-1|
        SHA RENEW 1 l 40000 me:2 => :0|
        SHA RENEW 1 l 40000 me:1 => :1|
        PTTL l => :40000|
        SHA UNLOCK_ONCE 3 l ch latch:1 0 5000 me:2 publish 1000 => $-1|
        EXISTS latch:1 => :0|
        SHA UNLOCK_ONCE 3 l ch latch:2 0 5000 me:1 publish 1000 => :0|
        PTTL l => :5000|
        PTTL latch:2 => :1000|
        # A repetition is told the same, and changes nothing.
        SHA UNLOCK_ONCE 3 l ch latch:2 0 9000 me:1 publish 1000 => :0|
        HGET l me:1 => $1|1|
        SHA UNLOCK_ONCE 3 l ch latch:3 0 5000 me:1 publish 1000 => :1|
        EXISTS l => :0|
        SHA UNLOCK_ONCE 3 l ch latch:3 0 5000 me:1 publish 1000 => :1|
        SHA UNLOCK_ONCE 3 l ch latch:4 0 5000 me:1 publish 1000 => $-1|
        SHA UNLOCK_ONCE 3 l ch latch:4 0 5000 me:1 spublish 1000 => -ERR this script tells others by another command than PUBLISH|
        # Before the latches, and the spin lock.
        SHA LOCK 1 l 30000 me:1 => $-1|
        SHA LOCK 1 l 30000 me:1 => $-1|
        SHA UNLOCK 2 l ch 0 5000 me:1 => :0|
        SHA UNLOCK 2 l ch 0 5000 me:1 => :1|
        SHA UNLOCK 2 l ch 0 5000 me:1 => $-1|
        SHA LOCK 1 l 30000 me:1 => $-1|
        SHA UNLOCK_SPIN 1 l 5000 me:1 => :1|
        SHA LOCK 1 l 30000 me:1 => $-1|
        SHA UNLOCK_SPIN_ONCE 2 l latch:5 5000 me:1 1000 => :1|
        SHA UNLOCK_SPIN_ONCE 2 l latch:5 5000 me:1 1000 => :1|
        # Several at a time, and by force.
        SHA LOCK 1 l 30000 me:1 => $-1|
        SHA LOCK 1 m 30000 me:2 => $-1|
        SHA RENEW_EACH 3 l m n 60000 me:1 me:1 me:1 => *3|:1|:0|:0|
        PTTL l => :60000|
        SHA RENEW_EACH 2 l m 60000 me:1 => -ERR this script has other keys or arguments|
        SHA BREAK 2 l ch 0 publish => :1|
        SHA BREAK 2 l ch 0 publish => :0|
        SHA BREAK_SPIN 1 m => :1|
        EXISTS l m => :0|
        ",
    ));
}

/// A Redisson lock is not a string, and a string is not a Redisson lock.
#[test]
fn lock_records_and_strings_are_told_apart() {
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
    let mut text = script("SHA LOCK 1 l 30000 me => $-1|\n SET s x => +OK|\n");
    for command in [
        "GET l",
        "STRLEN l",
        "GETRANGE l 0 9",
        "GETDEL l",
        "GETEX l PERSIST",
        "GETSET l x",
        "SET l x GET",
        "SET l x IFEQ y",
        "APPEND l x",
        "SETRANGE l 1 x",
        "INCR l",
        "INCRBYFLOAT l 1",
        "DELEX l IFEQ x",
        "DIGEST l",
        &script("SHA PY_RELEASE 1 l x"),
        &script("SHA PY_REACQUIRE 1 l x 100"),
        &script("SHA REDLOCK_EXTEND 1 l x 100"),
        &script("SHA REDLOCK_RELEASE 1 l x"),
        &script("SHA LOCK 1 s 30000 me"),
        &script("SHA UNLOCK 2 s ch 0 5000 me"),
        &script("SHA RENEW 1 s 5000 me"),
        "HEXISTS s me",
        "HGET s me",
    ] {
        text += &format!("{command} => {wrong}\n");
    }
    text += &script(
        "
        SHA REDLOCK_ACQUIRE 1 l x 100 => :0|
        MGET l s => *2|$-1|$1|x|
        COPY l m => :1|
        HGET m me => $1|1|
        RENAME m n => +OK|
        TYPE n => +hash|
        PEXPIRE n 5000 => :1|
        PERSIST n => :1|
        SHA LOCK 1 n 30000 other => :-1|
        SCAN 0 TYPE hash => *2|$1|0|*2|$1|l|$1|n|
        SCAN 0 TYPE string => *2|$1|0|*1|$1|s|
        SET l x => +OK|
        GET l => $1|x|
        SHA LOCK 1 n 0 me => $-1|
        EXISTS n => :0|
        ",
    );
    check(&text);
}

#[test]
fn other_scripts_are_refused_and_hashes_are_learnt() {
    let mut node = Node::memory();
    let client = node.connect();
    let text = "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end -- mine";
    let hash = hash_of(text.as_bytes());
    // The group is below the feature level of scripts. Lock scripts work nevertheless, as before.
    let unknown = "-ERR not executed: scripts need feature level 10";
    assert!(node.ask(client, &["EVAL", "return 1", "0"]).starts_with(unknown));
    assert!(node.ask(client, &["SCRIPT", "LOAD", "return 1"]).starts_with("$40|"));
    let no_script = "-NOSCRIPT No matching script. Please use EVAL.|";
    assert_eq!(node.ask(client, &["EVALSHA", &hash, "1", "a", "1"]), no_script);
    node.say(client, "SET a 1");
    assert_eq!(node.ask(client, &["EVAL", text, "1", "a", "2"]), ":0|");
    assert_eq!(node.ask(client, &["EVALSHA", &hash, "1", "a", "1"]), ":1|");
    let known = node.ask(client, &["SCRIPT", "EXISTS", &hash, PY_RELEASE, "x"]);
    assert_eq!(known, "*3|:1|:1|:0|");
    assert_eq!(node.say(client, "SCRIPT FLUSH SYNC"), "+OK|");
    assert_eq!(node.ask(client, &["SCRIPT", "EXISTS", &hash]), "*1|:0|");
    assert_eq!(node.ask(client, &["SCRIPT", "LOAD", text]), format!("$40|{hash}|"));
    assert_eq!(node.ask(client, &["SCRIPT", "EXISTS", &hash]), "*1|:1|");
    // They also work in a transaction and with a number in a session.
    node.say(client, "SET a 1");
    node.say(client, "MULTI");
    assert_eq!(node.ask(client, &["EVALSHA", &hash, "1", "a", "1"]), "+QUEUED|");
    assert_eq!(node.ask(client, &["EVAL", "return 1", "0"]), "+QUEUED|");
    let replies = node.say(client, "EXEC");
    assert!(replies.starts_with(&format!("*2|:1|{unknown}")), "{replies}");
    node.say(client, "SET a 1");
    node.say(client, "QUORATE SESSION");
    for _ in 0..2 {
        let words = ["QUORATE", "SEQ", "1", "EVALSHA", &hash, "1", "a", "1"];
        assert_eq!(node.ask(client, &words), ":1|", "once, and the stored reply");
    }
    assert!(node.say(client, "QUORATE SEQ 2 EVAL return 0").starts_with(unknown));
    assert!(
        Scripts::default().find(PY_EXTEND.as_bytes()) == Some(KnownScript::Lock(Meaning::Extend))
    );
}

/// Every node sends published messages to its own subscribers, including those of unlocks.
#[test]
fn who_subscribed_hears_what_is_published() {
    on_both_stores(|node| {
        let (listener, other) = (node.connect(), node.connect());
        assert_eq!(node.say(other, "PUBLISH ch early"), ":0|");
        let both = "*3|$9|subscribe|$2|ch|:1|*3|$9|subscribe|$1|d|:2|";
        assert_eq!(node.say(listener, "SUBSCRIBE ch d"), both);
        assert_eq!(node.say(other, "PUBLISH ch hello"), ":1|");
        assert_eq!(node.take(listener), "*3|$7|message|$2|ch|$5|hello|");
        node.say(other, "MULTI");
        node.say(other, "PUBLISH d one");
        node.say(other, "PUBLISH unheard two");
        assert_eq!(node.say(other, "EXEC"), "*2|:0|:0|");
        assert_eq!(node.take(listener), "*3|$7|message|$1|d|$3|one|");
        node.say(other, &script("SHA LOCK 1 l 30000 me"));
        node.say(other, &script("SHA LOCK 1 l 30000 me"));
        node.say(other, &script("SHA UNLOCK 2 l ch 0 5000 me"));
        assert_eq!(node.take(listener), "", "it is held once more");
        node.say(other, &script("SHA UNLOCK 2 l ch 0 5000 me"));
        assert_eq!(node.take(listener), "*3|$7|message|$2|ch|$1|0|");
        node.say(other, &script("SHA BREAK 2 l ch 0"));
        assert_eq!(node.take(listener), "", "there was none");
        // In RESP2, a subscriber may only change its subscriptions.
        assert!(node.say(listener, "GET a").starts_with("-ERR Can't execute 'get': only"));
        assert_eq!(node.say(listener, "PING"), "*2|$4|pong|$0||");
        let left = "*3|$11|unsubscribe|$2|ch|:1|";
        assert_eq!(node.say(listener, "UNSUBSCRIBE ch"), left);
        node.say(other, "PUBLISH ch hello");
        assert_eq!(node.take(listener), "");
        assert_eq!(node.say(listener, "UNSUBSCRIBE"), "*3|$11|unsubscribe|$1|d|:0|");
        assert_eq!(node.say(listener, "UNSUBSCRIBE"), "*3|$11|unsubscribe|$-1|:0|");
        assert_eq!(node.say(listener, "GET a"), "$-1|");
        // In RESP3, a subscriber may send any command.
        node.say(listener, "HELLO 3");
        assert_eq!(node.say(listener, "SUBSCRIBE ch"), ">3|$9|subscribe|$2|ch|:1|");
        assert_eq!(node.say(listener, "GET a"), "_|");
        assert!(node.say(listener, "PUBLISH ch own").contains(">3|$7|message|$2|ch|$3|own|"));
        node.say(listener, "MULTI");
        let refused = "-ERR Command not allowed inside a transaction|";
        assert_eq!(node.say(listener, "SUBSCRIBE d"), refused);
        assert_eq!(node.say(listener, "RESET"), "+RESET|");
        node.say(other, "PUBLISH ch hello");
        assert_eq!(node.take(listener), "");
        node.say(listener, "SUBSCRIBE ch");
        node.front.handle_closed(listener, &mut node.world);
        node.say(other, "PUBLISH ch unheard");
    });
}

/// A subscriber that does not read is disconnected, because dropped messages would go unnoticed.
#[test]
fn listener_that_does_not_read_is_closed() {
    let mut node = Node::with_client_bytes(1 << 20);
    let (listener, other) = (node.connect(), node.connect());
    node.say(listener, "SUBSCRIBE ch");
    let message = "x".repeat(100_000);
    for _ in 0..20 {
        node.feed_only(other, &["PUBLISH", "ch", &message]);
    }
    assert!(node.front.held_bytes() < 2 << 20);
    assert!(!node.front.accepts_input(listener), "it is being closed");
    assert!(node.front.should_close(listener));
    assert!(node.front.take_output(listener).is_empty(), "its memory is given back at once");
    assert!(node.front.held_bytes() < 1 << 20);
}

#[test]
fn subscriptions_are_bounded() {
    let mut node = Node::memory();
    let client = node.connect();
    let long = "c".repeat(1025);
    assert!(node.ask(client, &["SUBSCRIBE", &long]).starts_with("-ERR a connection may"));
    let names: Vec<String> = (0..1024).map(|n| format!("c{n}")).collect();
    for names in names.chunks(100) {
        let words: Vec<&str> =
            std::iter::once("SUBSCRIBE").chain(names.iter().map(String::as_str)).collect();
        node.ask(client, &words);
    }
    assert!(node.say(client, "SUBSCRIBE one-more").starts_with("-ERR a connection may"));
    let held = node.front.held_bytes_of(client);
    assert!((60_000..200_000).contains(&held), "{held}");
    let replies = node.say(client, "UNSUBSCRIBE");
    assert!(replies.ends_with(":0|"), "all of them");
}
