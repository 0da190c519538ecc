//! `quorate p4 PROGRAM`: one of our programs for switches on the interpreter, frames in, frames out: what `--device p4` runs.

use std::io::{self, BufWriter, Write as _};

use clap::Args;
use quorate_device::p4::{Machine, Sources, compile};
use quorate_device::pipe::{Event, FRAME_BYTES_MAX, Sent, read_event, write_answer};
use quorate_offload::Port;

use crate::output::{Exit, Problem};

/// The committed programs, and what they have in common.
const FILES: [(&str, &str); 3] = [
    (
        "acceptor.p4",
        include_str!("../../../devices/programs/p4/acceptor.p4"),
    ),
    (
        "coordinator.p4",
        include_str!("../../../devices/programs/p4/coordinator.p4"),
    ),
    (
        "frame.p4",
        include_str!("../../../devices/programs/p4/frame.p4"),
    ),
];
/// Copies for both ports, the network's first.
const BOTH: u16 = 1;

/// Arguments of `quorate p4`.
#[derive(Args, Debug)]
pub(crate) struct P4Args {
    /// Which one
    #[arg(value_parser = ["acceptor", "coordinator"])]
    program: String,
    /// Slots that it holds: a power of two
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    cells: u32,
    /// Bytes of the room for a value: 32, 64 or 128
    #[arg(long, default_value = "128", value_parser = ["32", "64", "128"])]
    room: String,
}

/// Runs it until there are no more frames.
pub(crate) fn run(args: &P4Args) -> Result<Exit, Problem> {
    if !args.cells.is_power_of_two() {
        return Err(Problem::usage("--cells: a power of two"));
    }
    let failed = |what: &dyn ToString| Problem::new(Exit::Failed, "device", what.to_string());
    let mut machine = machine(args).map_err(|error| failed(&error))?;
    let (mut from, mut to) = (io::stdin().lock(), BufWriter::new(io::stdout().lock()));
    let mut buffered = io::BufReader::with_capacity(FRAME_BYTES_MAX + 2, &mut from);
    while let Some(event) = read_event(&mut buffered).map_err(|error| failed(&error))? {
        let sent = step(&mut machine, &event).map_err(|fault| failed(&fault))?;
        let written = write_answer(&mut to, &sent).and_then(|()| to.flush());
        if let Err(error) = written {
            // Who asked is gone.
            return match error.kind() {
                io::ErrorKind::BrokenPipe => Ok(Exit::Done),
                _ => Err(failed(&error)),
            };
        }
    }
    Ok(Exit::Done)
}

fn machine(args: &P4Args) -> Result<Machine, quorate_device::p4::Error> {
    let mut sources = Sources::default();
    for (name, text) in FILES {
        sources.put(name, text.to_owned());
    }
    let cells = args.cells.to_string();
    let defines = [("CELLS", cells.as_str()), ("PART", &args.room)];
    let compiled = compile(&sources, &format!("{}.p4", args.program), &defines)?;
    let mut machine = Machine::new(compiled);
    machine.set_group(BOTH, &[0, 1]);
    Ok(machine)
}

fn step(machine: &mut Machine, event: &Event) -> Result<Vec<Sent>, String> {
    let Event::Frame(port, frame) = event else {
        machine.reset();
        return Ok(Vec::new());
    };
    let sent = machine.process(*port as u16, frame);
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
