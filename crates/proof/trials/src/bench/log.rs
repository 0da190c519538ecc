//! Cost of a log commit: one write and one flush, by the log's own counters and by the kernel's.

use std::path::Path;

use serde::Serialize;

use quorate_bench::figure::median;

use super::{
    BenchOptions, Report, build, cpu_count, find_number, load_average, parse_numbers, to_float,
};
use crate::{instructions::SyscallCounter, shell::Failed};

const RUN_COUNT: usize = 5;
/// Number of records in a run. A quick run writes a tenth as many.
const RECORD_COUNT: u64 = 5000;

/// Counters of a benchmark run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogCounters {
    /// Number of records released after their flush.
    pub(crate) records: u64,
    /// Number of commits, each of which writes and flushes a group of records.
    pub(crate) commits: u64,
    /// Writes into segments.
    pub(crate) writes: u64,
    pub(crate) flushes: u64,
    /// Bytes of all writes into segments.
    pub(crate) bytes: u64,
    /// Duration of the run, in nanoseconds.
    nanos: u64,
}

pub(crate) fn run_commits(program: &Path, words: &[&str]) -> Result<LogCounters, Failed> {
    let told = parse_numbers(program, words)?;
    Ok(LogCounters {
        records: find_number(&told, "records")?,
        commits: find_number(&told, "commits")?,
        writes: find_number(&told, "writes")?,
        flushes: find_number(&told, "flushes")?,
        bytes: find_number(&told, "bytes")?,
        nanos: find_number(&told, "nanos")?,
    })
}

struct Row {
    driver: &'static str,
    window: u64,
    depth: u64,
    last_run: LogCounters,
    per_second: f64,
    calls: f64,
}

/// JSON form of a row.
#[derive(Serialize)]
struct Figures {
    driver: &'static str,
    window: u64,
    depth: u64,
    records_per_commit: f64,
    writes_per_commit: f64,
    flushes_per_commit: f64,
    bytes_per_commit: f64,
    syscalls_per_record: f64,
    records_per_s: f64,
}

pub(super) fn run(wish: BenchOptions) -> Result<(), Failed> {
    let program = build("quorate-log", "commit")?;
    let records = if wish.quick { RECORD_COUNT / 10 } else { RECORD_COUNT };
    let counter = SyscallCounter::find_cheapest();
    let mut rows = Vec::new();
    let mut skipped = Vec::new();
    for driver in ["uring", "file"] {
        for (window, depth) in [(1, 1), (16, 2), (256, 2)] {
            match measure(&program, driver, window, depth, records, counter.ok()) {
                Ok(row) => rows.push(row),
                Err(Failed(why)) if driver == "uring" => {
                    skipped.push(why.lines().last().unwrap_or_default().to_owned());
                    break;
                }
                Err(failed) => return Err(failed),
            }
        }
    }
    print_rows(wish, &rows, &skipped, records);
    // An extra write or flush is a bug, not a matter of speed.
    let exact = |row: &Row| {
        row.last_run.writes == row.last_run.commits && row.last_run.flushes == row.last_run.commits
    };
    match rows.iter().find(|row| !exact(row)) {
        None => Ok(()),
        Some(row) => Err(Failed(format!(
            "{}, window {}: {} commits took {} writes and {} flushes",
            row.driver, row.window, row.last_run.commits, row.last_run.writes, row.last_run.flushes
        ))),
    }
}

fn measure(
    program: &Path,
    driver: &'static str,
    window: u64,
    depth: u64,
    records: u64,
    counter: Option<SyscallCounter>,
) -> Result<Row, Failed> {
    let (window_word, depth_word) = (window.to_string(), depth.to_string());
    let words = |records: &str| {
        let words = ["--driver", driver, "--window", &window_word, "--depth", &depth_word];
        let words = words.into_iter().chain(["--records", records]);
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    let run = |records: u64| {
        let words = words(&records.to_string());
        run_commits(program, &words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let runs = (0..RUN_COUNT).map(|_| run(records)).collect::<Result<Vec<_>, _>>()?;
    let rate = |run: &LogCounters| to_float(run.records) * 1e9 / to_float(run.nanos);
    let rates = runs.iter().map(rate);
    let calls = match counter {
        Some(counter) => syscalls_per_record(counter, program, &words("1000"), &words("3000"))?,
        None => f64::NAN,
    };
    Ok(Row {
        driver,
        window,
        depth,
        last_run: runs[RUN_COUNT - 1],
        per_second: median(rates),
        calls,
    })
}

/// Returns the system calls per record: those of the longer run minus those of the shorter one,
/// which has 2000 fewer records, so that startup cancels out.
fn syscalls_per_record(
    counter: SyscallCounter,
    program: &Path,
    short: &[String],
    long: &[String],
) -> Result<f64, Failed> {
    let count = |words: &[String]| {
        counter.count_calls(program, &words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    Ok((to_float(count(long)?) - to_float(count(short)?)) / 2000.0)
}

fn print_rows(wish: BenchOptions, rows: &[Row], skipped: &[String], records: u64) {
    let per_commit = |count: u64, row: &Row| to_float(count) / to_float(row.last_run.commits);
    if wish.json {
        let figures = |row: &Row| Figures {
            driver: row.driver,
            window: row.window,
            depth: row.depth,
            records_per_commit: per_commit(row.last_run.records, row),
            writes_per_commit: per_commit(row.last_run.writes, row),
            flushes_per_commit: per_commit(row.last_run.flushes, row),
            bytes_per_commit: per_commit(row.last_run.bytes, row),
            syscalls_per_record: row.calls,
            records_per_s: row.per_second,
        };
        let report = Report {
            bench: "log",
            instructions_by: None,
            runs: RUN_COUNT,
            value_bytes: Some(64),
            cpus: None,
            load: load_average(),
            rows: rows.iter().map(figures).collect(),
        };
        report.print();
        return;
    }
    for why in skipped {
        println!("SKIPPED uring: {why}");
    }
    println!(
        "the log on a real folder, records of 64 bytes, {records} in a run, median of {RUN_COUNT} runs,"
    );
    println!(
        "{} CPUs, load {}; the host may acknowledge a flush from its cache\n",
        cpu_count(),
        load_average()
    );
    println!(
        "{:7} {:>6} {:>5} {:>9} {:>9} {:>8} {:>8} {:>8} {:>10}",
        "driver",
        "window",
        "depth",
        "records/",
        "writes/",
        "flushes/",
        "bytes/",
        "syscalls",
        "records"
    );
    println!(
        "{:7} {:>6} {:>5} {:>9} {:>9} {:>8} {:>8} {:>8} {:>10}",
        "", "", "", "commit", "commit", "commit", "commit", "/record", "/s"
    );
    for row in rows {
        println!(
            "{:7} {:6} {:5} {:9.2} {:9.3} {:8.3} {:8.0} {:8.2} {:10.0}",
            row.driver,
            row.window,
            row.depth,
            per_commit(row.last_run.records, row),
            per_commit(row.last_run.writes, row),
            per_commit(row.last_run.flushes, row),
            per_commit(row.last_run.bytes, row),
            row.calls,
            row.per_second
        );
    }
}
