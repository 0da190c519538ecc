//! `quorate bench`: measures a temporary or running cluster, and the machine.

pub(crate) mod args;
mod compare;
mod finish;
pub(crate) mod part;
mod publish;

use std::{env, path::Path};

use clap::Subcommand;
use quorate_bench::{
    emulated::EmulatedNetwork,
    report::BenchReport,
    run::{
        network, probe,
        series::{LoadOptions, LoadSeries},
        wan,
    },
};
use quorate_testbed::interrupt;

use args::FileArgs;
use quorate_cli::{
    output::{Exit, Output, Problem, is_switched_on},
    signals,
};

/// Environment variable that makes skipped steps count as failures.
const NO_SKIPS_VARIABLE: &str = "QUORATE_NO_SKIPS";

/// A benchmark.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Benchmark the key-value service over the Redis protocol
    Kv(args::KvArgs),
    /// Benchmark replication alone: a service without state, framed commands
    Log(args::LogArgs),
    /// Benchmark byte streams: write rate, durable rate and latency
    Stream(args::StreamArgs),
    /// Measure the limits of this machine: bare programs without a protocol
    Probe(args::ProbeArgs),
    /// Experiments from papers, which are now a task of the source tree
    #[command(hide = true)]
    Paper(args::MovedArgs),
    /// Compare with other systems, in turns, on this machine (needs the source tree)
    Compare(args::CompareArgs),
    /// Measure the links of an emulated wide-area network; needs root
    Wan(args::WanArgs),
    /// A process of the probe
    #[command(hide = true, subcommand)]
    Part(part::PartCommand),
}

pub(crate) fn run(command: &BenchCommand) -> Result<Exit, Problem> {
    // Each client needs one descriptor for its connection.
    quorate::raise_descriptor_limit();
    match command {
        BenchCommand::Kv(args) => {
            let store = args.store.map(args::KvStore::name);
            let series = LoadSeries::new_kv(
                args.load.to_load()?,
                args.time.to_run_time(),
                store,
                args.reads,
            )?;
            measure_here(series.network(), &args.files, |document| series.run(document))
        }
        BenchCommand::Log(args) => {
            let load = LoadOptions {
                records_hops: args.trace.is_some(),
                frame_interface: args.frames.clone(),
                ..args.load.to_load()?
            };
            let series = LoadSeries::new_log(load, args.time.to_run_time())?;
            if let Some(picture) = &args.trace {
                return run_trace(&series, picture, &args.files);
            }
            measure_here(series.network(), &args.files, |document| series.run(document))
        }
        BenchCommand::Stream(args) => {
            let wish = args.to_options();
            wish.check_options()?;
            measure_here(None, &args.files, |document| wish.run(document))
        }
        BenchCommand::Probe(args) => measure_here(None, &args.files, |document| {
            if args.stream {
                args.to_stream_probe().run(document)
            } else {
                probe::run(&args.to_probe_options(), document)
            }
        }),
        BenchCommand::Paper(args) => Ok(report_moved(args)),
        BenchCommand::Compare(args) => compare::run(args),
        BenchCommand::Wan(args) => {
            let profile = args.profile.link_profile();
            measure_here(Some(EmulatedNetwork::Wan(profile)), &args.files, |document| {
                wan::run(profile, document)
            })
        }
        BenchCommand::Part(command) => part::run(command),
    }
}

/// Reports that the command has become `cargo xtask papers`.
fn report_moved(args: &args::MovedArgs) -> Exit {
    let what = "the papers' experiments are no command of quorate any more";
    let command = format!("cargo xtask papers {}", args.words.join(" "));
    let hint = format!("in a checkout of Quorate: {}", command.trim_end());
    let json = args.words.iter().any(|word| word == "--json");
    Output { json }.print_problem(&Problem::new(Exit::Usage, "moved", what).with_hint(hint))
}

/// Runs a measurement as a command of `quorate`.
fn measure_here(
    network: Option<EmulatedNetwork>,
    files: &FileArgs,
    run: impl FnOnce(&mut BenchReport) -> Result<(), quorate_bench::problem::Problem>,
) -> Result<Exit, Problem> {
    measure("quorate", network, files, run)
}

/// Enters the emulated network if one is requested, runs the measurement, and publishes its
/// results. `program` begins the command line that the report names.
pub fn measure(
    program: &str,
    network: Option<EmulatedNetwork>,
    files: &FileArgs,
    run: impl FnOnce(&mut BenchReport) -> Result<(), quorate_bench::problem::Problem>,
) -> Result<Exit, Problem> {
    if network.is_some() {
        let no_skips = env::var(NO_SKIPS_VARIABLE).is_ok_and(|value| is_switched_on(&value));
        if let Some(why) = network::enter_namespaces(no_skips)? {
            return publish::report_skipped(program, &why, files);
        }
    }
    publish::check_outputs_writable(files)?;
    signals::end_at_first_signal(interrupt::clean_up)?;
    let mut document = publish::empty_document(program);
    let measured = run(&mut document);
    finish::publish_and_report(document, files, measured.map_err(Problem::from))
}

/// Runs `quorate bench log --trace FILE`: shows the life of a command as a picture and as a table.
fn run_trace(series: &LoadSeries, picture: &Path, files: &FileArgs) -> Result<Exit, Problem> {
    publish::check_file_writable(picture)?;
    let mut drawn = Ok(());
    let exit = measure_here(series.network(), files, |document| {
        let traced = series.trace_commands(document);
        if !document.lives.is_empty() {
            drawn = publish::write_file(picture, &document.to_svg());
        }
        traced
    })?;
    drawn?;
    Ok(exit)
}
