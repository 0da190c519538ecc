//! Queries of a program's state. They have no call number; a tag matches each response to its
//! query.

use alloc::collections::VecDeque;

use crate::{Header, Type, port::Program};
use quorate_core::time::Time;

use crate::owner::{
    desk::TurnContext, event::LossReason, frames::ZERO_COUNTER, settings::Timeouts,
};

/// Maximum number of outstanding queries. Beyond it, the oldest is abandoned.
const QUERIES_MAX: usize = 16;

/// Sequence number of a query, starting at 1.
pub(crate) type QuerySerial = u64;

/// A program's state, received in response to a query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueriedState {
    pub(crate) serial: QuerySerial,
    /// Time at which the query was sent.
    pub(crate) queried_at: Time,
    pub(crate) header: Header,
}

/// Queries to one program, repeated until there is a response.
#[derive(Debug)]
pub(crate) struct StateQueries {
    program: Program,
    last_serial: QuerySerial,
    outstanding: VecDeque<(QuerySerial, Time)>,
    is_query_scheduled: bool,
    /// Start of the current wait for a response.
    waiting_since: Time,
    /// Number of waits that ended without a response.
    unanswered_waits: u32,
    /// Time of the latest response.
    last_response_at: Time,
}

impl StateQueries {
    pub(crate) const fn new(program: Program) -> Self {
        Self {
            program,
            last_serial: 0,
            outstanding: VecDeque::new(),
            is_query_scheduled: false,
            waiting_since: Time(0),
            unanswered_waits: 0,
            last_response_at: Time(0),
        }
    }

    /// Schedules a query for this turn and returns its serial number. A response to this or any
    /// later query completes it.
    pub(crate) const fn schedule_query(&mut self) -> QuerySerial {
        self.is_query_scheduled = true;
        self.last_serial + 1
    }

    /// Abandons all queries. Called before the program is armed with another record, because
    /// responses about the old one would be misleading.
    pub(crate) fn abandon_all(&mut self) {
        self.outstanding.clear();
        (self.is_query_scheduled, self.unanswered_waits) = (false, 0);
    }

    /// Returns whether a query is scheduled or outstanding.
    pub(crate) fn is_open(&self) -> bool {
        self.is_query_scheduled || !self.outstanding.is_empty()
    }

    pub(crate) const fn last_response_at(&self) -> Time {
        self.last_response_at
    }

    pub(crate) fn next_due_at(&self, pace: &Timeouts) -> Option<Time> {
        if self.is_query_scheduled {
            return Some(Time(0));
        }
        (!self.outstanding.is_empty()).then(|| self.next_query_at(pace))
    }

    fn next_query_at(&self, pace: &Timeouts) -> Time {
        self.waiting_since.plus_us(pace.wait_us(self.unanswered_waits))
    }

    pub(crate) const fn is_late(&self, pace: &Timeouts) -> bool {
        pace.is_late(self.unanswered_waits)
    }

    pub(crate) fn send_due(&mut self, desk: &mut TurnContext<'_>) -> Result<(), LossReason> {
        let late = !self.outstanding.is_empty() && desk.now >= self.next_query_at(desk.timeouts());
        if late {
            self.unanswered_waits += 1;
            self.waiting_since = desk.now;
            if desk.timeouts().is_abandoned(self.unanswered_waits) {
                return Err(LossReason::NoAnswer);
            }
        }
        if !core::mem::take(&mut self.is_query_scheduled) && !late {
            return Ok(());
        }
        if self.outstanding.is_empty() {
            self.waiting_since = desk.now;
        }
        if self.outstanding.len() == QUERIES_MAX {
            self.outstanding.pop_front();
        }
        self.last_serial += 1;
        self.outstanding.push_back((self.last_serial, desk.now));
        let mut header = desk.frames.empty_header(self.program, Type::Ask);
        header.boot = desk.settings.device_boot;
        header.value.origin = ZERO_COUNTER;
        header.value.origin_boot = query_tag(desk.settings.owner_boot, self.last_serial);
        desk.put_frame(self.program, &header, &[]);
        Ok(())
    }

    /// Returns the state in a frame if it responds to an outstanding query.
    pub(crate) fn on_frame(
        &mut self,
        said: &Header,
        now: Time,
        owner_boot: u32,
    ) -> Option<QueriedState> {
        if said.kind != Type::Done || said.value.origin != ZERO_COUNTER || said.value.counter != 0 {
            return None;
        }
        let is_it = |(serial, _): &&(QuerySerial, Time)| {
            query_tag(owner_boot, *serial) == said.value.origin_boot
        };
        let (serial, asked) = *self.outstanding.iter().find(is_it)?;
        self.outstanding.retain(|(other, _)| *other > serial);
        (self.waiting_since, self.unanswered_waits, self.last_response_at) = (now, 0, now);
        Some(QueriedState { serial, queried_at: asked, header: *said })
    }
}

/// Returns the tag of a query, which also differs between processes of the same owner.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a tag is compared with the few that are awaited"
)]
const fn query_tag(owner_boot: u32, serial: QuerySerial) -> u32 {
    owner_boot.wrapping_mul(0x9e37_79b1).wrapping_add(serial as u32)
}
