//! Frames survive a round trip, and damaged frames are refused.

use std::collections::BTreeSet;

use crate::common::{KINDS, Random, bytes_of};
use quorate_core::{
    ballot::{Ballot, Era},
    level::{Level, Levels},
    message::{Extent, Message, Phase1b},
    node_id::{Member, NodeId},
    record::Class,
    slot::{Slot, SlotRange},
    value::{BatchName, StreamName, Value},
};
use quorate_wire::{
    BODY_BYTES_MAX, DatagramChannel, Datagrams, Decoded, Frame, Hello, Malformed, RefusalCode,
    Unencodable, body_checksum, checksum, decode, decode_parts, encode, encode_logged,
    encode_parts, encoded_len,
    frame::{SNAPSHOT_PIECE_BYTES_MAX, STREAM_PIECE_BYTES_MAX},
    header::{HEADER_BYTES, proposed_end},
    sender_durable_seq,
};

const ROUNDS: u64 = 200;

/// Runs `each` over frames of all kinds.
fn frames(mut each: impl FnMut(&mut Random, Member, &Frame<'_>)) {
    for seed in 0..ROUNDS {
        for kind in 0..KINDS {
            let mut random = Random::new(seed << 8 | kind);
            let payload = random.payload();
            let (from, frame) = random.frame(kind, &payload);
            each(&mut random, from, &frame);
        }
    }
}

/// [lie-1] The log write that a frame reports changes no other field. Frames that depend on records
/// report it, and so does one kind that all nodes send to each other.
#[test]
fn frames_say_how_far_a_log_is() {
    let mut random = Random::new(11);
    let payload = random.payload();
    let mut says = BTreeSet::new();
    for kind in 0..KINDS {
        let (from, frame) = random.frame(kind, &payload);
        let plain = encode_parts(from, &frame).unwrap();
        let header: &[u8; HEADER_BYTES] = &plain.header;
        let silent = sender_durable_seq(header);
        let spoken = encode_logged(from, &frame, u64::MAX - 7, checksum).unwrap();
        assert_eq!(plain.body, spoken.body);
        let (again, read) = decode_parts(&spoken.header, &spoken.body, BODY_BYTES_MAX).unwrap();
        assert_eq!((again, &read), (from, &frame));
        if spoken.header != plain.header {
            assert_eq!((silent, sender_durable_seq(&spoken.header)), (0, u64::MAX - 7));
            says.insert(spoken.header[5]);
        } else {
            assert_eq!(silent, 0);
        }
    }
    assert_eq!(says, BTreeSet::from([16, 17, 19, 20, 21, 22, 30, 33, 37, 52]));
}

/// A node that does not know byte streams, or does not serve them, omits them from its hello.
#[test]
fn a_hello_without_a_word_about_streams_is_understood() {
    let mut random = Random::new(1);
    let (from, frame) = random.frame(0, b"");
    let Frame::Hello(hello) = frame else {
        panic!("{frame:?}");
    };
    let with = bytes_of(from, &frame);
    let silent = Frame::Hello(Hello { stream: "", ..hello });
    let without = bytes_of(from, &silent);
    assert_eq!(with.len() - without.len(), 2 + hello.stream.len());
    let body = &without[HEADER_BYTES..];
    let texts = 2 + hello.client.len() + 2 + hello.admin.len();
    assert_eq!(body.len(), 28 + texts, "it ends behind the admin address");
    let decoded = decode(&without, BODY_BYTES_MAX);
    assert!(matches!(decoded, Ok(Decoded::Frame { frame, .. }) if frame == silent));
}

/// [level-3] A release without feature levels sends and reads a single version, and ignores what
/// this release adds.
#[test]
fn a_hello_says_what_its_sender_supports() {
    let mut random = Random::new(1);
    let (from, frame) = random.frame(0, b"");
    let Frame::Hello(hello) = frame else {
        panic!("{frame:?}");
    };
    let saying = |lowest, newest| {
        let levels = Levels { lowest: Level(lowest), newest: Level(newest) };
        bytes_of(from, &Frame::Hello(Hello { levels, ..hello }))
    };
    let (old, new) = (saying(8, 8), saying(8, 9));
    let differ: Vec<usize> = (0..new.len()).filter(|at| old[*at] != new[*at]).collect();
    // Only the header's checksum and `number` differ.
    assert!(differ.iter().all(|at| (8..12).contains(at) || *at == 112), "{differ:?}");
    for (bytes, lowest, newest) in [(old, 8, 8), (new.clone(), 8, 9)] {
        let Ok(Decoded::Frame { frame: Frame::Hello(said), .. }) = decode(&bytes, BODY_BYTES_MAX)
        else {
            panic!("a hello");
        };
        assert_eq!((said.levels.lowest.0, said.levels.newest.0), (lowest, newest));
    }
    for number in [8_u64, 1, 1 << 16, u64::MAX] {
        let mut odd = new.clone();
        odd[112..120].copy_from_slice(&number.to_le_bytes());
        seal(&mut odd);
        assert!(decode(&odd, BODY_BYTES_MAX).is_err(), "{number}");
    }
}

/// Descriptions of channels are bounded, and have only one valid form.
#[test]
fn what_is_said_of_datagrams_is_looked_at_closely() {
    let channel = |channel| DatagramChannel { channel, is_unicast: true, next: 9 };
    let said = |count: u8| {
        Frame::Datagrams(Datagrams {
            boot: 3,
            address: "h:1",
            key: 255,
            channels: (0..count).map(channel).collect(),
        })
    };
    let bytes = bytes_of(Member::first(1), &said(16));
    assert!(
        matches!(decode(&bytes, BODY_BYTES_MAX), Ok(Decoded::Frame { frame, .. }) if frame == said(16))
    );
    let too_many = encode(Member::first(1), &said(17), &mut Vec::new());
    assert_eq!(too_many, Err(Unencodable::TooLong));
    let refused = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut body = bytes_of(Member::first(1), &said(1))[HEADER_BYTES..].to_vec();
        change(&mut body);
        let mut header: [u8; HEADER_BYTES] = bytes[..HEADER_BYTES].try_into().unwrap();
        header[12..16].copy_from_slice(&u32::try_from(body.len()).unwrap().to_le_bytes());
        header[16..20].copy_from_slice(&checksum(&body).to_le_bytes());
        let check = crc32c::crc32c_append(crc32c::crc32c(&header[..8]), &header[12..]);
        header[8..12].copy_from_slice(&check.to_le_bytes());
        decode(&[&header[..], &body].concat(), BODY_BYTES_MAX).is_err()
    };
    assert!(!refused(&|_| {}), "as it was sent");
    assert!(refused(&|body| body[6] = 2), "neither one nor all");
    assert!(refused(&|body| body[7] = 1), "what is not used is zero");
    assert!(refused(&|body| body.truncate(body.len() - 1)), "a channel without its end");
    assert!(refused(&|body| body.extend([0; 16 * 16])), "seventeen");
    assert!(refused(&|body| body[0] = 200), "a text beyond the end");
}

