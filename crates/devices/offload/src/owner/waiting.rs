//! Submitted values that are not yet known to have been assigned a slot.

use alloc::{collections::VecDeque, vec::Vec};

use crate::{Descriptor, port::Program};
use quorate_core::{time::Time, value::Value};

use crate::owner::{
    desk::TurnContext,
    event::SlotValue,
    settings::Timeouts,
    value::{NotOffloadable, describe_value},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSubmitted {
    /// Devices do not carry the value, so it must be sent over TCP.
    NotOffloadable(NotOffloadable),
    /// The number of waiting values has reached the device's number of cells ([offload-14]).
    Full,
}

#[derive(Debug)]
struct SubmittedValue {
    descriptor: Descriptor,
    value: Value,
    bytes: Vec<u8>,
    /// Time of the last transmission, or `None` if the value has to be sent.
    last_sent_at: Option<Time>,
    /// Slot below which the value must be found; otherwise it was lost.
    lost_unless_below: Option<u64>,
}

/// Submitted values, oldest first.
#[derive(Debug)]
pub(crate) struct SubmittedValues {
    values: VecDeque<SubmittedValue>,
    in_flight_max: usize,
    /// Time until which sending is suspended because the ring was full.
    suspended_until: Time,
}

impl SubmittedValues {
    pub(crate) fn new(window: u64) -> Self {
        Self {
            values: VecDeque::new(),
            in_flight_max: usize::try_from(window).unwrap_or(usize::MAX).max(1),
            suspended_until: Time(0),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn push(&mut self, named: Descriptor, value: Value, bytes: &[u8]) {
        self.values.push_back(SubmittedValue {
            descriptor: named,
            value,
            bytes: bytes.to_vec(),
            last_sent_at: None,
            lost_unless_below: None,
        });
    }

    /// Removes a value that was assigned to a slot.
    pub(crate) fn on_assigned(&mut self, named: &Descriptor) {
        if let Some(at) = self.values.iter().position(|waiter| waiter.descriptor == *named) {
            self.values.remove(at);
        }
    }

    /// Removes the values that a withdrawal found in assigned slots.
    pub(crate) fn on_withdrawn(&mut self, given: &[SlotValue], room: usize) {
        for held in given {
            if let Ok(named) = describe_value(&held.value, &held.bytes, room) {
                self.on_assigned(&named);
            }
        }
    }

    /// [offload-14] Schedules a value for another transmission, because the coordinator refused it:
    /// its ring was full, or it was not started.
    pub(crate) fn on_refused(&mut self, named: &Descriptor, now: Time, pace: &Timeouts) {
        let sent = self.values.iter_mut().filter(|waiter| waiter.descriptor == *named);
        sent.for_each(|waiter| waiter.last_sent_at = None);
        self.suspended_until = now.plus_us(pace.slot_retry_us);
    }

    /// Resumes sending after space has become available.
    pub(crate) const fn resume_sending(&mut self) {
        self.suspended_until = Time(0);
    }

    /// Returns whether sending is suspended.
    pub(crate) fn is_held(&self, now: Time) -> bool {
        self.suspended_until > now
    }

    /// Marks all values as unsent, because none has been sent since the coordinator was started.
    pub(crate) fn mark_all_unsent(&mut self) {
        for waiter in &mut self.values {
            (waiter.last_sent_at, waiter.lost_unless_below) = (None, None);
        }
        self.resume_sending();
    }

    pub(crate) fn take_all(&mut self) -> Vec<(Value, Vec<u8>)> {
        let list = self.values.drain(..);
        list.map(|waiter| (waiter.value, waiter.bytes)).collect()
    }

    /// Records the coordinator's next slot as of a query at time `asked`. A value sent before that
    /// was lost if it is in none of the lower slots.
    pub(crate) fn on_next_slot(&mut self, asked: Time, next: u64) {
        for waiter in &mut self.values {
            if waiter.last_sent_at.is_some_and(|sent| sent < asked) {
                waiter.lost_unless_below.get_or_insert(next);
            }
        }
    }

    /// Sends values that are new or were lost. All slots below `known` are known. Returns whether
    /// the next slot must be queried.
    pub(crate) fn send_due(&mut self, desk: &mut TurnContext<'_>, known: u64) -> bool {
        let mut ask = false;
        let held = self.is_held(desk.now);
        for waiter in self.values.iter_mut().take(self.in_flight_max) {
            let late = match waiter.last_sent_at {
                None => !held,
                Some(sent) if desk.now >= sent.plus_us(desk.timeouts().response_us) => {
                    let lost = waiter.lost_unless_below.is_some_and(|next| known >= next);
                    ask |= waiter.lost_unless_below.is_none();
                    lost && !held
                }
                Some(_) => false,
            };
            if !late {
                continue;
            }
            (waiter.last_sent_at, waiter.lost_unless_below) = (Some(desk.now), None);
            let header = desk.frames.submit_header(waiter.descriptor);
            desk.put_frame(Program::Coordinator, &header, &waiter.bytes);
        }
        ask
    }

    pub(crate) fn next_due_at(&self, pace: &Timeouts) -> Option<Time> {
        let window = self.values.iter().take(self.in_flight_max);
        let times = window.map(|waiter| match waiter.last_sent_at {
            None => self.suspended_until,
            Some(sent) => sent.plus_us(pace.response_us).max(self.suspended_until),
        });
        times.min()
    }
}
