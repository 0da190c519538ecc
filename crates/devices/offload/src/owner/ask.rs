//! Queries of a program's state. They have no call number; a tag matches each response to its
//! query.

use alloc::collections::VecDeque;

use crate::{Header, Type, port::Program};
use quorate_core::time::Time;

use crate::owner::{desk::TurnContext, event::Loss, frames::QUIET, settings::Pace};

/// Maximum number of outstanding queries. Beyond it, the oldest is abandoned.
const SENT_MAX: usize = 16;

/// Sequence number of a query, starting at 1.
pub(crate) type Serial = u64;

/// A program's state, received in response to a query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stands {
    pub(crate) serial: Serial,
    /// Time at which the query was sent.
    pub(crate) asked: Time,
    pub(crate) header: Header,
}

/// Queries to one program, repeated until there is a response.
#[derive(Debug)]
pub(crate) struct StateQueries {
    program: Program,
    last: Serial,
    sent: VecDeque<(Serial, Time)>,
    wanted: bool,
    /// Start of the current wait for a response.
    silent: Time,
    /// Number of waits that ended without a response.
    waits: u32,
    /// Time of the latest response.
    heard: Time,
}

impl StateQueries {
    pub(crate) const fn new(program: Program) -> Self {
        Self {
            program,
            last: 0,
            sent: VecDeque::new(),
            wanted: false,
            silent: Time(0),
            waits: 0,
            heard: Time(0),
        }
    }

    /// Schedules a query for this turn and returns its serial number. A response to this or any
    /// later query completes it.
    pub(crate) const fn want(&mut self) -> Serial {
        self.wanted = true;
        self.last + 1
    }

    /// Abandons all queries. Called before the program is armed with another record, because
    /// responses about the old one would be misleading.
    pub(crate) fn forget(&mut self) {
        self.sent.clear();
        (self.wanted, self.waits) = (false, 0);
    }

    /// Returns whether a query is scheduled or outstanding.
    pub(crate) fn is_open(&self) -> bool {
        self.wanted || !self.sent.is_empty()
    }

    pub(crate) const fn heard(&self) -> Time {
        self.heard
    }

    pub(crate) fn due(&self, pace: &Pace) -> Option<Time> {
        if self.wanted {
            return Some(Time(0));
        }
        (!self.sent.is_empty()).then(|| self.late_at(pace))
    }

    fn late_at(&self, pace: &Pace) -> Time {
        self.silent.plus_us(pace.wait_us(self.waits))
    }

    pub(crate) const fn is_late(&self, pace: &Pace) -> bool {
        pace.is_late(self.waits)
    }

    pub(crate) fn advance(&mut self, desk: &mut TurnContext<'_>) -> Result<(), Loss> {
        let late = !self.sent.is_empty() && desk.now >= self.late_at(desk.pace());
        if late {
            self.waits += 1;
            self.silent = desk.now;
            if desk.pace().is_lost(self.waits) {
                return Err(Loss::NoAnswer);
            }
        }
        if !core::mem::take(&mut self.wanted) && !late {
            return Ok(());
        }
        if self.sent.is_empty() {
            self.silent = desk.now;
        }
        if self.sent.len() == SENT_MAX {
            self.sent.pop_front();
        }
        self.last += 1;
        self.sent.push_back((self.last, desk.now));
        let mut header = desk.frames.plain(self.program, Type::Ask);
        header.boot = desk.settings.device_boot;
        header.value.origin = QUIET;
        header.value.origin_boot = tag(desk.settings.owner_boot, self.last);
        desk.put(self.program, &header, &[]);
        Ok(())
    }

    /// Returns the state in a frame if it responds to an outstanding query.
    pub(crate) fn hear(&mut self, said: &Header, now: Time, owner_boot: u32) -> Option<Stands> {
        if said.kind != Type::Done || said.value.origin != QUIET || said.value.counter != 0 {
            return None;
        }
        let is_it =
            |(serial, _): &&(Serial, Time)| tag(owner_boot, *serial) == said.value.origin_boot;
        let (serial, asked) = *self.sent.iter().find(is_it)?;
        self.sent.retain(|(other, _)| *other > serial);
        (self.silent, self.waits, self.heard) = (now, 0, now);
        Some(Stands { serial, asked, header: *said })
    }
}

/// Returns the tag of a query, which also differs between processes of the same owner.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a tag is compared with the few that are awaited"
)]
const fn tag(owner_boot: u32, serial: Serial) -> u32 {
    owner_boot.wrapping_mul(0x9e37_79b1).wrapping_add(serial as u32)
}
