//! One repetition: the generator's samples, counters, and usage of each role.

use quorate_testbed::usage::Usage;
use serde::Serialize;

use crate::{
    device::Used,
    figure::{median, round},
    samples::Samples,
};

/// The role of the load generator.
pub const GENERATOR: &str = "generator";

/// One repetition.
#[derive(Clone, Debug, Default)]
pub struct Repetition {
    /// The generator's samples.
    pub samples: Samples,
    /// Replies between the two looks at the counters.
    pub counted: u64,
    /// CPU and switches of each role between these looks; empty if the processes are not ours.
    pub roles: Vec<RoleUsage>,
    /// Writes into the log, all nodes; `None` if the nodes are not ours.
    pub writes: Option<u64>,
    /// Flushes, likewise.
    pub flushes: Option<u64>,
    /// Share of the machine's CPU that others took, 0 to 1.
    pub foreign_cpu: Option<f64>,
    /// Batches that the leader made.
    pub batches: Option<u64>,
    /// Bytes that the leader sent to its peers.
    pub peer_bytes: Option<u64>,
    /// Packets that the emulated network dropped.
    pub dropped: Option<u64>,
    /// Commands per second that the slowest node executed; `None` if the nodes are not ours, or one
    /// was killed.
    pub delivered_per_s: Option<f64>,
    /// Work of devices, if they were to be used.
    pub device: Option<Used>,
}

/// Usage of one role in the measured time.
#[derive(Clone, Debug, PartialEq)]
pub struct RoleUsage {
    /// `leader`, `followers`, `generator`.
    pub role: String,
    pub usage: Usage,
}

/// CPU and switches per command.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoleCost {
    /// `leader`, `followers`, `generator`.
    pub role: String,
    /// Microseconds in user mode per command.
    pub user_us_per_op: f64,
    /// Microseconds in the kernel per command.
    pub system_us_per_op: f64,
    /// Context switches per command.
    pub switches_per_op: f64,
    /// Context switches per second.
    pub switches_per_s: f64,
    /// CPUs that it kept busy.
    pub cpus_busy: f64,
}

/// The medians of each role.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub fn role_costs(all: &[Repetition]) -> Vec<RoleCost> {
    let Some(first) = all.first() else {
        return Vec::new();
    };
    let cost = |(index, role): (usize, &RoleUsage)| {
        let of = |figure: &dyn Fn(&Repetition, Usage) -> f64| {
            let figures = all.iter().filter_map(|repetition| {
                let usage = repetition.roles.get(index)?.usage;
                Some(figure(repetition, usage))
            });
            round(median(figures))
        };
        let commands = |repetition: &Repetition| repetition.counted.max(1) as f64;
        let seconds = |repetition: &Repetition| (repetition.samples.measured.max(1)) as f64 / 1e9;
        RoleCost {
            role: role.role.clone(),
            user_us_per_op: of(&|r, usage| usage.user_s * 1e6 / commands(r)),
            system_us_per_op: of(&|r, usage| usage.system_s * 1e6 / commands(r)),
            switches_per_op: of(&|r, usage| usage.switches as f64 / commands(r)),
            switches_per_s: of(&|r, usage| usage.switches as f64 / seconds(r)),
            cpus_busy: of(&|r, usage| usage.cpu_s() / seconds(r)),
        }
    };
    first.roles.iter().enumerate().map(cost).collect()
}
