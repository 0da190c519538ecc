//! Writer's side of both byte stream protocols, as bytes without sockets.

use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
};

use quorate_wire::streams::{
    Answer, Ask, BODY_BYTES_MAX, Found, How, VERSION, data_head, decode_answer,
};

/// Length of an acknowledgement at the raw port, in bytes.
const COUNT_BYTES: usize = 4;

/// A protocol for writing byte streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speech {
    /// Protocol of `--stream`, with frames in both directions.
    Framed,
    /// Protocol of `--stream-raw`. The client sends bytes, and the node returns numbers of newly
    /// durable bytes.
    Raw,
}

/// A message that a node sent to a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeMessage {
    /// Length of the encoded message, in bytes.
    pub used: usize,
    /// Position up to which all bytes of the stream are durable.
    pub position: u64,
    /// Set if the stream is closed, so that no more messages follow.
    pub closed: bool,
}

impl Speech {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Framed => "framed",
            Self::Raw => "raw",
        }
    }

    pub fn write(self, bytes: usize) -> Vec<u8> {
        let body = vec![b'x'; bytes];
        match self {
            Self::Raw => body,
            Self::Framed => {
                let frame = |part: &[u8]| [&data_head(part.len())[..], part].concat();
                body.chunks(BODY_BYTES_MAX).flat_map(frame).collect()
            }
        }
    }

    /// Opens a new stream and waits for the confirmation. At the raw port, the connection itself is
    /// the stream and has no name.
    pub fn open(self, socket: &mut TcpStream, name: &str, writer: u128) -> io::Result<()> {
        if self == Self::Raw {
            return Ok(());
        }
        let mut asked = Vec::new();
        Ask::Hello { version: VERSION }.encode(&mut asked);
        let how = How::Create;
        Ask::Open { how, writer, name }.encode(&mut asked);
        socket.write_all(&asked)?;
        expect(socket, |answer| matches!(answer, Answer::Welcome { .. }))?;
        expect(socket, |answer| *answer == Answer::Opened { position: 0 })
    }

    /// Decodes the message at the start of the input. `durable` is the durable position before it.
    /// Returns `None` if the message is incomplete.
    pub fn hear(self, input: &[u8], durable: u64) -> Result<Option<NodeMessage>, String> {
        if self == Self::Raw {
            let count = input.first_chunk::<COUNT_BYTES>();
            return Ok(count.map(|count| NodeMessage {
                used: COUNT_BYTES,
                position: durable.saturating_add(u32::from_le_bytes(*count).into()),
                closed: false,
            }));
        }
        let (answer, used) = match decode_answer(input) {
            Ok(Found::Frame(answer, used)) => (answer, used),
            Ok(Found::NeedMore(_)) => return Ok(None),
            Err(malformed) => return Err(malformed.to_string()),
        };
        let (position, closed) = match answer {
            Answer::Durable { position } => (position, false),
            Answer::Closed { position } => (position, true),
            other => return Err(format!("a writer was told {other:?}")),
        };
        Ok(Some(NodeMessage { used, position, closed }))
    }

    /// Signals that no more bytes follow, which closes the stream.
    pub fn close(self, socket: &mut TcpStream) -> io::Result<()> {
        match self {
            Self::Raw => socket.shutdown(std::net::Shutdown::Write),
            Self::Framed => {
                let mut asked = Vec::new();
                Ask::Close { finish: true }.encode(&mut asked);
                socket.write_all(&asked)
            }
        }
    }
}

/// Reads the next answer and fails unless it is the expected one.
fn expect(socket: &mut TcpStream, wanted: impl FnOnce(&Answer<'_>) -> bool) -> io::Result<()> {
    let malformed = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut frame = Vec::new();
    loop {
        match decode_answer(&frame) {
            Ok(Found::NeedMore(missing)) => {
                let have = frame.len();
                frame.resize(have + missing, 0);
                socket.read_exact(&mut frame[have..])?;
            }
            Ok(Found::Frame(answer, _)) if wanted(&answer) => return Ok(()),
            Ok(Found::Frame(answer, _)) => {
                return Err(malformed(format!("the node answered {answer:?}")));
            }
            Err(error) => return Err(malformed(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use quorate_wire::streams::decode_ask;

    use super::*;

    fn said(answer: Answer<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        answer.encode(&mut bytes);
        bytes
    }

    #[test]
    fn write_is_split_into_frames_within_the_limit() {
        for bytes in [1, 14, BODY_BYTES_MAX, BODY_BYTES_MAX + 1] {
            assert_eq!(Speech::Raw.write(bytes).len(), bytes);
            let framed = Speech::Framed.write(bytes);
            let (mut at, mut sum) = (0, 0);
            while at < framed.len() {
                let Ok(Found::Frame(Ask::Data(data), used)) = decode_ask(&framed[at..]) else {
                    panic!("{bytes}: no frame at {at}");
                };
                (at, sum) = (at + used, sum + data.len());
            }
            assert_eq!(sum, bytes);
        }
    }

    #[test]
    fn both_protocols_report_the_durable_position() {
        let heard = |used, position, closed| Ok(Some(NodeMessage { used, position, closed }));
        let durable = said(Answer::Durable { position: 12 });
        assert_eq!(Speech::Framed.hear(&durable, 5), heard(16, 12, false));
        assert_eq!(Speech::Framed.hear(&durable[..15], 5), Ok(None));
        let closed = said(Answer::Closed { position: 12 });
        assert_eq!(Speech::Framed.hear(&closed, 12), heard(16, 12, true));
        assert_eq!(Speech::Raw.hear(&[7, 0, 0, 0, 1], 5), heard(4, 12, false));
        assert_eq!(Speech::Raw.hear(&[7, 0, 0], 5), Ok(None));
    }

    #[test]
    fn end_of_a_writer_is_an_error_with_its_message() {
        let ended = said(Answer::Ended { position: 3 });
        let why = Speech::Framed.hear(&ended, 5).unwrap_err();
        assert!(why.contains("Ended"), "{why}");
    }
}
