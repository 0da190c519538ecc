//! Replies to each command, on both stores, through the front end.

use crate::common::{Node, check, on_both_stores, request};
use quorate_replica::front::Front as _;

#[test]
fn strings() {
    check(
        "
        GET a => $-1|
        SET a 1 => +OK|
        get A => $-1|
        Get a => $1|1|
        SET a 2 NX => $-1|
        SET a 2 XX => +OK|
        SET b 2 XX => $-1|
        SET a 3 GET => $1|2|
        SET b 3 NX GET => $-1|
        SET b 4 NX GET => $1|3|
        GET b => $1|3|
        SET a 1 NX XX => -ERR syntax error|
        SET a 1 EX => -ERR syntax error|
        SET a 1 EX 10 PX 10 => -ERR syntax error|
        SET a 1 EX 10 KEEPTTL => -ERR syntax error|
        SET a 1 EX 0 => -ERR invalid expire time in 'set' command|
        SET a 1 EX x => -ERR value is not an integer or out of range|
        SET a 1 EX 9223372036854775807 => -ERR invalid expire time in 'set' command|
        SET a 1 PLEASE => -ERR syntax error|
        SET a => -ERR wrong number of arguments for 'set' command|
        GET => -ERR wrong number of arguments for 'get' command|
        GET a b => -ERR wrong number of arguments for 'get' command|
        SETNX a 9 => :0|
        SETNX c 9 => :1|
        GETSET c 8 => $1|9|
        GETDEL c => $1|8|
        GETDEL c => $-1|
        APPEND c ab => :2|
        APPEND c cd => :4|
        STRLEN c => :4|
        STRLEN none => :0|
        GETRANGE c 0 -1 => $4|abcd|
        GETRANGE c 1 2 => $2|bc|
        GETRANGE c -3 -2 => $2|bc|
        GETRANGE c 3 1 => $0||
        GETRANGE c -1 -3 => $0||
        GETRANGE c -100 1 => $2|ab|
        GETRANGE c 2 100 => $2|cd|
        GETRANGE c 9 100 => $0||
        GETRANGE c 0 -9223372036854775808 => $1|a|
        GETRANGE none 0 -1 => $0||
        SUBSTR c 0 0 => $1|a|
        SETRANGE c 1 XY => :4|
        GET c => $4|aXYd|
        SETRANGE c 6 z => :7|
        STRLEN c => :7|
        SETRANGE none 5 '' => :0|
        EXISTS none => :0|
        SETRANGE c -1 x => -ERR offset is out of range|
        SETRANGE c 999999999999 x => -ERR string exceeds maximum allowed size (proto-max-bulk-len)|
        MSET x 1 y 2 => +OK|
        MSET x 1 y => -ERR wrong number of arguments for 'mset' command|
        MGET x none y => *3|$1|1|$-1|$1|2|
        MSETNX x 5 z 6 => :0|
        EXISTS z => :0|
        MSETNX z 6 w 7 => :1|
        MGET z w => *2|$1|6|$1|7|
        SET '' empty => +OK|
        GET '' => $5|empty|
        SET e '' => +OK|
        GET e => $0||
        ",
    );
}

#[test]
fn counters() {
    check(
        "
        INCR n => :1|
        INCRBY n 41 => :42|
        DECR n => :41|
        DECRBY n 1 => :40|
        GET n => $2|40|
        DECRBY n -9223372036854775808 => -ERR decrement would overflow|
        INCRBY n 9223372036854775807 => -ERR increment or decrement would overflow|
        INCRBY n 1.5 => -ERR value is not an integer or out of range|
        INCRBY n 01 => -ERR value is not an integer or out of range|
        SET s abc => +OK|
        INCR s => -ERR value is not an integer or out of range|
        INCRBYFLOAT s 1 => -ERR value is not a valid float|
        INCRBYFLOAT n x => -ERR value is not a valid float|
        INCRBYFLOAT n nan => -ERR value is not a valid float|
        INCRBYFLOAT n -inf => -ERR increment would produce NaN or Infinity|
        INCRBYFLOAT n +Infinity => -ERR increment would produce NaN or Infinity|
        INCRBYFLOAT n 0.1 => $4|40.1|
        INCRBYFLOAT n -0.1 => $2|40|
        INCR n => :41|
        INCRBYFLOAT f 3.0e3 => $4|3000|
        INCRBYFLOAT f 1e25 => -ERR value is not a valid float|
        INCRBYFLOAT f 1e20 => -ERR increment would produce NaN or Infinity|
        SET t 1 EX 100 => +OK|
        INCR t => :2|
        TTL t => :100|
        ",
    );
}

