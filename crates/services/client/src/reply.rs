//! Replies of the Redis protocol (RESP2), and a parser for partially received ones.

use std::fmt;

const DEPTH_MAX: usize = 8;
/// Maximum length in bytes of a line: a length, a number, a simple string or an error.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Length beyond which a reply is measured before it is copied.
const MEASURE_FIRST_BYTES: usize = 64 << 10;

/// A reply in the Redis protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Simple string, such as `+OK`.
    Simple(String),
    /// Error, such as `-CODE text`.
    Error(String),
    /// Integer, such as `:1`.
    Integer(i64),
    /// Bulk string of arbitrary bytes.
    Bulk(Vec<u8>),
    /// Null: no value.
    Nil,
    /// Array, possibly nested.
    Array(Vec<Self>),
}

impl Reply {
    /// Returns the bytes of a bulk or simple string.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bulk(bytes) => Some(bytes),
            Self::Simple(text) => Some(text.as_bytes()),
            Self::Error(_) | Self::Integer(_) | Self::Nil | Self::Array(_) => None,
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simple(text) | Self::Error(text) => f.write_str(text),
            Self::Integer(number) => number.fmt(f),
            Self::Bulk(bytes) => f.write_str(&String::from_utf8_lossy(bytes)),
            Self::Nil => f.write_str("(nil)"),
            Self::Array(replies) => {
                for (index, reply) in replies.iter().enumerate() {
                    let space = if index > 0 { " " } else { "" };
                    write!(f, "{space}{reply}")?;
                }
                Ok(())
            }
        }
    }
}

/// Error for bytes that are not a reply, or for a reply that is too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Parses the reply at the start of `bytes`. Returns it with its length, or `None` if it is
/// incomplete.
pub(crate) fn parse_reply(
    bytes: &[u8],
    bytes_max: usize,
) -> Result<Option<(Reply, usize)>, Malformed> {
    let read = |copies| {
        let mut reader = Reader { bytes, position: 0, copies_values: copies };
        reader.read_reply(0, bytes_max).map(|reply| (reply, reader.position))
    };
    // A long reply arrives in many pieces: it is copied once, when the last one is there.
    let is_complete =
        if bytes.len() > MEASURE_FIRST_BYTES { read(false).map(|_| ()) } else { Ok(()) };
    match is_complete.and_then(|()| read(true)) {
        Ok(whole) => Ok(Some(whole)),
        Err(ParseError::Malformed(why)) => Err(Malformed(why)),
        Err(ParseError::Incomplete) if bytes.len() > bytes_max => {
            Err(Malformed("the reply is too large"))
        }
        Err(ParseError::Incomplete) => Ok(None),
    }
}

enum ParseError {
    Incomplete,
    Malformed(&'static str),
}

struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
    /// Set if values are copied, unset if they are only measured.
    copies_values: bool,
}

