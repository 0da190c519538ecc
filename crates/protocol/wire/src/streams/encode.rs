//! Encodes stream client frames to bytes.

use alloc::vec::Vec;

use super::{
    BODY_BYTES_MAX, ClientFrame, HEAD_BYTES, Info, MAGIC, NAME_BYTES_MAX, NO_BOUND, NodeFrame,
    PASSWORD_BYTES_MAX, POSITION_BYTES, Retention, STREAM_BYTES_MAX, TEXT_BYTES_MAX, kind,
};

impl ClientFrame<'_> {
    /// Appends the frame.
    ///
    /// # Panics
    ///
    /// Panics if a name is longer than [`NAME_BYTES_MAX`], a password longer than
    /// [`PASSWORD_BYTES_MAX`], or data longer than [`BODY_BYTES_MAX`]. The caller splits data, and
    /// rejects longer names and passwords as invalid.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Hello { version } => append_frame(kind::HELLO, out, |out| {
                out.extend_from_slice(&MAGIC);
                out.extend_from_slice(&version.to_le_bytes());
            }),
            Self::Open { mode: how, writer, name } => append_frame(kind::OPEN, out, |out| {
                out.push(how as u8);
                out.extend_from_slice(&writer.to_le_bytes());
                put_name(name, out);
            }),
            Self::Data(bytes) => {
                out.extend_from_slice(&data_head(bytes.len()));
                out.extend_from_slice(bytes);
            }
            Self::Close { finish } => {
                append_frame(kind::CLOSE, out, |out| out.push(u8::from(finish)))
            }
            Self::Stat { name } => append_frame(kind::STAT, out, |out| put_name(name, out)),
            Self::List { after_name: after } => {
                append_frame(kind::LIST, out, |out| put_name(after, out))
            }
            Self::Trim { retain_from: before, name } => append_frame(kind::TRIM, out, |out| {
                put64(before, out);
                put_name(name, out);
            }),
            Self::Remove { name } => append_frame(kind::REMOVE, out, |out| put_name(name, out)),
            Self::Read { from, to, follow, name } => append_frame(kind::READ, out, |out| {
                put64(from, out);
                put64(to, out);
                out.push(u8::from(follow));
                put_name(name, out);
            }),
            Self::Retain { keep, name } => append_frame(kind::RETAIN, out, |out| {
                put_retention(keep, out);
                put_name(name, out);
            }),
            Self::Login { name, password } => append_frame(kind::LOGIN, out, |out| {
                let Ok(length) = u8::try_from(name.len()) else {
                    panic!("a name of {} bytes", name.len())
                };
                assert!(password.0.len() <= PASSWORD_BYTES_MAX, "a long password");
                out.push(length);
                put_name(name, out);
                out.extend_from_slice(password.0);
            }),
        }
    }
}

impl NodeFrame<'_> {
    /// Appends the frame. A text longer than [`TEXT_BYTES_MAX`] is truncated.
    ///
    /// # Panics
    ///
    /// Panics if a name is longer than [`NAME_BYTES_MAX`], or if there are no bytes or more than
    /// [`STREAM_BYTES_MAX`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        let at = |kind, position, out| append_frame(kind, out, |out| put64(position, out));
        match *self {
            Self::Welcome { version, node, leader } => append_frame(kind::WELCOME, out, |out| {
                put32(version, out);
                put32(node.0, out);
                out.extend_from_slice(truncate_text(leader).as_bytes());
            }),
            Self::Opened { position } => at(kind::OPENED, position, out),
            Self::Durable { position } => at(kind::DURABLE, position, out),
            Self::Closed { position } => at(kind::CLOSED, position, out),
            Self::Ended { position } => at(kind::ENDED, position, out),
            Self::Info(info) => append_frame(kind::INFO, out, |out| put_info(&info, out)),
            Self::ListEnd => append_frame(kind::LIST_END, out, |_| ()),
            Self::Bytes { position, bytes } => {
                out.extend_from_slice(&bytes_head(position, bytes.len()));
                out.extend_from_slice(bytes);
            }
            Self::End { position, finished } => append_frame(kind::END, out, |out| {
                put64(position, out);
                out.push(u8::from(finished));
            }),
            Self::Done { position } => at(kind::DONE, position, out),
            Self::Error { code, position, detail, hint } => append_frame(kind::ERROR, out, |out| {
                let detail = truncate_text(detail);
                let length = u16::try_from(detail.len()).expect("cut to TEXT_BYTES_MAX");
                out.extend_from_slice(&code.to_le_bytes());
                put64(position, out);
                out.extend_from_slice(&length.to_le_bytes());
                out.extend_from_slice(detail.as_bytes());
                out.extend_from_slice(truncate_text(hint).as_bytes());
            }),
            Self::LoginAccepted => append_frame(kind::KNOWN, out, |_| ()),
        }
    }
}

/// Returns the head of a [`ClientFrame::Data`] with `bytes` bytes, for a sender that does not copy
/// them.
///
/// # Panics
///
/// Panics if there are more than [`BODY_BYTES_MAX`].
pub fn data_head(bytes: usize) -> [u8; HEAD_BYTES] {
    head(kind::DATA, bytes)
}

/// Returns the head and position of a [`NodeFrame::Bytes`] with `bytes` bytes, for a sender that
/// does not copy them.
///
/// # Panics
///
/// Panics if there are no bytes, or more than [`STREAM_BYTES_MAX`].
pub fn bytes_head(position: u64, bytes: usize) -> [u8; HEAD_BYTES + POSITION_BYTES] {
    assert!((1..=STREAM_BYTES_MAX).contains(&bytes), "{bytes} in one frame");
    let mut all = [0; HEAD_BYTES + POSITION_BYTES];
    all[..HEAD_BYTES].copy_from_slice(&head(kind::BYTES, POSITION_BYTES + bytes));
    all[HEAD_BYTES..].copy_from_slice(&position.to_le_bytes());
    all
}

fn head(kind: u8, length: usize) -> [u8; HEAD_BYTES] {
    assert!(length <= BODY_BYTES_MAX, "{length} bytes in one frame");
    let length = u32::try_from(length).expect("just compared with less");
    let [a, b, c, d] = length.to_le_bytes();
    [kind, 0, 0, 0, a, b, c, d]
}

/// Appends a frame. The function `body` appends the body.
fn append_frame(kind: u8, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; HEAD_BYTES]);
    body(out);
    let length = out.len() - start - HEAD_BYTES;
    out[start..start + HEAD_BYTES].copy_from_slice(&head(kind, length));
}

fn put32(number: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put64(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_name(name: &str, out: &mut Vec<u8>) {
    assert!(name.len() <= NAME_BYTES_MAX, "a name of {} bytes", name.len());
    out.extend_from_slice(name.as_bytes());
}

fn put_retention(keep: Retention, out: &mut Vec<u8>) {
    for bound in [keep.bytes, keep.age_max_ms] {
        put64(bound.unwrap_or(NO_BOUND), out);
    }
}

fn put_info(info: &Info<'_>, out: &mut Vec<u8>) {
    for number in [info.id, info.start, info.next_position, info.created_ms] {
        put64(number, out);
    }
    put32(info.piece_count, out);
    out.push(u8::from(info.finished));
    out.push(u8::from(info.open_stream.is_some()));
    let writing = info.open_stream.unwrap_or_default();
    for number in [writing.owner.0, writing.boot, writing.number] {
        put32(number, out);
    }
    put_retention(info.retention, out);
    put_name(info.name, out);
}

/// Returns the longest start of a text that fits into a frame.
fn truncate_text(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}
