//! The directed set: each case by its name. Every case begins after a loss of power.

use quorate_offload::{Descriptor, Form, Header, Port, Type, header::HINT};

use crate::{
    Device as _, Event, Program,
    device::Reference,
    frames::{
        BOOT, CELLS, CLIENT, HEARD, about, address, call, frame, frame_from, network,
        of_coordinator, owner, phase2a, phase2b, plain, room, seal, submit,
    },
};

/// A name, and what happens.
pub type Case = (&'static str, Vec<Event>);

const BALLOT: u64 = 0x0001_0000_0002_0003;
const FIRST: u64 = 100;
const LAST: u64 = FIRST + CELLS as u64 - 1;

/// All cases of a program.
pub fn cases(program: Program) -> Vec<Case> {
    let mut cases = match program {
        Program::Acceptor => acceptor(),
        Program::Coordinator => coordinator(),
    };
    cases.extend(strangers(program));
    cases
}

/// All events of all cases, one behind the other.
pub fn events(program: Program) -> Vec<Event> {
    let cases = cases(program).into_iter().map(|(_, events)| events);
    cases
        .flat_map(|events| [vec![Event::Power], events].concat())
        .collect()
}

fn boot(program: Program) -> Event {
    let header = Header {
        boot: BOOT,
        ..plain(Type::Boot)
    };
    owner(&of(program, header))
}

const fn of(program: Program, header: Header) -> Header {
    match program {
        Program::Acceptor => header,
        Program::Coordinator => of_coordinator(header),
    }
}

const fn arm(counter: u64, ballot: u64, floor: u64) -> Header {
    let mut header = call(Type::Arm, counter);
    header.ballot.0 = ballot;
    header.slot = floor;
    header.position = 2;
    header
}

/// Quorum 2 of 3, without a limit.
const fn start(counter: u64, ballot: u64, first: u64) -> Header {
    let mut header = of_coordinator(call(Type::Arm, counter));
    header.ballot.0 = ballot;
    header.slot = first;
    header.voted = u64::MAX;
    header.value.kind = 2;
    header.value.origin = 3;
    header
}

const fn floor(counter: u64, slot: u64, limit: u64) -> Header {
    let mut header = call(Type::Floor, counter);
    header.slot = slot;
    header.voted = limit;
    header
}

/// A device that works.
fn ready(program: Program) -> Vec<Event> {
    let arm = match program {
        Program::Acceptor => arm(1, BALLOT, FIRST),
        Program::Coordinator => start(1, BALLOT, FIRST),
    };
    vec![boot(program), owner(&arm)]
}

fn case(program: Program, name: &'static str, more: Vec<Event>) -> Case {
    (name, [ready(program), more].concat())
}

fn vote(slot: u64, number: u64) -> Event {
    network(&phase2a(BALLOT, slot, number), number)
}

fn acceptor() -> Vec<Case> {
    let case = |name, more| case(Program::Acceptor, name, more);
    let read = |slot| owner(&about(Type::Read, slot));
    let question = |slot| network(&about(Type::Phase1a, slot), 0);
    let raw = |header: &Header, number| {
        Event::Frame(Port::Network, frame(Form::Raw, header, &room(number)))
    };
    let sleeping = vec![vote(FIRST, 1), question(FIRST), read(FIRST)];
    vec![
        (
            "nothing was said to it",
            [sleeping.clone(), vec![owner(&plain(Type::Ask))]].concat(),
        ),
        (
            "a boot, and no ballot",
            [vec![boot(Program::Acceptor)], sleeping].concat(),
        ),
        case(
            "a vote, asked for again, and with another value",
            vec![
                vote(FIRST, 1),
                vote(FIRST, 1),
                vote(FIRST, 2),
                question(FIRST),
                read(FIRST),
            ],
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
                    value: Descriptor {
                        origin_boot: 0,
                        ..call(Type::Arm, 99).value
                    },
                    ..arm(99, BALLOT, FIRST)
                }),
                owner(&Header {
                    value: Descriptor {
                        origin_boot: 2,
                        counter: 1,
                        ..call(Type::Arm, 1).value
                    },
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
                owner(&Header {
                    position: 1,
                    ..arm(3, BALLOT, FIRST + 1)
                }),
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
                owner(&Header {
                    boot: BOOT + 1,
                    ..plain(Type::Boot)
                }),
                boot(Program::Acceptor),
                owner(&Header {
                    boot: 0,
                    ..plain(Type::Boot)
                }),
                owner(&Header {
                    boot: 0,
                    ..call(Type::Fence, 2)
                }),
                owner(&Header {
                    boot: BOOT + 1,
                    ..call(Type::Fence, 3)
                }),
                vote(FIRST, 1),
                Event::Power,
                owner(&call(Type::Fence, 4)),
                read(FIRST),
                owner(&Header {
                    boot: BOOT + 1,
                    ..plain(Type::Boot)
                }),
                owner(&arm(5, BALLOT, FIRST)),
                vote(FIRST, 1),
            ],
        ),
        // A write that is still enabled when frames of others pass: simulated hardware had it.
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
        case(
            "refusals go to stations",
            stations(&phase2a(BALLOT - 1, FIRST, 1)),
        ),
    ]
}

