//! `quorate bench`: measures a cluster of its own or one that runs, and what the machine can do.

mod args;
mod ceilings;
mod compare;
mod failure;
mod finish;
mod grid;
mod info;
mod measure;
mod paper;
mod part;
mod probe;
mod publish;
mod readings;
mod series;
mod session;
mod syscalls;
#[cfg(test)]
mod testing;
mod wan;
mod wan_probe;

use clap::Subcommand;

use crate::output::{Exit, Problem};

pub(crate) use session::resolve;

/// What is measured.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// The key-value service, over the Redis protocol
    Kv(args::KvArgs),
    /// Replication alone: a service without state, framed commands
    Log(args::LogArgs),
    /// What this machine can do at most: bare programs without a protocol
    Probe(args::ProbeArgs),
    /// An experiment of a paper, its figures beside ours
    Paper(args::PaperArgs),
    /// Other systems beside ours, in turns, on this machine (needs the source tree)
    Compare(args::CompareArgs),
    /// What the links of an emulated wide-area network carry; needs root
    Wan(args::WanArgs),
    /// A process of the probe
    #[command(hide = true, subcommand)]
    Part(part::PartCommand),
}

/// Runs the command.
pub(crate) fn run(command: &BenchCommand) -> Result<Exit, Problem> {
    quorate_bench::environment::built_from(option_env!("QUORATE_COMMIT"));
    match command {
        BenchCommand::Kv(args) => series::kv(args),
        BenchCommand::Log(args) => series::log(args),
        BenchCommand::Probe(args) => probe::run(args),
        BenchCommand::Paper(args) => paper::run(args),
        BenchCommand::Compare(args) => compare::run(args),
        BenchCommand::Wan(args) => wan_probe::run(args),
        BenchCommand::Part(command) => part::run(command),
    }
}
