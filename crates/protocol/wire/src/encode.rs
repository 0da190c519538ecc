//! Encodes frames and appends the bytes to the caller's buffer.

use alloc::{borrow::Cow, vec::Vec};
use core::fmt;

use quorate_core::{
    effect::Refusal,
    lease::Lease,
    message::{
        EarlyVotesQuery, Extent, Heartbeat, HeartbeatReply, Message, Phase1b, Phase2a, Phase2b,
        RingEntry,
    },
    node_id::Member,
    record::Class,
    ring::RING_MAX,
    slot::Slot,
    value::Value,
    witness::Memory,
};

use crate::{
    BODY_BYTES_MAX, checksum,
    frame::{
        DATAGRAM_CHANNELS_MAX, FOUNDING_MEMBERS_MAX, Frame, Hello, Join, Lane,
        SNAPSHOT_PIECE_BYTES_MAX, STREAM_PIECE_BYTES_MAX, TEXT_BYTES_MAX,
    },
    header::{
        FLAG_AUXILIARY, FLAG_BUSY, FLAG_BYTES, FLAG_DISK_FULL, FLAG_GRANTED, FLAG_UNFIT,
        FLAG_WITH_BYTES, HEADER_BYTES, Header, ballot_bytes,
    },
    kind,
    value::{VALUE_BYTES, value_to_bytes},
};

/// Length of an extent in the body of a `Phase1b`, in bytes.
pub const EXTENT_BYTES: usize = 32 + VALUE_BYTES;

/// Reason for failing to encode a frame. Nothing has been appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unencodable {
    /// The body, or a text in it, is longer than receivers accept.
    TooLong,
    /// The bytes do not belong to the value ([value-2]), or the value takes no bytes.
    BytesMismatch,
}

impl fmt::Display for Unencodable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "the frame is longer than receivers accept",
            Self::BytesMismatch => "the bytes are not those of the value",
        })
    }
}

impl core::error::Error for Unencodable {}

/// Returns the length of the encoded frame, to reserve space in a plane's buffer.
pub fn encoded_len(frame: &Frame<'_>) -> usize {
    let body = match frame {
        Frame::Hello(hello) | Frame::Welcome(hello) => {
            HELLO_BYTES + 4 + hello.client.len() + hello.admin.len() + stream_len(hello)
        }
        Frame::Refused(_, reason) => reason.len(),
        Frame::Founding(founding) => {
            let members = founding.members.iter().map(|(_, address)| 6 + address.len());
            FOUNDING_BYTES + 2 + founding.store.len() + members.sum::<usize>()
        }
        Frame::Datagrams(datagrams) => {
            2 + datagrams.address.len() + datagrams.channels.len() * DATAGRAM_CHANNEL_BYTES
        }
        Frame::Protocol { message: Message::Phase1b(promise), .. } => {
            promise.extents.len() * EXTENT_BYTES
        }
        Frame::Protocol { message: Message::Lay { members, .. }, .. } => {
            members.len() * MEMBER_BYTES
        }
        Frame::Protocol { message: Message::RingVote(vote), .. } => {
            vote.entries.len() * RING_ENTRY_BYTES
        }
        Frame::Protocol { bytes, .. } | Frame::FetchReply { bytes, .. } => {
            bytes.map_or(0, <[u8]>::len)
        }
        Frame::Forward { bytes, .. }
        | Frame::SnapshotPiece { bytes, .. }
        | Frame::StreamBytes { bytes, .. } => bytes.len(),
        Frame::Join(_)
        | Frame::Recall { .. }
        | Frame::Recalled(_)
        | Frame::NotTaken { .. }
        | Frame::FetchRequest { .. }
        | Frame::Applied { .. }
        | Frame::SnapshotAsk { .. }
        | Frame::SnapshotOffer { .. }
        | Frame::Needless { .. } => 0,
    };
    HEADER_BYTES + body
}

/// Length of a `Hello`'s body before its texts, in bytes.
pub(crate) const HELLO_BYTES: usize = 28;
/// Length of a `Founding`'s body before its texts, in bytes.
pub(crate) const FOUNDING_BYTES: usize = 20;

/// Length of a member in the body of a `Lay`, in bytes.
pub(crate) const MEMBER_BYTES: usize = 8;
/// Length of an entry in the body of a `RingVote`, in bytes.
pub(crate) const RING_ENTRY_BYTES: usize = MEMBER_BYTES + 32;

/// Length of a channel in the body of `Datagrams`, in bytes.
pub(crate) const DATAGRAM_CHANNEL_BYTES: usize = 16;

