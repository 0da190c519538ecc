//! Ceilings for a row: the rates of bare programs with the row's value size, window and class.

use std::{path::PathBuf, time::Duration};

use quorate_testbed::progress;

use crate::{
    environment::Environment,
    probe::{
        commit::{BareCommit, CommitShape},
        part::PartLauncher,
        wire::ProbeTransport,
    },
    row::Row,
};

use super::{RunTime, program::part_launcher, session::NodeSession};
use crate::problem::Problem;

/// Maximum measured time of a repetition. A bare program reaches its steady state at once.
const MEASURE_MAX: Duration = Duration::from_secs(2);
const WARMUP_DURATION: Duration = Duration::from_millis(300);
const REPETITIONS_MAX: u32 = 5;

/// Ceilings that were already measured, so that none is measured twice.
pub struct MeasuredCeilings {
    launcher: PartLauncher,
    folder: PathBuf,
    environment: Environment,
    measure_duration: Duration,
    repetition_count: u32,
    measured_rows: Vec<(CommitShape, Option<Row>)>,
}

impl MeasuredCeilings {
    /// Creates an empty set of ceilings, to be measured for the time of a row but at most
    /// [`MEASURE_MAX`].
    pub fn new(
        session: &NodeSession,
        time: &RunTime,
        environment: Environment,
    ) -> Result<Self, Problem> {
        Ok(Self {
            launcher: part_launcher()?,
            folder: session.folder().to_owned(),
            environment,
            measure_duration: time.duration.min(MEASURE_MAX),
            repetition_count: time.repetition_count.min(REPETITIONS_MAX),
            measured_rows: Vec::new(),
        })
    }

    /// Returns the ceiling in commands per second; `None` if a bare program does not support the
    /// parameters.
    pub fn ceiling_per_second(
        &mut self,
        value_bytes: usize,
        window: u32,
        durable: bool,
        flush: Duration,
    ) -> Result<Option<f64>, Problem> {
        let shape = CommitShape {
            value_bytes,
            window_commands: window,
            is_durable: durable,
            // Volatile clusters do not flush.
            flush_time: if durable { flush } else { Duration::ZERO },
            transport: ProbeTransport::Tcp,
        };
        if let Some((_, row)) = self.measured_rows.iter().find(|(known, _)| *known == shape) {
            return Ok(row.as_ref().map(|row| row.achieved_per_s));
        }
        let row = self.measure(shape)?;
        let reached = row.as_ref().map(|row| row.achieved_per_s);
        self.measured_rows.push((shape, row));
        Ok(reached)
    }

    fn measure(&self, shape: CommitShape) -> Result<Option<Row>, Problem> {
        if !shape.is_possible() {
            return Ok(None);
        }
        let failed = |error| Problem::io_error("the bare program", &error);
        let mut bare = BareCommit::start(&self.launcher, &self.folder, shape).map_err(failed)?;
        let mut all = Vec::new();
        for _ in 0..self.repetition_count {
            let warmup = WARMUP_DURATION.min(self.measure_duration);
            all.push(bare.run_repetition(warmup, self.measure_duration).map_err(failed)?);
        }
        let row = Row::new(&shape.row_setting(), &self.environment, &all);
        if let Some(row) = &row {
            progress(&format!(
                "bare program {}, {} B, {} outstanding: {:.0}/s, p50 {:.0} µs",
                row.durability,
                row.value_bytes,
                shape.window_commands,
                row.achieved_per_s,
                row.p50_us
            ));
        }
        Ok(row)
    }

    /// Returns the rows of all measured ceilings, in the order of measurement.
    pub fn into_rows(self) -> impl Iterator<Item = Row> {
        self.measured_rows.into_iter().filter_map(|(_, row)| row)
    }
}
