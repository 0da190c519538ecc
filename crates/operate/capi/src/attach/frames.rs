//! Frames between a node and an attached program: `docs/spec/values-client.md`.
//!
//! A frame is its length (4 bytes, of the rest), a kind, and a body; numbers are little-endian. The
//! receiver of an invalid frame closes the connection.

use std::io::{self, Read};

use quorate::SessionId;

use crate::{source::Cursor, values::command::Values};

/// Magic bytes of a greeting.
const MAGIC: [u8; 8] = *b"qrtvalue";
/// Version of the protocol.
pub const VERSION: u8 = 2;
/// Maximum overhead of a frame in addition to its values.
pub const FRAME_OVERHEAD: usize = 96;
/// Maximum size of a text.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of values sent and not taken yet, unless it is a single value.
pub const WINDOW_BYTES: usize = 1 << 20;

/// Outcome without a code in `quorate.h`: the session is unknown.
pub const NO_SESSION: u8 = 255;

/// Frame from a program to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask<'a> {
    /// Greets the node; the first frame.
    Hello {
        /// Protocol version.
        version: u8,
    },
    /// Registers a session.
    Register {
        /// Id of the request, returned in the answer.
        id: u64,
    },
    /// Appends values once.
    Append {
        /// Id of the request, returned in the answer.
        id: u64,
        /// Session of the program.
        session: SessionId,
        /// Number in the session.
        sequence: u64,
        /// All lower numbers have been answered.
        acknowledged_below: u64,
        /// Values to append.
        values: Values<'a>,
    },
    /// Forgets slots.
    Trim {
        /// Id of the request, returned in the answer.
        id: u64,
        /// First slot to retain.
        below: u64,
    },
    /// Requests the end of the cluster's log.
    Sync {
        /// Id of the request, returned in the answer.
        id: u64,
    },
    /// Requests the node's status.
    Status {
        /// Id of the request, returned in the answer.
        id: u64,
    },
    /// Requests values from a position on, instead of any earlier request.
    Deliver {
        /// Number of the request for values.
        epoch: u32,
        /// Position of the first value.
        from: Cursor,
    },
    /// Reports that all values up to this slot were taken.
    Taken {
        /// Number of the request for values.
        epoch: u32,
        /// Last slot taken.
        slot: u64,
    },
}

/// Frame from a node to a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// Answers the greeting.
    Welcome {
        /// Protocol version.
        version: u8,
        /// Id of the cluster.
        cluster: u128,
        /// Id of the node.
        node: u32,
        /// Maximum size of a value.
        value_bytes_max: u64,
    },
    /// Returns a registered session.
    Registered {
        /// Id of the request.
        id: u64,
        /// Registered session.
        session: SessionId,
    },
    /// Ends a request.
    Done {
        /// Id of the request.
        id: u64,
        /// Code of `quorate.h`, or [`NO_SESSION`].
        code: u8,
        /// Slot that the outcome refers to.
        slot: u64,
        /// Detail for people; a JSON document for a status.
        text: &'a str,
    },
    /// Delivers a value.
    Value {
        /// Number of the request for values.
        epoch: u32,
        /// Slot of the value.
        slot: u64,
        /// Bytes of the value.
        value: &'a [u8],
    },
    /// Reports that the next wanted value was trimmed.
    Forgotten {
        /// Number of the request for values.
        epoch: u32,
        /// First retained slot.
        first: u64,
    },
    /// Shows that the node is alive when it has nothing else to send.
    Alive,
    /// Reports the slots of an append: the first values are in consecutive slots.
    Appended {
        /// Id of the request.
        id: u64,
        /// Slot of the first value.
        slot: u64,
        /// Number of appended values; there was no space for the others.
        count: u32,
        /// Detail for people, if there was not enough space.
        text: &'a str,
    },
}

