//! Both programs at one interface: frames that are processed internally, and frames that must still
//! be sent.

use quorate_core::dice::Dice;
use quorate_offload::{
    Acceptor, Coordinator, Encapsulation, Header, Host, PackedBallot, Port, Reason, Routes, Type,
    Verdict, header::REPEAT,
};

use crate::programs::desk::*;

const BALLOT: u64 = 3;
/// Position of the host's acceptor.
const OWN_POSITION: u8 = 2;

fn host(to: &Routes) -> Host<'static> {
    Host::new(
        Coordinator::new(setup(), *to, *to, cells(CELLS)),
        Acceptor::new(setup(), *to, cells(CELLS)),
    )
}

fn in_group() -> Host<'static> {
    host(&Routes::of(&[heard()]).unwrap())
}

fn begin(host: &mut Host<'_>) {
    let boot = Header { boot: BOOT, ..plain(Type::Boot) };
    ask(host, &boot);
    ask(host, &of_coordinator(boot));
}

fn arm(host: &mut Host<'_>, counter: u64, ballot: u64) -> Type {
    let mut header = call(Type::Arm, counter);
    (header.ballot, header.position) = (PackedBallot(ballot), OWN_POSITION);
    ask(host, &header).header.kind
}

fn start(host: &mut Host<'_>, counter: u64, quorum: u8) -> Type {
    let mut header = of_coordinator(call(Type::Arm, counter));
    (header.ballot, header.voted) = (PackedBallot(BALLOT), u64::MAX);
    (header.value.kind, header.value.origin) = (quorum, 3);
    ask(host, &header).header.kind
}

/// Returns a host that is armed and started, in a group in which two of three votes decide.
fn ready() -> Host<'static> {
    let mut host = in_group();
    begin(&mut host);
    assert_eq!(arm(&mut host, 1, BALLOT), Type::Done);
    assert_eq!(start(&mut host, 1, 2), Type::Done);
    host
}

fn said(sent: &[Sent]) -> Vec<(Port, Type)> {
    sent.iter().map(|sent| (sent.port, sent.header.kind)).collect()
}

const NETWORK_2A: (Port, Type) = (Port::Network, Type::Phase2a);
const NETWORK_2B: (Port, Type) = (Port::Network, Type::Phase2b);
const OWNER_2B: (Port, Type) = (Port::Owner, Type::Phase2b);
const OWNER_DECIDED: (Port, Type) = (Port::Owner, Type::Decided);

#[test]
fn the_own_acceptor_votes_and_its_vote_counts() {
    let mut host = ready();
    let sent = send(&mut host, &submit(5), &room(5));
    assert_eq!(said(&sent), [NETWORK_2A, OWNER_2B]);
    let (left, vote) = (&sent[0], &sent[1]);
    assert_eq!((left.to, vote.to), (heard(), address(OWNER)));
    assert_eq!((left.header.position, vote.header.position), (0, OWN_POSITION));
    assert_eq!((vote.header.value, &vote.room[..]), (value(5), &room(5)[..]));
    assert_eq!(host.acceptor().vote(0).unwrap().0.value, value(5));
    assert_eq!(host.coordinator().stored_proposal(0).unwrap().0.voters, 1 << OWN_POSITION);
    // One more vote completes the decision, which is sent as usual.
    let sent = send(&mut host, &phase2b(BALLOT, 0, 5, 0), &room(5));
    assert_eq!(said(&sent), [(Port::Network, Type::Decided), OWNER_DECIDED]);
}

/// If the host's own acceptor refuses a proposal, the host does not send the refusal to itself.
#[test]
fn an_acceptor_that_is_not_armed_so_says_nothing() {
    let mut host = in_group();
    begin(&mut host);
    assert_eq!(start(&mut host, 1, 2), Type::Done);
    let sent = send(&mut host, &submit(5), &room(5));
    assert_eq!(said(&sent), [NETWORK_2A]);
    assert_eq!(host.acceptor().counters().count_of(Reason::Disarmed), 1);
    assert_eq!(arm(&mut host, 1, BALLOT + 1), Type::Done);
    let sent = send(&mut host, &submit(6), &room(6));
    assert_eq!(said(&sent), [NETWORK_2A]);
    assert_eq!(host.acceptor().counters().count_of(Reason::Ballot), 1);
    assert_eq!(host.coordinator().stored_proposal(1).unwrap().0.voters, 0);
}

#[test]
fn a_tick_asks_the_own_acceptor_too() {
    let mut host = in_group();
    begin(&mut host);
    assert_eq!(start(&mut host, 1, 2), Type::Done);
    send(&mut host, &submit(5), &room(5));
    assert_eq!(arm(&mut host, 1, BALLOT), Type::Done);
    let tick = frame(Encapsulation::Raw, &of_coordinator(plain(Type::Tick)), &room(0));
    let (_, sent) = step(&mut host, Port::Owner, &tick);
    assert_eq!(said(&sent), [NETWORK_2A, OWNER_2B]);
    assert_eq!(sent[0].header.flags & REPEAT, REPEAT);
    // The acceptor repeats its vote, which is counted once.
    let (_, sent) = step(&mut host, Port::Owner, &tick);
    assert_eq!(said(&sent), [NETWORK_2A]);
    assert_eq!(host.coordinator().counters().count_of(Reason::Stale), 1);
}