/// An encoded frame in two parts. Nothing in it depends on the receiver, so a frame for several
/// receivers is encoded once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded<'a> {
    /// The header, including its checksum and that of the body.
    pub header: [u8; HEADER_BYTES],
    /// The body. The bytes of a value are borrowed from the frame.
    pub body: Cow<'a, [u8]>,
}

impl Encoded<'_> {
    /// Returns the length of header and body in bytes.
    pub fn bytes(&self) -> usize {
        HEADER_BYTES + self.body.len()
    }
}

/// Encodes a frame of sender `from` without copying the bytes of a value.
pub fn encode_parts<'a>(from: Member, frame: &Frame<'a>) -> Result<Encoded<'a>, Unencodable> {
    encode_checked(from, frame, checksum)
}

/// Encodes a frame like [`encode_parts`], but calls `check` for the checksum of a body that the
/// frame borrows. It is not called for a value, whose name contains the checksum, or for a body
/// encoded from fields.
pub fn encode_checked<'a>(
    from: Member,
    frame: &Frame<'a>,
    check: impl FnOnce(&[u8]) -> u32,
) -> Result<Encoded<'a>, Unencodable> {
    encode_logged(from, frame, 0, check)
}

/// Encodes a frame like [`encode_checked`], and reports to all receivers that the sender's log is
/// on stable storage up to write `logged` ([lie-1]).
pub fn encode_logged<'a>(
    from: Member,
    frame: &Frame<'a>,
    logged: u64,
    check: impl FnOnce(&[u8]) -> u32,
) -> Result<Encoded<'a>, Unencodable> {
    let length = encoded_len(frame) - HEADER_BYTES;
    if length > BODY_BYTES_MAX {
        return Err(Unencodable::TooLong);
    }
    let mut header = Header { sender: from, ..Header::default() };
    let body = match fill_header(&mut header, frame)? {
        // A batch's name already contains the checksum of its bytes.
        EncodedBody::ValueBytes(bytes, name) => {
            header.body_check = name;
            Cow::Borrowed(bytes)
        }
        EncodedBody::Bytes(bytes) => {
            header.body_check = check(bytes);
            Cow::Borrowed(bytes)
        }
        EncodedBody::FromFields => {
            let mut composed = Vec::with_capacity(length);
            append_body(frame, &mut composed);
            header.body_check = checksum(&composed);
            Cow::Owned(composed)
        }
    };
    assert_eq!(body.len(), length, "the length was computed before");
    header.set_durable_seq(logged);
    header.body_length = u32::try_from(length).map_err(|_| Unencodable::TooLong)?;
    Ok(Encoded { header: header.write(), body })
}

/// Appends a frame of sender `from`.
pub fn encode(from: Member, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), Unencodable> {
    let encoded = encode_parts(from, frame)?;
    out.reserve(encoded.bytes());
    out.extend_from_slice(&encoded.header);
    out.extend_from_slice(&encoded.body);
    Ok(())
}