#[test]
fn deadlines() {
    check(
        "
        SET a 1 EX 100 => +OK|
        TTL a => :100|
        PTTL a => :100000|
        EXPIRETIME a => :1100|
        PEXPIRETIME a => :1100000|
        SET a 1 => +OK|
        TTL a => :-1|
        TTL none => :-2|
        EXPIRETIME a => :-1|
        PSETEX a 5000 1 => +OK|
        SET a 2 KEEPTTL => +OK|
        PTTL a => :5000|
        PERSIST a => :1|
        PERSIST a => :0|
        PERSIST none => :0|
        EXPIRE a 100 XX => :0|
        EXPIRE a 100 GT => :0|
        EXPIRE a 100 NX => :1|
        EXPIRE a 50 NX => :0|
        EXPIRE a 50 GT => :0|
        EXPIRE a 50 LT => :1|
        TTL a => :50|
        EXPIRE a 200 GT => :1|
        EXPIRE a 200 XX LT => :0|
        EXPIRE none 5 => :0|
        EXPIRE a x => -ERR value is not an integer or out of range|
        EXPIRE a 5 NX XX => -ERR NX and XX, GT or LT options at the same time are not compatible|
        EXPIRE a 5 GT LT => -ERR GT and LT options at the same time are not compatible|
        EXPIRE a 5 ZZ => -ERR Unsupported option ZZ|
        EXPIRE a 9223372036854775807 => -ERR invalid expire time in 'expire' command|
        PEXPIRE a 1500 => :1|
        TTL a => :2|
        EXPIREAT a 1060 => :1|
        TTL a => :60|
        PEXPIREAT a 1000001 => :1|
        PTTL a => :1|
        GETEX a => $1|2|
        GETEX a EX 10 => $1|2|
        TTL a => :10|
        GETEX a PERSIST => $1|2|
        TTL a => :-1|
        GETEX a EX 0 => -ERR invalid expire time in 'getex' command|
        GETEX a NOW => -ERR syntax error|
        GETEX none EX 10 => $-1|
        APPEND a x => :2|
        EXPIRE a 30 => :1|
        APPEND a y => :3|
        SETRANGE a 0 z => :3|
        TTL a => :30|
        GETSET a q => $3|zxy|
        TTL a => :-1|
        EXPIRE a 0 => :1|
        EXISTS a => :0|
        SET a 1 => +OK|
        EXPIRE a -1 => :1|
        GET a => $-1|
        SET a 1 => +OK|
        SET a 2 PXAT 999999 => +OK|
        GET a => $-1|
        DBSIZE => :0|
        SETEX a 10 v => +OK|
        TTL a => :10|
        SETEX a 0 v => -ERR invalid expire time in 'setex' command|
        PSETEX a -5 v => -ERR invalid expire time in 'psetex' command|
        ",
    );
}

#[test]
fn keys() {
    check(
        "
        MSET a 1 b 2 c 3 => +OK|
        DBSIZE => :3|
        EXISTS a b none a => :3|
        TOUCH a none => :1|
        TYPE a => +string|
        TYPE none => +none|
        DEL a none b => :2|
        UNLINK c => :1|
        DBSIZE => :0|
        RANDOMKEY => $-1|
        RENAME a b => -ERR no such key|
        SET a 1 EX 100 => +OK|
        RENAME a b => +OK|
        GET a => $-1|
        TTL b => :100|
        RENAME b b => +OK|
        RENAMENX b b => :0|
        SET a 2 => +OK|
        RENAMENX a b => :0|
        RENAMENX a c => :1|
        GET c => $1|2|
        COPY b c => :0|
        COPY b c REPLACE => :1|
        TTL c => :100|
        COPY b d DB 0 => :1|
        COPY b d DB 16 => -ERR DB index is out of range|
        COPY b b => -ERR source and destination objects are the same|
        COPY none d => :0|
        COPY b d WITH => -ERR syntax error|
        DBSIZE => :3|
        KEYS none* => *0|
        KEYS [b] => *1|$1|b|
        FLUSHALL SYNC => +OK|
        DBSIZE => :0|
        KEYS * => *0|
        SCAN 0 => *2|$1|0|*0|
        FLUSHDB => +OK|
        FLUSHALL NOW => -ERR syntax error|
        SET a 1 => +OK|
        RANDOMKEY => $1|a|
        KEYS * => *1|$1|a|
        SCAN 0 => *2|$1|0|*1|$1|a|
        SCAN x => -ERR invalid cursor|
        SCAN 0 COUNT 0 => -ERR syntax error|
        SCAN 0 COUNT => -ERR syntax error|
        SCAN 0 TYPE list => *2|$1|0|*0|
        SCAN 0 TYPE STRING MATCH b* => *2|$1|0|*0|
        SCAN 18446744073709551615 => *2|$1|0|*0|
        ",
    );
}

