//! Frames between a node and an attached program: `docs/spec/values-client.md`.
//!
//! A frame is its length (4 bytes, of the rest), a kind, and a body; numbers are little-endian. The
//! receiver of an invalid frame closes the connection.

use std::io::{self, Read};

use quorate::SessionId;

use crate::{source::Cursor, values::command::Values};

/// First bytes of a greeting.
const MAGIC: [u8; 8] = *b"qrtvalue";
/// The version of what is spoken here.
pub const VERSION: u8 = 2;
/// Most bytes of a frame in addition to its value, or its values.
pub const FRAME_OVERHEAD: usize = 96;
/// Most bytes of a text.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// Values that were sent and are not taken yet may have so many bytes, or be one.
pub const WINDOW_BYTES: usize = 1 << 20;

/// The outcome that is no code of `quorate.h`: the session is unknown.
pub const NO_SESSION: u8 = 255;

/// From a program to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask<'a> {
    /// First of all.
    Hello {
        /// Protocol version.
        version: u8,
    },
    /// A session is wanted.
    Register {
        /// Comes back.
        id: u64,
    },
    /// Values are to be appended, once.
    Append {
        /// Comes back.
        id: u64,
        /// The session.
        session: SessionId,
        /// The number in it.
        sequence: u64,
        /// All numbers below have their answers.
        acknowledged_below: u64,
        /// The values.
        values: Values<'a>,
    },
    /// Slots are to be forgotten.
    Trim {
        /// Comes back.
        id: u64,
        /// The first slot to be kept.
        below: u64,
    },
    /// Asks for the end of the cluster's log.
    Sync {
        /// Comes back.
        id: u64,
    },
    /// Asks for the node's status.
    Status {
        /// Comes back.
        id: u64,
    },
    /// Values are wanted from here on; those of an earlier wish are not.
    Deliver {
        /// Which wish it is.
        epoch: u32,
        /// From where.
        from: Cursor,
    },
    /// All values of this wish up to this slot were taken.
    Taken {
        /// Which wish.
        epoch: u32,
        /// The slot.
        slot: u64,
    },
}

/// From a node to a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// Answers the greeting.
    Welcome {
        /// Protocol version.
        version: u8,
        /// Which cluster this is.
        cluster: u128,
        /// Which node.
        node: u32,
        /// Largest value that it takes.
        value_bytes_max: u64,
    },
    /// A session.
    Registered {
        /// Id of the question.
        id: u64,
        /// The session.
        session: SessionId,
    },
    /// A request ended.
    Done {
        /// Id of the question.
        id: u64,
        /// A code of `quorate.h`, or [`NO_SESSION`].
        code: u8,
        /// The slot that it is about.
        slot: u64,
        /// Detail for people; a JSON document for a status.
        text: &'a str,
    },
    /// A value.
    Value {
        /// The wish that it is sent for.
        epoch: u32,
        /// Its slot.
        slot: u64,
        /// Its bytes.
        value: &'a [u8],
    },
    /// The next wanted value was forgotten.
    Forgotten {
        /// The wish.
        epoch: u32,
        /// The first slot that is held.
        first: u64,
    },
    /// Nothing happened for a while.
    Alive,
    /// The values of an append, up to some number of them, are in slots one behind the other.
    Appended {
        /// Id of the question.
        id: u64,
        /// The slot of the first.
        slot: u64,
        /// Number of appended values; there was no space for the others.
        count: u32,
        /// Detail for people, if there was not.
        text: &'a str,
    },
}

/// Writes a frame's body; the length is put in front at the end.
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
    /// Appends it as a frame.
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
                // Not sent: a program asks for the slot first.
                Cursor::End => u64::MAX,
            }),
            Self::Taken { epoch, slot } => Frame::new(to, 7).half(epoch).word(slot),
        }
        .end();
    }

    /// Decodes a frame's kind and body; `None`: invalid.
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
                    // The node looks at how large each may be.
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
    /// Appends it as a frame. Text beyond [`TEXT_BYTES_MAX`] is left out.
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

    /// Decodes a frame's kind and body; `None`: invalid.
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

/// A frame's kind and body at the beginning of some bytes, and what follows it. `None`: more of it
/// is to come. One that says more than `bytes_max` is an error before anything of it is kept.
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

/// Reads a frame's kind and body into `frame`. One that says more than `bytes_max` is an error
/// before anything of it is kept; memory grows with what arrives.
pub fn read_frame(from: &mut impl Read, bytes_max: usize, frame: &mut Vec<u8>) -> io::Result<()> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = checked(length, bytes_max)?;
    frame.clear();
    // What one large frame needed is not kept for the small ones that follow.
    frame.shrink_to(64 << 10);
    if from.take(length as u64).read_to_end(frame)? < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}