/// A decision completed by the host's own vote is made internally. The proposal is sent to the
/// network, and the owner receives the decision.
#[test]
fn a_decision_by_the_own_vote_is_for_the_owner() {
    let mut host = in_group();
    begin(&mut host);
    arm(&mut host, 1, BALLOT);
    assert_eq!(start(&mut host, 1, 1), Type::Done);
    let sent = send(&mut host, &submit(5), &room(5));
    assert_eq!(said(&sent), [NETWORK_2A, OWNER_2B, OWNER_DECIDED]);
    assert_eq!((sent[2].header.value, &sent[2].room[..]), (value(5), &room(5)[..]));
    // The result is the same if the proposal arrives from outside.
    let mut host = in_group();
    begin(&mut host);
    assert_eq!(start(&mut host, 1, 1), Type::Done);
    send(&mut host, &submit(5), &room(5));
    arm(&mut host, 1, BALLOT);
    let sent = send(&mut host, &phase2a(BALLOT, 0, 5), &room(5));
    assert_eq!(said(&sent), [NETWORK_2B, OWNER_2B, OWNER_DECIDED]);
}

/// [count-1] The host's acceptor already voted for another value in that slot. The conflict is
/// detected, and no vote is counted.
#[test]
fn a_conflict_inside_is_an_alarm() {
    let mut host = ready();
    send(&mut host, &phase2a(BALLOT, 0, 9), &room(9));
    let sent = send(&mut host, &submit(5), &room(5));
    assert_eq!(said(&sent), [NETWORK_2A]);
    assert_eq!((sent[0].header.value, &sent[0].room[..]), (value(5), &room(5)[..]));
    assert_eq!(host.coordinator().counters().count_of(Reason::Conflict), 1);
}

#[test]
fn what_is_for_others_is_not_heard_inside() {
    let mut host = host(&routes(FIRST_ROUTE));
    begin(&mut host);
    arm(&mut host, 1, BALLOT);
    start(&mut host, 1, 1);
    assert_eq!(said(&send(&mut host, &submit(5), &room(5))), [NETWORK_2A]);
    let sent = send(&mut host, &phase2a(BALLOT, 0, 5), &room(5));
    assert_eq!(said(&sent), [NETWORK_2B, OWNER_2B]);
}

#[test]
fn what_neither_takes_goes_on() {
    let mut host = ready();
    for kind in [Type::Decided, Type::Refused, Type::Phase1b, Type::Done] {
        let mut header = phase2b(BALLOT, 0, 5, 0);
        header.kind = kind;
        let bytes = frame(Encapsulation::Udp, &header, &room(5));
        let (verdict, sent) = step(&mut host, Port::Network, &bytes);
        assert_eq!((verdict, sent), (Verdict::PassOn, Vec::new()));
    }
    assert_eq!(host.acceptor().counters().count_of(Reason::Other), 4);
    assert_eq!(host.coordinator().counters().count_of(Reason::Other), 0);
}

/// Two separate programs, connected by a wire that passes each program's group messages to the
/// other.
struct Apart {
    coordinator: Coordinator<'static>,
    acceptor: Acceptor<'static>,
}

impl Apart {
    /// Returns the frames for the owner, and the first frame for the network.
    fn step(&mut self, from: Port, bytes: &[u8]) -> Vec<Sent> {
        let (verdict, first) = step(&mut self.coordinator, from, bytes);
        let mut sent = first;
        if verdict == Verdict::PassOn {
            sent = step(&mut self.acceptor, from, bytes).1;
        }
        let mut last = sent.clone();
        while let Some(to_group) = last.iter().find(|sent| sent.to == heard()) {
            let bytes = frame(Encapsulation::Udp, &to_group.header, &to_group.room);
            let (_, by_one) = step(&mut self.coordinator, Port::Network, &bytes);
            let (_, by_other) = step(&mut self.acceptor, Port::Network, &bytes);
            last = [by_one, by_other].concat();
            let owners = last.iter().filter(|sent| sent.port == Port::Owner);
            sent.extend(owners.cloned());
        }
        sent
    }
}

#[test]
fn a_host_is_two_programs_and_a_wire() {
    let group = Routes::of(&[heard()]).unwrap();
    for seed in 0..200 {
        let mut dice = Dice::new(seed);
        let mut host = in_group();
        let mut apart = Apart {
            coordinator: Coordinator::new(setup(), group, group, cells(CELLS)),
            acceptor: Acceptor::new(setup(), group, cells(CELLS)),
        };
        let mut counter = 0;
        for _ in 0..300 {
            counter += 1;
            let (slot, number) = (dice.below(2 * CELLS), dice.below(4));
            let mut header = match dice.below(16) {
                0 => Header { boot: BOOT, ..plain(Type::Boot) },
                1 => call(Type::Fence, counter),
                2..4 => call(Type::Floor, counter),
                4..6 => call(Type::Arm, counter),
                6 => plain(Type::Tick),
                7..12 => submit(number),
                12..14 => phase2a(BALLOT, slot, number),
                _ => phase2b(BALLOT, slot, number, dice.index(3) as u8),
            };
            let control = !matches!(header.kind, Type::Submit | Type::Phase2a | Type::Phase2b);
            if control {
                header.slot = host.coordinator().state().floor + dice.below(3);
                (header.ballot, header.voted) = (PackedBallot(BALLOT), 100 + counter);
                (header.value.kind, header.value.origin) = (1 + dice.index(2) as u8, 3);
                if dice.chance(1, 2) || header.kind == Type::Tick {
                    header = of_coordinator(header);
                } else if header.kind == Type::Arm {
                    (header.position, header.slot) = (OWN_POSITION, host.acceptor().state().floor);
                }
            }
            let from = if control { Port::Owner } else { Port::Network };
            let bytes = frame(Encapsulation::Udp, &header, &room(number));
            let (_, sent) = step(&mut host, from, &bytes);
            assert_eq!(sent, apart.step(from, &bytes), "seed {seed}: {header:?}");
            assert_eq!(host.acceptor().state(), apart.acceptor.state());
            assert_eq!(host.coordinator().state(), apart.coordinator.state());
        }
    }
}
