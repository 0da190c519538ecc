//! Bytes of released levels: they never change, and this release reads them and writes them again ([level-2]).

use std::{fs, path::PathBuf};

use quorate_core::level::Level;
use quorate_wire::{
    BODY_BYTES_MAX, Decoded, checksum, decode, encode,
    levels::level_of,
    value::{VALUE_BYTES, value_from_bytes, value_to_bytes},
};

/// Each level that was released, its files, and what they sum up to. A line is added here when a level is released; no line
/// is ever changed: nodes in the field have these bytes in their logs, and send them.
const FROZEN: [(u16, &str, u32); 2] = [
    (8, "frames.txt", 0x95d2_4055),
    (8, "values.txt", 0x457a_9d89),
];

fn text(level: u16, file: &str) -> String {
    let vectors = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("vectors");
    fs::read_to_string(vectors.join(level.to_string()).join(file)).unwrap()
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = (0..hex.len() / 2).map(|at| &hex[at * 2..at * 2 + 2]);
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect()
}

#[test]
fn vectors_of_released_levels_are_as_they_were() {
    for (level, file, sum) in FROZEN {
        let now = checksum(text(level, file).as_bytes());
        assert_eq!(
            now, sum,
            "vectors/{level}/{file} was changed: what was released stays; a new layout needs a new level"
        );
    }
}

/// [level-2] And a node of that level could read them.
#[test]
fn frames_of_released_levels_are_read_and_written_as_ever() {
    let mut frames = 0;
    for block in text(8, "frames.txt").split("\n\n") {
        let fields = block
            .lines()
            .filter(|line| line.as_bytes().get(4).is_some_and(u8::is_ascii_digit));
        let joined: String = fields
            .filter_map(|line| line.split_whitespace().nth(2))
            .collect();
        let released = bytes(&joined);
        let Ok(Decoded::Frame { from, frame, used }) = decode(&released, BODY_BYTES_MAX) else {
            panic!("{block}");
        };
        assert_eq!(used, released.len());
        assert!(level_of(&frame) <= Level(8), "{block}");
        let mut again = Vec::new();
        encode(from, &frame, &mut again).unwrap();
        assert_eq!(again, released, "{block}");
        frames += 1;
    }
    assert_eq!(frames, 72);
}

#[test]
fn values_of_released_levels_are_read_and_written_as_ever() {
    let mut values = 0;
    for line in text(8, "values.txt").lines() {
        let (hex, says) = line.split_once("  ").unwrap();
        let released: [u8; VALUE_BYTES] = bytes(hex).try_into().unwrap();
        let value = value_from_bytes(&released).unwrap();
        assert_eq!(format!("{value:?}"), says);
        assert!(Level::of(&value) <= Level(8), "{line}");
        assert_eq!(value_to_bytes(&value), released);
        values += 1;
    }
    assert_eq!(values, 12);
}
