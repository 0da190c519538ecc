//! The `quorate-tools` binary.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    quorate_tools::main()
}
