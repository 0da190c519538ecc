//! Hostile datagrams: the corpora of the fuzz targets `datagrams` and `reassembly`, and mutations of them.

#[path = "../samples/mod.rs"]
mod samples;

mod datagrams;
mod reassembly;

use quorate_fuzz_driver::{self as driver, Seed};

/// The golden ones.
fn golden() -> Vec<Seed> {
    let named = samples::samples().into_iter().zip(0..);
    let seed = |((name, bytes), number): ((&str, Vec<u8>), usize)| Seed {
        name: format!("{number:02}-{name}"),
        bytes,
    };
    named.map(seed).collect()
}

#[test]
fn no_bytes_of_a_network_break_the_gate() {
    driver::run("datagrams", &golden(), 100_000, datagrams::check);
}

#[test]
fn no_parts_of_a_sender_break_reassembly() {
    driver::run(
        "reassembly",
        &reassembly::seeds(),
        20_000,
        reassembly::check,
    );
}
