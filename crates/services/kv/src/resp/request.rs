//! Incremental parser of requests, which are arrays of bulk strings or lines of words.
//!
//! The parser works on the caller's bytes without copying them. It keeps its progress between
//! calls, so a request that arrives in many reads is parsed once. The caller passes unconsumed
//! bytes again, followed by new ones. Every length is checked before use.

use std::fmt::{self, Write as _};

use super::integer::parse_integer;

pub const ARGUMENTS_MAX: usize = 256 * 1024;
pub const INLINE_BYTES_MAX: usize = 64 * 1024;
/// Maximum framing of a request: `*`, and for each argument `$`, nine digits and two line ends.
pub const FRAMING_BYTES_MAX: usize = (ARGUMENTS_MAX + 2) * 14;
/// Maximum length of an argument that is skipped because it is over the limit. A longer one is a
/// protocol error, as in Redis.
pub const SKIPPED_BYTES_MAX: usize = 512 * 1024 * 1024;
/// Maximum length of a line with a number: type, sign, twenty digits and a line end.
const NUMBER_BYTES_MAX: usize = 24;

/// Error for invalid RESP, sent to the client before the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// The number of arguments is not a valid integer.
    ArgumentCount,
    /// There are more than [`ARGUMENTS_MAX`] arguments.
    TooManyArguments,
    /// The length of an argument is not a valid integer, or is too large.
    BulkLength,
    /// An argument starts with this byte instead of `$`.
    ExpectedBulk(u8),
    /// An argument is not followed by CR LF.
    Unterminated,
    /// An inline request is longer than [`INLINE_BYTES_MAX`].
    InlineTooBig,
    /// An inline request has unbalanced quotes.
    Quotes,
    /// The client started a TLS handshake.
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

/// Range of an argument in the request.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: usize,
    to: usize,
}

/// Arguments of a request. The first is the name of the command.
#[derive(Clone, Copy)]
pub struct Arguments<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Arguments<'a> {
    const fn new(bytes: &'a [u8], spans: &'a [Span]) -> Self {
        Self { bytes, spans }
    }

    /// Returns the number of arguments, including the name.
    pub const fn len(&self) -> usize {
        self.spans.len()
    }

    pub const fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns an argument, or an empty one if `index` is out of range.
    pub fn at(&self, index: usize) -> &'a [u8] {
        self.spans.get(index).map_or(&[], |span| &self.bytes[span.from..span.to])
    }

    /// Returns the arguments after the first `count`.
    pub fn from(&self, count: usize) -> Self {
        Self { bytes: self.bytes, spans: self.spans.get(count..).unwrap_or(&[]) }
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        self.spans.iter().map(move |span| &bytes[span.from..span.to])
    }
}

/// Arguments that were not parsed from a client's bytes.
#[derive(Debug, Default)]
pub(crate) struct Words {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl Words {
    pub(crate) fn set(&mut self, words: &[&[u8]]) {
        self.bytes.clear();
        self.spans.clear();
        for word in words {
            let from = self.bytes.len();
            self.bytes.extend_from_slice(word);
            self.spans.push(Span { from, to: self.bytes.len() });
        }
    }

    pub(crate) fn arguments(&self) -> Arguments<'_> {
        Arguments::new(&self.bytes, &self.spans)
    }
}

impl fmt::Debug for Arguments<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.iter().map(|argument| argument.escape_ascii().to_string()))
            .finish()
    }
}

/// Result of parsing the available bytes.
#[derive(Debug)]
pub enum Parsed<'a> {
    /// More input is needed.
    Incomplete {
        /// Bytes of a skipped request, which the caller may discard.
        used: usize,
    },
    /// An empty line or array, which has no reply.
    Nothing {
        used: usize,
    },
    Request {
        arguments: Arguments<'a>,
        used: usize,
    },
    /// The request exceeds the limit. The rest is skipped without being buffered.
    TooBig {
        used: usize,
    },
}

/// Next expected part of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Start,
    Inline,
    Length,
    Body(usize),
}

/// Parser of a connection's requests.
#[derive(Debug, Default)]
pub struct Parser {
    spans: Vec<Span>,
    /// Unquoted words of an inline request.
    words: Vec<u8>,
    stage: Stage,
    /// Number of input bytes already parsed.
    position: usize,
    arguments_left: usize,
    /// Total length in bytes of the arguments.
    payload: usize,
    skipping: bool,
}

impl Parser {
    /// Parses the request at the start of `input`, whose arguments may have `bytes_max` bytes in
    /// total. Each call passes all bytes that earlier calls have not consumed.
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
                // TLS handshake record, version 3.x. As an inline request, it would never end.
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

    /// Parses `*<count>`.
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

    /// Parses `$<length>`.
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

    /// Parses an argument and its CR LF. Returns `false` if more input is needed.
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

