//! Submitted values that are not yet known to have been assigned a slot.

use alloc::{collections::VecDeque, vec::Vec};

use crate::{Descriptor, port::Program};
use quorate_core::{time::Time, value::Value};

use crate::owner::{
    desk::TurnContext,
    event::SlotValue,
    settings::Pace,
    value::{NotCarried, descriptor},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSubmitted {
    /// Devices do not carry the value, so it must be sent over TCP.
    NotCarried(NotCarried),
    /// The number of waiting values has reached the device's number of cells ([offload-14]).
    Full,
}

#[derive(Debug)]
struct Waiter {
    named: Descriptor,
    value: Value,
    bytes: Vec<u8>,
    /// Time of the last transmission, or `None` if the value has to be sent.
    sent: Option<Time>,
    /// Slot below which the value must be found; otherwise it was lost.
    not_below: Option<u64>,
}

/// Submitted values, oldest first.
#[derive(Debug)]
pub(crate) struct Waiting {
    list: VecDeque<Waiter>,
    window: usize,
    /// Time until which sending is suspended because the ring was full.
    hold: Time,
}

impl Waiting {
    pub(crate) fn new(window: u64) -> Self {
        Self {
            list: VecDeque::new(),
            window: usize::try_from(window).unwrap_or(usize::MAX).max(1),
            hold: Time(0),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn push(&mut self, named: Descriptor, value: Value, bytes: &[u8]) {
        self.list.push_back(Waiter {
            named,
            value,
            bytes: bytes.to_vec(),
            sent: None,
            not_below: None,
        });
    }

    /// Removes a value that was assigned to a slot.
    pub(crate) fn on_given(&mut self, named: &Descriptor) {
        if let Some(at) = self.list.iter().position(|waiter| waiter.named == *named) {
            self.list.remove(at);
        }
    }

    /// Removes the values that a withdrawal found in assigned slots.
    pub(crate) fn on_taken_back(&mut self, given: &[SlotValue], room: usize) {
        for held in given {
            if let Ok(named) = descriptor(&held.value, &held.bytes, room) {
                self.on_given(&named);
            }
        }
    }

    /// [offload-14] Schedules a value for another transmission, because the coordinator refused it:
    /// its ring was full, or it was not started.
    pub(crate) fn on_refused(&mut self, named: &Descriptor, now: Time, pace: &Pace) {
        let sent = self.list.iter_mut().filter(|waiter| waiter.named == *named);
        sent.for_each(|waiter| waiter.sent = None);
        self.hold = now.plus_us(pace.slot_us);
    }

    /// Resumes sending after space has become available.
    pub(crate) const fn resume(&mut self) {
        self.hold = Time(0);
    }

    /// Returns whether sending is suspended.
    pub(crate) fn is_held(&self, now: Time) -> bool {
        self.hold > now
    }

    /// Marks all values as unsent, because none has been sent since the coordinator was started.
    pub(crate) fn forget_sent(&mut self) {
        for waiter in &mut self.list {
            (waiter.sent, waiter.not_below) = (None, None);
        }
        self.resume();
    }

    pub(crate) fn withdraw(&mut self) -> Vec<(Value, Vec<u8>)> {
        let list = self.list.drain(..);
        list.map(|waiter| (waiter.value, waiter.bytes)).collect()
    }

    /// Records the coordinator's next slot as of a query at time `asked`. A value sent before that
    /// was lost if it is in none of the lower slots.
    pub(crate) fn on_next(&mut self, asked: Time, next: u64) {
        for waiter in &mut self.list {
            if waiter.sent.is_some_and(|sent| sent < asked) {
                waiter.not_below.get_or_insert(next);
            }
        }
    }

    /// Sends values that are new or were lost. All slots below `known` are known. Returns whether
    /// the next slot must be queried.
    pub(crate) fn advance(&mut self, desk: &mut TurnContext<'_>, known: u64) -> bool {
        let mut ask = false;
        let held = self.is_held(desk.now);
        for waiter in self.list.iter_mut().take(self.window) {
            let late = match waiter.sent {
                None => !held,
                Some(sent) if desk.now >= sent.plus_us(desk.pace().answer_us) => {
                    let lost = waiter.not_below.is_some_and(|next| known >= next);
                    ask |= waiter.not_below.is_none();
                    lost && !held
                }
                Some(_) => false,
            };
            if !late {
                continue;
            }
            (waiter.sent, waiter.not_below) = (Some(desk.now), None);
            let header = desk.frames.submit(waiter.named);
            desk.put(Program::Coordinator, &header, &waiter.bytes);
        }
        ask
    }

    pub(crate) fn due(&self, pace: &Pace) -> Option<Time> {
        let window = self.list.iter().take(self.window);
        let times = window.map(|waiter| match waiter.sent {
            None => self.hold,
            Some(sent) => sent.plus_us(pace.answer_us).max(self.hold),
        });
        times.min()
    }
}
