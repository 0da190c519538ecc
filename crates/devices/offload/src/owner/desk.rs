//! Context that an owner passes to its parts in each turn: the time, the port, the call counter and
//! the event list.

use alloc::vec::Vec;

use crate::{
    Header,
    port::{Device, Program},
};
use quorate_core::time::Time;

use crate::owner::{
    event::{Event, Loss},
    frames::Frames,
    settings::{Pace, Settings},
};

/// Access to the device, the clock and the events, for one turn of the owner.
pub(crate) struct TurnContext<'a> {
    pub(crate) now: Time,
    pub(crate) settings: &'a Settings,
    pub(crate) frames: &'a mut Frames,
    /// Number of the latest call, counted over both programs.
    pub(crate) counter: &'a mut u64,
    pub(crate) device: &'a mut dyn Device,
    /// Set if a drain has begun in this turn.
    pub(crate) draining: bool,
    pub(crate) events: &'a mut Vec<Event>,
}

impl TurnContext<'_> {
    pub(crate) const fn pace(&self) -> &Pace {
        &self.settings.pace
    }

    pub(crate) fn put(&mut self, program: Program, header: &Header, bytes: &[u8]) {
        let frame = self.frames.make(header, bytes);
        self.device.put(program, frame);
    }

    /// [offload-17] Returns the number for a call. A repeated call also needs a new number, because
    /// the device refuses old ones.
    pub(crate) fn number(&mut self) -> u64 {
        *self.counter += 1;
        *self.counter
    }

    /// Begins a drain of both programs, unless one has already begun in this turn.
    pub(crate) fn drain(&mut self) {
        if !self.draining {
            self.device.drain();
        }
        self.draining = true;
    }

    /// [offload-9] Fails if the boot or the shape in the response to a boot call is not the
    /// expected one.
    pub(crate) fn check_booted(&self, said: &Header) -> Result<(), Loss> {
        if said.boot != self.settings.device_boot {
            return Err(Loss::Boot { found: said.boot });
        }
        let shape = self.frames.shape();
        let cells = said.value.crc == shape.cells;
        let room = usize::from(said.value.length) == shape.room;
        if cells && room { Ok(()) } else { Err(Loss::Shape) }
    }

    pub(crate) fn tell(&mut self, event: Event) {
        self.events.push(event);
    }
}
