//! The core under every profile of the random explorer, and under every schedule of small bounds.

use quorate_model::{
    exhaustive,
    explore::{Mode, run},
    mutant,
    profile::Profile,
};

/// Fixed seeds; more with `model run`. Both acts: nothing breaks, and then the group gets somewhere.
fn explore(profile: Profile, runs: u64) {
    let (mut chosen, mut healed, mut leased, mut era) = (0, 0, 0, 0);
    for seed in 0..runs {
        let outcome = run(profile, seed, Mode::FULL);
        if let Some(violation) = outcome.violation {
            let name = profile.name();
            panic!(
                "{violation}\nreplay: cargo run -p quorate-model --bin model replay {name} {seed}"
            );
        }
        chosen += outcome.chosen;
        healed += u64::from(outcome.healed);
        leased += outcome.leased;
        era = era.max(outcome.era);
    }
    // Runs that go nowhere would prove nothing.
    assert!(chosen > runs / 2, "only {chosen} slots were chosen");
    assert!(healed > runs / 5, "only {healed} runs got to their end");
    if profile == Profile::Leases {
        assert!(leased > runs, "only {leased} reads by leases");
    }
    if matches!(profile, Profile::Eras | Profile::Casting) {
        assert!(era >= 3, "no run got beyond era {era}");
    }
}

#[test]
fn mixed_runs_hold() {
    explore(Profile::Mixed, 3000);
}

#[test]
fn dueling_leaders_agree() {
    explore(Profile::Duel, 4000);
}

#[test]
fn eras_overlap_safely() {
    explore(Profile::Eras, 4000);
}

#[test]
fn casting_votes_are_safe() {
    explore(Profile::Casting, 4000);
}

#[test]
fn volatile_groups_forget_nothing_that_counts() {
    explore(Profile::Volatile, 4000);
}

#[test]
fn reads_are_fresh() {
    explore(Profile::Reads, 3000);
}

#[test]
fn nobody_votes_without_bytes() {
    explore(Profile::Bytes, 3000);
}

#[test]
fn trimmed_logs_and_snapshots_lose_nothing() {
    explore(Profile::Lifecycle, 2000);
}

#[test]
fn reads_by_leases_are_fresh() {
    explore(Profile::Leases, 3000);
}

/// One seed is one run, to the last event.
#[test]
fn a_seed_replays() {
    let mode = Mode {
        trace: true,
        ..Mode::FULL
    };
    let once = run(Profile::Mixed, 7, mode).trace;
    assert!(!once.is_empty());
    assert_eq!(once, run(Profile::Mixed, 7, mode).trace);
}

#[test]
fn every_schedule_within_small_bounds_holds() {
    for bounds in exhaustive::small() {
        let report = bounds.check();
        assert!(report.decided, "{}: nothing was ever decided", report.name);
    }
}

/// A mutant whose text is gone proves nothing any more.
#[test]
fn every_mutant_applies() {
    let mutants = mutant::all().expect("mutants can be read");
    assert!(mutants.len() >= 30);
    for mutant in mutants {
        let files = mutant.changed(&mutant::crates());
        assert!(!files.expect("it applies").is_empty(), "{}", mutant.name);
        let known = Profile::named(&mutant.profile).is_some() || mutant.profile == "all";
        assert!(known, "{}: profile {}", mutant.name, mutant.profile);
        if let Some(name) = mutant.transcript {
            let file = format!("quorate-core/tests/testdata/{name}.txt");
            assert!(mutant::crates().join(&file).is_file(), "no {file}");
        }
    }
}