#[test]
fn server() {
    check(
        "
        PING => +PONG|
        PING hi => $2|hi|
        PING a b => -ERR wrong number of arguments for 'ping' command|
        ECHO x => $1|x|
        SELECT 0 => +OK|
        SELECT 16 => -ERR DB index is out of range|
        SELECT -1 => -ERR DB index is out of range|
        SELECT x => -ERR value is not an integer or out of range|
        CLIENT ID => :1|
        CLIENT GETNAME => $-1|
        CLIENT SETNAME joe => +OK|
        CLIENT GETNAME => $3|joe|
        CLIENT SETINFO LIB-NAME redis-py => +OK|
        CLIENT SETINFO LIB-VER 7 => +OK|
        CLIENT SETINFO LIB-FOO 7 => -ERR Unrecognized option 'LIB-FOO'|
        CLIENT LIST ID 7 => $0||
        CLIENT LIST TYPE replica => $0||
        CLIENT LIST TYPE pubsub => $0||
        CLIENT LIST TYPE foo => -ERR Unknown client type 'foo'|
        CLIENT LIST ID x => -ERR Invalid client ID|
        CLIENT LIST FOO => -ERR syntax error|
        CLIENT TRACKING OFF => +OK|
        CLIENT SETNAME => -ERR wrong number of arguments for 'client|setname' command|
        CONFIG GET => -ERR wrong number of arguments for 'config|get' command|
        COMMAND FOO => -ERR unknown subcommand 'FOO'. Try COMMAND HELP.|
        CONFIG HELP => *5|+CONFIG <subcommand> [<arg> ...]; docs/commands.md says more. Subcommands are:|+GET|+HELP|+RESETSTAT|+SET|
        CONFIG GET save => *2|$4|save|$0||
        CONFIG GET slowlog-* => *4|$23|slowlog-log-slower-than|$5|10000|$15|slowlog-max-len|$3|128|
        CONFIG GET append* save => *4|$10|appendonly|$3|yes|$4|save|$0||
        CONFIG SET save x => -ERR CONFIG SET failed (possibly related to argument 'save') - it is '' here and cannot be changed by clients|
        CONFIG SET save '' => +OK|
        CONFIG SET MAXMEMORY-POLICY NoEviction appendonly yes => +OK|
        CONFIG SET appendonly no => -ERR CONFIG SET failed (possibly related to argument 'appendonly') - it is 'yes' here and cannot be changed by clients|
        CONFIG SET save '' maxmemory 1gb => -ERR CONFIG SET failed (possibly related to argument 'maxmemory') - it is '0' here and cannot be changed by clients|
        CONFIG SET notify-keyspace-events '' => +OK|
        CONFIG SET notify-keyspace-events KEA save '' => +OK|
        CONFIG GET notify-keyspace-events => *2|$22|notify-keyspace-events|$3|AKE|
        CONFIG SET notify-keyspace-events KEq => -ERR CONFIG SET failed (possibly related to argument 'notify-keyspace-events') - Invalid event class character. Use 'Ag$lshzxeKEtdn'.|
        CONFIG SET notify-keyspace-events Em => -ERR CONFIG SET failed (possibly related to argument 'notify-keyspace-events') - key misses ('m') are not reported: reads are not in the log|
        CONFIG SET notify-keyspace-events '' save x => -ERR CONFIG SET failed (possibly related to argument 'save') - it is '' here and cannot be changed by clients|
        CONFIG GET notify-keyspace-events => *2|$22|notify-keyspace-events|$3|AKE|
        CONFIG SET notify-keyspace-events '' => +OK|
        CONFIG SET nonsense 1 => -ERR Unknown option or number of arguments for CONFIG SET - 'nonsense'|
        CONFIG SET save => -ERR wrong number of arguments for 'config|set' command|
        CONFIG SET save '' appendonly => -ERR syntax error|
        CONFIG SET save '' SAVE '' => -ERR CONFIG SET failed (possibly related to argument 'save') - duplicate parameter|
        CONFIG GET notify-keyspace-events => *2|$22|notify-keyspace-events|$0||
        FUNCTION LIST => *0|
        FUNCTION LIST LIBRARYNAME x WITHCODE => *0|
        FUNCTION LIST x => -ERR Unknown argument x|
        FUNCTION LIST LIBRARYNAME => -ERR library name argument was not given|
        FUNCTION FLUSH => +OK|
        FUNCTION FLUSH ASYNC => +OK|
        FUNCTION FLUSH SYNC => +OK|
        FUNCTION FLUSH now => -ERR FUNCTION FLUSH only supports SYNC|ASYNC option|
        FUNCTION FLUSH SYNC ASYNC => -ERR unknown subcommand or wrong number of arguments for 'FLUSH'. Try FUNCTION HELP.|
        FUNCTION LOAD x => -ERR unknown subcommand 'LOAD'. Try FUNCTION HELP.|
        COMMAND COUNT => :233|
        COMMAND INFO get none => *2|*10|$3|get|:2|*2|+readonly|+fast|:1|:1|:1|*0|*0|*0|*0|$-1|
        COMMAND DOCS nonsense => *0|
        COMMAND DOCS nonsense GET get => *2|$3|get|*8|$7|summary|$34|Returns the string value of a key.|$5|since|$5|1.0.0|$5|group|$6|string|$10|complexity|$4|O(1)|
        CLIENT NO-EVICT on => +OK|
        CLIENT NO-TOUCH OFF => +OK|
        CLIENT NO-EVICT maybe => -ERR syntax error|
        CLIENT NO-TOUCH => -ERR wrong number of arguments for 'client|no-touch' command|
        COMMAND GETKEYS MSET a 1 b 2 => *2|$1|a|$1|b|
        COMMAND GETKEYS PING => -ERR The command has no key arguments|
        COMMAND GETKEYS NOPE a => -ERR Invalid command specified|
        COMMAND GETKEYS GET => -ERR Invalid number of arguments specified for command|
        COMMAND GETKEYS EVAL text 2 a b c => *2|$1|a|$1|b|
        COMMAND GETKEYS EVAL text 0 c => *0|
        COMMAND GETKEYS EVAL text 2 a => -ERR Invalid arguments specified for command|
        COMMAND GETKEYS LMPOP -1 a LEFT => -ERR Invalid arguments specified for command|
        COMMAND GETKEYS LMPOP 2 a b LEFT => *2|$1|a|$1|b|
        COMMAND GETKEYS BZMPOP 0 1 a MIN => *1|$1|a|
        COMMAND GETKEYS ZUNIONSTORE t 2 a b WEIGHTS 1 2 => *3|$1|t|$1|a|$1|b|
        COMMAND GETKEYS SORT a => *1|$1|a|
        COMMAND GETKEYS SORT a ALPHA STORE x BY store LIMIT 0 1 STORE t => *2|$1|a|$1|t|
        COMMAND LIST FILTERBY MODULE any => *0|
        COMMAND LIST FILTERBY PATTERN BLM* => *2|$6|blmove|$6|blmpop|
        COMMAND LIST FILTERBY ACLCAT Transaction => *5|$5|multi|$4|exec|$7|discard|$5|watch|$7|unwatch|
        COMMAND LIST FILTERBY ACLCAT none => *0|
        COMMAND LIST FILTERBY none x => -ERR syntax error|
        COMMAND LIST FILTERBY PATTERN => -ERR syntax error|
        TIME => *2|$4|1000|$1|0|
        WAIT 2 0 => :1|
        READONLY => +OK|
        READWRITE => +OK|
        LOLWUT l 1 => -ERR unknown command 'LOLWUT', see docs/commands.md|
        AVERYLONGCOMMANDNAMETHATISNONE => -ERR unknown command 'AVERYLONGCOMMANDNAMETHATISNONE', see docs/commands.md|
        DEBUG SLEEP 1 => -ERR unknown command 'DEBUG', see docs/commands.md|
        HELLO 4 => -NOPROTO unsupported protocol version|
        HELLO x => -ERR Protocol version is not an integer or out of range|
        HELLO 2 => *14|$6|server|$7|quorate|$7|version|$5|7.2.0|$5|proto|:2|$2|id|:1|$4|mode|$10|standalone|$4|role|$6|master|$7|modules|*0|
        HELLO 3 SETNAME x => %7|$6|server|$7|quorate|$7|version|$5|7.2.0|$5|proto|:3|$2|id|:1|$4|mode|$10|standalone|$4|role|$6|master|$7|modules|*0|
        GET none => _|
        MGET none => *1|_|
        CONFIG GET save => %1|$4|save|$0||
        RESET => +RESET|
        GET none => $-1|
        CLIENT GETNAME => $-1|
        QUORATE => -ERR wrong number of arguments for 'quorate' command|
        QUORATE NOW => -ERR unknown subcommand or wrong number of arguments; try QUORATE HELP|
        QUIT => +OK|
        ",
    );
}

