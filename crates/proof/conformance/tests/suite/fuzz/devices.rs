//! Properties that hold for arbitrary bytes taken as vectors: reference and switch behave the same.

use std::cell::RefCell;

use quorate_conformance::{
    Device, Event, Program,
    device::Reference,
    p4::{Switch, committed_sources},
    vectors::{read_event, read_sent_frames, write_event, write_sent_frames},
};

/// Returns the cases of the directed set, which begin after a power loss.
#[allow(dead_code, reason = "the fuzz target has the corpus")]
pub(crate) fn seeds() -> Vec<crate::driver::Seed> {
    let mut seeds = Vec::new();
    for program in Program::SINGLE {
        for (number, (_, events)) in
            quorate_conformance::directed::cases(program).iter().enumerate()
        {
            let mut bytes = vec![program as u8];
            for event in events.iter().take(24) {
                write_event(&mut bytes, event).expect("a vector takes everything");
            }
            let name = format!("{}-{number:02}", program.name());
            seeds.push(crate::driver::Seed { name, bytes });
        }
    }
    seeds
}

type Pair = (Reference, Switch);

fn pair(program: Program) -> Pair {
    let switch = Switch::new(&committed_sources(), program).expect("a program");
    (Reference::new(program), switch)
}

thread_local! {
    /// Devices that are reused for all inputs, since a reference leaks its memory. Each stream
    /// begins with a power loss.
    static DEVICES: RefCell<[Pair; 2]> = RefCell::new(Program::SINGLE.map(pair));
}

pub(crate) fn check(bytes: &[u8]) {
    let Some((first, mut rest)) = bytes.split_first() else {
        return;
    };
    DEVICES.with_borrow_mut(|devices| {
        let (reference, switch) = &mut devices[usize::from(first & 1)];
        let mut step = |event: &Event| {
            let expected = reference.step(event).expect("the reference has no faults");
            assert_eq!(switch.step(event).as_ref(), Ok(&expected), "{event:02x?}");
            let mut written = Vec::new();
            write_sent_frames(&mut written, &expected).expect("a vector takes everything");
            let read = read_sent_frames(&mut &written[..]).expect("what was written");
            assert_eq!(read, Some(expected));
        };
        step(&Event::PowerCycle);
        while let Ok(Some(event)) = read_event(&mut rest) {
            step(&event);
        }
    });
}
