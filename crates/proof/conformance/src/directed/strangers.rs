//! Directed cases that every program must handle alike: foreign or incomplete frames, header
//! fields, and counters.

use super::*;

/// Returns the cases that every program must handle in the same way: foreign or incomplete frames,
/// header fields, and the counters afterwards.
pub(super) fn strangers(program: Program) -> Vec<Case> {
    let read = |slot| owner_event(&addressed_to(program, slot_request_header(Type::Read, slot)));
    let good = match program {
        Program::Acceptor | Program::Host => phase2a_header(BALLOT, FIRST_SLOT, 33),
        Program::Coordinator => submit_header(33),
    };
    let form = |form| client_frame(form, &good, &filled_room(33));
    let from_network = |bytes: Vec<u8>| Event::Frame(Port::Network, bytes);
    let changed = |at: usize, to: &[u8], sealed: bool| {
        let mut bytes = form(Encapsulation::Udp);
        bytes[at..at + to.len()].copy_from_slice(to);
        if sealed {
            recompute_checksums(&mut bytes);
        }
        from_network(bytes)
    };
    let mut lengths = Vec::new();
    for kind in [Encapsulation::Udp, Encapsulation::Raw] {
        let whole = form(kind);
        lengths.extend((1..whole.len()).map(|length| from_network(whole[..length].to_vec())));
        for more in [1, 8, 1000] {
            lengths.push(from_network([&whole[..], &vec![0; more]].concat()));
        }
        for other in [0, 24, 40, 1408] {
            lengths.push(from_network(client_frame(kind, &good, &vec![7; other])));
        }
    }
    lengths.extend([
        changed(16, &[0, 0], true),
        changed(38, &[0, 0], true),
        changed(17, &[0x7b], true),
    ]);
    let mut shim = form(Encapsulation::Raw);
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
        (0, &LISTEN_ADDRESS),
    ];
    let foreign: Vec<_> = foreign.into_iter().map(|(at, to)| changed(at, to, true)).collect();

    let torn = [0, 15, 18, 22, 24, 26, 30, 34, 40, 43, 50, 60, 72, 98, 99, 104, 135];
    let mut torn: Vec<_> = torn.into_iter().map(|at| changed(at, &[0x5a], false)).collect();
    torn.push(changed(40, &[0, 0], false));
    let mut of_udp = form(Encapsulation::Udp);
    of_udp[99] ^= 1;
    torn.push(from_network(sealed_except_value_sum(of_udp)));
    // The length, the checksum, each field of the header, and the room.
    let of_raw =
        [14, 16, 17, 19, 26, 31, 33, 39, 47, 48, 50, 53, 57, 61, 65, 71, 72, 75, 76, 79, 80, 111];
    for at in of_raw {
        let mut raw = form(Encapsulation::Raw);
        raw[at] ^= 1;
        torn.push(from_network(raw));
    }
    let mut none = form(Encapsulation::Raw);
    none[16..18].fill(0);
    torn.push(from_network(none));
    // The frame's checksum is correct, but the sum of the room is wrong.
    let mut lies = form(Encapsulation::Raw);
    lies[75] ^= 1;
    lies[16..18].fill(0);
    let whole = udp_checksum(ones_complement_sum(0, &lies[14..]));
    lies[16..18].copy_from_slice(&whole.to_be_bytes());
    torn.push(from_network(lies));
    // Only the check of the link covers the source address.
    torn.extend([read(FIRST_SLOT), changed(6, &[0x5a], false)]);

    let mut fields = Vec::new();
    for kind in Type::ALL {
        for port in [Port::Network, Port::Owner] {
            for (position, flags, reason) in
                [(0, 0, 0), (1, 0, 0), (0, 4, 0), (0, 0x8000, 0), (0, 0, 1), (0, 8, 0)]
            {
                let mut header = Header { kind, position, flags, reason, boot: OWNER_BOOT, ..good };
                header.value.counter = 1000 + fields.len() as u64;
                if kind == Type::Submit {
                    (header.slot, header.ballot.0) = (0, 0);
                }
                if kind == Type::Phase2b {
                    header.voted = header.ballot.0;
                }
                fields.push(Event::Frame(
                    port,
                    client_frame(Encapsulation::Udp, &header, &filled_room(33)),
                ));
            }
        }
    }
    let values = (0..12).flat_map(|kind| {
        [8, 32, 33, 0xffff].map(|length| {
            let mut header = good;
            (header.value.kind, header.value.length) = (kind, length);
            network_event(&header, 33)
        })
    });
    let odd = [
        Header { voted: 1, ..good },
        Header { slot: 1, ..submit_header(1) },
        Header { voted: BALLOT + 1, ..phase2b_header(BALLOT, FIRST_SLOT, 1, 0) },
    ];
    let values = values.chain(odd.iter().map(|header| network_event(header, 1))).collect();

    let ask = |number| {
        let mut header = empty_header(Type::Ask);
        header.value.origin = number;
        owner_event(&addressed_to(program, header))
    };
    // All variable bits are ones, so that an error in the last bit of a sum is detected.
    let mut full = addressed_to(program, slot_request_header(Type::Read, u64::MAX));
    (full.ballot.0, full.voted, full.boot) = (u64::MAX, u64::MAX, u32::MAX);
    full.value = Descriptor {
        kind: u8::MAX,
        origin: u32::MAX,
        origin_boot: u32::MAX,
        counter: u64::MAX,
        length: u16::MAX,
        crc: u32::MAX,
    };
    let mut ones = client_frame(Encapsulation::Udp, &full, &[0xff; ROOM_BYTES]);
    ones[26..36].fill(0xff);
    recompute_checksums(&mut ones);

    // Reads the cells and the counters that the case has changed.
    let asked = || {
        let counters = (0..34).map(ask).chain([ask(u32::MAX)]);
        (FIRST_SLOT - 1..FIRST_SLOT + 4).map(read).chain(counters).collect::<Vec<_>>()
    };
    [
        // A checksum of zero is sent as all ones.
        (
            "a sum without a complement",
            [(Encapsulation::Udp, 1, 40), (Encapsulation::Raw, 2, 16)]
                .map(|(form, slot, at)| frame_answered_zero_checksum(program, form, slot, at))
                .into(),
        ),
        ("as many ones as may be", vec![Event::Frame(Port::Owner, ones)]),
        ("lengths", lengths),
        ("not ours", foreign),
        ("torn", torn),
        ("fields", fields),
        ("values", values),
    ]
    .map(|(name, events)| ready_case(program, name, [events, asked()].concat()))
    .into()
}

