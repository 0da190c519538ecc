//! Formats that outlive the process: replicated commands, entries on disk, positions.

use quorate_core::{level::Level, slot::Slot};
use quorate_kv::{
    commands::first_key,
    store::{Position, Store as _, Version, lsm::LsmStore},
};
use quorate_replica::service::{MetaChange, StateMachine as _};

use crate::common::{Asked, Node, World, on_both_stores};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The encoding of logged commands never changes. Lines may only be added here.
#[test]
fn encoded_commands_stay_as_they_are() {
    let cases = [
        ("SET k v", "40000001".to_owned() + "6b0176"),
        ("SET k v NX", "40010001".to_owned() + "6b0176"),
        ("SET k v XX GET", "400a0001".to_owned() + "6b0176"),
        ("SET k v KEEPTTL", "40040001".to_owned() + "6b0176"),
        ("SET k v PX 24", "40000158420f0000000000016b0176".to_owned()),
        ("SET k v PXAT 5", "400002016b0176".to_owned()),
        ("SETNX k v", "40110001".to_owned() + "6b0176"),
        ("GETDEL k", "41016b".to_owned()),
        ("GETEX k PERSIST", "42016b00".to_owned()),
        ("APPEND k v", "438080800401".to_owned() + "6b0176"),
        ("SETRANGE k 300 v", "44ac02016b0176".to_owned()),
        ("INCR k", "4502016b".to_owned()),
        ("DECRBY k 3", "4505016b".to_owned()),
        ("INCRBYFLOAT k 1.5", "46016b03312e35".to_owned()),
        ("MSET k v", "470002016b0176".to_owned()),
        ("MSETNX k v", "470102016b0176".to_owned()),
        ("DEL k", "4801016b".to_owned()),
        ("RENAME k l", "4900016b016c".to_owned()),
        ("RENAMENX k l", "4901016b016c".to_owned()),
        ("COPY k l REPLACE", "4a01016b016c".to_owned()),
        ("EXPIREAT k 2000 GT", "4b04016b0180841e0000000000".to_owned()),
        ("PERSIST k", "4c016b".to_owned()),
        ("FLUSHALL", "4d".to_owned()),
        ("SET k v IFEQ w", "40200001".to_owned() + "6b0176" + "000177"),
        ("SET k v IFDNE 0123456789abcdef", "40200001".to_owned() + "6b0176" + "03efcdab8967452301"),
        ("DELEX k", "4801016b".to_owned()),
        ("DELEX k IFNE v", "50016b010176".to_owned()),
        ("DELIFEQ k v", "50016b000176".to_owned()),
        (
            "EVALSHA 1cac51482acf5858da00f6d685d68f886cd6b6b2 1 k v 24",
            "51016b0176000158420f0000000000".to_owned(),
        ),
        (
            "EVALSHA a4e8783852e6b949f9ef3a97212805108459a890 1 k v 24 0",
            "51016b01760130".to_owned(),
        ),
        ("EVALSHA e4612211c9f8f51c257e26e056b0a654b3187242 2 k l v", "52017602016b016c".to_owned()),
        (
            "EVALSHA 96da70f7716f27d278a5218544df37fd8b0a5e4c 1 k v 24",
            "530101760158420f000000000001016b".to_owned(),
        ),
        (
            "EVALSHA 149c5a8bf18676fd99e9e6e24923bd64d9b62f94 1 k 24 h",
            "54016b01680158420f000000000040420f0000000000".to_owned(),
        ),
        (
            "EVALSHA 3ffe249c16dee540ac8ab32e39bd408626b9aff7 2 k c m 24 h",
            "55016b01680158420f000000000000010163016d".to_owned(),
        ),
        (
            "EVALSHA 73ac2729af29ea9a975f95e8097f7ee9a74cce3d 2 k l 0 h 24",
            "55016b0168020101 6c0158420f000000000000".replace(' ', ""),
        ),
        (
            "EVALSHA 8e19a1ddbdee9138df9f32a480c57addab4353d1 1 k 0 h",
            "560002".to_owned() + "02016b0168",
        ),
        (
            "EVALSHA 605e338249a7a1d40df83b04f7658354f883b41b 2 k c m publish",
            "57016b010163016d".to_owned(),
        ),
        ("PUBLISH c m", "580163016d".to_owned()),
    ];
    for (request, expected) in cases {
        let mut node = Node::memory();
        let client = node.connect();
        node.feed(client, format!("{request}\r\n").as_bytes());
        let Some(Asked::Write(_, None, command)) = node.world.asked.pop_back() else {
            panic!("{request} is a write");
        };
        assert_eq!(hex(&command), expected, "{request}");
        let common = [
            "SET", "SETNX", "GETDEL", "APPEND", "INCR", "DECRBY", "DEL", "EXPIREAT", "DELEX",
            "DELIFEQ",
        ];
        let key = first_key(&command).map(|(_, key)| key);
        let is_common = common.contains(&request.split(' ').next().unwrap());
        assert_eq!(key, is_common.then_some(&b"k"[..]), "{request}");
    }
    // A transaction with a watched key, a write, a read, and a literal reply.
    let mut node = Node::memory();
    let client = node.connect();
    for line in ["SET k v", "WATCH k", "MULTI", "SET k w", "GET k", "PING"] {
        node.say(client, line);
    }
    node.feed(client, b"EXEC\r\n");
    let Some(Asked::Write(_, None, command)) = node.world.asked.pop_back() else {
        panic!("EXEC is a write");
    };
    let watched = "01016b010000000000000000";
    let commands = "0307400000016b017703".to_owned() + "02016b09" + "01072b504f4e470d0a";
    assert_eq!(hex(&command), format!("4e{watched}{commands}"));
    // Housekeeping proposed by the leader, and its form in earlier versions.
    let mut node = Node::memory();
    let client = node.connect();
    node.say(client, "SET k v PX 24");
    node.world.wall_ms += 24;
    assert!(node.pass());
    let mut proposed = Vec::new();
    node.world.service.due(&mut |command| proposed.push(hex(command)));
    assert_eq!(proposed, ["598002"]);
    node.say(client, "SET k v PX 24");
    let expired = |ms: u64| {
        let mut command = vec![0x4f];
        command.extend_from_slice(&ms.to_le_bytes());
        command.extend_from_slice(b"\x01k");
        command
    };
    assert_eq!(node.world.apply(&expired(1_000_024)), b":0\r\n");
    assert_eq!(node.world.apply(&expired(1_000_048)), b":1\r\n");
}

