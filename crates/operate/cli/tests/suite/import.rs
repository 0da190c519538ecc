//! Imports of RDB files into a running cluster, killed ones included, and exports.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::{self, JoinHandle},
};

use quorate_client::{Client, Reply};
use serde_json::Value as Json;

use crate::common::{Cluster, program, quorate_json, wait_for};

/// Returns a file that Redis 7.0.15 wrote; `rdb/tests.rs` lists its contents.
fn golden() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/rdb/v10.rdb").to_owned()
}

fn start() -> (Cluster, Client, String) {
    let cluster = Cluster::start(1, &["--store", "memory"]);
    let mut client = cluster.client_of(1);
    wait_for("the level of streams", || client.read(&[b"XLEN", b"x"]).ok());
    let address = cluster.clients().swap_remove(0);
    (cluster, client, address)
}

fn text(client: &mut Client, words: &str) -> String {
    let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
    client.read(&words).unwrap().to_string()
}

fn import(file: &str, address: &str, flags: &[&str]) -> (i32, Json) {
    let arguments = ["import", file, "--client", address, "--json"];
    quorate_json(&[&arguments, flags].concat())
}

#[test]
fn a_file_is_imported_once_and_with_its_expiries() {
    let (_cluster, mut client, address) = start();
    let (code, report) = import(&golden(), &address, &["--dry-run"]);
    assert_eq!((code, &report["keys"]["string"]), (1, &8.into()), "{report}");
    assert_eq!(report["unsupported"]["database 3"]["examples"][0], "other");
    assert_eq!(report["written"], Json::Null);
    let (code, refused) = import(&golden(), &address, &[]);
    assert_eq!((code, &refused["error"]["code"]), (1, &"unsupported".into()), "{refused}");
    assert_eq!(text(&mut client, "DBSIZE"), "0");

    let rest = "--skip-unsupported";
    let (code, report) = import(&golden(), &address, &[rest]);
    assert_eq!((code, &report["written"]["keys"]), (0, &21.into()), "{report}");
    for (words, expected) in [
        ("GET s:int64", "12345678901234"),
        ("PEXPIRETIME s:ttl", "4102444800000"),
        ("PEXPIRETIME h:small", "4102444800000"),
        ("PEXPIRETIME l:small", "-1"),
        ("LRANGE l:small 0 2", "a -1 4095"),
        ("LLEN l:large", "30"),
        ("SCARD set:large", "600"),
        ("HGET h:large f600", "v600"),
        ("ZSCORE z:large m7", "7.25"),
        ("ZRANGE z:large 0 0", "bottom"),
        ("XRANGE x 2 2", "2-0 c 5"),
        ("XPENDING x g", "1 2-0 2-0 ann 1"),
        ("XLEN x:empty", "0"),
        ("DBSIZE", "21"),
    ] {
        assert_eq!(text(&mut client, words), expected, "{words}");
    }

    let digest = |client: &mut Client| text(client, "QUORATE DIGEST");
    client.run(&[b"SET", b"s:text", b"changed"]).unwrap();
    let before = digest(&mut client);
    let (code, refused) = import(&golden(), &address, &[rest]);
    assert_eq!((code, &refused["error"]["code"]), (1, &"exists".into()), "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("21 keys: "), "{refused}");
    assert_eq!(digest(&mut client), before);
    let (code, report) = import(&golden(), &address, &[rest, "--existing", "skip"]);
    assert_eq!((code, &report["written"]["existed"]), (0, &21.into()), "{report}");
    assert_eq!(text(&mut client, "GET s:text"), "changed");
    let (code, report) = import(&golden(), &address, &[rest, "--existing", "replace"]);
    assert_eq!((code, &report["written"]["keys"]), (0, &21.into()), "{report}");
    assert_eq!(text(&mut client, "GET s:text"), "hello world");
    assert_eq!(text(&mut client, "DBSIZE"), "21");
    assert_eq!(text(&mut client, "LLEN l:small"), "9");
}

const LISTS: usize = 20;
const ITEMS: usize = 30_000;

/// Writes a file of large lists and many strings.
fn large(folder: &Path) -> PathBuf {
    let mut bytes = b"REDIS0011".to_vec();
    for list in 0..LISTS {
        bytes.extend_from_slice(format!("\u{1}\u{5}l:{list:03}").as_bytes());
        bytes.push(0x80);
        bytes.extend_from_slice(&u32::try_from(ITEMS).unwrap().to_be_bytes());
        for item in 0..ITEMS {
            bytes.extend_from_slice(format!("\u{10}{item:016}").as_bytes());
        }
        for string in 0..500 {
            bytes.extend_from_slice(format!("\0\u{9}s:{list:03}:{string:03}\u{1}v").as_bytes());
        }
    }
    bytes.extend_from_slice(b"\xff\0\0\0\0\0\0\0\0");
    let file = folder.join("large.rdb");
    fs::write(&file, bytes).unwrap();
    file
}

fn spawn(file: &Path, address: &str) -> Child {
    let mut command = Command::new(program());
    command.args(["import", file.to_str().unwrap(), "--client", address, "--existing", "skip"]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn number(client: &mut Client, words: &[&[u8]]) -> usize {
    match client.read(words) {
        Ok(Reply::Integer(number)) => usize::try_from(number).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Checks that each list is there whole or not at all. Returns the number of lists.
fn whole_lists(client: &mut Client) -> usize {
    let length = |list| number(client, &[b"LLEN", format!("l:{list:03}").as_bytes()]);
    let lengths: Vec<usize> = (0..LISTS).map(length).collect();
    assert!(lengths.iter().all(|length| [0, ITEMS].contains(length)), "{lengths:?}");
    lengths.iter().filter(|length| **length > 0).count()
}

#[test]
fn a_killed_import_leaves_whole_keys_and_continues() {
    let (cluster, mut client, address) = start();
    let file = large(cluster.nodes.data_folder());
    for lists in [3, 9] {
        let mut killed = spawn(&file, &address);
        let until = format!("l:{lists:03}").into_bytes();
        wait_for("a list", || (number(&mut client, &[b"EXISTS", &until]) == 1).then_some(()));
        killed.kill().unwrap();
        killed.wait().unwrap();
        let whole = whole_lists(&mut client);
        assert!(whole > lists);
        // A fast machine may finish before the second kill.
        assert!(whole < LISTS || lists > 3, "the import was too fast to be killed");
    }
    let (code, report) = import(file.to_str().unwrap(), &address, &["--existing", "skip"]);
    assert_eq!(code, 0, "{report}");
    assert_eq!(whole_lists(&mut client), LISTS);
    let ends: [&[u8]; 4] = [b"LRANGE", b"l:004", b"29999", b"-1"];
    assert_eq!(client.read(&ends).unwrap().to_string(), format!("{:016}", ITEMS - 1));
    // Besides the keys of the file, a killed import leaves a key that expires.
    let keys = number(&mut client, &[b"DBSIZE"]);
    assert!((LISTS * 501..=LISTS * 501 + 2).contains(&keys), "{keys}");
    drop(cluster);
}

/// An export of database 0 is refused while another one has keys, unless it may leave them out.
fn check_other_databases(export: &[&str], address: &str) {
    let kv = |words: &[&str]| {
        let flags = ["kv", "--client", address, "--database", "3", "--json"];
        let (code, report) = quorate_json(&[&flags, words].concat());
        assert_eq!(code, 0, "{report}");
        report["reply"].clone()
    };
    kv(&["SET", "s:text", "of database 3"]);
    assert_eq!(kv(&["DBSIZE"]), 1);
    let (code, refused) = quorate_json(export);
    assert_eq!((code, &refused["error"]["code"]), (1, &"unsupported".into()), "{refused}");
    let text = refused["error"]["message"].as_str().unwrap();
    assert!(text.contains("1 key of database 3"), "{text}");
    let (code, report) = quorate_json(&[export, &["--skip-unsupported"]].concat());
    assert_eq!((code, &report["other_databases"]["db3"]), (0, &1.into()), "{report}");
    kv(&["FLUSHDB"]);
    let (code, report) = quorate_json(export);
    assert_eq!(code, 0, "{report}");
}

#[test]
fn an_export_holds_what_was_imported() {
    let (cluster, mut client, address) = start();
    let (code, report) = import(&golden(), &address, &["--skip-unsupported"]);
    assert_eq!(code, 0, "{report}");
    for member in 0..2500 {
        let score = format!("{member}.125");
        let member = format!("m{member}");
        client.run(&[b"ZADD", b"z:pages", score.as_bytes(), member.as_bytes()]).unwrap();
    }
    let file = cluster.nodes.data_folder().join("out.rdb");
    let file = file.to_str().unwrap();
    let export = ["export", "--rdb", file, "--client", &address, "--json"];
    let (code, refused) = quorate_json(&export);
    assert_eq!((code, &refused["error"]["code"]), (1, &"unsupported".into()), "{refused}");
    assert!(!Path::new(file).exists() && !Path::new(&format!("{file}.part")).exists());
    let streams: [&[u8]; 3] = [b"DEL", b"x", b"x:empty"];
    client.run(&streams).unwrap();
    let (code, report) = quorate_json(&export);
    assert_eq!((code, &report["keys"]["sorted set"]), (0, &3.into()), "{report}");
    check_other_databases(&export, &address);

    let (_second, mut copy, second) = start();
    let (code, report) = import(file, &second, &[]);
    assert_eq!((code, &report["written"]["keys"]), (0, &20.into()), "{report}");
    assert_eq!(report["checksum"], true);
    for words in [
        "GET s:lzf",
        "PEXPIRETIME s:ttl",
        "LRANGE l:small 0 -1",
        "SMEMBERS set:large",
        "HGETALL h:large",
        "PEXPIRETIME h:small",
        "ZRANGE z:large 0 -1 WITHSCORES",
        "ZRANGE z:pages 0 -1 WITHSCORES",
    ] {
        assert_eq!(text(&mut copy, words), text(&mut client, words), "{words}");
    }
    // A page of a thousand such items is larger than a reply.
    let item = vec![b'i'; 400 << 10];
    for _ in 0..90 {
        client.run(&[b"RPUSH", b"l:wide", &item]).unwrap();
    }
    let (code, report) = quorate_json(&export);
    assert_eq!((code, &report["keys"]["list"]), (0, &3.into()), "{report}");
    let (code, report) = import(file, &second, &["--existing", "replace"]);
    assert_eq!((code, &report["written"]["keys"]), (0, &21.into()), "{report}");
    assert_eq!(text(&mut copy, "LLEN l:wide"), "90");
    let fields = "HPEXPIRE h:small 900000 FIELDS 1 f1";
    let fields: Vec<&[u8]> = fields.split(' ').map(str::as_bytes).collect();
    client.run(&fields).unwrap();
    let (code, refused) = quorate_json(&export);
    assert_eq!((code, &refused["error"]["code"]), (1, &"unsupported".into()), "{refused}");
}

#[test]
fn a_file_that_cannot_be_read_is_refused_before_the_first_write() {
    let (cluster, mut client, address) = start();
    let file = cluster.nodes.data_folder().join("bad.rdb");
    let mut bytes = fs::read(golden()).unwrap();
    let at = bytes.windows(5).position(|word| word == b"hello").unwrap();
    bytes[at] = b'j';
    for (bytes, expected) in [
        (&bytes[..], "checksum is wrong"),
        (b"REDIS0011\x00", "damaged at byte 10: the file ends early"),
        (b"REDIS0099\xff", "RDB version 0099; versions up to 12"),
        (b"SQLite", "is not an RDB file"),
    ] {
        fs::write(&file, bytes).unwrap();
        let flags = ["--skip-unsupported", "--existing", "replace"];
        let (code, refused) = import(file.to_str().unwrap(), &address, &flags);
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(code == 1 && message.contains(expected), "{message}");
    }
    assert_eq!(text(&mut client, "DBSIZE"), "0");
    let nowhere = ["import", &golden(), "--client", "127.0.0.1:1", "--dry-run", "--json"];
    let (_, report) = quorate_json(&nowhere);
    assert!(report["existing"].is_null() && report["cluster"].is_string(), "{report}");
}

/// Returns a file with a string and a stream without entries, whose last added id is 5-0 and which
/// has these groups.
fn stream_file(folder: &Path, groups: &[&[u8]]) -> PathBuf {
    let mut bytes = b"REDIS0009\0\x06before\x01v\x0f\x01x\0\0\x05\0".to_vec();
    bytes.push(u8::try_from(groups.len()).unwrap());
    for group in groups {
        put(&mut bytes, group);
        bytes.extend_from_slice(b"\x05\0\0\0");
    }
    bytes.extend_from_slice(b"\xff\0\0\0\0\0\0\0\0");
    let file = folder.join("stream.rdb");
    fs::write(&file, bytes).unwrap();
    file
}

#[test]
fn a_key_with_a_failed_command_does_not_appear() {
    let (cluster, mut client, address) = start();
    let folder = cluster.nodes.data_folder();
    let long = vec![b'g'; 65_473];
    let file = stream_file(folder, &[&long]);
    let (code, refused) = import(file.to_str().unwrap(), &address, &[]);
    assert_eq!((code, &refused["error"]["code"]), (1, &"unsupported".into()), "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("group"), "{refused}");
    // Only the cluster notices that a group comes twice.
    let file = stream_file(folder, &[b"g", b"g"]);
    for existing in ["refuse", "replace"] {
        let flags = ["--existing", existing];
        let (code, refused) = import(file.to_str().unwrap(), &address, &flags);
        assert_eq!((code, &refused["error"]["code"]), (1, &"refused".into()), "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains("key x"), "{refused}");
        assert_eq!(text(&mut client, "EXISTS x"), "0");
        assert_eq!(text(&mut client, "GETDEL before"), "v");
    }
    let file = stream_file(folder, &[b"g", b"h"]);
    let (code, report) = import(file.to_str().unwrap(), &address, &[]);
    assert_eq!((code, &report["written"]["keys"]), (0, &2.into()), "{report}");
    assert_eq!(text(&mut client, "XLEN x"), "0");
}

/// Adds a string with its length.
fn put(bytes: &mut Vec<u8>, string: &[u8]) {
    bytes.push(0x80);
    bytes.extend_from_slice(&u32::try_from(string.len()).unwrap().to_be_bytes());
    bytes.extend_from_slice(string);
}

#[test]
fn chunks_fit_into_the_commands_of_the_nodes() {
    let cluster = Cluster::start(1, &["--store", "memory", "--command-max", "65536"]);
    let mut client = cluster.client_of(1);
    client.run(&[b"SET", b"first", b"1"]).unwrap();
    let mut bytes = b"REDIS0009\x01\x04list\x80\0\0\x17\x70".to_vec();
    for _ in 0..5999 {
        put(&mut bytes, b"a small item");
    }
    put(&mut bytes, &[b'x'; 62 << 10]);
    for name in 0..300 {
        bytes.push(0);
        put(&mut bytes, format!("{name:0400}").as_bytes());
        put(&mut bytes, b"value");
    }
    bytes.extend_from_slice(b"\xff\0\0\0\0\0\0\0\0");
    let file = cluster.nodes.data_folder().join("chunks.rdb");
    fs::write(&file, bytes).unwrap();
    let address = cluster.clients().swap_remove(0);
    let (code, report) = import(file.to_str().unwrap(), &address, &[]);
    assert_eq!((code, &report["written"]["keys"]), (0, &301.into()), "{report}");
    assert_eq!(text(&mut client, "LLEN list"), "6000");
}

#[test]
fn a_large_stream_keeps_its_pending_entries() {
    let (cluster, mut client, address) = start();
    let (entries, pending) = (4_u64, 2000_u64);
    let mut bytes = b"REDIS0009\x0f\x01x\x04".to_vec();
    for ms in 1..=entries {
        // One entry, its master entry with one field, then flags, both differences, and a value.
        let mut pack = b"\x01\x01\0\x01\x01\x01\x81f\x02\0\x01\x02\x01\0\x01\0\x01\xf0".to_vec();
        let value = vec![b'v'; 3 << 20];
        pack.extend_from_slice(&u32::try_from(value.len()).unwrap().to_le_bytes());
        pack.extend_from_slice(&value);
        pack.extend_from_slice(b"\0\0\0\0\x04\x01\xff");
        let length = u32::try_from(pack.len() + 6).unwrap();
        let head = [&length.to_le_bytes()[..], b"\x0a\0"].concat();
        put(&mut bytes, &[ms.to_be_bytes(), [0; 8]].concat());
        put(&mut bytes, &[head, pack].concat());
    }
    // Its length, its last id and one group, whose entries below the first one were deleted.
    bytes.extend_from_slice(b"\x04\x04\0\x01\x01g\x04\0\x80");
    let count = u32::try_from(pending).unwrap().to_be_bytes();
    bytes.extend_from_slice(&count);
    let ids = || (1..=entries).chain((entries + 1)..=pending);
    for ms in ids() {
        bytes.extend_from_slice(&[ms.to_be_bytes(), [0; 8], ms.to_le_bytes()].concat());
        bytes.push(1);
    }
    bytes.extend_from_slice(b"\x01\x01c\0\0\0\0\0\0\0\0\x80");
    bytes.extend_from_slice(&count);
    ids().for_each(|ms| bytes.extend_from_slice(&[ms.to_be_bytes(), [0; 8]].concat()));
    bytes.extend_from_slice(b"\xff\0\0\0\0\0\0\0\0");
    let file = cluster.nodes.data_folder().join("pending.rdb");
    fs::write(&file, bytes).unwrap();
    let (code, report) = import(file.to_str().unwrap(), &address, &[]);
    assert_eq!((code, &report["written"]["keys"]), (0, &1.into()), "{report}");
    assert_eq!(report["written"]["deliveries_dropped"], pending - entries, "{report}");
    assert_eq!(text(&mut client, "XPENDING x g"), "4 1-0 4-0 c 4");
}

/// Plays a server with one replica: sends `payload` as the full copy, and checks that the replica
/// disconnects.
fn play(payload: Vec<u8>) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://ann:s%40e@{}", listener.local_addr().unwrap());
    let serve = move || {
        let mut stream = listener.accept().unwrap().0;
        let mut input = BufReader::new(stream.try_clone().unwrap());
        let mut words = || {
            let mut line = || {
                let mut line = String::new();
                input.read_line(&mut line).unwrap();
                line.trim_end().to_owned()
            };
            let count: usize = line()[1..].parse().unwrap();
            let words: Vec<String> = (0..count).map(|_| (line(), line()).1).collect();
            words.join(" ")
        };
        for (expected, reply) in [
            ("AUTH ann s@e", "+OK\r\n"),
            ("PING", "+PONG\r\n"),
            ("REPLCONF listening-port ", "+OK\r\n"),
            ("REPLCONF capa eof capa psync2", "+OK\r\n"),
            ("PSYNC ? -1", "+FULLRESYNC 0123456789012345678901234567890123456789 1000\r\n\n"),
        ] {
            let found = words();
            assert!(found.starts_with(expected), "{found}");
            stream.write_all(reply.as_bytes()).unwrap();
        }
        stream.write_all(&payload).unwrap();
        let mut rest = Vec::new();
        input.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"");
    };
    (url, thread::spawn(serve))
}

#[test]
fn a_server_is_copied_once() {
    let (_cluster, mut client, address) = start();
    let file = fs::read(golden()).unwrap();
    let counted = [format!("${}\r\n", file.len()).as_bytes(), &file].concat();
    let mark = "m".repeat(40);
    let marked = [format!("$EOF:{mark}\r\n").as_bytes(), &file, mark.as_bytes()].concat();
    for (existing, payload) in [("refuse", counted), ("replace", marked)] {
        let (url, server) = play(payload);
        let (code, report) =
            import(&url, &address, &["--skip-unsupported", "--existing", existing]);
        assert_eq!((code, &report["written"]["keys"]), (0, &21.into()), "{report}");
        assert!(report["note"].as_str().unwrap().contains("are not included"), "{report}");
        assert!(!report.to_string().contains("s@e"), "{report}");
        assert_eq!(text(&mut client, "GET s:int8"), "7");
        server.join().unwrap();
    }
}
