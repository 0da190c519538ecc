//! Hostile streams of events: the corpus of the fuzz target `devices`, and mutations of it.

mod devices;

use crate::driver;

#[test]
fn no_events_of_a_stream_part_the_devices() {
    driver::run("devices", &devices::seeds(), 8_000, devices::check);
}
