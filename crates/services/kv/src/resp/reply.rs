//! Replies independent of the protocol version, and their rendering as RESP2 or RESP3.
//!
//! The neutral form is RESP3 with three additions. `N` is a null array, which RESP2 distinguishes
//! from null (the reply to an aborted EXEC). `P` is a list of pairs, which are arrays of two in
//! RESP3 and flat in RESP2. `M` is a map that is an array of arrays of two in RESP2. `apply`
//! returns this form, and sessions store it, so it is equal on every node. Frequent replies are the
//! same in both versions and are merely copied.

use std::io::Write as _;

/// Reply to a command that succeeds without a result.
pub const OK: &[u8] = b"+OK\r\n";
pub const NULL: &[u8] = b"_\r\n";
/// Null array, the reply to an aborted EXEC.
pub const NULL_ARRAY: &[u8] = b"N\r\n";
/// Maximum depth of nested arrays.
const DEPTH_MAX: usize = 8;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// In use until `HELLO 3`.
    #[default]
    Resp2,
    /// In use after `HELLO 3`.
    Resp3,
}

/// Writer of replies in neutral form.
#[derive(Debug)]
pub struct Reply<'a>(pub &'a mut Vec<u8>);

impl Reply<'_> {
    pub fn ok(&mut self) {
        self.0.extend_from_slice(OK);
    }

    /// Appends a simple string. The text must not contain CR or LF.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// Appends an error. The text begins with a code in capitals.
    pub fn error(&mut self, text: &str) {
        self.line(b'-', text.as_bytes());
    }

    pub fn integer(&mut self, value: i64) {
        self.number(b':', value);
    }

    pub fn count(&mut self, value: usize) {
        self.integer(i64::try_from(value).unwrap_or(i64::MAX));
    }

    pub fn bulk(&mut self, bytes: &[u8]) {
        self.header(b'$', bytes.len());
        self.0.extend_from_slice(bytes);
        self.0.extend_from_slice(b"\r\n");
    }

    /// Appends a text for human readers, which RESP3 marks as such.
    pub fn verbatim(&mut self, text: &str) {
        self.verbatim_bytes(text.as_bytes());
    }

    pub(crate) fn verbatim_bytes(&mut self, text: &[u8]) {
        self.header(b'=', text.len() + 4);
        self.0.extend_from_slice(b"txt:");
        self.0.extend_from_slice(text);
        self.0.extend_from_slice(b"\r\n");
    }

    pub fn null(&mut self) {
        self.0.extend_from_slice(NULL);
    }

    /// Appends a byte string, or null if there is none.
    pub fn optional(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// Begins an array of `count` replies.
    pub fn array(&mut self, count: usize) {
        self.header(b'*', count);
    }

    /// Begins a map of `count` pairs of replies.
    pub fn map(&mut self, count: usize) {
        self.header(b'%', count);
    }

    /// Begins an unordered set of `count` replies.
    pub fn set(&mut self, count: usize) {
        self.header(b'~', count);
    }

    /// Begins a list of `count` pairs of replies.
    pub fn pairs(&mut self, count: usize) {
        self.header(b'P', count);
    }

    /// Begins a map of `count` pairs of replies, which RESP2 shows as an array of arrays of two.
    pub fn nested_map(&mut self, count: usize) {
        self.header(b'M', count);
    }

    /// Appends a floating-point number, formatted as Redis does.
    pub fn double(&mut self, text: &str) {
        self.line(b',', text.as_bytes());
    }

    pub fn null_array(&mut self) {
        self.0.extend_from_slice(NULL_ARRAY);
    }

    /// Begins a push message of `count` replies. It is outside the order of requests.
    pub fn push(&mut self, count: usize) {
        self.header(b'>', count);
    }

    /// Appends a reply of one line, such as `(` followed by the digits of a big number.
    pub(crate) fn line(&mut self, kind: u8, text: &[u8]) {
        self.0.push(kind);
        // A line break would end the reply and begin another.
        self.0.extend(text.iter().map(|&byte| if byte < b' ' { b' ' } else { byte }));
        self.0.extend_from_slice(b"\r\n");
    }

    fn header(&mut self, kind: u8, count: usize) {
        self.number(kind, i64::try_from(count).unwrap_or(i64::MAX));
    }

    fn number(&mut self, kind: u8, value: i64) {
        if let Ok(digit @ 0..=9) = u8::try_from(value) {
            self.0.extend_from_slice(&[kind, b'0' + digit, b'\r', b'\n']);
        } else {
            write!(self.0, "{}{value}\r\n", char::from(kind)).expect("a vector takes all bytes");
        }
    }
}