/// Every command is documented: clients generate help from it, and redis-cli loads it at start.
#[test]
fn every_command_is_documented() {
    let mut node = Node::memory();
    let client = node.connect();
    node.say(client, "HELLO 3");
    let listed = node.say(client, "COMMAND LIST");
    let names: Vec<&str> = listed
        .split('|')
        .filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()))
        .collect();
    let docs = node.say(client, "COMMAND DOCS");
    assert!(docs.starts_with(&format!("%{}|", names.len())), "{docs}");
    for name in names {
        let of_one = node.say(client, &format!("COMMAND DOCS {name}"));
        let entry = of_one.strip_prefix("%1|").expect("one entry");
        assert!(docs.contains(entry), "{name}: {entry}");
        for field in ["summary", "since", "group", "complexity"] {
            let (_, value) = entry.split_once(&format!("|{field}|$")).unwrap();
            assert!(!value.starts_with('0'), "{name} has no {field}");
        }
    }
}

#[test]
fn keys_tell_how_they_are_stored() {
    check(
        "
        OBJECT ENCODING none => $-1|
        OBJECT FREQ none => $-1|
        OBJECT IDLETIME none => $-1|
        OBJECT REFCOUNT none => $-1|
        MEMORY USAGE none => $-1|
        SET n 9223372036854775807 => +OK|
        OBJECT ENCODING n => $3|int|
        SET n -9223372036854775808 => +OK|
        object encoding n => $3|int|
        SET n 9223372036854775808 => +OK|
        OBJECT ENCODING n => $6|embstr|
        SET n 01 => +OK|
        OBJECT ENCODING n => $6|embstr|
        SET n -0 => +OK|
        OBJECT ENCODING n => $6|embstr|
        SET n '' => +OK|
        OBJECT ENCODING n => $6|embstr|
        MEMORY USAGE n => :97|
        SET n 12345678901234567890123456789012345678901234 => +OK|
        OBJECT ENCODING n => $6|embstr|
        APPEND n 5 => :45|
        OBJECT ENCODING n => $3|raw|
        MEMORY USAGE n => :142|
        MEMORY USAGE n SAMPLES 0 => :142|
        MEMORY USAGE n samples 5 => :142|
        MEMORY USAGE n SAMPLES -1 => -ERR syntax error|
        MEMORY USAGE n SAMPLES x => -ERR value is not an integer or out of range|
        MEMORY USAGE n SAMPLES => -ERR syntax error|
        MEMORY USAGE n PLEASE 5 => -ERR syntax error|
        MEMORY USAGE => -ERR wrong number of arguments for 'memory|usage' command|
        MEMORY DOCTOR => -ERR unknown subcommand 'DOCTOR'. Try MEMORY HELP.|
        MEMORY => -ERR wrong number of arguments for 'memory' command|
        MEMORY HELP => *3|+MEMORY <subcommand> [<arg> ...]; docs/commands.md says more. Subcommands are:|+HELP|+USAGE|
        OBJECT REFCOUNT n => :1|
        OBJECT FREQ n => -ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.|
        OBJECT IDLETIME n => -ERR idle time is not tracked: no key is ever evicted here, so the time of its last use is not kept|
        OBJECT ENCODING => -ERR wrong number of arguments for 'object|encoding' command|
        OBJECT ENCODING n n => -ERR wrong number of arguments for 'object|encoding' command|
        OBJECT SHAPE n => -ERR unknown subcommand 'SHAPE'. Try OBJECT HELP.|
        OBJECT HELP => *6|+OBJECT <subcommand> [<arg> ...]; docs/commands.md says more. Subcommands are:|+ENCODING|+FREQ|+HELP|+IDLETIME|+REFCOUNT|
        EVALSHA 149c5a8bf18676fd99e9e6e24923bd64d9b62f94 1 lock 30000 me => $-1|
        OBJECT ENCODING lock => $8|listpack|
        MULTI => +OK|
        OBJECT ENCODING n => -ERR Command not allowed inside a transaction|
        EXEC => -EXECABORT Transaction discarded because of previous errors.|
        COMMAND GETKEYS OBJECT ENCODING n => *1|$1|n|
        COMMAND GETKEYS MEMORY USAGE n => *1|$1|n|
        COMMAND GETKEYS OBJECT HELP => *0|
        ",
    );
}