/// The encoding of logged commands for collections never changes. Random choices are encoded as a
/// seed.
#[test]
fn encoded_commands_of_collections_stay_as_they_are() {
    let cases = [
        ("HSET k f v", "5a016b000201660176"),
        ("HMSET k f v", "5a016b010201660176"),
        ("HSETNX k f v", "5a016b020201660176"),
        ("HDEL k f g", "5b016b0201660167"),
        ("HINCRBY k f -3", "5c016b016605"),
        ("HINCRBYFLOAT k f 1.5", "5d016b016603312e35"),
        ("LPUSH k a b", "5e016b00000201610162"),
        ("RPUSHX k a", "5e016b0101010161"),
        ("LPOP k", "5f016b0000"),
        ("RPOP k 5", "5f016b010105"),
        ("LSET k -1 a", "60016b010161"),
        ("LTRIM k 1 -2", "61016b0203"),
        ("LREM k 2 a", "62016b040161"),
        ("LINSERT k AFTER p a", "63016b0101700161"),
        ("LMOVE k l LEFT RIGHT", "64016b016c0001"),
        ("RPOPLPUSH k l", "64016b016c0100"),
        ("LMPOP 2 k l RIGHT COUNT 3", "65010302016b016c"),
        ("SADD k a b", "66016b0201610162"),
        ("SREM k a", "67016b010161"),
        ("SMOVE k l a", "68016b016c0161"),
        ("SINTERSTORE k a b", "6a016b000201610162"),
        ("SUNIONSTORE k a", "6a016b01010161"),
        ("SDIFFSTORE k a", "6a016b02010161"),
        ("ZADD k GT CH 1.5 a", "6b016b1402083ff80000000000000161"),
        ("ZADD k NX 1 a", "6b016b0102083ff00000000000000161"),
        ("ZADD k XX LT 1 a", "6b016b0a02083ff00000000000000161"),
        ("ZINCRBY k -2 a", "6b016b200208c0000000000000000161"),
        ("ZREM k a", "6c016b010161"),
        ("ZREMRANGEBYRANK k 0 -1", "6d016b000001"),
        ("ZREMRANGEBYSCORE k (1 +inf", "6d016b0101083ff000000000000000087ff0000000000000"),
        ("ZREMRANGEBYLEX k [a (b", "6d016b02020161030162"),
        ("ZREMRANGEBYLEX k - +", "6d016b020001"),
        ("ZPOPMIN k", "6e016b0000"),
        ("ZPOPMAX k 2", "6e016b010102"),
        ("ZMPOP 1 k MAX COUNT 2", "6f010201016b"),
        ("ZRANGESTORE k l 1 2 REV", "70016b016c000204010001"),
        (
            "ZUNIONSTORE k 2 a b WEIGHTS 1 2 AGGREGATE MAX",
            "71016b000200040161083ff00000000000000162084000000000000000",
        ),
        ("ZINTERSTORE k 1 a", "71016b010000020161083ff0000000000000"),
        ("ZDIFFSTORE k 1 a", "71016b020000020161083ff0000000000000"),
        ("SETBIT k 9 1", "72016b0901"),
        ("BITOP AND k a b", "730003016b01610162"),
        ("BITOP NOT k a", "730302016b0161"),
        (
            "BITFIELD k OVERFLOW SAT SET i5 3 -1 INCRBY u8 #1 2 GET u8 0",
            "74016b031505030106080804040800",
        ),
    ];
    for (request, expected) in cases {
        let mut node = Node::memory();
        let client = node.connect();
        node.feed(client, format!("{request}\r\n").as_bytes());
        let Some(Asked::Write(_, None, command)) = node.world.asked.pop_back() else {
            panic!("{request} is a write");
        };
        assert_eq!(hex(&command), expected, "{request}");
        let several = ["LMPOP", "ZMPOP", "BITOP"].contains(&request.split(' ').next().unwrap());
        let key = first_key(&command).map(|(_, key)| key);
        assert_eq!(key, (!several).then_some(&b"k"[..]), "{request}");
    }
    for (request, head, tail) in [("SPOP k", "69016b", "00"), ("SPOP k 3", "69016b", "0103")] {
        let mut node = Node::memory();
        let client = node.connect();
        node.feed(client, format!("{request}\r\n").as_bytes());
        let Some(Asked::Write(_, None, command)) = node.world.asked.pop_back() else {
            panic!("{request} is a write");
        };
        let command = hex(&command);
        assert_eq!((&command[..6], &command[22..]), (head, tail), "{request}");
    }
}

