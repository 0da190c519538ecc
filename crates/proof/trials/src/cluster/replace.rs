//! Replaces the machines of a cluster: all of them in turn while clients write, and one at a time
//! with a node killed at each step. All acknowledged data is compared on all nodes.

use std::time::Instant;

use quorate_testbed::{
    nodes::Nodes,
    replace::{
        self, Step,
        kill::{self, Moment, Role},
    },
    writers::Writers,
};

use super::NODES;
use crate::{nodes, nodes::wait_for, shell::Failed};

/// Number of writes before the first newcomer, so that logs are trimmed.
const BEFORE: u64 = 600;
/// Upper bound on the number of eras. It exceeds the number of steps of a plan for three nodes.
const ERAS_MAX: u64 = 16;

pub(super) fn run() -> Result<(), Failed> {
    replace_all()?;
    for role in Role::ALL {
        kills(role)?;
    }
    Ok(())
}

/// Replaces all nodes. Clients that retry see no error.
fn replace_all() -> Result<(), Failed> {
    let began = Instant::now();
    let mut nodes = nodes::serving(NODES, &nodes::SMALL_LOGS)?;
    let program = nodes::program();
    let newcomers = replace::newcomers(&nodes, &program, NODES as usize, &nodes::SMALL_LOGS)?;
    let addresses = replace::client_addresses(&nodes, &newcomers);
    let writers = Writers::repeating(NODES as usize, &addresses);
    wait_for("writes", || (writers.acknowledged() > BEFORE).then_some(()))?;
    let mut eras = Vec::new();
    let mut written = writers.acknowledged();
    let mut silent = Vec::new();
    replace::all(&mut nodes, &program, newcomers, &mut |_, step| {
        let now = writers.acknowledged();
        if now == written {
            silent.push(step.to_string());
        }
        written = now;
        if let Step::Replaced(replaced) = step {
            eras.push(replaced.eras.to_string());
        }
    })?;
    if let Some(step) = silent.first() {
        return Err(Failed(format!("nothing was written until {step}")));
    }
    let acknowledged = writers.acknowledged();
    let keys = writers.compare(&mut nodes)?;
    end(&mut nodes)?;
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
fn kills(role: Role) -> Result<(), Failed> {
    let began = Instant::now();
    let mut nodes = nodes::serving(NODES, &nodes::SMALL_LOGS)?;
    let program = nodes::program();
    let most = Moment::JOINING.len() + ERAS_MAX as usize + 1;
    let newcomers = replace::newcomers(&nodes, &program, most, &nodes::SMALL_LOGS)?;
    let addresses = replace::client_addresses(&nodes, &newcomers);
    let writers = Writers::few(NODES as usize, &addresses);
    wait_for("writes", || (writers.acknowledged() > BEFORE).then_some(()))?;
    let mut newcomers = newcomers.into_iter();
    let mut trial = |at| -> Result<u64, Failed> {
        let spec = newcomers.next();
        let spec = spec.ok_or_else(|| Failed(format!("a plan has more than {ERAS_MAX} eras")))?;
        let before = Instant::now();
        let killed = kill::one(&mut nodes, &program, spec, role, at)?;
        println!("  killed {role:?} at {at:?}: {killed}; {:.1} s", before.elapsed().as_secs_f64());
        Ok(killed.eras)
    };
    let mut moments: Vec<Moment> = Moment::JOINING.into();
    if role == Role::Command {
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
        eras = eras.max(trial(Moment::Era(era))?);
        (era, trials) = (era + 1, trials + 1);
    }
    trial(Moment::Removed)?;
    trials += 1;
    let acknowledged = writers.acknowledged();
    let keys = writers.compare(&mut nodes)?;
    end(&mut nodes)?;
    println!(
        "- {role:?} killed at {trials} steps of a replacement: {acknowledged} acknowledged writes, \
         {keys} keys equal on {NODES} nodes; {:.0} s",
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Checks that no node has panicked, and that the logs are intact.
fn end(nodes: &mut Nodes) -> Result<(), Failed> {
    for id in 1..=nodes.all().len() as u32 {
        if let Some(line) = nodes.log(id).lines().find(|line| line.contains("panicked")) {
            return Err(Failed(format!("node {id}: {line}")));
        }
    }
    nodes.terminate(&nodes.ids())?;
    Ok(nodes.verify_logs(&nodes::program())?)
}
