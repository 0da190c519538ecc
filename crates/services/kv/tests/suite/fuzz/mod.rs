//! Hostile requests: the corpus of the fuzz target `resp`, and mutations of it.

mod check;

use crate::driver::{self, Seed};

/// Valid and invalid requests: name, fragment size, bytes.
const REQUESTS: [(&str, u8, &[u8]); 30] = [
    ("ping", 255, b"*1\r\n$4\r\nPING\r\n"),
    ("set", 6, b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalue\r\n"),
    (
        "set-options",
        0,
        b"*6\r\n$3\r\nset\r\n$1\r\nk\r\n$1\r\nv\r\n$2\r\nNX\r\n$2\r\nPX\r\n$4\r\n1500\r\n",
    ),
    ("get", 1, b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n"),
    ("hello", 9, b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n"),
    ("hello-name", 9, b"*4\r\n$5\r\nHELLO\r\n$1\r\n2\r\n$7\r\nSETNAME\r\n$1\r\nx\r\n"),
    ("mget", 3, b"*4\r\n$4\r\nMGET\r\n$1\r\na\r\n$1\r\nb\r\n$0\r\n\r\n"),
    ("mset", 2, b"*5\r\n$4\r\nMSET\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$1\r\n2\r\n"),
    ("incrby", 3, b"*3\r\n$6\r\nINCRBY\r\n$1\r\nn\r\n$20\r\n-9223372036854775808\r\n"),
    ("expire", 3, b"*3\r\n$6\r\nEXPIRE\r\n$1\r\nn\r\n$2\r\n60\r\n"),
    ("transaction", 4, b"*1\r\n$5\r\nMULTI\r\n*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n*1\r\n$4\r\nEXEC\r\n"),
    ("watch", 4, b"*2\r\n$5\r\nWATCH\r\n$1\r\nk\r\n*1\r\n$7\r\nDISCARD\r\n"),
    (
        "scan",
        7,
        b"*6\r\n$4\r\nSCAN\r\n$1\r\n0\r\n$5\r\nMATCH\r\n$2\r\na*\r\n$5\r\nCOUNT\r\n$2\r\n10\r\n",
    ),
    ("session", 7, b"*3\r\n$7\r\nQUORATE\r\n$7\r\nSESSION\r\n$16\r\n00000000000000aa\r\n"),
    ("sequence", 7, b"*5\r\n$7\r\nQUORATE\r\n$3\r\nSEQ\r\n$1\r\n1\r\n$4\r\nINCR\r\n$1\r\nn\r\n"),
    ("binary", 5, b"*3\r\n$3\r\nSET\r\n$4\r\n\x00\xff\r\n\r\n$5\r\n$1\r\nx\r\n"),
    ("inline", 255, b"PING\r\n"),
    ("inline-newline", 0, b"set a 1\nget a\n"),
    ("inline-quotes", 2, b"ECHO \"\\x41\\n\\\"\" '' 'it\\'s'\r\n"),
    ("inline-unbalanced", 2, b"ECHO \"a\r\n"),
    ("empty", 1, b"\r\n*0\r\n*-1\r\n\n"),
    (
        "pipeline",
        10,
        b"*1\r\n$4\r\nPING\r\nPING\r\n*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n*1\r\n$4\r\nQUIT\r\n",
    ),
    ("cut", 3, b"*3\r\n$3\r\nSET\r\n$3\r\nke"),
    ("too-large", 200, b"*2\r\n$3\r\nGET\r\n$1001\r\n"),
    ("count-huge", 0, b"*9223372036854775807\r\n"),
    ("count-text", 1, b"*+1\r\n"),
    ("length-negative", 1, b"*1\r\n$-1\r\n"),
    ("length-huge", 1, b"*1\r\n$536870913\r\n"),
    ("not-a-bulk", 1, b"*2\r\n$1\r\nx\r\n:1\r\n"),
    ("unterminated", 1, b"*1\r\n$1\r\nxx\r\n"),
];

fn seeds() -> Vec<Seed> {
    let seed = |(name, piece, stream): &(&str, u8, &[u8])| Seed {
        name: (*name).to_owned(),
        bytes: [&[*piece], *stream].concat(),
    };
    let mut seeds: Vec<Seed> = REQUESTS.iter().map(seed).collect();
    // The first request is too large and is skipped; the next one is parsed.
    let large = "v".repeat(check::BYTES_MAX);
    let text = format!("*2\r\n$3\r\nGET\r\n$1000\r\n{large}\r\n*1\r\n$4\r\nPING\r\n");
    seeds.push(Seed { name: "skipped".to_owned(), bytes: [&[99], text.as_bytes()].concat() });
    seeds
}

#[test]
fn no_bytes_of_a_client_break_the_parser() {
    driver::run("resp", &seeds(), 100_000, check::check);
}

/// The seeds cover the whole parser, as most of them are valid requests.
#[test]
fn seeds_reach_the_whole_parser() {
    let seen: Vec<_> =
        seeds().iter().map(|seed| check::parse(std::iter::once(&seed.bytes[1..]))).collect();
    let requests: usize = seen.iter().map(|seen| seen.requests.len()).sum();
    let refused = seen.iter().filter(|seen| seen.error.is_some()).count();
    let too_big: usize = seen.iter().map(|seen| seen.too_big).sum();
    assert_eq!((requests, refused, too_big), (28, 7, 2));
}
