//! Backoff for a slot that makes no progress.

use quorate_core::time::Time;

/// Maximum wait, as a multiple of the initial one.
const WAIT_MULTIPLE_MAX: u64 = 8;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StallTimer {
    stuck_slot: Option<(u64, Time)>,
    actions_taken: u32,
}

impl StallTimer {
    /// Returns whether to act now on the slot that is stuck, if any. The wait doubles with each
    /// action on the same slot, up to a bound.
    pub(crate) fn is_due(&mut self, now: Time, slot: Option<u64>, wait_us: u64) -> bool {
        let Some(slot) = slot else {
            *self = Self::default();
            return false;
        };
        if !matches!(self.stuck_slot, Some((stands, _)) if stands == slot) {
            *self = Self { stuck_slot: Some((slot, now)), actions_taken: 0 };
        }
        if self.next_due_at(wait_us).is_some_and(|due| now < due) {
            return false;
        }
        self.stuck_slot = Some((slot, now));
        self.actions_taken = self.actions_taken.saturating_add(1);
        true
    }

    pub(crate) fn next_due_at(&self, wait_us: u64) -> Option<Time> {
        let longer = 1_u64.checked_shl(self.actions_taken).unwrap_or(WAIT_MULTIPLE_MAX);
        let (_, since) = self.stuck_slot?;
        Some(since.plus_us(wait_us.saturating_mul(longer.min(WAIT_MULTIPLE_MAX))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_until_there_is_progress() {
        let mut stuck = StallTimer::default();
        let mut pushed = alloc::vec::Vec::new();
        for now in 0..400 {
            if stuck.is_due(Time(now), Some(7), 10) {
                pushed.push(now);
            }
        }
        assert_eq!(pushed, [10, 30, 70, 150, 230, 310, 390]);
        assert!(!stuck.is_due(Time(400), Some(8), 10));
        assert!(stuck.is_due(Time(410), Some(8), 10));
        assert!(!stuck.is_due(Time(411), None, 10));
        assert_eq!(stuck.next_due_at(10), None);
    }
}
