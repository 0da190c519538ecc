//! Cost of a log commit: one write and one flush, by the log's own counters and by the kernel's.

use std::path::Path;

use serde::Serialize;

use quorate_bench::figure::median;

use super::{Report, Wish, build, cpus, float, load, number, numbers};
use crate::{instructions::Calls, shell::Failed};

const RUNS: usize = 5;
/// Number of records in a run. A quick run writes a tenth as many.
const RECORDS: u64 = 5000;

/// Counters of a benchmark run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Commits {
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

pub(crate) fn commits(program: &Path, words: &[&str]) -> Result<Commits, Failed> {
    let told = numbers(program, words)?;
    Ok(Commits {
        records: number(&told, "records")?,
        commits: number(&told, "commits")?,
        writes: number(&told, "writes")?,
        flushes: number(&told, "flushes")?,
        bytes: number(&told, "bytes")?,
        nanos: number(&told, "nanos")?,
    })
}

struct Row {
    driver: &'static str,
    window: u64,
    depth: u64,
    last: Commits,
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

pub(super) fn run(wish: Wish) -> Result<(), Failed> {
    let program = build("quorate-log", "commit")?;
    let records = if wish.quick { RECORDS / 10 } else { RECORDS };
    let counter = Calls::find();
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
    tell(wish, &rows, &skipped, records);
    // An extra write or flush is a bug, not a matter of speed.
    let exact =
        |row: &Row| row.last.writes == row.last.commits && row.last.flushes == row.last.commits;
    match rows.iter().find(|row| !exact(row)) {
        None => Ok(()),
        Some(row) => Err(Failed(format!(
            "{}, window {}: {} commits took {} writes and {} flushes",
            row.driver, row.window, row.last.commits, row.last.writes, row.last.flushes
        ))),
    }
}

fn measure(
    program: &Path,
    driver: &'static str,
    window: u64,
    depth: u64,
    records: u64,
    counter: Option<Calls>,
) -> Result<Row, Failed> {
    let (window_word, depth_word) = (window.to_string(), depth.to_string());
    let words = |records: &str| {
        let words = ["--driver", driver, "--window", &window_word, "--depth", &depth_word];
        let words = words.into_iter().chain(["--records", records]);
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    let run = |records: u64| {
        let words = words(&records.to_string());
        commits(program, &words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let runs = (0..RUNS).map(|_| run(records)).collect::<Result<Vec<_>, _>>()?;
    let rate = |run: &Commits| float(run.records) * 1e9 / float(run.nanos);
    let rates = runs.iter().map(rate);
    let calls = match counter {
        Some(counter) => syscalls_per_record(counter, program, &words("1000"), &words("3000"))?,
        None => f64::NAN,
    };
    Ok(Row { driver, window, depth, last: runs[RUNS - 1], per_second: median(rates), calls })
}

/// Returns the system calls per record: those of the longer run minus those of the shorter one,
/// which has 2000 fewer records, so that startup cancels out.
fn syscalls_per_record(
    counter: Calls,
    program: &Path,
    short: &[String],
    long: &[String],
) -> Result<f64, Failed> {
    let count = |words: &[String]| {
        counter.count(program, &words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    Ok((float(count(long)?) - float(count(short)?)) / 2000.0)
}

fn tell(wish: Wish, rows: &[Row], skipped: &[String], records: u64) {
    let per_commit = |count: u64, row: &Row| float(count) / float(row.last.commits);
    if wish.json {
        let figures = |row: &Row| Figures {
            driver: row.driver,
            window: row.window,
            depth: row.depth,
            records_per_commit: per_commit(row.last.records, row),
            writes_per_commit: per_commit(row.last.writes, row),
            flushes_per_commit: per_commit(row.last.flushes, row),
            bytes_per_commit: per_commit(row.last.bytes, row),
            syscalls_per_record: row.calls,
            records_per_s: row.per_second,
        };
        let report = Report {
            bench: "log",
            instructions_by: None,
            runs: RUNS,
            value_bytes: Some(64),
            cpus: None,
            load: load(),
            rows: rows.iter().map(figures).collect(),
        };
        report.print();
        return;
    }
    for why in skipped {
        println!("SKIPPED uring: {why}");
    }
    println!(
        "the log on a real folder, records of 64 bytes, {records} in a run, median of {RUNS} runs,"
    );
    println!("{} CPUs, load {}; the host may acknowledge a flush from its cache\n", cpus(), load());
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
            per_commit(row.last.records, row),
            per_commit(row.last.writes, row),
            per_commit(row.last.flushes, row),
            per_commit(row.last.bytes, row),
            row.calls,
            row.per_second
        );
    }
}
