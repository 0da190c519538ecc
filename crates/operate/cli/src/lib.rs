//! The command line, with one file per subcommand.
//!
//! Two programs use this crate. `quorate` runs and manages nodes. `quorate-tools` (`proof/tools`)
//! contains the commands that need the load generator, the simulator or the doctor's probes.
//! `quorate` starts `quorate-tools` for these commands, so that users need only one name.
#![forbid(unsafe_code)]

mod addresses;
mod audit;
mod backup;
mod boxes;
mod cert;
mod certificates;
mod config;
mod demo;
mod etcd;
mod export;
mod handing_over;
mod import;
mod joining;
mod kv;
mod log;
mod logging;
mod manager;
mod member;
mod naming;
pub mod output;
mod password;
mod plane_keys;
mod proof;
mod rdb;
mod recover;
mod reporting;
mod restore;
mod scrub;
pub mod signals;
mod snapshot;
mod start;
mod starting;
mod status;
mod stop;
#[cfg(test)]
mod stop_races;
mod stores;
mod stream;
mod sync;
mod top;
mod transfer;
mod usage;
mod user;
pub mod values;
mod watched;

use std::{env, ffi::OsString, process::ExitCode};

use clap::{CommandFactory as _, Parser, Subcommand, error::ErrorKind};
use output::{Exit, Output, Problem};

pub use addresses::{DEFAULT_ADMIN, address_argument};
pub use config::{FLUSH_VALUES, parse_flush};
pub use proof::{Global, certificate, login, use_certificate};

/// Git commit of the source tree, with the suffix `+changes` if files differed from it. `None`
/// outside of a repository.
pub const COMMIT: Option<&str> = option_env!("QUORATE_COMMIT");

/// Version, with the commit and its date if they are known: `0.3.0 (1a2b3c4d5e 2026-11-28)`.
pub const VERSION: &str = env!("QUORATE_VERSION");

/// A replicated key-value store and byte streams, built on Paxos: it loses nothing that it
/// acknowledged.
#[derive(Debug, Parser)]
#[command(name = "quorate", version = VERSION, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    global: Global,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a node
    Start(config::StartArgs),
    /// A program of a device that ends with its node
    #[command(hide = true)]
    Box(boxes::BoxArgs),
    /// Start three nodes, kill the leader under load, and check that nothing is lost
    Demo(demo::DemoArgs),
    /// Show the state of every node
    Status(status::StatusArgs),
    /// Watch the cluster full-screen: links, elections, tuning
    Top(top::TopArgs),
    /// Check this machine and its network, and tell you what to fix
    Doctor(handing_over::Words),
    /// Add, remove and replace members
    #[command(subcommand)]
    Member(member::MemberCommand),
    /// Run commands of the key-value service, such as SET and GET
    Kv(kv::KvArgs),
    /// Write, read and manage byte streams
    #[command(subcommand)]
    Stream(stream::StreamCommand),
    /// Hand leadership to another node
    Transfer(transfer::TransferArgs),
    /// Take a snapshot on a node now
    Snapshot(snapshot::SnapshotArgs),
    /// Read everything that a running node keeps, and repair what is damaged
    Scrub(scrub::ScrubArgs),
    /// Write the state of a running node to a file
    Backup(backup::BackupArgs),
    /// Start a new cluster from a backup
    Restore(restore::RestoreArgs),
    /// Import the keys of a Redis or Valkey server from its RDB file
    Import(import::ImportArgs),
    /// Write all keys to an RDB file, which Redis and Valkey load
    Export(export::ExportArgs),
    /// Recover from permanent loss of the majority: start a new cluster from one node's data
    Recover(recover::RecoverArgs),
    /// Show how commands are batched and why
    Tune(handing_over::Words),
    /// Inspect the log of a stopped node
    #[command(subcommand)]
    Log(log::LogCommand),
    /// Simulate clusters under faults until a rule is broken
    Sim(handing_over::Words),
    /// Benchmark a temporary or a running cluster
    Bench(handing_over::Words),
    /// Create certificates: authorities, nodes, clients
    #[command(subcommand)]
    Cert(cert::CertCommand),
    /// Manage users, roles and passwords
    #[command(subcommand)]
    User(user::UserCommand),
    /// Show the audit log
    Audit(audit::AuditArgs),
    /// Print a shell completion script
    Completions(handing_over::Words),
    /// Print manual pages
    Man(handing_over::Words),
}

