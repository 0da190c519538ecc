//! The `quorate` binary: one file per subcommand.
#![forbid(unsafe_code)]

mod audit;
mod backup;
mod bench;
mod cert;
mod certificates;
mod config;
mod demo;
mod doctor;
mod joining;
mod log;
mod logging;
mod manager;
mod manual;
mod member;
mod memory;
mod output;
mod p4;
mod password;
mod plane_keys;
mod recover;
mod restore;
mod signals;
mod sim;
mod snapshot;
mod start;
mod status;
mod stop;
#[cfg(test)]
mod stop_races;
mod stream;
mod sync;
mod top;
mod transfer;
mod tune;
mod user;
mod watched;

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::OnceLock,
};

use clap::{CommandFactory as _, Parser, Subcommand, error::ErrorKind};
use output::{Exit, Output, Problem};
use quorate_client::Login;
use quorate_tls::{ClientFiles, ClientTrust};

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
    // Text, as the setting of `quorate start` of the same name is.
    /// A folder with certificate, key and authority, as 'quorate cert client' makes it: nodes are asked by TLS
    #[arg(long, global = true, env = "QUORATE_TLS", value_name = "DIR")]
    tls: Option<String>,
    /// Ask nodes as this user, by password: where no certificate says who you are
    #[arg(long, global = true, env = "QUORATE_LOGIN", value_name = "NAME")]
    login: Option<String>,
    /// The file with that user's password (`-`: standard input) [without one, it is asked for]
    #[arg(long, global = true, env = "QUORATE_LOGIN_FILE", value_name = "FILE")]
    login_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a node
    Start(config::StartArgs),
    /// A program for switches as a device: frames in, frames out
    #[command(hide = true)]
    P4(p4::P4Args),
    /// Three nodes, a killed leader, nothing lost
    Demo(demo::DemoArgs),
    /// What every node says
    Status(status::StatusArgs),
    /// The cluster on the whole screen of a terminal, with its links, elections and tuning
    Top(top::TopArgs),
    /// What this machine can carry, and what to do where it cannot
    Doctor(doctor::DoctorArgs),
    /// Who belongs to the cluster: add, remove, replace
    #[command(subcommand)]
    Member(member::MemberCommand),
    /// Byte streams: write, read and look after them
    #[command(subcommand)]
    Stream(stream::StreamCommand),
    /// Hand leadership to another node
    Transfer(transfer::TransferArgs),
    /// Have a node take a snapshot now
    Snapshot(snapshot::SnapshotArgs),
    /// Write the state of a running node to a file
    Backup(backup::BackupArgs),
    /// Make a new cluster of one of a backup
    Restore(restore::RestoreArgs),
    /// Go on alone when the majority is lost for good, as a new cluster
    Recover(recover::RecoverArgs),
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
    /// Make certificates: authorities, nodes, clients
    #[command(subcommand)]
    Cert(cert::CertCommand),
    /// Who may do what: users, roles, passwords
    #[command(subcommand)]
    User(user::UserCommand),
    /// What operators did
    Audit(audit::AuditArgs),
    /// A script that completes commands and flags in a shell
    Completions(manual::CompletionsArgs),
    /// Manual pages
    Man(manual::ManArgs),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse_from(arguments(env::args_os())) {
        Ok(cli) => cli,
        Err(error) => return usage(&error).into(),
    };
    let output = Output {
        json: cli.json.as_deref().is_some_and(output::is_on),
    };
    if let Err(problem) = check_json(&cli) {
        return output.problem(&problem).into();
    }
    let wanted = env::var_os(logging::VARIABLE);
    let wanted = wanted.as_ref().map(|wanted| wanted.to_string_lossy());
    let tls = cli.tls.as_deref().map(Path::new);
    let outcome = logging::start(wanted.as_deref())
        .and_then(|()| prove(tls, &cli.command))
        .and_then(|()| log_in(cli.login.as_deref(), cli.login_file.as_deref()))
        .and_then(|()| run(cli.command, tls, output));
    signals::yield_to_interrupt();
    outcome
        .unwrap_or_else(|problem| output.problem(&problem))
        .into()
}

