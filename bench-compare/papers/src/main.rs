//! `cargo xtask papers`: repeats published experiments with Quorate, and shows the published
//! figures next to ours.
#![forbid(unsafe_code)]

mod args;
mod echo;
mod experiment;
mod fit;
mod kinds;
mod published;
mod run;

use std::{env, process::ExitCode};

use clap::Parser as _;
use quorate_bench::environment;
use quorate_cli::{
    output::{Exit, Output, Problem, format_table, is_switched_on, print_line},
    signals,
};
use quorate_tools::{exit_with_parent, measure};

use args::{Cli, PaperArgs, Part};
use experiment::Experiment;
use published::PublishedPaper;

/// Beginning of the command line that a report names.
const REPORT_COMMAND: &str = "cargo xtask papers";

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return quorate_cli::print_usage(&error).into(),
    };
    environment::set_built_from(quorate_cli::VERSION, quorate_cli::COMMIT);
    let outcome = match &cli.part {
        Some(Part::EchoServer { interface, way, .. }) => serve_echoes(interface, way),
        None => run_experiment(&cli.paper),
    };
    signals::yield_to_interrupt();
    let output = Output { json: cli.paper.files.json.as_deref().is_some_and(is_switched_on) };
    outcome.unwrap_or_else(|problem| output.print_problem(&problem)).into()
}

fn run_experiment(args: &PaperArgs) -> Result<Exit, Problem> {
    let papers =
        published::load_all().map_err(|error| Problem::new(Exit::Failed, "bad_data", error))?;
    let Some(name) = args.name.as_ref().filter(|_| !args.list) else {
        print_line(list_experiments(&papers).trim_end());
        return Ok(Exit::Done);
    };
    let options = args.to_options();
    let experiment = Experiment::find(&papers, name, &options)?;
    check_nodes_program()?;
    // Each client needs one descriptor for its connection.
    quorate::raise_descriptor_limit();
    measure(REPORT_COMMAND, experiment.network(), &args.files, |document| {
        experiment.check_durations()?;
        experiment.run(document)
    })
}

/// Checks that the program that runs nodes is in the folder of this one, where the bench starts it.
fn check_nodes_program() -> Result<(), Problem> {
    let own = env::current_exe().map_err(|error| Problem::io_error("find this program", &error))?;
    let program = own.with_file_name("quorate");
    if program.is_file() {
        return Ok(());
    }
    let what = format!("{} is missing, which runs the nodes", program.display());
    Err(Problem::new(Exit::Failed, "not_ready", what)
        .with_hint("'cargo xtask papers' builds both into one folder"))
}

fn serve_echoes(interface: &str, way: &str) -> Result<Exit, Problem> {
    let failed = |error| Problem::io_error("serve echoes", &error);
    exit_with_parent()?;
    let way = echo::EchoTransport::from_name(way)
        .ok_or_else(|| Problem::usage_error("no way of an echo"))?;
    echo::serve_echoes(interface, way).map_err(failed)?;
    Ok(Exit::Done)
}

fn list_experiments(papers: &[PublishedPaper]) -> String {
    let mut lines = vec![["name", "source", "state", "what"].map(str::to_owned).to_vec()];
    for paper in papers {
        for scenario in &paper.scenario {
            let state = if scenario.run.is_some() {
                "ready".to_owned()
            } else {
                format!("waits for {}", scenario.waits_for)
            };
            lines.push(vec![
                scenario.name.clone(),
                format!("{}, {}", paper.name, scenario.source),
                state,
                scenario.about.clone(),
            ]);
        }
    }
    format_table(&lines)
}
