//! What the nodes and the machine have used and done so far.

use std::{process, time::Duration};

use quorate_bench::{
    row::{GENERATOR, Repetition, RoleUsage},
    usage::{Machine, Usage},
};

use super::session::Cluster;
use crate::http;

/// A node answers within this time.
const WAIT: Duration = Duration::from_secs(3);

/// One look at all counters.
#[derive(Clone, Debug)]
pub(super) struct Readings {
    completed: u64,
    leader: Usage,
    followers: Usage,
    generator: Usage,
    machine: Option<Machine>,
    writes: Option<u64>,
    flushes: Option<u64>,
    /// Of the leader alone.
    batches: Option<u64>,
    peer_bytes: Option<u64>,
}

impl Readings {
    /// Now; `None` if the nodes are not ours.
    pub(super) fn take(cluster: Option<&Cluster>, leader: u32, completed: u64) -> Self {
        let members = cluster.map_or(&[][..], |cluster| &cluster.members);
        let ids = |leads: bool| -> Vec<u32> {
            let wanted = members
                .iter()
                .filter(|place| (place.node == leader) == leads);
            wanted.map(|place| place.process).collect()
        };
        // What is quick to read comes first, close to the count.
        let (leads, follows) = (ids(true), ids(false));
        let place = members.iter().position(|place| place.node == leader);
        let leader = Usage::of_processes(&leads);
        let followers = Usage::of_processes(&follows);
        let generator = Usage::of_processes(&[process::id()]);
        let machine = Machine::now();
        let metrics: Option<Vec<String>> = members
            .iter()
            .map(|place| Some(http::get(&place.admin, "/metrics", WAIT).ok()?.body))
            .collect();
        let metrics = metrics.filter(|all| !all.is_empty());
        let sum = |name: &str| {
            let counts = metrics.as_ref()?.iter().map(|text| counter(text, name));
            counts.sum::<Option<u64>>()
        };
        let of_leader = |name: &str| counter(metrics.as_ref()?.get(place?)?, name);
        Self {
            completed,
            leader,
            followers,
            generator,
            machine,
            writes: sum("quorate_disk_writes_total"),
            flushes: sum("quorate_disk_flushes_total"),
            batches: of_leader("quorate_batches_formed_total"),
            peer_bytes: of_leader("quorate_net_peer_bytes_out_total"),
        }
    }

    /// Puts what happened since then into a repetition.
    pub(super) fn fill(&self, before: &Self, own_nodes: bool, repetition: &mut Repetition) {
        let role = |role: &str, usage: Usage| RoleUsage {
            role: role.to_owned(),
            usage,
        };
        let generator = self.generator.since(before.generator);
        let mut own = generator.cpu_s();
        repetition.counted = self.completed.saturating_sub(before.completed);
        if own_nodes {
            let leader = self.leader.since(before.leader);
            let followers = self.followers.since(before.followers);
            own += leader.cpu_s() + followers.cpu_s();
            repetition.roles = vec![
                role("leader", leader),
                role("followers", followers),
                role(GENERATOR, generator),
            ];
            let machine = self.machine.zip(before.machine);
            repetition.foreign_cpu = machine.map(|(now, then)| now.foreign_share(then, own));
        }
        let since =
            |now: Option<u64>, then: Option<u64>| now.zip(then).map(|(a, b)| a.saturating_sub(b));
        repetition.writes = since(self.writes, before.writes);
        repetition.flushes = since(self.flushes, before.flushes);
        repetition.batches = since(self.batches, before.batches);
        repetition.peer_bytes = since(self.peer_bytes, before.peer_bytes);
    }
}

/// A counter in the text format of Prometheus.
fn counter(text: &str, name: &str) -> Option<u64> {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let text = "# HELP a_total x\n# TYPE a_total counter\na_total_more 1\na_total 42\n";
        assert_eq!(counter(text, "a_total"), Some(42));
        assert_eq!(counter(text, "b_total"), None);
    }
}
