//! Commands to the table of streams and their replies, with their encodings.

use std::fmt;

use quorate_core::value::StreamName;

use crate::{
    codec::{Fields, put_name, put_stream, put64},
    name::Name,
};

/// Identity of a writer, which a client draws at random and presents again when it reconnects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Writer(pub u128);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OpenMode {
    /// Create the stream. It must not exist, unless this writer created it and never received the
    /// reply.
    Create,
    /// Append to an existing stream that has no writer.
    Append,
    /// Take over an existing stream. Its current writer can never write to it again ([stream-10]).
    Takeover,
    /// Continue a stream that this writer was the last to write to.
    Continue,
}

/// A change of the table. `Open` is a single command so that it ends the preceding piece and begins
/// the next one at exactly the same position ([stream-10]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Begins a new piece of a stream.
    Open {
        name: Name,
        mode: OpenMode,
        writer: Writer,
        /// Inner stream that continues the named stream. It has never been opened before.
        stream: StreamName,
        /// Owner's clock in Unix milliseconds, shown to users only.
        now_ms: u64,
    },
    /// Stops appending to this inner stream, at its owner's request ([stream-6]).
    Close {
        stream: StreamName,
        /// The named stream ends here permanently.
        finish: bool,
    },
    /// Allows bytes below a position to be dropped ([trim-2]).
    Trim {
        name: Name,
        /// First position to retain.
        retain_from: u64,
    },
    Remove {
        name: Name,
    },
    Retain {
        name: Name,
        retention: Retention,
    },
    /// Reports the time, so that bytes older than their stream's retention can be dropped. Issued
    /// by a leader; nodes never use their own clocks for this ([session-3]).
    Age {
        now_ms: u64,
    },
}

/// Retention of a stream. Bytes beyond either bound may be dropped; without bounds, everything is
/// retained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Maximum number of bytes to retain, counted from the end.
    pub bytes: Option<u64>,
    /// Maximum age of retained bytes, in milliseconds since they were appended.
    pub age_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamOutcome {
    /// The inner stream was opened. Its byte 0 is at position `start_position` of the named stream.
    Opened {
        stream: StreamName,
        /// Position in the named stream. All earlier bytes are decided and will not change.
        start_position: u64,
    },
    /// The piece ends here: all earlier bytes are decided, and no more will follow ([stream-6]).
    Closed {
        end_position: u64,
    },
    Trimmed {
        /// First position retained.
        start: u64,
    },
    Removed,
    Retained,
    /// Bytes that exceeded their stream's age were dropped.
    Aged,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// This version cannot decode the command.
    Malformed,
    Unknown,
    Exists,
    Finished,
    InUse,
    /// Another writer took the stream over, so this writer can never write to it again.
    Fenced,
    TooManyStreams,
    /// The stream has the maximum number of pieces. Trimming it lowers the number.
    TooManyPieces,
    /// The inner stream was opened before.
    InnerStreamReused,
    /// The position is after the end of the stream.
    PastEnd {
        /// First position after the stream's bytes.
        end: u64,
    },
}

pub type Reply = Result<StreamOutcome, Denied>;

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("this version does not understand the request"),
            Self::Unknown => f.write_str("there is no such stream"),
            Self::Exists => f.write_str("a stream of this name exists"),
            Self::Finished => f.write_str("the stream is closed for good"),
            Self::InUse => f.write_str("another writer has the stream open"),
            Self::Fenced => f.write_str("another writer took the stream over"),
            Self::TooManyStreams => f.write_str("there are as many streams as there may be"),
            Self::TooManyPieces => {
                f.write_str("the stream has as many pieces as it may: trim it, or start another")
            }
            Self::InnerStreamReused => f.write_str("the inner stream was opened before"),
            Self::PastEnd { end } => write!(f, "the stream ends at position {end}"),
        }
    }
}

const OPEN: u8 = 1;
const CLOSE: u8 = 2;
const TRIM: u8 = 3;
const REMOVE: u8 = 4;
const RETAIN: u8 = 5;
const AGE: u8 = 6;

