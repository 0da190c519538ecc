//! Benchmark of the cost of a decision with several kinds of devices: three hosts and a client on a
//! bridge, each in a network namespace.
//!
//! `run [--quick] [--only=KIND,…]` sets up the network, starts processes of this program in it,
//! measures all kinds in turns and prints a table. The other commands are for those processes.
//! `cargo xtask bench device` calls it.
#![allow(clippy::print_stdout, reason = "a command line")]

mod bare;
mod client;
mod group;
mod network;
mod owner;
mod run;
mod serve;
mod switches;
mod table;
mod verifier;

use std::{env, error::Error, process::ExitCode};

/// Any error ends the process with its message.
type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    // Cargo adds `--bench`.
    let words: Vec<String> = env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["run", flags @ ..] => run::run(flags),
        ["serve", kind, host, room] => serve::serve(kind, host, room),
        ["client", kind, room, outstanding, milliseconds] => {
            client::client(kind, room, outstanding, milliseconds)
        }
        ["votes", room] => client::votes(room),
        ["programs"] => verifier::programs(),
        _ => Err(run::USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("devices: {why}");
            ExitCode::FAILURE
        }
    }
}
