//! `quorate bench wan`: measures the capacity of the links of an emulated network.

use super::session::Session;
use crate::{
    emulated::Emulated,
    figure::round,
    probe::Ceiling,
    problem::Problem,
    report::Document,
    wan::{Measured, Profile},
};

/// Creates the network and measures its links with bare programs. [`super::network::enter`] must
/// have been called.
pub fn run(profile: Profile, document: &mut Document) -> Result<(), Problem> {
    let session = Session::over(Some(Emulated::Wan(profile)))?;
    if let Some(network) = session.network() {
        document.ceilings.extend(ceilings(network.measure_links()?));
        document.notes.push(network.note());
    }
    if let Some(counts) = session.network().and_then(|network| network.counts()) {
        document.notes.push(format!(
            "the relay took {} packets of {} bytes and dropped {}",
            counts.packets, counts.bytes, counts.dropped
        ));
    }
    Ok(())
}

/// Converts the measured link to ceilings for a report.
pub fn ceilings(link: Measured) -> [Ceiling; 2] {
    let ceiling = |name: &str, value: f64, unit: &str, p50_us| Ceiling {
        name: name.to_owned(),
        value: round(value),
        unit: unit.to_owned(),
        p50_us,
        p99_us: None,
        cpu_us_per_op: None,
    };
    let trip = link.round_trip_us;
    [
        ceiling("emulated link: 64 B there and back over TCP", 1e6 / trip, "/s", Some(round(trip))),
        ceiling(
            "emulated link: bytes that one TCP connection carries",
            link.bytes_per_s * 8e-6,
            "Mbit/s",
            None,
        ),
    ]
}
