//! Scrubs of the log and of snapshots, one node at a time: a node finds damage on its disk, has its
//! peers repair it, and serves no wrong data in the meantime.

use quorate_log::{Log, LogOptions, disk::Position};
use quorate_replica::scrubbing::report::{Fate, Kind, ScrubStatus};

use super::*;

const N2: NodeId = NodeId(2);
const FAST: Option<u64> = Some(1 << 30);

/// Scrubs all data, and waits until everything that can be repaired is repaired.
fn scrub(cluster: &mut Shelves, node: NodeId) -> ScrubStatus {
    begin(cluster, node, FAST);
    let ended = cluster.run_until(60_000, |cluster| {
        let status = cluster.replica(node).scrub_status();
        status.now.is_none() && status.count(Fate::Repairing) == 0
    });
    let status = cluster.replica(node).scrub_status();
    assert!(ended, "{status:?} {:?}", cluster.replica(node).error());
    status
}

fn begin(cluster: &mut Shelves, node: NodeId, pace: Option<u64>) {
    let now = cluster.now();
    let wall_ms = 1_700_000_000_000 + now.0 / 1000;
    cluster.replica_mut(node).begin_scrub(now, wall_ms, pace);
    cluster.run_ms(1);
}

/// Returns the blocks of the log that were written, in order, without the newest.
fn log_blocks(cluster: &Shelves, node: NodeId) -> Vec<Position> {
    let mut blocks = cluster.disk(node).written_blocks();
    blocks.retain(|at| at.file.family == Family::Log);
    blocks.sort();
    blocks.pop();
    blocks
}

fn put(cluster: &Shelves, node: NodeId, at: Position, bytes: &[u8]) {
    let disk = cluster.disk(node);
    let mut file = disk.bytes(at.file).unwrap();
    let offset = at.offset as usize;
    file[offset..offset + bytes.len()].copy_from_slice(bytes);
    disk.store_file(at.file, &file);
}

fn lying(cluster: &Shelves, node: NodeId, at: Position) -> Vec<u8> {
    let file = cluster.disk(node).bytes(at.file).unwrap();
    file[at.offset as usize..][..BLOCK].to_vec()
}

/// Creates a group that trims nothing, and whose nodes keep no values in memory for others.
fn forgetful(seed: u64) -> Shelves {
    let mut options = SnapshotOptions::default();
    options.log_bytes_min = 1 << 30;
    let mut cluster = shelves_at_rest(3, options, seed);
    cluster.options.limits.recent_bytes = 0;
    for node in NODES {
        cluster.start(node);
    }
    led(&mut cluster);
    cluster
}

#[test]
fn a_whole_node_is_read_and_nothing_is_found() {
    let mut cluster = shelves_with(small(), 1);
    let leader = led(&mut cluster);
    fill_until_trimmed(&mut cluster, leader, &NODES, Slot::FIRST);
    level(&mut cluster);
    for node in NODES {
        let status = scrub(&mut cluster, node);
        assert_eq!((status.found.len(), status.unlisted_count), (0, 0), "{status:?}");
        let log = cluster.replica(node).log().written_bytes();
        assert_eq!(status.bytes[Kind::Log as usize], log);
        let own = cluster.replica(node).snapshot().unwrap();
        assert_eq!(status.bytes[Kind::Snapshot as usize], own.bytes);
    }
}

/// Function that damages one of the given blocks.
type Spoil = fn(&Shelves, &[Position], usize);

