//! Snapshots in whole clusters: a restart from a snapshot and the rest of the log, a peer's
//! snapshot for a node that was away, damage, interruptions, and dishonest peers.

mod power_cuts;
mod scrub;
pub(crate) mod shelf;

use std::{cell::RefCell, rc::Rc};

use quorate_core::{
    node_id::{Member, NodeId},
    node_set::NodeSet,
    record::Class,
    slot::Slot,
};
use quorate_log::disk::{BLOCK, Family, Fault, Source as _};
use quorate_replica::{
    SnapshotOptions,
    front::{Failure, Tag},
    plane::{FrameBody, Plane, ReceivedFrame, TooLarge},
    status::{Activity, Snapshot},
    testing::{Cluster, Outcome},
};
use quorate_wire::{Frame, Lane};

use shelf::{Shelf, Shelves, StoredPosition};

const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];
const CHUNK: u32 = BLOCK as u32;
const SEGMENT_BYTES: u64 = 128 << 10;
/// Length of a page in bytes.
const PAGE: usize = 900;

/// Creates a running group with small files and these snapshot options.
fn shelves_with(snapshots: SnapshotOptions, seed: u64) -> Shelves {
    let mut cluster = shelves_at_rest(3, snapshots, seed);
    for node in NODES {
        cluster.start(node);
    }
    led(&mut cluster);
    cluster
}

/// Creates a cluster of `count` stopped nodes with small files and options `snapshots`.
fn shelves_at_rest(count: u32, snapshots: SnapshotOptions, seed: u64) -> Shelves {
    let mut options = Shelves::options(count, Class::Durable);
    options.client_timeout_ms = 60_000;
    options.snapshots = snapshots.in_files_of(CHUNK, 4);
    let mut cluster = Cluster::with_options(options, seed, |_| Shelf::default());
    cluster.knobs.segment_bytes = Some(SEGMENT_BYTES);
    cluster
}

/// Returns options with which the log is trimmed even if nodes are away.
fn small() -> SnapshotOptions {
    let mut options = SnapshotOptions::default();
    options.log_bytes_min = 96 << 10;
    options.log_bytes_max = 0;
    options
}

fn led(cluster: &mut Shelves) -> NodeId {
    assert!(cluster.run_until(20_000, |cluster| cluster.leader().is_some()));
    cluster.leader().unwrap()
}

fn page(count: u64) -> Vec<u8> {
    let mut page = vec![(count % 97) as u8];
    page.extend_from_slice(&count.to_le_bytes());
    page.resize(PAGE, count as u8);
    page
}

fn done(cluster: &mut Shelves, node: NodeId, tag: Tag) -> Outcome {
    let done = cluster.run_until(20_000, |cluster| cluster.outcome(node, tag).is_some());
    assert!(done, "a request hangs");
    cluster.outcome(node, tag).unwrap().clone()
}

/// Writes pages through a node, many at a time.
fn fill(cluster: &mut Shelves, node: NodeId, pages: u64) {
    for first in (0..pages).step_by(20) {
        let tags: Vec<Tag> =
            (first..pages.min(first + 20)).map(|count| cluster.write(node, &page(count))).collect();
        for tag in tags {
            assert!(matches!(done(cluster, node, tag), Outcome::Written(_)));
        }
    }
}

/// Writes pages through a node, each in a slot of its own.
fn fill_slots(cluster: &mut Shelves, node: NodeId, pages: u64) {
    for count in 0..pages {
        let tag = cluster.write(node, &page(count));
        assert!(matches!(done(cluster, node, tag), Outcome::Written(_)));
    }
}

fn start_of(cluster: &Shelves, node: NodeId) -> Slot {
    cluster.replica(node).log().start()
}

/// Writes until every one of `nodes` has trimmed its log beyond slot `behind`.
fn fill_until_trimmed(cluster: &mut Shelves, through: NodeId, nodes: &[NodeId], behind: Slot) {
    for _ in 0..60 {
        let trimmed = |node: &NodeId| start_of(cluster, *node) > behind;
        if nodes.iter().all(trimmed) {
            return;
        }
        fill(cluster, through, 60);
        cluster.run_ms(200);
    }
    panic!("no trim");
}

fn state(cluster: &Shelves, node: NodeId) -> (Slot, Shelf, quorate_replica::service::Metadata) {
    let replica = cluster.replica(node);
    let mut shelf = replica.service().clone();
    shelf.image = None;
    (replica.applied_to(), shelf, replica.sessions())
}

