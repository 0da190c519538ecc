//! The node's introduction, which a client can request in either protocol.
//!
//! The request is the same six bytes in both. The Redis protocol treats them as a command. The log
//! service treats them as a length that no command has, so they cannot be mistaken for one. A node
//! that does not know the request refuses it as too long.

use std::fmt;

use super::frames::{self, ParsedFrame};

/// Error for an answer that is in neither protocol, or violates its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed reply: {}", self.0)
    }
}

/// Request for an introduction, the same in both protocols.
pub const INTRODUCTION_REQUEST: &[u8] = b"INFO\r\n";
/// Maximum size in bytes of an answer. For a longer answer, only the protocol is determined.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Maximum number of bytes in a line of an answer.
const LINE_BYTES_MAX: usize = 4096;
/// Maximum length in bytes of a word that is shown to people.
const WORD_BYTES_MAX: usize = 64;
/// Maximum length of a frame, so that the upper half of a length is zero, unlike in text.
const FRAME_BYTES_MAX: usize = 0xffff;

/// Protocol that a node speaks to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientProtocol {
    /// The log service's frames.
    Frames,
    /// The Redis protocol.
    Resp,
}

/// Parsed introduction of a node. Fields that the node did not report are `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Introduction {
    pub protocol: ClientProtocol,
    /// Durability class: `durable` or `volatile`.
    pub durability: Option<String>,
    pub store: Option<String>,
    pub version: Option<String>,
}

impl Introduction {
    const fn with_protocol(speaks: ClientProtocol) -> Self {
        Self { protocol: speaks, durability: None, store: None, version: None }
    }

    fn parse(speaks: ClientProtocol, text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let field = |name: &str| {
            let mut fields = text.lines().filter_map(|line| line.split_once(':'));
            let (_, value) = fields.find(|(key, _)| *key == name)?;
            is_word(value).then(|| value.to_owned())
        };
        Self {
            protocol: speaks,
            durability: field("quorate_durability")
                .filter(|class| ["durable", "volatile"].contains(&class.as_str())),
            store: field("quorate_store"),
            version: field("quorate_version"),
        }
    }
}

/// Returns whether a value is a plain word, safe to show in reports and on terminals.
fn is_word(value: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-+._".contains(&byte);
    (1..=WORD_BYTES_MAX).contains(&value.len()) && value.bytes().all(plain)
}

/// Returns the introduction of a log service, with the field names of the reply to INFO.
pub fn text(version: &str, store: &str, durability: &str) -> String {
    format!(
        "quorate_version:{version}\r\nquorate_store:{store}\r\nquorate_durability:{durability}\r\n"
    )
}

/// Parses the answer at the start of the input. Returns `None` if more bytes are needed.
pub fn read(input: &[u8]) -> Result<Option<Introduction>, Malformed> {
    let Some((head, _)) = input.split_first_chunk::<4>() else {
        return Ok(None);
    };
    match head {
        [_, _, 0, 0] => parse_framed(input),
        [b'$' | b'=' | b'+' | b'-', ..] => parse_resp(input),
        // A TLS alert: the request was not a TLS hello.
        [0x15, 3, ..] => Err(Malformed("TLS, which this was not asked to speak")),
        _ => Err(Malformed("neither the Redis protocol nor the frames of the log service")),
    }
}

fn parse_framed(input: &[u8]) -> Result<Option<Introduction>, Malformed> {
    match frames::parse_frame(input, FRAME_BYTES_MAX) {
        ParsedFrame::Incomplete => Ok(None),
        ParsedFrame::TooLong => Err(Malformed("a very long frame")),
        ParsedFrame::Frame(&[]) => Err(Malformed("a frame without a status")),
        ParsedFrame::Frame(&[status, ref text @ ..])
            if status == frames::CommandStatus::Done as u8 =>
        {
            Ok(Some(Introduction::parse(ClientProtocol::Frames, text)))
        }
        // The node does not know the request.
        ParsedFrame::Frame(_) => Ok(Some(Introduction::with_protocol(ClientProtocol::Frames))),
    }
}

