//! Directed cases for a host, whose two programs exchange messages internally.

use super::*;

pub(super) fn host() -> Vec<Case> {
    let case = |name, more| ready_case(Program::Host, name, more);
    let propose = |number| network_event(&submit_header(number), number);
    let voted = |slot, number, position| {
        network_event(&phase2b_header(BALLOT, slot, number, position), number)
    };
    let tick = |slot| owner_event(&slot_request_header(Type::Tick, slot));
    let raw = |header: &Header, number| {
        Event::Frame(Port::Network, client_frame(Encapsulation::Raw, header, &filled_room(number)))
    };
    let read = |slot| {
        let header = slot_request_header(Type::Read, slot);
        [owner_event(&header), owner_event(&for_coordinator(header))]
    };
    let one = Header {
        value: Descriptor { kind: 1, ..start(1, BALLOT, FIRST_SLOT).value },
        ..start(1, BALLOT, FIRST_SLOT)
    };
    let said = |kind| {
        let mut header = phase2b_header(BALLOT, FIRST_SLOT, 3, 0);
        header.kind = kind;
        [network_event(&header, 3), raw(&header, 3), owner_event(&header)]
    };
    vec![
        case(
            "the own vote, and one more",
            [
                vec![propose(1), raw(&submit_header(2), 2)],
                read(FIRST_SLOT).to_vec(),
                vec![voted(FIRST_SLOT, 1, 0), voted(FIRST_SLOT, 1, 1), voted(FIRST_SLOT, 1, 2)],
                vec![raw(&phase2b_header(BALLOT, FIRST_SLOT + 1, 2, 1), 2)],
            ]
            .concat(),
        ),
        (
            "an acceptor that is not armed, then is",
            vec![
                boot_event(Program::Acceptor),
                boot_event(Program::Coordinator),
                owner_event(&start(1, BALLOT, FIRST_SLOT)),
                propose(1),
                owner_event(&arm_header(1, BALLOT, FIRST_SLOT)),
                tick(FIRST_SLOT),
                tick(FIRST_SLOT),
                voted(FIRST_SLOT, 1, 1),
            ],
        ),
        (
            "an acceptor of another ballot, floor or window",
            vec![
                boot_event(Program::Acceptor),
                boot_event(Program::Coordinator),
                owner_event(&arm_header(1, BALLOT + 1, FIRST_SLOT)),
                owner_event(&start(1, BALLOT, FIRST_SLOT)),
                propose(1),
                owner_event(&control_call_header(Type::Fence, 2)),
                owner_event(&for_coordinator(control_call_header(Type::Fence, 2))),
                owner_event(&arm_header(3, BALLOT + 2, FIRST_SLOT + 4)),
                owner_event(&start(3, BALLOT + 2, FIRST_SLOT + 2)),
                propose(2),
                propose(3),
                propose(4),
            ],
        ),
        (
            "one vote is enough",
            vec![
                boot_event(Program::Acceptor),
                boot_event(Program::Coordinator),
                owner_event(&arm_header(1, BALLOT, FIRST_SLOT)),
                owner_event(&one),
                propose(1),
                raw(&submit_header(2), 2),
                tick(FIRST_SLOT),
            ],
        ),
        (
            "the proposal comes back, and one vote is enough",
            vec![
                boot_event(Program::Acceptor),
                boot_event(Program::Coordinator),
                owner_event(&one),
                propose(1),
                raw(&submit_header(2), 2),
                owner_event(&arm_header(1, BALLOT, FIRST_SLOT)),
                network_event(&phase2a_header(BALLOT, FIRST_SLOT, 1), 1),
                raw(&phase2a_header(BALLOT, FIRST_SLOT + 1, 2), 2),
                raw(&phase2a_header(BALLOT, FIRST_SLOT + 1, 2), 2),
            ],
        ),
        (
            "it voted before it was proposed here, and one vote is enough",
            vec![
                boot_event(Program::Acceptor),
                boot_event(Program::Coordinator),
                owner_event(&arm_header(1, BALLOT, FIRST_SLOT)),
                proposal_event(FIRST_SLOT, 1),
                proposal_event(FIRST_SLOT + 1, 2),
                owner_event(&one),
                propose(1),
                owner_event(&control_call_header(Type::Fence, 2)),
                raw(&submit_header(2), 2),
                owner_event(&arm_header(3, BALLOT, FIRST_SLOT)),
                raw(&phase2a_header(BALLOT, FIRST_SLOT + 1, 2), 2),
                raw(&phase2a_header(BALLOT, FIRST_SLOT + 1, 2), 2),
            ],
        ),
        case(
            "another value was voted for",
            [
                vec![proposal_event(FIRST_SLOT, 9), propose(1), tick(FIRST_SLOT)],
                read(FIRST_SLOT).to_vec(),
                vec![voted(FIRST_SLOT, 1, 0), voted(FIRST_SLOT, 1, 1)],
            ]
            .concat(),
        ),
        case(
            "a leader elsewhere",
            vec![
                owner_event(&for_coordinator(control_call_header(Type::Fence, 2))),
                proposal_event(FIRST_SLOT, 1),
                proposal_event(FIRST_SLOT, 1),
                voted(FIRST_SLOT, 1, 0),
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
