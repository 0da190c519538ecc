//! The `quorate` binary: one file per subcommand.
#![forbid(unsafe_code)]

mod admin;
mod bench;
mod browser;
mod config;
mod demo;
mod http;
mod log;
mod memory;
mod output;
mod process;
mod signals;
mod sim;
mod start;
mod status;
mod transfer;
mod tune;
mod view;

use std::{env, process::ExitCode};

use clap::{Parser, Subcommand, error::ErrorKind};
use tracing_subscriber::EnvFilter;

use output::{Exit, Output, Problem};

/// Consensus for ordinary machines: a replicated key-value store that loses nothing.
#[derive(Debug, Parser)]
#[command(name = "quorate", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// One JSON document on standard output, errors included
    // Text, as `quorate bench` has a flag of the same name that may be followed by a file.
    #[arg(long, global = true, env = "QUORATE_JSON", value_name = "BOOL", hide_possible_values = true,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    json: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a node
    Start(config::StartArgs),
    /// Three nodes, a killed leader, nothing lost
    Demo(demo::DemoArgs),
    /// What every node says
    Status(status::StatusArgs),
    /// Hand leadership to another node
    Transfer(transfer::TransferArgs),
    /// How commands are batched, and why
    Tune(tune::TuneArgs),
    /// Look at the log of a stopped node
    #[command(subcommand)]
    Log(log::LogCommand),
    /// Simulate clusters until a rule is broken
    Sim(sim::SimArgs),
    /// Measure: a cluster of its own, or one that runs
    #[command(subcommand)]
    Bench(bench::BenchCommand),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error).into(),
    };
    start_logging();
    let output = Output {
        json: cli.json.as_deref().is_some_and(output::is_on),
    };
    let outcome = run(cli.command, output);
    signals::yield_to_interrupt();
    outcome
        .unwrap_or_else(|problem| output.problem(&problem))
        .into()
}

fn run(command: Command, output: Output) -> Result<Exit, Problem> {
    match command {
        Command::Start(args) => start::run(&args),
        Command::Demo(args) => demo::run(&args, output),
        Command::Status(args) => status::run(&args, output),
        Command::Transfer(args) => transfer::run(&args, output),
        Command::Tune(args) => tune::run(&args, output),
        Command::Log(command) => log::run(&command, output),
        Command::Sim(args) => sim::run(&args, output),
        Command::Bench(command) => bench::run(&command),
    }
}

/// Help and version are results; anything else is bad usage, in JSON if that was asked for.
fn usage(error: &clap::Error) -> Exit {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        output::print(error.to_string().trim_end());
        return Exit::Done;
    }
    if env::args().any(|argument| argument == "--json") {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        let message = first.strip_prefix("error: ").unwrap_or(first);
        let problem = Problem::new(Exit::Usage, "bad_usage", message).hint("quorate help");
        return Output { json: true }.problem(&problem);
    }
    output::progress(error.render().to_string().trim_end());
    Exit::Usage
}

/// Lower-case fragments with fields, on standard error.
fn start_logging() {
    let wanted = env::var("QUORATE_LOG").unwrap_or_else(|_| "info".to_owned());
    let (filter, bad) = match EnvFilter::try_new(&wanted) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new("info"), Some(error)),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_target(false)
        .init();
    if let Some(error) = bad {
        tracing::warn!(%error, "QUORATE_LOG is not understood");
    }
}
