//! Experiments with target rates and write sizes, which reproduce a table of a paper cell by cell.

use std::time::Duration;

use quorate_bench::{
    problem::{Kind as Why, Problem},
    report::BenchReport,
    run::{
        RunTime,
        session::NodeSession,
        stream::{NodeOptions, StreamBench, StreamLoad},
    },
    stream::speech::StreamProtocol,
};
use quorate_core::record::Class;
use quorate_testbed::progress;

use crate::{
    experiment::{Experiment, PaperTime},
    published::Cell,
};

/// Runs the experiment. As in the paper, all cells use the same three nodes, one of which takes
/// part only if one of the other two fails.
pub(crate) fn run(
    experiment: &Experiment<'_>,
    session: &mut NodeSession,
    document: &mut BenchReport,
) -> Result<(), Problem> {
    let Some(cells) = measured_cells(experiment) else {
        let what = "the paper's table is missing";
        return Err(Problem::new(Why::Failed, "not_ready", what));
    };
    let nodes = NodeOptions {
        node_count: 3,
        last_is_auxiliary: true,
        durability: if experiment.run.durability == Class::Durable.name() {
            Class::Durable
        } else {
            Class::Volatile
        },
        disk_flush: experiment.options.disk_flush,
    };
    let time = run_time(&experiment.options.time, experiment.options.as_in_paper);
    let mut bench = StreamBench::start(session, &nodes, time)?;
    for (number, cell) in (1..).zip(&cells) {
        progress(&format!("{number} of {}", cells.len()));
        let load = StreamLoad {
            protocol: StreamProtocol::Raw,
            stream_count: 1,
            write_bytes: cell.write_bytes,
            bytes_per_second: Some(cell.writes_per_second()),
            outstanding_writes: None,
            gathers_writes: false,
        };
        bench.measure_row_alone(&experiment.scenario.name, &load, document)?;
    }
    session.kill_nodes();
    document.notes.push(
        "latency counts from the call that wrote to the acknowledgement, as in the paper; one writer, \
         over the raw port"
            .to_owned(),
    );
    if !experiment.options.as_in_paper {
        document.notes.push(
            "the short form: some rates and sizes, for seconds each; --full has all, for as long as \
             in the paper"
                .to_owned(),
        );
    }
    Ok(())
}

/// Returns the table cells to measure; `None` if the scenario has no table.
fn measured_cells(experiment: &Experiment<'_>) -> Option<Vec<Cell>> {
    let run = experiment.run;
    let mut tables = experiment.scenario.table.iter();
    let table = tables.find(|table| table.metric.is_some())?;
    let wanted = |cell: &Cell| {
        experiment.options.as_in_paper
            || (run.short_rates.contains(&cell.rate_mb)
                && run.short_bytes.contains(&cell.write_bytes))
    };
    Some(table.cells(&run.value_bytes).filter(wanted).collect())
}

/// Returns the durations used in the paper, or the shortest ones that show the effect.
fn run_time(asked: &PaperTime, full: bool) -> RunTime {
    let seconds = |short, long| Duration::from_secs(if full { long } else { short });
    RunTime {
        duration: asked.duration.unwrap_or(seconds(5, 45)),
        warmup: asked.warmup.unwrap_or(seconds(1, 15)),
        repetition_count: asked.repetition_count.unwrap_or(1),
    }
}
