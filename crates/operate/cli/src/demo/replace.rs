//! `quorate demo --replace`: replaces every node under load, without losing a write or causing an
//! error.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use quorate_testbed::replace::{self, Replacement, Step};
use serde::Serialize;

use super::{
    Demo, DemoArgs, KeptNode, NODE_COUNT, Service, WRITING_TEXT, failed_problem, format_result,
    load::{self, Load},
    writer_addresses,
};
use crate::output::{Problem, progress};

/// Length of a window in which throughput is measured. Each bar covers several windows.
const RATE_WINDOW: Duration = Duration::from_millis(100);
const WINDOWS_PER_BAR: usize = 5;
/// Length of the longest bar in characters.
const BAR_CHARS_MAX: u64 = 40;

/// Result of `quorate demo --replace`.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    written: u64,
    acknowledged: u64,
    /// Number of writes that failed with an error.
    errors: u64,
    lost: u64,
    replaced: Vec<Exchanged>,
    /// Acknowledged writes per second in the slowest window. `median` gives the same figure for the
    /// median window.
    slowest: u64,
    median: u64,
    leader: u32,
    digest: Option<String>,
    nodes: Vec<KeptNode>,
    folder: Option<PathBuf>,
}

/// A replacement of one node by another, and the number of eras it took.
#[derive(Debug, Serialize)]
struct Exchanged {
    old: u32,
    new: u32,
    eras: usize,
}

impl Outcome {
    /// Returns the number of writes that were lost or have an unknown outcome.
    pub(super) const fn missing_count(&self) -> u64 {
        self.lost + self.errors
    }

    pub(super) fn human(&self) -> String {
        let replaced = |one: &Exchanged| format!("{} by {}", one.old, one.new);
        let replaced: Vec<String> = self.replaced.iter().map(replaced).collect();
        let mut rows = vec![
            ("written", self.written.to_string()),
            ("acknowledged", self.acknowledged.to_string()),
            ("errors", self.errors.to_string()),
            ("replaced", replaced.join(", ")),
            ("median", format!("{} writes/s", self.median)),
            ("slowest 100 ms", format!("{} writes/s", self.slowest)),
            ("leader now", format!("node {}", self.leader)),
        ];
        if let Some(digest) = &self.digest {
            rows.push(("equal contents", digest.clone()));
        }
        format_result(rows, &self.nodes, self.folder.as_deref(), self.lost, Service::Kv)
    }
}

impl Demo {
    pub(super) fn replace_all(&mut self, args: &DemoArgs) -> Result<Outcome, Problem> {
        self.wait_until_serving(WRITING_TEXT)?;
        let newcomers =
            replace::newcomer_specs(&self.nodes, &self.program, NODE_COUNT as usize, &[]);
        let mut newcomers = newcomers.map_err(|error| Problem::io_error("choose ports", &error))?;
        for spec in &mut newcomers {
            spec.dies_with_parent = !args.keep;
        }
        let clients = replace::client_addresses(&self.nodes, &newcomers);
        let load = Load::start(writer_addresses(&clients), load::write_until_end);
        let (third, begin) = (Duration::from_secs(args.seconds()) / 3, Instant::now());
        let mut exchanged = Vec::new();
        let stop = AtomicBool::new(false);
        let (replaced, windows) = thread::scope(|scope| {
            let drawing = scope.spawn(|| draw_throughput(&load, self.started_at, &stop));
            thread::sleep(third);
            let (program, started) = (&self.program, self.started_at);
            let replaced =
                replace::replace_all(&mut self.nodes, program, newcomers, &mut |_, step| {
                    print_line(started, &step.to_string());
                    if let Step::Replaced(Replacement { old_node: old, new, era_count: eras }) =
                        *step
                    {
                        exchanged.push(Exchanged { old, new, eras });
                    }
                });
            let rest = Duration::from_secs(args.seconds()).saturating_sub(begin.elapsed());
            thread::sleep(rest.max(third));
            stop.store(true, Ordering::SeqCst);
            (replaced, drawing.join().unwrap_or_default())
        });
        replaced
            .map_err(|error| failed_problem(format_args!("a node was not replaced: {error}")))?;
        let written = load.finish();
        self.update_client_addresses();
        let leader = self.wait_until_caught_up()?;
        let (lost, digest) = self.compare_writes(&written)?;
        let (nodes, folder) = self.detach_nodes();
        let acknowledged = written.iter().map(|one| one.acknowledged_numbers.len() as u64);
        let (sent, acknowledged) =
            (written.iter().map(|writer| writer.sent_count).sum(), acknowledged.sum());
        let (slowest, median) = slowest_and_median(windows);
        Ok(Outcome {
            written: sent,
            acknowledged,
            errors: sent - acknowledged,
            lost,
            replaced: exchanged,
            slowest,
            median,
            leader,
            digest,
            nodes,
            folder,
        })
    }
}

fn print_line(started: Instant, text: &str) {
    let seconds = started.elapsed().as_secs_f64();
    progress(&format!("{seconds:5.1} s  {text}"));
}

/// Draws the throughput until stopped. Returns the rate of every window.
fn draw_throughput(load: &Load, started: Instant, stop: &AtomicBool) -> Vec<u64> {
    let mut windows = Vec::new();
    let (mut before, mut from) = (load.acknowledged_count(), Instant::now());
    let mut most = 1;
    while !stop.load(Ordering::SeqCst) {
        thread::sleep(RATE_WINDOW);
        let (now, at) = (load.acknowledged_count(), Instant::now());
        windows.push(rate_per_second(now - before, at - from));
        (before, from) = (now, at);
        if windows.len() % WINDOWS_PER_BAR == 0 {
            let last = &windows[windows.len() - WINDOWS_PER_BAR..];
            let mean = last.iter().sum::<u64>() / WINDOWS_PER_BAR as u64;
            most = most.max(mean);
            print_line(started, &bar(mean, most));
        }
    }
    windows
}

fn rate_per_second(count: u64, time: Duration) -> u64 {
    let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
    count * 1_000_000 / us
}

fn bar(rate: u64, most: u64) -> String {
    let length = usize::try_from(rate * BAR_CHARS_MAX / most).unwrap_or(0);
    format!("{rate:6} writes/s  {}", "█".repeat(length))
}

fn slowest_and_median(mut windows: Vec<u64>) -> (u64, u64) {
    windows.sort_unstable();
    let at = |place: usize| windows.get(place).copied().unwrap_or(0);
    (at(0), at(windows.len() / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_drawn_and_summarized() {
        assert_eq!(rate_per_second(250, Duration::from_millis(100)), 2500);
        assert_eq!(bar(500, 1000), format!("   500 writes/s  {}", "█".repeat(20)));
        assert_eq!(slowest_and_median(vec![9, 1, 5]), (1, 5));
        assert_eq!(slowest_and_median(Vec::new()), (0, 0));
    }
}
