//! `quorate p4 PROGRAM`: interprets one of our switch programs, with frames on standard input and
//! output. `--device p4` uses it.

use std::io::{self, BufWriter, Write as _};

use clap::Args;
use quorate_device::{
    p4::{Switch, switch::committed},
    pipe::{FRAME_BYTES_MAX, read_event, write_answer},
};

use crate::output::{Exit, Problem};

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

/// Processes frames until the end of input.
pub(crate) fn run(args: &P4Args) -> Result<Exit, Problem> {
    if !args.cells.is_power_of_two() {
        return Err(Problem::usage("--cells: a power of two"));
    }
    let failed = |what: &dyn ToString| Problem::new(Exit::Failed, "device", what.to_string());
    let room = args.room.parse().map_err(|error: std::num::ParseIntError| failed(&error))?;
    let switch = Switch::new(&committed(), &args.program, args.cells as usize, room);
    let mut switch = switch.map_err(|error| failed(&error))?;
    let (mut from, mut to) = (io::stdin().lock(), BufWriter::new(io::stdout().lock()));
    let mut buffered = io::BufReader::with_capacity(FRAME_BYTES_MAX + 2, &mut from);
    while let Some(event) = read_event(&mut buffered).map_err(|error| failed(&error))? {
        let sent = switch.step(&event).map_err(|fault| failed(&fault))?;
        let written = write_answer(&mut to, &sent).and_then(|()| to.flush());
        if let Err(error) = written {
            // The reader has closed the pipe.
            return match error.kind() {
                io::ErrorKind::BrokenPipe => Ok(Exit::Done),
                _ => Err(failed(&error)),
            };
        }
    }
    Ok(Exit::Done)
}
