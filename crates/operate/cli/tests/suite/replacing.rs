//! New nodes replace old ones while clients write: a short form of `cargo xtask cluster replace`.

use crate::common::{Cluster, program, quorate_json, wait_for};
use quorate_testbed::{
    replace::{
        self, Step,
        kill::{self, KillMoment, KilledProcess},
    },
    writers::Writers,
};

const NODES: usize = 3;
const FLAGS: [&str; 2] = ["--store", "memory"];

/// All nodes are replaced, no write is lost, and no client receives an error.
#[test]
fn all_nodes_are_replaced_under_load_and_nothing_is_lost() {
    let mut cluster = Cluster::start(NODES as u32, &FLAGS);
    let nodes = &mut cluster.nodes;
    let newcomers = replace::newcomer_specs(nodes, &program(), NODES, &FLAGS).unwrap();
    let addresses = replace::client_addresses(nodes, &newcomers);
    let writers = Writers::start_retrying(NODES, &addresses);
    wait_for("writes", || (writers.acknowledged_count() > 100).then_some(()));
    let mut steps = Vec::new();
    replace::replace_all(nodes, &program(), newcomers, &mut |_, step| {
        let before = writers.acknowledged_count();
        wait_for("writes behind each step", || {
            (writers.acknowledged_count() > before + 10).then_some(())
        });
        steps.push(step.clone());
    })
    .unwrap_or_else(|error| panic!("{error}"));
    let off = |step: &Step| match step {
        Step::Stopped(old) => Some(*old),
        _ => None,
    };
    let mut gone: Vec<u32> = steps.iter().filter_map(off).collect();
    gone.sort_unstable();
    assert_eq!((gone, nodes.ids()), (vec![1, 2, 3], vec![4, 5, 6]));
    let acknowledged = writers.acknowledged_count();
    let keys = writers.compare(nodes).unwrap();
    assert!(keys > 100 && acknowledged > 200, "{keys} {acknowledged}");
}

/// Checks that the plan completes when a process is killed and restarted, and that the old node is
/// excluded.
fn survives(kills: &[(KilledProcess, KillMoment)]) {
    let mut cluster = Cluster::start(NODES as u32, &FLAGS);
    let nodes = &mut cluster.nodes;
    let newcomers = replace::newcomer_specs(nodes, &program(), kills.len(), &FLAGS).unwrap();
    let addresses = replace::client_addresses(nodes, &newcomers);
    let writers = Writers::start_unretried(NODES, &addresses);
    wait_for("writes", || (writers.acknowledged_count() > 100).then_some(()));
    for ((role, at), spec) in kills.iter().zip(newcomers) {
        let killed = kill::replace_with_kill(nodes, &program(), spec, *role, *at);
        let killed = killed.unwrap_or_else(|error| panic!("{role:?} at {at:?}: {error}"));
        // The command follows the plan to its end, unless the command itself is killed.
        let outlived = killed.command_outlived || *role == KilledProcess::Command;
        assert!(outlived, "{role:?} at {at:?}: {killed}");
    }
    assert!(writers.compare(nodes).unwrap() > 50);
}

#[test]
fn the_command_that_replaces_a_node_is_killed_and_repeated() {
    survives(&[(KilledProcess::Command, KillMoment::ErasInForce(1))]);
}

#[test]
fn a_leader_and_a_newcomer_are_killed_while_a_node_is_replaced() {
    survives(&[
        (KilledProcess::Leader, KillMoment::ErasInForce(2)),
        (KilledProcess::Newcomer, KillMoment::InMemberList),
    ]);
}

/// The demo replaces every node and reports each replacement.
#[test]
fn the_demo_replaces_every_node_and_loses_nothing() {
    let (code, json) = quorate_json(&["demo", "--replace", "--seconds", "3", "--json"]);
    assert_eq!((code, &json["lost"], &json["errors"]), (0, &0.into(), &0.into()), "{json}");
    let replaced = json["replaced"].as_array().unwrap();
    let ids = |side: &str| {
        let ids = replaced.iter().map(|one| one[side].as_u64().unwrap());
        let mut ids: Vec<u64> = ids.collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!((ids("old"), ids("new")), (vec![1, 2, 3], vec![4, 5, 6]), "{json}");
    assert!(json["leader"].as_u64().unwrap() >= 4, "{json}");
    assert!(json["acknowledged"].as_u64().unwrap() > 0, "{json}");
    assert!(json["median"].as_u64() >= json["slowest"].as_u64(), "{json}");
}
