//! Lists used as queues while nodes are killed. Each element must be taken once and in push order,
//! and waiting clients must eventually be served, whichever node died.

use std::{
    thread,
    time::{Duration, Instant},
};

use quorate_testbed::queues::{QueueLoad, judge::Falsification};

use super::NODES;
use crate::{
    nodes::{self, wait_for},
    shell::Failed,
};

/// Default number of kills in each cluster, and in the short form.
pub(super) const KILL_COUNT: u64 = 20;
pub(super) const SHORT_KILL_COUNT: u64 = 3;
/// Number of elements taken after a kill that proves that clients continue.
const PROGRESS_ELEMENTS: u64 = 50;
/// Downtime of a killed node.
const NODE_DOWNTIME: Duration = Duration::from_millis(300);
/// Client timeout. A command that waits longer for a leader gets an error, so that clients continue
/// during a fault.
const CLIENT_TIMEOUT_MS: &str = "1000";

/// Runs one cluster per store, with `kills` kills each.
pub(super) fn run(kills: u64, seed: Option<u64>) -> Result<(), Failed> {
    for store in ["lsm", "memory"] {
        run_store(store, kills, seed.unwrap_or(1))?;
    }
    Ok(())
}

pub(super) fn run_store(store: &str, kills: u64, seed: u64) -> Result<(), Failed> {
    let began = Instant::now();
    let flags = ["--store", store, "--client-timeout-ms", CLIENT_TIMEOUT_MS];
    let mut nodes = nodes::start_serving(NODES, &flags)?;
    let load = QueueLoad::start(nodes.client_addresses(), seed)?;
    for kill in 0..kills {
        check_progress(&load)?;
        let leader = nodes.agreed_leader()?;
        let mut others = nodes.ids().into_iter().filter(|id| *id != leader);
        let dead = match kill % 3 {
            0 => vec![leader],
            1 => others.next().into_iter().collect(),
            _ => vec![leader, others.next().unwrap_or(leader)],
        };
        nodes.kill(&dead)?;
        thread::sleep(NODE_DOWNTIME);
        nodes.restart(&dead)?;
        nodes.wait_until_all_serve()?;
    }
    check_progress(&load)?;
    let history = load.finish()?;
    let sum = history.check().map_err(Failed)?;
    for lie in Falsification::ALL {
        let told = lie.inject_into(&history);
        let told = told.ok_or_else(|| Failed(format!("too little was seen for {lie:?}")))?;
        if told.check().is_ok() {
            return Err(Failed(format!("a history of queues with {lie:?} is taken")));
        }
    }
    nodes.wait_until_equal()?;
    let unanswered: u64 = history.unanswered_takes.iter().sum();
    println!(
        "queues, {store}, seed {seed}: {kills} kills, {} elements pushed and {} taken, in their order; \
         {} went with {unanswered} commands without an answer; {:.0} s",
        sum.pushed_count,
        sum.taken_count,
        sum.possibly_taken_count,
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

fn check_progress(load: &QueueLoad) -> Result<(), Failed> {
    let before = load.taken_count();
    wait_for("elements to be taken", || {
        (load.taken_count() > before + PROGRESS_ELEMENTS).then_some(())
    })
}