/// What others say on the same wire, byte for byte as if it were ours.
fn other(number: u64) -> Event {
    let mut bytes = frame(
        Form::Udp,
        &phase2a(BALLOT, FIRST, number + 10),
        &room(number + 10),
    );
    bytes[36..38].copy_from_slice(&53_u16.to_be_bytes());
    seal(&mut bytes);
    Event::Frame(Port::Network, bytes)
}

/// From addresses that are no single station's.
fn stations(header: &Header) -> Vec<Event> {
    let from = |mac: u8, ip: u8| {
        let mut from = address(CLIENT);
        (from.mac[0], from.ip[0]) = (mac, ip);
        [Form::Udp, Form::Raw].map(|form| {
            Event::Frame(
                Port::Network,
                frame_from(&from, form, header, &room(header.value.counter)),
            )
        })
    };
    let all = [
        (2, 10),
        (3, 10),
        (0xff, 10),
        (2, 0),
        (2, 223),
        (2, 224),
        (2, 255),
    ];
    all.into_iter()
        .flat_map(|(mac, ip)| from(mac, ip))
        .collect()
}

fn coordinator() -> Vec<Case> {
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
        (
            "nothing was said to it",
            vec![propose(1), voted(0, 1, 0), tick(0), read(0), ask()],
        ),
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
                owner(&Header {
                    voted: FIRST + 1,
                    ..start(1, BALLOT, FIRST)
                }),
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
                        value: Descriptor {
                            origin: 6,
                            ..phase2b(BALLOT, FIRST, 1, 1).value
                        },
                        ..phase2b(BALLOT, FIRST, 1, 1)
                    },
                    1,
                ),
                network(
                    &Header {
                        value: Descriptor {
                            crc: 6,
                            ..phase2b(BALLOT, FIRST, 1, 1).value
                        },
                        ..phase2b(BALLOT, FIRST, 1, 1)
                    },
                    1,
                ),
                network(
                    &Header {
                        value: Descriptor {
                            origin_boot: 6,
                            ..phase2b(BALLOT, FIRST, 1, 1).value
                        },
                        ..phase2b(BALLOT, FIRST, 1, 1)
                    },
                    1,
                ),
                network(
                    &Header {
                        value: Descriptor {
                            counter: 6,
                            ..phase2b(BALLOT, FIRST, 1, 1).value
                        },
                        ..phase2b(BALLOT, FIRST, 1, 1)
                    },
                    1,
                ),
                network(
                    &Header {
                        value: Descriptor {
                            kind: 1,
                            ..phase2b(BALLOT, FIRST, 1, 1).value
                        },
                        ..phase2b(BALLOT, FIRST, 1, 1)
                    },
                    1,
                ),
                network(
                    &Header {
                        value: Descriptor {
                            length: 6,
                            ..phase2b(BALLOT, FIRST, 1, 1).value
                        },
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
                    value: Descriptor {
                        kind: 1,
                        origin: 16,
                        ..call(Type::Arm, 1).value
                    },
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
                    value: Descriptor {
                        kind: 0,
                        ..start(1, BALLOT, FIRST).value
                    },
                    ..start(1, BALLOT, FIRST)
                }),
                owner(&Header {
                    value: Descriptor {
                        kind: 4,
                        ..start(2, BALLOT, FIRST).value
                    },
                    ..start(2, BALLOT, FIRST)
                }),
                owner(&Header {
                    value: Descriptor {
                        origin: 17,
                        ..start(3, BALLOT, FIRST).value
                    },
                    ..start(3, BALLOT, FIRST)
                }),
                owner(&Header {
                    value: Descriptor {
                        origin: 259,
                        ..start(4, BALLOT, FIRST).value
                    },
                    ..start(4, BALLOT, FIRST)
                }),
                owner(&Header {
                    value: Descriptor {
                        kind: 16,
                        origin: 16,
                        ..start(5, BALLOT, FIRST).value
                    },
                    ..start(5, BALLOT, FIRST)
                }),
            ],
        ),
        case(
            "boots, and late control",
            vec![
                owner(&of_coordinator(Header {
                    boot: BOOT + 1,
                    ..plain(Type::Boot)
                })),
                boot(Program::Coordinator),
                owner(&of_coordinator(Header {
                    boot: BOOT + 1,
                    ..call(Type::Fence, 3)
                })),
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
        case(
            "refusals go to stations",
            [vec![stop(2)], stations(&submit(1))].concat(),
        ),
    ]
}

