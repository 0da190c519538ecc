//! Hostile datagrams: the corpora of the fuzz targets `datagrams`, `reassembly` and `reach`, and
//! mutations of them.

mod datagrams;
mod reach;
mod reassembly;

use crate::driver::{self, Seed};
use quorate_packets::socket::reach::datagram;

fn golden() -> Vec<Seed> {
    let named = crate::samples::samples().into_iter().zip(0..);
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
    driver::run("reassembly", &reassembly::seeds(), 20_000, reassembly::check);
}

#[test]
fn no_bytes_of_a_group_break_its_counts() {
    let seed = |(name, bytes): (&str, Vec<u8>)| Seed { name: name.to_owned(), bytes };
    let some = |senders: u32| (0..senders).flat_map(|sender| datagram(7, sender, sender % 3));
    let seeds = [
        ("one", some(1).collect()),
        ("some", some(5).collect()),
        ("more-than-are-kept", some(80).collect()),
        ("last", datagram(7, u32::MAX, 999).to_vec()),
    ];
    driver::run("reach", &seeds.map(seed), 50_000, reach::check);
}
