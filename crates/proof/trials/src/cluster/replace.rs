//! Replaces the machines of a cluster: all of them in turn while clients write, and one at a time
//! with a node killed at each step. All acknowledged data is compared on all nodes.

use std::time::Instant;

use quorate_testbed::{
    nodes::NodeCluster,
    replace::{
        self, Step,
        kill::{self, KillMoment, KilledProcess},
    },
    writers::Writers,
};

use super::NODES;
use crate::{nodes, nodes::wait_for, shell::Failed};

/// Number of writes before the first newcomer, so that logs are trimmed.
const WRITES_BEFORE: u64 = 600;
/// Upper bound on the number of eras. It exceeds the number of steps of a plan for three nodes.
const ERAS_MAX: u64 = 16;

pub(super) fn run() -> Result<(), Failed> {
    replace_all()?;
    for role in KilledProcess::ALL {
        replace_under_kills(role)?;
    }
    Ok(())
}

/// Replaces all nodes. Clients that retry see no error.
fn replace_all() -> Result<(), Failed> {
    let began = Instant::now();
    let mut nodes = nodes::start_serving(NODES, &nodes::SMALL_LOG_FLAGS)?;
    let program = nodes::program_path();
    let newcomers =
        replace::newcomer_specs(&nodes, &program, NODES as usize, &nodes::SMALL_LOG_FLAGS)?;
    let addresses = replace::client_addresses(&nodes, &newcomers);
    let writers = Writers::start_retrying(NODES as usize, &addresses);
    wait_for("writes", || (writers.acknowledged_count() > WRITES_BEFORE).then_some(()))?;
    let mut eras = Vec::new();
    let mut written = writers.acknowledged_count();
    let mut silent = Vec::new();
    replace::replace_all(&mut nodes, &program, newcomers, &mut |_, step| {
        let now = writers.acknowledged_count();
        if now == written {
            silent.push(step.to_string());
        }
        written = now;
        if let Step::Replaced(replaced) = step {
            eras.push(replaced.era_count.to_string());
        }
    })?;
    if let Some(step) = silent.first() {
        return Err(Failed(format!("nothing was written until {step}")));
    }
    let acknowledged = writers.acknowledged_count();
    let keys = writers.compare(&mut nodes)?;
    check_nodes_intact(&mut nodes)?;
    println!(
        "- all nodes replaced by newcomers, in {} eras; {acknowledged} acknowledged writes, no error; \
         {keys} keys equal on {NODES} nodes; {:.0} s",
        eras.join(" + "),
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Runs one replacement for each step of the procedure, and kills the node in role `role` at that
/// step.
fn replace_under_kills(role: KilledProcess) -> Result<(), Failed> {
    let began = Instant::now();
    let mut nodes = nodes::start_serving(NODES, &nodes::SMALL_LOG_FLAGS)?;
    let program = nodes::program_path();
    let most = KillMoment::WHILE_JOINING.len() + ERAS_MAX as usize + 1;
    let newcomers = replace::newcomer_specs(&nodes, &program, most, &nodes::SMALL_LOG_FLAGS)?;
    let addresses = replace::client_addresses(&nodes, &newcomers);
    let writers = Writers::start_unretried(NODES as usize, &addresses);
    wait_for("writes", || (writers.acknowledged_count() > WRITES_BEFORE).then_some(()))?;
    let mut newcomers = newcomers.into_iter();
    let mut trial = |at| -> Result<u64, Failed> {
        let spec = newcomers.next();
        let spec = spec.ok_or_else(|| Failed(format!("a plan has more than {ERAS_MAX} eras")))?;
        let before = Instant::now();
        let killed = kill::replace_with_kill(&mut nodes, &program, spec, role, at)?;
        println!("  killed {role:?} at {at:?}: {killed}; {:.1} s", before.elapsed().as_secs_f64());
        Ok(killed.era_count)
    };
    let mut moments: Vec<KillMoment> = KillMoment::WHILE_JOINING.into();
    if role == KilledProcess::Command {
        // The command starts only once the new node has joined.
        moments.clear();
    }
    let (mut trials, mut eras) = (0, 1);
    for at in moments {
        eras = eras.max(trial(at)?);
        trials += 1;
    }
    let mut era = 1;
    while era <= eras {
        eras = eras.max(trial(KillMoment::ErasInForce(era))?);
        (era, trials) = (era + 1, trials + 1);
    }
    trial(KillMoment::OldRemoved)?;
    trials += 1;
    let acknowledged = writers.acknowledged_count();
    let keys = writers.compare(&mut nodes)?;
    check_nodes_intact(&mut nodes)?;
    println!(
        "- {role:?} killed at {trials} steps of a replacement: {acknowledged} acknowledged writes, \
         {keys} keys equal on {NODES} nodes; {:.0} s",
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Checks that no node has panicked, and that the logs are intact.
fn check_nodes_intact(nodes: &mut NodeCluster) -> Result<(), Failed> {
    for id in 1..=nodes.all().len() as u32 {
        if let Some(line) = nodes.log_path(id).lines().find(|line| line.contains("panicked")) {
            return Err(Failed(format!("node {id}: {line}")));
        }
    }
    nodes.terminate(&nodes.ids())?;
    Ok(nodes.verify_logs(&nodes::program_path())?)
}
