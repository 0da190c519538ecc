//! Cumulative resource usage and work counters of the nodes and the machine.

use std::{
    process,
    time::{Duration, Instant},
};

use crate::repetition::{GENERATOR, Repetition, RoleUsage};
use quorate_admin::client;
use quorate_testbed::usage::{Machine, Usage};

use super::session::Cluster;

pub(super) const LEADER: &str = "leader";
pub(super) const FOLLOWERS: &str = "followers";
pub(super) const AUXILIARY: &str = "auxiliary";
pub(super) const LEARNERS: &str = "learners";

/// Timeout for fetching a node's counters.
const WAIT: Duration = Duration::from_secs(3);

/// Values of all counters at one time.
#[derive(Clone, Debug)]
pub struct Readings {
    completed: u64,
    /// Nodes started by the bench; empty for a running cluster.
    nodes: Vec<Node>,
    /// Resource usage of a running cluster's nodes on this machine, if known.
    connected: Option<Usage>,
    generator: Usage,
    machine: Option<Machine>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    node: u32,
    auxiliary: bool,
    learner: bool,
    usage: Usage,
    counts: Counts,
    at: Instant,
}

/// Counters of a node, each `None` if the node does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    writes: Option<u64>,
    flushes: Option<u64>,
    batches: Option<u64>,
    peer_bytes: Option<u64>,
    executed: Option<u64>,
}

impl Counts {
    fn of(metrics: &str) -> Self {
        Self {
            writes: counter(metrics, "quorate_disk_writes_total"),
            flushes: counter(metrics, "quorate_disk_flushes_total"),
            batches: counter(metrics, "quorate_batches_formed_total"),
            peer_bytes: counter(metrics, "quorate_net_peer_bytes_out_total"),
            executed: counter(metrics, "quorate_commands_applied_total"),
        }
    }
}

impl Readings {
    /// Reads all counters. `cluster` is `None` if the bench did not start the nodes.
    pub fn take(cluster: Option<&Cluster>, completed: u64) -> Self {
        let members = cluster.map_or(&[][..], |cluster| &cluster.members);
        // Reads the fast values first, close to the time of `completed`.
        let usages: Vec<Usage> =
            members.iter().map(|place| Usage::of_processes(&[place.process])).collect();
        let generator = Usage::of_processes(&[process::id()]);
        let machine = Machine::now();
        let nodes = members.iter().zip(usages).map(|(place, usage)| Node {
            node: place.node,
            auxiliary: place.auxiliary,
            learner: place.learner,
            usage,
            counts: client::get(&place.admin, "/metrics", WAIT)
                .map_or_else(|_| Counts::default(), |answer| Counts::of(&answer.body)),
            at: Instant::now(),
        });
        Self { completed, nodes: nodes.collect(), connected: None, generator, machine }
    }

