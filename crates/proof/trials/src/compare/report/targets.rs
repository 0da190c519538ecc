//! Target ratios to the other systems, and the current values.

use super::super::{
    figures::{ComparisonResults, Spread},
    systems::System,
};

/// Throughput target: our system, the other systems (the best of them counts), and the required
/// factor.
struct ThroughputTarget {
    ours: &'static str,
    others: &'static [&'static str],
    factor: f64,
}

const TARGETS: &[ThroughputTarget] = &[
    ThroughputTarget { ours: "quorate-kv-memory/durable", others: &["etcd/durable"], factor: 20.0 },
    ThroughputTarget { ours: "quorate-kv-memory/durable", others: &["redis/durable"], factor: 2.0 },
    ThroughputTarget { ours: "quorate-kv-lsm/durable", others: &["etcd/durable"], factor: 8.0 },
    ThroughputTarget {
        ours: "quorate-log/durable",
        others: &[
            "hashicorp-raft/durable",
            "dragonboat/durable",
            "openraft/durable",
            "omnipaxos/durable",
        ],
        factor: 3.0,
    },
    // The libraries alone, and two of them with batching that we added.
    ThroughputTarget {
        ours: "quorate-log/volatile",
        others: &["hashicorp-raft/volatile", "openraft-plain/volatile", "omnipaxos-plain/volatile"],
        factor: 3.0,
    },
    ThroughputTarget {
        ours: "quorate-log/volatile",
        others: &["hashicorp-raft/volatile", "openraft/volatile", "omnipaxos/volatile"],
        factor: 3.0,
    },
];
/// System in memory, and the target of its CPU time per command over all processes, in
/// microseconds.
const CPU_TARGET: (&str, f64) = ("quorate-log/volatile", 1.8);

/// A target and its current value.
pub(super) struct TargetVerdict {
    pub(super) description: String,
    pub(super) wanted_value: String,
    pub(super) found_values: Spread,
    pub(super) is_reached: Option<bool>,
}

pub(super) fn target_verdicts(
    systems: &[&System],
    results: &ComparisonResults,
) -> Vec<TargetVerdict> {
    let mut all = Vec::new();
    for target in TARGETS {
        let others: Vec<String> = target.others.iter().map(|one| (*one).to_owned()).collect();
        let found = results.throughput_ratios(target.ours, &others);
        let versus = match others.as_slice() {
            [one] => one.clone(),
            more => format!("the best of {}", more.join(", ")),
        };
        all.push(TargetVerdict {
            description: format!("throughput of {} by that of {versus}", target.ours),
            wanted_value: format!("≥ {}", target.factor),
            is_reached: found.median().map(|median| median >= target.factor),
            found_values: found,
        });
    }
    let (system, most) = CPU_TARGET;
    let found = results.figure_at_maximum(system, |measured| measured.cpu_us);
    all.push(TargetVerdict {
        description: format!("CPU per command of {system}, µs"),
        wanted_value: format!("≤ {most}"),
        is_reached: found.median().map(|median| median <= most),
        found_values: found,
    });
    for (ours, peer) in compared_pairs(systems) {
        let found = results.latency_ratios(&ours.id(), &peer.id());
        all.push(TargetVerdict {
            description: format!(
                "p99 of {} by that of {}, both at half of the latter's maximum",
                ours.id(),
                peer.id()
            ),
            wanted_value: "< 1".to_owned(),
            is_reached: found.median().map(|median| median < 1.0),
            found_values: found,
        });
    }
    all.retain(|verdict| verdict.found_values.count() > 0);
    all
}

/// Returns the pairs (ours, other) to compare.
pub(super) fn compared_pairs<'a>(systems: &[&'a System]) -> Vec<(&'a System, &'a System)> {
    let ours = systems.iter().filter(|system| system.is_ours());
    ours.flat_map(|ours| {
        let compared = systems.iter().filter(|peer| peer.is_compared_with(ours));
        compared.map(|peer| (*ours, *peer))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::systems::SYSTEMS;

    #[test]
    fn targets_name_systems_that_exist() {
        let ids: Vec<String> = SYSTEMS.iter().map(System::id).collect();
        for target in TARGETS {
            for id in target.others.iter().chain([&target.ours]) {
                assert!(ids.iter().any(|known| known == id), "{id}");
            }
        }
        assert!(ids.iter().any(|known| known == CPU_TARGET.0));
    }
}
