//! Frames between a node and an attached program, as specified in `docs/spec/values-client.md`.
//!
//! A frame consists of its length (4 bytes, not counting themselves), a kind, and a body. Numbers
//! are little-endian. A receiver closes the connection after an invalid frame.

use std::io::{self, Read};

use quorate::SessionId;

use crate::{source::Cursor, values::command::Values};

const MAGIC: [u8; 8] = *b"qrtvalue";
/// Version of the protocol.
pub const VERSION: u8 = 2;
/// Maximum size in bytes of a frame, not counting its values.
pub const FRAME_OVERHEAD: usize = 96;
/// Maximum size in bytes of a text.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// Maximum size in bytes of the values sent but not taken yet, except that a single value may be
/// larger.
pub const WINDOW_BYTES_MAX: usize = 1 << 20;

/// Outcome without a code in `quorate.h`: the session does not exist.
pub const NO_SESSION: u8 = 255;

/// A frame that a program sends to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Greets the node. Must be the first frame.
    Hello {
        /// Version of the protocol that the program uses.
        version: u8,
    },
    /// Registers a session.
    Register {
        /// Id of the request, which the answer repeats.
        id: u64,
    },
    /// Appends values exactly once.
    Append {
        /// Id of the request, which the answer repeats.
        id: u64,
        /// Session of the program.
        session: SessionId,
        /// Sequence number in the session.
        sequence: u64,
        /// Number below which the program has received the answers to all requests.
        acknowledged_below: u64,
        /// Values to append.
        values: Values<'a>,
    },
    /// Discards all values below a slot.
    Trim {
        /// Id of the request, which the answer repeats.
        id: u64,
        /// First slot to retain.
        below: u64,
    },
    /// Requests the end of the cluster's log.
    Sync {
        /// Id of the request, which the answer repeats.
        id: u64,
    },
    /// Requests the status of the node.
    Status {
        /// Id of the request, which the answer repeats.
        id: u64,
    },
    /// Requests delivery starting at a position. Replaces any earlier request.
    Deliver {
        /// Number that identifies this request for delivery.
        delivery_epoch: u32,
        /// Position of the first value to deliver.
        from: Cursor,
    },
    /// Reports that the program has taken all values up to a slot.
    Taken {
        /// Number of the request for delivery.
        delivery_epoch: u32,
        /// Slot of the last value taken.
        slot: u64,
    },
}

/// A frame that a node sends to a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// Answers the greeting of the program.
    Welcome {
        /// Version of the protocol that the node uses.
        version: u8,
        /// Id of the cluster.
        cluster_id: u128,
        /// Id of the node.
        node_id: u32,
        /// Maximum size in bytes of a value.
        value_bytes_max: u64,
    },
    /// Reports that a session was registered.
    Registered {
        /// Id of the request.
        id: u64,
        /// Id of the new session.
        session: SessionId,
    },
    /// Reports the outcome of a request.
    Done {
        /// Id of the request.
        id: u64,
        /// Code from `quorate.h`, or [`NO_SESSION`].
        code: u8,
        /// Slot that the outcome refers to.
        slot: u64,
        /// Human-readable detail, or a JSON document for a status.
        text: &'a str,
    },
    /// Delivers a value.
    Value {
        /// Number of the request for delivery.
        delivery_epoch: u32,
        /// Slot of the value.
        slot: u64,
        /// Contents of the value.
        value: &'a [u8],
    },
    /// Reports that the next value to deliver was trimmed.
    Forgotten {
        /// Number of the request for delivery.
        delivery_epoch: u32,
        /// First retained slot.
        first_retained: u64,
    },
    /// Keep-alive, sent when the node has nothing else to send.
    Alive,
    /// Reports the outcome of an append. The first `count` values are in consecutive slots.
    Appended {
        /// Id of the request.
        id: u64,
        /// Slot of the first value.
        slot: u64,
        /// Number of appended values. The remaining ones exceeded the capacity.
        count: u32,
        /// Human-readable detail, if the capacity was exceeded.
        text: &'a str,
    },
}

/// A writer of a frame's kind and body. The length is filled in at the end.
struct FrameWriter<'a> {
    output: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> FrameWriter<'a> {
    fn new(to: &'a mut Vec<u8>, kind: u8) -> Self {
        let start = to.len();
        to.extend([0; 4]);
        to.push(kind);
        Self { output: to, start }
    }

    fn bytes(self, bytes: &[u8]) -> Self {
        self.output.extend(bytes);
        self
    }

    fn put_u64(self, word: u64) -> Self {
        self.bytes(&word.to_le_bytes())
    }

    fn put_u32(self, half: u32) -> Self {
        self.bytes(&half.to_le_bytes())
    }

    fn finish(self) {
        let length = self.output.len() - self.start - 4;
        let length = u32::try_from(length).expect("values and texts are bounded");
        self.output[self.start..self.start + 4].copy_from_slice(&length.to_le_bytes());
    }
}

