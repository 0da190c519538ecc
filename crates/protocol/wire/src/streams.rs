//! The framed protocol between a node and the clients of its byte streams.
//!
//! A client sends [`ClientFrame`]s, the node [`NodeFrame`]s. `docs/spec/streams-client.md` has the
//! byte tables, the permitted order of frames, and an example.
//!
//! ```
//! use quorate_wire::streams::{ClientFrame, DecodedFrame, decode_client_frame};
//!
//! let mut bytes = Vec::new();
//! ClientFrame::Stat { name: "backup" }.encode(&mut bytes);
//! let Ok(DecodedFrame::Frame(frame, used)) = decode_client_frame(&bytes) else {
//!     unreachable!("the frame is whole");
//! };
//! assert_eq!((frame, used), (ClientFrame::Stat { name: "backup" }, bytes.len()));
//! ```

mod decode;
mod encode;

use core::fmt;

use quorate_core::{node_id::NodeId, value::StreamName};

pub use decode::{
    DecodedFrame, FrameHead, Malformed, decode_client_frame, decode_node_frame, head,
};
pub use encode::{bytes_head, data_head};

/// Version of the protocol. The client sends its version first.
pub const VERSION: u32 = 1;
/// Length of a frame before its body, in bytes: the kind, three zeros, and the length of the body.
pub const HEAD_BYTES: usize = 8;
/// Maximum body length of [`ClientFrame::Data`] and [`NodeFrame::Bytes`], in bytes.
pub const BODY_BYTES_MAX: usize = 256 << 10;
/// Maximum body length of all other frames, in bytes.
pub const CONTROL_BODY_BYTES_MAX: usize = 1024;
/// Maximum number of stream bytes in one [`NodeFrame::Bytes`].
pub const STREAM_BYTES_MAX: usize = BODY_BYTES_MAX - POSITION_BYTES;
/// Maximum length of a name in a frame, in bytes. The node decides which names are valid.
pub const NAME_BYTES_MAX: usize = 255;
/// Maximum length of a password, in bytes.
pub const PASSWORD_BYTES_MAX: usize = 512;
/// Maximum length of a text in a frame, in bytes. Longer texts are truncated.
pub const TEXT_BYTES_MAX: usize = 400;

/// Length of an encoded position in bytes.
const POSITION_BYTES: usize = 8;
/// Value of a field that means "no bound".
const NO_BOUND: u64 = u64::MAX;
/// First bytes of a hello, which identify the protocol.
const MAGIC: [u8; 4] = *b"QRTS";

/// Kinds of frames. The kind is the first byte of a frame.
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

/// Mode in which a stream is opened for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum OpenMode {
    /// The stream must not exist, unless this writer created it and the response was lost.
    Create = 0,
    /// The stream must exist and have no writer.
    Append = 1,
    /// The stream must exist. Its current writer, if any, is fenced ([stream-10]).
    Takeover = 2,
    /// This writer must be the last one that opened the stream, and continues to write.
    Continue = 3,
}

