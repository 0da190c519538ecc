//! Cost of a protocol core step: nanoseconds and, where available, instructions.

use std::{path::Path, process::Command};

use serde::Serialize;

use quorate_bench::figure::median;

use super::{
    BenchOptions, Report, build, cpu_count, find_number, load_average, parse_numbers, to_float,
};
use crate::{
    instructions::InstructionCounter,
    shell::{Failed, read_output},
};

/// The benchmark's cases, each with the budget of a step in nanoseconds.
pub(crate) const CASES: [(&str, f64); 6] = [
    ("follower.batches", 40.0),
    ("follower.streams", 40.0),
    ("leader.volatile.batches", 60.0),
    ("leader.volatile.streams", 60.0),
    ("leader.durable.batches", 60.0),
    ("leader.durable.streams", 60.0),
];
const RUN_COUNT: usize = 5;

/// Measurements of a case.
#[derive(Serialize)]
struct Row {
    case: &'static str,
    instructions: f64,
    nanoseconds: f64,
    budget_nanoseconds: f64,
}

pub(super) fn run(wish: BenchOptions) -> Result<(), Failed> {
    let program = build("quorate-core", "step")?;
    let runs = if wish.quick { 1 } else { RUN_COUNT };
    let texts = (0..runs)
        .map(|_| read_output(&mut Command::new(&program)))
        .collect::<Result<Vec<_>, _>>()?;
    let counter = InstructionCounter::find_best();
    let mut rows = Vec::new();
    for (case, budget) in CASES {
        let times: Vec<f64> = texts.iter().filter_map(|text| parse_nanos(text, case)).collect();
        let instructions = match counter {
            Ok(counter) => instructions_per_step(counter, &program, case)?,
            Err(_) => f64::NAN,
        };
        rows.push(Row {
            case,
            instructions,
            nanoseconds: median(times),
            budget_nanoseconds: budget,
        });
    }
    let counted = counter.map_or_else(|why| why.to_owned(), |counter| counter.name().to_owned());
    if wish.json {
        let report = Report {
            bench: "core",
            instructions_by: Some(&counted),
            runs,
            value_bytes: None,
            cpus: None,
            load: load_average(),
            rows,
        };
        report.print();
        return Ok(());
    }
    if let Err(why) = counter {
        println!("SKIPPED instructions: {why}");
    }
    println!(
        "one step of the core, steady state; instructions by {counted}; times: median of {runs}"
    );
    println!(
        "runs, {} CPUs, load {} (instructions do not depend on it)\n",
        cpu_count(),
        load_average()
    );
    println!("{:26} {:>12} {:>8} {:>8}", "", "instructions", "ns", "budget");
    for row in rows {
        println!(
            "{:26} {:12.1} {:8.1} {:8.0}",
            row.case, row.instructions, row.nanoseconds, row.budget_nanoseconds
        );
    }
    Ok(())
}

/// Parses a `case <ns>` line.
fn parse_nanos(text: &str, case: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(case));
    line?.trim().parse().ok()
}

/// Returns the instructions per step: those of a whole round minus those of a round without the
/// steps, so that setup and message construction cancel out.
pub(crate) fn instructions_per_step(
    counter: InstructionCounter,
    program: &Path,
    case: &str,
) -> Result<f64, Failed> {
    let steps = find_number(&parse_numbers(program, &["--case", case])?, "steps")?;
    let whole = counter.count_instructions(program, &["--case", case])?;
    let idle = counter.count_instructions(program, &["--case", case, "--idle"])?;
    Ok(to_float(whole.saturating_sub(idle)) / to_float(steps))
}
