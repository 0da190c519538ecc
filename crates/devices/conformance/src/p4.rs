//! The programs for switches, on the interpreter.

use std::{io, path::Path};

use quorate_device::p4::{Machine, Sources, compile};
use quorate_offload::Port;

use crate::{Device, Event, Program, frames::Size, vectors::Sent};

/// Copies for both ports, the network's first.
const BOTH: u16 = 1;

/// The committed programs.
pub fn sources() -> io::Result<Sources> {
    Sources::folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../programs/p4"))
}

/// A switch.
pub struct Switch(Machine);

impl Switch {
    /// As the vectors want it.
    pub fn new(sources: &Sources, program: Program) -> Result<Self, String> {
        Self::of(sources, program, Size::VECTORS)
    }

    /// With registers of zero. What is wrong with the program has file, line and column.
    pub fn of(sources: &Sources, program: Program, size: Size) -> Result<Self, String> {
        let name = format!("{}.p4", program.name());
        let (cells, room) = (size.cells.to_string(), size.room.to_string());
        let defines = [("CELLS", cells.as_str()), ("PART", &room)];
        let compiled = compile(sources, &name, &defines);
        let mut machine = Machine::new(compiled.map_err(|error| error.to_string())?);
        machine.set_group(BOTH, &[0, 1]);
        Ok(Self(machine))
    }
}

impl Device for Switch {
    fn step(&mut self, event: &Event) -> Result<Vec<Sent>, String> {
        let Event::Frame(port, frame) = event else {
            self.0.reset();
            return Ok(Vec::new());
        };
        let sent = self.0.process(*port as u16, frame);
        let sent = sent.map_err(|fault| fault.to_string())?;
        let port = |port| match port {
            0 => Ok(Port::Network),
            1 => Ok(Port::Owner),
            _ => Err(format!("there is no port {port}")),
        };
        sent.into_iter()
            .map(|(number, frame)| Ok((port(number)?, frame)))
            .collect()
    }
}