/// The encoding of logged commands on streams never changes. Those that may be long have the prefix
/// of bounded commands.
#[test]
fn encoded_commands_of_streams_stay_as_they_are() {
    let id = |ms: u8, seq: u8| format!("{ms:016x}{seq:016x}");
    let (low, high) = (id(0, 0), "f".repeat(32));
    let cases = [
        ("XADD k 1-2 f v", format!("7f016b0002{}0201660176", id(1, 2))),
        ("XADD k * f v", "7f016b000040420f00000000000201660176".to_owned()),
        (
            "XADD k NOMKSTREAM MAXLEN ~ 5 7-* f v",
            "7d7f016b030505904e0107000000000000000201660176".to_owned(),
        ),
        ("XDEL k 1-2 3", format!("80016b02{}{}", id(1, 2), id(3, 0))),
        ("XTRIM k MINID = 1-2", format!("7d81016b02{}", id(1, 2))),
        ("XTRIM k MAXLEN ~ 5 LIMIT 0", "7d81016b050500".to_owned()),
        ("XSETID k 1-2 ENTRIESADDED 3", format!("82016b{}06{low}", id(1, 2))),
    ];
    for (request, expected) in cases {
        let mut node = Node::memory();
        node.world.level = Level(10);
        let client = node.connect();
        node.feed(client, format!("{request}\r\n").as_bytes());
        let Some(Asked::Write(_, None, command)) = node.world.asked.pop_back() else {
            panic!("{request} is a write");
        };
        assert_eq!(hex(&command), expected, "{request}");
    }
    let queries = [
        (
            "XREAD BLOCK 5 COUNT 2 STREAMS k l $ 1-2",
            format!("320600000000000000000302016b016c01{low}00{}", id(1, 2)),
        ),
        ("XRANGE k - + COUNT 3", format!("31016b00{low}{high}04")),
        ("XREVRANGE k + -", format!("31016b01{low}{high}00")),
        ("XINFO STREAM k", "3400016b".to_owned()),
        ("XINFO STREAM k FULL", "3401016b0a".to_owned()),
        ("XINFO GROUPS k", "3402016b".to_owned()),
        ("XINFO CONSUMERS k g", "3403016b40420f00000000000167".to_owned()),
        ("XLEN k", "18016b05".to_owned()),
    ];
    let mut node = Node::memory();
    node.world.level = Level(10);
    let client = node.connect();
    node.say(client, "MULTI");
    let mut expected = format!("7d4e00{:02x}", queries.len());
    for (request, query) in queries {
        assert_eq!(node.say(client, request), "+QUEUED|", "{request}");
        expected += &format!("{:02x}{query}", query.len() / 2);
    }
    node.feed(client, b"EXEC\r\n");
    let Some(Asked::Write(_, None, command)) = node.world.asked.pop_back() else {
        panic!("EXEC is a write");
    };
    assert_eq!(hex(&command), expected);
}