/// [scrub-1] [scrub-2] Flipped bits, and lost, torn and misdirected writes are noticed while the
/// node runs. The lost data is fetched from the others, and the next start needs no peers.
#[test]
fn whatever_a_disk_does_to_a_log_is_found_and_repaired() {
    let wrongs: [(&str, Spoil); 4] = [
        ("a bit", |cluster, blocks, at| {
            assert!(cluster.disk(N2).flip_bit(blocks[at], 8 * 700));
        }),
        ("lost", |cluster, blocks, at| {
            put(cluster, N2, blocks[at], &[0; BLOCK]);
        }),
        ("torn", |cluster, blocks, at| {
            let torn = [&lying(cluster, N2, blocks[at])[..512], &[3; BLOCK - 512]].concat();
            put(cluster, N2, blocks[at], &torn);
        }),
        ("misdirected", |cluster, blocks, at| {
            let other = lying(cluster, N2, blocks[blocks.len() - 1 - at]);
            put(cluster, N2, blocks[at], &other);
        }),
    ];
    for (number, (what, spoil)) in wrongs.into_iter().enumerate() {
        let mut cluster = forgetful(number as u64);
        let leader = led(&mut cluster);
        fill(&mut cluster, leader, 150);
        level(&mut cluster);
        let before = state(&cluster, leader).1;
        let blocks = log_blocks(&cluster, N2);
        for at in [blocks.len() / 4, blocks.len() / 2] {
            spoil(&cluster, &blocks, at);
        }
        let status = scrub(&mut cluster, N2);
        let repaired = status.count(Fate::Repaired);
        assert!(repaired > 0, "{what}: {status:?}");
        let of_log =
            |found: &quorate_replica::scrubbing::report::DamagedPlace| found.kind == Kind::Log;
        assert!(status.found.iter().all(of_log), "{what}: {status:?}");
        assert!(status.found[0].description.contains("segment "), "{status:?}");
        let counters = cluster.replica(N2).counters();
        assert!(counters.slots_lost > 0 && counters.slots_lost == counters.slots_repaired);
        level(&mut cluster);

        // A second scrub finds the damage again, but the data there is no longer needed.
        let again = scrub(&mut cluster, N2);
        assert_eq!(again.count(Fate::Superseded), again.found.len(), "{what}: {again:?}");
        assert_eq!(cluster.replica(N2).counters(), counters, "{what}");

        cluster.run_ms(50);
        cluster.crash(N2);
        cluster.isolate(N2, true);
        cluster.start(N2);
        assert_eq!(cluster.replica(N2).first_lost_slot(), None, "{what}");
        let same = cluster.run_until(5_000, |cluster| {
            cluster.replica(N2).service().commands + 10 >= before.commands
        });
        assert!(same, "{what}: {:?}", cluster.replica(N2).error());
        cluster.isolate(N2, false);
        level(&mut cluster);
        assert_eq!(state(&cluster, N2).1, before, "{what}");
    }
}

/// [scrub-1] [volatile-1] A value with a vote but without a decision cannot be fetched. If its only
/// record is damaged, a scrub must not hide that: the next start finds that votes are forgotten.
#[test]
fn a_damaged_vote_is_not_quietly_forgotten() {
    let mut cluster = forgetful(5);
    let leader = led(&mut cluster);
    fill(&mut cluster, leader, 40);
    level(&mut cluster);
    let voter = follower(&mut cluster);
    let before = cluster.disk(voter).written_blocks();
    let decided_to = cluster.replica(voter).node().decided_to();
    // The node votes, and no other node learns of it.
    cluster.write(leader, &page(1));
    let voted = |cluster: &mut Shelves| {
        let blocks = cluster.disk(voter).written_blocks();
        blocks.len() > before.len()
    };
    assert!(cluster.run_until(1_000, voted));
    cluster.isolate(voter, true);
    cluster.lose_in_flight(None);
    cluster.run_ms(5);
    let node = cluster.replica(voter).node();
    assert_eq!(node.decided_to(), decided_to, "it is open");
    assert!(node.hard_state().voted_to > decided_to);
    let mut fresh = cluster.disk(voter).written_blocks();
    fresh.retain(|at| !before.contains(at));
    for at in fresh {
        assert!(cluster.disk(voter).flip_bit(at, 8 * 700));
    }
    begin(&mut cluster, voter, FAST);
    let over = |cluster: &mut Shelves| cluster.replica(voter).scrub_status().now.is_none();
    assert!(cluster.run_until(10_000, over));
    let status = cluster.replica(voter).scrub_status();
    assert!(!status.found.is_empty(), "{status:?}");
    assert_eq!(status.count(Fate::Repaired), 0, "{status:?}");
    cluster.run_ms(50);
    cluster.crash(voter);
    let options = LogOptions::new(7, voter, quorate_core::node_id::Incarnation(0));
    let options = LogOptions { segment_bytes: SEGMENT_BYTES, write_bytes_max: 32 << 10, ..options };
    let (_, recovery) = Log::open(cluster.disk(voter).reopen_after_crash(), options).unwrap();
    let damage = recovery.damage.expect("the damage is seen");
    assert!(damage.votes_lost, "{damage:?}");
    // The node returns as a new member.
    cluster.forget_votes(voter);
    cluster.start(voter);
    cluster.isolate(voter, false);
    let level = cluster.run_until(30_000, |cluster| {
        let applied = |node| cluster.replica(node).applied_to();
        applied(voter) == applied(leader) && cluster.replica(voter).error().is_none()
    });
    assert!(level, "{:?}", cluster.replica(voter).error());
}

