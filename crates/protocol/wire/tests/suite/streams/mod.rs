//! Protocol of stream clients: golden bytes, bounds, hostile bytes.
//!
//! `REWRITE=1 cargo test -p quorate-wire` rewrites the golden bytes and the corpus, and the
//! difference is the review. A changed line means a changed protocol, which needs a new version.

mod check;

use std::{fmt::Write as _, fs, path::PathBuf};

use crate::driver::{self, Seed};
use quorate_core::{node_id::NodeId, value::StreamName};
use quorate_wire::streams::{
    BODY_BYTES_MAX, CONTROL_BODY_BYTES_MAX, ClientFrame, DecodedFrame, ErrorCode, HEAD_BYTES, Info,
    Malformed, NAME_BYTES_MAX, NodeFrame, OpenMode, PASSWORD_BYTES_MAX, Password, Retention,
    STREAM_BYTES_MAX, TEXT_BYTES_MAX, VERSION, decode_client_frame, decode_node_frame, head,
};

const ASKS: [ClientFrame<'static>; 17] = [
    ClientFrame::Hello { version: VERSION },
    open(OpenMode::Create),
    open(OpenMode::Append),
    open(OpenMode::Takeover),
    open(OpenMode::Continue),
    ClientFrame::Data(b"bytes of a stream"),
    ClientFrame::Data(b""),
    ClientFrame::Close { finish: true },
    ClientFrame::Stat { name: "backup/1" },
    ClientFrame::List { after_name: "" },
    ClientFrame::List { after_name: "backup/1" },
    ClientFrame::Trim { retain_from: 4096, name: "backup/1" },
    ClientFrame::Remove { name: "backup/1" },
    ClientFrame::Read { from: 17, to: u64::MAX, follow: true, name: "backup/1" },
    ClientFrame::Retain {
        keep: Retention { bytes: Some(1 << 30), age_max_ms: Some(604_800_000) },
        name: "backup/1",
    },
    ClientFrame::Retain { keep: Retention { bytes: None, age_max_ms: None }, name: "backup/1" },
    ClientFrame::Login { name: "web", password: Password(b"sesame") },
];

const fn open(how: OpenMode) -> ClientFrame<'static> {
    ClientFrame::Open {
        mode: how,
        writer: 0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100,
        name: "backup/1",
    }
}

const ANSWERS: [NodeFrame<'static>; 14] = [
    NodeFrame::Welcome { version: VERSION, node: NodeId(2), leader: "127.0.0.1:7453" },
    NodeFrame::Welcome { version: VERSION, node: NodeId(1), leader: "" },
    NodeFrame::Opened { position: 17 },
    NodeFrame::Durable { position: 1 << 40 },
    NodeFrame::Closed { position: 17 },
    NodeFrame::Ended { position: u64::MAX - 1 },
    NodeFrame::Info(Info {
        id: 300,
        finished: false,
        open_stream: Some(StreamName { owner: NodeId(2), boot: 5, number: 9 }),
        start: 4096,
        next_position: 8192,
        piece_count: 3,
        created_ms: 1_800_000_000_000,
        retention: Retention { bytes: Some(1 << 30), age_max_ms: None },
        name: "backup/1",
    }),
    NodeFrame::Info(Info {
        id: 301,
        finished: true,
        open_stream: None,
        start: 0,
        next_position: 0,
        piece_count: 1,
        created_ms: 0,
        retention: Retention { bytes: None, age_max_ms: Some(0) },
        name: "empty",
    }),
    NodeFrame::ListEnd,
    NodeFrame::Bytes { position: 17, bytes: b"bytes of a stream" },
    NodeFrame::End { position: 34, finished: true },
    NodeFrame::Done { position: 4096 },
    NodeFrame::Error {
        code: ErrorCode::Trimmed.number(),
        position: 4096,
        detail: "the stream starts at position 4096",
        hint: "read from there",
    },
    NodeFrame::LoginAccepted,
];

fn asked(ask: &ClientFrame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    ask.encode(&mut bytes);
    bytes
}

fn kind(ask: &ClientFrame<'_>) -> u8 {
    asked(ask)[0]
}

fn answered(answer: &NodeFrame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    answer.encode(&mut bytes);
    bytes
}

/// Describes a frame in one block: its contents, head and body.
fn described(says: &str, bytes: &[u8]) -> String {
    let hex = |bytes: &[u8]| {
        bytes.iter().fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").expect("a string takes everything");
            text
        })
    };
    let (head, body) = bytes.split_at(HEAD_BYTES);
    format!("{says}\n  head {}\n  body {}\n", hex(head), hex(body))
}

