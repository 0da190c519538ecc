//! Anticipatory batching: the next batch waits a moment for the commands that replies will trigger.
//!
//! On a slow disk, clients in a closed loop form two groups in lockstep, a convoy: while the
//! commands of one group are being written, those of the other gather. When the first group gets
//! its replies, the disk starts at once with the commands that have gathered. A moment later the
//! commands of the first group arrive again, and wait for a complete write. This continues, so
//! every write carries half of the commands. An engine that waits for that moment after a batch has
//! completed with nothing else in flight has both groups in its next batch.
//!
//! The wait ends when nearly as many commands have arrived as got replies, or after a fraction of
//! the batch's duration. After several fruitless waits, waits become rarer and rarer, so that
//! commands that arrive regardless of replies are not delayed.
//!
//! The idea and the name come from disk reads (Iyer and Druschel, "Anticipatory scheduling", SOSP
//! 2001). In group commit the wait is known as a commit or batching delay; here it is bounded by
//! measurements.

use crate::time::Moment;

/// Number of commands to wait for, as a fraction of the commands that got replies. Below 1, because
/// some of many commands are always late.
const EXPECTED_FRACTION: (usize, usize) = (9, 10);
/// The maximum wait is the batch's duration divided by this constant.
const WAIT_DIVISOR: u64 = 4;
/// Upper bound for a wait in nanoseconds. A batch that took longer than usual because of a change
/// of leader does not justify a long wait.
const WAIT_NS_MAX: u64 = 25_000_000;
/// Number of consecutive fruitless waits without consequences. After each further one, 1, 2, 4 … 64
/// batches are sent without a wait.
const FRUITLESS_WAITS_MAX: u32 = 3;
const FRUITLESS_COUNT_MAX: u32 = FRUITLESS_WAITS_MAX + 7;

/// The wait in progress before the next batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wait {
    /// Number of queued commands at which the wait ends.
    commands_expected: usize,
    wait_until: Moment,
}

/// Decides whether the next batch waits for more commands.
#[derive(Clone, Debug, Default)]
pub struct Anticipation {
    wait: Option<Wait>,
    /// Number of consecutive fruitless waits.
    fruitless_waits: u32,
    /// Number of batches to skip before the next wait.
    skips_left: u32,
}

impl Anticipation {
    /// Starts a wait, if appropriate, after a batch has completed and none is in flight. The batch
    /// had `commands` commands and was formed at `formed`. `gathered` commands are already queued.
    pub fn on_batch_completed(
        &mut self,
        now: Moment,
        formed: Moment,
        commands: usize,
        gathered: usize,
    ) {
        let (part, of) = EXPECTED_FRACTION;
        let returning = commands.saturating_mul(part).div_ceil(of);
        if returning == 0 {
            return;
        }
        if self.skips_left > 0 {
            self.skips_left -= 1;
            return;
        }
        let patience = (now.since(formed) / WAIT_DIVISOR).min(WAIT_NS_MAX);
        self.wait = Some(Wait {
            commands_expected: gathered.saturating_add(returning),
            wait_until: Moment(now.0.saturating_add(patience)),
        });
    }

    /// Ends the wait if it is over. `gathered` commands are queued, and `full` means that a batch
    /// has no room for more.
    pub fn end_wait_if_over(&mut self, now: Moment, gathered: usize, full: bool) {
        let Some(wait) = self.wait else {
            return;
        };
        if gathered >= wait.commands_expected || full {
            self.wait = None;
            self.fruitless_waits = 0;
        } else if now >= wait.wait_until {
            self.wait = None;
            self.fruitless_waits = (self.fruitless_waits + 1).min(FRUITLESS_COUNT_MAX);
            let doubt = self.fruitless_waits.saturating_sub(FRUITLESS_WAITS_MAX);
            self.skips_left = (1 << doubt) >> 1;
        }
    }

    pub fn cancel(&mut self) {
        self.wait = None;
    }