fn parse_resp(input: &[u8]) -> Result<Option<Introduction>, Malformed> {
    let unknown = Introduction::with_protocol(ClientProtocol::Resp);
    let head = &input[..input.len().min(LINE_BYTES_MAX)];
    let Some(end) = head.iter().position(|byte| *byte == b'\n') else {
        let long = input.len() >= LINE_BYTES_MAX;
        return if long { Ok(Some(unknown)) } else { Ok(None) };
    };
    let Some(line) = head[1..end].strip_suffix(b"\r") else {
        return Err(Malformed("a line without an end"));
    };
    if !b"$=".contains(&input[0]) {
        // An error, such as a request for a password.
        return Ok(Some(unknown));
    }
    let length = str::from_utf8(line).ok().and_then(|text| text.parse().ok());
    let Some(length) = length.filter(|length: &usize| *length <= ANSWER_BYTES_MAX) else {
        return Ok(Some(unknown));
    };
    let text = input[end + 1..].get(..length);
    Ok(text.map(|text| Introduction::parse(ClientProtocol::Resp, text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_service::frames::CommandStatus;

    fn known(speaks: ClientProtocol, durability: &str, store: &str) -> Introduction {
        Introduction {
            protocol: speaks,
            durability: Some(durability.to_owned()),
            store: Some(store.to_owned()),
            version: Some("0.1.0".to_owned()),
        }
    }

    #[test]
    fn introduction_is_parsed_only_when_complete() {
        let text = text("0.1.0", "none", "volatile");
        let mut frame = Vec::new();
        frames::append_reply(CommandStatus::Done, text.as_bytes(), &mut frame);
        let bulk = format!("${}\r\n{text}\r\n", text.len()).into_bytes();
        let verbatim = format!("={}\r\ntxt:\r\n{text}\r\n", text.len() + 6).into_bytes();
        for (speaks, bytes) in [
            (ClientProtocol::Frames, frame),
            (ClientProtocol::Resp, bulk),
            (ClientProtocol::Resp, verbatim),
        ] {
            let whole = known(speaks, "volatile", "none");
            assert_eq!(read(&bytes), Ok(Some(whole.clone())));
            for cut in 0..bytes.len() {
                let part = read(&bytes[..cut]).unwrap();
                assert!(part.is_none_or(|part| part == whole), "{cut}");
            }
        }
    }

    #[test]
    fn server_without_introduction_is_known_by_its_protocol() {
        for (bytes, speaks) in [
            (&[1, 0, 0, 0, CommandStatus::TooBig as u8][..], ClientProtocol::Frames),
            (b"-NOAUTH Authentication required.\r\n", ClientProtocol::Resp),
            (b"$-1\r\n", ClientProtocol::Resp),
            (b"$18446744073709551615\r\n", ClientProtocol::Resp),
            (b"$99999999999999999999999\r\n", ClientProtocol::Resp),
            (b"$18\r\nredis_version:7.0\r\n", ClientProtocol::Resp),
        ] {
            let unknown = Introduction::with_protocol(speaks);
            assert_eq!(read(bytes), Ok(Some(unknown)), "{bytes:?}");
        }
        let endless = vec![b'-'; LINE_BYTES_MAX];
        assert_eq!(read(&endless), Ok(Some(Introduction::with_protocol(ClientProtocol::Resp))));
    }

    #[test]
    fn other_protocols_are_refused() {
        for bytes in
            [&b"HTTP/1.1 400 Bad Request\r\n"[..], &[0, 0, 0, 0], &[0xff; 8], b"$3\nabc\r\n"]
        {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
    }

    /// Only plain words are reported, and a class must be one of the two known classes.
    #[test]
    fn invalid_words_are_reported_as_unknown() {
        for (version, store, class) in [
            ("\x1b[31m", "a b", "maybe"),
            ("", &*"x".repeat(65), "durable "),
            ("1<script>", "\u{fffd}", "Durable"),
        ] {
            let mut frame = Vec::new();
            frames::append_reply(
                CommandStatus::Done,
                text(version, store, class).as_bytes(),
                &mut frame,
            );
            let unknown = Introduction::with_protocol(ClientProtocol::Frames);
            assert_eq!(read(&frame), Ok(Some(unknown)));
        }
    }
}
