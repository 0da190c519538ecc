//! Decodes stream client frames from bytes. Never panics, and bounds every length before using it.

use core::fmt;

use quorate_core::{node_id::NodeId, value::StreamName};

use super::{
    BODY_BYTES_MAX, CONTROL_BODY_BYTES_MAX, ClientFrame, HEAD_BYTES, Info, MAGIC, NAME_BYTES_MAX,
    NO_BOUND, NodeFrame, OpenMode, PASSWORD_BYTES_MAX, Password, Retention, TEXT_BYTES_MAX, kind,
};

/// Result of decoding the bytes received so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodedFrame<T> {
    /// A frame, and the number of bytes that it occupies.
    Frame(T, usize),
    /// The input is the beginning of a frame. At least the given number of bytes is missing.
    NeedMore(usize),
}

/// Reason for rejecting bytes as a frame. The connection on which they arrived can no longer be
/// used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The kind of the frame is unknown.
    Kind(u8),
    /// The three bytes after the kind are not zero.
    NonzeroPadding,
    /// The body is longer than its kind allows.
    TooLong {
        /// Length of the body according to the head.
        length: u32,
        /// Maximum length of the body for this kind.
        max: usize,
    },
    /// The body ends too early or too late, or a field has an invalid value.
    Field(&'static str),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => write!(f, "unknown frame kind {kind:#04x}"),
            Self::NonzeroPadding => f.write_str("bytes 1 to 3 of a frame are not zero"),
            Self::TooLong { length, max } => {
                write!(f, "body of {length} bytes, at most {max} are taken")
            }
            Self::Field(name) => write!(f, "impossible {name}"),
        }
    }
}

impl core::error::Error for Malformed {}

/// Head of a frame, with a length within the bound of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    kind: u8,
    /// Length of the body in bytes.
    pub length: usize,
}

impl FrameHead {
    /// Returns whether the body belongs to a [`ClientFrame::Data`], so that it may be used as it
    /// arrives.
    pub const fn is_data(self) -> bool {
        self.kind == kind::DATA
    }

    fn read(bytes: [u8; HEAD_BYTES]) -> Result<Self, Malformed> {
        let [kind, zeros @ .., a, b, c, d] = bytes;
        let max = match kind {
            kind::DATA | kind::BYTES => BODY_BYTES_MAX,
            kind::HELLO..=kind::LOGIN | kind::WELCOME..=kind::KNOWN => CONTROL_BODY_BYTES_MAX,
            unknown => return Err(Malformed::Kind(unknown)),
        };
        if zeros != [0; 3] {
            return Err(Malformed::NonzeroPadding);
        }
        let length = u32::from_le_bytes([a, b, c, d]);
        match usize::try_from(length) {
            Ok(length) if length <= max => Ok(Self { kind, length }),
            _ => Err(Malformed::TooLong { length, max }),
        }
    }
}

/// Decodes the head at the start of `input` if it is complete. An unknown kind is detected as soon
/// as its first byte arrives.
pub fn head(input: &[u8]) -> Result<DecodedFrame<FrameHead>, Malformed> {
    match (input.first_chunk(), input.first()) {
        (Some(bytes), _) => Ok(DecodedFrame::Frame(FrameHead::read(*bytes)?, HEAD_BYTES)),
        (None, first) => {
            if let Some(kind) = first {
                FrameHead::read([*kind, 0, 0, 0, 0, 0, 0, 0])?;
            }
            Ok(DecodedFrame::NeedMore(HEAD_BYTES - input.len()))
        }
    }
}

/// Decodes a client's frame at the start of `input`.
pub fn decode_client_frame(input: &[u8]) -> Result<DecodedFrame<ClientFrame<'_>>, Malformed> {
    decode_whole(input, client_frame)
}

/// Decodes a node's frame at the start of `input`.
pub fn decode_node_frame(input: &[u8]) -> Result<DecodedFrame<NodeFrame<'_>>, Malformed> {
    decode_whole(input, node_frame)
}

fn decode_whole<'a, T>(
    input: &'a [u8],
    read: fn(u8, &'a [u8]) -> Result<T, Malformed>,
) -> Result<DecodedFrame<T>, Malformed> {
    let head = match head(input)? {
        DecodedFrame::Frame(head, _) => head,
        DecodedFrame::NeedMore(bytes) => return Ok(DecodedFrame::NeedMore(bytes)),
    };
    let used = HEAD_BYTES + head.length;
    match input.get(HEAD_BYTES..used) {
        Some(body) => Ok(DecodedFrame::Frame(read(head.kind, body)?, used)),
        None => Ok(DecodedFrame::NeedMore(used - input.len())),
    }
}