    /// Adds the resource usage of processes that run a cluster not started by the bench.
    pub(super) fn with_usage_of(mut self, processes: Option<&[u32]>) -> Self {
        self.connected = processes.map(Usage::of_processes);
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
    counted: u64,
    /// Resource usage by role; `None` if the bench did not start the nodes.
    nodes: Option<Vec<(&'static str, Usage)>>,
    /// Resource usage of a running cluster's nodes on this machine, if known.
    connected: Option<Usage>,
    generator: Usage,
    /// Readings of the machine at the start and the end.
    machine: Option<(Machine, Machine)>,
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
    pub fn between(before: &Readings, after: &Readings, leader: Option<u32>) -> Self {
        let since = |node: &Node| {
            let later = after.nodes.iter().find(|later| later.node == node.node);
            later.map_or_else(Usage::default, |later| later.usage.since(node.usage))
        };
        let count = |node: &Node, count: fn(&Counts) -> Option<u64>| {
            let later = after.nodes.iter().find(|later| later.node == node.node)?;
            Some(count(&later.counts)?.saturating_sub(count(&node.counts)?))
        };
        let leads = |node: &&Node| Some(node.node) == leader;
        let sum = |which: fn(&Counts) -> Option<u64>| {
            let counts = before.nodes.iter().map(|node| count(node, which));
            counts.sum::<Option<u64>>().filter(|_| !before.nodes.is_empty())
        };
        let delivered = |node: &Node| {
            let later = after.nodes.iter().find(|later| later.node == node.node)?;
            let executed = count(node, |counts| counts.executed)?;
            #[expect(clippy::cast_precision_loss, reason = "a count")]
            let executed = executed as f64;
            let seconds = later.at.duration_since(node.at).as_secs_f64();
            (seconds > 0.0).then(|| executed / seconds)
        };
        let of_leader = |which| count(before.nodes.iter().find(leads)?, which);
        let together = |nodes: &mut dyn Iterator<Item = &Node>| {
            nodes.map(since).fold(Usage::default(), Usage::plus)
        };
        let leading = together(&mut before.nodes.iter().filter(leads));
        let follows = |node: &&Node| !leads(node) && !node.auxiliary && !node.learner;
        let following = together(&mut before.nodes.iter().filter(follows));
        let mut roles = vec![(LEADER, leading), (FOLLOWERS, following)];
        if before.nodes.iter().any(|node| node.auxiliary) {
            let auxiliary = together(&mut before.nodes.iter().filter(|node| node.auxiliary));
            roles.push((AUXILIARY, auxiliary));
        }
        if before.nodes.iter().any(|node| node.learner) {
            let learners = together(&mut before.nodes.iter().filter(|node| node.learner));
            roles.push((LEARNERS, learners));
        }
        Self {
            counted: after.completed.saturating_sub(before.completed),
            nodes: (!before.nodes.is_empty()).then_some(roles),
            connected: (after.connected.zip(before.connected))
                .map(|(after, before)| after.since(before)),
            generator: after.generator.since(before.generator),
            machine: before.machine.zip(after.machine),
            writes: sum(|counts| counts.writes),
            flushes: sum(|counts| counts.flushes),
            batches: of_leader(|counts| counts.batches),
            peer_bytes: of_leader(|counts| counts.peer_bytes),
            delivered_per_s: before
                .nodes
                .iter()
                .filter(|node| !node.auxiliary)
                .map(delivered)
                .collect::<Option<Vec<f64>>>()
                .and_then(|all| all.into_iter().reduce(f64::min)),
        }
    }

    /// Combines the differences of two consecutive periods.
    pub fn then(self, next: Self) -> Self {
        let sum = |one: Option<u64>, other: Option<u64>| Some(one? + other?);
        let nodes = self.nodes.zip(next.nodes);
        let machine = self.machine.zip(next.machine);
        Self {
            counted: self.counted + next.counted,
            nodes: nodes.map(|(one, other)| {
                let both = one.into_iter().zip(other);
                both.map(|((role, one), (_, other))| (role, one.plus(other))).collect()
            }),
            connected: (self.connected.zip(next.connected)).map(|(one, other)| one.plus(other)),
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
        Some(end.foreign_share(begin, own_s))
    }

    pub fn fill(&self, repetition: &mut Repetition) {
        let role = |role: &str, usage: Usage| RoleUsage { role: role.to_owned(), usage };
        repetition.counted = self.counted;
        if let Some(nodes) = &self.nodes {
            let nodes = nodes.iter().map(|(name, usage)| role(name, *usage));
            repetition.roles = nodes.chain([role(GENERATOR, self.generator)]).collect();
            let own = repetition.roles.iter().map(|role| role.usage.cpu_s()).sum();
            repetition.foreign_cpu = self.foreign_share(own);
        } else if let Some(connected) = self.connected {
            let own = connected.cpu_s() + self.generator.cpu_s();
            repetition.foreign_cpu = self.foreign_share(own);
        }
        repetition.writes = self.writes;
        repetition.flushes = self.flushes;
        repetition.batches = self.batches;
        repetition.peer_bytes = self.peer_bytes;
        repetition.delivered_per_s = self.delivered_per_s;
    }
}

/// Parses a counter from the text format of Prometheus.
fn counter(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_is_found_by_its_full_name() {
        let text = "# HELP a_total x\n# TYPE a_total counter\na_total_more 1\na_total 42\n";
        assert_eq!(counter(text, "a_total"), Some(42));
        assert_eq!(counter(text, "b_total"), None);
    }

    fn reading(completed: u64, nodes: &[(u32, f64, u64)]) -> Readings {
        let node = |&(node, user_s, count): &(u32, f64, u64)| Node {
            node,
            auxiliary: node == 4,
            learner: node == 5,
            usage: Usage { user_s, ..Usage::default() },
            counts: Counts {
                writes: Some(count),
                flushes: Some(count),
                batches: Some(count),
                peer_bytes: Some(count),
                executed: Some(count),
            },
            at: Instant::now(),
        };
        Readings {
            completed,
            nodes: nodes.iter().map(node).collect(),
            connected: None,
            generator: Usage::default(),
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
        let spent = UsageDelta::between(&first, &kill, Some(1)).then(UsageDelta::between(
            &kill.without(1),
            &last,
            Some(2),
        ));
        let mut repetition = Repetition::default();
        spent.fill(&mut repetition);
        let cpu = |role: usize| repetition.roles[role].usage.cpu_s();
        assert!((cpu(0) - 6.0).abs() < 1e-9, "2 of the first, 4 of the next");
        assert!((cpu(1) - 1.25).abs() < 1e-9, "{repetition:?}");
        assert_eq!(
            (repetition.counted, repetition.writes, repetition.batches),
            (250, Some(90), Some(60))
        );
    }

    /// Usage of connected nodes is not foreign load. If it is unknown, so is the foreign load.
    #[test]
    fn usage_of_connected_nodes_is_not_foreign_load() {
        let machine = |busy_s| Machine { busy_s, total_s: busy_s * 2.0 };
        let at = |cpu_s: f64, known: bool| Readings {
            connected: known.then_some(Usage { user_s: cpu_s, ..Usage::default() }),
            machine: Some(machine(cpu_s * 4.0)),
            ..reading(0, &[])
        };
        let share = |known| {
            let mut repetition = Repetition::default();
            UsageDelta::between(&at(1.0, known), &at(2.0, known), None).fill(&mut repetition);
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
        UsageDelta::between(&first, &last, Some(1)).fill(&mut repetition);
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
