//! Files of real servers, files of the writer, and damaged files.

use std::fmt::Write as _;

use super::{
    read::{FileSummary, read_file},
    types::{Element, Key, Kind, Pending, RdbVisitor, ReadError, StreamState},
    write::RdbWriter,
};
use crate::output::Problem;

/// Written by Redis 6.2.14 and 7.0.15 with the same commands, the second with a library of
/// functions.
const V9: &[u8] = include_bytes!("../../testdata/rdb/v9.rdb");
const V10: &[u8] = include_bytes!("../../testdata/rdb/v10.rdb");

/// Contents of a file as text, one line per key.
#[derive(Default)]
struct Told {
    lines: Vec<String>,
    functions: usize,
    modules: Vec<String>,
}

fn text(bytes: &[u8]) -> String {
    let text: String = bytes.iter().map(|&byte| char::from(byte)).collect();
    if text.len() > 40 { format!("{}…{}", &text[..8], text.len()) } else { text }
}

impl RdbVisitor for Told {
    fn key(&mut self, key: &Key, _: u64) -> Result<(), Problem> {
        let expires = key.expires_ms.map(|ms| format!(" @{ms}")).unwrap_or_default();
        let (name, kind) = (text(&key.name), &key.kind);
        self.lines.push(format!("{} {name}{expires} {kind}:", key.database));
        Ok(())
    }

    fn visit_element(&mut self, element: Element<'_>) -> Result<(), Problem> {
        let line = self.lines.last_mut().unwrap();
        let _ = match element {
            Element::Value(bytes) | Element::Item(bytes) | Element::Member(bytes) => {
                write!(line, " {}", text(bytes))
            }
            Element::Scored(member, score) => write!(line, " {}={score}", text(member)),
            Element::Field(field, value, None) => write!(line, " {}={}", text(field), text(value)),
            Element::Field(field, value, Some(ms)) => {
                write!(line, " {}={}@{ms}", text(field), text(value))
            }
            Element::Entry(id, fields) => {
                let fields: Vec<String> = fields.iter().map(|part| text(part)).collect();
                write!(line, " {id}({})", fields.join(","))
            }
            Element::State(StreamState { length, last_id: last, counters }) => {
                let counters = counters.map(|(id, added)| format!(",{id},{added}"));
                write!(line, " [{length},{last}{}]", counters.unwrap_or_default())
            }
            Element::Group(name, last, read) => write!(line, " {}:{last},{read:?}", text(name)),
            Element::Consumer(name) => write!(line, " {}", text(name)),
            Element::Pending(Pending { id, deliveries, .. }) => write!(line, "+{id}×{deliveries}"),
        };
        Ok(())
    }

    fn end_key(&mut self) -> Result<(), Problem> {
        Ok(())
    }

    fn visit_function(&mut self, _: &[u8]) {
        self.functions += 1;
    }

    fn visit_module_data(&mut self, module: &str) {
        self.modules.push(module.to_owned());
    }
}

fn told(bytes: &[u8]) -> Result<(Told, FileSummary), ReadError> {
    let mut told = Told::default();
    let summary = read_file(bytes, &mut told)?;
    told.lines.sort();
    Ok((told, summary))
}

/// Returns the line of a key.
fn line<'a>(told: &'a Told, name: &str) -> &'a str {
    told.lines.iter().find(|line| line.split(' ').nth(1) == Some(name)).unwrap()
}

#[test]
fn files_of_servers_are_read_whole() {
    for (bytes, version) in [(V9, 9), (V10, 10)] {
        let (told, summary) = told(bytes).unwrap();
        assert_eq!(summary, FileSummary { version, bytes: bytes.len() as u64, has_checksum: true });
        assert_eq!(told.lines.len(), 22);
        assert_eq!(line(&told, "other"), "3 other string: 1");
        assert_eq!(line(&told, "s:text"), "0 s:text string: hello world");
        assert_eq!(line(&told, "s:int16"), "0 s:int16 string: -1234");
        assert_eq!(line(&told, "s:int64"), "0 s:int64 string: 12345678901234");
        assert_eq!(line(&told, "s:lzf"), "0 s:lzf string: abcdabcd…800");
        assert_eq!(line(&told, "s:ttl"), "0 s:ttl @4102444800000 string: soon");
        let items = "a -1 4095 4096 70000 -9000000 3000000000 9223372036854775807 xxxxxxxx…100";
        assert_eq!(line(&told, "l:small"), format!("0 l:small list: {items}"));
        assert_eq!(line(&told, "l:large").split(' ').count(), 33);
        assert_eq!(line(&told, "set:int32"), "0 set:int32 set: -5 1 70000");
        assert_eq!(line(&told, "set:int64"), "0 set:int64 set: 1 5000000000");
        assert_eq!(line(&told, "set:large").split(' ').count(), 603);
        assert_eq!(line(&told, "h:small"), "0 h:small @4102444800000 hash: f1=v1 f2=2 f3=");
        assert_eq!(line(&told, "h:large").split(' ').count(), 603);
        let small = "0 z:small sorted set: c=-inf a=1 b=2.5 d=1";
        assert_eq!(line(&told, "z:small").split("000").next(), Some(small));
        let large = line(&told, "z:large");
        assert!(large.contains(" bottom=-inf") && large.contains(" m7=7.25"), "{large}");
        let entries = "0 x stream: 1-1(a,1,b,2) 2-0(c,5) 3-0(a,6,b,7) [3,3-0";
        let stream = line(&told, "x");
        assert!(stream.starts_with(entries) && stream.ends_with(" ann+2-0×1 bob"), "{stream}");
        assert_eq!(stream.contains("[3,3-0,1-2,4] g:2-0"), version == 10);
        assert!(line(&told, "x:empty").starts_with("0 x:empty stream: [0,0-0"));
    }
    assert_eq!(told(V10).unwrap().0.functions, 1);
}

