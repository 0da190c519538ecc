//! Hostile frames, and hostile words of a ring: the corpus of the fuzz target `ethernet`, and mutations of it.

#[path = "../samples/mod.rs"]
mod samples;

mod slots;

use quorate_fuzz_driver::{self as driver, Seed};

#[test]
fn no_frame_of_a_segment_breaks_a_reader() {
    let seeds: Vec<Seed> = slots::seeds(&samples::samples());
    driver::run("ethernet", &seeds, 200_000, slots::check);
}
