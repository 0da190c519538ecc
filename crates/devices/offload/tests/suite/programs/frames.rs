//! Golden bytes, on which decoders in all languages must agree, and hostile bytes.
//!
//! `REWRITE=1 cargo test -p quorate-offload` writes the golden ones again, and the reviewer checks
//! the difference.

use std::{fmt::Write as _, fs, path::PathBuf};

use quorate_offload::{
    Acceptor, Encapsulation, Header, PackedBallot, Port, Reason, Type, Verdict,
    acceptor::ArmParameters,
    checksum::{ones_complement_sum, udp_checksum},
    header::{KEYED, REPEAT},
    link::ETHER_TYPE,
};

use crate::programs::desk::*;

const BALLOT: u64 = 0x0001_0203_0405_0607;

/// Size of each field, in bytes.
const FIELDS: [(&str, usize); 15] = [
    ("magic", 1),
    ("type", 1),
    ("group", 4),
    ("slot", 8),
    ("ballot", 8),
    ("voted", 8),
    ("kind", 1),
    ("reason", 1),
    ("flags", 2),
    ("boot", 4),
    ("origin", 4),
    ("o. boot", 4),
    ("counter", 8),
    ("length", 2),
    ("sum", 2),
];

fn describe(name: &str, form: Encapsulation, frame: &[u8]) -> String {
    let mut text = format!("{name}\n");
    let around: &[(&str, usize)] = match form {
        Encapsulation::Udp => &[("ethernet", 14), ("ip", 20), ("udp", 8)],
        Encapsulation::Raw => &[("ethernet", 14), ("shim", 4)],
    };
    let mut at = 0;
    for (field, bytes) in around.iter().chain(&FIELDS).chain(&[("crc", 4), ("room", ROOM)]) {
        write!(text, "  {at:>4} {field:<8} ").unwrap();
        for byte in &frame[at..at + bytes] {
            write!(text, "{byte:02x}").unwrap();
        }
        text.push('\n');
        at += bytes;
    }
    assert_eq!(at, frame.len());
    text
}

fn samples() -> Vec<(String, Encapsulation, Vec<u8>)> {
    let mut samples = Vec::new();
    let mut add = |name: &str, form, header: &Header, number| {
        samples.push((name.to_owned(), form, frame(form, header, &room(number))));
    };
    let slot = 0x1122_3344_5566_7788;
    add("submit", Encapsulation::Udp, &submit(1), 1);
    add("submit-raw", Encapsulation::Raw, &submit(1), 1);
    add("2a", Encapsulation::Udp, &phase2a(BALLOT, slot, 1), 1);
    let again = Header { flags: REPEAT, ..phase2a(BALLOT, slot, 1) };
    add("2a-again-raw", Encapsulation::Raw, &again, 1);
    add("2b", Encapsulation::Udp, &phase2b(BALLOT, slot, 1, 3), 1);
    let decided = Header { kind: Type::Decided, ..phase2b(BALLOT, slot, 1, 0) };
    add("decided", Encapsulation::Udp, &decided, 1);
    let refused =
        Header { kind: Type::Refused, reason: Reason::Full as u8, boot: BOOT, ..submit(1) };
    add("refused", Encapsulation::Udp, &refused, 1);
    let arm = Header {
        slot,
        ballot: PackedBallot(BALLOT),
        position: 2,
        ..call(Type::Arm, 0x0a0b_0c0d_0e0f_1011)
    };
    add("arm", Encapsulation::Udp, &arm, 0);
    samples
}

#[test]
fn frames_have_their_golden_bytes() {
    let blocks = samples();
    let blocks = blocks.iter().map(|(name, form, frame)| describe(name, *form, frame));
    let actual = blocks.collect::<Vec<_>>().join("\n");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("vectors/frames.txt");
    if std::env::var_os("REWRITE").is_some() {
        fs::write(&path, &actual).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(expected == actual, "vectors/frames.txt differs; REWRITE=1 writes it again\n{actual}");
}

fn acceptor() -> Acceptor<'static> {
    let mut acceptor = Acceptor::new(setup(), routes(FIRST_ROUTE), cells(CELLS));
    acceptor.set_boot(BOOT).unwrap();
    let arm = ArmParameters {
        ballot: PackedBallot(BALLOT),
        position: 1,
        floor: 0,
        votes: routes(FIRST_ROUTE),
    };
    acceptor.arm(number(1), arm).unwrap();
    acceptor
}

