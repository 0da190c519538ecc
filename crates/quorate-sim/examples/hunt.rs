//! Runs seeds one after the other until a property breaks: `hunt FROM COUNT STEPS`.
#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let mut next = |default| numbers.next().and_then(Result::ok).unwrap_or(default);
    let (from, count, steps) = (next(1), next(100), next(20_000));
    let mut broken = 0;
    for seed in from..from + count {
        let report = quorate_sim::run(seed, steps);
        if count == 1 || !report.holds() {
            println!("{report}\n");
        }
        broken += u64::from(!report.holds());
    }
    println!("{count} seeds from {from} on, {steps} steps each: {broken} broke a property");
    if broken == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(4)
    }
}
