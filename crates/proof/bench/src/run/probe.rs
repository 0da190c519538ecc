//! `quorate bench probe`: limits of this machine, measured by bare programs.

use std::{io, time::Duration};

use quorate_testbed::progress;

use crate::probe::{
    MeasuredCeiling, disk, memory,
    round_trip::{self, WaitMethod},
    wire::ProbeTransport,
};

use super::{RunTime, ceilings::MeasuredCeilings, program::part_launcher, session::NodeSession};
use crate::{problem::Problem, report::BenchReport};

/// Command size in bytes and number of outstanding commands, for each commit to measure.
const COMMIT_SHAPES: [(usize, u32); 7] =
    [(64, 1), (64, 16), (64, 64), (64, 256), (64, 1000), (1024, 256), (4096, 1)];

#[derive(Clone, Debug)]
pub struct ProbeOptions {
    /// Minimum flush time, including that of the disk itself.
    pub disk_flush: Duration,
    pub duration: Duration,
    /// Number of repetitions of each commit, whose medians are reported.
    pub repetition_count: u32,
}

pub fn run(wish: &ProbeOptions, document: &mut BenchReport) -> Result<(), Problem> {
    let session = NodeSession::new()?;
    document.ceilings = measure_machine(wish, &session)?;
    let time = RunTime {
        duration: wish.duration,
        warmup: Duration::ZERO,
        repetition_count: wish.repetition_count,
    };
    let mut ceilings = MeasuredCeilings::new(&session, &time, document.environment.clone())?;
    for durable in [true, false] {
        for (value_bytes, window) in COMMIT_SHAPES {
            ceilings.ceiling_per_second(value_bytes, window, durable, Duration::ZERO)?;
            if durable && !wish.disk_flush.is_zero() {
                ceilings.ceiling_per_second(value_bytes, window, durable, wish.disk_flush)?;
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
fn measure_machine(
    wish: &ProbeOptions,
    session: &NodeSession,
) -> Result<Vec<MeasuredCeiling>, Problem> {
    let failed = |error: io::Error| Problem::io_error("the probe", &error);
    let (folder, time) = (session.folder(), wish.duration);
    let launcher = part_launcher()?;
    let mut found = Vec::new();
    let mut add = |ceiling: MeasuredCeiling| {
        progress(&format!("{}: {} {}", ceiling.name, ceiling.value, ceiling.unit));
        found.push(ceiling);
    };
    for wait in [WaitMethod::Block, WaitMethod::Spin] {
        add(round_trip::measure_round_trips(&launcher, wait, ProbeTransport::Tcp, time)
            .map_err(failed)?);
    }
    add(disk::measure_flushed_writes(folder, Duration::ZERO, time).map_err(failed)?);
    let flush = wish.disk_flush;
    if !flush.is_zero() {
        let mut modelled = disk::measure_flushed_writes(folder, flush, time).map_err(failed)?;
        modelled.name.push_str(&format!(", MODELLED {flush:?}"));
        add(modelled);
    }
    add(disk::measure_bandwidth(folder).map_err(failed)?);
    add(memory::measure_copy());
    Ok(found)
}