/// Checks that all running nodes have the same state, sessions and digest of history.
fn level(cluster: &mut Shelves) {
    let equal = |cluster: &mut Shelves| {
        let running: Vec<_> = NODES.into_iter().filter(|node| cluster.runs(*node)).collect();
        let first = state(cluster, running[0]);
        let decided = cluster.replica(running[0]).node().decided_to();
        first.0 == decided && running.iter().all(|node| state(cluster, *node) == first)
    };
    if !cluster.run_until(30_000, equal) {
        for node in NODES.into_iter().filter(|node| cluster.runs(*node)) {
            let replica = cluster.replica(node);
            eprintln!(
                "{node}: start {:?} applied {:?} decided {:?} snapshot {:?} error {:?} {:?}",
                start_of(cluster, node),
                replica.applied_to(),
                replica.node().decided_to(),
                replica.snapshot(),
                replica.error(),
                replica.counters(),
            );
        }
        panic!("nodes do not converge");
    }
    // The nodes exchange claims, none of which contradicts another.
    cluster.run_ms(3_000);
    for node in NODES.into_iter().filter(|node| cluster.runs(*node)) {
        assert_eq!(cluster.replica(node).counters().alarms, 0, "node {node}");
        assert_eq!(cluster.replica(node).error(), None, "node {node}");
    }
}

fn follower(cluster: &mut Shelves) -> NodeId {
    let leader = led(cluster);
    NODES.into_iter().find(|node| *node != leader).unwrap()
}

/// [snap-1] [trim-1] Everything below the start of the log is in the snapshot, and nowhere else.
#[test]
fn a_node_starts_from_its_snapshot_and_the_tail_of_its_log() {
    for seed in 0..4 {
        let mut cluster = shelves_with(small(), seed);
        let leader = led(&mut cluster);
        let session = cluster.register(leader);
        assert!(matches!(done(&mut cluster, leader, session), Outcome::Registered(..)));
        fill_until_trimmed(&mut cluster, leader, &NODES, Slot::FIRST);
        fill(&mut cluster, leader, 30);
        level(&mut cluster);
        let before = state(&cluster, leader);
        for node in NODES {
            cluster.crash(node);
        }
        for node in NODES {
            cluster.start(node);
            assert!(start_of(&cluster, node) > Slot::FIRST);
        }
        level(&mut cluster);
        for node in NODES {
            let counters = cluster.replica(node).counters();
            assert_eq!(counters.snapshots_loaded, 1, "node {node}");
            assert_eq!(counters.snapshots_installed, 0, "node {node}");
            let (_, shelf, sessions) = state(&cluster, node);
            assert_eq!(shelf, before.1);
            // All sessions of clients exist; those of nodes may have been renewed.
            assert!(sessions.len() >= before.2.len());
        }
        fill(&mut cluster, leader, 30);
        level(&mut cluster);
    }
}

/// [snap-6] A node that is killed repeatedly in the middle of its replay retains its progress: each
/// time less is left to replay.
#[test]
fn a_crash_loop_shortens_the_next_start() {
    let mut snapshots = SnapshotOptions::default();
    // A small snapshot at first; by its size no further one is due.
    (snapshots.ratio, snapshots.log_bytes_min) = (100_000, 96 << 10);
    let mut options = Shelves::options(3, Class::Durable);
    options.snapshots = snapshots.in_files_of(CHUNK, 4);
    let mut cluster = Cluster::with_options(options, 5, |_| Shelf::default());
    NODES.into_iter().for_each(|node| cluster.start(node));
    let (leader, node) = (led(&mut cluster), follower(&mut cluster));
    fill_slots(&mut cluster, leader, 600);
    level(&mut cluster);
    let decided_to = cluster.replica(node).node().decided_to();
    let mut left = u64::MAX;
    // One slot per turn, each of which is read from the disk.
    cluster.set_slow(node, true);
    for life in 0..4 {
        cluster.crash(node);
        cluster.start(node);
        let at = cluster.replica(node).snapshot().map_or(Slot::FIRST, |snapshot| snapshot.slot);
        let now_left = decided_to.0 - at.0;
        assert!(now_left < left, "life {life}: {now_left} slots after {left}");
        left = now_left;
        let to = at.plus(left / 2);
        assert!(cluster.run_until(20_000, |cluster| cluster.replica(node).applied_to() >= to));
    }
    cluster.set_slow(node, false);
    level(&mut cluster);
}