    /// Returns the latest end of the current wait; `None` if there is none. No batch may be formed
    /// before [`Anticipation::end_wait_if_over`] has ended the wait.
    pub fn wait_until(&self) -> Option<Moment> {
        self.wait.map(|wait| wait.wait_until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMED: Moment = Moment(1_000);
    const COMPLETED: Moment = Moment(401_000);
    const PATIENT_UNTIL: Moment = Moment(501_000);

    fn completed(commands: usize, gathered: usize) -> Anticipation {
        let mut anticipation = Anticipation::default();
        anticipation.on_batch_completed(COMPLETED, FORMED, commands, gathered);
        anticipation
    }

    #[test]
    fn waits_until_nearly_all_clients_have_sent_again() {
        let mut anticipation = completed(100, 50);
        assert_eq!(anticipation.wait_until(), Some(PATIENT_UNTIL));
        anticipation.end_wait_if_over(COMPLETED, 139, false);
        assert!(anticipation.wait_until().is_some());
        anticipation.end_wait_if_over(COMPLETED, 140, false);
        assert_eq!(anticipation.wait_until(), None);
    }

    #[test]
    fn waits_for_a_quarter_of_what_the_batch_took_at_most() {
        let mut anticipation = completed(100, 50);
        anticipation.end_wait_if_over(Moment(PATIENT_UNTIL.0 - 1), 60, false);
        assert!(anticipation.wait_until().is_some());
        anticipation.end_wait_if_over(PATIENT_UNTIL, 60, false);
        assert_eq!(anticipation.wait_until(), None);
    }

    #[test]
    fn no_wait_for_a_full_batch_or_after_an_empty_one() {
        let mut anticipation = completed(100, 50);
        anticipation.end_wait_if_over(COMPLETED, 60, true);
        assert_eq!(anticipation.wait_until(), None);
        assert_eq!(completed(0, 50).wait_until(), None);
    }

    /// Returns how many of `batches` were followed by a wait, although their commands never return.
    fn waited(anticipation: &mut Anticipation, batches: u32) -> u32 {
        let mut waited = 0;
        for _ in 0..batches {
            anticipation.on_batch_completed(COMPLETED, FORMED, 100, 0);
            waited += u32::from(anticipation.wait_until().is_some());
            anticipation.end_wait_if_over(PATIENT_UNTIL, 0, false);
        }
        waited
    }

    #[test]
    fn failed_waits_become_rare_until_one_succeeds() {
        let mut anticipation = Anticipation::default();
        assert_eq!(waited(&mut anticipation, 4), 4);
        // One wait in 2 batches, then in 3, in 5, and finally in 65.
        assert_eq!(waited(&mut anticipation, 1 + 1 + 2 + 1), 2);
        assert!(waited(&mut anticipation, 6_500) <= 106);
        while anticipation.wait_until().is_none() {
            anticipation.on_batch_completed(COMPLETED, FORMED, 100, 0);
        }
        anticipation.end_wait_if_over(COMPLETED, 90, false);
        assert_eq!(waited(&mut anticipation, 3), 3);
    }

    #[test]
    fn invalid_times_cause_no_wait_or_a_bounded_one() {
        let mut anticipation = Anticipation::default();
        anticipation.on_batch_completed(FORMED, COMPLETED, 100, 0);
        anticipation.end_wait_if_over(FORMED, 0, false);
        assert_eq!(anticipation.wait_until(), None);
        anticipation.on_batch_completed(Moment(u64::MAX), Moment(0), usize::MAX, usize::MAX);
        anticipation.end_wait_if_over(Moment(u64::MAX), 0, false);
        assert_eq!(anticipation.wait_until(), None);
        anticipation.on_batch_completed(Moment(1 << 60), Moment(0), 100, 0);
        assert_eq!(anticipation.wait_until(), Some(Moment((1 << 60) + 25_000_000)));
    }
}
