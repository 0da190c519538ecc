//! `quorate-p4 PROGRAM`: interprets a switch program, with frames on standard input and output.
//! Nodes with `--device p4` start it.

use std::{env, io, process::ExitCode};

use quorate_conformance::{
    Program,
    frames::DeviceSize,
    p4::{Switch, committed_sources},
    targets::serve_device,
};

const USAGE: &str = "usage: quorate-p4 acceptor|coordinator [--cells N] [--room N]
  --cells N  slots that it holds: a power of two up to 1048576 [default: 1024]
  --room N   bytes of the room for a value: 32, 64 or 128 [default: 128]";

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some((program, size)) = parse_arguments(&words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(program, size) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("quorate-p4: {why}");
            ExitCode::FAILURE
        }
    }
}

fn parse_arguments(words: &[&str]) -> Option<(Program, DeviceSize)> {
    let [name, options @ ..] = words else { return None };
    let program = Program::SINGLE.into_iter().find(|program| program.name() == *name)?;
    let mut size = DeviceSize { room_bytes: 128, cell_count: 1024 };
    for option in options.chunks(2) {
        let [name, number] = *option else { return None };
        let number: usize = number.parse().ok()?;
        match name {
            "--cells" if number.is_power_of_two() && number <= 1 << 20 => size.cell_count = number,
            "--room" if [32, 64, 128].contains(&number) => size.room_bytes = number,
            _ => return None,
        }
    }
    Some((program, size))
}

/// Processes frames until the end of input, or until the reader closes the pipe.
fn run(program: Program, size: DeviceSize) -> Result<(), String> {
    let mut switch = Switch::with_size(&committed_sources(), program, size)?;
    match serve_device(&mut switch, io::stdin().lock(), io::stdout().lock()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.to_string()),
        _ => Ok(()),
    }
}