/// [snap-6] A service on a disk is asked to sync while the log is replayed, but not at the
/// beginning, and not twice for the same position.
#[test]
fn a_service_on_a_disk_is_synced_while_it_replays() {
    let kept: Rc<RefCell<StoredPosition>> = Rc::default();
    let mut options = Shelves::options(1, Class::Durable);
    options.snapshots = small().in_files_of(CHUNK, 4);
    options.snapshots.log_bytes_max = u64::MAX;
    let given = Rc::clone(&kept);
    let service = move |_| Shelf { kept: Some(Rc::clone(&given)), ..Shelf::default() };
    let mut cluster = Cluster::with_options(options, 5, service);
    cluster.start(NODES[0]);
    let node = led(&mut cluster);
    fill_slots(&mut cluster, node, 300);
    // The disk loses everything that was not synced.
    cluster.crash(node);
    *kept.borrow_mut() = StoredPosition { synced: Some(Slot::FIRST), ..StoredPosition::default() };
    cluster.set_slow(node, true);
    cluster.start(node);
    let to = cluster.replica(node).node().decided_to();
    assert!(cluster.run_until(20_000, |cluster| cluster.replica(node).applied_to() >= to));
    let asked = std::mem::take(&mut kept.borrow_mut().sync_positions);
    assert!(asked.len() > 2 && asked[0] > Slot::FIRST, "{asked:?} of {to}");
    assert!(asked.is_sorted_by(|one, next| one < next), "{asked:?}");
}

/// If a disk accepts a snapshot's files but not the log's new base, the operator gets an error, and
/// the node continues by itself once the disk recovers.
#[test]
fn an_operator_is_told_if_the_base_cannot_be_replaced() {
    let mut cluster = shelves_with(SnapshotOptions::default(), 3);
    let node = led(&mut cluster);
    fill(&mut cluster, node, 30);
    cluster.replica_mut(node).snapshot_now(None);
    let mut answer = None;
    let answered = cluster.run_until(20_000, |cluster| {
        if cluster.replica(node).counters().snapshots_taken > 0 {
            let fails = Fault::ReplaceFails { renamed: false };
            cluster.disk(node).inject(fails);
        }
        answer = cluster.replica_mut(node).take_snapshot_answer();
        answer.is_some()
    });
    assert!(answered, "the caller waits for ever");
    cluster.disk(node).clear_faults();
    let why = answer.unwrap().unwrap_err();
    assert!(why.contains("base"), "{why}");
    let named = cluster.run_until(20_000, |cluster| {
        cluster.replica_mut(node).snapshot_now(None);
        cluster.run_ms(10);
        let answer = cluster.replica_mut(node).take_snapshot_answer();
        answer.is_some_and(|answer| answer.is_ok())
    });
    assert!(named, "it goes on when the disk does");
}

/// Returns a follower that was away until the others' logs begin after its own end, and is still
/// cut off, together with the leader and the third node.
fn left_behind(cluster: &mut Shelves) -> (NodeId, NodeId, NodeId) {
    let away = follower(cluster);
    let leader = led(cluster);
    let third = NODES.into_iter().find(|node| ![away, leader].contains(node)).unwrap();
    cluster.isolate(away, true);
    let behind = cluster.replica(away).node().decided_to();
    fill_until_trimmed(cluster, leader, &[leader, third], behind);
    (away, leader, third)
}

