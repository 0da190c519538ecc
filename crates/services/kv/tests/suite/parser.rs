//! Requests parsed from a stream: fragments, hostile requests, garbage.

use quorate_kv::resp::request::{ARGUMENTS_MAX, Parsed, Parser, ProtocolError};

use crate::common::{Random, request};

const BYTES_MAX: usize = 1000;

/// Results of parsing a stream in fragments.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    requests: Vec<Vec<Vec<u8>>>,
    too_big: usize,
    error: Option<ProtocolError>,
}

fn parse<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Seen {
    let (mut parser, mut seen, mut held) = (Parser::default(), Seen::default(), Vec::new());
    for piece in pieces {
        held.extend_from_slice(piece);
        loop {
            let used = match parser.parse(&held, BYTES_MAX) {
                Ok(Parsed::Incomplete { used }) => {
                    held.drain(..used);
                    break;
                }
                Ok(Parsed::Nothing { used }) => used,
                Ok(Parsed::TooBig { used }) => {
                    seen.too_big += 1;
                    used
                }
                Ok(Parsed::Request { arguments, used }) => {
                    assert!(!arguments.is_empty());
                    seen.requests.push(arguments.iter().map(<[u8]>::to_vec).collect());
                    used
                }
                Err(error) => {
                    seen.error = Some(error);
                    return seen;
                }
            };
            assert!(used <= held.len(), "uses what is there");
            held.drain(..used);
        }
    }
    seen
}

/// Returns a stream with all kinds of requests.
fn stream() -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(request(&["SET", "key", "value\r\nwith lines"]));
    bytes.extend(b"PING\r\n\r\nset a 'b c'\n*0\r\n*-1\r\n");
    bytes.extend(request(&["", "x", ""]));
    bytes.extend(request(&["SET", &"k".repeat(300), &"v".repeat(900), "after"]));
    bytes.extend(request(&["GET", &"v".repeat(990)]));
    bytes.extend(request(&[&"v".repeat(1001)]));
    bytes.extend(b"ECHO \"\\x41\\n\\\"\" ''\r\n");
    bytes
}

#[test]
fn a_stream_means_the_same_wherever_it_is_cut() {
    let bytes = stream();
    let whole = parse(std::iter::once(&*bytes));
    assert_eq!((whole.requests.len(), whole.too_big, whole.error), (6, 2, None));
    assert_eq!(whole.requests[5], [b"ECHO".to_vec(), b"A\n\"".to_vec(), Vec::new()]);
    for cut in 0..bytes.len() {
        let (left, right) = bytes.split_at(cut);
        assert_eq!(parse([left, right].into_iter()), whole, "cut at {cut}");
    }
    assert_eq!(parse(bytes.chunks(1)), whole);
    assert_eq!(parse(bytes.chunks(7)), whole);
}

#[test]
fn hostile_lengths_are_refused_before_they_are_used() {
    use ProtocolError::{
        ArgumentCount, BulkLength, ExpectedBulk, InlineTooBig, TooManyArguments, Unterminated,
    };
    let too_many = format!("*{}\r\n", ARGUMENTS_MAX + 1);
    let cases: &[(&[u8], ProtocolError)] = &[
        (b"*9223372036854775807\r\n", TooManyArguments),
        (b"*9223372036854775808\r\n", ArgumentCount),
        (b"*+1\r\n", ArgumentCount),
        (b"*01\r\n", ArgumentCount),
        (b"*1\rx", ArgumentCount),
        (b"*11111111111111111111111111111111", ArgumentCount),
        (too_many.as_bytes(), TooManyArguments),
        (b"*1\r\n$-1\r\n", BulkLength),
        (b"*1\r\n$9223372036854775807\r\n", BulkLength),
        (b"*1\r\n$536870913\r\n", BulkLength),
        (b"*1\r\n$\r\n", BulkLength),
        (b"*2\r\n$1\r\nx\r\n:1\r\n", ExpectedBulk(b':')),
        (b"*1\r\n*1\r\n", ExpectedBulk(b'*')),
        (b"*1\r\n$1\r\nxx\r\n", Unterminated),
        (&[b'x'; 70_000], InlineTooBig),
    ];
    for (bytes, error) in cases {
        assert_eq!(parse(std::iter::once(*bytes)).error, Some(*error), "{}", bytes.escape_ascii());
        assert_eq!(parse(bytes.chunks(1)).error, Some(*error), "{}", bytes.escape_ascii());
    }
}

#[test]
fn very_many_arguments_in_single_bytes_take_no_time() {
    // If each byte restarted the parser, this would take 10^11 steps.
    let count = 100_000;
    let bytes = request(&vec![""; count]);
    assert_eq!(parse(bytes.chunks(5)).requests[0].len(), count);
}

#[test]
fn mutated_requests_never_panic_and_never_overrun() {
    let clean = stream();
    let mut random = Random::new(1);
    for _ in 0..20_000 {
        let mut bytes = clean.clone();
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len().max(1));
            if bytes.len() < 2 {
                break;
            }
            match random.below(4) {
                0 => bytes[at] = random.next().to_le_bytes()[0],
                1 => {
                    bytes.remove(at);
                }
                2 => bytes.insert(at, *random.pick(b"$*\r\n0123456789-\"'\\")),
                _ => bytes.truncate(at.max(1)),
            }
        }
        let piece = 1 + random.below(bytes.len().max(1));
        let seen = parse(bytes.chunks(piece));
        for argument in seen.requests.iter().flatten() {
            assert!(argument.len() <= BYTES_MAX);
        }
    }
}
