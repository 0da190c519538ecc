//! Directed cases for the acceptor.

use super::*;

pub(super) fn acceptor() -> Vec<Case> {
    let case = |name, more| case(Program::Acceptor, name, more);
    let read = |slot| owner(&about(Type::Read, slot));
    let question = |slot| network(&about(Type::Phase1a, slot), 0);
    let raw = |header: &Header, number| {
        Event::Frame(Port::Network, frame(Form::Raw, header, &room(number)))
    };
    let sleeping = vec![vote(FIRST, 1), question(FIRST), read(FIRST)];
    vec![
        ("nothing was said to it", [sleeping.clone(), vec![owner(&plain(Type::Ask))]].concat()),
        ("a boot, and no ballot", [vec![boot(Program::Acceptor)], sleeping].concat()),
        case(
            "a vote, asked for again, and with another value",
            vec![vote(FIRST, 1), vote(FIRST, 1), vote(FIRST, 2), question(FIRST), read(FIRST)],
        ),
        case(
            "raw frames and frames of UDP are for the same cells",
            vec![
                raw(&phase2a(BALLOT, FIRST, 5), 5),
                vote(FIRST, 5),
                raw(&about(Type::Phase1a, FIRST), 0),
                raw(&phase2a(BALLOT - 1, FIRST, 5), 5),
            ],
        ),
        case(
            "other ballots",
            vec![
                network(&phase2a(BALLOT - 1, FIRST, 1), 1),
                network(&phase2a(BALLOT + 1, FIRST, 1), 1),
                network(&phase2a(0, FIRST, 1), 1),
                network(&phase2a(u64::MAX, FIRST, 1), 1),
                question(FIRST),
            ],
        ),
        case(
            "the edges of the window",
            vec![
                vote(FIRST - 1, 1),
                vote(FIRST, 2),
                vote(LAST, 3),
                vote(LAST + 1, 4),
                vote(0, 5),
                vote(u64::MAX, 6),
                question(LAST),
                question(LAST + 1),
                question(FIRST - 1),
            ],
        ),
        case(
            "the floor rises, and a cell is used again",
            vec![
                vote(FIRST, 1),
                vote(LAST + 1, 2),
                owner(&floor(2, FIRST + 1, 0)),
                vote(FIRST, 3),
                vote(LAST + 1, 4),
                question(FIRST),
                question(LAST + 1),
                owner(&floor(3, FIRST, 0)),
                owner(&floor(4, FIRST + 1, 0)),
            ],
        ),
        case(
            "slots at the end of all numbers",
            vec![
                owner(&floor(2, u64::MAX - 1, 0)),
                vote(u64::MAX - 1, 1),
                vote(u64::MAX, 2),
                vote(0, 3),
                question(u64::MAX),
                question(u64::MAX - 1),
            ],
        ),
        case(
            "fenced, read out, holes too",
            vec![
                vote(FIRST, 1),
                vote(FIRST + 2, 2),
                owner(&call(Type::Fence, 2)),
                vote(FIRST + 3, 3),
                question(FIRST),
                read(FIRST),
                read(FIRST + 1),
                read(FIRST + 2),
                read(FIRST + 3),
                read(FIRST + CELLS as u64),
            ],
        ),
        case(
            "armed again in its ballot, then in a higher one",
            vec![
                vote(FIRST, 1),
                owner(&call(Type::Fence, 2)),
                owner(&arm(3, BALLOT, FIRST)),
                vote(FIRST, 2),
                owner(&call(Type::Fence, 4)),
                owner(&arm(5, BALLOT + 1, FIRST)),
                read(FIRST),
                vote(FIRST, 3),
                network(&phase2a(BALLOT + 1, FIRST, 4), 4),
                question(FIRST),
            ],
        ),
        case(
            "late control",
            vec![
                owner(&call(Type::Fence, 5)),
                owner(&arm(4, BALLOT, FIRST)),
                owner(&arm(5, BALLOT, FIRST)),
                owner(&arm(6, BALLOT, FIRST - 1)),
                owner(&arm(6, BALLOT, FIRST)),
                vote(FIRST, 1),
                owner(&Header {
                    value: Descriptor { origin_boot: 0, ..call(Type::Arm, 99).value },
                    ..arm(99, BALLOT, FIRST)
                }),
                owner(&Header {
                    value: Descriptor { origin_boot: 2, counter: 1, ..call(Type::Arm, 1).value },
                    ..arm(1, BALLOT, FIRST)
                }),
                vote(FIRST, 1),
                owner(&call(Type::Fence, 7)),
                vote(FIRST + 1, 1),
            ],
        ),
        case(
            "records change only while drained",
            vec![
                owner(&arm(2, BALLOT, FIRST + 1)),
                owner(&Header { position: 1, ..arm(3, BALLOT, FIRST + 1) }),
                owner(&arm(4, BALLOT + 1, FIRST + 1)),
                owner(&call(Type::Fence, 5)),
                owner(&arm(6, BALLOT - 1, FIRST + 1)),
                owner(&arm(7, 0, FIRST + 1)),
                vote(FIRST + 1, 1),
                owner(&plain(Type::Ask)),
            ],
        ),
        case(
            "boots",
            vec![
                owner(&Header { boot: BOOT + 1, ..plain(Type::Boot) }),
                boot(Program::Acceptor),
                owner(&Header { boot: 0, ..plain(Type::Boot) }),
                owner(&Header { boot: 0, ..call(Type::Fence, 2) }),
                owner(&Header { boot: BOOT + 1, ..call(Type::Fence, 3) }),
                vote(FIRST, 1),
                Event::Power,
                owner(&call(Type::Fence, 4)),
                read(FIRST),
                owner(&Header { boot: BOOT + 1, ..plain(Type::Boot) }),
                owner(&arm(5, BALLOT, FIRST)),
                vote(FIRST, 1),
            ],
        ),
        // Detects a write that remains enabled while foreign frames pass. The simulated hardware
        // once had this bug.
        case(
            "four frames of others behind a vote, then the slot is read",
            vec![
                vote(FIRST, 1),
                other(1),
                other(2),
                other(3),
                other(4),
                read(FIRST),
                question(FIRST),
                vote(FIRST, 1),
            ],
        ),
        case("refusals go to stations", stations(&phase2a(BALLOT - 1, FIRST, 1))),
    ]
}
