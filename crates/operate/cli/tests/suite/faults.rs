//! Real processes that are killed, paused and restarted, without loss of acknowledged data.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
};

use crate::common::{Cluster, Signal, patient, signal, wait_end, wait_for, wait_long_for};
use quorate_client::{Client, Reply};

/// Writers of unique keys that run in the background.
struct Load {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    writers: Vec<JoinHandle<Vec<String>>>,
}

impl Load {
    /// Starts one writer per node, which switches to another node when its node is down.
    fn start(cluster: &Cluster) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(AtomicU64::new(0));
        let writers = cluster.nodes.all().iter().map(|node| {
            let client = cluster.client_from(node.ready.node);
            let (stop, acknowledged) = (Arc::clone(&stop), Arc::clone(&acknowledged));
            let name = node.ready.node;
            thread::spawn(move || write(name, client, &stop, &acknowledged))
        });
        Self { writers: writers.collect(), stop, acknowledged }
    }

    fn wait_for_more(&self, count: u64) {
        let from = self.acknowledged.load(Ordering::SeqCst);
        wait_for("more acknowledged writes", || {
            (self.acknowledged.load(Ordering::SeqCst) >= from + count).then_some(())
        });
    }

    /// Stops the writers and returns the acknowledged keys. Each value equals its key.
    fn finish(self) -> Vec<String> {
        self.stop.store(true, Ordering::SeqCst);
        self.writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    }
}

fn write(name: u32, mut client: Client, stop: &AtomicBool, count: &AtomicU64) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for number in 0.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let key = format!("k:{name}:{number}");
        // A write without an acknowledgement is not checked, because nothing was promised.
        if client.run(&[b"SET", key.as_bytes(), key.as_bytes()]).is_ok() {
            acknowledged.push(key);
            count.fetch_add(1, Ordering::SeqCst);
        }
    }
    acknowledged
}

/// Checks that each node has every acknowledged write, both by linearizable reads and in its own
/// state.
fn check_all_there(cluster: &Cluster, keys: &[String]) {
    assert!(!keys.is_empty(), "nothing was acknowledged");
    cluster.wait_until_equal();
    for stale_reads in [false, true] {
        for address in cluster.clients() {
            let options = quorate_client::Options { allow_stale_reads: stale_reads, ..patient() };
            let mut client = Client::new(&[address], options);
            for some in keys.chunks(200) {
                let mut question: Vec<&[u8]> = vec![b"MGET"];
                question.extend(some.iter().map(String::as_bytes));
                let expected = some.iter().map(|key| Reply::Bulk(key.clone().into_bytes()));
                assert_eq!(client.read(&question), Ok(Reply::Array(expected.collect())));
            }
        }
    }
}

/// Kills the leader and restarts it. Writers continue in both cases.
fn kill_the_leader_and_start_it_again(cluster: &mut Cluster, load: &Load) {
    let leader = cluster.leader();
    cluster.node(leader).kill().unwrap();
    load.wait_for_more(100);
    cluster.node(leader).restart().unwrap();
    load.wait_for_more(100);
}

#[test]
fn a_leader_killed_under_load_loses_nothing_acknowledged() {
    let mut cluster = Cluster::start(3, &[]);
    let load = Load::start(&cluster);
    load.wait_for_more(100);
    for _ in 0..2 {
        kill_the_leader_and_start_it_again(&mut cluster, &load);
    }
    let keys = load.finish();
    check_all_there(&cluster, &keys);
}

/// Members of a ring are killed while the protocol uses datagrams, by multicast or the best plane
/// that the machine supports. [ring-7] Votes take another route each time a member of the current
/// ring is gone.
#[test]
fn members_of_a_ring_killed_lose_nothing_acknowledged() {
    let flags = ["--store", "memory", "--plane", "multicast", "--votes", "ring"];
    let mut cluster = Cluster::start(5, &flags);
    // On a busy machine, a ring may break at once, and the next one is delayed by up to a minute.
    // The test therefore requires that a ring was set up, not that one exists at a given moment.
    wait_long_for("a ring", || {
        let laid = |node| cluster.nodes.metric(node, "quorate_rings_laid_total").ok();
        (1..=5).any(|node| laid(node) > Some(0)).then_some(())
    });
    let load = Load::start(&cluster);
    load.wait_for_more(100);
    let leader = cluster.leader();
    let ring = cluster.nodes.status(leader).map(|view| view.ring);
    let mut members: Vec<u32> = ring.into_iter().flatten().filter(|node| *node != leader).collect();
    members.extend((1..=5).filter(|node| *node != leader));
    members.dedup();
    for member in members.into_iter().take(2) {
        cluster.node(member).kill().unwrap();
        load.wait_for_more(100);
        cluster.node(member).restart().unwrap();
        load.wait_for_more(100);
    }
    let keys = load.finish();
    check_all_there(&cluster, &keys);
}

