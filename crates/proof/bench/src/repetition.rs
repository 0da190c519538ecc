//! One repetition of a measurement: the generator's samples, counters, and resource usage by role.

use quorate_testbed::usage::ResourceUsage;
use serde::Serialize;

use crate::{
    device::DeviceWork,
    figure::{median, round_to_four_digits},
    samples::Samples,
};

pub const GENERATOR_ROLE: &str = "generator";

#[derive(Clone, Debug, Default)]
pub struct Repetition {
    pub samples: Samples,
    /// Number of replies between the two readings of the counters.
    pub replies_between_readings: u64,
    /// CPU time and context switches of each role between the readings; empty if the bench did not
    /// start the processes.
    pub roles: Vec<RoleUsage>,
    /// Number of log writes of all nodes; `None` if the bench did not start the nodes.
    pub log_writes: Option<u64>,
    /// Number of flushes of all nodes; `None` if the bench did not start the nodes.
    pub flushes: Option<u64>,
    /// Share of the machine's CPU used by other processes, 0 to 1.
    pub foreign_cpu: Option<f64>,
    /// Number of batches that the leader created.
    pub leader_batches: Option<u64>,
    /// Number of bytes that the leader sent to its peers.
    pub leader_peer_bytes: Option<u64>,
    /// Number of packets that the emulated network dropped.
    pub dropped_packets: Option<u64>,
    /// Commands per second executed by the slowest node; `None` if the bench did not start the
    /// nodes, or one was killed.
    pub delivered_per_s: Option<f64>,
    /// Work of the leader's device, if devices were requested.
    pub device_work: Option<DeviceWork>,
}

/// Resource usage of one role during the measured time.
#[derive(Clone, Debug, PartialEq)]
pub struct RoleUsage {
    /// `leader`, `followers` or `generator`.
    pub role: String,
    pub usage: ResourceUsage,
}

/// Resource usage of one role, per command or per second.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoleCost {
    /// `leader`, `followers` or `generator`.
    pub role: String,
    /// Microseconds in user mode per command.
    pub user_us_per_op: f64,
    /// Microseconds in the kernel per command.
    pub system_us_per_op: f64,
    pub switches_per_op: f64,
    pub switches_per_s: f64,
    /// Number of CPUs kept busy.
    pub cpus_busy: f64,
}

/// Returns the costs of each role, as medians over the repetitions.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub fn role_costs(all: &[Repetition]) -> Vec<RoleCost> {
    let Some(first) = all.first() else {
        return Vec::new();
    };
    let cost = |(index, role): (usize, &RoleUsage)| {
        let of = |figure: &dyn Fn(&Repetition, ResourceUsage) -> f64| {
            let figures = all.iter().filter_map(|repetition| {
                let usage = repetition.roles.get(index)?.usage;
                Some(figure(repetition, usage))
            });
            round_to_four_digits(median(figures))
        };
        let commands = |repetition: &Repetition| repetition.replies_between_readings.max(1) as f64;
        let seconds =
            |repetition: &Repetition| (repetition.samples.measured_ns.max(1)) as f64 / 1e9;
        RoleCost {
            role: role.role.clone(),
            user_us_per_op: of(&|r, usage| usage.user_s * 1e6 / commands(r)),
            system_us_per_op: of(&|r, usage| usage.system_s * 1e6 / commands(r)),
            switches_per_op: of(&|r, usage| usage.context_switches as f64 / commands(r)),
            switches_per_s: of(&|r, usage| usage.context_switches as f64 / seconds(r)),
            cpus_busy: of(&|r, usage| usage.cpu_s() / seconds(r)),
        }
    };
    first.roles.iter().enumerate().map(cost).collect()
}
