//! Cumulative resource usage and work counters of the nodes and the machine.

use std::{
    process,
    time::{Duration, Instant},
};

use crate::repetition::{GENERATOR_ROLE, Repetition, RoleUsage};
use quorate_admin::client;
use quorate_testbed::usage::{MachineCpuTime, ResourceUsage};

use super::session::Cluster;

pub(super) const LEADER_ROLE: &str = "leader";
pub(super) const FOLLOWERS_ROLE: &str = "followers";
pub(super) const AUXILIARY_ROLE: &str = "auxiliary";
pub(super) const LEARNERS_ROLE: &str = "learners";

/// Timeout for fetching a node's counters.
const COUNTERS_TIMEOUT: Duration = Duration::from_secs(3);

/// Values of all counters at one time.
#[derive(Clone, Debug)]
pub struct CounterReadings {
    completed_commands: u64,
    /// Nodes started by the bench; empty for a running cluster.
    nodes: Vec<NodeReading>,
    /// Resource usage of a running cluster's nodes on this machine, if known.
    running_cluster_usage: Option<ResourceUsage>,
    generator_usage: ResourceUsage,
    machine: Option<MachineCpuTime>,
}

#[derive(Clone, Copy, Debug)]
struct NodeReading {
    node: u32,
    is_auxiliary: bool,
    is_learner: bool,
    usage: ResourceUsage,
    counts: NodeCounters,
    read_at: Instant,
}

/// Counters of a node, each `None` if the node does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct NodeCounters {
    writes: Option<u64>,
    flushes: Option<u64>,
    batches: Option<u64>,
    peer_bytes: Option<u64>,
    executed: Option<u64>,
}

impl NodeCounters {
    fn parse(metrics: &str) -> Self {
        Self {
            writes: parse_counter(metrics, "quorate_disk_writes_total"),
            flushes: parse_counter(metrics, "quorate_disk_flushes_total"),
            batches: parse_counter(metrics, "quorate_batches_formed_total"),
            peer_bytes: parse_counter(metrics, "quorate_net_peer_bytes_out_total"),
            executed: parse_counter(metrics, "quorate_commands_applied_total"),
        }
    }
}

impl CounterReadings {
    /// Reads all counters. `cluster` is `None` if the bench did not start the nodes.
    pub fn read_all(cluster: Option<&Cluster>, completed: u64) -> Self {
        let members = cluster.map_or(&[][..], |cluster| &cluster.members);
        // Reads the fast values first, close to the time of `completed`.
        let usages: Vec<ResourceUsage> =
            members.iter().map(|place| ResourceUsage::of_processes(&[place.process])).collect();
        let generator = ResourceUsage::of_processes(&[process::id()]);
        let machine = MachineCpuTime::now();
        let nodes = members.iter().zip(usages).map(|(place, usage)| NodeReading {
            node: place.node,
            is_auxiliary: place.auxiliary,
            is_learner: place.learner,
            usage,
            counts: client::get(&place.admin, "/metrics", COUNTERS_TIMEOUT).map_or_else(
                |_| NodeCounters::default(),
                |answer| NodeCounters::parse(&answer.body),
            ),
            read_at: Instant::now(),
        });
        Self {
            completed_commands: completed,
            nodes: nodes.collect(),
            running_cluster_usage: None,
            generator_usage: generator,
            machine,
        }
    }

    /// Adds the resource usage of processes that run a cluster not started by the bench.
    pub(super) fn add_usage_of(mut self, processes: Option<&[u32]>) -> Self {
        self.running_cluster_usage = processes.map(ResourceUsage::of_processes);
        self
    }

    pub fn without(&self, node: u32) -> Self {
        let mut others = self.clone();
        others.nodes.retain(|other| other.node != node);
        others
    }
}

