//! Experiments with a fixed batch size and window: a grid of both, or the windows around the one
//! that a model predicts to be best.

use std::time::Duration;

use quorate_bench::{
    load::OfferedLoad,
    problem::{Kind as Why, Problem},
    report::BenchReport,
    row::{FixedBatching, Row, RowSetting},
    run::{RunTime, session::NodeSession, wan::link_ceilings},
    wan::MeasuredLink,
};
use quorate_testbed::progress;

use crate::{
    experiment::{Experiment, PaperTime},
    fit::{FittedParameters, MeasuredPoint as Seen, absolute_errors, compare_rates},
    published::{Kind, Point},
};

/// Maximum number of batches in flight that a node accepts, even if a model suggests more.
const WINDOW_MAX: u32 = 64;
/// Bytes that a command occupies in a batch in addition to its value.
const COMMAND_OVERHEAD_BYTES: u64 = 5;
/// Approximate bytes that a batch occupies in addition to its commands, including TCP headers.
const BATCH_OVERHEAD_BYTES: f64 = 230.0;
/// Minimum of the node flag `--batch`, in bytes.
const BATCH_BYTES_MIN: u64 = 64;
/// Minimum measured time. The time also covers at least [`BATCHES_MIN`] batches at the full speed
/// of the link, because only whole batches count.
const DURATION_MIN: Duration = Duration::from_secs(4);
const BATCHES_MIN: f64 = 40.0;
/// Warm-up time, in which TCP fills the link.
const DEFAULT_WARMUP: Duration = Duration::from_secs(3);
/// Approximate maximum time for which a client waits for its reply.
const REPLY_WAIT_MAX: Duration = Duration::from_secs(20);
/// Share of the highest throughput at which a window counts as equally good.
const EQUALLY_GOOD_SHARE: f64 = 0.97;
/// Median and maximum error that the model should not exceed.
const MODEL_ERROR_TARGET: (f64, f64) = (0.15, 0.30);

/// Value size, batch size and window of a row.
#[derive(Clone, Copy, Debug)]
struct GridCell {
    value_bytes: usize,
    batching: FixedBatching,
}

pub(crate) fn run(
    experiment: &Experiment<'_>,
    session: &mut NodeSession,
    document: &mut BenchReport,
) -> Result<(), Problem> {
    let Some(network) = session.network() else {
        let what = "batches and windows are compared over an emulated network only";
        return Err(Problem::new(Why::Failed, "not_ready", what));
    };
    let link = network.measure_links()?;
    document.ceilings.extend(link_ceilings(link));
    document.notes.push(network.describe());
    let cells = match experiment.run.kind {
        Kind::BestWindow => {
            cells_around_best(&paper_points(experiment), link, experiment.options.ends_only)
        }
        _ => grid_cells(experiment),
    };
    for (number, cell) in (1..).zip(&cells) {
        progress(&format!(
            "{number} of {}: {} B, {} × {} B",
            cells.len(),
            cell.value_bytes,
            cell.batching.window,
            cell.batching.batch_bytes
        ));
        let row = measure_cell(experiment, session, *cell, link, document)?;
        document.rows.push(row);
    }
    session.kill_nodes();
    if experiment.run.kind == Kind::BestWindow {
        compare_with_model(experiment, link, document);
    }
    Ok(())
}

/// Returns all points, in a quick run only the first and last of each value size.
fn paper_points(experiment: &Experiment<'_>) -> Vec<Point> {
    let all = &experiment.scenario.point;
    if !experiment.options.ends_only {
        return all.clone();
    }
    let ends = |point: &&Point| {
        let same = || all.iter().filter(|other| other.value_bytes == point.value_bytes);
        let batches = || same().map(|other| other.batch_bytes);
        Some(point.batch_bytes) == batches().min() || Some(point.batch_bytes) == batches().max()
    };
    all.iter().filter(ends).copied().collect()
}

