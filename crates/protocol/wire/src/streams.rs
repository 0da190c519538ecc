//! The framed protocol between a node and the clients of its byte streams.
//!
//! A client sends [`Ask`]s, the node [`Answer`]s. `docs/spec/streams-client.md` has the byte
//! tables, the order in which frames may come, and an example.
//!
//! ```
//! use quorate_wire::streams::{Ask, Found, decode_ask};
//!
//! let mut bytes = Vec::new();
//! Ask::Stat { name: "backup" }.encode(&mut bytes);
//! let Ok(Found::Frame(ask, used)) = decode_ask(&bytes) else {
//!     unreachable!("the frame is whole");
//! };
//! assert_eq!((ask, used), (Ask::Stat { name: "backup" }, bytes.len()));
//! ```

mod decode;
mod encode;

use core::fmt;

use quorate_core::{node_id::NodeId, value::StreamName};

pub use decode::{Found, Head, Malformed, decode_answer, decode_ask, head};
pub use encode::{bytes_head, data_head};

/// Protocol version; the client names it first.
pub const VERSION: u32 = 1;
/// Bytes before the body of a frame: its kind, three zeros, and the length of the body.
pub const HEAD_BYTES: usize = 8;
/// Longest body of [`Ask::Data`] and [`Answer::Bytes`].
pub const BODY_BYTES_MAX: usize = 256 << 10;
/// Longest body of every other frame.
pub const SMALL_BYTES_MAX: usize = 1024;
/// Most bytes of a stream in one [`Answer::Bytes`].
pub const BYTES_MAX: usize = BODY_BYTES_MAX - POSITION_BYTES;
/// Longest name in a frame, in bytes; which names there may be is for the node to say.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest password, in bytes.
pub const PASSWORD_BYTES_MAX: usize = 512;
/// Longest text in a frame, in bytes: what is longer is cut.
pub const TEXT_BYTES_MAX: usize = 400;

/// Bytes of a position.
const POSITION_BYTES: usize = 8;
/// Said of what has no bound.
const UNBOUNDED: u64 = u64::MAX;
/// First bytes of a hello.
const MAGIC: [u8; 4] = *b"QRTS";

/// The kind of each frame, its first byte.
mod kind {
    pub(super) const HELLO: u8 = 0x01;
    pub(super) const OPEN: u8 = 0x02;
    pub(super) const DATA: u8 = 0x03;
    pub(super) const CLOSE: u8 = 0x04;
    pub(super) const STAT: u8 = 0x05;
    pub(super) const LIST: u8 = 0x06;
    pub(super) const TRIM: u8 = 0x07;
    pub(super) const REMOVE: u8 = 0x08;
    pub(super) const READ: u8 = 0x09;
    pub(super) const RETAIN: u8 = 0x0a;
    pub(super) const LOGIN: u8 = 0x0b;

    pub(super) const WELCOME: u8 = 0x81;
    pub(super) const OPENED: u8 = 0x82;
    pub(super) const DURABLE: u8 = 0x83;
    pub(super) const CLOSED: u8 = 0x84;
    pub(super) const ENDED: u8 = 0x85;
    pub(super) const INFO: u8 = 0x86;
    pub(super) const LIST_END: u8 = 0x87;
    pub(super) const BYTES: u8 = 0x88;
    pub(super) const END: u8 = 0x89;
    pub(super) const DONE: u8 = 0x8a;
    pub(super) const ERROR: u8 = 0x8b;
    pub(super) const KNOWN: u8 = 0x8c;
}

/// Mode of opening a stream for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum How {
    /// There is none of this name. (Or there is, by this very writer, who never heard that.)
    Create = 0,
    /// It exists, without a writer.
    Append = 1,
    /// It exists; its writer, if any, is fenced ([stream-10]).
    Takeover = 2,
    /// This writer was the last to write to it, and goes on.
    Continue = 3,
}

