//! SET and GET commands over the Redis protocol.

use quorate_core::dice::nth_u64;

use super::{Malformed, Protocol};
use crate::load::CommandOutcome;

const KEY_DIGITS: usize = 12;
const LINE_BYTES_MAX: usize = 64 << 10;
const VALUE_BYTES_MAX: usize = 512 << 20;

/// Encoder of a mix of reads and fixed-size writes to uniformly chosen keys.
#[derive(Clone, Debug)]
pub struct RespEncoder {
    set: RequestTemplate,
    get: RequestTemplate,
    key_count: u64,
    reads_percent: u64,
}

/// An encoded request with a placeholder for the digits of the key.
#[derive(Clone, Debug)]
struct RequestTemplate {
    bytes: Vec<u8>,
    digits_offset: usize,
}

impl RequestTemplate {
    fn new(command: &str, value: Option<&[u8]>) -> Self {
        let arguments = 2 + usize::from(value.is_some());
        let key_bytes = "key:".len() + KEY_DIGITS;
        let head =
            format!("*{arguments}\r\n${}\r\n{command}\r\n${key_bytes}\r\nkey:", command.len());
        let mut bytes = head.into_bytes();
        let digits_at = bytes.len();
        bytes.extend_from_slice(&[b'0'; KEY_DIGITS]);
        bytes.extend_from_slice(b"\r\n");
        if let Some(value) = value {
            bytes.extend_from_slice(format!("${}\r\n", value.len()).as_bytes());
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        Self { bytes, digits_offset: digits_at }
    }

    fn write_request(&self, mut key: u64, out: &mut Vec<u8>) {
        let from = out.len() + self.digits_offset;
        out.extend_from_slice(&self.bytes);
        for digit in out[from..from + KEY_DIGITS].iter_mut().rev() {
            *digit = b'0' + u8::try_from(key % 10).expect("below ten");
            key /= 10;
        }
    }
}

impl RespEncoder {
    /// Returns an encoder in which `reads_percent` of the commands are reads and the others write
    /// `value_bytes` bytes.
    pub fn new(value_bytes: usize, keys: u64, reads_percent: u32) -> Self {
        Self {
            set: RequestTemplate::new("SET", Some(&vec![b'x'; value_bytes])),
            get: RequestTemplate::new("GET", None),
            key_count: keys.max(1),
            reads_percent: reads_percent.into(),
        }
    }
}

impl Protocol for RespEncoder {
    fn encode_request(&mut self, number: u64, out: &mut Vec<u8>) {
        let random = nth_u64(number);
        let reads = (random >> 32) % 100 < self.reads_percent;
        let template = if reads { &self.get } else { &self.set };
        template.write_request(random % self.key_count, out);
    }

    fn decode_reply<'a>(
        &self,
        input: &'a [u8],
    ) -> Result<Option<(usize, CommandOutcome<'a>)>, Malformed> {
        let Some(line) = first_line(input)? else {
            return Ok(None);
        };
        let used = line.len() + 2;
        match line.first() {
            Some(b'+' | b':' | b'_') => Ok(Some((used, CommandOutcome::Done))),
            Some(b'-') => Ok(Some((used, CommandOutcome::Error(&line[1..])))),
            Some(b'$') => {
                let value = parse_value_length(&line[1..])?;
                let whole = value.map_or(used, |value| used + value + 2);
                Ok((input.len() >= whole).then_some((whole, CommandOutcome::Done)))
            }
            _ => Err(Malformed("neither a line nor a value")),
        }
    }
}

/// Returns the first line without its terminator; `None` if it is incomplete.
fn first_line(input: &[u8]) -> Result<Option<&[u8]>, Malformed> {
    match input.iter().position(|byte| *byte == b'\n') {
        Some(at) if at > 0 && input[at - 1] == b'\r' => Ok(Some(&input[..at - 1])),
        Some(_) => Err(Malformed("a line without an end")),
        None if input.len() > LINE_BYTES_MAX => Err(Malformed("a very long line")),
        None => Ok(None),
    }
}

/// Parses the length of a value; `None` for a missing value.
fn parse_value_length(digits: &[u8]) -> Result<Option<usize>, Malformed> {
    if digits == b"-1" {
        return Ok(None);
    }
    let text = str::from_utf8(digits).ok();
    let bytes = text.and_then(|text| text.parse().ok());
    match bytes {
        Some(bytes) if bytes <= VALUE_BYTES_MAX => Ok(Some(bytes)),
        _ => Err(Malformed("a bad length")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_follow_the_redis_protocol() {
        let mut protocol = RespEncoder::new(3, 1, 0);
        let mut out = Vec::new();
        protocol.encode_request(5, &mut out);
        let wanted = "*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000000\r\n$3\r\nxxx\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
        let mut out = Vec::new();
        RespEncoder::new(3, u64::MAX, 100).encode_request(5, &mut out);
        assert!(out.starts_with(b"*2\r\n$3\r\nGET\r\n$16\r\nkey:"), "{out:?}");
    }

    #[test]
    fn share_of_reads_is_the_requested_one() {
        let mut protocol = RespEncoder::new(1, 1000, 30);
        let reads = (0..10_000).filter(|number| {
            let mut out = Vec::new();
            protocol.encode_request(*number, &mut out);
            out.starts_with(b"*2")
        });
        let reads = reads.count();
        assert!((2850..3150).contains(&reads), "{reads}");
    }

    #[test]
    fn replies_are_read_when_they_are_complete() {
        let protocol = RespEncoder::new(1, 1, 0);
        for (bytes, answer) in [
            (&b"+OK\r\n"[..], CommandOutcome::Done),
            (b"$-1\r\n", CommandOutcome::Done),
            (b"$3\r\na\nb\r\n", CommandOutcome::Done),
            (b"_\r\n", CommandOutcome::Done),
            (b"-BUSY later\r\n", CommandOutcome::Error(b"BUSY later")),
        ] {
            for cut in 0..bytes.len() {
                assert_eq!(protocol.decode_reply(&bytes[..cut]), Ok(None));
            }
            assert_eq!(protocol.decode_reply(bytes), Ok(Some((bytes.len(), answer))));
        }
    }

    #[test]
    fn garbage_is_refused() {
        let protocol = RespEncoder::new(1, 1, 0);
        for bytes in [&b"hello\r\n"[..], b"+OK\n", b"$x\r\n", b"$-2\r\n", b"$9999999999\r\n"] {
            assert!(protocol.decode_reply(bytes).is_err(), "{bytes:?}");
        }
        assert!(protocol.decode_reply(&vec![b'+'; LINE_BYTES_MAX + 1]).is_err());
    }
}
