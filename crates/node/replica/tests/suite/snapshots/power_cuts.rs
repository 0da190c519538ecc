//! Power cuts while a snapshot is taken, referenced, received or installed, or while the log is
//! trimmed: at every moment of a run, with every possible outcome of the operations in flight
//! ([disk-3], [snap-2], [trim-3]).

use quorate_core::{node_id::NodeId, slot::Slot};
use quorate_log::disk::{EveryFate, Family, MemoryDisk, PendingKind};
use quorate_replica::testing::Outcome;

use super::{
    NODES, left_behind, page,
    shelf::{Shelf, Shelves},
    shelves_at_rest, shelves_with, small, start_of,
};

/// Number of pages, which are written in order, again and again.
const PAGES: u64 = 60;
/// Maximum number of outcomes of a crash to try, drawn at random if there are more.
const FATES_MAX: usize = 60;

/// Returns the shelf after `commands` commands.
fn shelf_of(commands: u64) -> Shelf {
    let mut shelf = Shelf::default();
    for count in 0..commands {
        let page = page(count % PAGES);
        shelf.pages.insert(page[0], page);
    }
    shelf.commands = commands;
    shelf
}

fn contents(cluster: &Shelves, node: NodeId) -> Shelf {
    let mut shelf = cluster.replica(node).service().clone();
    shelf.image = None;
    shelf
}

/// Number of crashes, and of operations that were in flight at them.
#[derive(Debug, Default)]
struct CrashCounts {
    crashes: u64,
    writing: u64,
    naming: u64,
    reusing: u64,
}

impl CrashCounts {
    /// Counts operations in flight other than the log's usual writes. Returns whether any are.
    fn count_in_flight(&mut self, disk: &MemoryDisk) -> bool {
        let pending = disk.pending();
        let flies = |kind| pending.iter().any(|pending| pending.kind == kind);
        let of_snapshot = |family| family == Family::Snapshot;
        let writes = pending.iter().any(|pending| of_snapshot(pending.position.file.family));
        let (names, reuses) = (flies(PendingKind::ReplaceSmallFile), flies(PendingKind::Reuse));
        self.writing += u64::from(writes);
        self.naming += u64::from(names);
        self.reusing += u64::from(reuses);
        writes || names || reuses
    }
}

/// Cuts the power now, with every outcome. `again` is a stopped group with `disk` in place of this
/// node's. Whatever is left on the disk, the node starts twice, with the state after some number of
/// commands that is not below `known`.
fn power_cut(
    seen: &mut CrashCounts,
    node: NodeId,
    disk: &MemoryDisk,
    known: (u64, Slot),
    again: impl Fn() -> Shelves,
) {
    let mut fates = EveryFate::default();
    let mut more = true;
    for round in 0..2 * FATES_MAX {
        let disk = disk.copy();
        if round < FATES_MAX {
            disk.crash_as(&mut fates);
        } else {
            disk.crash(round as u64);
        }
        seen.crashes += 1;
        let mut cluster = again();
        let mut least = known;
        cluster.put_disk(node, disk, 1);
        for _ in 0..2 {
            cluster.start(node);
            let (commands, start) = least;
            let there = cluster.run_until(20_000, |cluster| {
                let replica = cluster.replica(node);
                replica.service().commands >= commands && replica.applied_to() >= start
            });
            let shelf = contents(&cluster, node);
            assert!(
                there,
                "{} commands of {commands}, applied to {} of {start}: {fates:?}",
                shelf.commands,
                cluster.replica(node).applied_to()
            );
            assert_eq!(shelf, shelf_of(shelf.commands), "{fates:?}");
            least = (shelf.commands, start.max(start_of(&cluster, node)));
            cluster.crash(node);
        }
        more = more && fates.next_outcome();
        if !more {
            break;
        }
    }
}

/// Creates a group of one, whose only node has the acknowledged state.
fn alone() -> Shelves {
    shelves_at_rest(1, small(), 1)
}

#[test]
fn a_power_cut_in_a_snapshot_or_a_trim_loses_nothing() {
    let node = NODES[0];
    let mut cluster = alone();
    cluster.start(node);
    let mut seen = CrashCounts::default();
    let mut acknowledged = 0;
    while cluster.replica(node).counters().trims < 3 {
        assert!(acknowledged < 3_000, "no trims");
        let tag = cluster.write(node, &page(acknowledged % PAGES));
        let written = cluster.run_until(20_000, |cluster| {
            if seen.count_in_flight(cluster.disk(node)) {
                let known = (acknowledged, start_of(cluster, node));
                power_cut(&mut seen, node, cluster.disk(node), known, alone);
            }
            cluster.outcome(node, tag).is_some()
        });
        assert!(written);
        assert!(matches!(cluster.outcome(node, tag), Some(Outcome::Written(_))));
        acknowledged += 1;
    }
    assert!(cluster.replica(node).counters().snapshots_taken >= 2);
    assert!(
        seen.crashes > 1_000 && seen.writing > 20 && seen.naming > 5 && seen.reusing > 0,
        "{seen:?}"
    );
}

#[test]
fn a_power_cut_while_a_snapshot_is_received_loses_nothing() {
    let three = || shelves_at_rest(3, small(), 1);
    let mut cluster = shelves_with(small(), 5);
    let (away, ..) = left_behind(&mut cluster);
    let mut seen = CrashCounts::default();
    cluster.isolate(away, false);
    let installed = cluster.run_until(60_000, |cluster| {
        if seen.count_in_flight(cluster.disk(away)) {
            let known = (0, start_of(cluster, away));
            power_cut(&mut seen, away, cluster.disk(away), known, three);
        }
        cluster.replica(away).counters().snapshots_loaded > 0
    });
    assert!(installed);
    assert!(seen.crashes > 300 && seen.writing > 5 && seen.naming > 1, "{seen:?}");
}