/// [snap-2] A follower that was away gets a snapshot, and no request in flight hangs.
#[test]
fn a_follower_that_was_away_too_long_gets_a_snapshot_and_no_request_hangs() {
    let mut unknown = 0;
    for seed in 0..6 {
        let mut cluster = shelves_with(small(), seed);
        let away = follower(&mut cluster);
        let leader = led(&mut cluster);
        let first = cluster.write(away, &page(1));
        done(&mut cluster, away, first);
        // Both requests reach the leader, and its answers are lost.
        let taken = |cluster: &Shelves| cluster.replica(leader).counters().forwards_taken;
        let before = taken(&cluster);
        let (session, write) = (cluster.register(away), cluster.write(away, &page(2)));
        assert!(cluster.run_until(1_000, |cluster| taken(cluster) > before));
        assert_eq!(cluster.outcome(away, write), None);
        cluster.isolate(away, true);
        // This request is never sent.
        let late = cluster.write(away, &page(3));
        cluster.run_ms(50);
        let behind = cluster.replica(away).node().decided_to();
        let others: Vec<NodeId> = NODES.into_iter().filter(|node| *node != away).collect();
        fill_until_trimmed(&mut cluster, leader, &others, behind);
        cluster.isolate(away, false);
        // The write was executed. Its reply is not known here, unless it arrived just before.
        let ended = done(&mut cluster, away, write);
        let is_unknown = ended == Outcome::Failed(Failure::Unknown);
        assert!(is_unknown || matches!(ended, Outcome::Written(_)), "{ended:?}");
        unknown += u32::from(is_unknown);
        assert!(matches!(done(&mut cluster, away, session), Outcome::Registered(..)));
        assert!(matches!(done(&mut cluster, away, late), Outcome::Written(_)));
        level(&mut cluster);
        let counters = cluster.replica(away).counters();
        assert_eq!((counters.snapshots_installed, counters.snapshots_loaded), (1, 1));
        fill(&mut cluster, away, 30);
        level(&mut cluster);
        // The node starts from the installed snapshot.
        cluster.crash(away);
        cluster.start(away);
        level(&mut cluster);
    }
    assert!(unknown > 0);
}

/// Returns options slow enough for other events to happen in between.
fn slow() -> SnapshotOptions {
    let mut options = small();
    options.log_bytes_max = 300 << 10;
    options.transfer_bytes_per_second = Some(48 << 10);
    options
}

fn received(cluster: &Shelves, node: NodeId) -> u64 {
    cluster.replica(node).counters().snapshot_bytes_received
}

#[test]
fn a_transfer_goes_on_after_the_receiver_has_restarted() {
    for seed in 0..6 {
        let mut cluster = shelves_with(slow(), seed);
        let (away, ..) = left_behind(&mut cluster);
        cluster.isolate(away, false);
        let far = cluster.run_until(30_000, |cluster| received(cluster, away) > 30_000);
        assert!(far, "{:?}", cluster.replica(away).counters());
        let before = received(&cluster, away);
        assert_eq!(cluster.replica(away).counters().snapshots_installed, 0);
        // A power cut loses everything that was not flushed; the end of the process alone does not.
        let process_only = seed % 2 == 0;
        match process_only {
            true => cluster.kill(away),
            false => cluster.crash(away),
        }
        cluster.start(away);
        level(&mut cluster);
        let counters = cluster.replica(away).counters();
        let bytes = cluster.replica(away).snapshot().unwrap().bytes;
        let total = before + counters.snapshot_bytes_received;
        assert_eq!(counters.snapshots_installed, 1);
        assert!(total < 2 * bytes, "{total} of {bytes}");
        assert!(!process_only || total < bytes + 20_000, "{total} of {bytes}");
    }
}

/// A node that receives a snapshot reports its progress, and does not seem stuck.
#[test]
fn a_node_says_how_far_its_snapshot_is() {
    let mut cluster = shelves_with(slow(), 1);
    let (away, ..) = left_behind(&mut cluster);
    cluster.isolate(away, false);
    let mut seen = Vec::new();
    let installed = cluster.run_until(30_000, |cluster| {
        let status = cluster.replica(away).status(cluster.now());
        let progress = status.progress;
        seen.extend(progress.filter(|at| at.activity == Activity::ReceivingSnapshot));
        cluster.replica(away).counters().snapshots_installed > 0
    });
    assert!(installed);
    let bytes = cluster.replica(away).snapshot().unwrap().bytes;
    assert!(seen.iter().all(|at| at.from == 0 && at.end == bytes));
    assert!(seen.is_sorted_by_key(|at| at.position), "{seen:?}");
    let far = |percent| {
        let mut seen = seen.iter();
        seen.any(|at| at.percent() > percent && at.per_second.is_some_and(|rate| rate > 0))
    };
    assert!(far(50) && !far(100), "{seen:?}");
    level(&mut cluster);
    assert_eq!(cluster.replica(away).status(cluster.now()).progress, None);
}