/// Body of a frame. The variants differ in how the checksum is obtained.
enum EncodedBody<'a> {
    /// Bytes of a value, whose name contains their checksum.
    ValueBytes(&'a [u8], u32),
    /// Bytes whose checksum must be computed.
    Bytes(&'a [u8]),
    /// The body that the function `body` encodes. It is often empty.
    FromFields,
}

/// Fills the header with the frame's fields, and returns the body to be checked and sent.
fn fill_header<'a>(header: &mut Header, frame: &Frame<'a>) -> Result<EncodedBody<'a>, Unencodable> {
    match frame {
        Frame::Hello(hello) => fill_hello(header, kind::HELLO, hello),
        Frame::Welcome(hello) => fill_hello(header, kind::WELCOME, hello),
        Frame::Refused(code, reason) => {
            header.kind = kind::REFUSED;
            header.code = code.number();
            check_text_fits(reason).map(|()| EncodedBody::FromFields)
        }
        Frame::Join(Join { node, nonce, list_hash }) => {
            header.kind = kind::JOIN;
            header.number = *nonce;
            header.check = *list_hash;
            header.code = node.0;
            Ok(EncodedBody::FromFields)
        }
        Frame::Founding(founding) => {
            header.kind = kind::FOUNDING;
            if founding.members.len() > FOUNDING_MEMBERS_MAX {
                return Err(Unencodable::TooLong);
            }
            let mut addresses = founding.members.iter().map(|(_, address)| address);
            addresses.try_for_each(|address| check_text_fits(address))?;
            check_text_fits(founding.store).map(|()| EncodedBody::FromFields)
        }
        Frame::Recall { cluster, node } => {
            header.kind = kind::RECALL;
            header.code = node.0;
            fill_u128(header, *cluster);
            Ok(EncodedBody::FromFields)
        }
        Frame::Recalled(Memory { log_end: written, boot }) => {
            header.kind = kind::RECALLED;
            header.code = written.incarnation.0;
            header.number = written.last_write;
            header.check = u64::from(*boot);
            Ok(EncodedBody::FromFields)
        }
        Frame::Datagrams(datagrams) => {
            header.kind = kind::DATAGRAMS;
            header.code = datagrams.boot;
            header.number = u64::from(datagrams.key);
            if datagrams.channels.len() > DATAGRAM_CHANNELS_MAX {
                return Err(Unencodable::TooLong);
            }
            check_text_fits(datagrams.address).map(|()| EncodedBody::FromFields)
        }
        Frame::Protocol { message: Message::Lay { members, .. }, .. }
            if members.len() > RING_MAX =>
        {
            Err(Unencodable::TooLong)
        }
        Frame::Protocol { message: Message::RingVote(vote), .. }
            if vote.entries.len() > RING_MAX =>
        {
            Err(Unencodable::TooLong)
        }
        Frame::Protocol { message, bytes } => {
            let value = fill_message(header, message);
            match (value, bytes) {
                (_, None) => Ok(EncodedBody::FromFields),
                (Some(value), Some(bytes)) => value_body(header, &value, bytes),
                (None, Some(_)) => Err(Unencodable::BytesMismatch),
            }
        }
        Frame::Forward { value, bytes } => {
            header.kind = kind::FORWARD;
            header.value = value_to_bytes(value);
            match (value.has_bytes(), bytes) {
                (false, []) => Ok(EncodedBody::FromFields),
                _ => value_body(header, value, bytes),
            }
        }
        Frame::NotTaken { value, why, leader } => {
            header.kind = kind::NOT_TAKEN;
            header.value = value_to_bytes(value);
            header.code = refusal_number(*why);
            header.number = leader.map_or(0, |node| u64::from(node.0));
            Ok(EncodedBody::FromFields)
        }
        Frame::FetchRequest { value, slot } => {
            header.kind = kind::FETCH_REQUEST;
            header.value = value_to_bytes(value);
            header.from = slot.0;
            Ok(EncodedBody::FromFields)
        }
        Frame::FetchReply { value, bytes } => {
            header.kind = kind::FETCH_REPLY;
            header.value = value_to_bytes(value);
            bytes.map_or(Ok(EncodedBody::FromFields), |bytes| value_body(header, value, bytes))
        }
        Frame::Applied { to, state_digest: digest } => {
            header.kind = kind::APPLIED;
            header.to = to.0;
            header.check = *digest;
            Ok(EncodedBody::FromFields)
        }
        Frame::SnapshotAsk { at, digest, offset } => {
            header.kind = kind::SNAPSHOT_ASK;
            fill_snapshot(header, *at, *digest, *offset);
            Ok(EncodedBody::FromFields)
        }
        Frame::SnapshotOffer { at, digest, bytes, log_start, busy } => {
            header.kind = kind::SNAPSHOT_OFFER;
            fill_snapshot(header, *at, *digest, *bytes);
            header.to = log_start.0;
            header.flags = if *busy { FLAG_BUSY } else { 0 };
            Ok(EncodedBody::FromFields)
        }
        Frame::SnapshotPiece { at, digest, offset, bytes } => {
            header.kind = kind::SNAPSHOT_PIECE;
            fill_snapshot(header, *at, *digest, *offset);
            if bytes.len() > SNAPSHOT_PIECE_BYTES_MAX {
                return Err(Unencodable::TooLong);
            }
            Ok(EncodedBody::Bytes(bytes))
        }
        Frame::StreamBytes { stream, position, bytes } => {
            header.kind = kind::STREAM_BYTES;
            header.value = value_to_bytes(&Value::Content { stream: *stream, offset: 0 });
            header.number = *position;
            if bytes.len() > STREAM_PIECE_BYTES_MAX {
                return Err(Unencodable::TooLong);
            }
            Ok(EncodedBody::Bytes(bytes))
        }
        Frame::Needless { stream, below, from } => {
            header.kind = kind::NEEDLESS;
            header.value = value_to_bytes(&Value::Content { stream: *stream, offset: 0 });
            header.number = *below;
            header.from = from.0;
            Ok(EncodedBody::FromFields)
        }
    }
}

