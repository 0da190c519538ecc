//! Damage in files that no client reads: a scrub finds it, and the node keeps serving while it
//! rebuilds the store from another node's snapshot ([scrub-8]).

use std::{
    fs,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use quorate_core::{node_id::NodeId, record::Class, slot::Slot};
use quorate_kv::{
    encode::Encoder,
    service::Service,
    store::lsm::{Delays, Limits, LsmStore, Options},
};
use quorate_replica::{
    SnapshotOptions,
    scrubbing::report::{Fate, Kind, ScrubStatus},
    testing::{Cluster, Outcome},
};

use crate::{common::Random, failing::until};

const WALL_MS: u64 = 1_700_000_000_000;
/// Size at which values are in separate files (from 512 bytes on).
const VALUE_BYTES: usize = 900;

fn options() -> Options {
    let soon = Duration::from_millis(1);
    Options {
        limits: Limits { held_bytes: 2_000, ..Limits::default() },
        delays: Delays { busy: soon, while_full: soon, retry_min: soon, retry_max: soon },
        ..Options::default()
    }
}

/// Nodes with stores on disk. Their trees have small tables, and their logs are trimmed to the
/// synced position.
struct Group {
    cluster: Cluster<Service>,
    nodes: Vec<NodeId>,
    folder: tempfile::TempDir,
    random: Random,
}

impl Group {
    fn new(count: u32, seed: u64) -> Self {
        Self::with(count, seed, |_| {})
    }

    fn with(count: u32, seed: u64, change: impl FnOnce(&mut SnapshotOptions)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let nodes: Vec<NodeId> = (1..=count).map(NodeId).collect();
        for node in &nodes {
            let database = fjall::Database::builder(folder.path().join(node.to_string()));
            let small = || {
                fjall::KeyspaceCreateOptions::default()
                    .max_memtable_size(40_000)
                    .with_kv_separation(Some(
                        fjall::KvSeparationOptions::default().separation_threshold(512),
                    ))
            };
            database.open().unwrap().keyspace("kv", small).unwrap();
        }
        let path = folder.path().to_owned();
        let make = move |node: NodeId| {
            let (store, _) = LsmStore::open_with(&path.join(node.to_string()), options()).unwrap();
            Service::new(Box::new(store))
        };
        let mut options = Cluster::<Service>::options(count, Class::Durable);
        options.client_timeout_ms = 2_000;
        let mut snapshots = SnapshotOptions::default();
        (snapshots.ratio, snapshots.log_bytes_min, snapshots.log_bytes_max) =
            (0, 48 << 10, 96 << 10);
        change(&mut snapshots);
        options.snapshots = snapshots.in_files_of(4096, 16);
        let mut cluster = Cluster::with_options(options, seed, make);
        cluster.knobs.segment_bytes = Some(64 << 10);
        for node in &nodes {
            cluster.start(*node);
        }
        let mut group = Self { cluster, nodes, folder, random: Random::new(seed) };
        group.until("a leader", |group| group.cluster.leader().is_some());
        group
    }

    /// Runs the cluster until a condition holds. The stores' threads run in real time, not in
    /// simulated time.
    fn until(&mut self, what: &str, mut condition: impl FnMut(&mut Self) -> bool) {
        until(what, || {
            self.cluster.run_ms(5);
            condition(self).then_some(())
        });
    }

    /// Runs the cluster until `node` reports damage, and stops there: the repair may take only
    /// milliseconds.
    fn until_damage(&mut self, node: NodeId) {
        until("damage", || {
            let reports = |cluster: &mut Cluster<Service>| {
                !cluster.replica(node).scrub_status().found.is_empty()
            };
            self.cluster.run_until(5, reports).then_some(())
        });
    }

    fn outcome(&mut self, node: NodeId, tag: quorate_replica::front::Tag) -> Outcome {
        self.until("an outcome", |group| group.cluster.outcome(node, tag).is_some());
        self.cluster.outcome(node, tag).unwrap().clone()
    }

    /// Writes a key with an incompressible value, encoded as SET is in the log.
    fn set(&mut self, node: NodeId, key: &str) {
        let value: Vec<u8> =
            (0..VALUE_BYTES).map(|_| self.random.next().to_le_bytes()[0]).collect();
        let mut command = vec![64, 0, 0];
        for field in [key.as_bytes(), &value] {
            Encoder(&mut command).bytes(field);
        }
        let tag = self.cluster.write(node, &command);
        let outcome = self.outcome(node, tag);
        assert!(matches!(outcome, Outcome::Written(_)), "{key}: {outcome:?}");
    }

    fn has(&mut self, node: NodeId, key: &str) -> bool {
        let mut query = vec![2];
        Encoder(&mut query).bytes(key.as_bytes());
        let tag = self.cluster.read(node, &query);
        matches!(self.outcome(node, tag), Outcome::Read(value) if value.len() > VALUE_BYTES)
    }

    /// Writes enough data that every store has tables and every log is trimmed past them.
    fn fill(&mut self) {
        for number in 0..300 {
            let node = self.nodes[number % self.nodes.len()];
            self.set(node, &format!("key {number}"));
        }
        self.until("trimmed logs", |group| {
            let trimmed = |node: &NodeId| group.cluster.replica(*node).log().start() > Slot(100);
            group.nodes.iter().all(trimmed)
        });
        self.level();
    }

    fn level(&mut self) {
        self.until("level nodes", |group| {
            let applied = |node: &NodeId| group.cluster.replica(*node).applied_to();
            let first = applied(&group.nodes[0]);
            let well = |node: &NodeId| group.cluster.replica(*node).error().is_none();
            group.nodes.iter().all(|node| applied(node) == first && well(node))
        });
    }

    fn all_equal(&mut self) {
        self.level();
        let digest = |node: &NodeId| self.cluster.replica(*node).service().digest();
        let first = digest(&self.nodes[0]);
        assert!(self.nodes.iter().all(|node| digest(node) == first));
        for node in &self.nodes {
            assert_eq!(self.cluster.replica(*node).counters().alarms, 0);
        }
    }

    fn store(&self, node: NodeId) -> PathBuf {
        self.folder.path().join(node.to_string())
    }

    /// Flips a byte in the middle of the oldest value file. All nodes wrote it at about the same
    /// time.
    fn spoil(&self, node: NodeId) {
        let mut files = files_in(&self.store(node), "blobs");
        files.sort();
        let file = files.first().expect("it has files of values");
        turn_in_the_middle(file);
    }

    /// Flips a byte among the keys of the largest table, outside its index. Only compaction and
    /// requests for these keys read it.
    fn spoil_keys(&self, node: NodeId) {
        let files = files_in(&self.store(node), "tables");
        let bytes = |file: &PathBuf| fs::metadata(file).unwrap().len();
        let largest = files.iter().max_by_key(|file| bytes(file));
        turn_in_the_middle(largest.expect("it has tables"));
    }

    fn begin_scrub(&mut self, node: NodeId) {
        let now = self.cluster.now();
        let wall_ms = WALL_MS + now.0 / 1000;
        let replica = self.cluster.replica_mut(node);
        replica.begin_scrub(now, wall_ms, Some(1 << 30));
        self.cluster.run_ms(1);
    }

    fn status(&self, node: NodeId) -> ScrubStatus {
        self.cluster.replica(node).scrub_status()
    }

    fn scrubbed(&mut self, node: NodeId) -> ScrubStatus {
        self.begin_scrub(node);
        self.until("the end of a scrub", |group| group.status(node).now.is_none());
        self.status(node)
    }

    fn mended(&mut self, node: NodeId) -> ScrubStatus {
        self.until("the end of a repair", |group| group.status(node).count(Fate::Repairing) == 0);
        self.status(node)
    }

    fn is_aside(&self, node: NodeId) -> bool {
        self.store(node).with_extension("damaged-1").exists()
    }
}

/// Returns the files in all subfolders called `name`.
fn files_in(folder: &Path, name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files_in(&path, name)),
            false if folder.ends_with(name) => found.push(path),
            false => {}
        }
    }
    found
}

