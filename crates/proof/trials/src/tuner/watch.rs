//! Resource usage under load: memory of the nodes, CPU time of the nodes and the generator.

use std::{fs, path::Path, time::Instant};

use quorate_testbed::usage::Usage;
use serde_json::{Value, json};

use crate::{bench::float, nodes::memory};

/// Resource usage at a point in time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Point {
    /// Seconds since the first sample.
    pub(super) at_s: f64,
    /// Resident memory of each node, in MiB.
    pub(super) rss_mib: Vec<f64>,
    /// CPU time of all nodes so far, in seconds.
    pub(super) nodes_s: f64,
    /// CPU time of the generator so far, in seconds.
    pub(super) generator_s: f64,
    /// Time in which the generator's threads were runnable without a CPU, in seconds.
    pub(super) waited_s: f64,
}

/// Samples of the resource usage.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    began: Instant,
    nodes: Vec<u32>,
    generator: u32,
    pub(super) points: Vec<Point>,
}

impl Watch {
    pub(super) fn new(nodes: Vec<u32>, generator: u32) -> Self {
        Self { began: Instant::now(), nodes, generator, points: Vec::new() }
    }

    /// Adds a sample, unless the generator has exited.
    pub(super) fn look(&mut self) {
        let (Some(generator), Some(waited_s)) =
            (Usage::of_process(self.generator), waited_s(self.generator))
        else {
            return;
        };
        self.points.push(Point {
            at_s: self.began.elapsed().as_secs_f64(),
            rss_mib: self.nodes.iter().map(|node| rss_mib(*node)).collect(),
            nodes_s: Usage::of_processes(&self.nodes).cpu_s(),
            generator_s: generator.cpu_s(),
            waited_s,
        });
    }

    /// Returns the usage per second between two times.
    pub(super) fn shares(&self, from_s: f64, to_s: f64) -> Shares {
        let inside = || {
            let points = self.points.iter();
            points.filter(|point| (from_s..=to_s).contains(&point.at_s))
        };
        let (Some(first), Some(last)) = (inside().next(), inside().next_back()) else {
            return Shares::default();
        };
        let seconds = (last.at_s - first.at_s).max(1e-3);
        Shares {
            nodes: (last.nodes_s - first.nodes_s) / seconds,
            generator: (last.generator_s - first.generator_s) / seconds,
            waited: (last.waited_s - first.waited_s).max(0.0) / seconds,
        }
    }

    /// Returns the CPU seconds of nodes and generator, from the first sample to the last.
    pub(super) fn used_s(&self) -> f64 {
        let used = |point: &Point| point.nodes_s + point.generator_s;
        let ends = self.points.first().zip(self.points.last());
        ends.map_or(0.0, |(first, last)| used(last) - used(first))
    }

    /// Returns the peak memory of the largest node, in MiB.
    pub(super) fn peak_mib(&self) -> f64 {
        peak(&self.points)
    }

    /// Returns the samples for the file of raw figures.
    pub(super) fn json(&self) -> Value {
        let point = |point: &Point| {
            json!([point.at_s, point.rss_mib, point.nodes_s, point.generator_s, point.waited_s])
        };
        self.points.iter().map(point).collect()
    }
}

/// CPU usage, where 1 means one fully used CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Shares {
    pub(super) nodes: f64,
    pub(super) generator: f64,
    /// Share of the time in which the generator was runnable without a CPU.
    pub(super) waited: f64,
}

pub(super) fn peak(points: &[Point]) -> f64 {
    let all = points.iter().flat_map(|point| &point.rss_mib);
    all.copied().fold(0.0, f64::max)
}

fn rss_mib(process: u32) -> f64 {
    float(memory(process, "VmRSS").unwrap_or(0)) / 1_048_576.0
}

/// Returns the time that all current threads of a process have waited for a CPU, in seconds.
fn waited_s(process: u32) -> Option<f64> {
    let folder = Path::new("/proc").join(process.to_string()).join("task");
    let mut seconds = 0.0;
    for task in fs::read_dir(folder).ok()? {
        // A thread may exit in the meantime.
        let text = task.and_then(|task| fs::read_to_string(task.path().join("schedstat")));
        seconds += text.ok().and_then(|text| waited_of(&text)).unwrap_or(0.0);
    }
    Some(seconds)
}

/// Parses `schedstat`: nanoseconds on a CPU, nanoseconds waiting for one, number of time slices.
fn waited_of(schedstat: &str) -> Option<f64> {
    let nanos: f64 = schedstat.split_whitespace().nth(1)?.parse().ok()?;
    Some(nanos / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_time_is_parsed_from_schedstat() {
        assert_eq!(waited_of("5 2000000000 7\n"), Some(2.0));
        assert_eq!(waited_of(""), None);
    }

    #[test]
    fn shares_are_relative_to_the_observed_time() {
        let point = |at_s, used: f64| Point {
            at_s,
            rss_mib: vec![used, 1.0],
            nodes_s: used,
            generator_s: used / 2.0,
            waited_s: 0.0,
        };
        let mut watch = Watch::new(Vec::new(), 0);
        watch.points = vec![point(0.0, 9.0), point(1.0, 10.0), point(3.0, 11.0)];
        let shares = watch.shares(0.5, 4.0);
        assert_eq!((shares.nodes, shares.generator), (0.5, 0.25));
        assert_eq!(watch.shares(5.0, 6.0), Shares::default());
        assert_eq!(watch.peak_mib(), 11.0);
        assert_eq!(watch.used_s(), 3.0);
    }
}
