//! Runs one of the committed switch programs on the interpreter.

use quorate_offload::Port;

use super::{Machine, Sources, compile};
use crate::{Device, Event, Program, frames::DeviceSize, vectors::SentFrame};

/// The committed programs, and the file that both include.
const COMMITTED_FILES: [(&str, &str); 3] = [
    ("acceptor.p4", include_str!("../../../../devices/programs/p4/acceptor.p4")),
    ("coordinator.p4", include_str!("../../../../devices/programs/p4/coordinator.p4")),
    ("frame.p4", include_str!("../../../../devices/programs/p4/frame.p4")),
];
/// Multicast group of both ports, with the network's port first.
const BOTH_PORTS_GROUP: u16 = 1;

/// Returns the committed programs, in which mutants are planted.
#[must_use]
pub fn committed_sources() -> Sources {
    let mut sources = Sources::default();
    for (name, text) in COMMITTED_FILES {
        sources.set_text(name, text.to_owned());
    }
    sources
}

/// A switch with two ports that runs one program, as a device under test.
pub struct Switch(Machine);

impl Switch {
    /// Creates a switch with the dimensions that the vectors use.
    pub fn new(sources: &Sources, program: Program) -> Result<Self, String> {
        Self::with_size(sources, program, DeviceSize::VECTORS)
    }

    /// Compiles a program with zeroed registers. The room is 32, 64 or 128 bytes. An error in the
    /// program names file, line and column.
    pub fn with_size(
        sources: &Sources,
        program: Program,
        size: DeviceSize,
    ) -> Result<Self, String> {
        let (cells, room) = (size.cell_count.to_string(), size.room_bytes.to_string());
        let defines = [("CELLS", cells.as_str()), ("PART", &room)];
        let compiled = compile(sources, &format!("{}.p4", program.name()), &defines);
        let mut machine = Machine::new(compiled.map_err(|error| error.to_string())?);
        machine.set_group(BOTH_PORTS_GROUP, &[0, 1]);
        Ok(Self(machine))
    }
}

impl Device for Switch {
    fn step(&mut self, event: &Event) -> Result<Vec<SentFrame>, String> {
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
        sent.into_iter().map(|(number, frame)| Ok((port(number)?, frame))).collect()
    }
}