/// Nodes are asked with this certificate, if there is one. A node that is to be started reads its own, a demo's nodes have
/// none, and a doctor says himself what is wrong with it.
fn prove(tls: Option<&Path>, command: &Command) -> Result<(), Problem> {
    let without = matches!(
        command,
        Command::Start(_) | Command::Demo(_) | Command::Doctor(_)
    );
    tls.filter(|_| !without).map_or(Ok(()), prove_by)
}

/// Nodes are asked with the certificate in this folder.
pub(crate) fn prove_by(folder: &Path) -> Result<(), Problem> {
    let files = ClientFiles::in_folder(folder);
    quorate_admin::client::use_certificate(&files)?;
    let _ = CERTIFICATE.set(ClientTrust::load(&files)?);
    Ok(())
}

/// Nodes are asked with this name and password, if there are any.
fn log_in(name: Option<&str>, file: Option<&Path>) -> Result<(), Problem> {
    let Some(name) = name else {
        return match file {
            Some(_) => {
                Err(Problem::usage("--login-file without --login").hint("say whose password it is"))
            }
            None => Ok(()),
        };
    };
    let password = password::read(file, &format!("password of {name}"))?;
    match quorate_admin::client::use_login(name, &password) {
        true => {
            let name = name.to_owned();
            let _ = LOGIN.set(Login { name, password });
            Ok(())
        }
        false => Err(Problem::usage(format_args!(
            "--login {name}: no user has such a name"
        ))),
    }
}

/// What `--tls` named.
static CERTIFICATE: OnceLock<ClientTrust> = OnceLock::new();

/// How this command proves who it is, if it does.
pub(crate) fn certificate() -> Option<ClientTrust> {
    CERTIFICATE.get().cloned()
}

/// What `--login` named, with the password.
static LOGIN: OnceLock<Login> = OnceLock::new();

/// Who this command says to be, if it does.
pub(crate) fn login() -> Option<Login> {
    LOGIN.get().cloned()
}

/// A switch that is neither on nor off, but for `bench`, where it may name a file.
fn check_json(cli: &Cli) -> Result<(), Problem> {
    let is_switch = |text: &str| output::is_on(text) || output::is_off(text);
    match cli.json.as_deref() {
        Some(text) if !is_switch(text) && !matches!(cli.command, Command::Bench(_)) => {
            let what = format_args!("--json={text}: neither on nor off");
            Err(Problem::usage(what)
                .hint("leave it out, or say --json; QUORATE_JSON=1 is the same"))
        }
        _ => Ok(()),
    }
}

/// `help` takes the names of commands and no flags, but "help start --help" says clearly enough what
/// is wanted.
fn arguments(all: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut all: Vec<OsString> = all.collect();
    let mut command = &Cli::command();
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

fn run(command: Command, tls: Option<&Path>, output: Output) -> Result<Exit, Problem> {
    match command {
        Command::Start(args) => start::run(&args),
        Command::P4(args) => p4::run(&args),
        Command::Demo(args) => demo::run(&args, output),
        Command::Status(args) => status::run(&args, output),
        Command::Top(args) => top::run(&args, output),
        Command::Doctor(args) => doctor::run(&args, tls, output),
        Command::Member(command) => member::run(&command, output),
        Command::Stream(command) => stream::run(&command, output),
        Command::Transfer(args) => transfer::run(&args, output),
        Command::Snapshot(args) => snapshot::run(&args, output),
        Command::Backup(args) => backup::run(&args, output),
        Command::Restore(args) => restore::run(&args, output),
        Command::Recover(args) => recover::run(&args, output),
        Command::Tune(args) => tune::run(&args, output),
        Command::Log(command) => log::run(&command, output),
        Command::Sim(args) => sim::run(&args, output),
        Command::Bench(command) => bench::run(&command),
        Command::Cert(command) => cert::run(&command, output),
        Command::User(command) => user::run(&command, output),
        Command::Audit(args) => audit::run(&args, output),
        Command::Completions(args) => manual::completions(&args, Cli::command(), output),
        Command::Man(args) => manual::man(&args, Cli::command(), output),
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
