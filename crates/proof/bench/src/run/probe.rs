//! `quorate bench probe`: limits of this machine, measured by bare programs.

use std::{io, time::Duration};

use quorate_testbed::progress;

use crate::probe::{
    Ceiling, disk, memory,
    round_trip::{self, Wait},
    wire::ProbeTransport,
};

use super::{Time, ceilings::Ceilings, program::launcher, session::Session};
use crate::{problem::Problem, report::Document};

/// Command size in bytes and number of outstanding commands, for each commit to measure.
const SHAPES: [(usize, u32); 7] =
    [(64, 1), (64, 16), (64, 64), (64, 256), (64, 1000), (1024, 256), (4096, 1)];

#[derive(Clone, Debug)]
pub struct ProbeOptions {
    /// Minimum flush time, including that of the disk itself.
    pub disk_flush: Duration,
    pub duration: Duration,
    /// Number of repetitions of each commit, whose medians are reported.
    pub repeat: u32,
}

pub fn run(wish: &ProbeOptions, document: &mut Document) -> Result<(), Problem> {
    let session = Session::new()?;
    document.ceilings = machine(wish, &session)?;
    let time = Time { duration: wish.duration, warmup: Duration::ZERO, repeat: wish.repeat };
    let mut ceilings = Ceilings::new(&session, &time, document.environment.clone())?;
    for durable in [true, false] {
        for (value_bytes, window) in SHAPES {
            ceilings.of(value_bytes, window, durable, Duration::ZERO)?;
            if durable && !wish.disk_flush.is_zero() {
                ceilings.of(value_bytes, window, durable, wish.disk_flush)?;
            }
        }
    }
    document.rows.extend(ceilings.into_rows());
    document.notes.push(
        "durable figures are those of this disk; where it answers from a cache, \
         --disk-flush-ms tells what an honest one would give"
            .to_owned(),
    );
    Ok(())
}

/// Measures round trips, disk and memory of this machine.
fn machine(wish: &ProbeOptions, session: &Session) -> Result<Vec<Ceiling>, Problem> {
    let failed = |error: io::Error| Problem::io("the probe", &error);
    let (folder, time) = (session.folder(), wish.duration);
    let launcher = launcher()?;
    let mut found = Vec::new();
    let mut add = |ceiling: Ceiling| {
        progress(&format!("{}: {} {}", ceiling.name, ceiling.value, ceiling.unit));
        found.push(ceiling);
    };
    for wait in [Wait::Block, Wait::Spin] {
        add(round_trip::measure(&launcher, wait, ProbeTransport::Tcp, time).map_err(failed)?);
    }
    add(disk::append_and_flush(folder, Duration::ZERO, time).map_err(failed)?);
    let flush = wish.disk_flush;
    if !flush.is_zero() {
        let mut modelled = disk::append_and_flush(folder, flush, time).map_err(failed)?;
        modelled.name.push_str(&format!(", MODELLED {flush:?}"));
        add(modelled);
    }
    add(disk::bandwidth(folder).map_err(failed)?);
    add(memory::copy());
    Ok(found)
}
