//! Writer's side of both byte stream protocols, as bytes without sockets.

use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
};

use quorate_wire::streams::{
    BODY_BYTES_MAX, ClientFrame, DecodedFrame, NodeFrame, OpenMode, VERSION, data_head,
    decode_node_frame,
};

/// Length of an acknowledgement at the raw port, in bytes.
const ACKNOWLEDGEMENT_BYTES: usize = 4;

/// A protocol for writing byte streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamProtocol {
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
    pub encoded_bytes: usize,
    /// Position up to which all bytes of the stream are durable.
    pub durable_to: u64,
    /// Set if the stream is closed, so that no more messages follow.
    pub is_closed: bool,
}

impl StreamProtocol {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Framed => "framed",
            Self::Raw => "raw",
        }
    }

    pub fn encode_write(self, bytes: usize) -> Vec<u8> {
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
        ClientFrame::Hello { version: VERSION }.encode(&mut asked);
        let how = OpenMode::Create;
        ClientFrame::Open { mode: how, writer, name }.encode(&mut asked);
        socket.write_all(&asked)?;
        expect_answer(socket, |answer| matches!(answer, NodeFrame::Welcome { .. }))?;
        expect_answer(socket, |answer| *answer == NodeFrame::Opened { position: 0 })
    }

    /// Decodes the message at the start of the input. `durable` is the durable position before it.
    /// Returns `None` if the message is incomplete.
    pub fn decode_message(self, input: &[u8], durable: u64) -> Result<Option<NodeMessage>, String> {
        if self == Self::Raw {
            let count = input.first_chunk::<ACKNOWLEDGEMENT_BYTES>();
            return Ok(count.map(|count| NodeMessage {
                encoded_bytes: ACKNOWLEDGEMENT_BYTES,
                durable_to: durable.saturating_add(u32::from_le_bytes(*count).into()),
                is_closed: false,
            }));
        }
        let (answer, used) = match decode_node_frame(input) {
            Ok(DecodedFrame::Frame(answer, used)) => (answer, used),
            Ok(DecodedFrame::NeedMore(_)) => return Ok(None),
            Err(malformed) => return Err(malformed.to_string()),
        };
        let (position, closed) = match answer {
            NodeFrame::Durable { position } => (position, false),
            NodeFrame::Closed { position } => (position, true),
            other => return Err(format!("a writer was told {other:?}")),
        };
        Ok(Some(NodeMessage { encoded_bytes: used, durable_to: position, is_closed: closed }))
    }

    /// Signals that no more bytes follow, which closes the stream.
    pub fn close(self, socket: &mut TcpStream) -> io::Result<()> {
        match self {
            Self::Raw => socket.shutdown(std::net::Shutdown::Write),
            Self::Framed => {
                let mut asked = Vec::new();
                ClientFrame::Close { finish: true }.encode(&mut asked);
                socket.write_all(&asked)
            }
        }
    }
}

/// Reads the next answer and fails unless it is the expected one.
fn expect_answer(
    socket: &mut TcpStream,
    wanted: impl FnOnce(&NodeFrame<'_>) -> bool,
) -> io::Result<()> {
    let malformed = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut frame = Vec::new();
    loop {
        match decode_node_frame(&frame) {
            Ok(DecodedFrame::NeedMore(missing)) => {
                let have = frame.len();
                frame.resize(have + missing, 0);
                socket.read_exact(&mut frame[have..])?;
            }
            Ok(DecodedFrame::Frame(answer, _)) if wanted(&answer) => return Ok(()),
            Ok(DecodedFrame::Frame(answer, _)) => {
                return Err(malformed(format!("the node answered {answer:?}")));
            }
            Err(error) => return Err(malformed(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use quorate_wire::streams::decode_client_frame;

    use super::*;

    fn said(answer: NodeFrame<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        answer.encode(&mut bytes);
        bytes
    }

    #[test]
    fn write_is_split_into_frames_within_the_limit() {
        for bytes in [1, 14, BODY_BYTES_MAX, BODY_BYTES_MAX + 1] {
            assert_eq!(StreamProtocol::Raw.encode_write(bytes).len(), bytes);
            let framed = StreamProtocol::Framed.encode_write(bytes);
            let (mut at, mut sum) = (0, 0);
            while at < framed.len() {
                let Ok(DecodedFrame::Frame(ClientFrame::Data(data), used)) =
                    decode_client_frame(&framed[at..])
                else {
                    panic!("{bytes}: no frame at {at}");
                };
                (at, sum) = (at + used, sum + data.len());
            }
            assert_eq!(sum, bytes);
        }
    }

    #[test]
    fn both_protocols_report_the_durable_position() {
        let heard = |used, position, closed| {
            Ok(Some(NodeMessage { encoded_bytes: used, durable_to: position, is_closed: closed }))
        };
        let durable = said(NodeFrame::Durable { position: 12 });
        assert_eq!(StreamProtocol::Framed.decode_message(&durable, 5), heard(16, 12, false));
        assert_eq!(StreamProtocol::Framed.decode_message(&durable[..15], 5), Ok(None));
        let closed = said(NodeFrame::Closed { position: 12 });
        assert_eq!(StreamProtocol::Framed.decode_message(&closed, 12), heard(16, 12, true));
        assert_eq!(StreamProtocol::Raw.decode_message(&[7, 0, 0, 0, 1], 5), heard(4, 12, false));
        assert_eq!(StreamProtocol::Raw.decode_message(&[7, 0, 0], 5), Ok(None));
    }

    #[test]
    fn end_of_a_writer_is_an_error_with_its_message() {
        let ended = said(NodeFrame::Ended { position: 3 });
        let why = StreamProtocol::Framed.decode_message(&ended, 5).unwrap_err();
        assert!(why.contains("Ended"), "{why}");
    }
}