/// Appends the rendering of a neutral reply to `out`.
pub fn render(neutral: &[u8], version: Version, out: &mut Vec<u8>) {
    match neutral.first() {
        Some(b'+' | b'-' | b':' | b'$') => out.extend_from_slice(neutral),
        Some(_) => {
            let start = out.len();
            if one(neutral, version, 0, out).is_none() {
                out.truncate(start);
                Reply(out).error("ERR a reply could not be rendered");
            }
        }
        None => Reply(out).error("ERR the service gave no reply"),
    }
}

/// Returns whether the bytes are exactly one complete reply.
pub fn is_whole(neutral: &[u8]) -> bool {
    one(neutral, Version::Resp2, 0, &mut Vec::new()).is_some_and(<[u8]>::is_empty)
}

/// Renders the first reply and returns the bytes after it.
fn one<'a>(
    neutral: &'a [u8],
    version: Version,
    depth: usize,
    out: &mut Vec<u8>,
) -> Option<&'a [u8]> {
    let end = neutral.iter().position(|&byte| byte == b'\n')? + 1;
    let (line, rest) = neutral.split_at(end);
    let text = line.get(1..end.checked_sub(2)?)?;
    let count = || std::str::from_utf8(text).ok()?.parse::<usize>().ok();
    match (line[0], version) {
        (b'+' | b'-' | b':', _) => out.extend_from_slice(line),
        (b'_' | b'#' | b',' | b'(', Version::Resp3) => out.extend_from_slice(line),
        (b'N', Version::Resp3) => out.extend_from_slice(NULL),
        (b'_', Version::Resp2) => out.extend_from_slice(b"$-1\r\n"),
        (b'N', Version::Resp2) => out.extend_from_slice(b"*-1\r\n"),
        (b'#', Version::Resp2) => {
            out.extend_from_slice(if text == b"t" { b":1\r\n" } else { b":0\r\n" });
        }
        (b',' | b'(', Version::Resp2) => Reply(out).bulk(text),
        (b'$', _) | (b'=', Version::Resp3) => {
            let body = rest.get(..count()?.checked_add(2)?)?;
            out.extend_from_slice(line);
            out.extend_from_slice(body);
            return Some(&rest[body.len()..]);
        }
        (b'=', Version::Resp2) => {
            let body = rest.get(..count()?.checked_add(2)?)?;
            Reply(out).bulk(body.get(4..body.len() - 2)?);
            return Some(&rest[body.len()..]);
        }
        (kind @ (b'*' | b'%' | b'~' | b'>' | b'P' | b'M'), _) if depth < DEPTH_MAX => {
            let count = count()?;
            let items =
                count.checked_mul(if matches!(kind, b'%' | b'P' | b'M') { 2 } else { 1 })?;
            let paired = matches!((kind, version), (b'P', Version::Resp3) | (b'M', Version::Resp2));
            match (kind, version) {
                (b'P', Version::Resp3) | (b'M', Version::Resp2) => Reply(out).array(count),
                (b'M', Version::Resp3) => Reply(out).map(count),
                (_, Version::Resp2) => Reply(out).array(items),
                (_, Version::Resp3) => out.extend_from_slice(line),
            }
            let mut rest = rest;
            for item in 0..items {
                if paired && item % 2 == 0 {
                    Reply(out).array(2);
                }
                rest = one(rest, version, depth + 1, out)?;
            }
            return Some(rest);
        }
        _ => return None,
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(build: impl Fn(&mut Reply<'_>)) -> (String, String) {
        let mut neutral = Vec::new();
        build(&mut Reply(&mut neutral));
        let text = |version| {
            let mut out = Vec::new();
            render(&neutral, version, &mut out);
            String::from_utf8(out).unwrap()
        };
        (text(Version::Resp2), text(Version::Resp3))
    }

    fn check(build: impl Fn(&mut Reply<'_>), resp2: &str, resp3: &str) {
        assert_eq!(both(build), (resp2.to_owned(), resp3.to_owned()));
    }

    #[test]
    fn replies_are_encoded_for_both_protocol_versions() {
        check(|r| r.ok(), "+OK\r\n", "+OK\r\n");
        check(|r| r.error("ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n");
        check(|r| r.integer(-12), ":-12\r\n", ":-12\r\n");
        check(|r| r.integer(9), ":9\r\n", ":9\r\n");
        check(|r| r.bulk(b"a\nb"), "$3\r\na\nb\r\n", "$3\r\na\nb\r\n");
        check(|r| r.null(), "$-1\r\n", "_\r\n");
        check(|r| r.0.extend_from_slice(NULL_ARRAY), "*-1\r\n", "_\r\n");
        check(|r| r.verbatim("hi"), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n");
        check(
            |r| {
                r.array(3);
                r.null();
                r.bulk(b"x\r\ny");
                r.array(0);
            },
            "*3\r\n$-1\r\n$4\r\nx\r\ny\r\n*0\r\n",
            "*3\r\n_\r\n$4\r\nx\r\ny\r\n*0\r\n",
        );
        check(
            |r| {
                r.map(1);
                r.simple("k");
                r.integer(1);
            },
            "*2\r\n+k\r\n:1\r\n",
            "%1\r\n+k\r\n:1\r\n",
        );
        check(
            |r| {
                r.push(2);
                r.bulk(b"message");
                r.null();
            },
            "*2\r\n$7\r\nmessage\r\n$-1\r\n",
            ">2\r\n$7\r\nmessage\r\n_\r\n",
        );
        check(
            |r| {
                r.array(2);
                r.pairs(2);
                for member in [b"a", b"b"] {
                    r.bulk(member);
                    r.double("1.5");
                }
                r.null_array();
            },
            "*2\r\n*4\r\n$1\r\na\r\n$3\r\n1.5\r\n$1\r\nb\r\n$3\r\n1.5\r\n*-1\r\n",
            "*2\r\n*2\r\n*2\r\n$1\r\na\r\n,1.5\r\n*2\r\n$1\r\nb\r\n,1.5\r\n_\r\n",
        );
        check(
            |r| {
                r.nested_map(2);
                r.bulk(b"a");
                r.array(1);
                r.integer(1);
                r.bulk(b"b");
                r.null();
            },
            "*2\r\n*2\r\n$1\r\na\r\n*1\r\n:1\r\n*2\r\n$1\r\nb\r\n$-1\r\n",
            "%2\r\n$1\r\na\r\n*1\r\n:1\r\n$1\r\nb\r\n_\r\n",
        );
        check(
            |r| {
                r.set(1);
                r.bulk(b"a");
            },
            "*1\r\n$1\r\na\r\n",
            "~1\r\n$1\r\na\r\n",
        );
        check(|r| r.line(b'(', b"-12"), "$3\r\n-12\r\n", "(-12\r\n");
        check(|r| r.0.extend_from_slice(b"#t\r\n"), ":1\r\n", "#t\r\n");
        check(|r| r.0.extend_from_slice(b",1.5\r\n"), "$3\r\n1.5\r\n", ",1.5\r\n");
    }

    #[test]
    fn malformed_reply_is_rendered_as_an_error() {
        for bad in [&b""[..], b"*2\r\n:1\r\n", b"*1\r\n$9\r\nx\r\n", b"?", b"*99999999999999\r\n"] {
            let mut out = Vec::new();
            render(bad, Version::Resp2, &mut out);
            assert!(out.windows(5).any(|window| window == b"-ERR "), "{out:?}");
        }
    }
}