impl Reader<'_> {
    fn read_reply(&mut self, depth: usize, bytes_max: usize) -> Result<Reply, ParseError> {
        if depth > DEPTH_MAX {
            return Err(ParseError::Malformed("arrays are nested too deeply"));
        }
        let (kind, line) = self.read_line()?;
        match kind {
            b'+' => Ok(Reply::Simple(text(line))),
            b'-' => Ok(Reply::Error(text(line))),
            b':' => parse_number(line).map(Reply::Integer),
            b'$' => match parse_length(line, bytes_max)? {
                None => Ok(Reply::Nil),
                Some(length) => self.read_bulk(length).map(Reply::Bulk),
            },
            b'*' => match parse_length(line, bytes_max)? {
                None => Ok(Reply::Nil),
                // The length is untrusted, so no capacity is reserved for it.
                Some(count) => (0..count)
                    .map(|_| self.read_reply(depth + 1, bytes_max))
                    .collect::<Result<_, _>>()
                    .map(Reply::Array),
            },
            _ => Err(ParseError::Malformed("not a reply of the Redis protocol")),
        }
    }

    /// Returns the first byte of the next line, which is its kind, and the rest of the line.
    fn read_line(&mut self) -> Result<(u8, &[u8]), ParseError> {
        let rest = &self.bytes[self.position..];
        let Some(end) = rest.iter().take(LINE_BYTES_MAX).position(|byte| *byte == b'\n') else {
            let long = rest.len() >= LINE_BYTES_MAX;
            return Err(if long {
                ParseError::Malformed("a line is too long")
            } else {
                ParseError::Incomplete
            });
        };
        self.position += end + 1;
        match &rest[..end] {
            [kind, text @ .., b'\r'] => Ok((*kind, text)),
            _ => Err(ParseError::Malformed("a line does not end in CR LF")),
        }
    }

    fn read_bulk(&mut self, length: usize) -> Result<Vec<u8>, ParseError> {
        let rest = &self.bytes[self.position..];
        let Some((body, rest)) = rest.split_at_checked(length) else {
            return Err(ParseError::Incomplete);
        };
        match rest {
            [b'\r', b'\n', ..] => {
                self.position += length + 2;
                Ok(if self.copies_values { body.to_vec() } else { Vec::new() })
            }
            [] | [b'\r'] => Err(ParseError::Incomplete),
            _ => Err(ParseError::Malformed("a value is longer than its length says")),
        }
    }
}

fn text(line: &[u8]) -> String {
    String::from_utf8_lossy(line).into_owned()
}

fn parse_number(line: &[u8]) -> Result<i64, ParseError> {
    let number = std::str::from_utf8(line).ok().and_then(|line| line.parse().ok());
    number.ok_or(ParseError::Malformed("not a number"))
}

/// Parses a length; `None` for -1, the null reply.
fn parse_length(line: &[u8], bytes_max: usize) -> Result<Option<usize>, ParseError> {
    match parse_number(line)? {
        -1 => Ok(None),
        length => match usize::try_from(length) {
            Ok(length) if length <= bytes_max => Ok(Some(length)),
            _ => Err(ParseError::Malformed("the reply is too large")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1 << 20;

    /// Every kind of reply parses when it is complete, and is incomplete at every cut.
    #[test]
    fn replies_are_parsed_only_when_complete() {
        let nested = Reply::Array(vec![Reply::Bulk(b"a\r\nb".to_vec()), Reply::Nil]);
        let cases: [(&[u8], Reply); 6] = [
            (b"+OK\r\n", Reply::Simple("OK".to_owned())),
            (b"-BUSY later\r\n", Reply::Error("BUSY later".to_owned())),
            (b":-7\r\n", Reply::Integer(-7)),
            (b"$-1\r\n", Reply::Nil),
            (b"$0\r\n\r\n", Reply::Bulk(Vec::new())),
            (b"*2\r\n$4\r\na\r\nb\r\n*-1\r\n", nested),
        ];
        for (bytes, reply) in cases {
            assert_eq!(parse_reply(bytes, MAX), Ok(Some((reply, bytes.len()))));
            for cut in 0..bytes.len() {
                assert_eq!(parse_reply(&bytes[..cut], MAX), Ok(None), "cut at {cut} of {bytes:?}");
            }
        }
    }

    #[test]
    fn malformed_and_excessive_replies_are_refused_unallocated() {
        let deep = b"*1\r\n".repeat(20);
        let cases: [&[u8]; 8] = [
            b"HTTP/1.1 400 Bad Request\r\n",
            b":x\r\n",
            b"$-2\r\n",
            b"$99999999999\r\n",
            b"*99999999999\r\n",
            b"$1\r\nabc",
            b"+OK\n",
            &deep,
        ];
        for bytes in cases {
            assert!(parse_reply(bytes, MAX).is_err(), "{:?}", String::from_utf8_lossy(bytes));
        }
        assert!(parse_reply(&vec![b'+'; LINE_BYTES_MAX], MAX).is_err());
    }
}