/// Stores the identity of a snapshot, and a position or length in it.
fn fill_snapshot(header: &mut Header, at: Slot, digest: u128, bytes: u64) {
    header.from = at.0;
    fill_u128(header, digest);
    header.sent_to = bytes;
}

/// Stores a 128-bit number in the header, with the low half in `number` and the high half in
/// `check`.
#[expect(clippy::cast_possible_truncation, reason = "its two halves")]
fn fill_u128(header: &mut Header, number: u128) {
    header.number = number as u64;
    header.check = (number >> 64) as u64;
}

fn check_text_fits(text: &str) -> Result<(), Unencodable> {
    if text.len() <= TEXT_BYTES_MAX { Ok(()) } else { Err(Unencodable::TooLong) }
}

/// Returns a body that consists of the bytes of a value.
fn value_body<'a>(
    header: &mut Header,
    value: &Value,
    bytes: &'a [u8],
) -> Result<EncodedBody<'a>, Unencodable> {
    header.flags |= FLAG_BYTES;
    match value {
        Value::Batch(name) if name.length as usize == bytes.len() => {
            Ok(EncodedBody::ValueBytes(bytes, name.checksum))
        }
        Value::Content { .. } => Ok(EncodedBody::Bytes(bytes)),
        _ => Err(Unencodable::BytesMismatch),
    }
}

/// Returns the length of the text about byte streams. A node without streams omits it, so that
/// older releases understand its hello.
const fn stream_len(hello: &Hello<'_>) -> usize {
    match hello.stream.len() {
        0 => 0,
        length => 2 + length,
    }
}

fn fill_hello<'a>(
    header: &mut Header,
    kind: u8,
    hello: &Hello<'_>,
) -> Result<EncodedBody<'a>, Unencodable> {
    header.kind = kind;
    // A node that knows only one version leaves the field zero. Releases before levels ignore it.
    if hello.levels.newest > hello.levels.lowest {
        header.number = hello.levels.newest.0.into();
    }
    check_text_fits(hello.client)?;
    check_text_fits(hello.admin)?;
    check_text_fits(hello.stream)?;
    header.sender = hello.from;
    Ok(EncodedBody::FromFields)
}

