//! Pauses between the writes that create a segment: their ends and lengths.

use std::time::Duration;

use super::pace::{PAUSE_MAX, PAUSE_MIN, Pace, rest_after};

const FOR_EVER: Duration = Duration::from_secs(3600);

#[test]
fn rests_grow_with_the_disk_s_pain_within_bounds() {
    let rest = |us| rest_after(Duration::from_micros(us)).as_micros();
    assert_eq!([rest(0), rest(100), rest(2000)], [200, 300, 6000]);
    assert_eq!(rest(1 << 40), 100_000);
    assert_eq!(rest_after(Duration::MAX), PAUSE_MAX);
}

/// A request to hurry ends the current pause and all later ones. The test hangs if a pause does not
/// end.
#[test]
fn a_hurry_ends_the_rest_and_all_rests_behind_it() {
    let pace = Pace::default();
    std::thread::scope(|scope| {
        let resting = scope.spawn(|| (0..3).for_each(|made| pace.rest_for(made, FOR_EVER)));
        pace.end_pauses();
        resting.join().unwrap();
    });
    pace.relax();
    assert_eq!(pace.lock().wanted_bytes, 0);
}

/// A creating thread that is late does not pause, and the requested size never decreases. The test
/// hangs if the thread pauses although more is requested.
#[test]
fn who_is_behind_does_not_rest_and_what_is_wanted_does_not_fall() {
    let pace = Pace::default();
    for (wanted, made) in [(100, 99), (50, 99), (101, 100)] {
        pace.note_write(wanted);
        pace.rest_for(made, FOR_EVER);
    }
}

#[test]
fn a_busy_log_is_left_alone_until_it_is_quiet_or_wants_more() {
    let pace = Pace::default();
    pace.note_write(100);
    let writes = pace.lock().writes;
    assert!(pace.lock().goes_on(100, writes), "quiet");
    pace.note_write(100);
    assert!(!pace.lock().goes_on(100, writes), "it wrote");
    assert!(pace.lock().goes_on(99, writes), "more is wanted");
    // Hangs if a quiet log does not end the pause.
    pace.rest_for(101, PAUSE_MIN);
}
