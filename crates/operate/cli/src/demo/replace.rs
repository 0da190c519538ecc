//! `quorate demo --replace`: replaces every node under load, without losing a write or causing an
//! error.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use quorate_testbed::replace::{self, Replaced, Step};
use serde::Serialize;

use super::{
    Demo, DemoArgs, KeptNode, NODES, Service, THROUGH_ALL, addresses_of_writers, failed,
    format_result,
    load::{self, Load},
};
use crate::output::{Problem, progress};

/// Length of a window in which throughput is measured. Each bar covers several windows.
const WINDOW: Duration = Duration::from_millis(100);
const DRAWN: usize = 5;
/// Length of the longest bar in characters.
const BAR: u64 = 40;

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
    pub(super) const fn missing(&self) -> u64 {
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
    pub(super) fn replace(&mut self, args: &DemoArgs) -> Result<Outcome, Problem> {
        self.wait_until_serving(THROUGH_ALL)?;
        let newcomers = replace::newcomers(&self.nodes, &self.program, NODES as usize, &[]);
        let mut newcomers = newcomers.map_err(|error| Problem::io("choose ports", &error))?;
        for spec in &mut newcomers {
            spec.tied = !args.keep;
        }
        let clients = replace::client_addresses(&self.nodes, &newcomers);
        let load = Load::start(addresses_of_writers(&clients), load::write);
        let (third, begin) = (Duration::from_secs(args.seconds()) / 3, Instant::now());
        let mut exchanged = Vec::new();
        let stop = AtomicBool::new(false);
        let (replaced, windows) = thread::scope(|scope| {
            let drawing = scope.spawn(|| draw(&load, self.started, &stop));
            thread::sleep(third);
            let (program, started) = (&self.program, self.started);
            let replaced = replace::all(&mut self.nodes, program, newcomers, &mut |_, step| {
                print_line(started, &step.to_string());
                if let Step::Replaced(Replaced { old, new, eras }) = *step {
                    exchanged.push(Exchanged { old, new, eras });
                }
            });
            let rest = Duration::from_secs(args.seconds()).saturating_sub(begin.elapsed());
            thread::sleep(rest.max(third));
            stop.store(true, Ordering::SeqCst);
            (replaced, drawing.join().unwrap_or_default())
        });
        replaced.map_err(|error| failed(format_args!("a node was not replaced: {error}")))?;
        let written = load.finish();
        self.look_up_clients();
        let leader = self.caught_up()?;
        let (lost, digest) = self.compare(&written)?;
        let (nodes, folder) = self.detach_nodes();
        let acknowledged = written.iter().map(|one| one.acknowledged.len() as u64);
        let (sent, acknowledged) =
            (written.iter().map(|writer| writer.written).sum(), acknowledged.sum());
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
fn draw(load: &Load, started: Instant, stop: &AtomicBool) -> Vec<u64> {
    let mut windows = Vec::new();
    let (mut before, mut from) = (load.acknowledged(), Instant::now());
    let mut most = 1;
    while !stop.load(Ordering::SeqCst) {
        thread::sleep(WINDOW);
        let (now, at) = (load.acknowledged(), Instant::now());
        windows.push(rate(now - before, at - from));
        (before, from) = (now, at);
        if windows.len() % DRAWN == 0 {
            let last = &windows[windows.len() - DRAWN..];
            let mean = last.iter().sum::<u64>() / DRAWN as u64;
            most = most.max(mean);
            print_line(started, &bar(mean, most));
        }
    }
    windows
}

fn rate(count: u64, time: Duration) -> u64 {
    let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
    count * 1_000_000 / us
}

fn bar(rate: u64, most: u64) -> String {
    let length = usize::try_from(rate * BAR / most).unwrap_or(0);
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
        assert_eq!(rate(250, Duration::from_millis(100)), 2500);
        assert_eq!(bar(500, 1000), format!("   500 writes/s  {}", "█".repeat(20)));
        assert_eq!(slowest_and_median(vec![9, 1, 5]), (1, 5));
        assert_eq!(slowest_and_median(Vec::new()), (0, 0));
    }
}
