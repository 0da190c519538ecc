//! Resource usage of idle nodes, and the latency at one of them. Neither may grow during a soak.

use std::{
    fmt, io, thread,
    time::{Duration, Instant},
};

use quorate_bench::{figure::median, samples::Latencies};
use quorate_testbed::{etcd, nodes::NodeCluster, resp::RespConnection};
use serde::Serialize;

use crate::nodes::NodeResources;

/// Idle time, in which background cleanup completes.
const IDLE_TIME: Duration = Duration::from_secs(3);
/// Number of sequential writes whose latency is measured.
const LATENCY_WRITES: usize = 200;
/// Minimum number of samples from which growth can be evaluated.
const SAMPLES_MIN: usize = 8;

/// Resource usage as the maximum over all nodes, and the latency at one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Sample {
    /// Resident memory, in MiB.
    pub(super) memory_mib: f64,
    pub(super) descriptors: f64,
    /// Disk space of the folder, in MiB.
    pub(super) folder_mib: f64,
    /// Median latency of one client's writes, in milliseconds.
    pub(super) p50_ms: f64,
    /// 99th percentile of the latency, in milliseconds.
    pub(super) p99_ms: f64,
}

/// Selects one figure.
type SelectFigure = fn(&Sample) -> f64;

/// Figures that are drawn and evaluated. Each has a name, a value, and the increase that does not
/// count as growth.
pub(super) const FIGURES: [(&str, SelectFigure, f64); 5] = [
    ("memory, MiB", |one| one.memory_mib, 64.0),
    ("descriptors", |one| one.descriptors, 16.0),
    ("folder, MiB", |one| one.folder_mib, 96.0),
    ("p50 of a write, ms", |one| one.p50_ms, 5.0),
    ("p99 of a write, ms", |one| one.p99_ms, 50.0),
];

impl Sample {
    /// Measures the nodes while no clients are connected.
    pub(super) fn measure(nodes: &NodeCluster) -> io::Result<Self> {
        thread::sleep(IDLE_TIME);
        let mut sample = Self::default();
        let held = NodeResources::measure_maximum(nodes)?;
        sample.memory_mib = to_mib(held.memory_bytes);
        sample.descriptors = f64::from(u32::try_from(held.descriptors).unwrap_or(u32::MAX));
        sample.folder_mib = to_mib(held.folder_bytes);
        let times = measure_latencies(nodes)?;
        sample.p50_ms = times.quantile_us(0.5) / 1e3;
        sample.p99_ms = times.quantile_us(0.99) / 1e3;
        Ok(sample)
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0} MiB of memory, {} descriptors, {:.0} MiB of disk, p50 {:.2} ms, p99 {:.2} ms",
            self.memory_mib, self.descriptors, self.folder_mib, self.p50_ms, self.p99_ms
        )
    }
}

/// Describes the figures that are considerably higher in the last quarter than in the second one.
/// The first quarter is a warm-up.
pub(super) fn growing_figures(samples: &[Sample]) -> Vec<String> {
    if samples.len() < SAMPLES_MIN {
        return Vec::new();
    }
    let quarter = samples.len() / 4;
    let (early, late) = (&samples[quarter..2 * quarter], &samples[samples.len() - quarter..]);
    let of = |(name, figure, slack): &(&str, SelectFigure, f64)| {
        let middle = |samples: &[Sample]| median(samples.iter().map(figure));
        let (before, after) = (middle(early), middle(late));
        (after > before * 1.25 && after > before + slack)
            .then(|| format!("{name} from {before:.1} to {after:.1}"))
    };
    FIGURES.iter().filter_map(of).collect()
}

/// Measures latencies at the first node, which need not lead.
fn measure_latencies(nodes: &NodeCluster) -> io::Result<Latencies> {
    let addresses = nodes.client_addresses();
    let address = addresses.first().map_or("", String::as_str);
    let mut link = match nodes.uses_etcd() {
        true => None,
        false => Some(RespConnection::connect(address)?),
    };
    let mut times = Latencies::default();
    for _ in 0..LATENCY_WRITES {
        let began = Instant::now();
        match &mut link {
            Some(link) => link.run_command(&["SET", "at rest", "x"]).map(drop)?,
            None => etcd::put(address, "at rest", "x")?,
        }
        times.record(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(times)
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn to_mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(memory_mib: impl Fn(u32) -> f64) -> Vec<Sample> {
        let sample =
            |at| Sample { memory_mib: memory_mib(at), descriptors: 30.0, ..Sample::default() };
        (0..16).map(sample).collect()
    }

    #[test]
    fn steady_growth_is_reported_but_not_warm_up() {
        assert_eq!(growing_figures(&with(|at| 100.0 + f64::from(at.min(4)) * 50.0)), [""; 0]);
        let leak = growing_figures(&with(|at| 100.0 + f64::from(at) * 20.0));
        assert_eq!(leak, ["memory, MiB from 210.0 to 370.0"]);
        assert!(growing_figures(&with(f64::from)[..7]).is_empty());
    }
}
