//! Properties of the request parser that hold for arbitrary bytes.

use quorate_kv::resp::request::{Parsed, Parser, ProtocolError};

/// Maximum total size in bytes of a request's arguments.
pub(crate) const BYTES_MAX: usize = 1000;

/// Results of parsing a stream of requests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) requests: Vec<Vec<Vec<u8>>>,
    pub(crate) too_big: usize,
    pub(crate) error: Option<ProtocolError>,
}

/// Checks that fragmentation does not change results. The first byte gives the fragment size.
pub(crate) fn check(bytes: &[u8]) {
    let Some((piece, stream)) = bytes.split_first() else {
        return;
    };
    let whole = parse(std::iter::once(stream));
    let pieces = parse(stream.chunks(1 + usize::from(*piece)));
    assert_eq!(pieces, whole, "in pieces of {}", 1 + usize::from(*piece));
    for arguments in &whole.requests {
        let bytes: usize = arguments.iter().map(Vec::len).sum();
        assert!(bytes <= BYTES_MAX, "{bytes} bytes of arguments");
    }
}

/// Feeds the parser as a connection does: unconsumed bytes are passed again.
pub(crate) fn parse<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Seen {
    let (mut parser, mut seen, mut held) = (Parser::default(), Seen::default(), Vec::new());
    for piece in pieces {
        held.extend_from_slice(piece);
        loop {
            let used = match parser.parse(&held, BYTES_MAX) {
                Ok(Parsed::Incomplete { used }) => {
                    assert!(used <= held.len(), "uses what is not there");
                    held.drain(..used);
                    break;
                }
                Ok(Parsed::Nothing { used }) => used,
                Ok(Parsed::TooBig { used }) => {
                    seen.too_big += 1;
                    used
                }
                Ok(Parsed::Request { arguments, used }) => {
                    assert!(!arguments.is_empty() && used > 0);
                    let arguments = arguments.iter().map(<[u8]>::to_vec);
                    seen.requests.push(arguments.collect());
                    used
                }
                Err(error) => {
                    seen.error = Some(error);
                    return seen;
                }
            };
            assert!(used <= held.len(), "uses what is not there");
            held.drain(..used);
        }
    }
    seen
}
