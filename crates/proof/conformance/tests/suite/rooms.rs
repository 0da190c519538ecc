//! Devices built for larger or smaller values than the vectors use behave like the reference.

use std::{
    collections::BTreeSet,
    env,
    path::{Path, PathBuf},
};

use quorate_conformance::{
    Program, compare,
    frames::{DeviceSize, setup},
    p4::{Switch, committed_sources},
    random,
    rtl::{self, BusWidth, CoreSimulator},
    vectors::SentFrame,
};
use quorate_device::DeviceProcesses;
use quorate_offload::{Encapsulation, Header};

const SIZE: DeviceSize = DeviceSize { room_bytes: 128, cell_count: 64 };
/// Number of random events. With fewer events, some lengths of values do not occur.
const RANDOM: usize = 20_000;
/// Number of events that are passed to a core one at a time.
const SINGLY: usize = 5_000;

/// Reports a skipped test. With `QUORATE_NO_SKIPS=true` the test fails instead.
fn skip(why: &str) {
    let all = env::var("QUORATE_NO_SKIPS").is_ok_and(|value| value == "true");
    assert!(!all, "cores with a wider room are not tested: {why}");
    eprintln!("skipped: cores with a wider room: {why}");
}

/// Returns the forms and lengths of all values in some answers.
fn lengths(answers: &[Vec<SentFrame>]) -> BTreeSet<(bool, u16)> {
    let frames = answers.iter().flatten();
    let found = frames.filter_map(|(_, frame)| {
        let form = Encapsulation::parse(frame, setup().own_address.port).ok()?;
        let header = Header::read(frame.get(form.header_offset()..)?.first_chunk()?)?;
        (header.value.crc != 0).then_some((form == Encapsulation::Raw, header.value.length))
    });
    found.collect()
}

#[test]
fn values_of_every_length_are_answered_in_both_forms() {
    for program in Program::SINGLE {
        let (_, answers) = random::random_events_of_size(program, SIZE, 1, RANDOM);
        let found = lengths(&answers);
        for length in 1..=u16::try_from(SIZE.room_bytes).unwrap() {
            for is_raw in [false, true] {
                let name = program.name();
                assert!(found.contains(&(is_raw, length)), "{name}: {length}");
            }
        }
    }
}

#[test]
fn the_switch_does_what_the_reference_does_in_a_wider_room() {
    for program in Program::SINGLE {
        let mut switch = Switch::with_size(&committed_sources(), program, SIZE).unwrap();
        let (events, expected) = random::random_events_of_size(program, SIZE, 1, RANDOM);
        if let Err(difference) = compare::run(&mut switch, &events, &expected) {
            panic!("event {}\n{}", difference.event_index, difference.description);
        }
    }
}

#[test]
#[ignore = "Verilator needs a minute to build the cores; nightly"]
fn the_cores_do_what_the_reference_does_in_a_wider_room() {
    if let Some(tool) = rtl::missing_tool() {
        return skip(&format!("{tool} is not installed"));
    }
    for bus in BusWidth::ALL {
        let folder = folder(bus, SIZE);
        same_as_the_reference(&folder, bus, SIZE);
        as_a_node_starts_them(&folder);
    }
}

/// The shortest frames have two words on a wide bus in both forms, so a stored value is read back
/// immediately.
#[test]
#[ignore = "Verilator needs a minute to build the cores; nightly"]
fn the_wide_cores_do_what_the_reference_does_in_the_narrowest_room() {
    if let Some(tool) = rtl::missing_tool() {
        return skip(&format!("{tool} is not installed"));
    }
    let size = DeviceSize { room_bytes: 8, cell_count: 64 };
    same_as_the_reference(&folder(BusWidth::Wide, size), BusWidth::Wide, size);
}

fn folder(bus: BusWidth, size: DeviceSize) -> PathBuf {
    let name = format!("{}-{}", bus.target_name(), size.room_bytes);
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Opens both cores as a node does, and checks the dimensions that they report.
fn as_a_node_starts_them(folder: &Path) {
    let words = format!("{}/{{}}/V{{}}", folder.display());
    let (boxed, settings) = DeviceProcesses::open(&[words]).unwrap();
    drop(boxed);
    let told = (settings.room, usize::try_from(settings.cells).unwrap());
    assert_eq!(told, (SIZE.room_bytes, SIZE.cell_count));
}

fn same_as_the_reference(folder: &Path, bus: BusWidth, size: DeviceSize) {
    for program in Program::SINGLE {
        let name = bus.module_name(program);
        let simulator = rtl::build(&rtl::cores_folder(), folder, program, bus, size).unwrap();
        let (events, expected) = random::random_events_of_size(program, size, 1, RANDOM);
        let mut core = CoreSimulator::start(&simulator).unwrap();
        if let Err(difference) = compare::run(&mut core, &events[..SINGLY], &expected) {
            panic!("{name}, event {}\n{}", difference.event_index, difference.description);
        }
        // There are no gaps between frames, so the bus is never idle.
        let found = rtl::run(&simulator, &events).unwrap();
        let found = found.unwrap_or_else(|| panic!("{name} gives up"));
        let differs = expected.iter().zip(&found).position(|(a, b)| a != b);
        if let Some(at) = differs {
            let what =
                compare::describe_difference(&events[at], &expected[at], &Ok(found[at].clone()));
            panic!("{name}, event {at} in a row\n{what}");
        }
        assert_eq!(found.len(), events.len(), "{name}");
    }
}
