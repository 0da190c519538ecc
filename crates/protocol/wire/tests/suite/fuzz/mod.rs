//! Hostile frames: the corpus of the fuzz target `wire`, and mutations of it.
//!
//! The seeds are the golden frames of `vectors/frames.txt`.

mod check;

use crate::driver::{self, Seed};

/// Returns the golden frames, which are the concatenated hex fields of the file.
fn golden() -> Vec<Seed> {
    let text = include_str!("../../../vectors/frames.txt");
    let blocks = (0..).zip(text.split("\n\n"));
    let seed = |(number, block): (usize, &str)| {
        let fields =
            block.lines().filter(|line| line.as_bytes().get(4).is_some_and(u8::is_ascii_digit));
        let hex: String = fields.filter_map(|line| line.split_whitespace().nth(2)).collect();
        let pairs = hex.as_bytes().chunks(2);
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        Seed {
            name: format!("{number:02}-{}", block.lines().next().unwrap_or_default()),
            bytes: pairs.map(|pair| byte(pair).expect("hex")).collect(),
        }
    };
    blocks.map(seed).collect()
}

#[test]
fn no_bytes_of_a_peer_break_the_decoder() {
    let seeds = golden();
    assert_eq!(seeds.len(), 84);
    driver::run("wire", &seeds, 100_000, check::check);
}
