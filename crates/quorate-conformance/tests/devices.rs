//! Every device that runs in a process of tests, against the reference.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

use quorate_conformance::{
    Device, Event, Program,
    compare::run,
    device::Reference,
    directed,
    p4::{Switch, sources},
    random,
};

/// In `cargo test`; `cargo xtask offload conformance` has 200 000.
const RANDOM: usize = 20_000;

fn check(
    device: &mut dyn Device,
    events: &[Event],
    expected: &[Vec<(quorate_offload::Port, Vec<u8>)>],
    name: &str,
) {
    if let Err(difference) = run(device, events, expected) {
        panic!("{name}, event {}\n{}", difference.at, difference.what);
    }
}

#[test]
fn the_switch_does_what_the_reference_does() {
    for program in Program::ALL {
        let mut switch = Switch::new(&sources().unwrap(), program).unwrap();
        let mut reference = Reference::new(program);
        for (name, events) in directed::cases(program) {
            let events = [vec![Event::Power], events].concat();
            let expected: Vec<_> = events
                .iter()
                .map(|event| reference.step(event).unwrap())
                .collect();
            check(&mut switch, &events, &expected, name);
        }
        let (events, expected) = random::events(program, 1, RANDOM);
        let mut switch = Switch::new(&sources().unwrap(), program).unwrap();
        check(&mut switch, &events, &expected, "random");
    }
}
