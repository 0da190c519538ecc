//! Directed cases for a host, whose two programs exchange messages internally.

use super::*;

pub(super) fn host() -> Vec<Case> {
    let case = |name, more| case(Program::Host, name, more);
    let propose = |number| network(&submit(number), number);
    let voted = |slot, number, position| network(&phase2b(BALLOT, slot, number, position), number);
    let tick = |slot| owner(&about(Type::Tick, slot));
    let raw = |header: &Header, number| {
        Event::Frame(Port::Network, frame(Form::Raw, header, &room(number)))
    };
    let read = |slot| {
        let header = about(Type::Read, slot);
        [owner(&header), owner(&of_coordinator(header))]
    };
    let one = Header {
        value: Descriptor { kind: 1, ..start(1, BALLOT, FIRST).value },
        ..start(1, BALLOT, FIRST)
    };
    let said = |kind| {
        let mut header = phase2b(BALLOT, FIRST, 3, 0);
        header.kind = kind;
        [network(&header, 3), raw(&header, 3), owner(&header)]
    };
    vec![
        case(
            "the own vote, and one more",
            [
                vec![propose(1), raw(&submit(2), 2)],
                read(FIRST).to_vec(),
                vec![voted(FIRST, 1, 0), voted(FIRST, 1, 1), voted(FIRST, 1, 2)],
                vec![raw(&phase2b(BALLOT, FIRST + 1, 2, 1), 2)],
            ]
            .concat(),
        ),
        (
            "an acceptor that is not armed, then is",
            vec![
                boot(Program::Acceptor),
                boot(Program::Coordinator),
                owner(&start(1, BALLOT, FIRST)),
                propose(1),
                owner(&arm(1, BALLOT, FIRST)),
                tick(FIRST),
                tick(FIRST),
                voted(FIRST, 1, 1),
            ],
        ),
        (
            "an acceptor of another ballot, floor or window",
            vec![
                boot(Program::Acceptor),
                boot(Program::Coordinator),
                owner(&arm(1, BALLOT + 1, FIRST)),
                owner(&start(1, BALLOT, FIRST)),
                propose(1),
                owner(&call(Type::Fence, 2)),
                owner(&of_coordinator(call(Type::Fence, 2))),
                owner(&arm(3, BALLOT + 2, FIRST + 4)),
                owner(&start(3, BALLOT + 2, FIRST + 2)),
                propose(2),
                propose(3),
                propose(4),
            ],
        ),
        (
            "one vote is enough",
            vec![
                boot(Program::Acceptor),
                boot(Program::Coordinator),
                owner(&arm(1, BALLOT, FIRST)),
                owner(&one),
                propose(1),
                raw(&submit(2), 2),
                tick(FIRST),
            ],
        ),
        (
            "the proposal comes back, and one vote is enough",
            vec![
                boot(Program::Acceptor),
                boot(Program::Coordinator),
                owner(&one),
                propose(1),
                raw(&submit(2), 2),
                owner(&arm(1, BALLOT, FIRST)),
                network(&phase2a(BALLOT, FIRST, 1), 1),
                raw(&phase2a(BALLOT, FIRST + 1, 2), 2),
                raw(&phase2a(BALLOT, FIRST + 1, 2), 2),
            ],
        ),
        (
            "it voted before it was proposed here, and one vote is enough",
            vec![
                boot(Program::Acceptor),
                boot(Program::Coordinator),
                owner(&arm(1, BALLOT, FIRST)),
                vote(FIRST, 1),
                vote(FIRST + 1, 2),
                owner(&one),
                propose(1),
                owner(&call(Type::Fence, 2)),
                raw(&submit(2), 2),
                owner(&arm(3, BALLOT, FIRST)),
                raw(&phase2a(BALLOT, FIRST + 1, 2), 2),
                raw(&phase2a(BALLOT, FIRST + 1, 2), 2),
            ],
        ),
        case(
            "another value was voted for",
            [
                vec![vote(FIRST, 9), propose(1), tick(FIRST)],
                read(FIRST).to_vec(),
                vec![voted(FIRST, 1, 0), voted(FIRST, 1, 1)],
            ]
            .concat(),
        ),
        case(
            "a leader elsewhere",
            vec![
                owner(&of_coordinator(call(Type::Fence, 2))),
                vote(FIRST, 1),
                vote(FIRST, 1),
                voted(FIRST, 1, 0),
                propose(2),
            ],
        ),
        case(
            "what the owner waits for",
            [Type::Phase1b, Type::Decided, Type::Refused, Type::Cell, Type::Done]
                .map(said)
                .concat(),
        ),
    ]
}
