//! The core under every profile of the random explorer, and under every schedule within small
//! bounds.

use quorate_model::{
    exhaustive,
    explore::{RunMode, run},
    mutant,
    profile::Profile,
    seen::SituationCounts,
};

/// Runs fixed seeds through both acts. No property may be violated, and in the second act the group
/// makes progress. `model run` explores more seeds.
fn explore(profile: Profile, runs: u64) -> SituationCounts {
    let mut seen = SituationCounts::default();
    let (mut chosen, mut healed, mut leased, mut era) = (0, 0, 0, 0);
    for seed in 0..runs {
        let outcome = run(profile, seed, RunMode::FULL);
        if let Some(violation) = outcome.violation {
            let name = profile.name();
            panic!(
                "{violation}\nreplay: cargo run -p quorate-model --bin model replay {name} {seed}"
            );
        }
        chosen += outcome.chosen_slots;
        healed += u64::from(outcome.second_act_completed);
        leased += outcome.lease_reads;
        seen = seen.sum(outcome.situations);
        era = era.max(outcome.final_era);
    }
    // Runs without progress would prove nothing.
    assert!(chosen > runs / 2, "only {chosen} slots were chosen");
    assert!(healed > runs / 5, "only {healed} runs got to their end");
    if profile == Profile::Leases {
        assert!(leased > runs, "only {leased} reads by leases");
    }
    if matches!(profile, Profile::Eras | Profile::Casting) {
        assert!(era >= 3, "no run got beyond era {era}");
    }
    seen
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
    let seen = explore(Profile::Eras, 4000);
    assert!(seen.changes_by_another_leader > 30, "{seen:?}");
}

#[test]
fn casting_votes_are_safe() {
    explore(Profile::Casting, 4000);
}

#[test]
fn volatile_groups_forget_nothing_that_counts() {
    let seen = explore(Profile::Volatile, 4000);
    assert!(seen.forgot_amid_a_change > 80, "{seen:?}");
    assert!(seen.readmitted_nodes > 10, "{seen:?}");
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
    let seen = explore(Profile::Lifecycle, 2000);
    assert!(seen.trimmed_beyond_a_member > 1000, "{seen:?}");
    assert!(seen.snapshots_installed > 300, "{seen:?}");
    assert!(seen.replaced_machines > 5, "{seen:?}");
}

#[test]
fn auxiliaries_are_engaged_and_retired_without_loss() {
    let seen = explore(Profile::Auxiliary, 2000);
    assert!(seen.auxiliaries_activated > 500 && seen.auxiliaries_deactivated > 100, "{seen:?}");
}

/// One run combines reconfigurations, scaled weights, trims, snapshots, transfers back and forth,
/// and an auxiliary.
#[test]
fn a_cluster_lives_for_years() {
    let seen = explore(Profile::Years, 2000);
    assert!(seen.changes_by_another_leader > 100, "{seen:?}");
    assert!(seen.scaled_eras > 100, "{seen:?}");
    assert!(seen.auxiliaries_activated > 500 && seen.auxiliaries_deactivated > 200, "{seen:?}");
    assert!(seen.trimmed_beyond_a_member > 1000, "{seen:?}");
    assert!(seen.snapshots_installed > 300, "{seen:?}");
    assert!(seen.replaced_machines > 5, "{seen:?}");
}

#[test]
fn reads_by_leases_are_fresh() {
    explore(Profile::Leases, 3000);
}

/// [stream-4] The output of each stream is a prefix of its input, whichever nodes lead, own
/// streams, crash and return.
#[test]
fn streams_are_prefixes_of_what_was_given() {
    let seen = explore(Profile::Streams, 6000);
    assert!(seen.appended_bytes > 5000, "{seen:?}");
    assert!(seen.confirmed_appends > 4000, "{seen:?}");
    assert!(seen.skipped_bytes > 100 && seen.recorded_without_bytes > 30, "{seen:?}");
    assert!(seen.partial_run_votes > 300, "{seen:?}");
    assert!(seen.takeovers > 100 && seen.lost_owners > 100, "{seen:?}");
}

/// [ring-1]–[ring-8] Votes count by whatever route they travel, and the group makes progress with
/// any ring.
#[test]
fn votes_take_any_ring() {
    let seen = explore(Profile::Ring, 6000);
    assert!(seen.rings_set_up > 1000 && seen.rings_given_up > 1000, "{seen:?}");
    assert!(seen.ring_votes > 1500 && seen.relayed_votes > 500, "{seen:?}");
}

