//! `--reads lease` on real processes: a leader that is stopped for longer than its lease, in the middle of its
//! work, answers no read that came meanwhile with what it had before ([read-6]).

#![allow(clippy::unwrap_used)]

mod common;

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use common::{Cluster, wait_for};
use quorate_testbed::resp::{Link, Reply};

const FLAGS: [&str; 4] = ["--reads", "lease", "--election-ms", "300-600"];
/// Pauses of a leader.
const ROUNDS: u64 = 8;
/// Connections that ask it all the time: wherever it is stopped, it is at work on reads.
const READERS: usize = 3;
/// Reads that a connection sends at once.
const PIPELINE: usize = 64;
/// Connections of which each has a read that waits in the socket of the stopped leader.
const WAITING: usize = 8;

fn leased(cluster: &Cluster, node: u32) -> u64 {
    cluster
        .nodes
        .metric(node, "quorate_reads_leased_total ")
        .unwrap()
}

fn number(reply: Reply) -> Option<u64> {
    match reply {
        Reply::Bulk(text) => Some(text.parse().unwrap()),
        Reply::Error(_) => None,
        other => panic!("{other:?}"),
    }
}

/// Reads without a pause, until told to stop or the connection breaks; values never go back on a connection.
fn read_on(address: &str, stop: &AtomicBool, answered: &AtomicU64) {
    let command: &[&str] = &["GET", "x"];
    while !stop.load(Ordering::SeqCst) {
        let Ok(mut link) = Link::connect(address) else {
            continue;
        };
        let mut last = 0;
        while !stop.load(Ordering::SeqCst) {
            if link.send(&[command; PIPELINE]).is_err() {
                break;
            }
            let mut replies = (0..PIPELINE).map(|_| link.receive());
            let broken = replies.any(|reply| match reply {
                Ok(reply) => {
                    if let Some(found) = number(reply) {
                        assert!(found >= last, "{found} after {last}");
                        last = found;
                        answered.fetch_add(1, Ordering::SeqCst);
                    }
                    false
                }
                Err(_) => true,
            });
            if broken {
                break;
            }
        }
    }
}

#[test]
fn a_leader_that_was_stopped_longer_than_its_lease_answers_nothing_old() {
    let mut cluster = Cluster::start(3, &FLAGS);
    let (mut fresh, mut round, mut counted) = (0, 0, 0);
    while counted < ROUNDS {
        round += 1;
        let leader = cluster.leader();
        let address = cluster.clients()[leader as usize - 1].clone();
        // The clients ask the others; the leader that is stopped would keep them waiting.
        let set = |cluster: &Cluster, from: u32, value: u64| {
            let value = value.to_string();
            let mut client = cluster.client_of(from);
            client.run(&[b"SET", b"x", value.as_bytes()]).unwrap();
        };
        set(&cluster, leader, 2 * round);
        let before = leased(&cluster, leader);
        let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..READERS {
                scope.spawn(|| read_on(&address, &stop, &answered));
            }
            wait_for("reads", || {
                (answered.load(Ordering::SeqCst) > 20 * PIPELINE as u64).then_some(())
            });
            // Its lease is what answers, unless leadership moved meanwhile, as it may on a busy machine.
            if leased(&cluster, leader) == before {
                stop.store(true, Ordering::SeqCst);
                assert_ne!(cluster.leader(), leader, "no read was leased");
                return;
            }
            let mut waiting: Vec<Link> = (0..WAITING)
                .map(|_| Link::connect(&address).unwrap())
                .collect();
            // Known to the node, and asked before.
            for link in &mut waiting {
                assert_eq!(number(link.ask(&["GET", "x"]).unwrap()), Some(2 * round));
            }

            cluster.nodes.pause(leader).unwrap();
            // Another one leads, and takes a write: the lease is over.
            let other = 1 + leader % 3;
            set(&cluster, other, 2 * round + 1);
            // These come after it, and wait in the sockets of the one that is stopped.
            for link in &mut waiting {
                link.send(&[&["GET", "x"]]).unwrap();
            }
            cluster.nodes.resume(leader).unwrap();
            for mut link in waiting {
                if let Some(found) = link.receive().ok().and_then(number) {
                    assert_eq!(found, 2 * round + 1, "round {round}: an old value");
                    fresh += 1;
                }
            }
            stop.store(true, Ordering::SeqCst);
            counted += 1;
        });
        cluster.wait_until_all_serve();
    }
    assert!(fresh > 0, "no read was answered at all");
}
