//! Golden bytes, on which decoders in all languages must agree.
//!
//! `REWRITE=1 cargo test -p quorate-wire` rewrites them, and the difference is the review. A
//! changed line means a changed format, which needs a new format version.

use std::{fmt::Write as _, fs, path::PathBuf};

use crate::common::{KINDS, Random, bytes_of};
use quorate_core::value::Value;
use quorate_wire::{BODY_BYTES_MAX, Decoded, Frame, decode, header::FIELDS};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("vectors").join(name)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

/// Returns the kind of the frame, which is the first word of its debug output.
fn name(frame: &Frame<'_>) -> String {
    let text = match frame {
        Frame::Protocol { message, .. } => format!("{message:?}"),
        other => format!("{other:?}"),
    };
    text.split(|c: char| !c.is_alphanumeric()).next().expect("split yields one").to_lowercase()
}

/// Describes a frame in one block: name, contents, header field by field, and body.
fn describe(seed: u64, kind: u64) -> String {
    let mut random = Random::new(0x5eed_0000 + (seed << 8) + kind);
    let payload: &[u8] = b"SET key value";
    let (from, mut frame) = random.frame(kind, payload);
    // One frame of each pair always has bytes.
    if let (1, Frame::FetchReply { value, bytes }) = (seed, &mut frame) {
        *value = random.batch(payload);
        *bytes = Some(payload);
    }
    if let (1, Frame::Forward { value, bytes }) = (seed, &mut frame) {
        *value = random.batch(payload);
        *bytes = payload;
    }
    let bytes = bytes_of(from, &frame);
    let mut text = format!("{}\n  from {from:?}\n  says {frame:?}\n", name(&frame));
    for (field, offset, length) in FIELDS {
        let part = hex(&bytes[offset..offset + length]);
        writeln!(text, "  {offset:>3} {field:<18} {part}").expect("a string takes everything");
    }
    writeln!(text, "  160 {:<18} {}", "body", hex(&bytes[160..])).expect("as above");
    text
}

fn check(file: &str, actual: &str) {
    if std::env::var_os("REWRITE").is_some() {
        fs::write(path(file), actual).unwrap();
    }
    let expected = fs::read_to_string(path(file)).unwrap();
    assert!(expected == actual, "{file} differs; REWRITE=1 writes it again\n{actual}");
}

#[test]
fn frames_have_their_golden_bytes() {
    let blocks = (0..KINDS).flat_map(|kind| [describe(0, kind), describe(1, kind)]);
    check("frames.txt", &blocks.collect::<Vec<_>>().join("\n"));
}

/// The golden vectors can be read without this crate's generator: the concatenated hex is the
/// frame.
#[test]
fn golden_bytes_decode_to_what_they_say() {
    let text = fs::read_to_string(path("frames.txt")).unwrap();
    let mut frames = 0;
    for block in text.split("\n\n") {
        let says = block.lines().find_map(|line| line.strip_prefix("  says ")).unwrap();
        let fields =
            block.lines().filter(|line| line.as_bytes().get(4).is_some_and(u8::is_ascii_digit));
        let joined: String = fields.filter_map(|line| line.split_whitespace().nth(2)).collect();
        let bytes: Vec<u8> = (0..joined.len() / 2)
            .map(|at| u8::from_str_radix(&joined[at * 2..at * 2 + 2], 16).unwrap())
            .collect();
        let Ok(Decoded::Frame { frame, used_bytes: used, .. }) = decode(&bytes, BODY_BYTES_MAX)
        else {
            panic!("{block}");
        };
        assert_eq!((format!("{frame:?}").as_str(), used), (says, bytes.len()));
        frames += 1;
    }
    assert_eq!(frames, 2 * KINDS);
}

/// The vectors cover every kind of value of [value-1].
#[test]
fn values_have_their_golden_bytes() {
    let mut seen: Vec<(String, Value)> = Vec::new();
    let mut random = Random::new(0x5eed);
    while seen.len() < 13 {
        let (_, Frame::FetchRequest { value, .. }) = random.frame(7, b"SET key value") else {
            unreachable!("kind 7 is a fetch request");
        };
        let name = match value {
            Value::Reconfigure { change, .. } => format!("Reconfigure {change:?}"),
            other => format!("{other:?}"),
        };
        let name: String = name.chars().take_while(|c| c.is_alphanumeric() || *c == ' ').collect();
        if !seen.iter().any(|(other, _)| *other == name) {
            seen.push((name, value));
        }
    }
    seen.sort_by_key(|(name, _)| name.clone());
    let lines = seen.iter().map(|(_, value)| {
        format!("{}  {value:?}\n", hex(&quorate_wire::value::value_to_bytes(value)))
    });
    check("values.txt", &lines.collect::<String>());
}

/// The table in the specification matches the one in the code.
#[test]
fn the_spec_shows_the_header_as_it_is() {
    let spec = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../docs/spec/wire.md");
    let spec = fs::read_to_string(spec).unwrap();
    for (field, offset, length) in FIELDS {
        let row = format!("| {offset} | {length} | `{field}` |");
        assert!(spec.contains(&row), "docs/spec/wire.md lacks the row {row}");
    }
}