#[test]
fn info_has_sections() {
    let mut node = Node::memory();
    let client = node.connect();
    let all = node.say(client, "INFO");
    for part in
        ["# Server|redis_version:7.2.0", "# Clients|connected_clients:1", "quorate_role:leader"]
    {
        assert!(all.contains(part), "{all}");
    }
    let one = node.say(client, "INFO replication");
    assert!(one.contains("role:master") && !one.contains("# Server"), "{one}");
    assert!(node.say(client, "QUORATE STATUS").contains("leader:1\n"));
    assert!(node.say(client, "INFO none").starts_with("$0||"));
}

#[test]
fn inline_requests_are_understood() {
    let mut node = Node::memory();
    let client = node.connect();
    node.feed(client, b"SET a \"x y\\n\\x41\"\r\n\r\nGET a\nPING 'it\\'s'\r\n");
    node.settle();
    assert_eq!(node.take(client), "+OK|$5|x y\nA|$4|it's|");
}

#[test]
fn garbage_gets_one_error_and_the_connection_closes() {
    for (bytes, error) in [
        (&b"*1\r\n+PING\r\n"[..], "expected '$', got '+'"),
        (b"*x\r\n", "invalid multibulk length"),
        (
            b"*400001\r\n",
            "invalid multibulk length: a request may have at most 262144 arguments; split it",
        ),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$999999999999\r\n", "invalid bulk length"),
        (b"*1\r\n$4\r\nPINGxx", "expected CR LF after an argument"),
        (b"SET 'a\r\n", "unbalanced quotes in request"),
    ] {
        let mut node = Node::memory();
        let client = node.connect();
        node.feed(client, b"PING\r\n");
        node.feed(client, bytes);
        node.feed(client, b"*1\r\n$4\r\nPING\r\n");
        node.settle();
        assert_eq!(node.take(client), format!("+PONG|-ERR Protocol error: {error}|"));
        assert!(node.front.should_close(client));
        assert!(!node.front.accepts_input(client));
    }
}