/// A frame from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientFrame<'a> {
    /// First frame on a connection.
    Hello {
        /// Protocol version of the client, which is [`VERSION`].
        version: u32,
    },
    /// Opens a stream for writing. Response: [`NodeFrame::Opened`].
    Open {
        /// Required state of the stream.
        mode: OpenMode,
        /// Id of the writer, chosen at random by the client, and sent again when it reconnects.
        writer: u128,
        name: &'a str,
    },
    /// The next bytes of the stream that is open for writing.
    Data(&'a [u8]),
    /// Ends writing. Response: [`NodeFrame::Closed`] once all bytes are decided.
    Close {
        /// Also finish the stream permanently.
        finish: bool,
    },
    /// Requests the description of a stream. Response: [`NodeFrame::Info`].
    Stat { name: &'a str },
    /// Lists the streams, sorted by name. Response: [`NodeFrame::Info`] for each, then
    /// [`NodeFrame::ListEnd`].
    List {
        /// List only names that sort after this one; empty to list all.
        after_name: &'a str,
    },
    /// Deletes the bytes below a position. Response: [`NodeFrame::Done`] with the new start of the
    /// stream.
    Trim {
        /// First position to retain.
        retain_from: u64,
        name: &'a str,
    },
    /// Deletes a stream. Response: [`NodeFrame::Done`].
    Remove { name: &'a str },
    /// Reads a stream. Response: [`NodeFrame::Bytes`], then [`NodeFrame::End`].
    Read {
        /// First position to read.
        from: u64,
        /// End of the positions to read, exclusive; `u64::MAX` for the end of the stream.
        to: u64,
        /// At the end of the stream, wait for more bytes until the stream is finished permanently.
        follow: bool,
        name: &'a str,
    },
    /// Sets the retention of a stream. Response: [`NodeFrame::Done`] with the new start of the
    /// stream.
    Retain { keep: Retention, name: &'a str },
    /// Logs in. Response: [`NodeFrame::LoginAccepted`].
    Login {
        /// Name of the user, with the same maximum length as other names.
        name: &'a str,
        /// Password of the user. No other frame contains a password.
        password: Password<'a>,
    },
}

/// A password of at most [`PASSWORD_BYTES_MAX`] bytes. Debug output hides it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Password<'a>(pub &'a [u8]);

impl fmt::Debug for Password<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// Retention of a stream. Bytes beyond either bound may be deleted. Without bounds, all bytes are
/// retained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Maximum number of bytes to retain, counting back from the newest; `None` for no limit.
    /// `u64::MAX` is encoded in the same way as `None`.
    pub bytes: Option<u64>,
    /// Maximum age of bytes in milliseconds; `None` for no limit. `u64::MAX` is encoded in the same
    /// way as `None`.
    pub age_max_ms: Option<u64>,
}

/// A frame from a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeFrame<'a> {
    /// Response to a hello.
    Welcome {
        /// Protocol version of the node, which is [`VERSION`].
        version: u32,
        node: NodeId,
        /// Address of the leader for streams; empty if this node leads or knows no leader.
        leader: &'a str,
    },
    /// The stream is open for writing on this connection.
    Opened {
        /// Position of the next byte. All earlier bytes are decided and final.
        position: u64,
    },
    /// All bytes below the position are decided, at the group's class.
    Durable {
        /// End of the decided bytes. Never decreases.
        position: u64,
    },
    /// Response to a close. This writer adds no bytes beyond the position.
    Closed {
        /// End of the decided bytes.
        position: u64,
    },
    /// Another client ended writing on this connection. Bytes that were sent beyond the position
    /// are void.
    Ended {
        /// End of the decided bytes.
        position: u64,
    },
    /// Response to a request for one stream, and entry of a list of streams.
    Info(Info<'a>),
    ListEnd,
    /// Bytes of a stream, at least one.
    Bytes {
        /// Position of the first byte.
        position: u64,
        bytes: &'a [u8],
    },
    /// All bytes of a read were sent.
    End {
        /// End of the bytes that were sent for this read.
        position: u64,
        /// The stream is finished permanently at this position.
        finished: bool,
    },
    /// Response to a trim, a retention or a removal.
    Done {
        /// Current start of the stream; 0 if the stream was deleted.
        position: u64,
    },
    /// The request failed. With [`ErrorCode::Uncertain`], it may nevertheless have been executed.
    Error {
        /// Number of an [`ErrorCode`], which may be unknown to this version.
        code: u16,
        /// Position whose meaning the code defines; otherwise 0.
        position: u64,
        /// Description of the error for the user.
        detail: &'a str,
        /// Advice to the user on how to proceed.
        hint: &'a str,
    },
    /// Response to a login whose password matches.
    LoginAccepted,
}

/// Description of a stream, as known to the responding node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info<'a> {
    /// Number that distinguishes streams with the same name.
    pub id: u64,
    /// The stream is finished permanently.
    pub finished: bool,
    /// Inner stream that is being appended to; `None` if the stream has no writer. The owner of the
    /// inner stream is the node to which the writer is connected.
    pub open_stream: Option<StreamName>,
    /// First retained position.
    pub start: u64,
    /// Position of the next byte.
    pub next_position: u64,
    /// Number of pieces that the stream consists of.
    pub piece_count: u32,
    /// Creation time of the stream, as Unix time in milliseconds.
    pub created_ms: u64,
    pub retention: Retention,
    pub name: &'a str,
}

/// Reason for the failure of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum ErrorCode {
    /// The bytes are not a frame. The connection is closed.
    Malformed = 1,
    /// The client uses another protocol version. The connection is closed.
    Version = 2,
    /// The frame is not allowed at this point of the exchange. The connection is closed.
    OutOfOrder = 3,
    /// The name is not valid for a stream.
    Name = 4,
    /// The stream does not exist.
    Unknown = 10,
    /// A stream with this name already exists.
    Exists = 11,
    /// The stream is finished permanently.
    Finished = 12,
    /// Another client is writing to the stream.
    InUse = 13,
    /// Another writer took over the stream.
    Fenced = 14,
    /// The maximum number of streams is reached.
    TooManyStreams = 15,
    /// The stream has reached its maximum number of pieces.
    TooManyPieces = 16,
    /// The position is beyond the end of the stream, which is at `position`.
    PastEnd = 17,
    /// The requested bytes were deleted. The stream starts at `position`.
    Trimmed = 18,
    /// None of the user's roles permits the request.
    Forbidden = 19,
    /// No user has this name and password. The connection is closed.
    WrongPassword = 20,
    /// The node is busy. The request was not executed.
    Busy = 30,
    /// No leader was found in time. The request was not executed.
    NoQuorum = 31,
    /// The node is stopping, or its log failed. The request was not executed.
    Stopping = 32,
    /// This node cannot execute the request at the moment, but another node may.
    Unavailable = 33,
    /// The request may have been executed, or may still be executed.
    Uncertain = 34,
}

impl ErrorCode {
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
        Self::PastEnd,
        Self::Trimmed,
        Self::Forbidden,
        Self::WrongPassword,
        Self::Busy,
        Self::NoQuorum,
        Self::Stopping,
        Self::Unavailable,
        Self::Uncertain,
    ];

    /// Returns the number used in frames.
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// Returns the code numbered `number`; `None` for a code of another version.
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.number() == number)
    }
}

impl fmt::Display for ErrorCode {
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
            Self::PastEnd => "behind-end",
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
