//! Pauses between the writes that create a segment: their ends and lengths.

use std::time::Duration;

use super::pace::{PAUSE_MAX, PAUSE_MIN, Pace, pause_after};

const FOR_EVER: Duration = Duration::from_secs(3600);

#[test]
fn pauses_grow_with_the_duration_of_writes_within_bounds() {
    let rest = |us| pause_after(Duration::from_micros(us)).as_micros();
    assert_eq!([rest(0), rest(100), rest(2000)], [200, 300, 6000]);
    assert_eq!(rest(1 << 40), 100_000);
    assert_eq!(pause_after(Duration::MAX), PAUSE_MAX);
}

/// A request to hurry ends the current pause and all later ones. The test hangs if a pause does not
/// end.
#[test]
fn request_to_hurry_ends_current_and_later_pauses() {
    let pace = Pace::default();
    std::thread::scope(|scope| {
        let resting = scope.spawn(|| (0..3).for_each(|made| pace.pause_until_due(made, FOR_EVER)));
        pace.end_pauses();
        resting.join().unwrap();
    });
    pace.relax();
    assert_eq!(pace.lock().wanted_bytes_to, 0);
}

/// A creating thread that is late does not pause, and the requested size never decreases. The test
/// hangs if the thread pauses although more is requested.
#[test]
fn no_pause_while_late_and_the_wanted_size_never_falls() {
    let pace = Pace::default();
    for (wanted, made) in [(100, 99), (50, 99), (101, 100)] {
        pace.note_write(wanted);
        pace.pause_until_due(made, FOR_EVER);
    }
}

#[test]
fn creation_waits_while_the_log_writes_unless_more_is_wanted() {
    let pace = Pace::default();
    pace.note_write(100);
    let writes = pace.lock().log_writes;
    assert!(pace.lock().may_continue(100, writes), "quiet");
    pace.note_write(100);
    assert!(!pace.lock().may_continue(100, writes), "it wrote");
    assert!(pace.lock().may_continue(99, writes), "more is wanted");
    // Hangs if a quiet log does not end the pause.
    pace.pause_until_due(101, PAUSE_MIN);
}
