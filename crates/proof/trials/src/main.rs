//! Trials and benchmarks on real processes. `cargo xtask NAME` starts this program, and `cargo
//! xtask` lists the tasks.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command line")]

mod bench;
mod browser;
mod client_suites;
mod clients;
mod cluster;
mod compare;
mod disks;
mod etcd;
mod gate;
mod go;
mod instructions;
mod kernels;
mod nodes;
mod page;
mod soak;
mod suite;
mod tuner;
mod upgrade;
mod users;
mod writing;

use std::process::ExitCode;

use quorate_shell as shell;
use shell::Failed;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed(why)) => {
            println!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<(), Failed> {
    match words {
        ["bench", rest @ ..] => bench::run(rest),
        ["client-suites", rest @ ..] => client_suites::run(rest),
        ["clients"] => clients::run(),
        ["clients", "queues"] => clients::run_queues(),
        ["cluster", rest @ ..] => cluster::run(rest),
        ["compare", rest @ ..] => compare::run(rest),
        ["disks", rest @ ..] => disks::run(rest),
        ["etcd"] => etcd::run(),
        ["etcd", "kubernetes"] => etcd::kubernetes::run(),
        ["etcd", "tests", rest @ ..] => etcd::suite::run(rest),
        ["gate", rest @ ..] => gate::run(rest),
        ["kernels"] => kernels::run("5000"),
        ["kernels", count] => kernels::run(count),
        ["page"] => page::run(None),
        ["page", program] => page::run(Some(program)),
        ["redis-suite", rest @ ..] => suite::run(rest),
        ["soak", rest @ ..] => soak::run(rest),
        ["tuner", rest @ ..] => tuner::run(rest),
        ["upgrade", rest @ ..] => upgrade::run(rest),
        ["users"] => users::run(),
        _ => Err(Failed(format!("unknown: {}; `cargo xtask help` lists all", words.join(" ")))),
    }
}
