//! Reads of the coordinator's next slot. A read completes with the response to a query sent after
//! the read arrived ([offload-18]).

use alloc::vec::Vec;

use quorate_core::slot::Slot;

use crate::owner::{
    ask::{QueriedState, QuerySerial, StateQueries},
    desk::TurnContext,
    event::Event,
};

/// Maximum number of waiting reads. Further ones fail.
const READS_MAX: usize = 1024;

/// Waiting reads, and those that failed.
#[derive(Debug, Default)]
pub(crate) struct NextSlotReads {
    waiting_reads: Vec<(QuerySerial, u64)>,
    failed_reads: Vec<u64>,
}

impl NextSlotReads {
    /// Adds a read, whose query is sent after this call. The read fails unless `is_started` is set,
    /// because another coordinator may assign slots unless this one is started.
    pub(crate) fn push(&mut self, token: u64, is_started: bool, ask: &mut StateQueries) {
        if is_started && self.waiting_reads.len() < READS_MAX {
            self.waiting_reads.push((ask.schedule_query(), token));
        } else {
            self.failed_reads.push(token);
        }
    }

    /// Fails all reads, because the coordinator is stopping.
    pub(crate) fn fail_all(&mut self) {
        let tokens = self.waiting_reads.drain(..).map(|(_, token)| token);
        self.failed_reads.extend(tokens);
    }

    pub(crate) fn on_state(&mut self, stands: &QueriedState, desk: &mut TurnContext<'_>) {
        let next = Some(Slot(stands.header.voted));
        let answered = |(serial, _): &mut (QuerySerial, u64)| *serial <= stands.serial;
        for (_, token) in self.waiting_reads.extract_if(.., answered) {
            desk.push_event(Event::NextSlot { token, next });
        }
    }

    pub(crate) fn report_failed(&mut self, desk: &mut TurnContext<'_>) {
        for token in self.failed_reads.drain(..) {
            desk.push_event(Event::NextSlot { token, next: None });
        }
    }
}
