//! Requests: arrays of bulk strings, or one line of words, taken from a stream bit by bit.
//!
//! The parser works on the caller's bytes and copies none of them. It remembers how far it came,
//! so that a request which arrives in many pieces is looked at once; the caller presents the bytes
//! that were not used up again, with what follows them. Every length is bounded before it is used.

use std::fmt;

pub use super::arguments::Arguments;
use super::{
    arguments::Span,
    integer::parse_integer,
    words::{Unbalanced, split},
};

/// Most arguments of one request.
pub const ARGUMENTS_MAX: usize = 256 * 1024;
/// Longest request of one line.
pub const INLINE_BYTES_MAX: usize = 64 * 1024;
/// Bytes that a request may need beyond those of its arguments: `*`, and `$` with nine digits and
/// two line ends for each.
pub const FRAMING_BYTES_MAX: usize = (ARGUMENTS_MAX + 2) * 14;
/// Longest argument that is skipped rather than taken for garbage, as in Redis.
pub const SKIPPED_BYTES_MAX: usize = 512 * 1024 * 1024;
/// Longest line with a number: a type byte, twenty digits and a sign.
const NUMBER_BYTES_MAX: usize = 24;

/// Bytes that are not RESP. The connection gets one error and is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// The number of arguments is not a number.
    ArgumentCount,
    /// The number of arguments is above [`ARGUMENTS_MAX`].
    TooManyArguments,
    /// The length of an argument is not a number, or too large.
    BulkLength,
    /// An argument starts with another byte than `$`.
    ExpectedBulk(u8),
    /// An argument is not followed by CR LF.
    Unterminated,
    /// A line without an end.
    InlineTooBig,
    /// Quotes that do not match.
    Quotes,
    /// The first message of TLS.
    Tls,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ArgumentCount => write!(f, "invalid multibulk length"),
            Self::TooManyArguments => write!(
                f,
                "invalid multibulk length: a request may have at most {ARGUMENTS_MAX} arguments; split it"
            ),
            Self::BulkLength => write!(f, "invalid bulk length"),
            Self::ExpectedBulk(byte) => {
                write!(f, "expected '$', got '{}'", byte.escape_ascii())
            }
            Self::Unterminated => write!(f, "expected CR LF after an argument"),
            Self::InlineTooBig => write!(f, "too big inline request"),
            Self::Quotes => write!(f, "unbalanced quotes in request"),
            Self::Tls => write!(f, "TLS is not spoken here"),
        }
    }
}

/// Contents of the available bytes.
#[derive(Debug)]
pub enum Parsed<'a> {
    /// The request goes on; `used` bytes are of no further interest.
    Incomplete {
        /// Bytes used up: of a request that is being skipped.
        used: usize,
    },
    /// An empty line or array: nothing to answer.
    Nothing {
        /// Bytes used up.
        used: usize,
    },
    /// A request.
    Request {
        /// Its words.
        arguments: Arguments<'a>,
        /// Bytes used up.
        used: usize,
    },
    /// A request larger than allowed; what is left of it will be skipped without being kept.
    TooBig {
        /// Bytes used up.
        used: usize,
    },
}

/// Expected part of an array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Start,
    Inline,
    Length,
    Body(usize),
}

/// Parser state of one connection's current request.
#[derive(Debug, Default)]
pub struct Parser {
    spans: Vec<Span>,
    /// Words of an inline request, unquoted.
    words: Vec<u8>,
    stage: Stage,
    /// Bytes of the presented input that were understood.
    position: usize,
    arguments_left: usize,
    /// Sum of the lengths of the arguments.
    payload: usize,
    skipping: bool,
}

