//! Anticipatory batching with a window of one: a batch waits briefly for answered clients.

use quorate_core::{node_id::NodeId, record::Class};
use quorate_replica::{
    front::Tag,
    service::{CommandId, StateMachine},
    testing::{Cluster, SimulatedEnvironment},
};
use quorate_tuner::{Setting, Settings};

/// Duration of a disk operation in microseconds, long compared with all other delays here.
const DISK_US: u64 = 1_000;

/// Replies with the command, and has no state.
struct Echo;

impl StateMachine for Echo {
    fn apply(&mut self, _id: CommandId, command: &[u8], reply: &mut Vec<u8>) {
        reply.extend_from_slice(command);
    }

    fn query(&self, _query: &[u8], _wall_ms: u64, _reply: &mut Vec<u8>) {}
}

/// Starts three nodes with slow disks and a window of one. Returns the cluster and its leader.
fn slow() -> (Cluster<Echo>, NodeId) {
    let mut options = Cluster::<Echo>::options(3, Class::Durable);
    options.tuning = Some(Settings {
        start: Setting { batch_bytes: 64 << 10, window: 1 },
        fixed: true,
        ..Settings::new(3)
    });
    let knobs = SimulatedEnvironment { disk_us: DISK_US, ..SimulatedEnvironment::default() };
    let mut cluster = Cluster::with_options(options, 1, |_| Echo);
    cluster.knobs = knobs;
    for node in [1, 2, 3] {
        cluster.start(NodeId(node));
    }
    assert!(cluster.run_until(10_000, |cluster| cluster.leader().is_some()));
    let leader = cluster.leader().unwrap();
    let first = cluster.write(leader, b"first");
    assert!(cluster.run_until(10_000, |cluster| cluster.outcome(leader, first).is_some()));
    (cluster, leader)
}

/// Runs eight clients until a fixed number of commands is done; four of them start while the
/// commands of the others are being written. Returns the number of batches.
fn closed_loop(node: impl Fn(NodeId) -> NodeId) -> u64 {
    const COMMANDS: u32 = 400;
    let (mut cluster, leader) = slow();
    let node = node(leader);
    // A node registers its session with its first command.
    let first = cluster.write(node, b"first");
    assert!(cluster.run_until(10_000, |cluster| cluster.outcome(node, first).is_some()));
    let batches = |cluster: &Cluster<Echo>| cluster.replica(node).applied_to().0;
    let before = batches(&cluster);
    let mut clients: Vec<Tag> = (0..4).map(|_| cluster.write(node, b"a")).collect();
    let late = cluster.now().plus_us(DISK_US / 2);
    let mut done = 0;
    assert!(cluster.run_until(60_000, |cluster| {
        if clients.len() == 4 && cluster.now() >= late {
            clients.extend((0..4).map(|_| cluster.write(node, b"b")));
        }
        for client in &mut clients {
            if cluster.outcome(node, *client).is_some() {
                done += 1;
                *client = cluster.write(node, b"c");
            }
        }
        done >= COMMANDS
    }));
    batches(&cluster) - before
}

#[test]
fn two_groups_in_lockstep_come_together_and_stay_together() {
    for node in [|leader| leader, |leader: NodeId| NodeId(leader.0 % 3 + 1)] {
        let batches = closed_loop(node);
        assert!(batches <= 55, "{batches} batches for 400 commands of 8");
    }
}

/// If no client returns, the gathered commands are sent after a quarter of the previous batch's
/// duration, without waiting for a timer.
#[test]
fn who_does_not_come_back_delays_others_by_a_quarter() {
    let (mut cluster, leader) = slow();
    let began = cluster.now();
    let gone: Vec<Tag> = (0..4).map(|_| cluster.write(leader, b"gone")).collect();
    assert!(cluster.run_until(10, |cluster| cluster.now() > began));
    let other = cluster.write(leader, b"other");
    assert!(cluster.run_until(100, |cluster| cluster.outcome(leader, gone[0]).is_some()));
    let took = cluster.now().0 - began.0;
    let completed = cluster.now();
    assert!(cluster.run_until(100, |cluster| cluster.outcome(leader, other).is_some()));
    let waited = cluster.now().0 - completed.0;
    let most = took + took / 4;
    assert!(waited > took * 9 / 10 + took / 4, "{waited} us, {took} before");
    assert!(waited <= most * 12 / 10, "{waited} us, {took} before");
}