impl<'a> Request<'a> {
    /// Appends the encoded frame to `to`.
    pub fn encode(&self, to: &mut Vec<u8>) {
        match *self {
            Self::Hello { version } => FrameWriter::new(to, 0).bytes(&MAGIC).bytes(&[version]),
            Self::Register { id } => FrameWriter::new(to, 1).put_u64(id),
            Self::Append { id, session, sequence, acknowledged_below, values } => {
                FrameWriter::new(to, 2)
                    .put_u64(id)
                    .put_u64(session.slot)
                    .put_u32(session.index)
                    .put_u64(sequence)
                    .put_u64(acknowledged_below)
                    .bytes(values.bytes())
            }
            Self::Trim { id, below } => FrameWriter::new(to, 3).put_u64(id).put_u64(below),
            Self::Sync { id } => FrameWriter::new(to, 4).put_u64(id),
            Self::Status { id } => FrameWriter::new(to, 5).put_u64(id),
            Self::Deliver { delivery_epoch: epoch, from } => {
                FrameWriter::new(to, 6).put_u32(epoch).put_u64(match from {
                    Cursor::Oldest => 0,
                    Cursor::At(slot) => slot,
                    // Never sent: a program first requests the slot of the end.
                    Cursor::End => u64::MAX,
                })
            }
            Self::Taken { delivery_epoch: epoch, slot } => {
                FrameWriter::new(to, 7).put_u32(epoch).put_u64(slot)
            }
        }
        .finish();
    }

    /// Decodes the kind and body of a frame. Returns `None` if they are invalid.
    pub fn decode(frame: &'a [u8]) -> Option<Self> {
        let (kind, mut rest) = frame.split_first()?;
        let ask = match kind {
            0 => {
                let magic: [u8; 8] = take_bytes(&mut rest)?;
                let [version] = take_bytes(&mut rest)?;
                (magic == MAGIC).then_some(Self::Hello { version })?
            }
            1 => Self::Register { id: take_u64(&mut rest)? },
            2 => {
                let id = take_u64(&mut rest)?;
                let session = SessionId { slot: take_u64(&mut rest)?, index: take_u32(&mut rest)? };
                Self::Append {
                    id,
                    session,
                    sequence: take_u64(&mut rest)?,
                    acknowledged_below: take_u64(&mut rest)?,
                    // The node checks the size of each value later.
                    values: Values::parse(std::mem::take(&mut rest), usize::MAX)?,
                }
            }
            3 => Self::Trim { id: take_u64(&mut rest)?, below: take_u64(&mut rest)? },
            4 => Self::Sync { id: take_u64(&mut rest)? },
            5 => Self::Status { id: take_u64(&mut rest)? },
            6 => Self::Deliver {
                delivery_epoch: take_u32(&mut rest)?,
                from: match take_u64(&mut rest)? {
                    0 => Cursor::Oldest,
                    slot => Cursor::At(slot),
                },
            },
            7 => Self::Taken { delivery_epoch: take_u32(&mut rest)?, slot: take_u64(&mut rest)? },
            _ => return None,
        };
        rest.is_empty().then_some(ask)
    }
}

impl<'a> Answer<'a> {
    /// Appends the encoded frame to `to`. Truncates texts to [`TEXT_BYTES_MAX`] bytes.
    pub fn encode(&self, to: &mut Vec<u8>) {
        match *self {
            Self::Welcome { version, cluster_id: cluster, node_id: node, value_bytes_max } => {
                FrameWriter::new(to, 128)
                    .bytes(&MAGIC)
                    .bytes(&[version])
                    .bytes(&cluster.to_le_bytes())
                    .put_u32(node)
                    .put_u64(value_bytes_max)
            }
            Self::Registered { id, session } => {
                FrameWriter::new(to, 129).put_u64(id).put_u64(session.slot).put_u32(session.index)
            }
            Self::Done { id, code, slot, text } => FrameWriter::new(to, 130)
                .put_u64(id)
                .bytes(&[code])
                .put_u64(slot)
                .bytes(truncate_text(text).as_bytes()),
            Self::Value { delivery_epoch: epoch, slot, value } => {
                FrameWriter::new(to, 131).put_u32(epoch).put_u64(slot).bytes(value)
            }
            Self::Forgotten { delivery_epoch: epoch, first_retained: first } => {
                FrameWriter::new(to, 132).put_u32(epoch).put_u64(first)
            }
            Self::Alive => FrameWriter::new(to, 133),
            Self::Appended { id, slot, count, text } => FrameWriter::new(to, 134)
                .put_u64(id)
                .put_u64(slot)
                .put_u32(count)
                .bytes(truncate_text(text).as_bytes()),
        }
        .finish();
    }

