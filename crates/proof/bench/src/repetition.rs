//! One repetition: the generator's samples, counters, and resource usage per role.

use quorate_testbed::usage::Usage;
use serde::Serialize;

use crate::{
    device::DeviceWork,
    figure::{median, round},
    samples::Samples,
};

/// Role name of the load generator.
pub const GENERATOR: &str = "generator";

/// Measurements of one repetition.
#[derive(Clone, Debug, Default)]
pub struct Repetition {
    /// The generator's samples.
    pub samples: Samples,
    /// Replies between the two readings of the counters.
    pub counted: u64,
    /// CPU time and context switches of each role between the readings; empty if the processes are
    /// not ours.
    pub roles: Vec<RoleUsage>,
    /// Log writes of all nodes; `None` if the nodes are not ours.
    pub writes: Option<u64>,
    /// Flushes of all nodes; `None` if the nodes are not ours.
    pub flushes: Option<u64>,
    /// Share of the machine's CPU used by other processes, 0 to 1.
    pub foreign_cpu: Option<f64>,
    /// Batches created by the leader.
    pub batches: Option<u64>,
    /// Bytes sent by the leader to its peers.
    pub peer_bytes: Option<u64>,
    /// Packets dropped by the emulated network.
    pub dropped: Option<u64>,
    /// Commands per second executed by the slowest node; `None` if the nodes are not ours, or one
    /// was killed.
    pub delivered_per_s: Option<f64>,
    /// Work of devices, if devices were requested.
    pub device: Option<DeviceWork>,
}

/// Resource usage of one role in the measured time.
#[derive(Clone, Debug, PartialEq)]
pub struct RoleUsage {
    /// `leader`, `followers`, `generator`.
    pub role: String,
    pub usage: Usage,
}

/// Resource usage per command of one role.
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
    /// CPUs kept busy.
    pub cpus_busy: f64,
}

/// Returns the median costs of each role.
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
