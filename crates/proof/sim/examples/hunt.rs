//! Runs seeds one after another: `hunt FROM COUNT STEPS [LINES [STOP]]`.
//!
//! With LINES, each trace retains that many lines, including frames. With STOP, the program ends at
//! the first seed that violates a property. The fingerprint at the end covers all traces. It does
//! not change unless a commit alters what replicas do.
#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use std::process::ExitCode;

use quorate_sim::{
    dice::mix,
    faults::RunSettings,
    report::{run_world, shrink},
    world::World,
};

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let mut next = |default| numbers.next().and_then(Result::ok).unwrap_or(default);
    let (from, count, steps) = (next(1), next(100), next(20_000));
    let (lines, stop) = (next(0), next(0) > 0);
    let (mut broken, mut fingerprint) = (0, 0);
    for seed in from..from + count {
        let mut world = World::new(RunSettings::draw(seed));
        if let Ok(keep @ 1..) = usize::try_from(lines) {
            (world.trace.retained_max, world.trace.traces_frames) = (keep, true);
        }
        let report = run_world(world, steps);
        fingerprint = mix(fingerprint ^ report.trace_hash);
        if count == 1 || !report.has_no_violation() {
            println!("{report}\n");
        }
        if count == 1 && lines == 0 && !report.has_no_violation() {
            let small = shrink(report.clone());
            let faults: Vec<_> =
                small.settings.fault_intervals.iter().map(|(fault, _)| fault).collect();
            println!(
                "{} clients, {} steps and {faults:?} are enough\n",
                small.settings.client_count, small.event_count
            );
        }
        broken += u64::from(!report.has_no_violation());
        if stop && broken > 0 {
            break;
        }
    }
    println!(
        "{count} seeds from {from} on, {steps} steps each: {broken} broke a property; fingerprint \
         {fingerprint:016x}"
    );
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::from(4) }
}
