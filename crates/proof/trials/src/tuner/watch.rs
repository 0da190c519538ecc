//! Resource usage under load: memory of the nodes, CPU time of the nodes and the generator.

use std::{fs, path::Path, time::Instant};

use quorate_testbed::usage::ResourceUsage;
use serde_json::{Value, json};

use crate::{bench::to_float, nodes::process_memory};

/// Resource usage at a point in time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct UsageSample {
    /// Seconds since the first sample.
    pub(super) since_start_s: f64,
    /// Resident memory of each node, in MiB.
    pub(super) rss_mib: Vec<f64>,
    /// CPU time of all nodes so far, in seconds.
    pub(super) nodes_cpu_s: f64,
    /// CPU time of the generator so far, in seconds.
    pub(super) generator_cpu_s: f64,
    /// Time in which the generator's threads were runnable without a CPU, in seconds.
    pub(super) generator_waited_s: f64,
}

/// Samples of the resource usage.
#[derive(Clone, Debug)]
pub(super) struct UsageWatch {
    started_at: Instant,
    node_processes: Vec<u32>,
    generator_process: u32,
    pub(super) samples: Vec<UsageSample>,
}

impl UsageWatch {
    pub(super) fn new(nodes: Vec<u32>, generator: u32) -> Self {
        Self {
            started_at: Instant::now(),
            node_processes: nodes,
            generator_process: generator,
            samples: Vec::new(),
        }
    }

    /// Adds a sample, unless the generator has exited.
    pub(super) fn add_sample(&mut self) {
        let (Some(generator), Some(waited_s)) = (
            ResourceUsage::of_process(self.generator_process),
            process_waited_s(self.generator_process),
        ) else {
            return;
        };
        self.samples.push(UsageSample {
            since_start_s: self.started_at.elapsed().as_secs_f64(),
            rss_mib: self.node_processes.iter().map(|node| process_rss_mib(*node)).collect(),
            nodes_cpu_s: ResourceUsage::of_processes(&self.node_processes).cpu_s(),
            generator_cpu_s: generator.cpu_s(),
            generator_waited_s: waited_s,
        });
    }

    /// Returns the usage per second between two times.
    pub(super) fn cpu_shares_between(&self, from_s: f64, to_s: f64) -> CpuShares {
        let inside = || {
            let points = self.samples.iter();
            points.filter(|point| (from_s..=to_s).contains(&point.since_start_s))
        };
        let (Some(first), Some(last)) = (inside().next(), inside().next_back()) else {
            return CpuShares::default();
        };
        let seconds = (last.since_start_s - first.since_start_s).max(1e-3);
        CpuShares {
            nodes: (last.nodes_cpu_s - first.nodes_cpu_s) / seconds,
            generator: (last.generator_cpu_s - first.generator_cpu_s) / seconds,
            waited: (last.generator_waited_s - first.generator_waited_s).max(0.0) / seconds,
        }
    }

    /// Returns the CPU seconds of nodes and generator, from the first sample to the last.
    pub(super) fn cpu_seconds(&self) -> f64 {
        let used = |point: &UsageSample| point.nodes_cpu_s + point.generator_cpu_s;
        let ends = self.samples.first().zip(self.samples.last());
        ends.map_or(0.0, |(first, last)| used(last) - used(first))
    }

    /// Returns the peak memory of the largest node, in MiB.
    pub(super) fn peak_mib(&self) -> f64 {
        peak_memory_mib(&self.samples)
    }

    /// Returns the samples for the file of raw figures.
    pub(super) fn to_json(&self) -> Value {
        let point = |point: &UsageSample| {
            json!([
                point.since_start_s,
                point.rss_mib,
                point.nodes_cpu_s,
                point.generator_cpu_s,
                point.generator_waited_s
            ])
        };
        self.samples.iter().map(point).collect()
    }
}

/// CPU usage, where 1 means one fully used CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct CpuShares {
    pub(super) nodes: f64,
    pub(super) generator: f64,
    /// Share of the time in which the generator was runnable without a CPU.
    pub(super) waited: f64,
}

pub(super) fn peak_memory_mib(points: &[UsageSample]) -> f64 {
    let all = points.iter().flat_map(|point| &point.rss_mib);
    all.copied().fold(0.0, f64::max)
}

fn process_rss_mib(process: u32) -> f64 {
    to_float(process_memory(process, "VmRSS").unwrap_or(0)) / 1_048_576.0
}

/// Returns the time that all current threads of a process have waited for a CPU, in seconds.
fn process_waited_s(process: u32) -> Option<f64> {
    let folder = Path::new("/proc").join(process.to_string()).join("task");
    let mut seconds = 0.0;
    for task in fs::read_dir(folder).ok()? {
        // A thread may exit in the meantime.
        let text = task.and_then(|task| fs::read_to_string(task.path().join("schedstat")));
        seconds += text.ok().and_then(|text| parse_waited_s(&text)).unwrap_or(0.0);
    }
    Some(seconds)
}

/// Parses `schedstat`: nanoseconds on a CPU, nanoseconds waiting for one, number of time slices.
fn parse_waited_s(schedstat: &str) -> Option<f64> {
    let nanos: f64 = schedstat.split_whitespace().nth(1)?.parse().ok()?;
    Some(nanos / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_time_is_parsed_from_schedstat() {
        assert_eq!(parse_waited_s("5 2000000000 7\n"), Some(2.0));
        assert_eq!(parse_waited_s(""), None);
    }

    #[test]
    fn shares_are_relative_to_the_observed_time() {
        let point = |at_s, used: f64| UsageSample {
            since_start_s: at_s,
            rss_mib: vec![used, 1.0],
            nodes_cpu_s: used,
            generator_cpu_s: used / 2.0,
            generator_waited_s: 0.0,
        };
        let mut watch = UsageWatch::new(Vec::new(), 0);
        watch.samples = vec![point(0.0, 9.0), point(1.0, 10.0), point(3.0, 11.0)];
        let shares = watch.cpu_shares_between(0.5, 4.0);
        assert_eq!((shares.nodes, shares.generator), (0.5, 0.25));
        assert_eq!(watch.cpu_shares_between(5.0, 6.0), CpuShares::default());
        assert_eq!(watch.peak_mib(), 11.0);
        assert_eq!(watch.cpu_seconds(), 3.0);
    }
}
