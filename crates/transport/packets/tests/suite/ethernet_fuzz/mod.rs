//! Hostile frames, and hostile descriptors in a receive ring: the corpus of the fuzz target
//! `ethernet`, and mutations of it.

mod slots;

use crate::driver::{self, Seed};

#[test]
fn no_frame_of_a_segment_breaks_a_reader() {
    let seeds: Vec<Seed> = slots::seeds(&crate::ethernet_samples::samples());
    driver::run("ethernet", &seeds, 200_000, slots::check);
}