fn turn_in_the_middle(file: &Path) {
    let middle = fs::metadata(file).unwrap().len() / 2;
    let mut open = fs::OpenOptions::new();
    let open = open.read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    open.read_exact_at(&mut byte, middle).unwrap();
    open.write_all_at(&[!byte[0]], middle).unwrap();
}

fn is_of_the_store(status: &ScrubStatus, fate: Fate) -> bool {
    let right = |found: &quorate_replica::scrubbing::report::DamagedPlace| {
        (found.kind, found.fate) == (Kind::Store, fate)
    };
    !status.found.is_empty() && status.found.iter().all(right)
}

/// A follower with a damaged store serves clients until it has rebuilt the store from a peer's
/// snapshot. A leader hands over first.
#[test]
fn a_damaged_store_is_built_anew_from_a_peers_snapshot_and_serves_until_then() {
    let mut group = Group::new(3, 1);
    group.fill();
    for leads in [false, true] {
        let leader = group.cluster.leader().unwrap();
        let other = NodeId(1 + leader.0 % 3);
        let node = if leads { leader } else { other };
        group.spoil(node);
        group.begin_scrub(node);
        group.until_damage(node);
        let status = group.status(node);
        assert!(is_of_the_store(&status, Fate::Repairing), "{status:?}");
        assert!(!group.is_aside(node), "nothing sound is given up before");
        let answers = group.has(node, "key 299");
        assert!(answers || leads || group.is_aside(node), "it serves until then");
        group.until("the end of a scrub", |group| group.status(node).now.is_none());
        let status = group.mended(node);
        assert!(is_of_the_store(&status, Fate::Repaired), "{status:?}");
        group.set(node, "key 299");
        group.until("no old store", |group| !group.is_aside(node));
        assert_eq!(group.scrubbed(node).found, vec![]);
        group.all_equal();
        for number in (0..300).step_by(7) {
            assert!(group.has(node, &format!("key {number}")), "{leads} {number}");
        }
    }
}

