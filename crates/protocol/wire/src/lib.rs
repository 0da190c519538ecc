//! The wire format: encodes messages to bytes and decodes them, hostile input included.
//!
//! Reading order: [`frame`] (all frames), [`header`] (the fixed layout), [`value`] (descriptors),
//! [`encode`](mod@encode), [`decode`](mod@decode). `docs/spec/wire.md` has the byte tables,
//! `vectors/` the golden bytes. Separate from these are the protocols between nodes and clients of
//! byte streams ([`streams`]) and of devices ([`frame_clients`]).
//!
//! ```
//! use quorate_core::{message::Message, node_id::Member};
//! use quorate_wire::{decode, encode, Decoded, Frame, BODY_BYTES_MAX};
//!
//! let frame = Frame::Protocol { message: Message::ReadRequest { id: 7 }, bytes: None };
//! let mut bytes = Vec::new();
//! encode(Member::first(1), &frame, &mut bytes)?;
//! match decode(&bytes, BODY_BYTES_MAX)? {
//!     Decoded::Frame { from, frame: again, used_bytes } => {
//!         assert_eq!((from, again, used_bytes), (Member::first(1), frame, bytes.len()));
//!     }
//!     Decoded::NeedMore(_) => unreachable!("the frame is whole"),
//! }
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![warn(clippy::cast_possible_truncation)]
extern crate alloc;

pub mod decode;
pub mod encode;
pub mod frame;
pub mod frame_clients;
pub mod header;
mod kind;
pub mod levels;
pub mod streams;
pub mod value;
mod words;

pub use decode::{
    Decoded, Malformed, body_checksum, decode, decode_checked, decode_parts, sender_durable_seq,
    stream_position,
};
pub use encode::{
    Encoded, Unencodable, encode, encode_checked, encode_logged, encode_parts, encoded_len,
};
pub use frame::{
    DatagramChannel, Datagrams, Founding, Frame, Hello, Join, Lane, NO_CLUSTER, RefusalCode,
};

/// Maximum body length of a frame that this version sends, in bytes. Receivers should pass it to
/// [`decode`](fn@decode) once a peer is known.
pub const BODY_BYTES_MAX: usize = 16 << 20;

/// Maximum body length of a frame from an unauthenticated peer, in bytes.
pub const HANDSHAKE_BODY_BYTES_MAX: usize = 32 << 10;

/// Returns the CRC-32C of the bytes, as used in every frame, batch name and log record.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}