/// Returns a file of `version` with `body` between the header and the end.
fn file(version: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("REDIS{version:04}").into_bytes();
    bytes.extend_from_slice(body);
    // A checksum of 0 stands for none.
    bytes.extend_from_slice(b"\xff\0\0\0\0\0\0\0\0");
    bytes
}

/// Bytes by hand, after `rdb.c` of Redis 7.4 and 6.0.
#[test]
fn types_that_no_golden_file_has_are_read() {
    let moment = 4_102_444_800_000_u64.to_le_bytes();
    let listpack = b"\x0f\0\0\0\x03\0\x81f\x02\x81v\x02\0\x01\xff";
    let cases: [(&[u8], &str); 8] = [
        (b"\x18\x01hM\x02\x01\x01f\x01v\0\x01g\x01w", "0 h hash: f=v@4102444800000 g=w"),
        (b"\x19\x01hM\x0fL", "0 h hash: f=v"),
        (b"\x14\x01s\x0c\x0c\0\0\0\x02\0\x81a\x02\x05\x01\xff", "0 s set: a 5"),
        (b"\x03\x01z\x03\x01a\xfe\x01b\xff\x01c\x031.5", "0 z sorted set: a=inf b=-inf c=1.5"),
        (b"\x09\x01h\x07\x01\x01a\x01\0b\xff", "0 h hash: a=b"),
        (b"\xfd\x01\0\0\0\x00\x01k\xc0\xff", "0 k @1000 string: -1"),
        (b"\x12\x01l\x01\x01\x03big", "0 l list: big"),
        (
            b"\x07\x01m\x81\x00\x10\x83\x10\x51\x87\x20\x01\x02\x05\x05\x02ab\x00",
            "0 m module ABCDEFGHI:",
        ),
    ];
    for (body, expected) in cases {
        let mut bytes = Vec::new();
        for &byte in body {
            match byte {
                b'M' => bytes.extend_from_slice(&moment),
                b'L' => bytes.extend_from_slice(listpack),
                _ => bytes.push(byte),
            }
        }
        let told = told(&file(12, &bytes)).unwrap_or_else(|error| panic!("{expected}: {error:?}"));
        assert_eq!(told.0.lines, [expected]);
    }
}

#[test]
fn unknown_and_damaged_files_are_refused() {
    assert!(matches!(told(b"PK\x03\x04"), Err(ReadError::NotRdb)));
    assert!(matches!(told(&file(13, b"")), Err(ReadError::UnknownVersion(text)) if text == "0013"));
    let unknown = told(&file(12, b"\x16\x01h"));
    assert!(matches!(unknown, Err(ReadError::UnknownCode(9, "a type", 22))));
    let mut flipped = V10.to_vec();
    // A letter of a value.
    let at = flipped.windows(5).position(|word| word == b"hello").unwrap();
    flipped[at] = b'j';
    assert!(matches!(told(&flipped), Err(ReadError::WrongChecksum)));
    for cut in (0..V9.len()).step_by(7) {
        assert!(told(&V9[..cut]).is_err(), "{cut}");
    }
}

/// Random damage never panics, and a length beyond the file takes no memory.
#[test]
fn damage_is_survived() {
    let mut seed = 7_u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % below
    };
    for _ in 0..400 {
        let mut bytes = [V9, V10][random(2)].to_vec();
        for _ in 0..=random(4) {
            let at = random(bytes.len());
            bytes[at] = u8::try_from(random(256)).unwrap();
        }
        let _ = told(&bytes);
    }
    for body in [
        &b"\x00\x01k\x80\x1f\xff\xff\xff"[..],
        b"\x00\x01k\x81\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x02\x01k\x81\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x00\x01k\xc3\x01\x80\x1f\xff\xff\xff\0",
    ] {
        assert!(matches!(told(&file(11, body)), Err(ReadError::Malformed(..))));
    }
}

#[test]
fn a_written_file_is_read_back() {
    let mut writer = RdbWriter::start(Vec::new()).unwrap();
    let long = vec![b'x'; 20_000];
    writer.key(b"s", &Kind::String, Some(9)).unwrap();
    writer.write_string(&long).unwrap();
    writer.key(b"z", &Kind::SortedSet, None).unwrap();
    writer.write_length(1).unwrap();
    writer.write_string(b"m").unwrap();
    writer.write_score(-0.1).unwrap();
    writer.key(b"l", &Kind::List, None).unwrap();
    writer.write_length(70_000).unwrap();
    for _ in 0..70_000 {
        writer.write_string(b"").unwrap();
    }
    let (bytes, count) = writer.finish().unwrap();
    let (told, summary) = told(&bytes).unwrap();
    assert_eq!(summary, FileSummary { version: 9, bytes: count, has_checksum: true });
    let list = format!("0 l list:{}", " ".repeat(70_000));
    let expected = [&list, "0 s @9 string: xxxxxxxx…20000", "0 z sorted set: m=-0.1"];
    assert_eq!(told.lines, expected);
}
