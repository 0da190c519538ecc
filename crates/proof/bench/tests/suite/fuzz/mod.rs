//! Hostile frames: the corpus of the fuzz target `frames`, and mutations of it.

mod check;

use crate::driver::{self, Seed};
use quorate_bench::{
    frames::{self, CommandStatus},
    introduction::{INTRODUCTION_REQUEST, text},
};
use quorate_wire::frame_clients::{LentName, Request};

/// Returns seeds, each of which has a name, the length of its pieces, and the bytes to send.
fn seeds() -> Vec<Seed> {
    let mut commands = Vec::new();
    for command in [&b"x"[..], b"", &[7; 300]] {
        frames::append_command(command, &mut commands);
    }
    let mut largest = Vec::new();
    frames::append_command(&[b'v'; check::COMMAND_BYTES_MAX], &mut largest);
    let too_long = [&commands[..], &1001_u32.to_le_bytes(), b"rest"].concat();
    let asked = [&commands[..], INTRODUCTION_REQUEST, &commands[..], INTRODUCTION_REQUEST].concat();
    let said = text("0.1.0", "none", "volatile");
    let mut frame = Vec::new();
    frames::append_reply(CommandStatus::Done, said.as_bytes(), &mut frame);
    let mut refused = Vec::new();
    frames::append_reply(CommandStatus::TooBig, &[], &mut refused);
    let bulk = format!("${}\r\n# Server\r\n{said}\r\n", said.len() + 10);
    let name = LentName { origin: 7, boot: 9 };
    let mut by_frames = commands.clone();
    for request in [
        Request::LendName,
        Request::QueryPosition(name),
        Request::Register(name),
        Request::OfferBatch { name, batch_number: 2, bytes: b"batch" },
    ] {
        request.encode(&mut by_frames);
    }
    let seeds = [
        ("by-frames", 6, by_frames),
        ("commands", 0, commands),
        ("largest", 200, largest),
        ("too-long", 3, too_long),
        ("asked", 4, asked),
        ("nearly-asked", 0, b"INFO\r\r".to_vec()),
        ("length-huge", 1, vec![0xff; 8]),
        ("said", 5, frame),
        ("refused", 0, refused),
        ("said-resp", 30, bulk.into_bytes()),
        ("no-password", 1, b"-NOAUTH password\r\n".to_vec()),
        ("length-of-text-huge", 9, b"$18446744073709551615\r\nx".to_vec()),
        ("http", 9, b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
    ];
    let seed = |(name, piece, stream): (&str, u8, Vec<u8>)| Seed {
        name: name.to_owned(),
        bytes: [&[piece], &*stream].concat(),
    };
    seeds.map(seed).into()
}

#[test]
fn no_bytes_of_a_client_or_a_stranger_break_the_frames() {
    driver::run("frames", &seeds(), 20_000, check::check);
}

/// Each seed reaches the code path after which it is named.
#[test]
fn seeds_reach_the_whole_front() {
    let seen = |name: &str| {
        let seed = seeds().into_iter().find(|seed| seed.name == name).unwrap();
        let seen = check::serve(std::iter::once(&seed.bytes[1..]));
        let mut replies = 0;
        let mut rest = &seen.output[..];
        while let frames::ParsedFrame::Frame(reply) = frames::parse_frame(rest, 1000) {
            rest = &rest[frames::LENGTH_BYTES + reply.len()..];
            replies += 1;
        }
        (seen.commands.len(), replies, seen.ended)
    };
    assert_eq!(seen("commands"), (3, 3, false));
    assert_eq!(seen("largest"), (1, 1, false));
    assert_eq!(seen("too-long"), (3, 4, true));
    assert_eq!(seen("asked"), (6, 8, false));
    assert_eq!(seen("nearly-asked"), (0, 1, true));
}