#[test]
fn a_transfer_goes_on_after_the_source_has_restarted() {
    for seed in 0..6 {
        let mut cluster = shelves_with(slow(), seed);
        let (away, one, other) = left_behind(&mut cluster);
        let sent = |cluster: &Shelves, node| cluster.replica(node).counters().snapshot_bytes_sent;
        cluster.isolate(away, false);
        assert!(cluster.run_until(30_000, |cluster| received(cluster, away) > 30_000));
        let source = if sent(&cluster, one) > 0 { one } else { other };
        assert_eq!(cluster.replica(away).counters().snapshots_installed, 0);
        cluster.crash(source);
        cluster.run_ms(300);
        cluster.start(source);
        level(&mut cluster);
        let bytes = cluster.replica(away).snapshot().unwrap().bytes;
        let total = received(&cluster, away);
        assert!(total < 2 * bytes, "{total} of {bytes}");
    }
}

/// A slow transfer completes although the others are writing all the time, and would take new
/// snapshots faster than one is sent.
#[test]
fn a_slow_transfer_ends_although_there_is_much_to_write() {
    let mut options = slow();
    options.log_bytes_max = 64 << 20;
    let mut cluster = shelves_with(slow(), 3);
    let (away, leader, _) = left_behind(&mut cluster);
    for node in NODES {
        cluster.crash(node);
    }
    cluster.options.snapshots = options.in_files_of(CHUNK, 4);
    for node in NODES {
        cluster.start(node);
    }
    cluster.isolate(away, false);
    led(&mut cluster);
    let mut rounds = 0;
    while cluster.replica(away).counters().snapshots_installed == 0 {
        fill(&mut cluster, leader, 100);
        cluster.run_ms(200);
        rounds += 1;
        assert!(rounds < 60, "{} bytes received", received(&cluster, away));
    }
    level(&mut cluster);
}

/// [snap-4] While a snapshot is sent, the logs of all nodes exceed their bound again and again. If
/// each transfer then switched to the next snapshot, none would ever complete. When the snapshot
/// has arrived, the log after it still exists.
#[test]
fn a_transfer_that_moves_is_not_started_over() {
    for seed in 0..4 {
        let mut options = slow();
        options.log_bytes_max = 3 * SEGMENT_BYTES;
        let mut cluster = shelves_with(options, seed);
        let (away, leader, third) = left_behind(&mut cluster);
        let taken = |cluster: &Shelves| {
            let taken = |node| cluster.replica(node).counters().snapshots_taken;
            (taken(leader), taken(third))
        };
        cluster.isolate(away, false);
        assert!(cluster.run_until(10_000, |cluster| received(cluster, away) > 0));
        let before = taken(&cluster);
        let mut most = 0;
        for round in 0.. {
            fill(&mut cluster, leader, 60);
            cluster.run_ms(200);
            let counters = cluster.replica(away).counters();
            for node in [leader, third] {
                most = most.max(cluster.replica(node).log().used_bytes());
            }
            // The node learned from the log after the snapshot.
            let decided_to = cluster.replica(leader).node().decided_to();
            let near = cluster.replica(away).applied_to().0 + 20 > decided_to.0;
            if counters.snapshots_installed > 0 && near {
                break;
            }
            assert!(round < 60, "{counters:?}, {before:?} {:?}", taken(&cluster));
        }
        level(&mut cluster);
        let counters = cluster.replica(away).counters();
        assert_eq!(counters.snapshots_installed, 1, "seed {seed}");
        let bytes = cluster.replica(away).snapshot().unwrap().bytes;
        let total = counters.snapshot_bytes_received;
        assert!(total < bytes + bytes / 2, "{total} of {bytes}");
        assert!(most > options.log_bytes_max, "only {most} bytes of log");
        assert!(most <= 7 * SEGMENT_BYTES, "{most} bytes of log");
    }
}

