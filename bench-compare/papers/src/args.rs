//! Flags of `cargo xtask papers`.

use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use quorate_cli::values::{Number, Unit};
use quorate_tools::{FileArgs, Wan, flush, time};

use crate::experiment::{ExperimentOptions, PaperTime};

/// Repeat an experiment from a paper with Quorate, and compare the published figures with ours.
#[derive(Debug, Parser)]
#[command(
    name = "papers",
    bin_name = "cargo xtask papers",
    version = quorate_cli::VERSION,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) part: Option<Part>,
    #[command(flatten)]
    pub(crate) paper: PaperArgs,
}

/// A process of an experiment, started by the experiment itself.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Part {
    /// Echoes every message at an interface, until its parent ends
    #[command(hide = true)]
    EchoServer {
        interface: String,
        ms: u64,
        #[arg(long)]
        way: String,
    },
}

/// Durations of an experiment; each kind has its own defaults.
#[derive(Args, Clone, Debug)]
pub(crate) struct PaperTimeArgs {
    /// Measured time of each repetition [default: 10s; with a fixed batch 4s or longer]
    #[arg(long, env = "QUORATE_DURATION", value_name = "TIME", value_parser = time)]
    pub(crate) duration: Option<Duration>,
    /// Warm-up before it, which is not measured [default: 2s; with a fixed batch 3s]
    #[arg(long, env = "QUORATE_WARMUP", value_name = "TIME", value_parser = time)]
    pub(crate) warmup: Option<Duration>,
    /// Repetitions of each row; the median is shown [default: 5; with a fixed batch 1]
    #[arg(long, env = "QUORATE_REPEAT", value_name = "N",
          value_parser = Number::between(1, 1000, Unit::Count).argument::<u32>())]
    pub(crate) repeat: Option<u32>,
}

/// The experiment, its durations and its output files.
#[derive(Args, Clone, Debug)]
pub(crate) struct PaperArgs {
    /// Name of the experiment, such as kernel-paxos-fig5
    #[arg(required_unless_present = "list")]
    pub(crate) name: Option<String>,
    /// List the experiments and what is missing for each
    #[arg(long)]
    pub(crate) list: bool,
    /// Make each flush take at least this many milliseconds
    #[arg(long, env = "QUORATE_DISK_FLUSH_MS", value_name = "F", default_value = "0",
          value_parser = flush)]
    pub(crate) disk_flush_ms: Duration,
    /// Use another emulated network than the paper's
    #[arg(long, env = "QUORATE_WAN", value_name = "NAME", value_enum)]
    pub(crate) wan: Option<Wan>,
    /// Measure only the ends of each row and column, where batch and window are fixed
    #[arg(long)]
    pub(crate) quick: bool,
    /// Measure all rates and sizes of a table, for as long as in the paper [default: a short form]
    #[arg(long, conflicts_with = "quick")]
    pub(crate) full: bool,
    #[command(flatten)]
    pub(crate) time: PaperTimeArgs,
    #[command(flatten)]
    pub(crate) files: FileArgs,
}

impl PaperArgs {
    pub(crate) fn to_options(&self) -> ExperimentOptions {
        ExperimentOptions {
            disk_flush: self.disk_flush_ms,
            other_network: self.wan.map(Wan::link_profile),
            ends_only: self.quick,
            as_in_paper: self.full,
            time: PaperTime {
                duration: self.time.duration,
                warmup: self.time.warmup,
                repetition_count: self.time.repeat,
            },
        }
    }
}