#[test]
fn frames_have_their_golden_bytes() {
    let asks = ASKS.map(|ask| described(&format!("> {ask:?}"), &asked(&ask)));
    let answers = ANSWERS.map(|answer| described(&format!("< {answer:?}"), &answered(&answer)));
    let actual = [asks.as_slice(), &answers].concat().join("\n");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("vectors/streams.txt");
    if std::env::var_os("REWRITE").is_some() {
        fs::write(&path, &actual).unwrap();
    }
    let expected = fs::read_to_string(path).unwrap();
    assert!(expected == actual, "streams.txt differs; REWRITE=1 writes it again\n{actual}");
}

#[test]
fn every_frame_comes_back_and_no_part_of_one_does() {
    for ask in ASKS {
        let bytes = asked(&ask);
        assert_eq!(decode_client_frame(&bytes), Ok(DecodedFrame::Frame(ask, bytes.len())));
        for cut in 0..bytes.len() {
            let missing = if cut < HEAD_BYTES { HEAD_BYTES } else { bytes.len() } - cut;
            assert_eq!(decode_client_frame(&bytes[..cut]), Ok(DecodedFrame::NeedMore(missing)));
        }
        // The other side never sends this frame.
        assert!(matches!(decode_node_frame(&bytes), Err(Malformed::Kind(_))));
    }
    for answer in ANSWERS {
        let bytes = answered(&answer);
        assert_eq!(decode_node_frame(&bytes), Ok(DecodedFrame::Frame(answer, bytes.len())));
        for cut in 0..bytes.len() {
            let missing = if cut < HEAD_BYTES { HEAD_BYTES } else { bytes.len() } - cut;
            assert_eq!(decode_node_frame(&bytes[..cut]), Ok(DecodedFrame::NeedMore(missing)));
        }
        assert!(matches!(decode_client_frame(&bytes), Err(Malformed::Kind(_))));
    }
}

#[test]
fn the_longest_frames_are_taken_and_one_byte_more_is_not() {
    let data = vec![7; BODY_BYTES_MAX];
    let longest = asked(&ClientFrame::Data(&data));
    assert_eq!(
        decode_client_frame(&longest),
        Ok(DecodedFrame::Frame(ClientFrame::Data(&data), longest.len()))
    );
    let bytes = &data[..STREAM_BYTES_MAX];
    let answer = NodeFrame::Bytes { position: 0, bytes };
    let longest = answered(&answer);
    assert_eq!(longest.len(), HEAD_BYTES + BODY_BYTES_MAX);
    assert_eq!(decode_node_frame(&longest), Ok(DecodedFrame::Frame(answer, longest.len())));
    let name = "x".repeat(NAME_BYTES_MAX);
    let ask = ClientFrame::Stat { name: &name };
    assert!(matches!(decode_client_frame(&asked(&ask)), Ok(DecodedFrame::Frame(..))));

    let password = &data[..PASSWORD_BYTES_MAX];
    let login = ClientFrame::Login { name: &name, password: Password(password) };
    let longest = asked(&login);
    assert_eq!(decode_client_frame(&longest), Ok(DecodedFrame::Frame(login, longest.len())));
    let mut longer = longest;
    longer.push(7);
    let length = u16::try_from(longer.len() - HEAD_BYTES).unwrap();
    longer[4..6].copy_from_slice(&length.to_le_bytes());
    assert_eq!(decode_client_frame(&longer), Err(Malformed::Field("password")));
    // The stated length of the name exceeds the body.
    let short = [kind(&login), 0, 0, 0, 2, 0, 0, 0, 9, b'x'];
    assert_eq!(decode_client_frame(&short), Err(Malformed::Field("length")));

    // The length alone is enough to refuse the frame, although no body has arrived yet.
    for (kind, max) in [
        (asked(&ASKS[5])[0], BODY_BYTES_MAX),
        (answered(&ANSWERS[9])[0], BODY_BYTES_MAX),
        (asked(&ASKS[0])[0], CONTROL_BODY_BYTES_MAX),
        (answered(&ANSWERS[12])[0], CONTROL_BODY_BYTES_MAX),
    ] {
        for length in [max as u32 + 1, u32::MAX] {
            let [a, b, c, d] = length.to_le_bytes();
            let refused = Err(Malformed::TooLong { length, max });
            assert_eq!(head(&[kind, 0, 0, 0, a, b, c, d]), refused);
        }
    }
    let mut longer = asked(&ask);
    longer.push(b'x');
    longer[4..6].copy_from_slice(&256u16.to_le_bytes());
    assert_eq!(decode_client_frame(&longer), Err(Malformed::Field("name")));
}

