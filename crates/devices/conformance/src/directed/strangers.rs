//! What every program must do alike: frames that are not ours, or not whole; fields; counters.

use super::*;

/// What every program must do alike: frames that are not ours, or not whole; control; counters at the end.
pub(super) fn strangers(program: Program) -> Vec<Case> {
    let read = |slot| owner(&of(program, about(Type::Read, slot)));
    let good = match program {
        Program::Acceptor | Program::Host => phase2a(BALLOT, FIRST, 33),
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
        0, 15, 18, 22, 24, 26, 30, 34, 40, 43, 50, 60, 72, 98, 99, 104, 135,
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
    // Nothing but the link's own check covers where it comes from.
    torn.extend([read(FIRST), changed(6, &[0x5a], false)]);

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
    // All bits that may be ones are: sums of them need their last bit.
    let mut full = of(program, about(Type::Read, u64::MAX));
    (full.ballot.0, full.voted, full.boot) = (u64::MAX, u64::MAX, u32::MAX);
    full.value = Descriptor {
        kind: u8::MAX,
        origin: u32::MAX,
        origin_boot: u32::MAX,
        counter: u64::MAX,
        length: u16::MAX,
        crc: u32::MAX,
    };
    let mut ones = frame(Form::Udp, &full, &[0xff; ROOM]);
    ones[26..36].fill(0xff);
    seal(&mut ones);

    // What was written, and what was counted.
    let asked = || {
        let counters = (0..34).map(ask).chain([ask(u32::MAX)]);
        (FIRST - 1..FIRST + 4)
            .map(read)
            .chain(counters)
            .collect::<Vec<_>>()
    };
    [
        // A checksum of UDP that comes out as zero is sent as all ones.
        (
            "a sum without a complement",
            vec![whose_checksum_is_zero(program)],
        ),
        (
            "as many ones as may be",
            vec![Event::Frame(Port::Owner, ones)],
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
        Program::Acceptor | Program::Host => phase2a(BALLOT, FIRST + 1, 33),
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
