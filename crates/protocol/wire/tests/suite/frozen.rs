//! Frames of released levels never change. This release decodes them, and encodes them to the same
//! bytes ([level-2]).

use std::{fs, path::PathBuf};

use quorate_core::level::Level;
use quorate_wire::{
    BODY_BYTES_MAX, Decoded, checksum, decode, encode,
    levels::level_of,
    value::{VALUE_BYTES, value_from_bytes, value_to_bytes},
};

/// Test vectors that were released with a level.
struct Released {
    level: u16,
    /// Checksum and number of the released frames.
    frames: (u32, usize),
    /// Checksum and number of the released values.
    values: (u32, usize),
}

/// Released levels. Add an entry for each new level, and never change an existing one, because
/// nodes in the field have these bytes in their logs and send them.
const RELEASED: [Released; 2] = [
    Released { level: 8, frames: (0x95d2_4055, 72), values: (0x457a_9d89, 12) },
    Released { level: 9, frames: (0x93a9_b760, 75), values: (0x0ef6_a4a6, 13) },
];

fn text(level: u16, file: &str) -> String {
    let vectors = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("vectors");
    fs::read_to_string(vectors.join(level.to_string()).join(file)).unwrap()
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = (0..hex.len() / 2).map(|at| &hex[at * 2..at * 2 + 2]);
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

#[test]
fn vectors_of_released_levels_are_as_they_were() {
    for Released { level, frames, values } in RELEASED {
        for (file, (sum, _)) in [("frames.txt", frames), ("values.txt", values)] {
            let now = checksum(text(level, file).as_bytes());
            assert_eq!(
                now, sum,
                "vectors/{level}/{file} was changed ({now:#x}): what was released stays; a new layout needs a new level"
            );
        }
    }
}

/// [level-2] Released frames decode, re-encode to the same bytes, and need no higher level than
/// their own.
#[test]
fn frames_of_released_levels_are_read_and_written_as_ever() {
    for Released { level, frames, .. } in RELEASED {
        let mut known = 0;
        for block in text(level, "frames.txt").split("\n\n") {
            let fields =
                block.lines().filter(|line| line.as_bytes().get(4).is_some_and(u8::is_ascii_digit));
            let joined: String = fields.filter_map(|line| line.split_whitespace().nth(2)).collect();
            let released = bytes(&joined);
            let decoded = decode(&released, BODY_BYTES_MAX);
            let Ok(Decoded::Frame { from, frame, used_bytes: used }) = decoded else {
                panic!("{block}\n{decoded:?}");
            };
            assert_eq!(used, released.len());
            assert!(level_of(&frame) <= Level(level), "{block}");
            let mut again = Vec::new();
            encode(from, &frame, &mut again).unwrap();
            assert_eq!(again, released, "{block}");
            known += 1;
        }
        assert_eq!(known, frames.1);
    }
}

#[test]
fn values_of_released_levels_are_read_and_written_as_ever() {
    for Released { level, values, .. } in RELEASED {
        let mut known = 0;
        for line in text(level, "values.txt").lines() {
            let (hex, says) = line.split_once("  ").unwrap();
            let released: [u8; VALUE_BYTES] = bytes(hex).try_into().unwrap();
            let value = value_from_bytes(&released).unwrap();
            assert_eq!(format!("{value:?}"), says);
            assert!(Level::of(&value) <= Level(level), "{line}");
            assert_eq!(value_to_bytes(&value), released);
            known += 1;
        }
        assert_eq!(known, values.1);
    }
}
