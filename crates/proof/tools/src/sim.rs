//! `quorate sim`: simulates a whole cluster under faults in a single thread.

mod replay;

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use quorate_cli::output::{Exit, Output, Problem};

/// Arguments of `quorate sim`.
#[derive(Args, Clone, Debug)]
pub(crate) struct SimArgs {
    /// Seed for the random choices [default: random]
    #[arg(long, env = "QUORATE_SEED", value_name = "N")]
    seed: Option<u64>,
    /// Events to simulate before the faults stop
    #[arg(long, env = "QUORATE_STEPS", value_name = "N", default_value_t = 20_000)]
    steps: u64,
    /// Instead, write an HTML page with an animation of a leader that dies while nothing is lost
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

/// Result of `quorate sim`.
#[derive(Clone, Debug, Serialize)]
struct SimOutcome {
    seed: u64,
    steps: u64,
    holds: bool,
    violation: Option<String>,
    replay: String,
}

pub(crate) fn run(args: &SimArgs, output: Output) -> Result<Exit, Problem> {
    if let Some(file) = &args.page {
        return replay::write_page(file, args.seed, output);
    }
    let seed = match args.seed {
        Some(seed) => seed,
        None => u64::from_le_bytes(quorate::random_bytes()?),
    };
    let report = quorate_sim::run(seed, args.steps);
    let outcome = SimOutcome {
        seed,
        steps: args.steps,
        holds: report.has_no_violation(),
        violation: report.violation.as_ref().map(ToString::to_string),
        replay: report.replay_command(),
    };
    output.print_result(&outcome, || report.to_string());
    Ok(if outcome.holds { Exit::Done } else { Exit::Violation })
}
