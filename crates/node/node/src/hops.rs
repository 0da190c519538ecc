//! Trace points of a node ([`quorate_replica::hops`]), stamped with the machine's clock, and the
//! file in which they are saved.

use std::{fs, io, path::Path};

use quorate_log::disk::DiskError;
use quorate_replica::{HopRing, hops::Stamp};
use rustix::time::{ClockId, clock_gettime};

use crate::home::Home;

/// Name of the file in a stopped node's folder that stores its stamps, if stamping was enabled.
const HOPS_FILE: &str = "hops";

/// Returns an empty ring whose clock is shared by all processes of the machine.
pub fn new_hop_ring() -> HopRing {
    HopRing::new(monotonic_ns)
}

/// Returns the time of the machine's monotonic clock, in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(time.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(time.tv_nsec))
}

/// Saves the stamps in the node's folder.
pub(crate) fn save_stamps(hops: &HopRing, home: &mut impl Home) -> Result<(), DiskError> {
    home.replace(HOPS_FILE, hops.text().as_bytes())
}

/// Reads the stamps saved in a node's folder, ordered by time.
pub fn read_saved_stamps(folder: &Path) -> io::Result<Vec<Stamp>> {
    let text = fs::read_to_string(folder.join(HOPS_FILE))?;
    let mut stamps: Vec<Stamp> = text.lines().filter_map(Stamp::parse).collect();
    stamps.sort_by_key(|stamp| stamp.at_ns);
    Ok(stamps)
}
