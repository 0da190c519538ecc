//! Compares every device that can run in a test process with the reference.

use std::{fmt::Write as _, fs, path::Path};

use quorate_conformance::{
    Device, Event, Program,
    compare::run,
    device::Reference,
    directed,
    p4::{Switch, committed_sources},
    random,
    vectors::{SentFrame, write_event, write_sent_frames},
};
use quorate_offload::checksum::crc32c;

/// Number of random events in `cargo test`. `cargo xtask offload conformance` uses 200 000.
const RANDOM: usize = 20_000;

fn check(device: &mut dyn Device, events: &[Event], expected: &[Vec<SentFrame>], name: &str) {
    if let Err(difference) = run(device, events, expected) {
        panic!("{name}, event {}\n{}", difference.event_index, difference.description);
    }
}

#[test]
fn the_switch_does_what_the_reference_does() {
    for program in Program::SINGLE {
        let mut switch = Switch::new(&committed_sources(), program).unwrap();
        let mut reference = Reference::new(program);
        for (name, events) in directed::cases(program) {
            let events = [vec![Event::PowerCycle], events].concat();
            let expected: Vec<_> =
                events.iter().map(|event| reference.step(event).unwrap()).collect();
            check(&mut switch, &events, &expected, name);
        }
        let (events, expected) = random::random_events(program, 1, RANDOM);
        let mut switch = Switch::new(&committed_sources(), program).unwrap();
        check(&mut switch, &events, &expected, "random");
    }
}

/// Compares a digest of the reference's answers to each case with the recorded one. A changed line
/// means changed behaviour of every device. `REWRITE=1 cargo test -p quorate-conformance` updates
/// the digests, and the diff is reviewed.
#[test]
fn cases_have_their_digests() {
    let mut text =
        String::from("# program, case, events, CRC-32C of what goes in and of what comes out\n");
    for program in Program::ALL {
        let mut reference = Reference::new(program);
        for (name, events) in directed::cases(program) {
            let (mut into, mut out) = (Vec::new(), Vec::new());
            reference.step(&Event::PowerCycle).unwrap();
            for event in &events {
                write_event(&mut into, event).unwrap();
                write_sent_frames(&mut out, &reference.step(event).unwrap()).unwrap();
            }
            let (into, out) = (crc32c(&into), crc32c(&out));
            let (program, count) = (program.name(), events.len());
            writeln!(text, "{program:<11} {count:>4} {into:08x} {out:08x} {name}").unwrap();
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/directed.txt");
    if std::env::var_os("REWRITE").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(expected == text, "vectors/directed.txt differs; REWRITE=1 writes it again\n{text}");
}
