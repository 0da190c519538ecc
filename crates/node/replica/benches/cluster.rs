//! Work of three nodes per command on an exact schedule: messages, batches, writes and flushes.
//!
//! Real replicas and logs on a simulated network and disks in memory, so that equal code results in
//! equal counts. `cargo bench -p quorate-replica --bench cluster -- [--case NAME]`; one line per
//! case: `case=… commands=… messages=… batches=… writes=… flushes=…`, sums over all nodes.
#![allow(clippy::print_stdout, reason = "a report")]

use quorate_core::{node_id::NodeId, record::Class};
use quorate_replica::{
    front::Tag,
    service::{CommandId, StateMachine},
    testing::{Cluster, Outcome},
};

const COMMANDS: u64 = 2048;
const COMMAND: [u8; 64] = [b'x'; 64];

/// Name, class, number of outstanding commands, and whether the leader accepts them.
const CASES: [(&str, Class, u64, bool); 5] = [
    ("durable.window-1", Class::Durable, 1, true),
    ("durable.window-64", Class::Durable, 64, true),
    ("durable.forwarded-64", Class::Durable, 64, false),
    ("volatile.window-1", Class::Volatile, 1, true),
    ("volatile.window-64", Class::Volatile, 64, true),
];

/// A service without state.
struct Sink;

impl StateMachine for Sink {
    fn apply(&mut self, _id: CommandId, _command: &[u8], reply: &mut Vec<u8>) {
        reply.push(b'+');
    }

    fn query(&self, _query: &[u8], _wall_ms: u64, _reply: &mut Vec<u8>) {}
}

#[derive(Clone, Copy)]
struct Counts {
    messages: u64,
    batches: u64,
    writes: u64,
    flushes: u64,
}

fn counts(cluster: &Cluster<Sink>, accepts: NodeId) -> Counts {
    let nodes = (1..=3).map(|node| cluster.replica(NodeId(node)));
    let disks: Vec<_> = nodes.map(|replica| replica.log().counters()).collect();
    Counts {
        messages: cluster.frames_sent(),
        batches: cluster.replica(accepts).counters().batches_applied,
        writes: disks.iter().map(|disk| disk.writes).sum(),
        flushes: disks.iter().map(|disk| disk.flushes).sum(),
    }
}

fn run(name: &str, class: Class, window: u64, by_leader: bool) {
    let mut cluster = Cluster::new(3, class, 1, |_| Sink);
    assert!(cluster.run_until(10_000, |cluster| cluster.leader().is_some()));
    let leader = cluster.leader().expect("just seen");
    let mut others = (1..=3).map(NodeId).filter(|node| *node != leader);
    let accepts = others.next_back().filter(|_| !by_leader).unwrap_or(leader);
    let tag = cluster.write(accepts, &COMMAND);
    finish(&mut cluster, accepts, &[tag]);
    let before = counts(&cluster, accepts);
    // Groups of commands, each sent when the last one is answered: no count depends on an order.
    for _ in 0..COMMANDS / window {
        let tags: Vec<Tag> = (0..window).map(|_| cluster.write(accepts, &COMMAND)).collect();
        finish(&mut cluster, accepts, &tags);
    }
    let after = counts(&cluster, accepts);
    println!(
        "case={name} commands={COMMANDS} messages={} batches={} writes={} flushes={}",
        after.messages - before.messages,
        after.batches - before.batches,
        after.writes - before.writes,
        after.flushes - before.flushes,
    );
}

fn finish(cluster: &mut Cluster<Sink>, node: NodeId, tags: &[Tag]) {
    for tag in tags {
        let done = cluster.run_until(10_000, |cluster| cluster.outcome(node, *tag).is_some());
        let outcome = cluster.outcome(node, *tag);
        assert!(done && matches!(outcome, Some(Outcome::Written(_))), "{outcome:?}");
    }
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let chosen = words.iter().skip_while(|word| *word != "--case").nth(1);
    for (name, class, window, by_leader) in CASES {
        if chosen.is_none_or(|chosen| chosen == name) {
            run(name, class, window, by_leader);
        }
    }
}