/// Fills the header with a message. Returns the value in the message, if any, so that its bytes can
/// be added.
fn fill_message(header: &mut Header, message: &Message) -> Option<Value> {
    let mut about = None;
    match *message {
        Message::Phase1a { ballot, from } => {
            header.kind = kind::PHASE1A;
            header.ballot = ballot;
            header.from = from.0;
        }
        Message::Phase1b(Phase1b { ballot, from, floor, log_start, decided_to, ref extents }) => {
            header.kind = kind::PHASE1B;
            header.ballot = ballot;
            header.from = from.0;
            header.to = floor.0;
            header.durable_to = log_start.0;
            header.decided_to = decided_to.0;
            header.number = extents.len() as u64;
        }
        Message::Preempted { ballot, promised } => {
            header.kind = kind::PREEMPTED;
            header.ballot = ballot;
            header.promised = promised;
        }
        Message::Phase2a(proposal) => about = Some(fill_phase2a(header, &proposal)),
        Message::Phase2b(Phase2b { ballot, from, volatile_to, durable_to, check }) => {
            header.kind = kind::PHASE2B;
            header.ballot = ballot;
            header.from = from.0;
            header.volatile_to = volatile_to.0;
            header.durable_to = durable_to.0;
            header.check = check;
        }
        Message::Lay { ballot, number, .. } => {
            header.kind = kind::LAY;
            header.ballot = ballot;
            header.number = u64::from(number);
        }
        Message::RingVote(ref vote) => {
            header.kind = kind::RING_VOTE;
            header.ballot = vote.ballot;
        }
        Message::Arm { ballot, slot, prefix } => {
            header.kind = kind::ARM;
            header.ballot = ballot;
            header.from = slot.0;
            header.check = prefix;
        }
        Message::Armed { ballot, floor } => {
            header.kind = kind::ARMED;
            header.ballot = ballot;
            header.from = floor.0;
        }
        Message::Decided { ballot, decided_to } => {
            header.kind = kind::DECIDED;
            header.ballot = ballot;
            header.decided_to = decided_to.0;
        }
        Message::Heartbeat(Heartbeat {
            ballot,
            decided_to,
            sent_to,
            read_round,
            held_by_all,
            held_by_quorum,
            lease,
            auxiliary,
            clock_ms,
            late_us,
            full_disk,
        }) => {
            header.kind = kind::HEARTBEAT;
            fill_clock(header, clock_ms, late_us);
            header.volatile_to = held_by_all.0;
            header.durable_to = held_by_quorum.0;
            header.ballot = ballot;
            header.decided_to = decided_to.0;
            header.sent_to = sent_to.0;
            header.number = read_round;
            fill_lease(header, lease);
            header.flags = if auxiliary { FLAG_AUXILIARY } else { 0 };
            header.code = full_disk.map_or(0, |node| node.0);
        }
        Message::HeartbeatReply(reply) => fill_heartbeat_reply(header, reply),
        Message::PreVote { ballot } => {
            header.kind = kind::PRE_VOTE;
            header.ballot = ballot;
        }
        Message::PreVoteReply { ballot, granted, promised } => {
            header.kind = kind::PRE_VOTE_REPLY;
            header.ballot = ballot;
            header.promised = promised;
            header.flags = if granted { FLAG_GRANTED } else { 0 };
        }
        Message::Transfer { ballot } => {
            header.kind = kind::TRANSFER;
            header.ballot = ballot;
        }
        Message::CatchupRequest { range } => {
            header.kind = kind::CATCHUP_REQUEST;
            header.from = range.from.0;
            header.to = range.to.0;
        }
        Message::Learn { range, value } => {
            header.kind = kind::LEARN;
            header.from = range.from.0;
            header.to = range.to.0;
            header.value = value_to_bytes(&value);
            about = Some(value);
        }
        Message::BelowStart { log_start } => {
            header.kind = kind::BELOW_START;
            header.from = log_start.0;
        }
        Message::ReadRequest { id } => {
            header.kind = kind::READ_REQUEST;
            header.number = id;
        }
        Message::ReadReply { id, slot } => {
            header.kind = kind::READ_REPLY;
            header.number = id;
            header.from = slot.0;
        }
        Message::LastingRequest { to } => {
            header.kind = kind::LASTING_REQUEST;
            header.to = to.0;
        }
        Message::LastingReply { to } => {
            header.kind = kind::LASTING_REPLY;
            header.to = to.0;
        }
        Message::EarlyRequest(EarlyVotesQuery { ballot, to, check }) => {
            header.kind = kind::EARLY_REQUEST;
            header.ballot = ballot;
            header.to = to.0;
            header.check = check;
        }
        Message::EarlyReply { ballot, from, to } => {
            header.kind = kind::EARLY_REPLY;
            header.ballot = ballot;
            header.from = from.0;
            header.to = to.0;
        }
    }
    about
}

fn fill_phase2a(header: &mut Header, proposal: &Phase2a) -> Value {
    header.kind = kind::PHASE2A;
    header.ballot = proposal.ballot;
    header.from = proposal.range.from.0;
    header.to = proposal.range.to.0;
    header.value = value_to_bytes(&proposal.value);
    header.check = proposal.prefix;
    header.decided_to = proposal.decided_to.0;
    header.volatile_to = proposal.own_volatile_to.0;
    header.durable_to = proposal.own_durable_to.0;
    header.flags = if proposal.with_bytes { FLAG_WITH_BYTES } else { 0 };
    proposal.value
}

fn fill_heartbeat_reply(header: &mut Header, reply: HeartbeatReply) {
    header.kind = kind::HEARTBEAT_REPLY;
    header.ballot = reply.ballot;
    header.promised = reply.promised;
    header.decided_to = reply.decided_to.0;
    header.volatile_to = reply.voted_to.0;
    header.durable_to = reply.held_to.0;
    header.to = reply.kept_to.0;
    header.sent_to = reply.sent_to.0;
    header.number = reply.read_round;
    header.flags = if reply.unfit { FLAG_UNFIT } else { 0 };
    header.flags |= if reply.disk_full { FLAG_DISK_FULL } else { 0 };
    fill_lease(header, reply.lease);
    fill_clock(header, reply.clock_ms, reply.late_us);
    header.value[12..20].copy_from_slice(&reply.group_ms.to_le_bytes());
}

/// [time-3], [live-5] Stores the clock and the lateness of a heartbeat in fields that otherwise
/// belong to a value.
fn fill_clock(header: &mut Header, clock_ms: u64, late_us: u32) {
    header.value[..8].copy_from_slice(&clock_ms.to_le_bytes());
    header.value[8..12].copy_from_slice(&late_us.to_le_bytes());
}

