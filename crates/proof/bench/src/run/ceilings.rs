//! Ceilings for a row: the rates of bare programs with the row's value size, window and class.

use std::{path::PathBuf, time::Duration};

use quorate_testbed::progress;

use crate::{
    environment::Environment,
    probe::{
        commit::{Bare, CommitShape},
        part::Launcher,
        wire::ProbeTransport,
    },
    row::Row,
};

use super::{Time, program::launcher, session::Session};
use crate::problem::Problem;

/// Maximum measured time of a repetition. A bare program reaches its steady state at once.
const MEASURE_MAX: Duration = Duration::from_secs(2);
const WARMUP: Duration = Duration::from_millis(300);
const REPEAT_MAX: u32 = 5;

/// Ceilings that were already measured, so that none is measured twice.
pub struct Ceilings {
    launcher: Launcher,
    folder: PathBuf,
    environment: Environment,
    measure: Duration,
    repeat: u32,
    measured: Vec<(CommitShape, Option<Row>)>,
}

impl Ceilings {
    /// Creates an empty set of ceilings, to be measured for the time of a row but at most
    /// [`MEASURE_MAX`].
    pub fn new(session: &Session, time: &Time, environment: Environment) -> Result<Self, Problem> {
        Ok(Self {
            launcher: launcher()?,
            folder: session.folder().to_owned(),
            environment,
            measure: time.duration.min(MEASURE_MAX),
            repeat: time.repeat.min(REPEAT_MAX),
            measured: Vec::new(),
        })
    }

    /// Returns the ceiling in commands per second; `None` if a bare program does not support the
    /// parameters.
    pub fn of(
        &mut self,
        value_bytes: usize,
        window: u32,
        durable: bool,
        flush: Duration,
    ) -> Result<Option<f64>, Problem> {
        let shape = CommitShape {
            value_bytes,
            window,
            durable,
            // Volatile clusters do not flush.
            flush: if durable { flush } else { Duration::ZERO },
            over: ProbeTransport::Tcp,
        };
        if let Some((_, row)) = self.measured.iter().find(|(known, _)| *known == shape) {
            return Ok(row.as_ref().map(|row| row.achieved_per_s));
        }
        let row = self.measure(shape)?;
        let reached = row.as_ref().map(|row| row.achieved_per_s);
        self.measured.push((shape, row));
        Ok(reached)
    }

    fn measure(&self, shape: CommitShape) -> Result<Option<Row>, Problem> {
        if !shape.is_possible() {
            return Ok(None);
        }
        let failed = |error| Problem::io("the bare program", &error);
        let mut bare = Bare::start(&self.launcher, &self.folder, shape).map_err(failed)?;
        let mut all = Vec::new();
        for _ in 0..self.repeat {
            let warmup = WARMUP.min(self.measure);
            all.push(bare.repetition(warmup, self.measure).map_err(failed)?);
        }
        let row = Row::new(&shape.setting(), &self.environment, &all);
        if let Some(row) = &row {
            progress(&format!(
                "bare program {}, {} B, {} outstanding: {:.0}/s, p50 {:.0} µs",
                row.durability, row.value_bytes, shape.window, row.achieved_per_s, row.p50_us
            ));
        }
        Ok(row)
    }

    /// Returns the rows of all measured ceilings, in the order of measurement.
    pub fn into_rows(self) -> impl Iterator<Item = Row> {
        self.measured.into_iter().filter_map(|(_, row)| row)
    }
}
