//! Reads of the coordinator's next slot. A read completes with the response to a query sent after
//! the read arrived ([offload-18]).

use alloc::vec::Vec;

use quorate_core::slot::Slot;

use crate::owner::{
    ask::{Serial, Stands, StateQueries},
    desk::TurnContext,
    event::Event,
};

/// Maximum number of waiting reads. Further ones fail.
const READS_MAX: usize = 1024;

/// Waiting reads, and those that failed.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    waiting: Vec<(Serial, u64)>,
    failed: Vec<u64>,
}

impl Reads {
    /// Adds a read, whose query is sent after this call. The read fails unless `is_started` is set,
    /// because another coordinator may assign slots unless this one is started.
    pub(crate) fn push(&mut self, token: u64, is_started: bool, ask: &mut StateQueries) {
        if is_started && self.waiting.len() < READS_MAX {
            self.waiting.push((ask.want(), token));
        } else {
            self.failed.push(token);
        }
    }

    /// Fails all reads, because the coordinator is stopping.
    pub(crate) fn fail_all(&mut self) {
        let tokens = self.waiting.drain(..).map(|(_, token)| token);
        self.failed.extend(tokens);
    }

    pub(crate) fn on_stands(&mut self, stands: &Stands, desk: &mut TurnContext<'_>) {
        let next = Some(Slot(stands.header.voted));
        let answered = |(serial, _): &mut (Serial, u64)| *serial <= stands.serial;
        for (_, token) in self.waiting.extract_if(.., answered) {
            desk.tell(Event::Next { token, next });
        }
    }

    pub(crate) fn tell_failed(&mut self, desk: &mut TurnContext<'_>) {
        for token in self.failed.drain(..) {
            desk.tell(Event::Next { token, next: None });
        }
    }
}