/// The encoding of the other commands of level 10 never changes.
#[test]
fn encoded_commands_of_level_10_stay_as_they_are() {
    let double = |number: f64| hex(&number.to_le_bytes());
    let (two, three) = (double(2.0), double(3.0));
    let cases = [
        ("PFADD k a b", "7d89016b0201610162".to_owned()),
        ("PFMERGE k l", "7d8a02016b016c".to_owned()),
        ("GEOADD k NX CH 2 3 m", "6b016b1102084328024d14aa659c016d".to_owned()),
        (
            "GEOSEARCHSTORE d k FROMMEMBER m BYBOX 2 3 m COUNT 4 ANY STOREDIST",
            format!("7d8b016403016b01016d01{two}{three}0000010004"),
        ),
        (
            "GEORADIUS k 2 3 2 ft DESC STORE d",
            format!("7d8b016400016b00{two}{three}00{}0202000000", double(0.6096)),
        ),
        ("HGETDEL k FIELDS 2 a b", "8c016b0201610162".to_owned()),
        ("FLUSHALL", "8f".to_owned()),
        ("FLUSHDB", "4d".to_owned()),
        ("SWAPDB 2 15", "7d90020f".to_owned()),
        ("MOVE k 3", "7d9103016b".to_owned()),
        ("COPY k l DB 3 REPLACE", "7d920103016b016c".to_owned()),
        ("COPY k l DB 0", "7d4a00016b016c".to_owned()),
    ];
    for (request, expected) in cases {
        let mut node = Node::memory();
        node.world.level = Level(10);
        let client = node.connect();
        node.feed(client, format!("{request}\r\n").as_bytes());
        let Some(Asked::Write(_, None, command)) = node.world.asked.pop_back() else {
            panic!("{request} is a write");
        };
        assert_eq!(hex(&command), expected, "{request}");
    }
    let queries = [
        ("PFCOUNT k l", "3602016b016c".to_owned()),
        ("GEOPOS k m", "37016b0001016d".to_owned()),
        ("GEOHASH k m", "37016b0101016d".to_owned()),
        ("GEODIST k a b mi", "38016b0301610162".to_owned()),
        (
            "GEORADIUS_RO k 2 3 2 m WITHDIST WITHHASH WITHCOORD COUNT 4",
            format!("39016b00{two}{three}00{two}0001000704"),
        ),
        ("LCS k l IDX WITHMATCHLEN MINMATCHLEN 5", "3a0305016b016c".to_owned()),
        ("HSCAN k 0 NOVALUES", "3b016b0100000000000000000a012a".to_owned()),
    ];
    let mut node = Node::memory();
    node.world.level = Level(10);
    let client = node.connect();
    node.say(client, "MULTI");
    let mut expected = format!("7d4e00{:02x}", queries.len());
    for (request, query) in queries {
        assert_eq!(node.say(client, request), "+QUEUED|", "{request}");
        expected += &format!("{:02x}{query}", query.len() / 2);
    }
    node.feed(client, b"EXEC\r\n");
    let Some(Asked::Write(_, None, command)) = node.world.asked.pop_back() else {
        panic!("EXEC is a write");
    };
    assert_eq!(hex(&command), expected);
}