#[test]
fn a_request_beyond_the_limit_is_refused_without_being_kept() {
    on_both_stores(|node| {
        node.world.command_bytes_max = 1000;
        let client = node.connect();
        let mut bytes = request(&["SET", "a", &"x".repeat(5000)]);
        bytes.extend(request(&["SET", "b", "ok"]));
        for piece in bytes.chunks(700) {
            node.feed(client, piece);
            assert!(node.input[&client].len() < 700 + 64, "skipped bytes are not kept");
        }
        node.settle();
        let refused = "-TOOBIG not executed: a command may have 1000 bytes (--command-max)|";
        assert_eq!(node.take(client), format!("{refused}+OK|"));
        // Commands cannot make a value grow beyond the limit either.
        let many = "y".repeat(900);
        assert_eq!(node.ask(client, &["APPEND", "c", &many]), ":900|");
        assert!(node.ask(client, &["APPEND", "c", &many]).starts_with("-ERR string exceeds"));
        assert!(node.say(client, "SETRANGE c 1000 z").starts_with("-ERR string exceeds"));
        // A transaction that is too large is refused as a whole.
        assert_eq!(node.say(client, "MULTI"), "+OK|");
        assert_eq!(node.ask(client, &["SET", "d", &many]), "+QUEUED|");
        assert_eq!(node.ask(client, &["SET", "e", &many]), refused);
        assert!(node.say(client, "EXEC").starts_with("-EXECABORT"));
        assert_eq!(node.say(client, "EXISTS d e"), ":0|");
    });
}

