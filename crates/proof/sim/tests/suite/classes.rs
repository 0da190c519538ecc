//! Clients that request a class other than the group's ([class-2]), while all other faults occur.

use quorate_core::record::Class;
use quorate_sim::{faults::RunSettings, run};

const SEEDS: std::ops::RangeInclusive<u64> = 4001..=4050;
/// Number of events, which suffices for the feature level to be raised twice first.
const STEPS: u64 = 60_000;

/// [less-4] [last-3] Acknowledgements of another class are true, and the requests violate no other
/// property.
#[test]
fn what_clients_of_another_class_are_told_is_true() {
    let (mut early, mut lasting) = (0, 0);
    for seed in SEEDS {
        let settings = RunSettings::draw(seed);
        // Skips groups of one node, which is a quorum by itself.
        if settings.class_request_interval_us.is_none() || settings.founding_member_count == 1 {
            continue;
        }
        let report = run(seed, STEPS);
        assert!(report.has_no_violation(), "\n{report}\n");
        match settings.class {
            Class::Durable => early += report.event_counts.class_in_memory,
            Class::Volatile => lasting += report.event_counts.class_on_disk,
        }
    }
    assert!(early > 100 && lasting > 25, "{early} early, {lasting} lasting");
}