impl Command {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Open { name, mode: how, writer, stream, now_ms } => {
                out.push(OPEN);
                put_name(name, &mut out);
                out.push(*how as u8);
                out.extend_from_slice(&writer.0.to_be_bytes());
                put_stream(*stream, &mut out);
                put64(*now_ms, &mut out);
            }
            Self::Close { stream, finish } => {
                out.push(CLOSE);
                put_stream(*stream, &mut out);
                out.push(u8::from(*finish));
            }
            Self::Trim { name, retain_from: before } => {
                out.push(TRIM);
                put_name(name, &mut out);
                put64(*before, &mut out);
            }
            Self::Remove { name } => {
                out.push(REMOVE);
                put_name(name, &mut out);
            }
            Self::Retain { name, retention: keep } => {
                out.push(RETAIN);
                put_name(name, &mut out);
                keep.encode(&mut out);
            }
            Self::Age { now_ms } => {
                out.push(AGE);
                put64(*now_ms, &mut out);
            }
        }
        out
    }

    /// Decodes a command, or returns `None` if this version does not support it.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let command = match fields.u8()? {
            OPEN => Self::Open {
                name: fields.name()?,
                mode: open_mode_from(fields.u8()?)?,
                writer: Writer(fields.u128()?),
                stream: fields.stream()?,
                now_ms: fields.u64()?,
            },
            CLOSE => Self::Close {
                stream: fields.stream()?,
                finish: match fields.u8()? {
                    0 => false,
                    1 => true,
                    _ => return None,
                },
            },
            TRIM => Self::Trim { name: fields.name()?, retain_from: fields.u64()? },
            REMOVE => Self::Remove { name: fields.name()? },
            RETAIN => {
                Self::Retain { name: fields.name()?, retention: Retention::decode(&mut fields)? }
            }
            AGE => Self::Age { now_ms: fields.u64()? },
            _ => return None,
        };
        fields.finish(command)
    }
}

impl Retention {
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        for bound in [self.bytes, self.age_ms] {
            out.push(u8::from(bound.is_some()));
            put64(bound.unwrap_or(0), out);
        }
    }

    pub(crate) fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        let mut bound = || match (fields.u8()?, fields.u64()?) {
            (0, 0) => Some(None),
            (1, bound) => Some(Some(bound)),
            _ => None,
        };
        Some(Self { bytes: bound()?, age_ms: bound()? })
    }
}

/// Encodes a reply. Equal replies have equal bytes, on every node and in every version.
pub fn encode_reply(reply: &Reply, out: &mut Vec<u8>) {
    let (kind, number) = match *reply {
        Ok(StreamOutcome::Opened { start_position: at, .. }) => (0, at),
        Ok(StreamOutcome::Closed { end_position: at }) => (1, at),
        Ok(StreamOutcome::Trimmed { start }) => (2, start),
        Ok(StreamOutcome::Removed) => (3, 0),
        Ok(StreamOutcome::Retained) => (4, 0),
        Ok(StreamOutcome::Aged) => (5, 0),
        Err(Denied::Malformed) => (16, 0),
        Err(Denied::Unknown) => (17, 0),
        Err(Denied::Exists) => (18, 0),
        Err(Denied::Finished) => (19, 0),
        Err(Denied::InUse) => (20, 0),
        Err(Denied::Fenced) => (21, 0),
        Err(Denied::TooManyStreams) => (22, 0),
        Err(Denied::TooManyPieces) => (23, 0),
        Err(Denied::InnerStreamReused) => (24, 0),
        Err(Denied::PastEnd { end }) => (25, end),
    };
    out.push(kind);
    put64(number, out);
}

const fn open_mode_from(number: u8) -> Option<OpenMode> {
    match number {
        0 => Some(OpenMode::Create),
        1 => Some(OpenMode::Append),
        2 => Some(OpenMode::Takeover),
        3 => Some(OpenMode::Continue),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::node_id::NodeId;

    use super::*;

    #[test]
    fn commands_round_trip_and_truncation_is_refused() {
        let name: Name = "backup/1".parse().unwrap();
        let stream = StreamName { owner: NodeId(7), boot: 3, number: u32::MAX };
        let open = |how| Command::Open {
            name: name.clone(),
            mode: how,
            writer: Writer(1 << 100),
            stream,
            now_ms: 5,
        };
        for command in [
            open(OpenMode::Create),
            open(OpenMode::Append),
            open(OpenMode::Takeover),
            open(OpenMode::Continue),
            Command::Close { stream, finish: true },
            Command::Trim { name: name.clone(), retain_from: u64::MAX },
            Command::Remove { name: name.clone() },
            Command::Retain {
                name: name.clone(),
                retention: Retention { bytes: Some(0), age_ms: None },
            },
            Command::Age { now_ms: 1 << 40 },
        ] {
            let mut bytes = command.encode();
            assert_eq!(Command::decode(&bytes), Some(command));
            for cut in 0..bytes.len() {
                assert_eq!(Command::decode(&bytes[..cut]), None);
            }
            bytes.push(0);
            assert_eq!(Command::decode(&bytes), None, "something is left over");
        }
    }
}
