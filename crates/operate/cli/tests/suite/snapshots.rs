//! Snapshots and log trimming with real processes. A node with its data in memory trims its log and
//! recovers after a restart.

use std::{fs, path::Path};

use crate::common::{Cluster, quorate, quorate_json, wait_for};
use quorate_admin::{client, view::NodeView};
use quorate_testbed::{
    nodes::START_TIMEOUT,
    resp::{Reply, RespConnection},
    writers::Writers,
};

/// Size of a value in bytes.
const VALUE: usize = 1 << 20;
/// Number of values. They exceed the log size at which a snapshot is taken.
const VALUES: usize = 150;
const KEYS: usize = 4;

fn value(number: usize) -> String {
    let mut value = format!("{number:08}");
    let letter = char::from(b'a' + (number % 26) as u8);
    value.extend(std::iter::repeat_n(letter, VALUE - value.len()));
    value
}

fn write(link: &mut RespConnection, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let key = format!("key-{}", number % KEYS);
        let reply = link.run_command(&["SET", &key, &value(number)]).unwrap();
        assert_eq!(reply, Reply::Simple("OK".to_owned()));
    }
}

fn status(admin: &str) -> NodeView {
    let response = client::get(admin, "/status", START_TIMEOUT).unwrap();
    response.parse_json().unwrap()
}

fn bytes_in(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| match entry.metadata() {
            Ok(data) if data.is_dir() => bytes_in(&entry.path()),
            // The file was removed in the meantime.
            data => data.map_or(0, |data| data.len()),
        })
        .sum()
}

#[test]
fn the_log_is_trimmed_and_a_restart_reads_the_snapshot() {
    let flags = "--store memory --log-ready 0 --log-segment 8388608";
    let flags: Vec<&str> = flags.split(' ').collect();
    let mut cluster = Cluster::start(1, &flags);
    let admin = cluster.nodes.admin_addresses().remove(0);
    let mut link = RespConnection::connect(&cluster.nodes.client_addresses()[0]).unwrap();
    write(&mut link, 0..VALUES);

    let applied = status(&admin).applied;
    let (code, json) = quorate_json(&["snapshot", "--admin", &admin, "--json"]);
    assert_eq!(code, 0, "{json}");
    assert!(json["slot"].as_u64().unwrap() >= applied, "{json}");
    let held = (KEYS * VALUE) as u64;
    let bytes = json["bytes"].as_u64().unwrap();
    assert!((held..2 * held).contains(&bytes), "{json}");

    // Nothing was written, so the node returns the same snapshot.
    let again = quorate(&["snapshot", "--admin", &admin]);
    assert!(again.status.success());
    let said = String::from_utf8(again.stdout).unwrap();
    let expected = format!("snapshot at slot {}, ", json["slot"]);
    assert!(said.starts_with(&expected), "{said}");

    let trimmed = wait_for("the log to be trimmed", || {
        let status = status(&admin);
        (status.log_start > 1).then_some(status)
    });
    assert_eq!(trimmed.snapshot.unwrap().bytes, bytes);
    let written = (VALUES * VALUE) as u64;
    assert!(trimmed.log_bytes < written / 2, "{}", trimmed.log_bytes);

    // These values are only in the log.
    write(&mut link, VALUES..VALUES + 3);
    let before: Vec<_> = values(&mut link);
    cluster.nodes.kill(&[1]).unwrap();
    let data = cluster.nodes.all()[0].spec.data_folder.clone();
    let kept = bytes_in(&data);
    assert!(kept < written, "{kept} bytes of {written} are there");
    cluster.restart_all();
    cluster.wait_until_all_serve();
    let mut link = RespConnection::connect(&cluster.nodes.client_addresses()[0]).unwrap();
    assert!(values(&mut link) == before, "the contents differ");
    let expected: Vec<_> = [VALUES, VALUES + 1, VALUES + 2, VALUES - 1]
        .iter()
        .map(|number| Reply::Bulk(value(*number)))
        .collect();
    let found = (0..KEYS).map(|at| before[(VALUES + at) % KEYS].clone());
    assert!(found.eq(expected), "another value than the last");
    let log = cluster.nodes.log_path(1);
    assert!(log.contains("snapshot: loaded, the service continues at slot"), "{log}");
}