/// The only node of a group has the only copy, so it keeps serving and reports the damage. Neither
/// an unreadable snapshot nor unreadable obsolete data makes it discard anything.
#[test]
fn a_group_of_one_keeps_what_it_has() {
    let mut group = Group::new(1, 2);
    group.fill();
    let one = NodeId(1);
    group.spoil(one);
    for _ in 0..2 {
        let status = group.scrubbed(one);
        assert!(is_of_the_store(&status, Fate::Stays), "{status:?}");
    }
    group.cluster.replica_mut(one).snapshot_now(None);
    let mut answer = None;
    group.until("no snapshot", |group| {
        answer = group.cluster.replica_mut(one).take_snapshot_answer();
        answer.is_some()
    });
    assert!(answer.unwrap().is_err());
    group.set(one, "more");
    assert!(group.has(one, "more") && group.has(one, "key 299"));
    assert!(!group.is_aside(one));
}

/// Two of three nodes rebuild from the third, whichever peer they try first.
#[test]
fn two_damaged_stores_are_built_anew_and_the_group_serves() {
    let mut group = Group::new(3, 3);
    group.fill();
    let ill = [NodeId(1), NodeId(3)];
    for node in ill {
        group.spoil(node);
    }
    for node in ill {
        group.begin_scrub(node);
    }
    for number in 0..30 {
        group.set(NodeId(2), &format!("more {number}"));
        assert!(group.has(NodeId(2), "key 299"));
    }
    for node in ill {
        group.until("a scrub", |group| group.status(node).now.is_none());
        let status = group.mended(node);
        assert!(is_of_the_store(&status, Fate::Repaired), "{status:?}");
    }
    group.all_equal();
    for node in ill {
        assert_eq!(group.scrubbed(node).found, vec![]);
    }
}