/// The format of collections on disk never changes.
#[test]
fn stored_rows_stay_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kv");
    let (store, _) = LsmStore::open(&path).unwrap();
    let mut node = Node::new(World::new(Box::new(store)));
    node.world.slot = 0x0102;
    let client = node.connect();
    node.say(client, "HSET h f value");
    node.say(client, "RPUSH l a");
    node.say(client, "ZADD z 1.5 m");
    drop(node);
    let database = fjall::Database::builder(&path).open().unwrap();
    let keyspace = database.keyspace("kv", fjall::KeyspaceCreateOptions::default).unwrap();
    let entries: Vec<(String, String)> = keyspace
        .iter()
        .map(|guard| guard.into_inner().unwrap())
        .map(|(key, value)| (hex(&key), hex(&value)))
        .collect();
    let position = |key: &[u8]| hex(&Position::of(key).to_bytes());
    let generation = "000000000000";
    let id = |slot: &str| format!("000000000000{slot}0000000000000000");
    let number = |number: &str| format!("{number}00000000000000");
    let mut expected = vec![(
        "00".to_owned(),
        "01".to_owned() + "0501000000000000" + &number("03") + &number("00") + &number("00"),
    )];
    // The type is in the upper bits of the index.
    let keys = [
        (b"h", "02", "10", "01", "0c", "00"),
        (b"l", "03", "20", "01", "09", "80"),
        (b"z", "04", "40", "01", "10", "00"),
    ];
    for (key, slot, kind, count, bytes, first) in keys {
        let header = id(&format!("01{slot}")) + &number(count) + &number(bytes);
        let first = format!("00000000000000{first}");
        let none = "ffffffffffffffff";
        expected.push((
            format!("03{generation}{}{}", position(key), hex(key)),
            format!("{slot}01000000000000000000{kind}{none}{header}{first}"),
        ));
    }
    expected[1..].sort();
    let row = |slot: &str, name: String, value: &str| {
        let id = id(&format!("01{slot}"));
        (format!("04{generation}{id}{name}"), value.to_owned())
    };
    expected.extend([
        row("02", position(b"f") + "66", "76616c7565"),
        row("03", "8000000000000000".to_owned(), "61"),
        row("04", format!("00{}6d", position(b"m")), "3ff8000000000000"),
        row("04", "01bff80000000000006d".to_owned(), ""),
    ]);
    assert_eq!(entries, expected);
}

