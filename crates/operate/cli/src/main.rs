//! The `quorate` binary: calls the command line in `lib.rs`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    quorate_cli::main()
}
