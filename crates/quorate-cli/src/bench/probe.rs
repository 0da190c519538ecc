//! `quorate bench probe`: what this machine can do, by bare programs.

use std::{io, time::Duration};

use quorate_bench::probe::{
    Ceiling, disk, memory,
    round_trip::{self, Wait},
};

use super::{
    args::{ProbeArgs, TimeArgs},
    ceilings::{Ceilings, launcher},
    finish::finish,
    publish,
    session::Session,
};
use crate::output::{Exit, Problem, progress};

/// Bytes of a command, and how many are under way: the shapes of the commit.
const SHAPES: [(usize, u32); 7] = [
    (64, 1),
    (64, 16),
    (64, 64),
    (64, 256),
    (64, 1000),
    (1024, 256),
    (4096, 1),
];

/// Runs the command.
pub(super) fn run(args: &ProbeArgs) -> Result<Exit, Problem> {
    publish::check(&args.files)?;
    let session = Session::new()?;
    let mut document = publish::document();
    document.ceilings = machine(args, &session)?;
    let time = TimeArgs {
        duration: args.duration,
        warmup: Duration::ZERO,
        repeat: args.repeat,
    };
    let mut ceilings = Ceilings::new(&session, &time, document.environment.clone())?;
    for durable in [true, false] {
        for (value_bytes, window) in SHAPES {
            ceilings.of(value_bytes, window, durable, Duration::ZERO)?;
            if durable && !args.disk_flush_ms.is_zero() {
                ceilings.of(value_bytes, window, durable, args.disk_flush_ms)?;
            }
        }
    }
    document.rows.extend(ceilings.into_rows());
    document.notes.push(
        "durable figures are those of the disk as it answers; where it answers from a cache, \
         --disk-flush-ms tells what an honest one would give"
            .to_owned(),
    );
    finish(document, &args.files, Ok(()))
}

/// What the parts of the machine can do.
fn machine(args: &ProbeArgs, session: &Session) -> Result<Vec<Ceiling>, Problem> {
    let failed = |error: io::Error| Problem::io("the probe", &error);
    let (folder, time) = (session.folder(), args.duration);
    let launcher = launcher()?;
    let mut found = Vec::new();
    let mut add = |ceiling: Ceiling| {
        progress(&format!(
            "{}: {} {}",
            ceiling.name, ceiling.value, ceiling.unit
        ));
        found.push(ceiling);
    };
    for wait in [Wait::Block, Wait::Spin] {
        add(round_trip::measure(&launcher, wait, time).map_err(failed)?);
    }
    add(disk::append_and_flush(folder, Duration::ZERO, time).map_err(failed)?);
    let flush = args.disk_flush_ms;
    if !flush.is_zero() {
        let mut modelled = disk::append_and_flush(folder, flush, time).map_err(failed)?;
        modelled.name.push_str(&format!(", MODELLED {flush:?}"));
        add(modelled);
    }
    add(disk::bandwidth(folder).map_err(failed)?);
    add(memory::copy());
    Ok(found)
}