fn votes(acceptor: &Acceptor<'_>) -> Vec<u64> {
    let voted = |slot: &u64| acceptor.vote(*slot).is_some();
    (0..CELLS).filter(voted).collect()
}

/// Checks why a changed frame is refused, and that it causes no vote.
fn check(form: Encapsulation, bytes: &[u8], expected: Reason) {
    let mut acceptor = acceptor();
    let (verdict, sent) = step(&mut acceptor, Port::Network, bytes);
    assert_eq!(acceptor.counted(expected), 1, "{expected:?} {form:?} {bytes:02x?}");
    assert_eq!(verdict == Verdict::PassOn, expected.is_passed_on(), "{expected:?}");
    assert!(sent.is_empty() && votes(&acceptor).is_empty());
}

/// [offload-16] A frame in which any bit after the addresses was changed in transit causes no vote,
/// in either form.
#[test]
fn no_bit_of_a_frame_may_change() {
    for form in [Encapsulation::Udp, Encapsulation::Raw] {
        let whole = frame(form, &phase2a(BALLOT, 3, 1), &room(1));
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 0x80 >> (bit % 8);
            let mut acceptor = acceptor();
            let (_, sent) = step(&mut acceptor, Port::Network, &bytes);
            // The sender's hardware address is covered only by the link's own check.
            let source = (48..96).contains(&bit);
            assert_eq!(sent.is_empty(), !source, "{form:?} bit {bit}");
            assert_eq!(votes(&acceptor).is_empty(), !source, "{form:?} bit {bit}");
        }
    }
}

/// [offload-16] A frame is refused unless it is exactly as long as its group's frames.
#[test]
fn every_other_length_is_refused() {
    for form in [Encapsulation::Udp, Encapsulation::Raw] {
        let whole = frame(form, &phase2a(BALLOT, 3, 1), &room(1));
        for length in 0..whole.len() {
            check(form, &whole[..length], Reason::Length);
        }
        for more in [1, 8, 1400] {
            check(form, &[&whole[..], &vec![0; more]].concat(), Reason::Length);
        }
        // A value area of another size, in a frame whose lengths and sums are right.
        for other in [0, 24, 40, 1408] {
            let bytes = frame(form, &phase2a(BALLOT, 3, 1), &vec![7; other]);
            check(form, &bytes, Reason::Length);
        }
        for at in if form == Encapsulation::Udp { &[16, 38][..] } else { &[14] } {
            let mut bytes = whole.clone();
            bytes[at + 1] += 1;
            check(form, &bytes, Reason::Length);
        }
    }
}

#[test]
fn what_is_no_frame_of_the_group_passes() {
    let whole = frame(Encapsulation::Udp, &phase2a(BALLOT, 3, 1), &room(1));
    let changed = |at: usize, to: &[u8]| {
        let mut bytes = whole.clone();
        bytes[at..at + to.len()].copy_from_slice(to);
        bytes
    };
    for (at, to, expected) in [
        (12, &[0x86, 0xdd][..], Reason::Foreign),
        (12, &[0x81, 0x00], Reason::Vlan),
        (12, &[0x88, 0xa8], Reason::Vlan),
        (14, &[0x46], Reason::Options),
        (14, &[0x4f], Reason::Options),
        (14, &[0x44], Reason::Foreign),
        (14, &[0x65], Reason::Foreign),
        (23, &[6], Reason::Foreign),
        (20, &[0x20, 0], Reason::Fragment),
        (20, &[0, 1], Reason::Fragment),
        (20, &[0x80, 0], Reason::Fragment),
        (36, &[0, 53], Reason::Foreign),
        (42, &[0xb2], Reason::Foreign),
        (44, &[0xff], Reason::Group),
        (0, &[2, 0, 0, 0, 0, 77], Reason::Elsewhere),
        (0, &[0xff; 6], Reason::Elsewhere),
        (40, &[0, 0], Reason::Checksum),
        (24, &[0, 0], Reason::Checksum),
    ] {
        check(Encapsulation::Udp, &changed(at, to), expected);
    }
    // The device accepts frames for the group of stations that it belongs to.
    let mut acceptor = acceptor();
    let heard = changed(0, &setup().heard_group);
    assert_eq!(step(&mut acceptor, Port::Network, &heard).1.len(), 2);

    let raw = frame(Encapsulation::Raw, &phase2a(BALLOT, 3, 1), &room(1));
    assert_eq!(raw[12..14], ETHER_TYPE.to_be_bytes());
    let mut none = raw.clone();
    none[16..18].fill(0);
    check(Encapsulation::Raw, &none, Reason::Checksum);
    let mut other = raw.clone();
    other[13] ^= 1;
    check(Encapsulation::Raw, &other, Reason::Foreign);
    let mut torn = raw;
    *torn.last_mut().unwrap() ^= 1;
    check(Encapsulation::Raw, &torn, Reason::Checksum);
}