/// Resource usage and work between two readings.
#[derive(Clone, Debug)]
pub struct UsageDelta {
    completed_commands: u64,
    /// Resource usage by role; `None` if the bench did not start the nodes.
    nodes: Option<Vec<(&'static str, ResourceUsage)>>,
    /// Resource usage of a running cluster's nodes on this machine, if known.
    running_cluster_usage: Option<ResourceUsage>,
    generator: ResourceUsage,
    /// Readings of the machine at the start and the end.
    machine: Option<(MachineCpuTime, MachineCpuTime)>,
    writes: Option<u64>,
    flushes: Option<u64>,
    batches: Option<u64>,
    peer_bytes: Option<u64>,
    /// Commands per second executed by the slowest node.
    delivered_per_s: Option<f64>,
}

impl UsageDelta {
    /// Returns the difference between two readings. `leader` led during that time; `None` if no
    /// node did.
    pub fn between(before: &CounterReadings, after: &CounterReadings, leader: Option<u32>) -> Self {
        let since = |node: &NodeReading| {
            let later = after.nodes.iter().find(|later| later.node == node.node);
            later.map_or_else(ResourceUsage::default, |later| later.usage.since(node.usage))
        };
        let count = |node: &NodeReading, count: fn(&NodeCounters) -> Option<u64>| {
            let later = after.nodes.iter().find(|later| later.node == node.node)?;
            Some(count(&later.counts)?.saturating_sub(count(&node.counts)?))
        };
        let leads = |node: &&NodeReading| Some(node.node) == leader;
        let sum = |which: fn(&NodeCounters) -> Option<u64>| {
            let counts = before.nodes.iter().map(|node| count(node, which));
            counts.sum::<Option<u64>>().filter(|_| !before.nodes.is_empty())
        };
        let delivered = |node: &NodeReading| {
            let later = after.nodes.iter().find(|later| later.node == node.node)?;
            let executed = count(node, |counts| counts.executed)?;
            #[expect(clippy::cast_precision_loss, reason = "a count")]
            let executed = executed as f64;
            let seconds = later.read_at.duration_since(node.read_at).as_secs_f64();
            (seconds > 0.0).then(|| executed / seconds)
        };
        let of_leader = |which| count(before.nodes.iter().find(leads)?, which);
        let together = |nodes: &mut dyn Iterator<Item = &NodeReading>| {
            nodes.map(since).fold(ResourceUsage::default(), ResourceUsage::plus)
        };
        let leading = together(&mut before.nodes.iter().filter(leads));
        let follows = |node: &&NodeReading| !leads(node) && !node.is_auxiliary && !node.is_learner;
        let following = together(&mut before.nodes.iter().filter(follows));
        let mut roles = vec![(LEADER_ROLE, leading), (FOLLOWERS_ROLE, following)];
        if before.nodes.iter().any(|node| node.is_auxiliary) {
            let auxiliary = together(&mut before.nodes.iter().filter(|node| node.is_auxiliary));
            roles.push((AUXILIARY_ROLE, auxiliary));
        }
        if before.nodes.iter().any(|node| node.is_learner) {
            let learners = together(&mut before.nodes.iter().filter(|node| node.is_learner));
            roles.push((LEARNERS_ROLE, learners));
        }
        Self {
            completed_commands: after.completed_commands.saturating_sub(before.completed_commands),
            nodes: (!before.nodes.is_empty()).then_some(roles),
            running_cluster_usage: (after.running_cluster_usage.zip(before.running_cluster_usage))
                .map(|(after, before)| after.since(before)),
            generator: after.generator_usage.since(before.generator_usage),
            machine: before.machine.zip(after.machine),
            writes: sum(|counts| counts.writes),
            flushes: sum(|counts| counts.flushes),
            batches: of_leader(|counts| counts.batches),
            peer_bytes: of_leader(|counts| counts.peer_bytes),
            delivered_per_s: before
                .nodes
                .iter()
                .filter(|node| !node.is_auxiliary)
                .map(delivered)
                .collect::<Option<Vec<f64>>>()
                .and_then(|all| all.into_iter().reduce(f64::min)),
        }
    }

    /// Combines the differences of two consecutive periods.
    pub fn plus_next(self, next: Self) -> Self {
        let sum = |one: Option<u64>, other: Option<u64>| Some(one? + other?);
        let nodes = self.nodes.zip(next.nodes);
        let machine = self.machine.zip(next.machine);
        Self {
            completed_commands: self.completed_commands + next.completed_commands,
            nodes: nodes.map(|(one, other)| {
                let both = one.into_iter().zip(other);
                both.map(|((role, one), (_, other))| (role, one.plus(other))).collect()
            }),
            running_cluster_usage: (self.running_cluster_usage.zip(next.running_cluster_usage))
                .map(|(one, other)| one.plus(other)),
            generator: self.generator.plus(next.generator),
            machine: machine.map(|((begin, _), (_, end))| (begin, end)),
            writes: sum(self.writes, next.writes),
            flushes: sum(self.flushes, next.flushes),
            batches: sum(self.batches, next.batches),
            peer_bytes: sum(self.peer_bytes, next.peer_bytes),
            // A node failed between the periods, so the rate of the slowest node is undefined.
            delivered_per_s: None,
        }
    }

    fn foreign_share(&self, own_s: f64) -> Option<f64> {
        let (begin, end) = self.machine?;
        Some(end.other_processes_share(begin, own_s))
    }

