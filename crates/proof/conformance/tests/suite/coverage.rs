//! Both sets of vectors reach every behaviour of a program. Otherwise equal answers would prove
//! little.

use std::collections::BTreeMap;

use quorate_conformance::{
    Device, Event, Program, device::Reference, directed, frames::setup, random, vectors::SentFrame,
};
use quorate_offload::{Encapsulation, Header, Port, Reason, Type};

/// Returns whether a program that runs alone can have an outcome.
fn reachable(program: Program, reason: Reason) -> bool {
    match reason {
        Reason::Busy | Reason::Hint => false,
        Reason::Stale | Reason::Conflict => program != Program::Acceptor,
        _ => true,
    }
}

fn answers(program: Program) -> &'static [Type] {
    use Type::{Cell, Decided, Done, Phase1b, Phase2a, Phase2b, Refused};
    match program {
        Program::Acceptor => &[Phase1b, Phase2b, Refused, Cell, Done],
        Program::Coordinator => &[Phase2a, Decided, Refused, Cell, Done],
        Program::Host => &[Phase1b, Phase2a, Phase2b, Decided, Refused, Cell, Done],
    }
}

/// Checks that each kind of answer and each reason occurs at least `least` times.
fn check(program: Program, set: &str, events: &[Event], least: u64) {
    let mut reference = Reference::new(program);
    let mut types: BTreeMap<Type, u64> = BTreeMap::new();
    let mut reasons: BTreeMap<Reason, u64> = BTreeMap::new();
    for event in events {
        if *event == Event::PowerCycle {
            tally(&reference, &mut reasons);
        }
        let sent: Vec<SentFrame> = reference.step(event).unwrap();
        for (_, frame) in &sent {
            // A refusal may go to any port. A frame that is forwarded is not an answer.
            let passed = matches!(event, Event::Frame(_, same) if same == frame);
            let form = Encapsulation::parse(frame, setup().own_address.port);
            let Some(form) = form.ok().filter(|_| !passed) else {
                continue;
            };
            let header =
                Header::read(frame[form.header_offset()..].first_chunk().unwrap()).unwrap();
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
        assert!(types[kind] >= least, "{} {set}: {kind:?} {}", program.name(), types[kind]);
    }
}

fn tally(reference: &Reference, reasons: &mut BTreeMap<Reason, u64>) {
    for reason in Reason::ALL {
        let times = reference.frame_count(reason);
        if times > 0 {
            *reasons.entry(reason).or_default() += times;
        }
    }
}

#[test]
fn both_sets_reach_every_reason_and_every_answer() {
    for program in Program::ALL {
        check(program, "directed", &directed::events(program), 1);
        check(program, "random", &random::random_events(program, 1, 50_000).0, 3);
    }
}

/// Both sets reach the messages inside a host, its own votes and decisions, and the frames that it
/// sends.
#[test]
fn both_sets_reach_what_a_host_hears_inside() {
    let directed = directed::events(Program::Host);
    let random = random::random_events(Program::Host, 1, 50_000).0;
    for (set, events, least) in [("directed", directed, 1), ("random", random, 5)] {
        let mut reference = Reference::new(Program::Host);
        let mut said: BTreeMap<Vec<(Port, Type)>, u64> = BTreeMap::new();
        for event in &events {
            let sent = reference.step(event).unwrap();
            let types = sent.iter().filter_map(|(port, frame)| {
                let form = Encapsulation::parse(frame, setup().own_address.port).ok()?;
                let header = frame.get(form.header_offset()..)?.first_chunk()?;
                Some((*port, Header::read(header)?.kind))
            });
            *said.entry(types.collect()).or_default() += 1;
        }
        let left = |kind| (Port::Network, kind);
        let (vote, decision) = ((Port::Owner, Type::Phase2b), (Port::Owner, Type::Decided));
        for wanted in [
            vec![left(Type::Phase2a)],
            vec![left(Type::Phase2a), vote],
            vec![left(Type::Phase2a), decision],
            vec![left(Type::Phase2a), vote, decision],
            vec![left(Type::Phase2b)],
            vec![left(Type::Phase2b), vote],
            vec![left(Type::Phase2b), decision],
            vec![left(Type::Phase2b), vote, decision],
            vec![left(Type::Decided), decision],
        ] {
            let times = said.get(&wanted).copied().unwrap_or(0);
            assert!(times >= least, "{set}: {wanted:?} {times}");
        }
    }
}
