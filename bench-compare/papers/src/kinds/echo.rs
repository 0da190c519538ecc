//! Bare echoes, in user space and in the kernel.

use std::time::Duration;

use quorate_bench::{
    environment::Environment,
    load::OfferedLoad,
    probe::commit::SYSTEM_NAME,
    problem::Problem,
    repetition::Repetition,
    report::BenchReport,
    row::{Row, RowSetting},
};
use quorate_testbed::progress;

use crate::{
    echo::{
        EchoTransport,
        measure::{EchoLoad, measure_repetition},
    },
    experiment::{Experiment, PaperTime},
};

/// Default measured time. It is short because a bare program reaches its steady state at once.
const DEFAULT_DURATION: Duration = Duration::from_secs(1);
const DEFAULT_WARMUP: Duration = Duration::from_millis(200);
const DEFAULT_REPETITIONS: u32 = 5;

/// Runs the experiment. The transports are measured in turn, so that other load on the machine
/// affects all of them equally.
pub(crate) fn run(experiment: &Experiment<'_>, document: &mut BenchReport) -> Result<(), Problem> {
    let time = &experiment.options.time;
    let all = &experiment.run.clients[..];
    let windows = match all {
        [first, .., last] if experiment.options.ends_only => vec![*first, *last],
        _ => all.to_vec(),
    };
    for bytes in &experiment.run.value_bytes {
        for outstanding in &windows {
            let shape = (*bytes, *outstanding);
            let mut all: Vec<EchoMeasurement> =
                EchoTransport::ALL.map(|way| EchoMeasurement::new(way, shape)).into();
            for _ in 0..time.repetition_count.unwrap_or(DEFAULT_REPETITIONS) {
                for echoed in &mut all {
                    echoed.measure_repetition(time)?;
                }
            }
            let rows = all.iter().filter_map(|echoed| {
                let row = echoed.to_row(experiment, &document.environment)?;
                progress(&format!(
                    "echo {}, {bytes} B, {outstanding} outstanding: {}/s, p50 {} µs",
                    echoed.way.name(),
                    row.achieved_per_s,
                    row.p50_us
                ));
                Some(row)
            });
            let rows: Vec<Row> = rows.collect();
            document.rows.extend(rows);
        }
    }
    let note = "whatever the kernel does for a message on a segment of one machine, it does within the calls of its \
                sender: an echo in the kernel runs on the client's processor";
    document.notes.push(note.to_owned());
    Ok(())
}

/// Repetitions of one transport with one message size and window.
struct EchoMeasurement {
    way: EchoTransport,
    bytes: usize,
    outstanding: u32,
    repetitions: Vec<Repetition>,
    /// Reason why the kernel rejected the server's program.
    rejection_reason: Option<String>,
}

impl EchoMeasurement {
    fn new(way: EchoTransport, (bytes, outstanding): (usize, u32)) -> Self {
        Self { way, bytes, outstanding, repetitions: Vec::new(), rejection_reason: None }
    }

    /// Measures another repetition, unless the kernel has rejected the server's program.
    fn measure_repetition(&mut self, time: &PaperTime) -> Result<(), Problem> {
        if self.rejection_reason.is_some() {
            return Ok(());
        }
        let load = EchoLoad {
            way: self.way,
            bytes: self.bytes,
            outstanding: self.outstanding,
            warmup: time.warmup.unwrap_or(DEFAULT_WARMUP),
            duration: time.duration.unwrap_or(DEFAULT_DURATION),
        };
        match measure_repetition(&load) {
            Ok(repetition) => self.repetitions.push(repetition),
            Err(problem) if self.way.server_hook.is_some() => {
                self.rejection_reason = Some(problem.message)
            }
            Err(problem) => return Err(problem),
        }
        Ok(())
    }

    fn to_row(&self, experiment: &Experiment<'_>, environment: &Environment) -> Option<Row> {
        let offer = OfferedLoad::Closed { outstanding: self.outstanding };
        let name = &experiment.scenario.name;
        let setting = RowSetting {
            system: SYSTEM_NAME.to_owned(),
            plane: Some(self.way.name().to_owned()),
            ..experiment.row_setting(name, self.bytes, 1, offer)
        };
        let Some(why) = &self.rejection_reason else {
            return Row::new(&setting, environment, &self.repetitions);
        };
        let mut row = Row::new(&setting, environment, &[Repetition::default()])?;
        row.why_not.clear();
        row.invalidate(why.clone());
        Some(row)
    }
}
