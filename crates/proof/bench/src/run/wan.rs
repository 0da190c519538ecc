//! `quorate bench wan`: measures the capacity of the links of an emulated network.

use super::session::NodeSession;
use crate::{
    emulated::EmulatedNetwork,
    figure::round_to_four_digits,
    probe::MeasuredCeiling,
    problem::Problem,
    report::BenchReport,
    wan::{LinkProfile, MeasuredLink},
};

/// Creates the network and measures its links with bare programs.
/// [`super::network::enter_namespaces`] must have been called.
pub fn run(profile: LinkProfile, document: &mut BenchReport) -> Result<(), Problem> {
    let session = NodeSession::on_network(Some(EmulatedNetwork::Wan(profile)))?;
    if let Some(network) = session.network() {
        document.ceilings.extend(link_ceilings(network.measure_links()?));
        document.notes.push(network.describe());
    }
    if let Some(counts) = session.network().and_then(|network| network.counts()) {
        document.notes.push(format!(
            "the relay took {} packets of {} bytes and dropped {}",
            counts.packet_count, counts.bytes, counts.dropped_count
        ));
    }
    Ok(())
}

/// Converts the measured link to ceilings for a report.
pub fn link_ceilings(link: MeasuredLink) -> [MeasuredCeiling; 2] {
    let ceiling = |name: &str, value: f64, unit: &str, p50_us| MeasuredCeiling {
        name: name.to_owned(),
        value: round_to_four_digits(value),
        unit: unit.to_owned(),
        p50_us,
        p99_us: None,
        cpu_us_per_op: None,
    };
    let trip = link.round_trip_us;
    [
        ceiling(
            "emulated link: 64 B there and back over TCP",
            1e6 / trip,
            "/s",
            Some(round_to_four_digits(trip)),
        ),
        ceiling(
            "emulated link: bytes that one TCP connection carries",
            link.bytes_per_s * 8e-6,
            "Mbit/s",
            None,
        ),
    ]
}