/// A snapshot with a damaged chunk is replaced by another before any node needs it.
#[test]
fn a_damaged_snapshot_gives_way_to_another_one() {
    for seed in 0..3 {
        let mut cluster = shelves_with(small(), seed);
        let leader = led(&mut cluster);
        fill_until_trimmed(&mut cluster, leader, &NODES, Slot::FIRST);
        level(&mut cluster);
        let ill = follower(&mut cluster);
        rot(&cluster, ill);
        let status = scrub(&mut cluster, ill);
        let [found] = &status.found[..] else {
            panic!("{status:?}");
        };
        assert_eq!((found.kind, found.fate), (Kind::Snapshot, Fate::Repaired));
        assert!(found.description.contains("offset 0"), "{}", found.description);
        assert_eq!(scrub(&mut cluster, ill).found.len(), 0);
        // The node starts from the new snapshot, without peers.
        let before = state(&cluster, ill).1;
        cluster.crash(ill);
        cluster.isolate(ill, true);
        cluster.start(ill);
        let loaded = cluster
            .run_until(5_000, |cluster| cluster.replica(ill).counters().snapshots_loaded == 1);
        assert!(loaded, "{:?}", cluster.replica(ill).error());
        cluster.isolate(ill, false);
        level(&mut cluster);
        assert_eq!(state(&cluster, ill).1, before);
    }
}

/// In a group of one no peer has the lost values. The intact values around them are still served,
/// and the node reports the missing ones.
#[test]
fn alone_a_node_loses_only_what_is_damaged() {
    let mut options = SnapshotOptions::default();
    options.log_bytes_min = 1 << 30;
    let mut cluster = shelves_at_rest(1, options, 3);
    let one = NodeId(1);
    cluster.options.limits.recent_bytes = 0;
    cluster.start(one);
    led(&mut cluster);
    fill(&mut cluster, one, 60);
    cluster.run_ms(50);
    let blocks = log_blocks(&cluster, one);
    assert!(cluster.disk(one).flip_bit(blocks[blocks.len() / 2], 8 * 700));
    begin(&mut cluster, one, FAST);
    cluster.run_ms(2_000);
    let status = cluster.replica(one).scrub_status();
    assert_eq!((status.now, status.found.len()), (None, 1), "{status:?}");
    assert_eq!(status.found[0].fate, Fate::Repairing);
    let lost = cluster.replica(one).counters().slots_lost;
    assert!((1..=3).contains(&lost), "{lost}");
}

