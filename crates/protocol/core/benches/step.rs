//! Cost of one step of the core in steady state.
//!
//! `cargo bench -p quorate-core --bench step` prints medians of several rounds, in nanoseconds.
//! Compare ratios within one run, because absolute times drift with the machine;
//! `docs/performance.md` has the budget. With `--case NAME` it runs one round of fixed work and
//! prints the number of steps, for a tool that counts instructions. With `--idle` it does the same
//! without the steps.
#![allow(clippy::print_stdout, reason = "a report for people")]

use std::{hint::black_box, time::Instant};

use quorate_core::{
    configuration::Configuration,
    effect::{Effect, Effects},
    input::Input,
    laying::Route,
    message::Message,
    node::{Node, Options, Recovered},
    node_id::Member,
    record::{Class, RecordSeq},
    slot::Slot,
    time::Time,
    value::{BatchName, StreamName, Value, range_check},
};

const ROUNDS: usize = 11;
const VALUES: u64 = 20_000;

/// A measured case: its name, and the function that runs a round of it.
type Case = (&'static str, fn(bool) -> Round);

const CASES: [Case; 6] = [
    ("follower.batches", |idle| follower(false, idle)),
    ("follower.streams", |idle| follower(true, idle)),
    ("leader.volatile.batches", |idle| leader(false, Class::Volatile, idle)),
    ("leader.volatile.streams", |idle| leader(true, Class::Volatile, idle)),
    ("leader.durable.batches", |idle| leader(false, Class::Durable, idle)),
    ("leader.durable.streams", |idle| leader(true, Class::Durable, idle)),
];

/// One round of fixed work.
struct Round {
    steps: u64,
    nanos: u128,
}

fn node(id: u32, class: Class) -> Node {
    let members = (1..=3).map(Member::first);
    let configuration = Configuration::majority_of(members, class).expect("three members");
    let options = Options {
        member: Member::first(id),
        heartbeat_ms: 20,
        election_min_ms: 100,
        election_max_ms: 100,
        inflight_max: 1024,
        window_slots: 1 << 40,
        leases: None,
        earlier_lease_us: 0,
        lead_alone_wait_us: 0,
        thrifty: false,
        route: Route::Star,
        seed: 1,
    };
    Node::new(options, Recovered::for_new_node(configuration))
}

fn value(step: u64, stream: bool) -> (Value, u64) {
    if stream {
        let stream = StreamName { owner: Member::first(1).node, boot: 1, number: 1 };
        (Value::Content { stream, offset: 7 }, 65_536)
    } else {
        (Value::Batch(BatchName { counter: step, ..BatchName::default() }), 1)
    }
}

/// A follower votes: one 2A yields one record and, in a volatile group, one 2B.
fn follower(stream: bool, idle: bool) -> Round {
    let mut node = node(2, Class::Volatile);
    let mut effects = Effects::with_capacity(64);
    let leader = Member::first(1);
    let ballot = quorate_core::ballot::Ballot { round: 1, node: leader.node, ..Default::default() };
    let (mut prefix, mut at) = (0u64, Slot::FIRST);
    let mut steps = Vec::new();
    for step in 0..VALUES {
        let (value, slots) = value(step, stream);
        let range = quorate_core::slot::SlotRange::new(at, at.plus(slots));
        // Everything before is decided, so the lists are as short as with one round trip in flight.
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
        let input = Input::Message { from: leader, message, bytes_held: true };
        step_unless(idle, &mut node, input, &mut effects);
        black_box(effects.drain().count());
    }
    Round { steps: VALUES, nanos: began.elapsed().as_nanos() }
}

fn step_unless(idle: bool, node: &mut Node, input: Input, effects: &mut Effects) {
    if idle {
        black_box(&input);
    } else {
        node.step(Time(1), input, effects);
    }
}

/// A leader proposes: one proposal and two votes of other members yield two 2As, a record and a
/// decision. The time is per step. Each value takes three steps, in a durable group four.
fn leader(stream: bool, class: Class, idle: bool) -> Round {
    let mut node = node(1, class);
    let mut effects = Effects::with_capacity(64);
    node.step(Time(0), Input::Tick, &mut effects);
    for other in [2, 3] {
        node.step(Time(0), Input::Connected(Member::first(other)), &mut effects);
    }
    node.step(Time(100_000), Input::Tick, &mut effects);
    let ballot = effects
        .drain()
        .find_map(|effect| match effect {
            Effect::Send { message: Message::PreVote { ballot }, .. } => Some(ballot),
            _ => None,
        })
        .expect("asks for pre-votes");
    let from = Member::first(2);
    let granted = Message::PreVoteReply { ballot, granted: true, promised: Default::default() };
    node.step(Time(1), Input::Message { from, message: granted, bytes_held: true }, &mut effects);
    let mut records = 2;
    node.step(Time(1), Input::Persisted(RecordSeq(records)), &mut effects);
    let promise = quorate_core::message::Phase1b {
        ballot,
        from: Slot::FIRST,
        floor: Slot::FIRST,
        log_start: Slot::FIRST,
        decided_to: Slot::FIRST,
        extents: Vec::new(),
    };
    let message = Message::Phase1b(promise);
    node.step(Time(1), Input::Message { from, message, bytes_held: true }, &mut effects);
    effects.drain();
    assert!(node.can_propose(), "leads");
    let (mut check, mut at) = (0u64, Slot::FIRST);
    let mut took = 0;
    let mut steps = 0u64;
    for step in 0..VALUES {
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
        let propose = Input::Propose { value, slots };
        step_unless(idle, &mut node, propose, &mut effects);
        records += 1;
        if class == Class::Durable {
            let persisted = Input::Persisted(RecordSeq(records));
            step_unless(idle, &mut node, persisted, &mut effects);
            steps += 1;
        }
        for other in [2, 3] {
            let from = Member::first(other);
            let input = Input::Message { from, message: vote.clone(), bytes_held: true };
            step_unless(idle, &mut node, input, &mut effects);
        }
        steps += 3;
        took += began.elapsed().as_nanos();
        black_box(effects.drain().count());
    }
    assert!(idle || node.decided_to() == at, "all decided");
    Round { steps, nanos: took }
}

/// Returns the median time per step, in nanoseconds.
fn median(case: Case) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a report")]
    let each = |round: Round| round.nanos as f64 / round.steps as f64;
    let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| each(case.1(false))).collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let after = |flag: &str| words.iter().skip_while(|word| *word != flag).nth(1);
    let Some(name) = after("--case") else {
        println!("ns per step, median of {ROUNDS} rounds of {VALUES} values, window 1");
        for case in CASES {
            println!("{:24} {:6.1}", case.0, median(case));
        }
        return;
    };
    let case = CASES.into_iter().find(|case| case.0 == *name);
    let case = case.expect("a case that exists");
    let idle = words.iter().any(|word| word == "--idle");
    println!("steps={}", case.1(idle).steps);
}
