//! Groups of devices under faults keep chosen values, and the check detects a device or an owner
//! that violates a rule.

use quorate_conformance::{
    group::{EVENT_COUNT, Group, OmittedRule},
    mutant,
    p4::{Sources, committed_sources},
};

/// Number of runs in `cargo test`. `cargo xtask offload groups` runs more.
const RUNS: u64 = 40;
/// Maximum number of runs that search for a fault.
const SEARCH: u64 = 400;

fn run(seed: u64, sources: &Sources, omitted: Option<OmittedRule>) -> Result<Group, String> {
    let mut group = Group::new_mixed(seed, sources, omitted)?;
    group.run(EVENT_COUNT)?;
    Ok(group)
}

/// Finds the first run that detects the fault, and prints how.
fn search(name: &str, sources: &Sources, omitted: Option<OmittedRule>) {
    let seen =
        (0..SEARCH).find_map(|seed| run(seed, sources, omitted).err().map(|why| (seed, why)));
    eprintln!("{name}: {seen:?}");
    assert!(seen.is_some(), "{name} is not seen");
}

#[test]
fn what_is_chosen_stays_chosen() {
    let sources = committed_sources();
    let (mut decisions, mut ballots, mut slots) = (0, 0, 0);
    for seed in 0..RUNS {
        let group = run(seed, &sources, None).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        decisions += group.decision_count;
        ballots += group.ballot_count;
        slots += group.decided_to();
    }
    eprintln!("{slots} slots, {decisions} decisions, {ballots} ballots");
    assert!(slots > 100 * RUNS && decisions > 50 * RUNS && ballots > 10 * RUNS);
}

/// Groups detect the mutants whose fault affects the choice, not the bytes of a single answer.
#[test]
fn a_device_that_breaks_a_rule_is_seen() {
    let mutants = mutant::read_all().unwrap();
    for name in [
        "p4-another-boot-obeyed",
        "p4-fence-keeps-the-ballot",
        "p4-next-forgotten-when-stopped",
        "p4-older-vote-stays",
        "p4-position-counted-twice",
        "p4-vote-of-another-ballot",
        "p4-voters-not-cleared",
        "p4-write-still-enabled",
    ] {
        let mutant = mutants.iter().find(|mutant| mutant.name == name).unwrap();
        search(name, &mutant.mutated_sources().unwrap(), None);
    }
}

#[test]
fn an_owner_that_breaks_a_rule_is_seen() {
    let sources = committed_sources();
    for omitted in OmittedRule::ALL {
        search(&format!("{omitted:?}"), &sources, Some(omitted));
    }
}
