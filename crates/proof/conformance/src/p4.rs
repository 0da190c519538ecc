//! The programs for switches, on the interpreter.

use std::{io, path::Path};

use quorate_device::p4::{self, Sources};

use crate::{Device, Event, Program, frames::Size, vectors::Sent};

/// The committed programs, read now: a mutant is planted in them.
pub fn sources() -> io::Result<Sources> {
    Sources::folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../devices/programs/p4"))
}

/// A switch.
pub struct Switch(p4::Switch);

impl Switch {
    /// As the vectors want it.
    pub fn new(sources: &Sources, program: Program) -> Result<Self, String> {
        Self::of(sources, program, Size::VECTORS)
    }

    /// With registers of zero. What is wrong with the program has file, line and column.
    pub fn of(sources: &Sources, program: Program, size: Size) -> Result<Self, String> {
        p4::Switch::new(sources, program.name(), size.cells, size.room).map(Self)
    }
}

impl Device for Switch {
    fn step(&mut self, event: &Event) -> Result<Vec<Sent>, String> {
        self.0.step(event)
    }
}