/// [scrub-6] A scrub does not exceed its rate, which an operator may increase.
#[test]
fn a_scrub_keeps_its_pace() {
    let mut cluster = forgetful(6);
    let leader = led(&mut cluster);
    fill(&mut cluster, leader, 700);
    level(&mut cluster);
    let all = cluster.replica(N2).log().written_bytes();
    let pace = 64 << 10;
    assert!(all > 5 * pace, "{all}");
    // Rates below the minimum are raised to it.
    begin(&mut cluster, N2, Some(1));
    let mut read = 0;
    for second in 1..=4 {
        cluster.run_ms(1_000);
        read = cluster.replica(N2).scrub_status().bytes_read();
        assert!(read <= second * pace + (256 << 10), "{second}: {read}");
    }
    assert!(read >= 2 * pace && read < all, "{read}");
    begin(&mut cluster, N2, FAST);
    cluster.run_ms(1_000);
    let status = cluster.replica(N2).scrub_status();
    assert_eq!((status.now, status.bytes[Kind::Log as usize] >= all), (None, true));
}

/// [scrub-6] Slots that a scrub has not checked yet may be trimmed during the scrub. The log
/// refuses reads below its start, and no slots below it are needed.
#[test]
fn a_scrub_of_slots_that_are_trimmed_meanwhile_ends() {
    let mut cluster = shelves_with(small(), 7);
    let leader = led(&mut cluster);
    fill(&mut cluster, leader, 60);
    level(&mut cluster);
    let blocks = log_blocks(&cluster, N2);
    for at in [blocks.len() / 4, blocks.len() / 2] {
        assert!(cluster.disk(N2).flip_bit(blocks[at], 8 * 700));
    }
    let all = cluster.replica(N2).node().decided_to();
    // So slow that the scrub pauses after the first read.
    begin(&mut cluster, N2, Some(1));
    let found = |cluster: &mut Shelves| !cluster.replica(N2).scrub_status().found.is_empty();
    assert!(cluster.run_until(10_000, found));
    assert_eq!(start_of(&cluster, N2), Slot::FIRST);
    fill_until_trimmed(&mut cluster, leader, &NODES, all);
    let status = cluster.replica(N2).scrub_status();
    assert_eq!(status.now, Some(Kind::Log), "it is not over by then");
    assert_eq!(cluster.replica(N2).counters().slots_lost, 0, "nor asked");
    begin(&mut cluster, N2, FAST);
    let over = |cluster: &mut Shelves| cluster.replica(N2).scrub_status().now.is_none();
    let ended = cluster.run_until(60_000, over);
    let status = cluster.replica(N2).scrub_status();
    assert!(ended, "it asks for ever: {status:?}");
    assert_eq!(status.count(Fate::Repairing), 0, "{status:?}");
    level(&mut cluster);
}

/// A node scrubs at its interval, counted from the end of the last scrub, also across restarts.
#[test]
fn a_node_scrubs_by_itself_when_it_is_time() {
    let mut cluster = shelves_at_rest(3, small(), 9);
    cluster.options.scrub.interval_ms = Some(60_000);
    for node in NODES {
        cluster.start(node);
    }
    let leader = led(&mut cluster);
    fill(&mut cluster, leader, 30);
    let total = |cluster: &Shelves| cluster.replica(N2).scrub_status().bytes_read_total;
    cluster.run_ms(40_000);
    assert_eq!(total(&cluster), 0, "it is not time");
    cluster.crash(N2);
    cluster.start(N2);
    cluster.run_ms(10_000);
    assert_eq!(total(&cluster), 0, "nor after a start");
    assert_eq!(cluster.replica(N2).scrub_status().ended_ms, None);
    cluster.run_ms(20_000);
    let first = total(&cluster);
    assert!(first > 0, "now it is");
    cluster.run_ms(40_000);
    assert_eq!(total(&cluster), first);
    cluster.run_ms(30_000);
    assert!(total(&cluster) > first, "and again");
    assert!(cluster.replica(N2).scrub_status().ended_ms.is_some());
}