/// A snapshot being taken gives way to one being sent: it would use up the rate limit.
#[test]
fn a_snapshot_that_is_being_taken_gives_way_to_one_that_is_sent() {
    for seed in 0..4 {
        let mut cluster = shelves_with(slow(), seed);
        let (away, leader, third) = left_behind(&mut cluster);
        // The snapshot is larger than one step.
        fill(&mut cluster, leader, 97);
        for node in [leader, third] {
            cluster.replica_mut(node).snapshot_now(None);
        }
        let takes = |cluster: &Shelves, node| {
            let status = cluster.replica(node).status(cluster.now());
            status.snapshot_taking.is_some_and(|taking| taking.bytes > 0)
        };
        let both =
            cluster.run_until(20_000, |cluster| takes(cluster, leader) && takes(cluster, third));
        assert!(both, "seed {seed}");
        let last = cluster.replica(leader).snapshot().unwrap();
        cluster.isolate(away, false);
        level(&mut cluster);
        let counters = cluster.replica(away).counters();
        assert_eq!(counters.snapshots_installed, 1, "seed {seed}");
        assert_eq!(counters.snapshot_bytes_received, last.bytes, "seed {seed}");
        // Operators that requested a snapshot get it afterwards.
        let taken = cluster.run_until(60_000, |cluster| {
            let nodes = [leader, third].into_iter();
            let mut answers = nodes.map(|node| cluster.replica_mut(node).take_snapshot_answer());
            answers.any(|answer| answer.is_some_and(|answer| answer.is_ok()))
        });
        assert!(taken, "seed {seed}");
    }
}

/// Flips a bit in every part of a node's snapshots.
fn rot(cluster: &Shelves, node: NodeId) {
    let mut disk = cluster.disk(node).clone();
    if !cluster.runs(node) {
        disk = disk.reopen_after_crash();
    }
    let files = disk.files(Family::Snapshot).unwrap();
    assert!(!files.is_empty());
    for info in files {
        assert!(disk.flip_bit(info.file.position_at(0), 100 * 8));
    }
}

#[test]
fn a_snapshot_that_rotted_is_noticed_at_the_start_and_a_peers_taken() {
    for seed in 0..4 {
        let mut cluster = shelves_with(small(), seed);
        let leader = led(&mut cluster);
        fill_until_trimmed(&mut cluster, leader, &NODES, Slot::FIRST);
        level(&mut cluster);
        let ill = follower(&mut cluster);
        cluster.crash(ill);
        rot(&cluster, ill);
        cluster.start(ill);
        level(&mut cluster);
        assert!(received(&cluster, ill) > 0);
        cluster.crash(ill);
        cluster.start(ill);
        level(&mut cluster);
        assert_eq!(received(&cluster, ill), 0, "it has one of its own again");
    }
}

/// A damaged snapshot is not needed if the log is still complete.
#[test]
fn a_snapshot_that_rotted_is_not_needed_if_the_log_is_whole() {
    let mut options = small();
    options.log_bytes_max = 1 << 30;
    let mut cluster = shelves_with(options, 1);
    let ill = follower(&mut cluster);
    let leader = led(&mut cluster);
    let absent = NODES.into_iter().find(|node| ![ill, leader].contains(node)).unwrap();
    // Nothing is trimmed while a node is away.
    cluster.crash(absent);
    fill(&mut cluster, leader, 400);
    level(&mut cluster);
    assert!(cluster.replica(ill).snapshot().is_some());
    assert_eq!(start_of(&cluster, ill), Slot::FIRST);
    cluster.crash(ill);
    rot(&cluster, ill);
    cluster.start(ill);
    level(&mut cluster);
    cluster.start(absent);
    fill(&mut cluster, ill, 30);
    level(&mut cluster);
}

#[test]
fn a_snapshot_that_rotted_is_not_sent_but_another_one_taken() {
    for seed in 0..4 {
        let mut cluster = shelves_with(small(), seed);
        let (away, one, other) = left_behind(&mut cluster);
        cluster.run_ms(1_000);
        rot(&cluster, one);
        rot(&cluster, other);
        cluster.isolate(away, false);
        level(&mut cluster);
        assert_eq!(cluster.replica(away).counters().snapshots_installed, 1);
    }
}

/// Returns the slot and the stream of a node's snapshot, as stored in its parts.
fn stream(cluster: &Shelves, node: NodeId) -> (Slot, Vec<u8>) {
    let Snapshot { slot: at, bytes } = cluster.replica(node).snapshot().unwrap();
    let mut disk = cluster.disk(node).clone();
    let (mut stream, mut filled) = (vec![0; bytes as usize], 0);
    for info in disk.files(Family::Snapshot).unwrap() {
        for chunk in disk.bytes(info.file).unwrap().chunks(CHUNK as usize) {
            let word = |at: usize| u64::from_le_bytes(chunk[at..at + 8].try_into().unwrap());
            let length = u32::from_le_bytes(chunk[12..16].try_into().unwrap()) as usize;
            if &chunk[..8] == b"qrtesnap" && word(16) == at.0 {
                let offset = word(24) as usize;
                stream[offset..offset + length].copy_from_slice(&chunk[64..64 + length]);
                filled += length;
            }
        }
    }
    assert_eq!(filled as u64, bytes);
    (at, stream)
}

