//! Operators' requests for an immediate snapshot, and their result.

use quorate_core::{slot::Slot, time::Time};

use crate::ports::status::Snapshot;

/// Time in milliseconds after which a request fails because the disk prevents the snapshot from
/// becoming valid. Long enough for ten attempts.
const NO_PROGRESS_TIMEOUT_MS: u64 = 1_000;

/// Pending request. All operators that request a snapshot share one answer.
#[derive(Debug, Default)]
pub(super) struct SnapshotRequest {
    /// Slot at or after which a snapshot is requested.
    requested_slot: Option<Slot>,
    answer: Option<Result<Snapshot, String>>,
    /// Time since when the disk has prevented progress.
    no_progress_since: Option<Time>,
}

impl SnapshotRequest {
    pub(super) fn set_request(&mut self, at: Slot) {
        self.requested_slot = self.requested_slot.max(Some(at));
    }

    pub(super) fn requested_slot(&self) -> Option<Slot> {
        self.requested_slot
    }

    /// Records that the disk prevents progress. Returns whether it has done so for long enough to
    /// fail.
    pub(super) fn record_no_progress(&mut self, now: Time) -> bool {
        let asked = self.requested_slot.is_some();
        asked
            && now.since_us(*self.no_progress_since.get_or_insert(now))
                >= NO_PROGRESS_TIMEOUT_MS * 1000
    }

    /// Records that the disk no longer prevents progress.
    pub(super) fn record_progress(&mut self) {
        self.no_progress_since = None;
    }

    /// Completes the request with this snapshot, which the base of the log now references, if it is
    /// recent enough.
    pub(super) fn complete_with(&mut self, own: Snapshot) {
        if self.requested_slot.take_if(|wanted| *wanted <= own.slot).is_some() {
            self.answer = Some(Ok(own));
            self.no_progress_since = None;
        }
    }

    /// Fails the request. Operators may repeat it.
    pub(super) fn fail_request(&mut self, why: String) {
        self.requested_slot = None;
        self.no_progress_since = None;
        self.answer = Some(Err(why));
    }

    pub(super) fn take_answer(&mut self) -> Option<Result<Snapshot, String>> {
        self.answer.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(slot: u64) -> Snapshot {
        Snapshot { slot: Slot(slot), bytes: 10 }
    }

    #[test]
    fn only_a_recent_snapshot_answers_the_request() {
        let mut asking = SnapshotRequest::default();
        asking.complete_with(at(5));
        assert_eq!(asking.take_answer(), None, "no caller asks");
        asking.set_request(Slot(7));
        asking.set_request(Slot(6));
        asking.complete_with(at(6));
        assert_eq!((asking.requested_slot(), asking.take_answer()), (Some(Slot(7)), None));
        asking.complete_with(at(7));
        assert_eq!((asking.requested_slot(), asking.take_answer()), (None, Some(Ok(at(7)))));
        assert_eq!(asking.take_answer(), None, "told once");
    }

    #[test]
    fn request_waits_a_while_for_the_disk() {
        let mut asking = SnapshotRequest::default();
        assert!(!asking.record_no_progress(Time(0)), "no caller asks");
        asking.set_request(Slot(7));
        let later = |ms: u64| Time(5).plus_ms(ms);
        assert!(!asking.record_no_progress(later(0)));
        assert!(!asking.record_no_progress(later(NO_PROGRESS_TIMEOUT_MS - 1)));
        assert!(asking.record_no_progress(later(NO_PROGRESS_TIMEOUT_MS)));
        asking.fail_request("no room".to_owned());
        asking.set_request(Slot(7));
        assert!(!asking.record_no_progress(later(2 * NO_PROGRESS_TIMEOUT_MS)), "the next one, too");
    }

    #[test]
    fn failure_is_reported_and_ends_the_request() {
        let mut asking = SnapshotRequest::default();
        asking.set_request(Slot(7));
        asking.fail_request("no room".to_owned());
        assert_eq!(asking.requested_slot(), None);
        assert_eq!(asking.take_answer(), Some(Err("no room".to_owned())));
    }
}