#[test]
fn replies_beyond_the_limit_are_errors() {
    let mut node = Node::memory();
    let client = node.connect();
    let big = "x".repeat(7 << 20);
    assert_eq!(node.ask(client, &["SET", "a", &big]), "+OK|");
    let reply = node.say(client, "MGET a a a a a");
    assert!(reply.starts_with("-TOOBIG the reply"), "{}", &reply[..40]);
    node.say(client, "MULTI");
    for _ in 0..6 {
        node.say(client, "GET a");
    }
    node.say(client, "SET b done");
    let reply = node.say(client, "EXEC");
    assert!(reply.starts_with("-TOOBIG the reply"), "{}", &reply[..40]);
    assert_eq!(node.say(client, "GET b"), "$4|done|");
}

#[test]
fn scan_returns_every_key_that_stays_exactly_once() {
    on_both_stores(|node| {
        let client = node.connect();
        for number in 0..500 {
            node.say(client, &format!("SET key:{number} {number}"));
        }
        let (mut cursor, mut seen, mut pages) = ("0".to_owned(), Vec::new(), 0);
        loop {
            let reply = node.say(client, &format!("SCAN {cursor} MATCH key:* COUNT 7"));
            let parts: Vec<&str> = reply.split('|').collect();
            cursor = parts[2].to_owned();
            seen.extend(parts[4..].iter().skip(1).step_by(2).map(|key| (*key).to_owned()));
            // Keys are added and removed between pages, and another connection continues.
            node.say(client, &format!("SET other:{pages} x"));
            node.say(client, &format!("DEL other:{}", pages / 2));
            pages += 1;
            if cursor == "0" {
                break;
            }
        }
        assert!(pages > 70);
        seen.sort();
        let count = seen.len();
        seen.dedup();
        assert_eq!((count, seen.len()), (500, 500));
    });
}