/// A frame with a wrong value sum is refused even if its checksum is right, because a stored value
/// would later be sent with the wrong sum.
#[test]
fn a_sum_that_lies_is_refused() {
    let mut bytes = frame(Encapsulation::Udp, &phase2a(BALLOT, 3, 1), &room(1));
    bytes[99] ^= 1;
    bytes[40..42].fill(0);
    let length = (bytes.len() - 34).to_be_bytes();
    let pseudo = ones_complement_sum(
        ones_complement_sum(ones_complement_sum(0, &bytes[26..34]), &length),
        &[0, 17],
    );
    let whole = udp_checksum(ones_complement_sum(pseudo, &bytes[34..]));
    bytes[40..42].copy_from_slice(&whole.to_be_bytes());
    check(Encapsulation::Udp, &bytes, Reason::Checksum);

    let mut raw = frame(Encapsulation::Raw, &phase2a(BALLOT, 3, 1), &room(1));
    raw[75] ^= 1;
    raw[16..18].fill(0);
    let whole = udp_checksum(ones_complement_sum(0, &raw[14..]));
    raw[16..18].copy_from_slice(&whole.to_be_bytes());
    check(Encapsulation::Raw, &raw, Reason::Checksum);
}

#[test]
fn fields_without_meaning_are_zero() {
    let good = phase2a(BALLOT, 3, 1);
    let mut long = good;
    long.value.length = 33;
    let mut content = good;
    content.value.kind = 3;
    for (header, expected) in [
        (Header { position: 1, ..good }, Reason::Reserved),
        (Header { voted: 1, ..good }, Reason::Reserved),
        (Header { reason: 1, ..good }, Reason::Reserved),
        (Header { flags: KEYED, ..good }, Reason::Reserved),
        (Header { flags: 0x8000, ..good }, Reason::Reserved),
        (long, Reason::Value),
        (content, Reason::Value),
    ] {
        for form in [Encapsulation::Udp, Encapsulation::Raw] {
            check(form, &frame(form, &header, &room(1)), expected);
        }
    }
}

/// A refusal is sent to a single station or not at all. A sender with a group's address gets no
/// response.
#[test]
fn refusals_go_to_single_stations() {
    let lower = phase2a(BALLOT - 1, 3, 1);
    for (mac, ip) in [(3, 10), (2, 224), (2, 255), (2, 0)] {
        let mut from = address(CLIENT);
        (from.mac[0], from.ip[0]) = (mac, ip);
        let bytes = frame_from(&from, Encapsulation::Udp, &lower, &room(1));
        check(Encapsulation::Udp, &bytes, Reason::Source);
    }
}

/// A slot is in the same cell for either form, and the response has the form of the request.
#[test]
fn both_forms_reach_the_same_cells() {
    let mut acceptor = acceptor();
    for (form, length) in [(Encapsulation::Udp, 136), (Encapsulation::Raw, 112)] {
        let bytes = frame(form, &phase2a(BALLOT, 3, 1), &room(1));
        assert_eq!(bytes.len(), length);
        let mut buffer = vec![0; 17 * bytes.len()];
        let mut out = quorate_offload::OutputFrames::new(&mut buffer);
        acceptor.step(Port::Network, &bytes, &mut out);
        for (_, sent) in out.frames() {
            assert_eq!(Encapsulation::parse(sent, address(0).port), Ok(form));
        }
    }
    assert_eq!((votes(&acceptor), acceptor.counted(Reason::None)), (vec![3], 2));
}