#[test]
fn a_text_is_cut_to_what_a_frame_takes_and_never_within_a_letter() {
    let long = "ü".repeat(TEXT_BYTES_MAX);
    let bytes = answered(&NodeFrame::Error {
        code: 1,
        position: 0,
        detail: &format!("x{long}"),
        hint: &long,
    });
    let Ok(DecodedFrame::Frame(NodeFrame::Error { detail, hint, .. }, _)) =
        decode_node_frame(&bytes)
    else {
        panic!("{bytes:?}");
    };
    assert_eq!(detail.len(), TEXT_BYTES_MAX - 1);
    assert_eq!(hint.len(), TEXT_BYTES_MAX);
}

#[test]
fn a_password_is_not_shown() {
    let login = ClientFrame::Login { name: "web", password: Password(b"sesame") };
    assert_eq!(format!("{login:?}"), "Login { name: \"web\", password: … }");
}

#[test]
fn a_stranger_is_known_by_its_first_byte() {
    for greeting in [b"GET / HTTP/1.1\r\n".as_slice(), b"*1\r\n", b"QRTE", b"\x16\x03"] {
        let refused = Err(Malformed::Kind(greeting[0]));
        assert_eq!(head(greeting), refused);
        assert_eq!(head(&greeting[..1]), refused);
    }
}

#[test]
fn every_code_has_its_number_and_its_word() {
    let mut words: Vec<String> = ErrorCode::ALL.iter().map(ToString::to_string).collect();
    for code in ErrorCode::ALL {
        assert_eq!(ErrorCode::from_number(code.number()), Some(code));
    }
    words.sort();
    words.dedup();
    assert_eq!(words.len(), ErrorCode::ALL.len());
    assert_eq!(ErrorCode::from_number(0), None);
    assert_eq!(ErrorCode::from_number(u16::MAX), None);
}

#[test]
fn the_page_has_every_code_and_every_bound() {
    let page = include_str!("../../../../../../docs/spec/streams-client.md");
    for code in ErrorCode::ALL {
        let row = format!("| {} | `{code}` |", code.number());
        assert!(page.contains(&row), "the page lacks: {row}");
    }
    for bound in [
        format!("{} KiB", BODY_BYTES_MAX >> 10),
        format!("{CONTROL_BODY_BYTES_MAX} bytes"),
        format!("at most {NAME_BYTES_MAX} bytes"),
        format!("at most {TEXT_BYTES_MAX} bytes"),
        format!("version {VERSION}"),
    ] {
        assert!(page.contains(&bound), "the page lacks: {bound}");
    }
    for (kind, name) in ASKS
        .map(|ask| (asked(&ask)[0], format!("{ask:?}")))
        .into_iter()
        .chain(ANSWERS.map(|answer| (answered(&answer)[0], format!("{answer:?}"))))
    {
        let name = name.split(|c: char| !c.is_alphanumeric()).next().unwrap();
        let row = format!("| {kind:#04x} | `{name}` |");
        assert!(page.contains(&row), "the page lacks: {row}");
    }
}

/// The example on the documentation page matches the protocol, byte by byte.
#[test]
fn the_example_of_the_page_is_what_is_spoken() {
    let page = include_str!("../../../../../../docs/spec/streams-client.md");
    let example = page.split("```").nth(1).expect("an example");
    let (mut asks, mut answers) = (0, 0);
    for line in example.lines().skip(1).filter(|line| !line.is_empty()) {
        let (hex, said) = line[2..].split_once('|').expect("bytes and what they say");
        let bytes: Vec<u8> =
            hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        let frame = match &line[..1] {
            ">" => {
                asks += 1;
                format!("{:?}", decode_client_frame(&bytes).unwrap())
            }
            _ => {
                answers += 1;
                format!("{:?}", decode_node_frame(&bytes).unwrap())
            }
        };
        assert_eq!(frame, format!("Frame({}, {})", said.trim(), bytes.len()));
    }
    assert!(asks > 4 && answers > 4);
}

#[test]
fn no_bytes_of_a_streams_client_break_the_decoder() {
    let name = |side: &str, at: usize, says: String| {
        let word = says.split(|c: char| !c.is_alphanumeric()).next().unwrap();
        format!("{side}{at:02}-{}", word.to_lowercase())
    };
    let asks = ASKS
        .iter()
        .enumerate()
        .map(|(at, ask)| Seed { name: name("ask", at, format!("{ask:?}")), bytes: asked(ask) });
    let answers = ANSWERS.iter().enumerate().map(|(at, answer)| Seed {
        name: name("answer", at, format!("{answer:?}")),
        bytes: answered(answer),
    });
    let seeds: Vec<Seed> = asks.chain(answers).collect();
    driver::run("streams", &seeds, 100_000, check::check);
}
