//! `cargo xtask soak`: runs clusters for hours under load and faults, on a single machine.
//!
//! The clusters alternate in running a *cycle*: clients write, nodes are killed, paused and
//! stopped, members are replaced, a disk fills up, wall clocks jump, and programs are exchanged.
//! Then the soak compares all acknowledged data on all nodes, deletes it, and measures the idle
//! nodes. A figure that grows from cycle to cycle is a leak. Nodes restart only for faults and for
//! exchanges of programs.

mod clocks;
mod cluster;
mod page;
mod sample;

use std::{
    fs,
    path::{Path, PathBuf},
    rc::Rc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use quorate_core::dice::Dice;
use quorate_testbed::{
    interrupt,
    network::{self, Network},
};

use crate::{
    shell::{self, Failed, report_skip},
    upgrade,
};
use clocks::ClockLibrary;
use cluster::{KINDS, RunResources, SoakCluster};
use page::SoakPage;

const USAGE: &str = "soak [--hours N | --minutes N] [--seed N] [--from REV]";
/// Default duration.
const DEFAULT_HOURS: u64 = 24;

/// Options of `cargo xtask soak`.
struct SoakOptions {
    duration: Duration,
    seed: u64,
    /// Revision whose programs alternate with the current ones.
    from: Option<String>,
}

/// Runs until the time is over, or until a check fails.
pub(crate) fn run(words: &[&str]) -> Result<(), Failed> {
    let wish = parse(words)?;
    let old = match &wish.from {
        Some(revision) => Some(upgrade::build_old_program(revision)?),
        None => None,
    };
    if !network::is_inside() {
        shell::build_programs()?;
        match network::check_support() {
            None => return Err(network::reenter().into()),
            Some(why) => report_skip("disks that fill up", &why)?,
        }
    }
    interrupt::clean_up_on_signals()?;
    // In its own namespace, this process's mounts are private and removed when it exits.
    let network = network::is_inside().then(|| Network::new(0)).transpose()?;
    let place = shell::build_folder().join("soak");
    fs::create_dir_all(&place)?;
    let mut dice = Dice::new(wish.seed);
    let means = Rc::new(RunResources {
        old_program: old,
        can_mount: network.is_some(),
        clock_library: build_clocks(&place)?,
    });
    let mut clusters = Vec::new();
    for kind in &KINDS {
        clusters.push(SoakCluster::start(kind, Rc::clone(&means), dice.word())?);
    }
    let mut page = SoakPage::new(&place, wish.seed, wish.duration)?;
    println!("seed {}; {}", wish.seed, page.path().display());
    let played = run_clusters(&wish, &mut clusters, &mut page);
    let folders = match &played {
        Ok(()) => Vec::new(),
        Err(_) => clusters.into_iter().map(|cluster| cluster.keep_folders(&place)).collect(),
    };
    played.map_err(|Failed(why)| Failed(format_failure(wish.seed, &why, &folders)))
}

/// Builds the clock library; `None` without a C compiler.
fn build_clocks(place: &Path) -> Result<Option<ClockLibrary>, Failed> {
    if shell::is_installed("cc") {
        return ClockLibrary::build(place).map(Some);
    }
    report_skip("clocks that jump", "there is no `cc` (Debian: gcc, libc6-dev)")?;
    Ok(None)
}

fn format_failure(seed: u64, why: &str, folders: &[PathBuf]) -> String {
    let folders: Vec<String> = folders.iter().map(|one| one.display().to_string()).collect();
    format!("seed {seed}: {why}\n  folders: {}", folders.join(", "))
}

fn run_clusters(
    wish: &SoakOptions,
    clusters: &mut [SoakCluster],
    page: &mut SoakPage,
) -> Result<(), Failed> {
    let began = Instant::now();
    let mut failed = Ok(());
    while failed.is_ok() && began.elapsed() < wish.duration {
        for cluster in &mut *clusters {
            failed = cluster.run_cycle();
            if failed.is_err() {
                break;
            }
        }
        page.write_page(began.elapsed(), clusters, failed.as_ref().err())?;
    }
    failed?;
    let grown: Vec<String> = clusters.iter().flat_map(SoakCluster::growing_figures).collect();
    if grown.is_empty() {
        println!("nothing was lost, and nothing grew");
        return Ok(());
    }
    Err(Failed(format!("it grew: {}", grown.join("; "))))
}

fn parse(words: &[&str]) -> Result<SoakOptions, Failed> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut wish = SoakOptions {
        duration: Duration::from_secs(DEFAULT_HOURS * 3600),
        seed: now.unwrap_or_default().as_secs() % 1_000_000,
        from: None,
    };
    let usage = || Failed(USAGE.to_owned());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(usage)?;
        let number = || value.parse::<u64>().map_err(|_| usage());
        match *word {
            "--hours" => wish.duration = Duration::from_secs(number()?.saturating_mul(3600)),
            "--minutes" => wish.duration = Duration::from_secs(number()?.saturating_mul(60)),
            "--seed" => wish.seed = number()?,
            "--from" => wish.from = Some((*value).to_owned()),
            _ => return Err(usage()),
        }
    }
    Ok(wish)
}
