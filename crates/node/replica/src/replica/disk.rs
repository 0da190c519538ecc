//! Passes completed disk operations to the replica's parts: records written, values read back.

use quorate_core::{
    input::Input,
    slot::{Slot, SlotRange},
    time::Time,
};
use quorate_log::{LogError, ReadDone, Values, disk::Disk};

use super::Replica;
use crate::{
    catching_up,
    hops::Hop,
    observing::events::Event,
    outbox::RETRY_MS,
    ports::{
        front::{Failure, Front},
        plane::Plane,
        service::StateMachine,
    },
    storing::reads::Purpose,
};

impl<D: Disk, S: StateMachine> Replica<D, S> {
    pub(super) fn poll_log(
        &mut self,
        now: Time,
        wall_ms: u64,
        plane: &mut dyn Plane,
        front: &mut dyn Front,
    ) {
        let polled = self.spine.storing.poll(now);
        // If this node was busy when a write ended, the delay is not part of the write's duration.
        let (observing, late_us) = (&mut self.spine.observing, self.turns.late_us());
        self.tuning.on_written(now, self.spine.storing.written_to(), |us, bytes| {
            observing.on_written(us.saturating_sub(late_us), bytes);
        });
        self.report_writes(now);
        match polled {
            Ok(Some(persisted_to)) if !self.ending.is_silent() => {
                let began = self.spine.hops.as_ref().map(|hops| hops.now_ns());
                let before = self.spine.node().durable_to();
                self.step(now, Input::Persisted(persisted_to), plane);
                let durable_to = self.spine.node().durable_to();
                if let (Some(hops), Some(at_ns)) = (&mut self.spine.hops, began)
                    && durable_to > before
                {
                    hops.stamp_at(at_ns, Hop::Written, Some(Slot(durable_to.0 - 1)));
                }
            }
            Ok(_) => {}
            Err(error) => self.fail_storage(error.to_string()),
        }
        if let Some(range) = self.catching_up.unread_votes() {
            self.spine.storing.read(now, Purpose::Votes, range);
        }
        while let Some((purpose, done)) = self.spine.storing.next_read() {
            self.on_log_read(now, wall_ms, purpose, done, plane, front);
        }
    }

    /// Reports the writes that the log has started since the last call to the tuner, and to the
    /// trace of hops if it is enabled.
    pub(super) fn report_writes(&mut self, now: Time) {
        for (seq, bytes) in self.spine.storing.log().writes_in_flight() {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            self.tuning.on_write(now, seq, bytes);
        }
        if let Some(hops) = &mut self.spine.hops {
            // The last write contains all votes.
            let voted_to = self.spine.protocol.node().hard_state().voted_to;
            hops.stamp_writes(self.spine.storing.log().next_seq(), voted_to);
        }
    }

    /// Starts reading decided values that the service lacks and that are not in memory.
    pub(super) fn read_to_apply(&mut self, now: Time, range: SlotRange) {
        let range = self.catching_up.readable_part(range);
        if !range.is_empty() {
            self.spine.storing.read(now, Purpose::Apply, range);
        }
    }

    fn on_log_read(
        &mut self,
        now: Time,
        wall_ms: u64,
        purpose: Purpose,
        done: ReadDone,
        plane: &mut dyn Plane,
        front: &mut dyn Front,
    ) {
        self.catching_up.record_lost(
            &done.lost_slots,
            &mut self.spine.protocol,
            &mut self.spine.counters,
        );
        if purpose == Purpose::Scrub {
            return self.scrubbing.record_lost_slots(&done.lost_slots, done.result.is_err());
        }
        if let Some(why) = self.spine.storing.record_read_result(&done) {
            self.spine.observing.queue_event(Event::Unreadable { why });
        }
        let values = match done.result {
            Ok(values) => values,
            Err(error) if purpose == Purpose::Votes && !done.lost_slots.is_empty() => {
                return self.on_votes_lost(&error);
            }
            Err(_) => Values::new(),
        };
        let kind = purpose.kind();
        if values.is_empty() {
            self.spine.storing.postpone_reads(kind, now.plus_ms(RETRY_MS));
        }
        let mut out = self.spine.outbox(plane);
        match purpose {
            Purpose::Votes => self.catching_up.on_votes_read(values, &mut self.spine.contents),
            Purpose::Apply => self.apply_from_log(now, wall_ms, values, front),
            Purpose::Serve(to) => {
                if !self.catching_up.on_read_to_serve(to, values, &mut out) {
                    self.spine.storing.postpone_reads(kind, now.plus_ms(RETRY_MS));
                }
            }
            Purpose::Streams => self.streams_work().on_read(values),
            Purpose::Scrub => {}
            Purpose::Payload(to, value, _) => {
                catching_up::answer_request(to, value, &values, &mut out)
            }
        }
    }

    /// [value-3] Handles votes that are void because their bytes were lost after the scan at the
    /// start. The next start determines what else is lost, and as which member the node returns.
    fn on_votes_lost(&mut self, error: &LogError) {
        self.catching_up.forget_votes();
        self.fail_storage(format!("votes cannot be read back: {error}"));
    }

    fn apply_from_log(&mut self, now: Time, wall_ms: u64, values: Values, front: &mut dyn Front) {
        let decided_to = self.spine.executable_to();
        let (applying, _, mut listeners) = self.applying_parts(now, wall_ms, front);
        let bare = applying.run_from_log(decided_to, values, &mut listeners);
        self.process_applied(now, front);
        if let Some(bare) = bare {
            self.catching_up.record_lost(
                &[bare],
                &mut self.spine.protocol,
                &mut self.spine.counters,
            );
        }
    }

    /// [disk-9] Marks the storage as failed. The core learns of the failure in the next poll, and
    /// clients immediately, since their requests cannot succeed here.
    pub(super) fn fail_storage(&mut self, why: String) {
        if self.spine.storing.stop_appending(format!("the log failed: {why}")) {
            self.spine.observing.queue_event(Event::LogFailed { why });
            self.spine.protocol.queue_input(Input::StorageFailed);
            self.end_requests(Failure::Voteless);
        }
    }

    /// Makes this node stop voting, and records that it has forgotten votes ([volatile-1],
    /// [offload-9]). However this process ends, its stop must not be marked clean ([volatile-4]).
    pub(super) fn forget_votes(&mut self) {
        let why = "its device forgot votes that counted";
        if self.spine.storing.stop_appending(why.to_owned()) {
            self.end_requests(Failure::Voteless);
        }
    }
}