/// Returns, for each point, half of the window that saturates the link, that window, and twice that
/// window. If `quick`, returns only the saturating window.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes, and a window that was bounded"
)]
fn cells_around_best(points: &[Point], link: MeasuredLink, quick: bool) -> Vec<GridCell> {
    let cells = points.iter().flat_map(|point| {
        let commands = point.commands_per_batch() as f64;
        let bytes = commands * (point.value_bytes as f64 + COMMAND_OVERHEAD_BYTES as f64)
            + BATCH_OVERHEAD_BYTES;
        let sending = bytes / link.bytes_per_s * 1e6;
        let best = ((sending + link.round_trip_us) / sending).ceil();
        let best = best.clamp(1.0, f64::from(WINDOW_MAX)) as u32;
        let tried = if quick { vec![best] } else { vec![best.div_ceil(2), best, best * 2] };
        let mut windows: Vec<u32> = tried.into_iter().map(|w| w.min(WINDOW_MAX)).collect();
        windows.dedup();
        windows.into_iter().map(|window| GridCell {
            value_bytes: point.value_bytes,
            batching: FixedBatching { batch_bytes: point.batch_bytes, window },
        })
    });
    cells.collect()
}

fn grid_cells(experiment: &Experiment<'_>) -> Vec<GridCell> {
    let run = experiment.run;
    let ends = |index: usize, length: usize| {
        !experiment.options.ends_only || index == 0 || index + 1 == length
    };
    let mut cells = Vec::new();
    for value_bytes in &run.value_bytes {
        for (index, batch_bytes) in run.batches.iter().enumerate() {
            for (place, window) in run.windows.iter().enumerate() {
                if ends(index, run.batches.len()) && ends(place, run.windows.len()) {
                    cells.push(GridCell {
                        value_bytes: *value_bytes,
                        batching: FixedBatching { batch_bytes: *batch_bytes, window: *window },
                    });
                }
            }
        }
    }
    cells
}

/// Measures three new nodes with the batch size and window of `cell`, and returns the row.
#[expect(clippy::cast_precision_loss, reason = "a size")]
fn measure_cell(
    experiment: &Experiment<'_>,
    session: &mut NodeSession,
    cell: GridCell,
    link: MeasuredLink,
    document: &mut BenchReport,
) -> Result<Row, Problem> {
    let FixedBatching { batch_bytes, window } = cell.batching;
    let size = cell.value_bytes as u64;
    let commands = (batch_bytes / size.max(1)).max(1);
    let bytes = (commands * (size + COMMAND_OVERHEAD_BYTES)).max(BATCH_BYTES_MIN);
    let (bytes, window) = (bytes.to_string(), window.to_string());
    let flags = ["--tune", "off", "--batch", &bytes, "--window", &window];
    let mut bench = experiment.start_nodes_with(session, &flags)?;
    bench.time = run_time(&experiment.options.time, batch_bytes, link);
    let most = experiment.run.clients.iter().copied().max().unwrap_or(1);
    let clients = client_count(most, cell, link);
    let offer = OfferedLoad::Closed { outstanding: clients };
    let name = &experiment.scenario.name;
    let setting = RowSetting {
        batching: Some(cell.batching),
        ..experiment.row_setting(name, cell.value_bytes, clients, offer)
    };
    let mut row = bench.measure_row(&setting, document)?;
    row.set_bare_ceiling(link.bytes_per_s / cell.value_bytes.max(1) as f64);
    Ok(row)
}

/// Returns the experiment's number of clients, or fewer if clients would wait longer than
/// [`REPLY_WAIT_MAX`]. More clients would only lengthen a queue that is never empty, and would not
/// change the throughput.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bounded by the number of clients"
)]
fn client_count(most: u32, cell: GridCell, link: MeasuredLink) -> u32 {
    let FixedBatching { batch_bytes, window } = cell.batching;
    let commands = (batch_bytes / (cell.value_bytes as u64).max(1)).max(1) as f64;
    let sending = batch_bytes as f64 / link.bytes_per_s;
    let at_once = commands * f64::from(window);
    let per_second = at_once / (sending + link.round_trip_us * 1e-6);
    let enough = (per_second * REPLY_WAIT_MAX.as_secs_f64()).max(at_once * 4.0);
    (enough.min(f64::from(most)) as u32).max(1)
}

/// Returns the requested durations, or defaults that suffice for the batch size and the link.
#[expect(clippy::cast_precision_loss, reason = "a size")]
fn run_time(given: &PaperTime, batch_bytes: u64, link: MeasuredLink) -> RunTime {
    let batches = Duration::from_secs_f64(BATCHES_MIN * batch_bytes as f64 / link.bytes_per_s);
    RunTime {
        duration: given.duration.unwrap_or(DURATION_MIN.max(batches)),
        warmup: given.warmup.unwrap_or(DEFAULT_WARMUP),
        repetition_count: given.repetition_count.unwrap_or(1),
    }
}