/// A client's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask<'a> {
    /// The first frame.
    Hello {
        /// The client's protocol: [`VERSION`].
        version: u32,
    },
    /// Open a stream for writing: [`Answer::Opened`].
    Open {
        /// Whether it may, must or must not exist.
        how: How,
        /// Drawn at random by the client, and shown again when it comes back.
        writer: u128,
        /// Which stream.
        name: &'a str,
    },
    /// The next bytes of the stream that is open.
    Data(&'a [u8]),
    /// No more bytes come: [`Answer::Closed`] when all are decided.
    Close {
        /// The stream ends here for good.
        finish: bool,
    },
    /// Asks for a description: [`Answer::Info`].
    Stat {
        /// Which.
        name: &'a str,
    },
    /// Which streams there are, in the order of their names: [`Answer::Info`] for each, then
    /// [`Answer::ListEnd`].
    List {
        /// Only those behind this name; empty: all.
        after: &'a str,
    },
    /// Forget what is below a position: [`Answer::Done`] with the position where the stream starts
    /// now.
    Trim {
        /// The first position that is kept.
        before: u64,
        /// Which stream.
        name: &'a str,
    },
    /// Forget a stream: [`Answer::Done`].
    Remove {
        /// Which.
        name: &'a str,
    },
    /// Read a stream: [`Answer::Bytes`], then [`Answer::End`].
    Read {
        /// The first position.
        from: u64,
        /// The position behind the last; `u64::MAX` for the end of the stream.
        to: u64,
        /// Wait for more where the stream ends, until it is closed for good.
        follow: bool,
        /// Which stream.
        name: &'a str,
    },
    /// Keep so much of a stream from now on: [`Answer::Done`] with the position where it starts
    /// now.
    Retain {
        keep: Keep,
        /// Which stream.
        name: &'a str,
    },
    /// Logs in: [`Answer::Known`].
    Login {
        /// A user; not longer than a name.
        name: &'a str,
        /// Only there.
        password: Password<'a>,
    },
}

/// A password, at most [`PASSWORD_BYTES_MAX`] bytes. It is not shown where frames are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Password<'a>(pub &'a [u8]);

impl fmt::Debug for Password<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// Retention of a stream. Bytes beyond either bound may be forgotten; without bounds, all is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// At most so many bytes, of those that came last. `u64::MAX` is said as no bound.
    pub bytes: Option<u64>,
    /// Longest age in milliseconds. `u64::MAX` means no bound.
    pub age_ms: Option<u64>,
}

/// A node's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// To a hello.
    Welcome {
        /// The node's protocol: [`VERSION`].
        version: u32,
        node: NodeId,
        /// The leader's address for streams, if that is another node and known; else empty.
        leader: &'a str,
    },
    /// The connection is a writer's.
    Opened {
        /// Position of the next byte; all before are decided, and final.
        position: u64,
    },
    /// All bytes below are decided, at the class of the group.
    Durable {
        /// Never less than what was said before.
        position: u64,
    },
    /// To a close: no byte comes behind this position by this writer.
    Closed {
        /// All bytes below are decided.
        position: u64,
    },
    /// Another client ended this connection's stream at this position. Bytes sent beyond are void.
    Ended {
        /// All bytes below are decided.
        position: u64,
    },
    /// One stream.
    Info(Info<'a>),
    /// There are no more streams.
    ListEnd,
    /// Bytes of a stream; not empty.
    Bytes {
        /// Position of the first byte.
        position: u64,
        /// From there on.
        bytes: &'a [u8],
    },
    /// A read is done.
    End {
        /// End of the bytes sent.
        position: u64,
        /// The stream ends there for good.
        finished: bool,
    },
    /// To a trim, a bound or a removal.
    Done {
        /// Start of the stream now; 0 if it is gone.
        position: u64,
    },
    /// Not done, or not known to be.
    Error {
        /// A [`Code`], if this version knows it.
        code: u16,
        /// Meaning given by the code; else 0.
        position: u64,
        /// Description, for people.
        detail: &'a str,
        /// Advice, for people.
        hint: &'a str,
    },
    /// To a login: the password fits.
    Known,
}