const fn fill_lease(header: &mut Header, lease: Lease) {
    header.from = lease.requested_at.0;
    header.check = lease.duration_us;
}

pub(crate) const fn refusal_number(why: Refusal) -> u32 {
    match why {
        Refusal::NotLeader => 1,
        Refusal::Busy => 2,
        Refusal::Transferring => 3,
        Refusal::InvalidChange => 4,
        Refusal::InvalidTarget => 5,
        Refusal::TimedOut => 6,
        Refusal::SlotsNotHeld => 7,
    }
}

pub(crate) const fn class_number(class: Class) -> u8 {
    match class {
        Class::Volatile => 1,
        Class::Durable => 2,
    }
}

pub(crate) const fn lane_number(lane: Lane) -> u8 {
    match lane {
        Lane::Control => 1,
        Lane::Bulk => 2,
    }
}

fn append_body(frame: &Frame<'_>, out: &mut Vec<u8>) {
    match frame {
        Frame::Hello(hello) | Frame::Welcome(hello) => {
            out.extend_from_slice(&hello.cluster.to_le_bytes());
            out.extend_from_slice(&hello.boot.to_le_bytes());
            out.extend_from_slice(&hello.to.0.to_le_bytes());
            out.extend_from_slice(&hello.levels.lowest.0.to_le_bytes());
            out.extend_from_slice(&[lane_number(hello.lane), 0]);
            text(hello.client, out);
            text(hello.admin, out);
            if !hello.stream.is_empty() {
                text(hello.stream, out);
            }
        }
        Frame::Refused(_, reason) => out.extend_from_slice(reason.as_bytes()),
        Frame::Datagrams(datagrams) => {
            text(datagrams.address, out);
            for channel in &datagrams.channels {
                out.extend_from_slice(&[channel.channel, u8::from(channel.is_unicast)]);
                out.extend_from_slice(&[0; 6]);
                out.extend_from_slice(&channel.next.to_le_bytes());
            }
        }
        Frame::Founding(founding) => {
            let count = u8::try_from(founding.members.len()).expect("checked by `fill`");
            out.extend_from_slice(&founding.cluster.to_le_bytes());
            out.extend_from_slice(&[class_number(founding.class), count, 0, 0]);
            text(founding.store, out);
            for (node, address) in &founding.members {
                out.extend_from_slice(&node.0.to_le_bytes());
                text(address, out);
            }
        }
        Frame::Protocol { message: Message::Phase1b(promise), .. } => {
            promise.extents.iter().for_each(|extent| append_extent(extent, out));
        }
        Frame::Protocol { message: Message::Lay { members, .. }, .. } => {
            members.iter().for_each(|member| append_member(*member, out))
        }
        Frame::Protocol { message: Message::RingVote(vote), .. } => {
            vote.entries.iter().for_each(|entry| append_entry(entry, out))
        }
        Frame::Protocol { .. }
        | Frame::Join(_)
        | Frame::Recall { .. }
        | Frame::Recalled(_)
        | Frame::Forward { .. }
        | Frame::NotTaken { .. }
        | Frame::FetchRequest { .. }
        | Frame::FetchReply { .. }
        | Frame::Applied { .. }
        | Frame::SnapshotAsk { .. }
        | Frame::SnapshotOffer { .. }
        | Frame::SnapshotPiece { .. }
        | Frame::StreamBytes { .. }
        | Frame::Needless { .. } => {}
    }
}

fn text(text: &str, out: &mut Vec<u8>) {
    let length = u16::try_from(text.len()).expect("checked by `fill`");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn append_member(member: Member, out: &mut Vec<u8>) {
    out.extend_from_slice(&member.node.0.to_le_bytes());
    out.extend_from_slice(&member.incarnation.0.to_le_bytes());
}

fn append_entry(entry: &RingEntry, out: &mut Vec<u8>) {
    append_member(entry.member, out);
    for word in [entry.from.0, entry.volatile_to.0, entry.durable_to.0, entry.check] {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

fn append_extent(extent: &Extent, out: &mut Vec<u8>) {
    out.extend_from_slice(&extent.range.from.0.to_le_bytes());
    out.extend_from_slice(&extent.range.to.0.to_le_bytes());
    out.extend_from_slice(&ballot_bytes(extent.ballot));
    out.extend_from_slice(&[class_number(extent.class), 0, 0, 0]);
    out.extend_from_slice(&value_to_bytes(&extent.value));
}