/// The format of entries on disk never changes.
#[test]
fn stored_entries_stay_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kv");
    let (mut store, _) = LsmStore::open(&path).unwrap();
    let version = Version { slot: 0x0102, index: 3 };
    store.put(b"key".into(), b"value", version, Some(0x0405));
    let meta = MetaChange { key: b"m".into(), value: Some(b"x".into()) };
    store.commit(Slot(7), &[meta]);
    drop(store);
    let database = fjall::Database::builder(&path).open().unwrap();
    let keyspace = database.keyspace("kv", fjall::KeyspaceCreateOptions::default).unwrap();
    let entries: Vec<String> = keyspace
        .iter()
        .map(|guard| guard.into_inner().unwrap())
        .map(|(key, value)| format!("{} {}", hex(&key), hex(&value)))
        .collect();
    let position = hex(&Position::of(b"key").to_bytes());
    let generation = "000000000000";
    let state = "010700000000000000010000000000000000000000000000000000000000000000";
    assert_eq!(
        entries,
        [
            format!("00 {state}"),
            format!("0002 {state}"),
            "016d 78".to_owned(),
            format!("02{generation}00000000000004056b6579 "),
            format!(
                "03{generation}{position}6b6579 \
                 020100000000000003000000050400000000000076616c7565"
            ),
        ]
    );
}

/// A cursor has the same meaning on every node and in every version.
#[test]
fn positions_stay_as_they_are() {
    assert_eq!(Position::of(b"").to_bytes(), [0x2d, 0x06, 0x80, 0x05, 0x38, 0xd3]);
    assert_eq!(Position::of(b"key:17547489").cursor(), 115_005_966_857_442);
}

/// Two keys with the same position are distinct. This pair was found by a long search.
#[test]
fn keys_at_one_position_are_told_apart() {
    let (one, two) = ("key:17547489", "key:19834244");
    assert_eq!(Position::of(one.as_bytes()), Position::of(two.as_bytes()));
    on_both_stores(|node| {
        let client = node.connect();
        node.say(client, &format!("SET {one} 1"));
        assert_eq!(node.say(client, &format!("EXISTS {two}")), ":0|");
        assert_eq!(node.say(client, &format!("DEL {two}")), ":0|");
        node.say(client, &format!("SET {two} 2 EX 10"));
        node.say(client, &format!("SET {one} 3 EX 10"));
        assert_eq!(node.say(client, &format!("MGET {one} {two}")), "*2|$1|3|$1|2|");
        assert_eq!(node.say(client, "DBSIZE"), ":2|");
        // Both keys are on one page, although the first one fills it.
        let page = node.say(client, "SCAN 0 COUNT 1");
        assert!(page.starts_with("*2|$1|0|*2|") && page.contains(one) && page.contains(two));
        node.world.wall_ms += 10_000;
        node.say(client, &format!("PERSIST {one}"));
        assert!(node.pass());
        assert_eq!(node.say(client, &format!("MGET {one} {two}")), "*2|$1|3|$-1|");
        assert_eq!(node.say(client, &format!("DEL {one}")), ":1|");
        assert_eq!(node.say(client, "DBSIZE"), ":0|");
    });
}