#[test]
fn a_leader_killed_on_planes_of_packets_loses_nothing_acknowledged() {
    for plane in ["udp", "multicast"] {
        let mut cluster = Cluster::start(3, &["--store", "memory", "--plane", plane]);
        let load = Load::start(&cluster);
        load.wait_for_more(100);
        kill_the_leader_and_start_it_again(&mut cluster, &load);
        let keys = load.finish();
        check_all_there(&cluster, &keys);
        let frames = |name| cluster.nodes.metric(cluster.leader(), name).unwrap();
        let by_datagrams = frames("quorate_net_frames_out_datagrams_total");
        assert!(by_datagrams > 300, "{plane}: {by_datagrams} frames by datagrams");
    }
}

/// [offload-9], [offload-12] Phase 2 runs in threads next to the nodes. A leader is killed with its
/// device. The other nodes fence their devices and continue.
#[test]
fn a_leader_killed_with_its_device_loses_nothing_acknowledged() {
    let mut cluster = Cluster::start(3, &["--store", "memory", "--device", "udp"]);
    wait_long_for("a leader that hands phase 2 to its device", || {
        let device = cluster.nodes.status(cluster.leader())?.device?;
        device.gives_from
    });
    let load = Load::start(&cluster);
    load.wait_for_more(100);
    let given = |node| {
        let device = cluster.nodes.status(node).and_then(|view| view.device);
        device.map_or(0, |device| device.given)
    };
    // The time depends on the machine, and the load continues during the wait.
    wait_long_for("a device that has assigned 50 slots", || {
        (given(cluster.leader()) > 50).then_some(())
    });
    kill_the_leader_and_start_it_again(&mut cluster, &load);
    let keys = load.finish();
    check_all_there(&cluster, &keys);
}

#[test]
fn all_nodes_killed_at_once_lose_nothing_acknowledged() {
    for store in ["lsm", "memory"] {
        let mut cluster = Cluster::start(3, &["--store", store]);
        let load = Load::start(&cluster);
        load.wait_for_more(200);
        cluster.kill_all_at_once();
        // The writers retry until the nodes are back.
        cluster.restart_all();
        load.wait_for_more(100);
        let keys = load.finish();
        check_all_there(&cluster, &keys);
    }
}

#[test]
fn a_paused_follower_slows_nobody_and_catches_up() {
    let mut cluster = Cluster::start(3, &[]);
    let load = Load::start(&cluster);
    load.wait_for_more(50);
    let leader = cluster.leader();
    let follower = leader % 3 + 1;
    signal(cluster.node(follower), Signal::STOP);
    load.wait_for_more(300);
    signal(cluster.node(follower), Signal::CONT);
    let keys = load.finish();
    check_all_there(&cluster, &keys);
}

#[test]
fn a_paused_leader_is_replaced_and_does_not_serve_old_values() {
    let mut cluster = Cluster::start(3, &[]);
    let old = cluster.leader();
    let next = old % 3 + 1;
    let mut client = cluster.client_from(next);
    client.run(&[b"SET", b"x", b"old"]).unwrap();
    signal(cluster.node(old), Signal::STOP);
    client.run(&[b"SET", b"x", b"new"]).unwrap();
    signal(cluster.node(old), Signal::CONT);
    // [read-2] The old leader may still consider itself the leader, which a linearizable read
    // detects.
    let value = cluster.client_of(old).read(&[b"GET", b"x"]).unwrap();
    assert_eq!(value, Reply::Bulk(b"new".to_vec()));
}