fn sealed_except_value_sum(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = [bytes[98], bytes[99]];
    recompute_checksums(&mut bytes);
    // Compensate the wrong sum of the room in the checksum.
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

/// Returns a frame whose answer has a checksum of zero. The frame's origin is chosen accordingly.
fn frame_answered_zero_checksum(
    program: Program,
    form: Encapsulation,
    slot: u64,
    at: usize,
) -> Event {
    let mut header = match program {
        Program::Acceptor | Program::Host => phase2a_header(BALLOT, FIRST_SLOT + slot, 33),
        Program::Coordinator => submit_header(33),
    };
    let asks =
        |header: &Header| Event::Frame(Port::Network, client_frame(form, header, &filled_room(33)));
    header.value.origin = 0;
    let mut reference = Reference::new(program);
    let mut checksum = 0;
    // A coordinator assigns a new slot to every submitted value.
    let before = (1..slot).map(|_| network_event(&submit_header(33), 33));
    let before = before.filter(|_| program == Program::Coordinator);
    let events = ready_events(program).into_iter().chain(before);
    for event in events.chain([asks(&header)]) {
        let sent = reference.step(&event).expect("the reference has no faults");
        let (_, answer) = sent.first().expect("each of these is answered");
        checksum = u32::from(u16::from_be_bytes([answer[at], answer[at + 1]]));
    }
    // In one's complement, a sum and its complement add up to all ones.
    header.value.origin = checksum;
    asks(&header)
}
