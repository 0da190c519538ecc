//! Commands that need the load generator, the simulator or the doctor's probes. `quorate` runs the
//! binary `quorate-tools` for these commands, so the help texts call the program `quorate`.
//!
//! The papers' experiments (`bench-compare/papers`) share the flags and the output of `quorate
//! bench`: see [`measure`].
#![forbid(unsafe_code)]

mod bench;
mod doctor;
mod manual;
mod sim;
mod tune;

use std::{env, process::ExitCode};

use clap::{CommandFactory as _, Parser, Subcommand};
use quorate_cli::{
    Global,
    output::{Exit, Output, Problem},
    signals,
};

/// Commands that measure, simulate and document; 'quorate' has the others.
#[derive(Debug, Parser)]
#[command(name = "quorate", bin_name = "quorate", version = quorate_cli::VERSION, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    global: Global,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check this machine and its network, and tell you what to fix
    Doctor(doctor::DoctorArgs),
    /// Show how commands are batched and why
    Tune(tune::TuneArgs),
    /// Simulate clusters under faults until a rule is broken
    Sim(sim::SimArgs),
    /// Benchmark a temporary or a running cluster
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Print a shell completion script
    Completions(manual::CompletionsArgs),
    /// Print manual pages
    Man(manual::ManArgs),
}

pub use bench::{
    args::{FileArgs, Wan, flush, time},
    measure,
    part::exit_with_parent,
};

/// Runs the program `quorate-tools`.
#[must_use]
pub fn main() -> ExitCode {
    let words = quorate_cli::expand_help(env::args_os().collect(), &Cli::command());
    let mut cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => return quorate_cli::print_usage(&error).into(),
    };
    let output = cli.global.output();
    // For `bench`, the value of `--json` may also be a file name.
    let checked = match cli.command {
        Command::Bench(_) => Ok(()),
        _ => cli.global.check_json(),
    };
    if matches!(cli.command, Command::Sim(_) | Command::Completions(_) | Command::Man(_)) {
        cli.global.forget_credentials();
    }
    // The doctor reports bad certificates itself.
    let proves = !matches!(cli.command, Command::Doctor(_));
    let outcome = checked
        .and_then(|()| cli.global.start_command(proves))
        .and_then(|()| run(cli.command, &cli.global, output));
    signals::yield_to_interrupt();
    outcome.unwrap_or_else(|problem| output.print_problem(&problem)).into()
}

fn run(command: Command, global: &Global, output: Output) -> Result<Exit, Problem> {
    quorate_bench::environment::set_built_from(quorate_cli::VERSION, quorate_cli::COMMIT);
    match command {
        Command::Doctor(args) => doctor::run(&args, global.tls(), output),
        Command::Tune(args) => tune::run(&args, output),
        Command::Sim(args) => sim::run(&args, output),
        Command::Bench(command) => bench::run(&command),
        Command::Completions(args) => manual::print_completions(&args, combined_command(), output),
        Command::Man(args) => manual::print_manual(&args, combined_command(), output),
    }
}

/// Returns the combined command line of both programs, as users see it.
fn combined_command() -> clap::Command {
    let own = Cli::command();
    // `quorate start` checks its values itself. Here they are listed for completion.
    let store = |arg: clap::Arg| arg.value_parser(["lsm", "memory"]).hide_possible_values(true);
    let whole = quorate_cli::quorate_command();
    let whole = whole.mut_subcommand("start", |start| start.mut_arg("store", store));
    own.get_subcommands()
        .fold(whole, |whole, command| whole.mut_subcommand(command.get_name(), |_| command.clone()))
}