/// CLIENT LIST has the fields that clients parse, with the values of each connection.
#[test]
fn clients_are_told_apart() {
    let mut node = Node::memory();
    let (one, two) = (node.connect(), node.connect());
    node.say(one, "CLIENT SETNAME first");
    node.say(one, "CLIENT SETINFO lib-name redis-py");
    node.say(one, "CLIENT SETINFO lib-ver 6.4.0");
    node.world.wall_ms += 5_000;
    node.say(two, "HELLO 3");
    node.say(two, "READONLY");
    node.say(two, "SUBSCRIBE ch");
    node.world.wall_ms += 2_000;
    node.say(two, "MULTI");
    node.say(two, "SET a 1");
    node.say(two, "SET a 2");
    let list = node.say(one, "CLIENT LIST");
    let lines: Vec<&str> = list.lines().collect();
    let fields = |line: &str| -> std::collections::BTreeMap<String, String> {
        let line = line
            .split_once('|')
            .map_or(line, |(head, rest)| if head.starts_with('$') { rest } else { line });
        let pairs = line.split(' ').filter_map(|pair| pair.split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    let expected = [
        [
            "1",
            "10.0.0.1:5000",
            "10.0.0.1:7450",
            "first",
            "7",
            "0",
            "N",
            "0",
            "-1",
            "client",
            "2",
            "redis-py",
            "6.4.0",
        ],
        ["2", "10.0.0.2:5000", "10.0.0.1:7450", "", "7", "0", "Pxr", "1", "2", "set", "3", "", ""],
    ];
    let names = [
        "id", "addr", "laddr", "name", "age", "idle", "flags", "sub", "multi", "cmd", "resp",
        "lib-name", "lib-ver",
    ];
    for (line, expected) in lines.iter().zip(expected) {
        let fields = fields(line);
        for (name, value) in names.into_iter().zip(expected) {
            assert_eq!(fields[name], value, "{name} in {line}");
        }
        // redis-py parses these fields as numbers.
        for name in [
            "id",
            "age",
            "idle",
            "db",
            "sub",
            "psub",
            "multi",
            "qbuf",
            "qbuf-free",
            "obl",
            "argv-mem",
            "oll",
            "omem",
            "tot-mem",
        ] {
            assert!(fields[name].parse::<i64>().is_ok(), "{name} in {line}");
        }
    }
    assert_eq!(lines.iter().filter(|line| line.contains("id=")).count(), 2);
    assert!(node.say(one, "CLIENT LIST ID 2").contains("id=2 "));
    assert!(!node.say(one, "CLIENT LIST TYPE normal").contains("id=2 "));
    node.front.handle_closed(two, &mut node.world);
    assert!(!node.say(one, "CLIENT LIST").contains("id=2 "));
    let three = node.connect();
    assert!(node.say(three, "CLIENT INFO").contains("id=3 addr=10.0.0.3:5000"));
    node.say(one, "RESET");
    assert_eq!(node.say(one, "CLIENT GETNAME"), "$-1|");
}

/// Commands that Redis refuses to queue are refused here too, and abort the transaction.
#[test]
fn transactions_do_not_survive_what_is_no_command() {
    check(
        "
        EXEC a => -EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command|
        MULTI => +OK|
        EXEC a => -EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command|
        EXEC => -ERR EXEC without MULTI|
        MULTI => +OK|
        CLIENT FOO => -ERR unknown subcommand 'FOO'. Try CLIENT HELP.|
        EXEC => -EXECABORT Transaction discarded because of previous errors.|
        MULTI => +OK|
        CLIENT SETNAME => -ERR wrong number of arguments for 'client|setname' command|
        EXEC => -EXECABORT Transaction discarded because of previous errors.|
        MULTI => +OK|
        SCRIPT FOO => -ERR unknown subcommand 'FOO'. Try SCRIPT HELP.|
        EXEC => -EXECABORT Transaction discarded because of previous errors.|
        MULTI => +OK|
        CLIENT ID => +QUEUED|
        EXEC => *1|:1|
        ",
    );
    // EXEC has ended the WATCH too.
    let mut node = Node::memory();
    let client = node.connect();
    for line in ["WATCH a", "MULTI", "EXEC a", "SET a 1", "MULTI", "SET a 2"] {
        node.say(client, line);
    }
    assert_eq!(node.say(client, "EXEC"), "*1|+OK|");
}

#[test]
fn options_may_be_repeated_and_an_absent_key_hides_a_bad_time() {
    check(
        "
        SET a 1 EX 10 EX 20 => +OK|
        TTL a => :20|
        SET a 1 EX 10 EXAT 20 => -ERR syntax error|
        GETEX a PX 10 PX 50000 => $1|1|
        TTL a => :50|
        GETEX a PERSIST PERSIST => $1|1|
        TTL a => :-1|
        GETEX a EX 10 PERSIST => -ERR syntax error|
        GETEX a EX 10 PX 10 => -ERR syntax error|
        GETEX a EX => -ERR syntax error|
        GETEX a FOO => -ERR syntax error|
        GETEX none FOO => -ERR syntax error|
        GETEX a EX 0 => -ERR invalid expire time in 'getex' command|
        GETEX a EX x => -ERR value is not an integer or out of range|
        GETEX none EX 0 => $-1|
        GETEX none EX x => $-1|
        GETEX none PERSIST => $-1|
        MULTI => +OK|
        GETEX a EX 0 => +QUEUED|
        GETEX none EX 0 => +QUEUED|
        EXEC => *2|-ERR invalid expire time in 'getex' command|$-1|
        ",
    );
    let mut node = Node::memory();
    let client = node.connect();
    assert_eq!(node.ask(client, &["SCAN", ""]), "*2|$1|0|*0|");
    assert_eq!(node.ask(client, &["SCAN", " "]), "-ERR invalid cursor|");
    node.say(client, "HELLO 3");
    assert_eq!(node.say(client, "COMMAND INFO nope"), "*1|_|");
}

/// INFO contains the lines that monitoring tools parse.
#[test]
fn info_tells_memory_time_and_keys() {
    on_both_stores(|node| {
        let client = node.connect();
        assert!(!node.say(client, "INFO keyspace").contains("db0"), "no keys, no line");
        node.say(client, "SET a 1 EX 100");
        node.say(client, "SET b 1");
        let all = node.say(client, "INFO");
        for line in [
            "|uptime_in_seconds:0|uptime_in_days:0|",
            "|# Memory|used_memory:0|used_memory_human:0B|",
            "|maxmemory_policy:noeviction|",
            "|total_connections_received:1|total_commands_processed:4|",
            "|connected_clients:1|blocked_clients:0|",
            "|# Cluster|cluster_enabled:0|",
            "|# Keyspace|db0:keys=2,expires=1,avg_ttl=0,subexpiry=0|",
        ] {
            assert!(all.contains(line), "{line} in {all}");
        }
    });
}