/// Without a sound store, no node can send a snapshot, and none discards anything.
#[test]
fn when_all_stores_are_damaged_all_keep_what_they_have() {
    let mut group = Group::new(3, 4);
    group.fill();
    for node in group.nodes.clone() {
        group.spoil(node);
    }
    for node in group.nodes.clone() {
        group.begin_scrub(node);
    }
    group.until("an end", |group| {
        group.cluster.run_ms(5_000);
        let nodes = group.nodes.iter();
        let mut status = nodes.map(|node| group.status(*node));
        status.all(|status| status.now.is_none() && is_of_the_store(&status, Fate::Stays))
    });
    for node in group.nodes.clone() {
        assert!(!group.is_aside(node));
        assert!(group.has(node, "key 299"));
    }
    group.set(NodeId(1), "more");
    group.level();
}

/// If compaction finds damage before a scrub does, fjall merely reports a failure. The node then
/// starts a scrub, reports the file, and rebuilds the store. Otherwise, each compaction would force
/// it to reopen the store.
#[test]
fn compaction_that_meets_damage_has_the_node_look_for_it() {
    let mut group = Group::new(3, 5);
    group.fill();
    let leader = group.cluster.leader().unwrap();
    let ill = NodeId(1 + leader.0 % 3);
    // Long keys make a table with many blocks.
    for number in 0..200 {
        group.set(leader, &format!("{number:0>400}"));
    }
    group.level();
    group.spoil_keys(ill);
    // No command reads the damaged part.
    let mut number = 0;
    group.until("damage", |group| {
        number += 1;
        group.set(leader, &format!("new {}", number % 4));
        let found = !group.status(ill).found.is_empty();
        assert!(found || !group.is_aside(ill), "it was set aside for no known reason");
        assert!(number < 5_000, "it is opened again and again");
        found
    });
    let status = group.mended(ill);
    assert!(is_of_the_store(&status, Fate::Repaired), "{status:?}");
    assert_eq!(status.found_total, 1, "{status:?}");
    group.set(leader, "more");
    group.until("no old store", |group| !group.is_aside(ill));
    group.all_equal();
    assert_eq!(group.scrubbed(ill).found, vec![]);
    for number in (0..200).step_by(7) {
        assert!(group.has(ill, &format!("{number:0>400}")), "{number}");
    }
}

/// The log is not trimmed during the transfer of a snapshot. Otherwise, the snapshot could end
/// before the start of the log and be useless.
#[test]
fn the_log_begins_no_later_while_a_snapshot_is_on_its_way() {
    let mut group = Group::with(3, 6, |snapshots| {
        snapshots.log_bytes_max = 4 << 20;
        snapshots.transfer_bytes_per_second = Some(48 << 10);
    });
    group.fill();
    let leader = group.cluster.leader().unwrap();
    let ill = NodeId(1 + leader.0 % 3);
    group.spoil(ill);
    group.scrubbed(ill);
    let start = |group: &Group, node: NodeId| group.cluster.replica(node).log().start();
    let from = start(&group, ill);
    let others = |group: &Group| {
        let mut well = group.nodes.iter().filter(|node| **node != ill);
        well.all(|node| start(group, *node) > from)
    };
    let mut number = 0;
    group.until("logs of others that are trimmed", |group| {
        number += 1;
        group.set(leader, &format!("more {number}"));
        assert_eq!(group.status(ill).count(Fate::Repairing), 1);
        assert_eq!(start(group, ill), from, "after {number}");
        others(group)
    });
    let status = group.mended(ill);
    assert!(is_of_the_store(&status, Fate::Repaired), "{status:?}");
    group.set(leader, "last");
    group.until("a trimmed log", |group| start(group, ill) > from);
    group.all_equal();
}