/// Writer of a frame's body; the length is filled in at the end.
struct Frame<'a> {
    to: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Frame<'a> {
    fn new(to: &'a mut Vec<u8>, kind: u8) -> Self {
        let start = to.len();
        to.extend([0; 4]);
        to.push(kind);
        Self { to, start }
    }

    fn bytes(self, bytes: &[u8]) -> Self {
        self.to.extend(bytes);
        self
    }

    fn word(self, word: u64) -> Self {
        self.bytes(&word.to_le_bytes())
    }

    fn half(self, half: u32) -> Self {
        self.bytes(&half.to_le_bytes())
    }

    fn end(self) {
        let length = self.to.len() - self.start - 4;
        let length = u32::try_from(length).expect("values and texts are bounded");
        self.to[self.start..self.start + 4].copy_from_slice(&length.to_le_bytes());
    }
}

impl<'a> Ask<'a> {
    /// Appends the frame.
    pub fn encode(&self, to: &mut Vec<u8>) {
        match *self {
            Self::Hello { version } => Frame::new(to, 0).bytes(&MAGIC).bytes(&[version]),
            Self::Register { id } => Frame::new(to, 1).word(id),
            Self::Append { id, session, sequence, acknowledged_below, values } => Frame::new(to, 2)
                .word(id)
                .word(session.slot)
                .half(session.index)
                .word(sequence)
                .word(acknowledged_below)
                .bytes(values.bytes()),
            Self::Trim { id, below } => Frame::new(to, 3).word(id).word(below),
            Self::Sync { id } => Frame::new(to, 4).word(id),
            Self::Status { id } => Frame::new(to, 5).word(id),
            Self::Deliver { epoch, from } => Frame::new(to, 6).half(epoch).word(match from {
                Cursor::Oldest => 0,
                Cursor::At(slot) => slot,
                // Never sent: a program requests the slot of the end first.
                Cursor::End => u64::MAX,
            }),
            Self::Taken { epoch, slot } => Frame::new(to, 7).half(epoch).word(slot),
        }
        .end();
    }

    /// Decodes kind and body of a frame; returns `None` if they are invalid.
    pub fn decode(frame: &'a [u8]) -> Option<Self> {
        let (kind, mut rest) = frame.split_first()?;
        let ask = match kind {
            0 => {
                let magic: [u8; 8] = take(&mut rest)?;
                let [version] = take(&mut rest)?;
                (magic == MAGIC).then_some(Self::Hello { version })?
            }
            1 => Self::Register { id: word(&mut rest)? },
            2 => {
                let id = word(&mut rest)?;
                let session = SessionId { slot: word(&mut rest)?, index: half(&mut rest)? };
                Self::Append {
                    id,
                    session,
                    sequence: word(&mut rest)?,
                    acknowledged_below: word(&mut rest)?,
                    // The node checks the size of each value.
                    values: Values::parse(std::mem::take(&mut rest), usize::MAX)?,
                }
            }
            3 => Self::Trim { id: word(&mut rest)?, below: word(&mut rest)? },
            4 => Self::Sync { id: word(&mut rest)? },
            5 => Self::Status { id: word(&mut rest)? },
            6 => Self::Deliver {
                epoch: half(&mut rest)?,
                from: match word(&mut rest)? {
                    0 => Cursor::Oldest,
                    slot => Cursor::At(slot),
                },
            },
            7 => Self::Taken { epoch: half(&mut rest)?, slot: word(&mut rest)? },
            _ => return None,
        };
        rest.is_empty().then_some(ask)
    }
}

impl<'a> Answer<'a> {
    /// Appends the frame. Text beyond [`TEXT_BYTES_MAX`] is truncated.
    pub fn encode(&self, to: &mut Vec<u8>) {
        match *self {
            Self::Welcome { version, cluster, node, value_bytes_max } => Frame::new(to, 128)
                .bytes(&MAGIC)
                .bytes(&[version])
                .bytes(&cluster.to_le_bytes())
                .half(node)
                .word(value_bytes_max),
            Self::Registered { id, session } => {
                Frame::new(to, 129).word(id).word(session.slot).half(session.index)
            }
            Self::Done { id, code, slot, text } => Frame::new(to, 130)
                .word(id)
                .bytes(&[code])
                .word(slot)
                .bytes(bounded(text).as_bytes()),
            Self::Value { epoch, slot, value } => {
                Frame::new(to, 131).half(epoch).word(slot).bytes(value)
            }
            Self::Forgotten { epoch, first } => Frame::new(to, 132).half(epoch).word(first),
            Self::Alive => Frame::new(to, 133),
            Self::Appended { id, slot, count, text } => {
                Frame::new(to, 134).word(id).word(slot).half(count).bytes(bounded(text).as_bytes())
            }
        }
        .end();
    }

