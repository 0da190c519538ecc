//! Directed cases for the acceptor.

use super::*;

pub(super) fn acceptor() -> Vec<Case> {
    let case = |name, more| ready_case(Program::Acceptor, name, more);
    let read = |slot| owner_event(&slot_request_header(Type::Read, slot));
    let question = |slot| network_event(&slot_request_header(Type::Phase1a, slot), 0);
    let raw = |header: &Header, number| {
        Event::Frame(Port::Network, client_frame(Encapsulation::Raw, header, &filled_room(number)))
    };
    let sleeping = vec![proposal_event(FIRST_SLOT, 1), question(FIRST_SLOT), read(FIRST_SLOT)];
    vec![
        (
            "nothing was said to it",
            [sleeping.clone(), vec![owner_event(&empty_header(Type::Ask))]].concat(),
        ),
        ("a boot, and no ballot", [vec![boot_event(Program::Acceptor)], sleeping].concat()),
        case(
            "a vote, asked for again, and with another value",
            vec![
                proposal_event(FIRST_SLOT, 1),
                proposal_event(FIRST_SLOT, 1),
                proposal_event(FIRST_SLOT, 2),
                question(FIRST_SLOT),
                read(FIRST_SLOT),
            ],
        ),
        case(
            "raw frames and frames of UDP are for the same cells",
            vec![
                raw(&phase2a_header(BALLOT, FIRST_SLOT, 5), 5),
                proposal_event(FIRST_SLOT, 5),
                raw(&slot_request_header(Type::Phase1a, FIRST_SLOT), 0),
                raw(&phase2a_header(BALLOT - 1, FIRST_SLOT, 5), 5),
            ],
        ),
        case(
            "other ballots",
            vec![
                network_event(&phase2a_header(BALLOT - 1, FIRST_SLOT, 1), 1),
                network_event(&phase2a_header(BALLOT + 1, FIRST_SLOT, 1), 1),
                network_event(&phase2a_header(0, FIRST_SLOT, 1), 1),
                network_event(&phase2a_header(u64::MAX, FIRST_SLOT, 1), 1),
                question(FIRST_SLOT),
            ],
        ),
        case(
            "the edges of the window",
            vec![
                proposal_event(FIRST_SLOT - 1, 1),
                proposal_event(FIRST_SLOT, 2),
                proposal_event(LAST_SLOT, 3),
                proposal_event(LAST_SLOT + 1, 4),
                proposal_event(0, 5),
                proposal_event(u64::MAX, 6),
                question(LAST_SLOT),
                question(LAST_SLOT + 1),
                question(FIRST_SLOT - 1),
            ],
        ),
        case(
            "the floor rises, and a cell is used again",
            vec![
                proposal_event(FIRST_SLOT, 1),
                proposal_event(LAST_SLOT + 1, 2),
                owner_event(&floor_header(2, FIRST_SLOT + 1, 0)),
                proposal_event(FIRST_SLOT, 3),
                proposal_event(LAST_SLOT + 1, 4),
                question(FIRST_SLOT),
                question(LAST_SLOT + 1),
                owner_event(&floor_header(3, FIRST_SLOT, 0)),
                owner_event(&floor_header(4, FIRST_SLOT + 1, 0)),
            ],
        ),
        case(
            "slots at the end of all numbers",
            vec![
                owner_event(&floor_header(2, u64::MAX - 1, 0)),
                proposal_event(u64::MAX - 1, 1),
                proposal_event(u64::MAX, 2),
                proposal_event(0, 3),
                question(u64::MAX),
                question(u64::MAX - 1),
            ],
        ),
        case(
            "fenced, read out, holes too",
            vec![
                proposal_event(FIRST_SLOT, 1),
                proposal_event(FIRST_SLOT + 2, 2),
                owner_event(&control_call_header(Type::Fence, 2)),
                proposal_event(FIRST_SLOT + 3, 3),
                question(FIRST_SLOT),
                read(FIRST_SLOT),
                read(FIRST_SLOT + 1),
                read(FIRST_SLOT + 2),
                read(FIRST_SLOT + 3),
                read(FIRST_SLOT + CELL_COUNT as u64),
            ],
        ),
        case(
            "armed again in its ballot, then in a higher one",
            vec![
                proposal_event(FIRST_SLOT, 1),
                owner_event(&control_call_header(Type::Fence, 2)),
                owner_event(&arm_header(3, BALLOT, FIRST_SLOT)),
                proposal_event(FIRST_SLOT, 2),
                owner_event(&control_call_header(Type::Fence, 4)),
                owner_event(&arm_header(5, BALLOT + 1, FIRST_SLOT)),
                read(FIRST_SLOT),
                proposal_event(FIRST_SLOT, 3),
                network_event(&phase2a_header(BALLOT + 1, FIRST_SLOT, 4), 4),
                question(FIRST_SLOT),
            ],
        ),
        case(
            "late control",
            vec![
                owner_event(&control_call_header(Type::Fence, 5)),
                owner_event(&arm_header(4, BALLOT, FIRST_SLOT)),
                owner_event(&arm_header(5, BALLOT, FIRST_SLOT)),
                owner_event(&arm_header(6, BALLOT, FIRST_SLOT - 1)),
                owner_event(&arm_header(6, BALLOT, FIRST_SLOT)),
                proposal_event(FIRST_SLOT, 1),
                owner_event(&Header {
                    value: Descriptor {
                        origin_boot: 0,
                        ..control_call_header(Type::Arm, 99).value
                    },
                    ..arm_header(99, BALLOT, FIRST_SLOT)
                }),
                owner_event(&Header {
                    value: Descriptor {
                        origin_boot: 2,
                        counter: 1,
                        ..control_call_header(Type::Arm, 1).value
                    },
                    ..arm_header(1, BALLOT, FIRST_SLOT)
                }),
                proposal_event(FIRST_SLOT, 1),
                owner_event(&control_call_header(Type::Fence, 7)),
                proposal_event(FIRST_SLOT + 1, 1),
            ],
        ),
        case(
            "records change only while drained",
            vec![
                owner_event(&arm_header(2, BALLOT, FIRST_SLOT + 1)),
                owner_event(&Header { position: 1, ..arm_header(3, BALLOT, FIRST_SLOT + 1) }),
                owner_event(&arm_header(4, BALLOT + 1, FIRST_SLOT + 1)),
                owner_event(&control_call_header(Type::Fence, 5)),
                owner_event(&arm_header(6, BALLOT - 1, FIRST_SLOT + 1)),
                owner_event(&arm_header(7, 0, FIRST_SLOT + 1)),
                proposal_event(FIRST_SLOT + 1, 1),
                owner_event(&empty_header(Type::Ask)),
            ],
        ),
        case(
            "boots",
            vec![
                owner_event(&Header { boot: OWNER_BOOT + 1, ..empty_header(Type::Boot) }),
                boot_event(Program::Acceptor),
                owner_event(&Header { boot: 0, ..empty_header(Type::Boot) }),
                owner_event(&Header { boot: 0, ..control_call_header(Type::Fence, 2) }),
                owner_event(&Header {
                    boot: OWNER_BOOT + 1,
                    ..control_call_header(Type::Fence, 3)
                }),
                proposal_event(FIRST_SLOT, 1),
                Event::PowerCycle,
                owner_event(&control_call_header(Type::Fence, 4)),
                read(FIRST_SLOT),
                owner_event(&Header { boot: OWNER_BOOT + 1, ..empty_header(Type::Boot) }),
                owner_event(&arm_header(5, BALLOT, FIRST_SLOT)),
                proposal_event(FIRST_SLOT, 1),
            ],
        ),
        // Detects a write that remains enabled while foreign frames pass. The simulated hardware
        // once had this bug.
        case(
            "four frames of others behind a vote, then the slot is read",
            vec![
                proposal_event(FIRST_SLOT, 1),
                foreign_frame(1),
                foreign_frame(2),
                foreign_frame(3),
                foreign_frame(4),
                read(FIRST_SLOT),
                question(FIRST_SLOT),
                proposal_event(FIRST_SLOT, 1),
            ],
        ),
        case(
            "refusals go to stations",
            source_address_frames(&phase2a_header(BALLOT - 1, FIRST_SLOT, 1)),
        ),
    ]
}