/// One stream, as the answering node has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info<'a> {
    /// Tells it from another of the same name.
    pub id: u64,
    /// Nothing is appended any more.
    pub finished: bool,
    /// The inner stream that is appended to, if one is; it names the node that the writer talks to.
    pub writing: Option<StreamName>,
    /// The first position that is kept.
    pub start: u64,
    /// The next position.
    pub end: u64,
    /// Number of pieces.
    pub pieces: u32,
    /// Unix time in milliseconds of its creation.
    pub created_ms: u64,
    pub keep: Keep,
    /// Name given by users.
    pub name: &'a str,
}

/// Why something is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum Code {
    /// Bytes that are no frame; the connection ends.
    Malformed = 1,
    /// The client speaks another version; the connection ends.
    Version = 2,
    /// A frame that makes no sense at this moment; the connection ends.
    OutOfOrder = 3,
    /// No stream can have this name.
    Name = 4,
    /// There is no such stream.
    Unknown = 10,
    /// There is one of this name already.
    Exists = 11,
    /// Permanently closed.
    Finished = 12,
    /// Another client writes to it.
    InUse = 13,
    /// Another writer took it over.
    Fenced = 14,
    /// As many streams as there may be.
    TooManyStreams = 15,
    /// As many pieces of this stream as there may be.
    TooManyPieces = 16,
    /// The stream ends before; `position` says where.
    BehindEnd = 17,
    /// The requested bytes are forgotten; the stream starts at `position`.
    Trimmed = 18,
    /// The client may not do this: it has no role for it.
    Forbidden = 19,
    /// No user has this name and password; the connection ends.
    WrongPassword = 20,
    /// The node is busy; not done.
    Busy = 30,
    /// No leader was found in time; not done.
    NoQuorum = 31,
    /// The node stops, or its log failed; not done.
    Stopping = 32,
    /// This node cannot do it at the moment; another may.
    Unavailable = 33,
    /// The request may have been executed, or may yet be.
    Uncertain = 34,
}

impl Code {
    /// All of them.
    pub const ALL: [Self; 20] = [
        Self::Malformed,
        Self::Version,
        Self::OutOfOrder,
        Self::Name,
        Self::Unknown,
        Self::Exists,
        Self::Finished,
        Self::InUse,
        Self::Fenced,
        Self::TooManyStreams,
        Self::TooManyPieces,
        Self::BehindEnd,
        Self::Trimmed,
        Self::Forbidden,
        Self::WrongPassword,
        Self::Busy,
        Self::NoQuorum,
        Self::Stopping,
        Self::Unavailable,
        Self::Uncertain,
    ];

    /// As in a frame.
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// The reverse; `None` for a code of another version.
    pub fn of(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.number() == number)
    }

    /// Returns whether the node closes the connection after it.
    pub const fn ends_connection(self) -> bool {
        matches!(self, Self::Malformed | Self::Version | Self::OutOfOrder | Self::WrongPassword)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "malformed",
            Self::Version => "version",
            Self::OutOfOrder => "out-of-order",
            Self::Name => "name",
            Self::Unknown => "unknown",
            Self::Exists => "exists",
            Self::Finished => "finished",
            Self::InUse => "in-use",
            Self::Fenced => "fenced",
            Self::TooManyStreams => "too-many-streams",
            Self::TooManyPieces => "too-many-pieces",
            Self::BehindEnd => "behind-end",
            Self::Trimmed => "trimmed",
            Self::Forbidden => "forbidden",
            Self::WrongPassword => "wrong-password",
            Self::Busy => "busy",
            Self::NoQuorum => "no-quorum",
            Self::Stopping => "stopping",
            Self::Unavailable => "unavailable",
            Self::Uncertain => "uncertain",
        })
    }
}