/// [session-2] The counter equals the number of acknowledged increments, even if leaders die
/// between a command and its reply.
#[test]
fn increments_run_exactly_once_across_leaders() {
    let mut cluster = Cluster::start(3, &[]);
    let stop = Arc::new(AtomicBool::new(false));
    let count = Arc::new(AtomicU64::new(0));
    let writers: Vec<_> = (1..=3)
        .map(|node| {
            let mut client = cluster.client_from(node);
            let (stop, count) = (Arc::clone(&stop), Arc::clone(&count));
            thread::spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    client.run(&[b"INCR", b"counter"]).unwrap();
                    count.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    for _ in 0..2 {
        let from = count.load(Ordering::SeqCst);
        wait_for("increments", || (count.load(Ordering::SeqCst) > from + 50).then_some(()));
        let leader = cluster.leader();
        cluster.node(leader).kill().unwrap();
        cluster.node(leader).restart().unwrap();
    }
    let from = count.load(Ordering::SeqCst);
    wait_for("increments", || (count.load(Ordering::SeqCst) > from + 50).then_some(()));
    stop.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.join().unwrap();
    }
    let expected = count.load(Ordering::SeqCst).to_string().into_bytes();
    let value = cluster.client_of(1).read(&[b"GET", b"counter"]).unwrap();
    assert_eq!(value, Reply::Bulk(expected));
}

#[test]
fn a_node_told_to_stop_hands_over_and_ends_with_0() {
    let mut cluster = Cluster::start(3, &[]);
    let load = Load::start(&cluster);
    load.wait_for_more(50);
    let leader = cluster.leader();
    signal(cluster.node(leader), Signal::TERM);
    let status = wait_end(cluster.node(leader));
    assert_eq!(status.code(), Some(0));
    load.wait_for_more(50);
    cluster.node(leader).restart().unwrap();
    let keys = load.finish();
    check_all_there(&cluster, &keys);
}

/// [volatile-1] A killed node may have lost votes, so it returns as a learner and reports the
/// reason.
#[test]
fn a_volatile_node_killed_comes_back_without_a_vote() {
    let mut cluster = Cluster::start(3, &["--durability", "volatile", "--store", "memory"]);
    let load = Load::start(&cluster);
    load.wait_for_more(50);
    let leader = cluster.leader();
    let follower = leader % 3 + 1;
    cluster.node(follower).kill().unwrap();
    cluster.node(follower).restart().unwrap();
    // The other nodes may soon readmit it.
    wait_for("it to say so", || {
        let status = cluster.status(follower)?;
        let error = status["error"].as_str()?;
        (status["role"] == "learner" && error.contains("forgotten votes")).then_some(())
    });
    load.wait_for_more(50);
    let keys = load.finish();
    check_all_there(&cluster, &keys);
}

/// [volatile-4] A clean stop loses no votes.
#[test]
fn a_volatile_node_stopped_cleanly_keeps_its_vote() {
    let mut cluster = Cluster::start(3, &["--durability", "volatile", "--store", "memory"]);
    let mut client = cluster.client_from(1);
    client.run(&[b"SET", b"x", b"1"]).unwrap();
    for node in cluster.nodes.all() {
        signal(node, Signal::TERM);
    }
    for node in cluster.nodes.all_mut() {
        assert_eq!(wait_end(node).code(), Some(0));
    }
    cluster.restart_all();
    cluster.wait_until_all_serve();
    assert_eq!(cluster.client_of(2).read(&[b"GET", b"x"]).unwrap(), Reply::Bulk(b"1".to_vec()));
    for node in 1..=3 {
        let status = cluster.status(node).unwrap();
        assert_ne!(status["role"], "learner");
        assert!(status["error"].is_null(), "{status}");
    }
}

/// The quorum that could readmit the other nodes is gone, so no node may appear to serve.
#[test]
fn a_volatile_cluster_whose_quorum_died_at_once_stops_and_says_so() {
    let mut cluster = Cluster::start(3, &["--durability", "volatile", "--store", "memory"]);
    cluster.client_from(1).run(&[b"SET", b"x", b"1"]).unwrap();
    cluster.kill_all_at_once();
    cluster.restart_all();
    for node in 1..=3 {
        let error = wait_for("the reason", || {
            let status = cluster.status(node)?;
            let error = status["error"].as_str()?.to_owned();
            error.contains("no leader can be elected").then_some(error)
        });
        assert!(error.contains("new cluster in empty folders"), "{error}");
        let admin = cluster.node(node).ready.admin.clone();
        assert_eq!(crate::common::http(&admin, "/ready").unwrap().0, 503);
    }
}

/// Checks that node 1 is a learner for the reason `why`, given on its standard error.
fn forgot_votes(cluster: &mut Cluster, why: &str) {
    let learner = wait_for("node 1 to say what it is", || {
        let status = cluster.status(1)?;
        (status["role"] == "learner").then_some(status)
    });
    let error = learner["error"].as_str().unwrap();
    assert!(error.contains("may have forgotten votes"), "{error}");
    let said = std::fs::read_to_string(&cluster.node(1).spec.log_path).unwrap();
    assert!(said.contains(why), "{said}");
}

/// [volatile-1] A write is acknowledged by nodes 1 and 2. Node 1 returns without its log, as if its
/// log disk were not mounted, and node 3 returns without having received the write. They are not a
/// majority, since one of them has lost its votes. Once node 2 is back, the write is on all nodes.
#[test]
fn a_node_without_its_log_does_not_help_to_forget() {
    for store in ["memory", "lsm"] {
        let mut cluster = Cluster::start(3, &["--store", store]);
        let quick = quorate_client::Options {
            command_timeout: std::time::Duration::from_secs(3),
            ..patient()
        };
        cluster.node(3).kill().unwrap();
        let written = cluster.client_from(1).run(&[b"SET", b"k", b"kept"]);
        assert_eq!(written, Ok(Reply::Simple("OK".to_owned())));
        for id in [1, 2] {
            cluster.node(id).kill().unwrap();
        }
        let log = cluster.node(1).spec.data_folder.join("log");
        for entry in std::fs::read_dir(&log).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
        for id in [1, 3] {
            cluster.node(id).restart().unwrap();
        }
        forgot_votes(&mut cluster, "segments 1 to");
        for id in [1, 3] {
            let node = cluster.node(id).ready.client.clone();
            let mut client = Client::new(&[node], quick.clone());
            // If the command is executed later, it will find the key.
            let other = client.run(&[b"SET", b"k", b"other", b"NX"]);
            assert!(other.is_err(), "node {id}: {other:?}");
        }
        cluster.node(2).restart().unwrap();
        cluster.wait_until_all_serve();
        cluster.wait_until_equal();
        for id in 1..=3 {
            let kept = cluster.client_of(id).read(&[b"GET", b"k"]);
            assert_eq!(kept, Ok(Reply::Bulk(b"kept".to_vec())), "node {id}");
        }
    }
}

/// [volatile-1] The log of node 1 is replaced by an older copy, as a well-meaning operator might
/// do, but its store is not. The newer store reveals that the node has lost votes.
#[test]
fn a_log_older_than_its_store_is_found_out() {
    let mut cluster = Cluster::start(3, &[]);
    let ok = Ok(Reply::Simple("OK".to_owned()));
    let old = cluster.client_from(2).run(&[b"SET", b"old", b"kept"]);
    assert_eq!(old, ok);
    cluster.wait_until_equal();
    let data = cluster.node(1).spec.data_folder.clone();
    let (log, copy) = (data.join("log"), data.join("../copy of the log"));
    let copy_files = |from: &std::path::Path, to: &std::path::Path| {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    };
    let stop = |cluster: &mut Cluster| {
        signal(cluster.node(1), Signal::TERM);
        wait_end(cluster.node(1));
    };
    stop(&mut cluster);
    copy_files(&log, &copy);
    cluster.node(1).restart().unwrap();
    let new = cluster.client_from(1).run(&[b"SET", b"new", b"kept"]);
    assert_eq!(new, ok);
    // Node 1 itself must have applied the write. Otherwise its store is no newer than the copy.
    let applied = cluster.client_of(1).read(&[b"GET", b"new"]);
    assert_eq!(applied, Ok(Reply::Bulk(b"kept".to_vec())));
    cluster.wait_until_equal();
    stop(&mut cluster);
    copy_files(&copy, &log);
    cluster.node(1).restart().unwrap();
    forgot_votes(&mut cluster, "the store has all slots below");
    cluster.wait_until_equal();
    for id in 1..=3 {
        let found = cluster.client_of(id).read(&[b"GET", b"new"]);
        assert_eq!(found, Ok(Reply::Bulk(b"kept".to_vec())), "node {id}");
    }
}