    /// Decodes kind and body of a frame; returns `None` if they are invalid.
    pub fn decode(frame: &'a [u8]) -> Option<Self> {
        let (kind, mut rest) = frame.split_first()?;
        let answer = match kind {
            128 => {
                let magic: [u8; 8] = take(&mut rest)?;
                let [version] = take(&mut rest)?;
                let cluster = u128::from_le_bytes(take(&mut rest)?);
                let welcome = Self::Welcome {
                    version,
                    cluster,
                    node: half(&mut rest)?,
                    value_bytes_max: word(&mut rest)?,
                };
                (magic == MAGIC).then_some(welcome)?
            }
            129 => Self::Registered {
                id: word(&mut rest)?,
                session: SessionId { slot: word(&mut rest)?, index: half(&mut rest)? },
            },
            130 => {
                let id = word(&mut rest)?;
                let [code] = take(&mut rest)?;
                Self::Done { id, code, slot: word(&mut rest)?, text: text(&mut rest)? }
            }
            131 => Self::Value {
                epoch: half(&mut rest)?,
                slot: word(&mut rest)?,
                value: std::mem::take(&mut rest),
            },
            132 => Self::Forgotten { epoch: half(&mut rest)?, first: word(&mut rest)? },
            133 => Self::Alive,
            134 => Self::Appended {
                id: word(&mut rest)?,
                slot: word(&mut rest)?,
                count: half(&mut rest)?,
                text: text(&mut rest)?,
            },
            _ => return None,
        };
        rest.is_empty().then_some(answer)
    }
}

fn bounded(text: &str) -> &str {
    match text.len() > TEXT_BYTES_MAX {
        true => "",
        false => text,
    }
}

fn text<'a>(from: &mut &'a [u8]) -> Option<&'a str> {
    let text = std::str::from_utf8(std::mem::take(from)).ok()?;
    (text.len() <= TEXT_BYTES_MAX).then_some(text)
}

fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*taken)
}

fn word(from: &mut &[u8]) -> Option<u64> {
    take(from).map(u64::from_le_bytes)
}

fn half(from: &mut &[u8]) -> Option<u32> {
    take(from).map(u32::from_le_bytes)
}

/// Splits off the first frame: returns its kind and body, and the bytes after it; `None` if it is
/// incomplete. A length above `bytes_max` is an error before anything is buffered.
pub fn split_frame(bytes: &[u8], bytes_max: usize) -> io::Result<Option<(&[u8], &[u8])>> {
    let Some((length, rest)) = bytes.split_first_chunk() else {
        return Ok(None);
    };
    let length = checked(*length, bytes_max)?;
    Ok(rest.split_at_checked(length))
}

fn checked(length: [u8; 4], bytes_max: usize) -> io::Result<usize> {
    let length = u32::from_le_bytes(length);
    match usize::try_from(length) {
        Ok(bytes) if bytes > 0 && bytes <= bytes_max => Ok(bytes),
        _ => {
            let what = format!("a frame of {length} bytes, and at most {bytes_max} are taken");
            Err(io::Error::new(io::ErrorKind::InvalidData, what))
        }
    }
}

/// Reads kind and body of the next frame into `frame`. A length above `bytes_max` is an error
/// before anything is buffered; memory grows only with received bytes.
pub fn read_frame(from: &mut impl Read, bytes_max: usize, frame: &mut Vec<u8>) -> io::Result<()> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = checked(length, bytes_max)?;
    frame.clear();
    // Frees memory that only a large frame needed.
    frame.shrink_to(64 << 10);
    if from.take(length as u64).read_to_end(frame)? < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}