/// [snap-1] The order of the items depends only on the state.
#[test]
fn snapshots_at_equal_slots_are_equal_byte_for_byte() {
    let mut cluster = shelves_with(small(), 5);
    let leader = led(&mut cluster);
    for node in NODES {
        for _ in 0..5 {
            let session = cluster.register(node);
            assert!(matches!(done(&mut cluster, node, session), Outcome::Registered(..)));
        }
    }
    fill(&mut cluster, leader, 150);
    let away = follower(&mut cluster);
    cluster.crash(away);
    cluster.start(away);
    led(&mut cluster);
    level(&mut cluster);
    let at = cluster.replica(leader).applied_to();
    for (from, node) in [(2, 1), (3, 2), (1, 3)] {
        deliver_frame(&mut cluster, NodeId(node), from, snapshot_request(0, 0, at.0));
    }
    cluster.run_ms(2_000);
    let first = stream(&cluster, NODES[0]);
    assert_eq!(first.0, at);
    assert_eq!(stream(&cluster, NODES[1]), first);
    assert_eq!(stream(&cluster, NODES[2]), first);
}

/// Drops all frames.
struct Sink;

impl Plane for Sink {
    fn has_room(&self, _: NodeId, _: Lane, _: usize) -> bool {
        true
    }

    fn send(
        &mut self,
        to: NodeSet,
        _: Lane,
        _: &[u8],
        _: FrameBody<'_>,
    ) -> Result<NodeSet, TooLarge> {
        Ok(to)
    }
}

fn deliver_frame(cluster: &mut Shelves, node: NodeId, from: u32, frame: Frame<'_>) {
    let now = cluster.now();
    let replica = cluster.replica_mut(node);
    let received = ReceivedFrame::without_attributes(Member::first(from), frame);
    replica.on_frame(now, 0, received, &mut Sink);
    cluster.run_ms(0);
}

fn snapshot_request(at: u64, digest: u128, offset: u64) -> Frame<'static> {
    let at = Slot(at);
    Frame::SnapshotAsk { at, digest, offset }
}

fn offer(at: u64, digest: u128, bytes: u64) -> Frame<'static> {
    Frame::SnapshotOffer { at: Slot(at), digest, bytes, log_start: Slot::FIRST, busy: false }
}

fn piece(at: u64, digest: u128, offset: u64, bytes: &[u8]) -> Frame<'_> {
    let at = Slot(at);
    Frame::SnapshotPiece { at, digest, offset, bytes }
}

fn parts(cluster: &Shelves, node: NodeId) -> usize {
    let mut disk = cluster.disk(node).clone();
    disk.files(Family::Snapshot).unwrap().len()
}

/// Requests of one node do not affect others: other snapshots do not wait for them.
#[test]
fn absurd_questions_are_answered_and_forgotten() {
    let mut cluster = shelves_with(small(), 1);
    let leader = led(&mut cluster);
    let other = 1 + leader.0 % 3;
    fill(&mut cluster, leader, 200);
    cluster.run_ms(1_000);
    let Snapshot { slot: at, bytes } = cluster.replica(leader).snapshot().unwrap();
    for at in [0, 1, at.0, u64::MAX] {
        for offset in [0, 1, bytes, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
            deliver_frame(&mut cluster, leader, other, snapshot_request(at, 0, offset));
        }
    }
    cluster.run_ms(1_000);
    let trims = cluster.replica(leader).counters().trims;
    for _ in 0..10 {
        fill(&mut cluster, leader, 100);
        cluster.run_ms(300);
    }
    assert!(cluster.replica(leader).snapshot().unwrap().slot > at, "another one is taken");
    assert!(cluster.replica(leader).counters().trims > trims);
    level(&mut cluster);
}