    /// Decodes the kind and body of a frame. Returns `None` if they are invalid.
    pub fn decode(frame: &'a [u8]) -> Option<Self> {
        let (kind, mut rest) = frame.split_first()?;
        let answer = match kind {
            128 => {
                let magic: [u8; 8] = take_bytes(&mut rest)?;
                let [version] = take_bytes(&mut rest)?;
                let cluster = u128::from_le_bytes(take_bytes(&mut rest)?);
                let welcome = Self::Welcome {
                    version,
                    cluster_id: cluster,
                    node_id: take_u32(&mut rest)?,
                    value_bytes_max: take_u64(&mut rest)?,
                };
                (magic == MAGIC).then_some(welcome)?
            }
            129 => Self::Registered {
                id: take_u64(&mut rest)?,
                session: SessionId { slot: take_u64(&mut rest)?, index: take_u32(&mut rest)? },
            },
            130 => {
                let id = take_u64(&mut rest)?;
                let [code] = take_bytes(&mut rest)?;
                Self::Done { id, code, slot: take_u64(&mut rest)?, text: text(&mut rest)? }
            }
            131 => Self::Value {
                delivery_epoch: take_u32(&mut rest)?,
                slot: take_u64(&mut rest)?,
                value: std::mem::take(&mut rest),
            },
            132 => Self::Forgotten {
                delivery_epoch: take_u32(&mut rest)?,
                first_retained: take_u64(&mut rest)?,
            },
            133 => Self::Alive,
            134 => Self::Appended {
                id: take_u64(&mut rest)?,
                slot: take_u64(&mut rest)?,
                count: take_u32(&mut rest)?,
                text: text(&mut rest)?,
            },
            _ => return None,
        };
        rest.is_empty().then_some(answer)
    }
}

fn truncate_text(text: &str) -> &str {
    match text.len() > TEXT_BYTES_MAX {
        true => "",
        false => text,
    }
}

fn text<'a>(from: &mut &'a [u8]) -> Option<&'a str> {
    let text = std::str::from_utf8(std::mem::take(from)).ok()?;
    (text.len() <= TEXT_BYTES_MAX).then_some(text)
}

fn take_bytes<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*taken)
}

fn take_u64(from: &mut &[u8]) -> Option<u64> {
    take_bytes(from).map(u64::from_le_bytes)
}

fn take_u32(from: &mut &[u8]) -> Option<u32> {
    take_bytes(from).map(u32::from_le_bytes)
}

/// Splits off the first frame. Returns its kind and body and the bytes after it, or `None` if the
/// frame is incomplete. Fails as soon as the length field exceeds `bytes_max`.
pub fn split_frame(bytes: &[u8], bytes_max: usize) -> io::Result<Option<(&[u8], &[u8])>> {
    let Some((length, rest)) = bytes.split_first_chunk() else {
        return Ok(None);
    };
    let length = checked_length(*length, bytes_max)?;
    Ok(rest.split_at_checked(length))
}

fn checked_length(length: [u8; 4], bytes_max: usize) -> io::Result<usize> {
    let length = u32::from_le_bytes(length);
    match usize::try_from(length) {
        Ok(bytes) if bytes > 0 && bytes <= bytes_max => Ok(bytes),
        _ => {
            let what = format!("a frame of {length} bytes, and at most {bytes_max} are taken");
            Err(io::Error::new(io::ErrorKind::InvalidData, what))
        }
    }
}

/// Reads the kind and body of the next frame into `frame`. Fails as soon as the length field
/// exceeds `bytes_max`, before buffering anything. Memory grows only with the bytes that arrive.
pub fn read_frame(from: &mut impl Read, bytes_max: usize, frame: &mut Vec<u8>) -> io::Result<()> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = checked_length(length, bytes_max)?;
    frame.clear();
    // Releases memory that only a large frame needed.
    frame.shrink_to(64 << 10);
    if from.take(length as u64).read_to_end(frame)? < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}
