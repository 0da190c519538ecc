//! Directed cases for the coordinator.

use super::*;

pub(super) fn coordinator() -> Vec<Case> {
    let case = |name, more| case(Program::Coordinator, name, more);
    let propose = |number| network(&submit(number), number);
    let voted = |slot, number, position| network(&phase2b(BALLOT, slot, number, position), number);
    let read = |slot| owner(&of_coordinator(about(Type::Read, slot)));
    let tick = |slot| owner(&about(Type::Tick, slot));
    let ask = || owner(&of_coordinator(plain(Type::Ask)));
    let stop = |counter| owner(&of_coordinator(call(Type::Fence, counter)));
    let raise = |counter, slot, limit| owner(&of_coordinator(floor(counter, slot, limit)));
    let full = (0..=CELLS as u64).map(propose).collect::<Vec<_>>();
    vec![
        ("nothing was said to it", vec![propose(1), voted(0, 1, 0), tick(0), read(0), ask()]),
        case(
            "slots in order",
            vec![
                ask(),
                propose(1),
                ask(),
                propose(2),
                propose(2),
                ask(),
                read(FIRST),
                read(FIRST + 3),
            ],
        ),
        case(
            "full, and room again",
            [
                full,
                vec![
                    ask(),
                    raise(2, FIRST + 1, u64::MAX),
                    propose(99),
                    propose(98),
                    read(FIRST),
                    tick(LAST + 1),
                ],
            ]
            .concat(),
        ),
        (
            "the limit",
            vec![
                boot(Program::Coordinator),
                owner(&Header { voted: FIRST + 1, ..start(1, BALLOT, FIRST) }),
                propose(1),
                propose(2),
                raise(2, FIRST, FIRST),
                raise(3, FIRST, FIRST + 2),
                propose(3),
                propose(4),
                raise(4, FIRST + 3, u64::MAX),
                raise(5, FIRST + 2, u64::MAX),
                raise(6, FIRST + 1, u64::MAX),
                propose(5),
            ],
        ),
        case(
            "a quorum, once",
            vec![
                propose(1),
                voted(FIRST, 1, 0),
                voted(FIRST, 1, 0),
                voted(FIRST, 1, 2),
                voted(FIRST, 1, 1),
                voted(FIRST, 1, 2),
            ],
        ),
        case(
            "votes for something else",
            vec![
                propose(1),
                voted(FIRST, 1, 0),
                network(&phase2b(BALLOT - 1, FIRST, 1, 1), 1),
                network(&phase2b(BALLOT + 1, FIRST, 1, 1), 1),
                voted(FIRST + 1, 1, 1),
                voted(FIRST + CELLS as u64, 1, 1),
                voted(FIRST - CELLS as u64, 1, 1),
                voted(FIRST, 1, 3),
                voted(FIRST, 1, 15),
                voted(FIRST, 2, 1),
                network(
                    &Header {
                        value: Descriptor { origin: 6, ..phase2b(BALLOT, FIRST, 1, 1).value },
                        ..phase2b(BALLOT, FIRST, 1, 1)
                    },
                    1,
                ),
                network(
                    &Header {
                        value: Descriptor { crc: 6, ..phase2b(BALLOT, FIRST, 1, 1).value },
                        ..phase2b(BALLOT, FIRST, 1, 1)
                    },
                    1,
                ),
                network(
                    &Header {
                        value: Descriptor { origin_boot: 6, ..phase2b(BALLOT, FIRST, 1, 1).value },
                        ..phase2b(BALLOT, FIRST, 1, 1)
                    },
                    1,
                ),
                network(
                    &Header {
                        value: Descriptor { counter: 6, ..phase2b(BALLOT, FIRST, 1, 1).value },
                        ..phase2b(BALLOT, FIRST, 1, 1)
                    },
                    1,
                ),
                network(
                    &Header {
                        value: Descriptor { kind: 1, ..phase2b(BALLOT, FIRST, 1, 1).value },
                        ..phase2b(BALLOT, FIRST, 1, 1)
                    },
                    1,
                ),
                network(
                    &Header {
                        value: Descriptor { length: 6, ..phase2b(BALLOT, FIRST, 1, 1).value },
                        ..phase2b(BALLOT, FIRST, 1, 1)
                    },
                    1,
                ),
                voted(FIRST, 1, 1),
            ],
        ),
        (
            "hints, a quorum of one",
            vec![
                boot(Program::Coordinator),
                owner(&Header {
                    flags: of_coordinator(plain(Type::Arm)).flags | HINT,
                    value: Descriptor { kind: 1, origin: 16, ..call(Type::Arm, 1).value },
                    ..start(1, BALLOT, FIRST)
                }),
                ask(),
                propose(1),
                voted(FIRST, 1, 15),
                voted(FIRST, 1, 14),
                stop(2),
                ask(),
            ],
        ),
        case(
            "a cell that is used again has no votes",
            [
                (0..CELLS as u64).map(propose).collect(),
                vec![
                    voted(FIRST, 0, 0),
                    raise(2, FIRST + 1, u64::MAX),
                    propose(7),
                    voted(LAST + 1, 7, 1),
                    voted(LAST + 1, 7, 0),
                ],
            ]
            .concat(),
        ),
        case(
            "ticks",
            vec![
                propose(1),
                tick(FIRST),
                tick(FIRST - 1),
                tick(FIRST + 1),
                tick(FIRST + CELLS as u64),
                raise(2, FIRST + 1, u64::MAX),
                tick(FIRST),
                network(&about(Type::Tick, FIRST), 0),
                stop(3),
                tick(FIRST),
            ],
        ),
        case(
            "taken back",
            vec![
                propose(1),
                propose(2),
                stop(2),
                propose(3),
                voted(FIRST, 1, 0),
                voted(FIRST, 1, 1),
                ask(),
                read(FIRST),
                read(FIRST + 1),
                read(FIRST + 2),
                raise(3, FIRST, u64::MAX),
            ],
        ),
        case(
            "started again",
            vec![
                propose(1),
                owner(&start(2, BALLOT, FIRST + 1)),
                stop(3),
                owner(&start(4, BALLOT, FIRST)),
                owner(&start(5, BALLOT - 1, FIRST + 1)),
                owner(&start(6, 0, FIRST + 1)),
                owner(&start(7, BALLOT, FIRST + 1)),
                voted(FIRST, 1, 0),
                voted(FIRST, 1, 1),
                propose(2),
                stop(8),
                owner(&start(9, BALLOT + 1, FIRST)),
                owner(&start(10, BALLOT + 1, FIRST + 1)),
                tick(FIRST + 1),
                propose(3),
                network(&phase2b(BALLOT + 1, FIRST + 1, 3, 0), 3),
                network(&phase2b(BALLOT + 1, FIRST + 1, 3, 1), 3),
            ],
        ),
        (
            "cells of an older ballot",
            vec![
                boot(Program::Coordinator),
                owner(&start(1, BALLOT, FIRST)),
                propose(1),
                propose(2),
                propose(3),
                stop(2),
                owner(&start(3, BALLOT + 1, FIRST)),
                propose(4),
                voted(FIRST + 1, 2, 0),
                network(&phase2b(BALLOT + 1, FIRST + 1, 2, 0), 2),
                tick(FIRST + 1),
                read(FIRST + 1),
                read(FIRST),
            ],
        ),
        (
            "quorums that are none",
            vec![
                boot(Program::Coordinator),
                owner(&Header {
                    value: Descriptor { kind: 0, ..start(1, BALLOT, FIRST).value },
                    ..start(1, BALLOT, FIRST)
                }),
                owner(&Header {
                    value: Descriptor { kind: 4, ..start(2, BALLOT, FIRST).value },
                    ..start(2, BALLOT, FIRST)
                }),
                owner(&Header {
                    value: Descriptor { origin: 17, ..start(3, BALLOT, FIRST).value },
                    ..start(3, BALLOT, FIRST)
                }),
                owner(&Header {
                    value: Descriptor { origin: 259, ..start(4, BALLOT, FIRST).value },
                    ..start(4, BALLOT, FIRST)
                }),
                owner(&Header {
                    value: Descriptor { kind: 16, origin: 16, ..start(5, BALLOT, FIRST).value },
                    ..start(5, BALLOT, FIRST)
                }),
            ],
        ),
        case(
            "boots, and late control",
            vec![
                owner(&of_coordinator(Header { boot: BOOT + 1, ..plain(Type::Boot) })),
                boot(Program::Coordinator),
                owner(&of_coordinator(Header { boot: BOOT + 1, ..call(Type::Fence, 3) })),
                propose(1),
                stop(1),
                stop(5),
                owner(&start(4, BALLOT, FIRST + 1)),
                owner(&start(5, BALLOT, FIRST + 1)),
                owner(&start(6, BALLOT, FIRST + 1)),
                propose(2),
                Event::Power,
                stop(7),
                propose(3),
                read(FIRST),
                boot(Program::Coordinator),
                owner(&start(1, BALLOT, FIRST)),
                propose(4),
            ],
        ),
        case(
            "four frames of others behind a proposal, then the slot is read",
            vec![
                propose(1),
                other(1),
                other(2),
                other(3),
                other(4),
                read(FIRST),
                tick(FIRST),
                voted(FIRST, 1, 0),
                voted(FIRST, 1, 1),
            ],
        ),
        case("refusals go to stations", [vec![stop(2)], stations(&submit(1))].concat()),
    ]
}