/// Offers and pieces that a node has not requested are ignored.
#[test]
fn offers_and_pieces_that_nobody_asked_for_change_nothing() {
    let mut cluster = shelves_with(small(), 1);
    let leader = led(&mut cluster);
    let other = 1 + leader.0 % 3;
    for at in [0, 1, 50, u64::MAX] {
        for offset in [0, 100, u64::MAX] {
            deliver_frame(&mut cluster, leader, other, offer(at, 1, offset));
            deliver_frame(&mut cluster, leader, other, piece(at, 1, offset, &[1; 5000]));
        }
    }
    cluster.run_ms(1_000);
    assert_eq!(parts(&cluster, leader), 0);
    assert_eq!(received(&cluster, leader), 0);
    fill(&mut cluster, leader, 30);
    level(&mut cluster);
}

/// One peer lies repeatedly and always has the best offer; the other is honest.
#[test]
fn a_peer_that_lies_does_not_keep_a_node_from_an_honest_one() {
    let lies = [
        (1 << 40, 0),
        (1 << 40, 5_000),
        (1 << 40, 1 << 63),
        (u64::MAX, 5_000),
        (1 << 40, u64::MAX),
    ];
    let header_of_100 = [1, 100, 0, 0, 0];
    let garbage: [&[u8]; 5] = [b"garbage", &[0; 5000], &[3; 9000], &header_of_100, &[]];
    for (seed, (at, bytes)) in lies.into_iter().enumerate() {
        let mut cluster = shelves_with(small(), seed as u64);
        let (away, leader, liar) = left_behind(&mut cluster);
        cluster.isolate(away, false);
        // The liar sends nothing else.
        cluster.set_cut(away, liar, true);
        let mut most = 0;
        for round in 0..400 {
            // The liar's offer is always available when this node chooses a peer.
            for _ in 0..10 {
                deliver_frame(&mut cluster, away, liar.0, offer(at, 7, bytes));
                cluster.run_ms(2);
            }
            let content = garbage[round % garbage.len()];
            deliver_frame(&mut cluster, away, liar.0, piece(at, 7, 9, content));
            deliver_frame(&mut cluster, away, liar.0, piece(at, 7, 0, content));
            deliver_frame(&mut cluster, away, liar.0, piece(at, 7, u64::MAX, content));
            most = most.max(parts(&cluster, away));
            if cluster.replica(away).counters().snapshots_installed > 0 {
                break;
            }
        }
        assert_eq!(cluster.replica(away).counters().snapshots_installed, 1, "lie {seed}");
        assert!(most < 40, "{most} parts");
        cluster.set_cut(away, liar, false);
        fill(&mut cluster, leader, 20);
        level(&mut cluster);
    }
}

/// Offers made to an earlier process are not trusted either.
#[test]
fn a_node_that_was_offered_too_much_starts_again() {
    let mut cluster = shelves_with(small(), 2);
    let (away, _, liar) = left_behind(&mut cluster);
    cluster.isolate(away, false);
    for _ in 0..5 {
        deliver_frame(&mut cluster, away, liar.0, offer(1 << 40, 7, 1 << 42));
        cluster.run_ms(5);
    }
    cluster.crash(away);
    cluster.start(away);
    level(&mut cluster);
}

/// Every item of the snapshot is well formed, but the data differs from the offer.
#[test]
fn a_snapshot_that_is_not_what_was_offered_is_not_installed() {
    let mut cluster = shelves_with(small(), 4);
    // The last item, which no later command overwrites.
    let through = led(&mut cluster);
    let last = cluster.write(through, &[200; PAGE]);
    done(&mut cluster, through, last);
    let (away, leader, liar) = left_behind(&mut cluster);
    let (at, mut bytes) = stream(&cluster, leader);
    *bytes.last_mut().unwrap() ^= 1;
    cluster.isolate(away, false);
    cluster.set_cut(away, liar, true);
    let length = bytes.len() as u64;
    let mut taken = false;
    for _ in 0..400 {
        deliver_frame(&mut cluster, away, liar.0, offer(at.0, 7, length));
        let before = received(&cluster, away);
        let mut offset = 0;
        for part in bytes.chunks(4000) {
            deliver_frame(&mut cluster, away, liar.0, piece(at.0, 7, offset, part));
            offset += part.len() as u64;
            cluster.run_ms(1);
        }
        taken |= received(&cluster, away) >= before + length;
        if cluster.replica(away).counters().snapshots_installed > 0 {
            break;
        }
    }
    assert!(taken, "the lie was listened to");
    cluster.set_cut(away, liar, false);
    level(&mut cluster);
}