/// The encoding of logged commands on groups of streams never changes.
#[test]
fn encoded_commands_of_groups_stay_as_they_are() {
    let id = |ms: u8, seq: u8| format!("{ms:016x}{seq:016x}");
    let (low, high, unknown) = (id(0, 0), "f".repeat(32), "f".repeat(16));
    let clock = "40420f0000000000";
    let cases = [
        ("XGROUP CREATE k g $ MKSTREAM", format!("7d83016b01016701{low}{unknown}")),
        (
            "XGROUP CREATE k g 1-2 ENTRIESREAD 3",
            format!("7d83016b00016700{}0300000000000000", id(1, 2)),
        ),
        ("XGROUP SETID k g +", format!("7d83016b02016700{high}{unknown}")),
        ("XGROUP DESTROY k g", "7d83016b030167".to_owned()),
        ("XGROUP CREATECONSUMER k g c", format!("7d83016b0401670163{clock}")),
        ("XGROUP DELCONSUMER k g c", "7d83016b0501670163".to_owned()),
        (
            "XREADGROUP GROUP g c COUNT 2 NOACK STREAMS k l > 1-2",
            format!("7d840000000000000000{clock}01670163010302016b016c01{low}00{}", id(1, 2)),
        ),
        ("XACK k g 1-2", format!("85016b016701{}", id(1, 2))),
        (
            "XCLAIM k g c 5 1-2 IDLE 3 RETRYCOUNT 4 FORCE JUSTID LASTID 6",
            format!("7d86016b{clock}016701630501{}3b0604{}", id(1, 2), id(6, 0)),
        ),
        ("XCLAIM k g c 5 1-2 TIME 7", format!("7d86016b{clock}016701630501{}040e", id(1, 2))),
        (
            "XAUTOCLAIM k g c 5 (1-2 COUNT 3 JUSTID",
            format!("7d87016b{clock}0167016305{}0301", id(1, 3)),
        ),
    ];
    let asked = |node: &mut Node, client, request: &str| {
        node.feed(client, format!("{request}\r\n").as_bytes());
        let Some(Asked::Write(_, None, command)) = node.world.asked.pop_back() else {
            panic!("{request} is a write");
        };
        command
    };
    for (request, expected) in cases {
        let mut node = Node::memory();
        node.world.level = Level(10);
        let client = node.connect();
        let command = asked(&mut node, client, request);
        assert_eq!(hex(&command), expected, "{request}");
    }
    for (request, query) in [
        ("XPENDING k g", format!("33016b0167{clock}00")),
        ("XPENDING k g IDLE 5 - + 3 c", format!("33016b0167{clock}020503{low}{high}0163")),
    ] {
        let mut node = Node::memory();
        node.world.level = Level(10);
        let client = node.connect();
        node.say(client, "MULTI");
        assert_eq!(node.say(client, request), "+QUEUED|");
        let command = asked(&mut node, client, "EXEC");
        let expected = format!("7d4e0001{:02x}{query}", query.len() / 2);
        assert_eq!(hex(&command), expected, "{request}");
    }
}

/// The prefix of a command on another database never changes, nor does the form of a transaction
/// that watches keys there.
#[test]
fn encoded_commands_on_other_databases_stay_as_they_are() {
    let mut node = Node::memory();
    node.world.level = Level(10);
    let client = node.connect();
    node.say(client, "SELECT 11");
    for (request, expected) in [
        ("SET k v", "8d0b400000016b0176"),
        ("FLUSHDB", "8d0b4d"),
        ("FLUSHALL", "8f"),
        ("PUBLISH c m", "580163016d"),
        ("LPOP k 2", "7d8d0b5f016b000102"),
        ("MOVE k 0", "7d8d0b9100016b"),
        ("COPY k l DB 11", "7d8d0b4a00016b016c"),
    ] {
        node.feed(client, format!("{request}\r\n").as_bytes());
        let Some(Asked::Write(_, None, command)) = node.world.asked.pop_back() else {
            panic!("{request} is a write");
        };
        assert_eq!(hex(&command), expected, "{request}");
        assert_eq!(first_key(&command).is_some(), request == "SET k v", "{request}");
    }
    let mut node = Node::memory();
    node.world.level = Level(10);
    let client = node.connect();
    for line in
        ["SET k v", "WATCH k", "SELECT 11", "WATCH k", "MULTI", "GET k", "SELECT 0", "GET k"]
    {
        node.say(client, line);
    }
    node.feed(client, b"EXEC\r\n");
    let Some(Asked::Write(_, None, command)) = node.world.asked.pop_back() else {
        panic!("EXEC is a write");
    };
    let seen = format!("00016b01{}00", "0".repeat(14));
    let absent = format!("0b016b{}ffffffff8f8080808001", "0".repeat(16));
    let commands = "03058d0b02016b".to_owned() + "0701052b4f4b0d0a" + "0302016b";
    assert_eq!(hex(&command), format!("7d8e02{seen}{absent}{commands}"));
}