    pub fn fill_repetition(&self, repetition: &mut Repetition) {
        let role = |role: &str, usage: ResourceUsage| RoleUsage { role: role.to_owned(), usage };
        repetition.replies_between_readings = self.completed_commands;
        if let Some(nodes) = &self.nodes {
            let nodes = nodes.iter().map(|(name, usage)| role(name, *usage));
            repetition.roles = nodes.chain([role(GENERATOR_ROLE, self.generator)]).collect();
            let own = repetition.roles.iter().map(|role| role.usage.cpu_s()).sum();
            repetition.foreign_cpu = self.foreign_share(own);
        } else if let Some(connected) = self.running_cluster_usage {
            let own = connected.cpu_s() + self.generator.cpu_s();
            repetition.foreign_cpu = self.foreign_share(own);
        }
        repetition.log_writes = self.writes;
        repetition.flushes = self.flushes;
        repetition.leader_batches = self.batches;
        repetition.leader_peer_bytes = self.peer_bytes;
        repetition.delivered_per_s = self.delivered_per_s;
    }
}

/// Parses a counter from the text format of Prometheus.
fn parse_counter(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_is_found_by_its_full_name() {
        let text = "# HELP a_total x\n# TYPE a_total counter\na_total_more 1\na_total 42\n";
        assert_eq!(parse_counter(text, "a_total"), Some(42));
        assert_eq!(parse_counter(text, "b_total"), None);
    }

    fn reading(completed: u64, nodes: &[(u32, f64, u64)]) -> CounterReadings {
        let node = |&(node, user_s, count): &(u32, f64, u64)| NodeReading {
            node,
            is_auxiliary: node == 4,
            is_learner: node == 5,
            usage: ResourceUsage { user_s, ..ResourceUsage::default() },
            counts: NodeCounters {
                writes: Some(count),
                flushes: Some(count),
                batches: Some(count),
                peer_bytes: Some(count),
                executed: Some(count),
            },
            read_at: Instant::now(),
        };
        CounterReadings {
            completed_commands: completed,
            nodes: nodes.iter().map(node).collect(),
            running_cluster_usage: None,
            generator_usage: ResourceUsage::default(),
            machine: None,
        }
    }

    /// A killed leader counts until its end, and the next leader counts for the same role from then
    /// on.
    #[test]
    fn killed_leader_and_its_successor_count_as_one_role() {
        let first = reading(0, &[(1, 1.0, 10), (2, 1.0, 10), (3, 1.0, 10)]);
        let kill = reading(100, &[(1, 3.0, 30), (2, 1.5, 20), (3, 1.5, 20)]);
        let last = reading(250, &[(2, 5.5, 60), (3, 1.75, 30)]);
        let spent = UsageDelta::between(&first, &kill, Some(1)).plus_next(UsageDelta::between(
            &kill.without(1),
            &last,
            Some(2),
        ));
        let mut repetition = Repetition::default();
        spent.fill_repetition(&mut repetition);
        let cpu = |role: usize| repetition.roles[role].usage.cpu_s();
        assert!((cpu(0) - 6.0).abs() < 1e-9, "2 of the first, 4 of the next");
        assert!((cpu(1) - 1.25).abs() < 1e-9, "{repetition:?}");
        assert_eq!(
            (repetition.replies_between_readings, repetition.log_writes, repetition.leader_batches),
            (250, Some(90), Some(60))
        );
    }

    /// Usage of connected nodes is not foreign load. If it is unknown, so is the foreign load.
    #[test]
    fn usage_of_connected_nodes_is_not_foreign_load() {
        let machine = |busy_s| MachineCpuTime { busy_s, total_s: busy_s * 2.0 };
        let at = |cpu_s: f64, known: bool| CounterReadings {
            running_cluster_usage: known
                .then_some(ResourceUsage { user_s: cpu_s, ..ResourceUsage::default() }),
            machine: Some(machine(cpu_s * 4.0)),
            ..reading(0, &[])
        };
        let share = |known| {
            let mut repetition = Repetition::default();
            UsageDelta::between(&at(1.0, known), &at(2.0, known), None)
                .fill_repetition(&mut repetition);
            repetition.foreign_cpu
        };
        // The machine was busy for 4 of 8 seconds, including 1 second in the nodes.
        assert_eq!((share(true), share(false)), (Some(0.375), None));
    }

    #[test]
    fn auxiliary_is_not_counted_as_a_follower() {
        let first = reading(0, &[(1, 1.0, 0), (2, 1.0, 0), (4, 1.0, 0)]);
        let last = reading(9, &[(1, 5.0, 0), (2, 3.0, 0), (4, 2.0, 0)]);
        let mut repetition = Repetition::default();
        UsageDelta::between(&first, &last, Some(1)).fill_repetition(&mut repetition);
        let roles = repetition.roles.iter();
        let shown: Vec<String> =
            roles.map(|role| format!("{} {}", role.role, role.usage.cpu_s())).collect();
        assert_eq!(shown, ["leader 4", "followers 2", "auxiliary 1", "generator 0"]);
    }

    #[test]
    fn counts_of_a_node_that_does_not_answer_are_unknown() {
        let first = reading(0, &[(1, 1.0, 10), (2, 1.0, 10)]);
        let last = reading(9, &[(1, 3.0, 30)]);
        let spent = UsageDelta::between(&first, &last, Some(1));
        assert_eq!((spent.writes, spent.batches), (None, Some(20)));
        let nothing = UsageDelta::between(&reading(0, &[]), &reading(9, &[]), None);
        assert_eq!((nothing.writes, nothing.nodes), (None, None));
    }
}
