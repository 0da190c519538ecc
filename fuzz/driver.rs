//! Fuzz driver: runs a check over its corpus and over mutations of it, with any compiler and
//! without a fuzzer.
//!
//! Not a crate: each test program that needs it includes it as a module. `cargo test` runs a fixed
//! number of mutations, the same ones each time. With `QUORATE_FUZZ_SECONDS` set, it runs for that
//! many seconds with a new seed. A failing input is saved in `fuzz/artifacts`; add it to the corpus
//! once the fault is fixed.

use std::{
    env, fs,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use quorate_core::dice::Dice;

/// Longest input generated.
const BYTES_MAX: usize = 16 << 10;
/// Numbers at the limits of lengths and counters.
const EDGES: [u64; 12] = [
    0,
    1,
    2,
    0x7f,
    0xff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 32,
    1 << 62,
    u64::MAX - 1,
    u64::MAX,
];

/// A handmade input from which mutations start.
pub(crate) struct Seed {
    /// Name of the file, without `seed-`.
    pub(crate) name: String,
    /// The input itself.
    pub(crate) bytes: Vec<u8>,
}

/// Runs `check` over all files of the corpus and over `mutations` of them.
///
/// The caller generates the seeds with production code, and the corpus must match what that code
/// writes today. `REWRITE=1` writes them again.
#[allow(
    clippy::disallowed_methods,
    reason = "how long to go on is asked of the clock; code under test has none"
)]
pub(crate) fn run(target: &str, seeds: &[Seed], mutations: u64, check: fn(&[u8])) {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz");
    let corpus = fuzz.join("corpus").join(target);
    compare(&corpus, seeds);
    let inputs = read(&corpus);
    assert!(inputs.len() >= seeds.len() && !inputs.is_empty());
    let artifacts = fuzz.join("artifacts").join(target);
    for bytes in &inputs {
        survive(bytes, check, &artifacts);
    }
    let seconds = env::var("QUORATE_FUZZ_SECONDS").ok();
    let seconds = seconds.map(|text| text.parse().expect("QUORATE_FUZZ_SECONDS is a number"));
    match seconds {
        None => mutate_all(&inputs, 0..mutations, check, &artifacts),
        Some(seconds) => {
            let began = Instant::now();
            let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let first = epoch.map_or(1, |since| since.as_secs()) << 32;
            let mut next = first;
            while began.elapsed() < Duration::from_secs(seconds) {
                mutate_all(&inputs, next..next + 1000, check, &artifacts);
                next += 1000;
            }
            eprintln!("{target}: {} mutations of {} inputs", next - first, inputs.len());
        }
    }
}

fn mutate_all(inputs: &[Vec<u8>], seeds: std::ops::Range<u64>, check: fn(&[u8]), artifacts: &Path) {
    for seed in seeds {
        survive(&mutated(inputs, seed), check, artifacts);
    }
}

/// Runs `check`, and saves the input before the test fails.
fn survive(bytes: &[u8], check: fn(&[u8]), artifacts: &Path) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(bytes))) else {
        return;
    };
    let name = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let file = artifacts.join(format!("failed-{name:016x}"));
    if fs::create_dir_all(artifacts).is_ok() && fs::write(&file, bytes).is_ok() {
        eprintln!("the input is in {}", file.display());
    } else {
        eprintln!("the input is {}", bytes.escape_ascii());
    }
    resume_unwind(panic);
}

fn compare(corpus: &Path, seeds: &[Seed]) {
    for seed in seeds {
        let file = corpus.join(format!("seed-{}", seed.name));
        if env::var_os("REWRITE").is_some() {
            fs::create_dir_all(corpus).expect("a folder for the corpus");
            fs::write(&file, &seed.bytes).expect("a seed is written");
        }
        let held = fs::read(&file).unwrap_or_default();
        let name = file.display();
        assert!(
            held == seed.bytes,
            "{name} is not what is written today; REWRITE=1 makes it again"
        );
    }
}

fn read(corpus: &Path) -> Vec<Vec<u8>> {
    let mut files: Vec<PathBuf> = fs::read_dir(corpus)
        .expect("a corpus")
        .map(|entry| entry.expect("a file").path())
        .collect();
    files.sort();
    let read = |file: &PathBuf| fs::read(file).expect("a file of the corpus");
    files.iter().map(read).collect()
}

/// Returns an index below `bound`, or 0 if `bound` is 0.
fn below(dice: &mut Dice, bound: usize) -> usize {
    dice.index(bound.max(1))
}

fn mutated(inputs: &[Vec<u8>], seed: u64) -> Vec<u8> {
    let mut dice = Dice::new(seed);
    let mut bytes = inputs[below(&mut dice, inputs.len())].clone();
    // Usually one change: texts rarely survive two.
    for _ in 0..=below(&mut dice, 5) * below(&mut dice, 2) {
        let other = &inputs[below(&mut dice, inputs.len())];
        mutate(&mut bytes, other, &mut dice);
    }
    bytes.truncate(BYTES_MAX);
    bytes
}

fn mutate(bytes: &mut Vec<u8>, other: &[u8], dice: &mut Dice) {
    let at = below(dice, bytes.len());
    let length = below(dice, 1 + (bytes.len() - at).min(64));
    match below(dice, 8) {
        0 if !bytes.is_empty() => bytes[at] ^= 1 << below(dice, 8),
        1 if !bytes.is_empty() => bytes[at] = dice.word().to_le_bytes()[0],
        2 => {
            let edge = EDGES[below(dice, EDGES.len())].to_le_bytes();
            let width = (1 << below(dice, 4)).min(bytes.len() - at);
            bytes[at..at + width].copy_from_slice(&edge[..width]);
        }
        3 => bytes.truncate(at),
        4 => drop(bytes.drain(at..at + length)),
        5 => {
            let copy = bytes[at..at + length].to_vec();
            let to = below(dice, bytes.len() + 1);
            bytes.splice(to..to, copy);
        }
        6 => {
            let from = below(dice, other.len());
            let tail = &other[from..];
            let length = below(dice, tail.len() + 1);
            bytes.splice(at..at, tail[..length].iter().copied());
        }
        // Writes a number as text.
        _ => {
            let edge = EDGES[below(dice, EDGES.len())].to_string();
            let replaced = length.min(below(dice, 3));
            bytes.splice(at..at + replaced, edge.into_bytes());
        }
    }
}
