//! Splits an inline request into words and resolves quotes.

use super::arguments::Span;

/// Error for a line whose quotes are unbalanced.
pub(super) struct Unbalanced;

/// Splits a line at blanks. Double quotes support `\n \r \t \b \a \xHH`, and single quotes only
/// `\'`.
pub(super) fn split(
    line: &[u8],
    words: &mut Vec<u8>,
    spans: &mut Vec<Span>,
) -> Result<(), Unbalanced> {
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

/// Appends the contents of a quoted word. Returns the position after the closing quote.
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

/// Parses two hexadecimal digits.
fn hex(line: &[u8], at: usize) -> Option<u8> {
    let digits = std::str::from_utf8(line.get(at..at + 2)?).ok()?;
    digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then_some(())?;
    u8::from_str_radix(digits, 16).ok()
}
