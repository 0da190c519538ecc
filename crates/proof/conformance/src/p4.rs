//! Runs the switch programs on the interpreter.

use std::{io, path::Path};

use quorate_device::p4::{self, Sources};

use crate::{Device, Event, Program, frames::Size, vectors::Sent};

/// Reads the committed switch programs, in which mutants are planted.
pub fn sources() -> io::Result<Sources> {
    Sources::folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../devices/programs/p4"))
}

/// Interpreted switch as a device under test.
pub struct Switch(p4::Switch);

impl Switch {
    /// Creates a switch with the dimensions that the vectors use.
    pub fn new(sources: &Sources, program: Program) -> Result<Self, String> {
        Self::of(sources, program, Size::VECTORS)
    }

    /// Creates a switch whose registers are zero. An error in the program is reported with its
    /// file, line and column.
    pub fn of(sources: &Sources, program: Program, size: Size) -> Result<Self, String> {
        p4::Switch::new(sources, program.name(), size.cells, size.room).map(Self)
    }
}

impl Device for Switch {
    fn step(&mut self, event: &Event) -> Result<Vec<Sent>, String> {
        self.0.step(event)
    }
}
