//! Both sets reach everything that a program can do: otherwise equal answers would prove little.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

use std::collections::BTreeMap;

use quorate_conformance::{
    Device, Event, Program, device::Reference, directed, frames::setup, random, vectors::Sent,
};
use quorate_offload::{Form, Header, Reason, Type};

/// Reasons that one program alone can have.
fn reachable(program: Program, reason: Reason) -> bool {
    match reason {
        Reason::Busy | Reason::Hint => false,
        Reason::Stale | Reason::Conflict => program == Program::Coordinator,
        _ => true,
    }
}

fn answers(program: Program) -> &'static [Type] {
    use Type::{Cell, Decided, Done, Phase1b, Phase2a, Phase2b, Refused};
    match program {
        Program::Acceptor => &[Phase1b, Phase2b, Refused, Cell, Done],
        Program::Coordinator => &[Phase2a, Decided, Refused, Cell, Done],
    }
}

/// How often each answer came, and each reason.
fn check(program: Program, set: &str, events: &[Event], least: u64) {
    let mut reference = Reference::new(program);
    let mut types: BTreeMap<Type, u64> = BTreeMap::new();
    let mut reasons: BTreeMap<Reason, u64> = BTreeMap::new();
    for event in events {
        if *event == Event::Power {
            tally(&reference, &mut reasons);
        }
        let sent: Vec<Sent> = reference.step(event).unwrap();
        for (_, frame) in &sent {
            // A refusal may go to any port, and what goes on is no answer.
            let passed = matches!(event, Event::Frame(_, same) if same == frame);
            let form = Form::of(frame, setup().own.port);
            let Some(form) = form.ok().filter(|_| !passed) else {
                continue;
            };
            let header = Header::read(frame[form.header_at()..].first_chunk().unwrap()).unwrap();
            *types.entry(header.kind).or_default() += 1;
        }
    }
    tally(&reference, &mut reasons);
    eprintln!("{} {set}: {types:?} {reasons:?}", program.name());
    for reason in Reason::ALL {
        let times = reasons.get(&reason).copied().unwrap_or(0);
        assert_eq!(
            times >= least,
            reachable(program, reason),
            "{} {set}: {reason:?} {times}",
            program.name()
        );
    }
    for kind in answers(program) {
        assert!(
            types[kind] >= least,
            "{} {set}: {kind:?} {}",
            program.name(),
            types[kind]
        );
    }
}

fn tally(reference: &Reference, reasons: &mut BTreeMap<Reason, u64>) {
    for reason in Reason::ALL {
        let times = reference.counters().of(reason);
        if times > 0 {
            *reasons.entry(reason).or_default() += times;
        }
    }
}

#[test]
fn both_sets_reach_every_reason_and_every_answer() {
    for program in Program::ALL {
        check(program, "directed", &directed::events(program), 1);
        check(program, "random", &random::events(program, 1, 50_000).0, 3);
    }
}