#[test]
fn a_proposals_header_says_how_far_it_goes() {
    frames(|_, from, frame| {
        let bytes = bytes_of(from, frame);
        assert_eq!(proposed_end(&bytes[..HEADER_BYTES - 1]), None, "cut off");
        let expected = match frame {
            Frame::Protocol { message: Message::Phase2a(proposal), .. } => Some(proposal.range.to),
            _ => None,
        };
        assert_eq!(proposed_end(&bytes), expected);
    });
}

#[test]
fn every_frame_comes_back_as_it_was_sent() {
    frames(|_, from, frame| {
        let mut bytes = vec![7; 3];
        encode(from, frame, &mut bytes).unwrap();
        assert_eq!(bytes.len(), 3 + encoded_len(frame));
        bytes.extend([9; 5]); // what follows is not touched
        let used = encoded_len(frame);
        let expected = Decoded::Frame { from, frame: frame.clone(), used_bytes: used };
        assert_eq!(decode(&bytes[3..], BODY_BYTES_MAX), Ok(expected));
    });
}

/// A plane may transmit header and body by different paths.
#[test]
fn a_frame_in_two_parts_is_the_same_frame() {
    frames(|_, from, frame| {
        let bytes = bytes_of(from, frame);
        let parts = encode_parts(from, frame).unwrap();
        assert_eq!(parts.bytes(), bytes.len());
        assert_eq!([&parts.header[..], &parts.body[..]].concat(), bytes);
        assert_eq!(body_checksum(&parts.header), checksum(&parts.body));
        let decoded = decode_parts(&parts.header, &parts.body, BODY_BYTES_MAX);
        assert_eq!(decoded, Ok((from, frame.clone())));
        if let Some((last, less)) = parts.body.split_last() {
            let short = decode_parts(&parts.header, less, BODY_BYTES_MAX);
            assert_eq!(short, Err(Malformed::Field("body_length")));
            let other = [less, &[last ^ 1]].concat();
            let damaged = decode_parts(&parts.header, &other, BODY_BYTES_MAX);
            assert_eq!(damaged, Err(Malformed::BodyCheck));
            let bound = parts.body.len() - 1;
            let long = decode_parts(&parts.header, &parts.body, bound);
            assert!(matches!(long, Err(Malformed::TooLong { .. })));
        }
    });
}

