//! Runs a seed and prints the steps of its nodes in the terms of the TLA+ specification: `steps
//! SEED STEPS`. Prints nothing for a group that the specification of traces does not cover.
#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use std::process::ExitCode;

use quorate_sim::{faults::RunSettings, world::World};

fn main() -> ExitCode {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let [seed, steps] = numbers[..] else {
        println!("steps SEED STEPS");
        return ExitCode::FAILURE;
    };
    let mut world = World::new(RunSettings::draw(seed));
    world.record_steps();
    // A violation is ignored, because only the trace up to it is needed.
    let _ = world.run_act_one(steps);
    print!("{}", world.recorded_steps());
    ExitCode::SUCCESS
}
