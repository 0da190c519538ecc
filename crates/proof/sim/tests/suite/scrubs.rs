//! Scrubs under all kinds of faults, with bits that flip in stored data. `check/scrubs.rs` checks
//! the scrubs, and `scrub.md` contains the rules.

use quorate_sim::{faults::Settings, run, world::Counts};

const SEEDS: std::ops::RangeInclusive<u64> = 1001..=1480;
const STEPS: u64 = 8_000;

/// Seeds in which disks also misdirect writes.
const STRAYS: std::ops::RangeInclusive<u64> = 2001..=2480;

#[test]
fn writes_to_wrong_places_and_small_files_that_rot_are_found_and_mended() {
    let mut all = Counts::default();
    for seed in STRAYS.filter(|seed| Settings::draw(*seed).scrubs.is_some()) {
        let report = run(seed, STEPS);
        assert!(report.holds(), "\n{report}\n");
        all.strays += report.counts.strays;
        all.files_rotted += report.counts.files_rotted;
        all.files_refused += report.counts.files_refused;
    }
    assert!(all.strays > 40 && all.files_rotted > 80 && all.files_refused > 40, "{all:?}");
}

#[test]
fn scrubs_find_what_rots_and_nothing_else() {
    let mut all = Counts::default();
    for seed in SEEDS.filter(|seed| Settings::draw(*seed).scrubs.is_some()) {
        let report = run(seed, STEPS);
        assert!(report.holds(), "\n{report}\n");
        let Counts { rotted, stores_rotted, scrubs, scrubs_found, .. } = report.counts;
        all.rotted += rotted;
        all.stores_rotted += stores_rotted;
        all.scrubs += scrubs;
        all.scrubs_found += scrubs_found;
    }
    assert!(
        all.rotted > 30 && all.stores_rotted > 400 && all.scrubs > 1000 && all.scrubs_found > 200,
        "{all:?}"
    );
}
