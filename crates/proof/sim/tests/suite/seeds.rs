//! Full simulation runs: with a fixed set of seeds that covers every profile, and with a few seeds
//! derived from the current commit.

use std::{collections::BTreeSet, fs, path::Path};

use quorate_sim::{dice::mix, faults::RunSettings, run, world::EventCounts};

const SEEDS: std::ops::RangeInclusive<u64> = 1..=300;
const STEPS: u64 = 8_000;

/// Runs the seeds and counts their events, because a check proves little if its event never occurs.
fn check(seeds: impl Iterator<Item = u64>) -> EventCounts {
    let mut all = EventCounts::default();
    for seed in seeds {
        let report = run(seed, STEPS);
        assert!(report.has_no_violation(), "\n{report}\n");
        let EventCounts {
            kills_at_start: start_kills,
            snapshots_taken: snapshots,
            snapshots_installed: installs,
            snapshots_loaded: loads,
            log_trims: trims,
            joins,
            plans_accepted: plans,
            nodes_retired: retired,
            process_stalls: stalls,
            lease_reads: leased,
            stream_bytes,
            stream_pieces,
            stream_bytes_read,
            stream_bytes_by_reference: stream_bytes_placed,
            ..
        } = report.event_counts;
        all.kills_at_start += start_kills;
        all.snapshots_taken += snapshots;
        all.snapshots_installed += installs;
        all.snapshots_loaded += loads;
        all.log_trims += trims;
        all.joins += joins;
        all.plans_accepted += plans;
        all.nodes_retired += retired;
        all.process_stalls += stalls;
        all.lease_reads += leased;
        all.stream_bytes += stream_bytes;
        all.stream_pieces += stream_pieces;
        all.stream_bytes_read += stream_bytes_read;
        all.stream_bytes_by_reference += stream_bytes_placed;
    }
    all
}

fn check_half(odd: bool) {
    let all = check(SEEDS.filter(|seed| (seed % 2 == 1) == odd));
    assert!(all.kills_at_start > 100, "{all:?}");
    assert!(
        all.snapshots_taken > 100 && all.snapshots_loaded > 80 && all.log_trims > 100,
        "{all:?}"
    );
    assert!(all.snapshots_installed > 4, "{all:?}");
    assert!(all.joins > 50 && all.plans_accepted > 30 && all.nodes_retired > 5, "{all:?}");
    // Leases serve reads, and processes stall during a lease. A lease that ends between its check
    // and the answer is rare in drawn runs, so a test of the replica forces this case
    // (`tests/suite/reads.rs`).
    assert!(all.lease_reads > 300 && all.process_stalls > 100, "{all:?}");
    assert!(
        all.stream_bytes_by_reference > 2 << 20
            && all.stream_pieces > 200
            && all.stream_bytes > 3 << 20
            && all.stream_bytes_read > 10 << 20,
        "{all:?}"
    );
}

#[test]
fn fixed_seeds_hold_first_half() {
    check_half(true);
}

#[test]
fn fixed_seeds_hold_second_half() {
    check_half(false);
}

/// The commit selects three more seeds, so that every change is tried on new ones.
#[test]
fn seeds_of_this_commit_hold() {
    let head = commit().unwrap_or_else(|| "no repository".into());
    let seed = head.bytes().fold(0, |state, byte| mix(state ^ u64::from(byte)));
    check((0..3).map(|index| mix(seed + index)));
}

fn commit() -> Option<String> {
    let git = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../.git");
    let head = fs::read_to_string(git.join("HEAD")).ok()?;
    match head.trim().strip_prefix("ref: ") {
        Some(name) => fs::read_to_string(git.join(name)).ok(),
        None => Some(head),
    }
}

/// Equal seeds produce identical traces.
#[test]
fn equal_seeds_give_equal_runs() {
    for seed in [3, 7, 8, 53, 85] {
        let (first, second) = (run(seed, STEPS), run(seed, STEPS));
        assert_eq!(first.trace_hash, second.trace_hash, "seed {seed}");
        assert_eq!(first.event_counts, second.event_counts, "seed {seed}");
    }
    assert_ne!(run(1, 1000).trace_hash, run(2, 1000).trace_hash);
}

#[test]
fn fixed_seeds_cover_every_profile() {
    let settings: Vec<RunSettings> = SEEDS.map(RunSettings::draw).collect();
    let count = |name: &str, profiles: BTreeSet<String>, expected: usize| {
        assert_eq!(profiles.len(), expected, "{name}: {profiles:?}");
    };
    let of =
        |name: &dyn Fn(&RunSettings) -> String| settings.iter().map(name).collect::<BTreeSet<_>>();
    // The groups have 1, 3 and 5 nodes in both classes; volatile ones are within their budget or
    // beyond it.
    count(
        "groups",
        of(&|s| format!("{} {:?} {:?}", s.founding_member_count, s.class, s.loss_scope)),
        9,
    );
    count("carriers", of(&|s| format!("{:?} {:?}", s.network_conditions.carrier, s.class)), 10);
    count("depths", of(&|s| format!("{} {:?}", s.inflight_writes_max, s.class)), 6);
    count("queues", of(&|s| format!("{} {}", s.has_tiny_queues, s.inflight_max)), 6);
    let faults: BTreeSet<_> =
        settings.iter().flat_map(|s| s.fault_intervals.iter().map(|f| f.0)).collect();
    assert_eq!(faults.len(), quorate_sim::faults::Fault::ALL.len());
}

/// The text that each mutant replaces exists exactly once.
#[test]
fn mutants_apply() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for entry in fs::read_dir(home.join("mutants")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let file = text.split("file = \"").nth(1).unwrap().split('"').next().unwrap();
        let find = text.split("find = '''\n").nth(1).unwrap().split("\n'''").next().unwrap();
        let source = fs::read_to_string(home.join("../../..").join(file)).unwrap();
        assert_eq!(source.matches(find).count(), 1, "{}", path.display());
        count += 1;
    }
    assert!(count >= 15, "{count}");
}
