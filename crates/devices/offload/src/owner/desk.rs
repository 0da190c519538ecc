//! Context that an owner passes to its parts in each turn: the time, the port, the call counter and
//! the event list.

use alloc::vec::Vec;

use crate::{
    Header,
    port::{Device, Program},
};
use quorate_core::time::Time;

use crate::owner::{
    event::{Event, LossReason},
    frames::FrameCodec,
    settings::{Settings, Timeouts},
};

/// Access to the device, the clock and the events, for one turn of the owner.
pub(crate) struct TurnContext<'a> {
    pub(crate) now: Time,
    pub(crate) settings: &'a Settings,
    pub(crate) frames: &'a mut FrameCodec,
    /// Number of the latest call, counted over both programs.
    pub(crate) last_call_number: &'a mut u64,
    pub(crate) device: &'a mut dyn Device,
    /// Set if a drain has begun in this turn.
    pub(crate) draining: bool,
    pub(crate) events: &'a mut Vec<Event>,
}

impl TurnContext<'_> {
    pub(crate) const fn timeouts(&self) -> &Timeouts {
        &self.settings.timeouts
    }

    pub(crate) fn put_frame(&mut self, program: Program, header: &Header, bytes: &[u8]) {
        let frame = self.frames.encode(header, bytes);
        self.device.put_frame(program, frame);
    }

    /// [offload-17] Returns the number for a call. A repeated call also needs a new number, because
    /// the device refuses old ones.
    pub(crate) fn next_call_number(&mut self) -> u64 {
        *self.last_call_number += 1;
        *self.last_call_number
    }

    /// Begins a drain of both programs, unless one has already begun in this turn.
    pub(crate) fn begin_drain(&mut self) {
        if !self.draining {
            self.device.begin_drain();
        }
        self.draining = true;
    }

    /// [offload-9] Fails if the boot or the shape in the response to a boot call is not the
    /// expected one.
    pub(crate) fn check_booted(&self, said: &Header) -> Result<(), LossReason> {
        if said.boot != self.settings.device_boot {
            return Err(LossReason::Boot { found: said.boot });
        }
        let shape = self.frames.shape();
        let cells = said.value.crc == shape.cells;
        let room = usize::from(said.value.length) == shape.room;
        if cells && room { Ok(()) } else { Err(LossReason::ShapeMismatch) }
    }

    pub(crate) fn push_event(&mut self, event: Event) {
        self.events.push(event);
    }
}
