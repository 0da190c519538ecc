//! One control call, repeated under new numbers until the device responds ([offload-17]).

use crate::{Header, Reason, Type, port::Program};
use quorate_core::time::Time;

use crate::owner::{
    desk::TurnContext,
    event::LossReason,
    settings::{Settings, Timeouts},
};

/// A call that has not been answered yet.
#[derive(Debug)]
pub(crate) struct ControlCall {
    program: Program,
    header: Header,
    /// All numbers under which the call has been sent. A response to any of them completes it.
    sent_numbers: core::ops::RangeInclusive<u64>,
    last_sent_at: Option<Time>,
    /// Number of waits that ended without a response.
    unanswered_waits: u32,
    /// Set if the device refused the latest number as too low.
    was_outnumbered: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum CallResponse {
    Done(Header),
    Refused(Reason, Header),
}

impl ControlCall {
    pub(crate) const fn new(program: Program, header: Header) -> Self {
        Self {
            program,
            header,
            // An empty range in effect, because no call uses number 0.
            sent_numbers: 0..=0,
            last_sent_at: None,
            unanswered_waits: 0,
            was_outnumbered: false,
        }
    }

    /// Returns whether the call has ever been sent. If so, the device may have executed it
    /// ([offload-8]).
    pub(crate) const fn was_sent(&self) -> bool {
        self.last_sent_at.is_some()
    }

    pub(crate) const fn request_header(&self) -> Header {
        self.header
    }

    pub(crate) fn next_due_at(&self, pace: &Timeouts) -> Time {
        self.last_sent_at.map_or(Time(0), |sent| sent.plus_us(pace.wait_us(self.unanswered_waits)))
    }

    pub(crate) const fn is_late(&self, pace: &Timeouts) -> bool {
        pace.is_late(self.unanswered_waits)
    }

    /// Sends or resends the call if it is due.
    pub(crate) fn send_if_due(&mut self, desk: &mut TurnContext<'_>) -> Result<(), LossReason> {
        if self.next_due_at(desk.timeouts()) > desk.now {
            return Ok(());
        }
        if self.was_sent() {
            self.unanswered_waits += 1;
        }
        if self.was_outnumbered && self.is_late(desk.timeouts()) {
            return Err(LossReason::OtherOwner);
        }
        if desk.timeouts().is_abandoned(self.unanswered_waits) {
            return Err(LossReason::NoAnswer);
        }
        let number = desk.next_call_number();
        self.sent_numbers = match self.last_sent_at {
            None => number..=number,
            Some(_) => *self.sent_numbers.start()..=number,
        };
        (self.last_sent_at, self.was_outnumbered) = (Some(desk.now), false);
        self.header.boot = desk.settings.device_boot;
        self.header.value.origin_boot = desk.settings.owner_boot;
        self.header.value.counter = number;
        desk.put_frame(self.program, &self.header, &[]);
        Ok(())
    }

    /// Returns the response in the program's frame, if it belongs to this call.
    pub(crate) fn on_frame(&mut self, said: &Header, settings: &Settings) -> Option<CallResponse> {
        let ours = said.value.origin_boot == settings.owner_boot
            && self.sent_numbers.contains(&said.value.counter)
            && self.was_sent();
        match said.kind {
            Type::Done if ours => Some(CallResponse::Done(*said)),
            Type::Refused if ours => {
                let reason = Reason::ALL.get(usize::from(said.reason))?;
                // A duplicated frame, or one overtaken by a later call, is refused as old. Either
                // the real response still arrives, or the call is repeated.
                if *reason == Reason::Order {
                    self.was_outnumbered |= said.value.counter == *self.sent_numbers.end();
                    return None;
                }
                Some(CallResponse::Refused(*reason, *said))
            }
            _ => None,
        }
    }
}