    /// Parses a type byte, a number and CR LF. Returns `None` if more input is needed.
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

    /// Releases the memory left by a request with very many arguments.
    pub fn shrink(&mut self) {
        if self.stage == Stage::Start {
            self.trim();
        }
    }

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

    fn begin(&mut self) {
        self.trim();
        self.spans.clear();
        self.words.clear();
        self.payload = 0;
        self.position = 0;
    }

    /// Ends the request and returns its length. Its arguments stay valid until the next one begins.
    fn restart(&mut self) -> usize {
        self.stage = Stage::Start;
        self.skipping = false;
        std::mem::take(&mut self.position)
    }

    /// Returns the number of bytes of a skipped request that the caller can discard.
    fn skipped(&mut self) -> usize {
        if self.skipping { std::mem::take(&mut self.position) } else { 0 }
    }
}

/// Parses one or two digits and CR LF, the common case. Returns the number and its length in bytes.
const fn short_number(line: &[u8]) -> Option<(i64, usize)> {
    match *line {
        [ones @ b'0'..=b'9', b'\r', b'\n', ..] => Some(((ones - b'0') as i64, 3)),
        [tens @ b'1'..=b'9', ones @ b'0'..=b'9', b'\r', b'\n', ..] => {
            Some((((tens - b'0') * 10 + (ones - b'0')) as i64, 4))
        }
        _ => None,
    }
}

/// Splits a line into words, as for an inline request. Returns `None` if quotes are unbalanced.
pub fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut bytes, mut spans) = (Vec::new(), Vec::new());
    split(line, &mut bytes, &mut spans).ok()?;
    Some(Arguments::new(&bytes, &spans).iter().map(<[u8]>::to_vec).collect())
}

/// Appends a word in quotes, with escapes as in Redis. [`words`] is the inverse.
pub fn quote(word: &[u8], line: &mut String) {
    line.push('"');
    for &byte in word {
        match byte {
            b'"' | b'\\' => line.extend(['\\', char::from(byte)]),
            b'\n' => line.push_str("\\n"),
            b'\r' => line.push_str("\\r"),
            b'\t' => line.push_str("\\t"),
            0x07 => line.push_str("\\a"),
            0x08 => line.push_str("\\b"),
            b' '..=b'~' => line.push(char::from(byte)),
            _ => write!(line, "\\x{byte:02x}").expect("a string takes all text"),
        }
    }
    line.push('"');
}

/// Error for unbalanced quotes.
struct Unbalanced;

/// Splits an inline request at blanks. Double quotes support `\n \r \t \b \a \xHH`, single quotes
/// only `\'`.
fn split(line: &[u8], words: &mut Vec<u8>, spans: &mut Vec<Span>) -> Result<(), Unbalanced> {
    let mut at = 0;
    loop {
        while line.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        if at >= line.len() {
            return Ok(());
        }
        let from = words.len();
        while let Some(&byte) = line.get(at) {
            match byte {
                b'"' | b'\'' => {
                    at = quoted(line, at + 1, byte, words)?;
                    if line.get(at).is_some_and(|next| !next.is_ascii_whitespace()) {
                        return Err(Unbalanced);
                    }
                    break;
                }
                blank if blank.is_ascii_whitespace() => break,
                other => words.push(other),
            }
            at += 1;
        }
        spans.push(Span { from, to: words.len() });
    }
}

/// Appends an unquoted word, and returns the position after its closing quote.
fn quoted(line: &[u8], mut at: usize, quote: u8, words: &mut Vec<u8>) -> Result<usize, Unbalanced> {
    loop {
        match (line.get(at), line.get(at + 1)) {
            (None, _) => return Err(Unbalanced),
            (Some(&byte), _) if byte == quote => return Ok(at + 1),
            (Some(b'\\'), Some(b'x')) if quote == b'"' && hex(line, at + 2).is_some() => {
                words.extend(hex(line, at + 2));
                at += 4;
            }
            (Some(b'\\'), Some(&next)) if quote == b'"' || next == b'\'' => {
                words.push(unescaped(next, quote));
                at += 2;
            }
            (Some(&byte), _) => {
                words.push(byte);
                at += 1;
            }
        }
    }
}

const fn unescaped(byte: u8, quote: u8) -> u8 {
    match (quote, byte) {
        (b'"', b'n') => b'\n',
        (b'"', b'r') => b'\r',
        (b'"', b't') => b'\t',
        (b'"', b'b') => 8,
        (b'"', b'a') => 7,
        _ => byte,
    }
}

fn hex(line: &[u8], at: usize) -> Option<u8> {
    let digits = std::str::from_utf8(line.get(at..at + 2)?).ok()?;
    digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then_some(())?;
    u8::from_str_radix(digits, 16).ok()
}