fn client_frame(kind: u8, body: &[u8]) -> Result<ClientFrame<'_>, Malformed> {
    let mut fields = Fields(body);
    let ask = match kind {
        kind::HELLO => {
            if fields.take()? != MAGIC {
                return Err(Malformed::Field("magic"));
            }
            let version = fields.u32()?;
            ClientFrame::Hello { version }
        }
        kind::OPEN => ClientFrame::Open {
            mode: match fields.u8()? {
                0 => OpenMode::Create,
                1 => OpenMode::Append,
                2 => OpenMode::Takeover,
                3 => OpenMode::Continue,
                _ => return Err(Malformed::Field("how")),
            },
            writer: u128::from_le_bytes(fields.take()?),
            name: fields.name()?,
        },
        kind::DATA => ClientFrame::Data(fields.rest()),
        kind::CLOSE => ClientFrame::Close { finish: fields.flag("finish")? },
        kind::STAT => ClientFrame::Stat { name: fields.name()? },
        kind::LIST => ClientFrame::List { after_name: fields.name()? },
        kind::TRIM => ClientFrame::Trim { retain_from: fields.u64()?, name: fields.name()? },
        kind::REMOVE => ClientFrame::Remove { name: fields.name()? },
        kind::READ => ClientFrame::Read {
            from: fields.u64()?,
            to: fields.u64()?,
            follow: fields.flag("follow")?,
            name: fields.name()?,
        },
        kind::RETAIN => ClientFrame::Retain { keep: fields.retention()?, name: fields.name()? },
        kind::LOGIN => {
            let length = usize::from(fields.u8()?);
            ClientFrame::Login {
                name: fields.sub_fields(length)?.name()?,
                password: fields.password()?,
            }
        }
        unknown => return Err(Malformed::Kind(unknown)),
    };
    fields.finish(ask)
}

fn node_frame(kind: u8, body: &[u8]) -> Result<NodeFrame<'_>, Malformed> {
    let mut fields = Fields(body);
    let answer = match kind {
        kind::WELCOME => NodeFrame::Welcome {
            version: fields.u32()?,
            node: NodeId(fields.u32()?),
            leader: fields.text("leader", TEXT_BYTES_MAX)?,
        },
        kind::OPENED => NodeFrame::Opened { position: fields.u64()? },
        kind::DURABLE => NodeFrame::Durable { position: fields.u64()? },
        kind::CLOSED => NodeFrame::Closed { position: fields.u64()? },
        kind::ENDED => NodeFrame::Ended { position: fields.u64()? },
        kind::INFO => NodeFrame::Info(fields.info()?),
        kind::LIST_END => NodeFrame::ListEnd,
        kind::BYTES => {
            let position = fields.u64()?;
            let bytes = fields.rest();
            if bytes.is_empty() {
                return Err(Malformed::Field("length"));
            }
            NodeFrame::Bytes { position, bytes }
        }
        kind::END => NodeFrame::End { position: fields.u64()?, finished: fields.flag("finished")? },
        kind::DONE => NodeFrame::Done { position: fields.u64()? },
        kind::ERROR => {
            let code = u16::from_le_bytes(fields.take()?);
            let position = fields.u64()?;
            let length = usize::from(u16::from_le_bytes(fields.take()?));
            let mut detail = fields.sub_fields(length)?;
            NodeFrame::Error {
                code,
                position,
                detail: detail.text("detail", TEXT_BYTES_MAX)?,
                hint: fields.text("hint", TEXT_BYTES_MAX)?,
            }
        }
        kind::KNOWN => NodeFrame::LoginAccepted,
        unknown => return Err(Malformed::Kind(unknown)),
    };
    fields.finish(answer)
}

/// Undecoded rest of a body, consumed from the front.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.0.split_first_chunk().ok_or(Malformed::Field("length"))?;
        self.0 = rest;
        Ok(*head)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        self.take().map(|[byte]: [u8; 1]| byte)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.take().map(u64::from_le_bytes)
    }

    fn flag(&mut self, name: &'static str) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::Field(name)),
        }
    }

    fn sub_fields(&mut self, length: usize) -> Result<Self, Malformed> {
        let (head, rest) = self.0.split_at_checked(length).ok_or(Malformed::Field("length"))?;
        self.0 = rest;
        Ok(Self(head))
    }

    fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.0)
    }

    /// Reads all remaining bytes as a text.
    fn text(&mut self, name: &'static str, bytes_max: usize) -> Result<&'a str, Malformed> {
        let text = core::str::from_utf8(self.rest()).map_err(|_| Malformed::Field(name))?;
        (text.len() <= bytes_max).then_some(text).ok_or(Malformed::Field(name))
    }

    fn name(&mut self) -> Result<&'a str, Malformed> {
        self.text("name", NAME_BYTES_MAX)
    }

    /// Reads all remaining bytes as a password.
    fn password(&mut self) -> Result<Password<'a>, Malformed> {
        let password = Password(self.rest());
        (password.0.len() <= PASSWORD_BYTES_MAX)
            .then_some(password)
            .ok_or(Malformed::Field("password"))
    }

    fn optional_bound(&mut self) -> Result<Option<u64>, Malformed> {
        Ok(Some(self.u64()?).filter(|bound| *bound != NO_BOUND))
    }

    fn retention(&mut self) -> Result<Retention, Malformed> {
        Ok(Retention { bytes: self.optional_bound()?, age_max_ms: self.optional_bound()? })
    }

    fn info(&mut self) -> Result<Info<'a>, Malformed> {
        let [id, start, end, created_ms] = [self.u64()?, self.u64()?, self.u64()?, self.u64()?];
        let pieces = self.u32()?;
        let finished = self.flag("finished")?;
        let is_written = self.flag("writing")?;
        let writing =
            StreamName { owner: NodeId(self.u32()?), boot: self.u32()?, number: self.u32()? };
        if !is_written && writing != StreamName::default() {
            return Err(Malformed::Field("writing"));
        }
        Ok(Info {
            id,
            finished,
            open_stream: is_written.then_some(writing),
            start,
            next_position: end,
            piece_count: pieces,
            created_ms,
            retention: self.retention()?,
            name: self.name()?,
        })
    }

    /// Returns `frame` if no bytes are left over.
    fn finish<T>(self, frame: T) -> Result<T, Malformed> {
        self.0.is_empty().then_some(frame).ok_or(Malformed::Field("length"))
    }
}
