//! What one step of the core costs in steady state: medians of several rounds, in nanoseconds.
//!
//! `cargo bench -p quorate-core --bench step`. Compare ratios within one run: absolute times drift
//! with the machine. The budget is in `docs/performance.md`.
#![allow(clippy::print_stdout, reason = "a report for people")]

use std::{hint::black_box, time::Instant};

use quorate_core::{
    configuration::Configuration,
    effect::{Effect, Effects},
    input::Input,
    message::Message,
    node::{Node, Options, Recovered},
    node_id::Member,
    record::{Class, RecordSeq},
    slot::Slot,
    time::Time,
    value::{BatchName, StreamName, Value, range_check},
};

const ROUNDS: usize = 11;
const STEPS: u64 = 20_000;

fn node(id: u32, class: Class) -> Node {
    let members = (1..=3).map(Member::first);
    let configuration = Configuration::simple(members, class).expect("three members");
    let options = Options {
        member: Member::first(id),
        heartbeat_ms: 20,
        election_min_ms: 100,
        election_max_ms: 100,
        inflight_max: 1024,
        window_slots: 1 << 40,
        seed: 1,
    };
    Node::new(options, Recovered::founded(configuration))
}

fn value(step: u64, stream: bool) -> (Value, u64) {
    if stream {
        let stream = StreamName {
            owner: Member::first(1).node,
            boot: 1,
            number: 1,
        };
        (Value::Content { stream, offset: 7 }, 65_536)
    } else {
        (
            Value::Batch(BatchName {
                counter: step,
                ..BatchName::default()
            }),
            1,
        )
    }
}

/// A follower votes: one 2A in, one record and (volatile) one 2B out.
fn follower(stream: bool) -> f64 {
    let mut node = node(2, Class::Volatile);
    let mut effects = Effects::with_capacity(64);
    let leader = Member::first(1);
    let ballot = quorate_core::ballot::Ballot {
        round: 1,
        node: leader.node,
        ..Default::default()
    };
    let (mut prefix, mut at) = (0u64, Slot::FIRST);
    let mut steps = Vec::new();
    for step in 0..STEPS {
        let (value, slots) = value(step, stream);
        let range = quorate_core::slot::SlotRange::new(at, at.plus(slots));
        // Everything before is decided: the lists stay as short as with one round trip in flight.
        steps.push(Message::Phase2a(quorate_core::message::Phase2a {
            ballot,
            range,
            value,
            prefix,
            decided_to: at,
            own_volatile_to: at,
            own_durable_to: at,
            with_bytes: true,
        }));
        prefix = prefix.wrapping_add(range_check(range, &value));
        at = range.to;
    }
    let began = Instant::now();
    for message in steps {
        node.step(
            Time(1),
            Input::Message {
                from: leader,
                message,
                held: true,
            },
            &mut effects,
        );
        black_box(effects.drain().count());
    }
    #[expect(clippy::cast_precision_loss, reason = "a report")]
    let each = began.elapsed().as_nanos() as f64 / STEPS as f64;
    each
}

/// A leader orders: one proposal and two votes of others in, two 2As, a record, a decision out.
/// The time is per step, of which there are three per value (four in a durable group).
fn leader(stream: bool, class: Class) -> f64 {
    let mut node = node(1, class);
    let mut effects = Effects::with_capacity(64);
    node.step(Time(0), Input::Tick, &mut effects);
    for other in [2, 3] {
        node.step(
            Time(0),
            Input::Connected(Member::first(other)),
            &mut effects,
        );
    }
    node.step(Time(100_000), Input::Tick, &mut effects);
    let ballot = effects
        .drain()
        .find_map(|effect| match effect {
            Effect::Send {
                message: Message::PreVote { ballot },
                ..
            } => Some(ballot),
            _ => None,
        })
        .expect("asks for pre-votes");
    let from = Member::first(2);
    let granted = Message::PreVoteReply {
        ballot,
        granted: true,
        promised: Default::default(),
    };
    node.step(
        Time(1),
        Input::Message {
            from,
            message: granted,
            held: true,
        },
        &mut effects,
    );
    let mut records = 2;
    node.step(Time(1), Input::Persisted(RecordSeq(records)), &mut effects);
    let promise = quorate_core::message::Phase1b {
        ballot,
        from: Slot::FIRST,
        floor: Slot::FIRST,
        decided_to: Slot::FIRST,
        extents: Vec::new(),
    };
    let message = Message::Phase1b(promise);
    node.step(
        Time(1),
        Input::Message {
            from,
            message,
            held: true,
        },
        &mut effects,
    );
    effects.drain();
    assert!(node.can_propose(), "leads");
    let (mut check, mut at) = (0u64, Slot::FIRST);
    let mut took = 0;
    let mut steps = 0u64;
    for step in 0..STEPS {
        let (value, slots) = value(step, stream);
        let range = quorate_core::slot::SlotRange::new(at, at.plus(slots));
        check = range_check(range, &value).wrapping_add(check);
        at = range.to;
        let vote = Message::Phase2b(quorate_core::message::Phase2b {
            ballot,
            from: Slot::FIRST,
            volatile_to: at,
            durable_to: at,
            check,
        });
        let began = Instant::now();
        node.step(Time(1), Input::Propose { value, slots }, &mut effects);
        records += 1;
        if class == Class::Durable {
            node.step(Time(1), Input::Persisted(RecordSeq(records)), &mut effects);
            steps += 1;
        }
        for other in [2, 3] {
            let from = Member::first(other);
            let input = Input::Message {
                from,
                message: vote.clone(),
                held: true,
            };
            node.step(Time(1), input, &mut effects);
        }
        steps += 3;
        took += began.elapsed().as_nanos();
        black_box(effects.drain().count());
    }
    assert_eq!(node.decided_to(), at, "all decided");
    #[expect(clippy::cast_precision_loss, reason = "a report")]
    let each = took as f64 / steps as f64;
    each
}

fn median(mut run: impl FnMut() -> f64) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| run()).collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn main() {
    println!("ns per step, median of {ROUNDS} rounds of {STEPS} values, window 1");
    println!(
        "follower, batches            {:6.1}",
        median(|| follower(false))
    );
    println!(
        "follower, stream runs 64 Ki  {:6.1}",
        median(|| follower(true))
    );
    for (name, class) in [("volatile", Class::Volatile), ("durable", Class::Durable)] {
        println!(
            "leader, batches, {name:8}    {:6.1}",
            median(|| leader(false, class))
        );
        println!(
            "leader, streams, {name:8}    {:6.1}",
            median(|| leader(true, class))
        );
    }
}
