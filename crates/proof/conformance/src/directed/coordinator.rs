//! Directed cases for the coordinator.

use super::*;

pub(super) fn coordinator() -> Vec<Case> {
    let case = |name, more| ready_case(Program::Coordinator, name, more);
    let propose = |number| network_event(&submit_header(number), number);
    let voted = |slot, number, position| {
        network_event(&phase2b_header(BALLOT, slot, number, position), number)
    };
    let read = |slot| owner_event(&for_coordinator(slot_request_header(Type::Read, slot)));
    let tick = |slot| owner_event(&slot_request_header(Type::Tick, slot));
    let ask = || owner_event(&for_coordinator(empty_header(Type::Ask)));
    let stop = |counter| owner_event(&for_coordinator(control_call_header(Type::Fence, counter)));
    let raise =
        |counter, slot, limit| owner_event(&for_coordinator(floor_header(counter, slot, limit)));
    let full = (0..=CELL_COUNT as u64).map(propose).collect::<Vec<_>>();
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
                read(FIRST_SLOT),
                read(FIRST_SLOT + 3),
            ],
        ),
        case(
            "full, and room again",
            [
                full,
                vec![
                    ask(),
                    raise(2, FIRST_SLOT + 1, u64::MAX),
                    propose(99),
                    propose(98),
                    read(FIRST_SLOT),
                    tick(LAST_SLOT + 1),
                ],
            ]
            .concat(),
        ),
        (
            "the limit",
            vec![
                boot_event(Program::Coordinator),
                owner_event(&Header { voted: FIRST_SLOT + 1, ..start(1, BALLOT, FIRST_SLOT) }),
                propose(1),
                propose(2),
                raise(2, FIRST_SLOT, FIRST_SLOT),
                raise(3, FIRST_SLOT, FIRST_SLOT + 2),
                propose(3),
                propose(4),
                raise(4, FIRST_SLOT + 3, u64::MAX),
                raise(5, FIRST_SLOT + 2, u64::MAX),
                raise(6, FIRST_SLOT + 1, u64::MAX),
                propose(5),
            ],
        ),
        case(
            "a quorum, once",
            vec![
                propose(1),
                voted(FIRST_SLOT, 1, 0),
                voted(FIRST_SLOT, 1, 0),
                voted(FIRST_SLOT, 1, 2),
                voted(FIRST_SLOT, 1, 1),
                voted(FIRST_SLOT, 1, 2),
            ],
        ),
        case(
            "votes for something else",
            vec![
                propose(1),
                voted(FIRST_SLOT, 1, 0),
                network_event(&phase2b_header(BALLOT - 1, FIRST_SLOT, 1, 1), 1),
                network_event(&phase2b_header(BALLOT + 1, FIRST_SLOT, 1, 1), 1),
                voted(FIRST_SLOT + 1, 1, 1),
                voted(FIRST_SLOT + CELL_COUNT as u64, 1, 1),
                voted(FIRST_SLOT - CELL_COUNT as u64, 1, 1),
                voted(FIRST_SLOT, 1, 3),
                voted(FIRST_SLOT, 1, 15),
                voted(FIRST_SLOT, 2, 1),
                network_event(
                    &Header {
                        value: Descriptor {
                            origin: 6,
                            ..phase2b_header(BALLOT, FIRST_SLOT, 1, 1).value
                        },
                        ..phase2b_header(BALLOT, FIRST_SLOT, 1, 1)
                    },
                    1,
                ),
                network_event(
                    &Header {
                        value: Descriptor {
                            crc: 6,
                            ..phase2b_header(BALLOT, FIRST_SLOT, 1, 1).value
                        },
                        ..phase2b_header(BALLOT, FIRST_SLOT, 1, 1)
                    },
                    1,
                ),
                network_event(
                    &Header {
                        value: Descriptor {
                            origin_boot: 6,
                            ..phase2b_header(BALLOT, FIRST_SLOT, 1, 1).value
                        },
                        ..phase2b_header(BALLOT, FIRST_SLOT, 1, 1)
                    },
                    1,
                ),
                network_event(
                    &Header {
                        value: Descriptor {
                            counter: 6,
                            ..phase2b_header(BALLOT, FIRST_SLOT, 1, 1).value
                        },
                        ..phase2b_header(BALLOT, FIRST_SLOT, 1, 1)
                    },
                    1,
                ),
                network_event(
                    &Header {
                        value: Descriptor {
                            kind: 1,
                            ..phase2b_header(BALLOT, FIRST_SLOT, 1, 1).value
                        },
                        ..phase2b_header(BALLOT, FIRST_SLOT, 1, 1)
                    },
                    1,
                ),
                network_event(
                    &Header {
                        value: Descriptor {
                            length: 6,
                            ..phase2b_header(BALLOT, FIRST_SLOT, 1, 1).value
                        },
                        ..phase2b_header(BALLOT, FIRST_SLOT, 1, 1)
                    },
                    1,
                ),
                voted(FIRST_SLOT, 1, 1),
            ],
        ),
        (
            "hints, a quorum of one",
            vec![
                boot_event(Program::Coordinator),
                owner_event(&Header {
                    flags: for_coordinator(empty_header(Type::Arm)).flags | HINT,
                    value: Descriptor {
                        kind: 1,
                        origin: 16,
                        ..control_call_header(Type::Arm, 1).value
                    },
                    ..start(1, BALLOT, FIRST_SLOT)
                }),
                ask(),
                propose(1),
                voted(FIRST_SLOT, 1, 15),
                voted(FIRST_SLOT, 1, 14),
                stop(2),
                ask(),
            ],
        ),
        case(
            "a cell that is used again has no votes",
            [
                (0..CELL_COUNT as u64).map(propose).collect(),
                vec![
                    voted(FIRST_SLOT, 0, 0),
                    raise(2, FIRST_SLOT + 1, u64::MAX),
                    propose(7),
                    voted(LAST_SLOT + 1, 7, 1),
                    voted(LAST_SLOT + 1, 7, 0),
                ],
            ]
            .concat(),
        ),
        case(
            "ticks",
            vec![
                propose(1),
                tick(FIRST_SLOT),
                tick(FIRST_SLOT - 1),
                tick(FIRST_SLOT + 1),
                tick(FIRST_SLOT + CELL_COUNT as u64),
                raise(2, FIRST_SLOT + 1, u64::MAX),
                tick(FIRST_SLOT),
                network_event(&slot_request_header(Type::Tick, FIRST_SLOT), 0),
                stop(3),
                tick(FIRST_SLOT),
            ],
        ),
        case(
            "taken back",
            vec![
                propose(1),
                propose(2),
                stop(2),
                propose(3),
                voted(FIRST_SLOT, 1, 0),
                voted(FIRST_SLOT, 1, 1),
                ask(),
                read(FIRST_SLOT),
                read(FIRST_SLOT + 1),
                read(FIRST_SLOT + 2),
                raise(3, FIRST_SLOT, u64::MAX),
            ],
        ),
        case(
            "started again",
            vec![
                propose(1),
                owner_event(&start(2, BALLOT, FIRST_SLOT + 1)),
                stop(3),
                owner_event(&start(4, BALLOT, FIRST_SLOT)),
                owner_event(&start(5, BALLOT - 1, FIRST_SLOT + 1)),
                owner_event(&start(6, 0, FIRST_SLOT + 1)),
                owner_event(&start(7, BALLOT, FIRST_SLOT + 1)),
                voted(FIRST_SLOT, 1, 0),
                voted(FIRST_SLOT, 1, 1),
                propose(2),
                stop(8),
                owner_event(&start(9, BALLOT + 1, FIRST_SLOT)),
                owner_event(&start(10, BALLOT + 1, FIRST_SLOT + 1)),
                tick(FIRST_SLOT + 1),
                propose(3),
                network_event(&phase2b_header(BALLOT + 1, FIRST_SLOT + 1, 3, 0), 3),
                network_event(&phase2b_header(BALLOT + 1, FIRST_SLOT + 1, 3, 1), 3),
            ],
        ),
        (
            "cells of an older ballot",
            vec![
                boot_event(Program::Coordinator),
                owner_event(&start(1, BALLOT, FIRST_SLOT)),
                propose(1),
                propose(2),
                propose(3),
                stop(2),
                owner_event(&start(3, BALLOT + 1, FIRST_SLOT)),
                propose(4),
                voted(FIRST_SLOT + 1, 2, 0),
                network_event(&phase2b_header(BALLOT + 1, FIRST_SLOT + 1, 2, 0), 2),
                tick(FIRST_SLOT + 1),
                read(FIRST_SLOT + 1),
                read(FIRST_SLOT),
            ],
        ),
        (
            "quorums that are none",
            vec![
                boot_event(Program::Coordinator),
                owner_event(&Header {
                    value: Descriptor { kind: 0, ..start(1, BALLOT, FIRST_SLOT).value },
                    ..start(1, BALLOT, FIRST_SLOT)
                }),
                owner_event(&Header {
                    value: Descriptor { kind: 4, ..start(2, BALLOT, FIRST_SLOT).value },
                    ..start(2, BALLOT, FIRST_SLOT)
                }),
                owner_event(&Header {
                    value: Descriptor { origin: 17, ..start(3, BALLOT, FIRST_SLOT).value },
                    ..start(3, BALLOT, FIRST_SLOT)
                }),
                owner_event(&Header {
                    value: Descriptor { origin: 259, ..start(4, BALLOT, FIRST_SLOT).value },
                    ..start(4, BALLOT, FIRST_SLOT)
                }),
                owner_event(&Header {
                    value: Descriptor {
                        kind: 16,
                        origin: 16,
                        ..start(5, BALLOT, FIRST_SLOT).value
                    },
                    ..start(5, BALLOT, FIRST_SLOT)
                }),
            ],
        ),
        case(
            "boots, and late control",
            vec![
                owner_event(&for_coordinator(Header {
                    boot: OWNER_BOOT + 1,
                    ..empty_header(Type::Boot)
                })),
                boot_event(Program::Coordinator),
                owner_event(&for_coordinator(Header {
                    boot: OWNER_BOOT + 1,
                    ..control_call_header(Type::Fence, 3)
                })),
                propose(1),
                stop(1),
                stop(5),
                owner_event(&start(4, BALLOT, FIRST_SLOT + 1)),
                owner_event(&start(5, BALLOT, FIRST_SLOT + 1)),
                owner_event(&start(6, BALLOT, FIRST_SLOT + 1)),
                propose(2),
                Event::PowerCycle,
                stop(7),
                propose(3),
                read(FIRST_SLOT),
                boot_event(Program::Coordinator),
                owner_event(&start(1, BALLOT, FIRST_SLOT)),
                propose(4),
            ],
        ),
        case(
            "four frames of others behind a proposal, then the slot is read",
            vec![
                propose(1),
                foreign_frame(1),
                foreign_frame(2),
                foreign_frame(3),
                foreign_frame(4),
                read(FIRST_SLOT),
                tick(FIRST_SLOT),
                voted(FIRST_SLOT, 1, 0),
                voted(FIRST_SLOT, 1, 1),
            ],
        ),
        case(
            "refusals go to stations",
            [vec![stop(2)], source_address_frames(&submit_header(1))].concat(),
        ),
    ]
}