fn values(link: &mut RespConnection) -> Vec<Reply> {
    let get = |at| link.run_command(&["GET", &format!("key-{at}")]).unwrap();
    (0..KEYS).map(get).collect()
}

/// A node with a store on disk does not need a snapshot itself, but takes one on request.
#[test]
fn a_node_with_a_store_on_disk_takes_one_when_asked() {
    let mut cluster = Cluster::start(1, &["--store", "lsm"]);
    let admin = cluster.nodes.admin_addresses().remove(0);
    assert_eq!(status(&admin).snapshot, None);
    let mut link = RespConnection::connect(&cluster.nodes.client_addresses()[0]).unwrap();
    write(&mut link, 0..KEYS);
    let applied = status(&admin).applied;
    let (code, json) = quorate_json(&["snapshot", "--admin", &admin, "--json"]);
    assert_eq!(code, 0, "{json}");
    assert!(json["slot"].as_u64().unwrap() >= applied, "{json}");
    assert!(json["bytes"].as_u64().unwrap() > (KEYS * VALUE) as u64);
    let held = status(&admin);
    let held = held.snapshot.unwrap();
    assert_eq!(
        (json["slot"].as_u64(), json["bytes"].as_u64()),
        (Some(held.slot), Some(held.bytes))
    );
    assert_eq!(status(&admin).snapshot_taking, None);
    cluster.nodes.kill(&[1]).unwrap();
    cluster.restart_all();
    cluster.wait_until_all_serve();
    let admin = cluster.nodes.admin_addresses().remove(0);
    assert_eq!(status(&admin).snapshot, Some(held), "it outlives the process");
}

/// A short form of `cargo xtask cluster snapshots`.
#[test]
fn a_follower_paused_far_past_the_trim_point_comes_back_through_a_snapshot() {
    let flags = "--store memory --log-ready 0 --log-segment 8388608 --log-max 268435456 \
                 --snapshot-ratio 1";
    let flags: Vec<&str> = flags.split_ascii_whitespace().collect();
    let mut cluster = Cluster::start(3, &flags);
    let nodes = &mut cluster.nodes;
    let leader = nodes.agreed_leader().unwrap();
    let follower = leader % 3 + 1;
    let writers = Writers::start(&nodes.client_addresses());
    wait_for("writes", || (writers.acknowledged_count() > 100).then_some(()));
    nodes.pause(follower).unwrap();
    // The follower cannot have more than the leader had before the pause.
    let decided = wait_for("the leader", || nodes.status(leader)).decided;
    for other in (1..=3).filter(|id| *id != follower) {
        wait_for("a log without what the follower lacks", || {
            (nodes.status(other)?.log_start > decided).then_some(())
        });
    }
    let before = writers.acknowledged_count();
    nodes.resume(follower).unwrap();
    wait_for("a peer's snapshot", || {
        // Repeated log lines are rate-limited, but counters are not.
        let installed = nodes.metric(follower, "quorate_snapshots_installed_total ");
        (installed.ok()? > 0).then_some(())
    });
    let decided = wait_for("the leader", || nodes.status(leader)).decided;
    wait_for("a follower that is level", || {
        (nodes.status(follower)?.applied >= decided).then_some(())
    });
    assert!(writers.acknowledged_count() > before, "writes go on meanwhile");
    let written = writers.end().unwrap();
    nodes.wait_until_all_serve().unwrap();
    nodes.wait_until_equal().unwrap();
    for address in nodes.client_addresses() {
        assert!(written.compare(&address).unwrap() > 100);
    }
}