#[test]
fn a_frame_cut_anywhere_asks_for_more_and_never_for_too_much() {
    frames(|random, from, frame| {
        let bytes = bytes_of(from, frame);
        for cut in (0..bytes.len()).step_by(1 + usize::try_from(random.below(7)).unwrap()) {
            match decode(&bytes[..cut], BODY_BYTES_MAX) {
                Ok(Decoded::NeedMore(more)) => {
                    assert!(more >= 1 && cut + more <= bytes.len(), "cut {cut}, more {more}");
                }
                other => panic!("cut {cut}: {other:?}"),
            }
        }
    });
}

#[test]
fn every_single_bit_flip_is_caught() {
    for kind in 0..KINDS {
        let mut random = Random::new(kind);
        let (from, frame) = random.frame(kind, b"some bytes");
        let mut bytes = bytes_of(from, &frame);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            // The result is not even `NeedMore`, because a damaged length must not make a receiver
            // wait.
            assert!(decode(&bytes, BODY_BYTES_MAX).is_err(), "kind {kind}, bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

/// Mutations with valid checksums are frames that a faulty or hostile peer could send. Any accepted
/// frame must be one that this side could have sent.
#[test]
fn mutations_with_valid_checksums_never_panic_and_never_yield_a_frame_that_cannot_be_sent() {
    let mut taken = 0;
    frames(|random, from, frame| {
        let whole = bytes_of(from, frame);
        for _ in 0..8 {
            let mut bytes = whole.clone();
            for _ in 0..=random.below(3) {
                let at = usize::try_from(random.below(bytes.len() as u64)).unwrap();
                bytes[at] = u8::try_from(random.word() & 255).unwrap();
            }
            if random.below(4) == 0 {
                bytes.truncate(bytes.len() - usize::try_from(random.below(60)).unwrap());
                let length = u32::try_from(bytes.len().saturating_sub(HEADER_BYTES)).unwrap();
                bytes[12..16].copy_from_slice(&length.to_le_bytes());
            }
            seal(&mut bytes);
            if let Ok(Decoded::Frame { from, frame, .. }) = decode(&bytes, BODY_BYTES_MAX) {
                taken += 1;
                let again = bytes_of(from, &frame);
                let expected = Decoded::Frame { from, frame, used_bytes: again.len() };
                assert_eq!(decode(&again, BODY_BYTES_MAX), Ok(expected));
            }
        }
    });
    assert!(taken > 1000, "the mutations are too wild to test anything: {taken}");
}

#[test]
fn noise_never_panics() {
    let mut random = Random::new(1);
    for _ in 0..20_000 {
        let mut noise = random.payload();
        noise.extend(random.payload());
        let _ = decode(&noise, BODY_BYTES_MAX);
        if noise.len() >= HEADER_BYTES {
            noise[..4].copy_from_slice(b"QRTE");
            noise[4] = 1;
            seal(&mut noise);
            let _ = decode(&noise, BODY_BYTES_MAX);
        }
    }
}

/// Recomputes both checksums.
fn seal(bytes: &mut [u8]) {
    if bytes.len() < HEADER_BYTES {
        return;
    }
    let length = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    if let Some(body) = bytes[HEADER_BYTES..].get(..length) {
        let check = checksum(body);
        bytes[16..20].copy_from_slice(&check.to_le_bytes());
    }
    let covered: Vec<u8> = [&bytes[..8], &bytes[12..HEADER_BYTES]].concat();
    bytes[8..12].copy_from_slice(&checksum(&covered).to_le_bytes());
}

#[test]
fn a_stranger_is_recognised_by_the_first_wrong_byte() {
    assert_eq!(decode(b"G", 0), Err(Malformed::Magic));
    assert_eq!(decode(b"QRTX", 0), Err(Malformed::Magic));
    assert_eq!(decode(b"QR", 0), Ok(Decoded::NeedMore(HEADER_BYTES - 2)));
}

#[test]
fn another_format_is_told_by_its_number() {
    let frame = Frame::Protocol { message: Message::ReadRequest { id: 1 }, bytes: None };
    let mut bytes = bytes_of(Member::first(1), &frame);
    bytes[4] = 2;
    assert_eq!(decode(&bytes, 0), Err(Malformed::Format(2)));
}

#[test]
fn a_body_above_the_bound_is_refused_before_it_arrives() {
    let frame = Frame::Refused(RefusalCode::Version, "too new");
    let bytes = bytes_of(Member::first(1), &frame);
    let refused = decode(&bytes[..HEADER_BYTES], 6);
    assert_eq!(refused, Err(Malformed::TooLong { length: 7, max: 6 }));
}

/// [value-2] A batch's name is never sent with bytes other than its own.
#[test]
fn bytes_that_are_not_those_of_the_name_are_refused_on_both_sides() {
    let name = BatchName { length: 4, checksum: checksum(b"abcd"), ..BatchName::default() };
    let value = Value::Batch(name);
    let mut out = Vec::new();
    let short = Frame::Forward { value, bytes: b"abc" };
    assert_eq!(encode(Member::first(1), &short, &mut out), Err(Unencodable::BytesMismatch));
    assert!(out.is_empty());

    // Other bytes of the same length are sent, because checking them again would cost a pass per
    // peer. The receiver detects the difference.
    let other = bytes_of(Member::first(1), &Frame::Forward { value, bytes: b"abce" });
    assert_eq!(decode(&other, BODY_BYTES_MAX), Err(Malformed::BodyCheck));

    // They are refused even with a body checksum that matches them.
    let mut sealed = other;
    seal(&mut sealed);
    assert_eq!(decode(&sealed, BODY_BYTES_MAX), Err(Malformed::Field("bytes")));
}

#[test]
fn values_without_bytes_carry_none() {
    let mut out = Vec::new();
    let value = Value::NoOp;
    for frame in [
        Frame::Forward { value, bytes: b"x" },
        Frame::FetchReply { value, bytes: Some(b"") },
        Frame::Protocol { message: Message::ReadRequest { id: 1 }, bytes: Some(b"x") },
    ] {
        let refused = encode(Member::first(1), &frame, &mut out);
        assert_eq!(refused, Err(Unencodable::BytesMismatch), "{frame:?}");
    }
}

#[test]
fn a_frame_that_no_receiver_would_take_is_not_sent() {
    let bytes = vec![0; BODY_BYTES_MAX + 1];
    let name = BatchName { length: u32::try_from(bytes.len()).unwrap(), ..BatchName::default() };
    let mut out = Vec::new();
    let frame = Frame::Forward { value: Value::Batch(name), bytes: &bytes };
    assert_eq!(encode(Member::first(1), &frame, &mut out), Err(Unencodable::TooLong));
    let reason = "x".repeat(2000);
    let frame = Frame::Refused(RefusalCode::Version, &reason);
    assert_eq!(encode(Member::first(1), &frame, &mut out), Err(Unencodable::TooLong));
    assert!(out.is_empty());
}

/// [p1-3] Unordered or overlapping extents would let a candidate miss a vote.
#[test]
fn extents_out_of_order_are_refused() {
    let extent = |from, to| Extent {
        range: SlotRange::new(Slot(from), Slot(to)),
        ballot: Ballot { era: Era(0), round: 1, node: NodeId(1) },
        value: Value::NoOp,
        class: Class::Durable,
    };
    let promise = |extents| Frame::Protocol {
        message: Message::Phase1b(Phase1b {
            ballot: Ballot::ZERO,
            from: Slot(1),
            floor: Slot(1),
            log_start: Slot(1),
            decided_to: Slot(1),
            extents,
        }),
        bytes: None,
    };
    let read = |extents| decode(&bytes_of(Member::first(1), &promise(extents)), 1000).map(drop);
    assert_eq!(read(vec![extent(1, 3), extent(3, 4)]), Ok(()));
    assert_eq!(read(vec![extent(3, 4), extent(1, 3)]), Err(Malformed::Field("extents")));
    assert_eq!(read(vec![extent(1, 3), extent(2, 4)]), Err(Malformed::Field("extents")));
    assert_eq!(read(vec![extent(2, 2)]), Err(Malformed::Field("range")));
    assert_eq!(read(vec![extent(0, 2)]), Err(Malformed::Field("range")));
}

/// The size of a snapshot segment is checked before memory is allocated for it, and its end must
/// fit into 64 bits.
#[test]
fn a_piece_of_a_snapshot_is_bounded() {
    let bytes = vec![7; SNAPSHOT_PIECE_BYTES_MAX + 1];
    let piece =
        |offset, bytes| Frame::SnapshotPiece { at: Slot(9), digest: 1 << 100, offset, bytes };
    let from = Member::first(1);
    let mut out = Vec::new();
    let refused = encode(from, &piece(0, &bytes), &mut out);
    assert_eq!((refused, out.len()), (Err(Unencodable::TooLong), 0));
    let whole = bytes_of(from, &piece(0, &bytes[1..]));
    assert!(decode(&whole, BODY_BYTES_MAX).is_ok());
    // The sender bypasses the encoder and sends one byte more.
    let mut longer = whole[..HEADER_BYTES].to_vec();
    let length = u32::try_from(bytes.len()).expect("a small number");
    longer[12..16].copy_from_slice(&length.to_le_bytes());
    longer[16..20].copy_from_slice(&checksum(&bytes).to_le_bytes());
    let sealed = [&longer[..8], &longer[12..]].concat();
    longer[8..12].copy_from_slice(&checksum(&sealed).to_le_bytes());
    longer.extend_from_slice(&bytes);
    assert_eq!(decode(&longer, BODY_BYTES_MAX), Err(Malformed::Field("body_length")));
    let beyond = bytes_of(from, &piece(u64::MAX - 2, &bytes[..3]));
    assert_eq!(decode(&beyond, BODY_BYTES_MAX), Err(Malformed::Field("offset")));
}

/// A segment of a stream is bounded and never empty, and its last position fits into 64 bits.
#[test]
fn a_piece_of_a_stream_is_bounded() {
    let bytes = vec![7; STREAM_PIECE_BYTES_MAX + 1];
    let piece =
        |position, bytes| Frame::StreamBytes { stream: StreamName::default(), position, bytes };
    let from = Member::first(1);
    let refused = encode(from, &piece(0, &bytes), &mut Vec::new());
    assert_eq!(refused, Err(Unencodable::TooLong));
    let read = |frame| decode(&bytes_of(from, &frame), BODY_BYTES_MAX).map(drop);
    assert_eq!(read(piece(0, &bytes[1..])), Ok(()));
    assert_eq!(read(piece(0, b"")), Err(Malformed::Field("body_length")));
    assert_eq!(read(piece(u64::MAX - 3, b"abc")), Ok(()));
    let beyond = read(piece(u64::MAX - 2, b"abc"));
    assert_eq!(beyond, Err(Malformed::Field("position")));
}

/// Unneeded content belongs to a stream, and has no body.
#[test]
fn needless_content_is_of_a_stream_and_brings_no_bytes() {
    let frame = Frame::Needless { stream: StreamName::default(), below: u64::MAX, from: Slot(7) };
    let bytes = bytes_of(Member::first(1), &frame);
    assert!(decode(&bytes, 0).is_ok());
    let question = Frame::FetchRequest { value: Value::NoOp, slot: Slot(7) };
    let mut other = bytes_of(Member::first(1), &question);
    other[5] = bytes[5];
    let sealed = [&other[..8], &other[12..160]].concat();
    other[8..12].copy_from_slice(&checksum(&sealed).to_le_bytes());
    assert_eq!(decode(&other, 0), Err(Malformed::Field("value")));
}

#[test]
fn a_value_of_one_slot_never_covers_two() {
    let value = Value::AllocateNode { nonce: 1 };
    let range = SlotRange::new(Slot(1), Slot(3));
    let frame = Frame::Protocol { message: Message::Learn { range, value }, bytes: None };
    let bytes = bytes_of(Member::first(1), &frame);
    assert_eq!(decode(&bytes, 0), Err(Malformed::Field("range")));
}

#[test]
fn texts_are_bounded_and_must_be_utf8() {
    let mut random = Random::new(1);
    let (from, hello) = random.frame(0, b"");
    let whole = bytes_of(from, &hello);
    let with_text = |text: &[u8]| {
        let mut bytes = whole[..HEADER_BYTES + 28].to_vec();
        let length = u16::try_from(text.len()).unwrap();
        bytes.extend(length.to_le_bytes());
        bytes.extend(text);
        bytes.extend([0, 0]);
        let length = u32::try_from(bytes.len() - HEADER_BYTES).unwrap();
        bytes[12..16].copy_from_slice(&length.to_le_bytes());
        seal(&mut bytes);
        decode(&bytes, BODY_BYTES_MAX).map(drop)
    };
    assert_eq!(with_text(&[b'x'; 1024]), Ok(()));
    assert_eq!(with_text(&[b'x'; 1025]), Err(Malformed::Field("text")));
    assert_eq!(with_text(&[0xff]), Err(Malformed::Field("text")));
}
