//! One control call, repeated under new numbers until the device responds ([offload-17]).

use crate::{Header, Reason, Type, port::Program};
use quorate_core::time::Time;

use crate::owner::{
    desk::TurnContext,
    event::Loss,
    settings::{Pace, Settings},
};

/// A call that has not been answered yet.
#[derive(Debug)]
pub(crate) struct Call {
    program: Program,
    header: Header,
    /// All numbers under which the call has been sent. A response to any of them completes it.
    numbers: core::ops::RangeInclusive<u64>,
    sent: Option<Time>,
    /// Number of waits that ended without a response.
    waits: u32,
    /// Set if the device refused the latest number as too low.
    is_old: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Done(Header),
    Refused(Reason, Header),
}

impl Call {
    pub(crate) const fn new(program: Program, header: Header) -> Self {
        Self {
            program,
            header,
            // An empty range in effect, because no call uses number 0.
            numbers: 0..=0,
            sent: None,
            waits: 0,
            is_old: false,
        }
    }

    /// Returns whether the call has ever been sent. If so, the device may have executed it
    /// ([offload-8]).
    pub(crate) const fn was_sent(&self) -> bool {
        self.sent.is_some()
    }

    pub(crate) const fn asked(&self) -> Header {
        self.header
    }

    pub(crate) fn due(&self, pace: &Pace) -> Time {
        self.sent.map_or(Time(0), |sent| sent.plus_us(pace.wait_us(self.waits)))
    }

    pub(crate) const fn is_late(&self, pace: &Pace) -> bool {
        pace.is_late(self.waits)
    }

    /// Sends or resends the call if it is due.
    pub(crate) fn advance(&mut self, desk: &mut TurnContext<'_>) -> Result<(), Loss> {
        if self.due(desk.pace()) > desk.now {
            return Ok(());
        }
        if self.was_sent() {
            self.waits += 1;
        }
        if self.is_old && self.is_late(desk.pace()) {
            return Err(Loss::OtherOwner);
        }
        if desk.pace().is_lost(self.waits) {
            return Err(Loss::NoAnswer);
        }
        let number = desk.number();
        self.numbers = match self.sent {
            None => number..=number,
            Some(_) => *self.numbers.start()..=number,
        };
        (self.sent, self.is_old) = (Some(desk.now), false);
        self.header.boot = desk.settings.device_boot;
        self.header.value.origin_boot = desk.settings.owner_boot;
        self.header.value.counter = number;
        desk.put(self.program, &self.header, &[]);
        Ok(())
    }

    /// Returns the response in the program's frame, if it belongs to this call.
    pub(crate) fn hear(&mut self, said: &Header, settings: &Settings) -> Option<Answer> {
        let ours = said.value.origin_boot == settings.owner_boot
            && self.numbers.contains(&said.value.counter)
            && self.was_sent();
        match said.kind {
            Type::Done if ours => Some(Answer::Done(*said)),
            Type::Refused if ours => {
                let reason = Reason::ALL.get(usize::from(said.reason))?;
                // A duplicated frame, or one overtaken by a later call, is refused as old. Either
                // the real response still arrives, or the call is repeated.
                if *reason == Reason::Order {
                    self.is_old |= said.value.counter == *self.numbers.end();
                    return None;
                }
                Some(Answer::Refused(*reason, *said))
            }
            _ => None,
        }
    }
}
