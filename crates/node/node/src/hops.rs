//! The stamps of a node ([`quorate_replica::hops`]) by the clock of its machine, and the file that
//! they are left in.

use std::{fs, io, path::Path};

use quorate_log::disk::DiskError;
use quorate_replica::{Hops, hops::Stamp};
use rustix::time::{ClockId, clock_gettime};

use crate::home::Home;

/// File with the stamps in the folder of a stopped node, if stamping was enabled.
const FILE: &str = "hops";

/// Returns an empty ring, stamped by a clock that is common to all processes of a machine.
pub fn ring() -> Hops {
    Hops::new(monotonic_ns)
}

/// Returns the time of that clock, in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(time.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(time.tv_nsec))
}

/// Leaves them in the folder.
pub(crate) fn leave(hops: &Hops, home: &mut impl Home) -> Result<(), DiskError> {
    home.replace(FILE, hops.text().as_bytes())
}

/// Reads the stamps that a node left in its folder, in order of time.
pub fn left_in(folder: &Path) -> io::Result<Vec<Stamp>> {
    let text = fs::read_to_string(folder.join(FILE))?;
    let mut stamps: Vec<Stamp> = text.lines().filter_map(Stamp::parse).collect();
    stamps.sort_by_key(|stamp| stamp.at_ns);
    Ok(stamps)
}