impl Parser {
    /// Looks for one request at the start of `input`; arguments together may have `bytes_max`
    /// bytes. Always called again with the bytes that were not used up.
    pub fn parse<'a>(
        &'a mut self,
        input: &'a [u8],
        bytes_max: usize,
    ) -> Result<Parsed<'a>, ProtocolError> {
        if self.stage == Stage::Start {
            match input.first() {
                None => return Ok(Parsed::Incomplete { used: 0 }),
                Some(b'*') => match self.array_header(input)? {
                    Some(0) => {
                        return Ok(Parsed::Nothing { used: self.restart() });
                    }
                    Some(_) => {}
                    None => return Ok(Parsed::Incomplete { used: 0 }),
                },
                // A record of its handshake, version 3.x. A line would never end.
                Some(0x16) if input.get(1).is_none_or(|&version| version == 3) => {
                    return match input.len() {
                        1 => Ok(Parsed::Incomplete { used: 0 }),
                        _ => Err(ProtocolError::Tls),
                    };
                }
                Some(_) => self.stage = Stage::Inline,
            }
        }
        if self.stage == Stage::Inline {
            self.inline(input, bytes_max)
        } else {
            self.array(input, bytes_max)
        }
    }

    /// `*<count>`: starts an array.
    fn array_header(&mut self, input: &[u8]) -> Result<Option<usize>, ProtocolError> {
        self.begin();
        let Some(count) = self.number(input, ProtocolError::ArgumentCount)? else {
            return Ok(None);
        };
        let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
        if count > ARGUMENTS_MAX {
            return Err(ProtocolError::TooManyArguments);
        }
        self.arguments_left = count;
        self.stage = Stage::Length;
        Ok(Some(count))
    }

    fn array<'a>(
        &'a mut self,
        input: &'a [u8],
        bytes_max: usize,
    ) -> Result<Parsed<'a>, ProtocolError> {
        while self.arguments_left > 0 {
            match self.stage {
                Stage::Body(length) => {
                    if !self.body(input, length)? {
                        return Ok(Parsed::Incomplete { used: self.skipped() });
                    }
                }
                Stage::Start | Stage::Inline | Stage::Length => {
                    let Some(length) = self.bulk_length(input)? else {
                        return Ok(Parsed::Incomplete { used: self.skipped() });
                    };
                    self.stage = Stage::Body(length);
                    self.payload = self.payload.saturating_add(length);
                    if self.payload > bytes_max && !self.skipping {
                        self.skipping = true;
                        self.spans = Vec::new();
                        return Ok(Parsed::TooBig { used: self.skipped() });
                    }
                }
            }
        }
        let skipped = self.skipping;
        let used = self.restart();
        if skipped {
            return Ok(Parsed::Nothing { used });
        }
        Ok(Parsed::Request { arguments: Arguments::new(input, &self.spans), used })
    }

    /// `$<length>`.
    fn bulk_length(&mut self, input: &[u8]) -> Result<Option<usize>, ProtocolError> {
        match input.get(self.position) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(&other) => return Err(ProtocolError::ExpectedBulk(other)),
        }
        let Some(length) = self.number(input, ProtocolError::BulkLength)? else {
            return Ok(None);
        };
        match usize::try_from(length) {
            Ok(length) if length <= SKIPPED_BYTES_MAX => Ok(Some(length)),
            _ => Err(ProtocolError::BulkLength),
        }
    }

    /// An argument's bytes and the CR LF behind them. False: more is to come.
    fn body(&mut self, input: &[u8], length: usize) -> Result<bool, ProtocolError> {
        let available = input.len() - self.position;
        if self.skipping && length > 0 {
            let taken = length.min(available);
            self.position += taken;
            self.stage = Stage::Body(length - taken);
            return Ok(taken == length);
        }
        let Some(end) = input.get(self.position + length..).and_then(|rest| rest.get(..2)) else {
            return Ok(false);
        };
        if end != b"\r\n" {
            return Err(ProtocolError::Unterminated);
        }
        if !self.skipping {
            self.spans.push(Span { from: self.position, to: self.position + length });
        }
        self.position += length + 2;
        self.arguments_left -= 1;
        self.stage = Stage::Length;
        Ok(true)
    }

    /// A type byte, a number, CR LF. `None`: more is to come, nothing was taken.
    fn number(&mut self, input: &[u8], error: ProtocolError) -> Result<Option<i64>, ProtocolError> {
        let line = &input[self.position + 1..];
        if let Some((number, used)) = short_number(line) {
            self.position += 1 + used;
            return Ok(Some(number));
        }
        let window = &line[..line.len().min(NUMBER_BYTES_MAX)];
        let Some(end) = window.iter().position(|&byte| byte == b'\r') else {
            return if line.len() >= NUMBER_BYTES_MAX { Err(error) } else { Ok(None) };
        };
        match line.get(end + 1) {
            None => Ok(None),
            Some(b'\n') => {
                let number = parse_integer(&line[..end]).ok_or(error)?;
                self.position += 1 + end + 2;
                Ok(Some(number))
            }
            Some(_) => Err(error),
        }
    }

    fn inline<'a>(
        &'a mut self,
        input: &'a [u8],
        bytes_max: usize,
    ) -> Result<Parsed<'a>, ProtocolError> {
        let Some(end) = input[self.position..].iter().position(|&byte| byte == b'\n') else {
            self.position = input.len();
            return match input.len() {
                0..=INLINE_BYTES_MAX => Ok(Parsed::Incomplete { used: 0 }),
                _ => Err(ProtocolError::InlineTooBig),
            };
        };
        let end = self.position + end;
        if end > INLINE_BYTES_MAX {
            return Err(ProtocolError::InlineTooBig);
        }
        let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
        self.begin();
        split(line, &mut self.words, &mut self.spans)
            .map_err(|Unbalanced| ProtocolError::Quotes)?;
        self.restart();
        let used = end + 1;
        if self.words.len() > bytes_max {
            return Ok(Parsed::TooBig { used });
        }
        if self.spans.is_empty() {
            return Ok(Parsed::Nothing { used });
        }
        Ok(Parsed::Request { arguments: Arguments::new(&self.words, &self.spans), used })
    }

    /// Frees memory while no request is read: one with very many arguments must not hold it.
    pub fn rest(&mut self) {
        if self.stage == Stage::Start {
            self.trim();
        }
    }

    /// Bytes of memory that it holds.
    pub const fn held_bytes(&self) -> usize {
        self.spans.capacity() * size_of::<Span>() + self.words.capacity()
    }

    fn trim(&mut self) {
        if self.spans.capacity() > 1024 {
            self.spans = Vec::new();
        }
        if self.words.capacity() > 1024 {
            self.words = Vec::new();
        }
    }

    /// Forgets the arguments of the request before.
    fn begin(&mut self) {
        self.trim();
        self.spans.clear();
        self.words.clear();
        self.payload = 0;
        self.position = 0;
    }

    /// Ends the request; returns how many bytes it took. Its arguments stay until the next begins.
    fn restart(&mut self) -> usize {
        self.stage = Stage::Start;
        self.skipping = false;
        std::mem::take(&mut self.position)
    }

    /// Returns the bytes that are of no further interest while skipping.
    fn skipped(&mut self) -> usize {
        if self.skipping { std::mem::take(&mut self.position) } else { 0 }
    }
}

/// Parses one or two digits and CR LF, as most lengths are; returns the number of bytes, too.
const fn short_number(line: &[u8]) -> Option<(i64, usize)> {
    match *line {
        [ones @ b'0'..=b'9', b'\r', b'\n', ..] => Some(((ones - b'0') as i64, 3)),
        [tens @ b'1'..=b'9', ones @ b'0'..=b'9', b'\r', b'\n', ..] => {
            Some((((tens - b'0') * 10 + (ones - b'0')) as i64, 4))
        }
        _ => None,
    }
}
