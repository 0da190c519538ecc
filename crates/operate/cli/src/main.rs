//! The `quorate` binary.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    quorate_cli::main()
}