/// What every program must do alike: frames that are not ours, or not whole; control; counters at the end.
fn strangers(program: Program) -> Vec<Case> {
    let good = match program {
        Program::Acceptor => phase2a(BALLOT, FIRST, 33),
        Program::Coordinator => submit(33),
    };
    let form = |form| frame(form, &good, &room(33));
    let from_network = |bytes: Vec<u8>| Event::Frame(Port::Network, bytes);
    let changed = |at: usize, to: &[u8], sealed: bool| {
        let mut bytes = form(Form::Udp);
        bytes[at..at + to.len()].copy_from_slice(to);
        if sealed {
            seal(&mut bytes);
        }
        from_network(bytes)
    };
    let mut lengths = Vec::new();
    for kind in [Form::Udp, Form::Raw] {
        let whole = form(kind);
        lengths.extend((1..whole.len()).map(|length| from_network(whole[..length].to_vec())));
        for more in [1, 8, 1000] {
            lengths.push(from_network([&whole[..], &vec![0; more]].concat()));
        }
        for other in [0, 24, 40, 1408] {
            lengths.push(from_network(frame(kind, &good, &vec![7; other])));
        }
    }
    lengths.extend([
        changed(16, &[0, 0], true),
        changed(38, &[0, 0], true),
        changed(17, &[0x7b], true),
    ]);
    let mut shim = form(Form::Raw);
    shim[15] += 1;
    lengths.push(from_network(shim));

    let foreign = [
        (12, &[0x86, 0xdd][..]),
        (12, &[0x81, 0]),
        (12, &[0x88, 0xa8]),
        (12, &[0x88, 0xb5]),
        (14, &[0x46]),
        (14, &[0x48]),
        (14, &[0x4f]),
        (14, &[0x44]),
        (14, &[0x65]),
        (14, &[0x05]),
        (23, &[6]),
        (20, &[0x20, 0]),
        (20, &[0, 1]),
        (20, &[0x80, 0]),
        (20, &[0x1f, 0xff]),
        (20, &[0, 0]),
        (36, &[0, 53]),
        (42, &[0xb2]),
        (42, &[0xa1]),
        (44, &[0xff]),
        (47, &[0]),
        (0, &[2, 0, 0, 0, 0, 77]),
        (0, &[0xff; 6]),
        (0, &HEARD),
    ];
    let foreign: Vec<_> = foreign
        .into_iter()
        .map(|(at, to)| changed(at, to, true))
        .collect();

    let torn = [
        0, 6, 15, 18, 22, 24, 26, 30, 34, 40, 43, 50, 60, 72, 98, 99, 104, 135,
    ];
    let mut torn: Vec<_> = torn
        .into_iter()
        .map(|at| changed(at, &[0x5a], false))
        .collect();
    torn.push(changed(40, &[0, 0], false));
    let mut sum = form(Form::Udp);
    sum[99] ^= 1;
    let sums = frame_sealed_but_for_its_sum(sum);
    torn.push(from_network(sums));
    for (at, to) in [(16, 1), (17, 1), (50, 1), (80, 0x55), (111, 3)] {
        let mut raw = form(Form::Raw);
        raw[at] ^= to;
        torn.push(from_network(raw));
    }

    let mut fields = Vec::new();
    for kind in Type::ALL {
        for port in [Port::Network, Port::Owner] {
            for (position, flags, reason) in [
                (0, 0, 0),
                (1, 0, 0),
                (0, 4, 0),
                (0, 0x8000, 0),
                (0, 0, 1),
                (0, 8, 0),
            ] {
                let mut header = Header {
                    kind,
                    position,
                    flags,
                    reason,
                    boot: BOOT,
                    ..good
                };
                header.value.counter = 1000 + fields.len() as u64;
                if kind == Type::Submit {
                    (header.slot, header.ballot.0) = (0, 0);
                }
                if kind == Type::Phase2b {
                    header.voted = header.ballot.0;
                }
                fields.push(Event::Frame(port, frame(Form::Udp, &header, &room(33))));
            }
        }
    }
    let values = (0..12).flat_map(|kind| {
        [8, 32, 33, 0xffff].map(|length| {
            let mut header = good;
            (header.value.kind, header.value.length) = (kind, length);
            network(&header, 33)
        })
    });
    let odd = [
        Header { voted: 1, ..good },
        Header {
            slot: 1,
            ..submit(1)
        },
        Header {
            voted: BALLOT + 1,
            ..phase2b(BALLOT, FIRST, 1, 0)
        },
    ];
    let values = values
        .chain(odd.iter().map(|header| network(header, 1)))
        .collect();

    let ask = |number| {
        let mut header = plain(Type::Ask);
        header.value.origin = number;
        owner(&of(program, header))
    };
    let asked = || (0..34).map(ask).chain([ask(u32::MAX)]).collect::<Vec<_>>();
    [
        // A checksum of UDP that comes out as zero is sent as all ones.
        (
            "a sum without a complement",
            vec![whose_checksum_is_zero(program)],
        ),
        ("lengths", lengths),
        ("not ours", foreign),
        ("torn", torn),
        ("fields", fields),
        ("values", values),
    ]
    .map(|(name, events)| case(program, name, [events, asked()].concat()))
    .into()
}