/// Fits the model to our measurements and compares it with our rate at the best window of each
/// point.
#[expect(clippy::cast_precision_loss, reason = "a count")]
fn compare_with_model(experiment: &Experiment<'_>, link: MeasuredLink, document: &mut BenchReport) {
    let seen: Vec<Seen> = document.rows.iter().filter_map(Seen::from_row).collect();
    let Some(parameters) = FittedParameters::fit(link, &seen) else {
        let note = "no row was a result with all counts, so the model has no parameters";
        document.notes.push(note.to_owned());
        return;
    };
    let clients = f64::from(experiment.run.clients.iter().copied().max().unwrap_or(1));
    for point in &experiment.scenario.point {
        let rows: Vec<&Row> = point.matching_rows(&document.rows).collect();
        let measured = rows.iter().map(|row| row.achieved_per_s);
        let Some(measured) = measured.reduce(f64::max) else {
            continue;
        };
        let (size, commands) = (point.value_bytes as f64, point.commands_per_batch() as f64);
        let windows = || rows.iter().filter_map(|row| row.window);
        let expected = windows()
            .map(|window| {
                let window = f64::from(window);
                parameters.predict(size, commands, window, clients).throughput
            })
            .fold(0.0, f64::max);
        let instance = parameters.instance(size, commands);
        let one = compare_rates(point.name(), expected, measured, &instance);
        document.predictions.push(one);
        let good = rows.iter().filter(|row| row.achieved_per_s >= measured * EQUALLY_GOOD_SHARE);
        let least = good.filter_map(|row| row.window).min().unwrap_or(0);
        let tried: Vec<u32> = windows().collect();
        document.notes.push(format!(
            "{}: least window with {:.0} % of the greatest: ours {least} of {tried:?}, theirs {}-{}",
            point.name(),
            EQUALLY_GOOD_SHARE * 100.0,
            point.w_from,
            point.w_to
        ));
    }
    document.notes.push(format!("the model's parameters here: {}", parameters.describe()));
    if let Some((median, worst)) = absolute_errors(&document.predictions) {
        document.notes.push(format!(
            "model against measurement, {} points: median error {:.1} %, worst {:.1} % (wanted: at \
             most {:.0} % and {:.0} %)",
            document.predictions.len(),
            median * 100.0,
            worst * 100.0,
            MODEL_ERROR_TARGET.0 * 100.0,
            MODEL_ERROR_TARGET.1 * 100.0
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: MeasuredLink = MeasuredLink { round_trip_us: 100_000.0, bytes_per_s: 1.2e6 };

    fn point(value_bytes: usize, batch_bytes: u64) -> Point {
        Point {
            value_bytes,
            batch_bytes,
            w_cpu: 1.0,
            w_net: 1.0,
            model: 1.0,
            w_from: 1,
            w_to: 1,
            measured: 1.0,
        }
    }

    #[test]
    fn windows_around_the_one_that_keeps_the_link_busy_are_tried() {
        let windows = |point, quick| -> Vec<u32> {
            let cells = cells_around_best(&[point], LINK, quick);
            cells.iter().map(|cell| cell.batching.window).collect()
        };
        // 64 commands of 1029 bytes occupy the link for 55 ms, and are decided within 100 ms.
        assert_eq!(windows(point(1024, 65_536), false), [2, 3, 6]);
        assert_eq!(windows(point(1024, 65_536), true), [3]);
        assert_eq!(windows(point(128, 128), false), [32, 64], "no node takes more");
    }

    #[test]
    fn clients_that_would_only_queue_stay_at_home() {
        let cell = |value_bytes, batch_bytes, window| GridCell {
            value_bytes,
            batching: FixedBatching { batch_bytes, window },
        };
        assert_eq!(client_count(1200, cell(8192, 262_144, 2), LINK), 1200);
        assert_eq!(client_count(1200, cell(128, 128, 64), LINK), 1200);
        // A batch of one command takes 107 ms.
        assert_eq!(client_count(1200, cell(8192, 8192, 1), LINK), 187);
    }

    #[test]
    fn a_large_batch_is_measured_longer_unless_the_time_was_given() {
        let mut given = PaperTime { duration: None, warmup: None, repetition_count: None };
        assert_eq!(run_time(&given, 128, LINK).duration, DURATION_MIN);
        assert!(run_time(&given, 262_144, LINK).duration > DURATION_MIN * 2);
        given.duration = Some(Duration::from_secs(1));
        assert_eq!(run_time(&given, 262_144, LINK).duration.as_secs(), 1);
    }
}
