//! Scrubs under all kinds of faults, with bits that flip in stored data. `check/scrubs.rs` checks
//! the scrubs, and `scrub.md` contains the rules.

use quorate_sim::{faults::RunSettings, run, world::EventCounts};

const SEEDS: std::ops::RangeInclusive<u64> = 1001..=1480;
const STEPS: u64 = 8_000;

/// Seeds in which disks also misdirect writes.
const STRAYS: std::ops::RangeInclusive<u64> = 2001..=2480;

#[test]
fn writes_to_wrong_places_and_small_files_that_rot_are_found_and_mended() {
    let mut all = EventCounts::default();
    for seed in STRAYS.filter(|seed| RunSettings::draw(*seed).scrub_settings.is_some()) {
        let report = run(seed, STEPS);
        assert!(report.has_no_violation(), "\n{report}\n");
        all.stray_writes += report.event_counts.stray_writes;
        all.files_rotted += report.event_counts.files_rotted;
        all.files_refused += report.event_counts.files_refused;
    }
    assert!(all.stray_writes > 40 && all.files_rotted > 80 && all.files_refused > 40, "{all:?}");
}

#[test]
fn scrubs_find_what_rots_and_nothing_else() {
    let mut all = EventCounts::default();
    for seed in SEEDS.filter(|seed| RunSettings::draw(*seed).scrub_settings.is_some()) {
        let report = run(seed, STEPS);
        assert!(report.has_no_violation(), "\n{report}\n");
        let EventCounts {
            rotted_blocks: rotted,
            stores_rotted,
            scrubs_completed: scrubs,
            scrub_findings: scrubs_found,
            ..
        } = report.event_counts;
        all.rotted_blocks += rotted;
        all.stores_rotted += stores_rotted;
        all.scrubs_completed += scrubs;
        all.scrub_findings += scrubs_found;
    }
    assert!(
        all.rotted_blocks > 30
            && all.stores_rotted > 400
            && all.scrubs_completed > 1000
            && all.scrub_findings > 200,
        "{all:?}"
    );
}