fn frame_sealed_but_for_its_sum(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = [bytes[98], bytes[99]];
    seal(&mut bytes);
    // The sum of the room changes the checksum by as much as it lies.
    let right = u16::from_be_bytes([bytes[98], bytes[99]]);
    bytes[98..100].copy_from_slice(&sum);
    let lies = u16::from_be_bytes(sum);
    let checksum = u16::from_be_bytes([bytes[40], bytes[41]]);
    let wide = u32::from(!checksum) + u32::from(!right) + u32::from(lies);
    let folded = (wide & 0xffff) + (wide >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    let folded = u16::try_from(folded).expect("folded twice");
    bytes[40..42].copy_from_slice(&(!folded).to_be_bytes());
    bytes
}

/// A frame whose answer has a sum without a complement: the origin is chosen so.
fn whose_checksum_is_zero(program: Program) -> Event {
    let mut header = match program {
        Program::Acceptor => phase2a(BALLOT, FIRST + 1, 33),
        Program::Coordinator => submit(33),
    };
    header.value.origin = 0;
    let mut reference = Reference::new(program);
    let mut checksum = 0;
    for event in [ready(program), vec![network(&header, 33)]].concat() {
        let sent = reference.step(&event).expect("the reference has no faults");
        let (_, answer) = sent.first().expect("each of these is answered");
        checksum = u32::from(u16::from_be_bytes([answer[40], answer[41]]));
    }
    // One's complement: a sum to which its own complement is added is all ones.
    header.value.origin = checksum;
    network(&header, 33)
}