/// [offload-5]–[offload-19] Chosen values stay chosen and the group makes progress, whatever
/// devices vote for, assign and count, and whenever they are fenced, withdrawn or lose power.
#[test]
fn devices_vote_for_nothing_that_their_owners_would_not() {
    let seen = explore(Profile::Devices, 6000);
    assert!(seen.device_votes > 3000 && seen.device_assigned_slots > 1000, "{seen:?}");
    assert!(seen.device_counted_reports > 500 && seen.assignments_withdrawn > 500, "{seen:?}");
    assert!(seen.fenced_devices > 200 && seen.device_power_losses > 50, "{seen:?}");
}

/// [last-1]–[last-4] Values reported to clients of a volatile group as being on disks are on disks,
/// and waiting clients are notified.
#[test]
fn what_is_said_to_last_is_on_the_disks_of_a_quorum() {
    let seen = explore(Profile::Lasting, 4000);
    assert!(seen.durable_notifications > 4000, "{seen:?}");
    assert!(seen.snapshots_installed > 100, "{seen:?}");
}

/// [lie-1]–[lie-5] A disk that loses the end of its log does no harm while a running node remembers
/// that log, and a node that lost nothing is never suspected.
#[test]
fn a_disk_that_lies_is_found_out_by_who_heard_of_its_log() {
    let seen = explore(Profile::Liars, 4000);
    assert!(seen.disk_rollbacks > 4000 && seen.rollback_reminders > 400, "{seen:?}");
    assert!(seen.trimmed_beyond_a_member > 100, "{seen:?}");
}

/// [less-1]–[less-4] Values reported to clients of a durable group as being in memory were voted
/// for by a quorum, and are decided unless one of those members loses its memory.
#[test]
fn what_is_said_to_be_in_memory_is_decided_unless_memory_is_lost() {
    let seen = explore(Profile::Early, 4000);
    assert!(seen.memory_notifications > 4000, "{seen:?}");
}

/// The spine alone is Multi-Paxos with reconfiguration: it needs no wing, whatever fails.
#[test]
fn the_spine_needs_no_wing() {
    let seen = explore(Profile::Spine, 4000);
    assert!(seen.changes_by_another_leader > 30 && seen.snapshots_installed > 100, "{seen:?}");
}

/// [lie-6] A quorum of one leads if it voted for the change that began an era which it knows only
/// from messages.
#[test]
fn a_quorum_of_one_goes_on_after_a_change_that_it_voted_for() {
    let seeds = [(Profile::Spine, 46_410), (Profile::Eras, 92_471), (Profile::Leases, 365_906)];
    for (profile, seed) in seeds {
        let outcome = run(profile, seed, RunMode::FULL);
        assert!(
            outcome.violation.is_none() && outcome.second_act_completed,
            "{} {seed}",
            profile.name()
        );
    }
}

/// A seed reproduces its run, to the last event.
#[test]
fn a_seed_replays() {
    let mode = RunMode { record_trace: true, ..RunMode::FULL };
    let once = run(Profile::Mixed, 7, mode).trace;
    assert!(!once.is_empty());
    assert_eq!(once, run(Profile::Mixed, 7, mode).trace);
}

#[test]
fn every_schedule_within_small_bounds_holds() {
    for bounds in exhaustive::small_bounds() {
        let report = bounds.explore();
        assert!(report.any_decided, "{}: nothing was ever decided", report.name);
    }
}

/// Checks that the edits of every mutant apply. A mutant whose text no longer occurs proves
/// nothing.
#[test]
fn every_mutant_applies() {
    let mutants = mutant::read_all().expect("mutants can be read");
    assert!(mutants.len() >= 30);
    for mutant in mutants {
        let files = mutant.changed_files(&mutant::crates_folder());
        assert!(!files.expect("it applies").is_empty(), "{}", mutant.name);
        let known = Profile::from_name(&mutant.profile).is_some() || mutant.profile == "all";
        assert!(known, "{}: profile {}", mutant.name, mutant.profile);
        // Progress is checked only in the second act.
        let named = mutant.unit_test.is_some() || mutant.transcript.is_some();
        let only_liveness = mutant.properties == ["liveness"];
        assert!(named || mutant.with_second_act || !only_liveness, "{}", mutant.name);
        if let Some(name) = mutant.transcript {
            let file = format!("protocol/core/tests/testdata/{name}.txt");
            assert!(mutant::crates_folder().join(&file).is_file(), "no {file}");
        }
    }
}