/// Runs the program `quorate`.
#[must_use]
pub fn main() -> ExitCode {
    let words: Vec<OsString> = env::args_os().collect();
    if handing_over::is_tools_command(&words) {
        let problem = handing_over::exec_tools(&words);
        return Output { json: false }.print_problem(&problem).into();
    }
    let mut cli = match Cli::try_parse_from(expand_help(words, &Cli::command())) {
        Ok(cli) => cli,
        Err(error) => return print_usage(&error).into(),
    };
    let output = cli.global.output();
    use Command::{Cert, Log, Recover, Restore};
    if matches!(cli.command, Restore(_) | Recover(_) | Log(_) | Cert(_)) {
        cli.global.forget_credentials();
    }
    // A node uses its own certificate, and the nodes of a demo need none.
    let proves = !matches!(cli.command, Command::Start(_) | Command::Demo(_));
    let outcome = cli
        .global
        .check_json()
        .and_then(|()| cli.global.start_command(proves))
        .and_then(|()| run(cli.command, output));
    signals::yield_to_interrupt();
    let exit = outcome.unwrap_or_else(|problem| match logging::is_logging() && !output.json {
        true => {
            logging::error(&problem.to_string());
            problem.exit
        }
        false => output.print_problem(&problem),
    });
    logging::flush_output();
    exit.into()
}

/// Returns the clap definition of `quorate`, for tools that describe all of its commands.
#[must_use]
pub fn quorate_command() -> clap::Command {
    Cli::command()
}

/// Rewrites `help start --help` to a form that clap accepts, because clap's `help` takes only the
/// names of commands.
#[must_use]
pub fn expand_help(mut all: Vec<OsString>, command: &clap::Command) -> Vec<OsString> {
    let mut command = command;
    for at in 1..all.len() {
        if all[at] == "help" {
            let rest = all.split_off(at + 1);
            let is_flag = |word: &OsString| word == "--help" || word == "-h";
            all.extend(rest.into_iter().filter(|word| !is_flag(word)));
            break;
        }
        match command.find_subcommand(&all[at]) {
            Some(subcommand) => command = subcommand,
            None => break,
        }
    }
    all
}

fn run(command: Command, output: Output) -> Result<Exit, Problem> {
    match command {
        Command::Start(args) => start::run(&args),
        Command::Box(args) => boxes::run(&args),
        Command::Demo(args) => demo::run(&args, output),
        Command::Status(args) => status::run(&args, output),
        Command::Top(args) => top::run(&args, output),
        Command::Member(command) => member::run(&command, output),
        Command::Kv(args) => kv::run(&args, output),
        Command::Stream(command) => stream::run(&command, output),
        Command::Transfer(args) => transfer::run(&args, output),
        Command::Snapshot(args) => snapshot::run(&args, output),
        Command::Scrub(args) => scrub::run(&args, output),
        Command::Backup(args) => backup::run(&args, output),
        Command::Restore(args) => restore::run(&args, output),
        Command::Import(args) => import::run(&args, output),
        Command::Export(args) => export::run(&args, output),
        Command::Recover(args) => recover::run(&args, output),
        Command::Log(command) => log::run(&command, output),
        Command::Cert(command) => cert::run(&command, output),
        Command::User(command) => user::run(&command, output),
        Command::Audit(args) => audit::run(&args, output),
        Command::Doctor(_)
        | Command::Tune(_)
        | Command::Sim(_)
        | Command::Bench(_)
        | Command::Completions(_)
        | Command::Man(_) => Err(handing_over::exec_tools(&env::args_os().collect::<Vec<_>>())),
    }
}

/// Prints help or the version as a result, and any other parse error as a usage error. Uses JSON if
/// the arguments request it.
#[must_use]
pub fn print_usage(error: &clap::Error) -> Exit {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        output::print_line(error.to_string().trim_end());
        return Exit::Done;
    }
    let json = env::args().any(|argument| argument == "--json");
    let refused = values::refused(error);
    if json || refused.is_some() {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        let message = refused.as_deref();
        let message = message.unwrap_or(first.strip_prefix("error: ").unwrap_or(first));
        let hint = "--help lists the flags and their values";
        let problem = Problem::new(Exit::Usage, "bad_usage", message).with_hint(hint);
        return Output { json }.print_problem(&problem);
    }
    output::progress(error.render().to_string().trim_end());
    Exit::Usage
}
