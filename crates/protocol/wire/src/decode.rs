//! Decodes frames from bytes. Never panics, never copies a value, and bounds every length before
//! using it.

use alloc::vec::Vec;
use core::fmt;

use quorate_core::{
    effect::Refusal,
    lease::Lease,
    level::{Level, Levels},
    message::{
        EarlyVotesQuery, Extent, Heartbeat, HeartbeatReply, Message, Phase1b, Phase2a, Phase2b,
        RingEntry, RingVote,
    },
    node_id::{Incarnation, Member, NodeId},
    record::Class,
    ring::RING_MAX,
    slot::{Slot, SlotRange},
    time::Time,
    value::Value,
    witness::{LogEnd, Memory},
};

use crate::{
    checksum,
    encode::{
        DATAGRAM_CHANNEL_BYTES, EXTENT_BYTES, FOUNDING_BYTES, HELLO_BYTES, MEMBER_BYTES,
        RING_ENTRY_BYTES,
    },
    frame::{
        DATAGRAM_CHANNELS_MAX, DatagramChannel, Datagrams, FOUNDING_MEMBERS_MAX, Founding, Frame,
        Hello, Join, Lane, RefusalCode, SNAPSHOT_PIECE_BYTES_MAX, STREAM_PIECE_BYTES_MAX,
        TEXT_BYTES_MAX,
    },
    header::{
        FLAG_AUXILIARY, FLAG_BUSY, FLAG_BYTES, FLAG_DISK_FULL, FLAG_GRANTED, FLAG_UNFIT,
        FLAG_WITH_BYTES, FORMAT_VERSION, HEADER_BYTES, Header, InvalidHeader, MAGIC, ballot,
        durable_seq_offset,
    },
    kind,
    value::value_from_bytes,
    words::{u32_at, u64_at},
};

/// Result of decoding the bytes received so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// A complete frame.
    Frame {
        from: Member,
        frame: Frame<'a>,
        /// Number of input bytes that the frame occupies.
        used_bytes: usize,
    },
    /// The input is the beginning of a frame. At least the given number of bytes is missing.
    NeedMore(usize),
}

/// Reason for rejecting bytes as a frame. The connection on which they arrived can no longer be
/// used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The bytes belong to another protocol.
    Magic,
    /// The frame has another version of the layout.
    Format(u8),
    /// The header's checksum is wrong.
    HeaderCheck,
    /// The body's checksum is wrong.
    BodyCheck,
    /// The body is longer than allowed.
    TooLong {
        /// Length of the body according to the header.
        length: usize,
        /// Maximum length that the caller allows.
        max: usize,
    },
    /// The kind of the frame is unknown.
    Kind(u8),
    /// A field has an invalid value.
    Field(&'static str),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => f.write_str("not a quorate frame"),
            Self::Format(version) => {
                write!(f, "frame format {version}, this build speaks {FORMAT_VERSION}")
            }
            Self::HeaderCheck => f.write_str("header checksum mismatch"),
            Self::BodyCheck => f.write_str("body checksum mismatch"),
            Self::TooLong { length, max } => {
                write!(f, "body of {length} bytes, at most {max} are taken")
            }
            Self::Kind(kind) => write!(f, "unknown frame kind {kind}"),
            Self::Field(name) => write!(f, "impossible {name}"),
        }
    }
}

impl core::error::Error for Malformed {}

/// Decodes the frame at the start of `input`, whose body may have up to `body_bytes_max` bytes.
pub fn decode(input: &[u8], body_bytes_max: usize) -> Result<Decoded<'_>, Malformed> {
    let Some(first) = input.first_chunk::<HEADER_BYTES>() else {
        // The greeting of another protocol may be shorter than a header, so do not wait for more.
        let known = input.len().min(MAGIC.len());
        if input[..known] != MAGIC[..known] {
            return Err(Malformed::Magic);
        }
        return Ok(Decoded::NeedMore(HEADER_BYTES - input.len()));
    };
    let (header, length) = checked_header(first, body_bytes_max)?;
    let Some(body) = input[HEADER_BYTES..].get(..length) else {
        return Ok(Decoded::NeedMore(HEADER_BYTES + length - input.len()));
    };
    Ok(Decoded::Frame {
        from: header.sender,
        frame: checked_frame(&header, body)?,
        used_bytes: HEADER_BYTES + length,
    })
}

/// Decodes a frame whose header and body were received separately. Also returns the sender.
pub fn decode_parts<'a>(
    header: &[u8; HEADER_BYTES],
    body: &'a [u8],
    body_bytes_max: usize,
) -> Result<(Member, Frame<'a>), Malformed> {
    decode_checked(header, body, checksum, body_bytes_max)
}

/// Decodes a frame like [`decode_parts`], but uses `check` to obtain the checksum of the body,
/// which the caller may already know.
pub fn decode_checked<'a>(
    header: &[u8; HEADER_BYTES],
    body: &'a [u8],
    check: impl FnOnce(&[u8]) -> u32,
    body_bytes_max: usize,
) -> Result<(Member, Frame<'a>), Malformed> {
    let (header, length) = checked_header(header, body_bytes_max)?;
    if body.len() != length {
        return Err(Malformed::Field("body_length"));
    }
    if check(body) != header.body_check {
        return Err(Malformed::BodyCheck);
    }
    Ok((header.sender, frame(&header, body)?))
}

/// Returns the stream position in a decoded header of stream bytes, before their body has arrived.
pub fn stream_position(header: &[u8; HEADER_BYTES]) -> Option<u64> {
    let header = Header::read(header).ok()?;
    (header.kind == kind::STREAM_BYTES).then_some(header.number)
}

/// Returns the log write up to which the sender's log is on stable storage ([lie-1]), from a
/// decoded header; 0 if the sender did not report it.
pub fn sender_durable_seq(header: &[u8; HEADER_BYTES]) -> u64 {
    durable_seq_offset(header[5]).map_or(0, |at| u64_at(header, at))
}

/// Returns the checksum of the body from the header of a decoded frame.
pub fn body_checksum(header: &[u8; HEADER_BYTES]) -> u32 {
    u32_at(header, 16)
}

/// Returns the header if it is valid, and the length of the body.
fn checked_header(
    bytes: &[u8; HEADER_BYTES],
    body_bytes_max: usize,
) -> Result<(Header, usize), Malformed> {
    let header = Header::read(bytes).map_err(|distrust| match distrust {
        InvalidHeader::Magic => Malformed::Magic,
        InvalidHeader::Version(version) => Malformed::Format(version),
        InvalidHeader::Check => Malformed::HeaderCheck,
    })?;
    let length = usize::try_from(header.body_length).unwrap_or(usize::MAX);
    if length > body_bytes_max {
        return Err(Malformed::TooLong { length, max: body_bytes_max });
    }
    Ok((header, length))
}

/// Returns the frame if the body matches the header's checksum.
fn checked_frame<'a>(header: &Header, body: &'a [u8]) -> Result<Frame<'a>, Malformed> {
    if checksum(body) != header.body_check {
        return Err(Malformed::BodyCheck);
    }
    frame(header, body)
}

fn frame<'a>(header: &Header, body: &'a [u8]) -> Result<Frame<'a>, Malformed> {
    match header.kind {
        kind::HELLO => hello(header, body).map(Frame::Hello),
        kind::WELCOME => hello(header, body).map(Frame::Welcome),
        kind::REFUSED => {
            let reason = core::str::from_utf8(body).map_err(|_| Malformed::Field("reason"))?;
            if reason.len() > TEXT_BYTES_MAX {
                return Err(Malformed::Field("reason"));
            }
            Ok(Frame::Refused(RefusalCode::from_number(header.code), reason))
        }
        kind::JOIN => {
            let join =
                Join { node: NodeId(header.code), nonce: header.number, list_hash: header.check };
            expect_no_body(body).map(|()| Frame::Join(join))
        }
        kind::FOUNDING => founding_body(body).map(Frame::Founding),
        kind::DATAGRAMS => datagrams_body(header, body).map(Frame::Datagrams),
        kind::RECALL => expect_no_body(body)
            .map(|()| Frame::Recall { cluster: u128_field(header), node: NodeId(header.code) }),
        kind::RECALLED => {
            expect_no_body(body)?;
            let boot = u32::try_from(header.check).map_err(|_| Malformed::Field("check"))?;
            let written =
                LogEnd { incarnation: Incarnation(header.code), last_write: header.number };
            Ok(Frame::Recalled(Memory { log_end: written, boot }))
        }
        kind::FORWARD => {
            let value = value(header)?;
            let bytes = value_bytes(header, &value, body)?.unwrap_or(&[]);
            if value.has_bytes() && header.flags & FLAG_BYTES == 0 {
                return Err(Malformed::Field("flags"));
            }
            Ok(Frame::Forward { value, bytes })
        }
        kind::NOT_TAKEN => {
            expect_no_body(body)?;
            let why = refusal_from_number(header.code).ok_or(Malformed::Field("code"))?;
            let leader = u32::try_from(header.number).map_err(|_| Malformed::Field("leader"))?;
            let leader = (leader != 0).then_some(NodeId(leader));
            Ok(Frame::NotTaken { value: value(header)?, why, leader })
        }
        kind::FETCH_REQUEST => {
            expect_no_body(body)?;
            Ok(Frame::FetchRequest { value: value(header)?, slot: Slot(header.from) })
        }
        kind::FETCH_REPLY => {
            let value = value(header)?;
            let bytes = value_bytes(header, &value, body)?;
            Ok(Frame::FetchReply { value, bytes })
        }
        kind::APPLIED => expect_no_body(body)
            .map(|()| Frame::Applied { to: Slot(header.to), state_digest: header.check }),
        kind::SNAPSHOT_ASK => expect_no_body(body).map(|()| Frame::SnapshotAsk {
            at: Slot(header.from),
            digest: u128_field(header),
            offset: header.sent_to,
        }),
        kind::SNAPSHOT_OFFER => expect_no_body(body).map(|()| Frame::SnapshotOffer {
            at: Slot(header.from),
            digest: u128_field(header),
            bytes: header.sent_to,
            log_start: Slot(header.to),
            busy: header.flags & FLAG_BUSY != 0,
        }),
        kind::SNAPSHOT_PIECE => {
            let length = body.len() as u64;
            if body.len() > SNAPSHOT_PIECE_BYTES_MAX {
                return Err(Malformed::Field("body_length"));
            }
            if header.sent_to.checked_add(length).is_none() {
                return Err(Malformed::Field("offset"));
            }
            Ok(Frame::SnapshotPiece {
                at: Slot(header.from),
                digest: u128_field(header),
                offset: header.sent_to,
                bytes: body,
            })
        }
        kind::STREAM_BYTES => {
            let Value::Content { stream, offset: 0 } = value(header)? else {
                return Err(Malformed::Field("value"));
            };
            if body.is_empty() || body.len() > STREAM_PIECE_BYTES_MAX {
                return Err(Malformed::Field("body_length"));
            }
            let position = header.number;
            if position.checked_add(body.len() as u64).is_none() {
                return Err(Malformed::Field("position"));
            }
            Ok(Frame::StreamBytes { stream, position, bytes: body })
        }
        kind::NEEDLESS => {
            expect_no_body(body)?;
            let Value::Content { stream, offset: 0 } = value(header)? else {
                return Err(Malformed::Field("value"));
            };
            Ok(Frame::Needless { stream, below: header.number, from: Slot(header.from) })
        }
        _ => protocol_message(header, body),
    }
}

/// Returns the 128-bit number in the header: the digest of a snapshot or the id of a cluster.
fn u128_field(header: &Header) -> u128 {
    u128::from(header.number) | u128::from(header.check) << 64
}

/// Decodes a message of the protocol core.
fn protocol_message<'a>(header: &Header, body: &'a [u8]) -> Result<Frame<'a>, Malformed> {
    let ballot = header.ballot;
    let mut bytes = None;
    let message = match header.kind {
        kind::PHASE1B => Message::Phase1b(phase1b(header, body)?),
        kind::LAY => Message::Lay {
            ballot,
            number: u32::try_from(header.number).map_err(|_| Malformed::Field("number"))?,
            members: ring_members(body, member)?,
        },
        kind::RING_VOTE => {
            Message::RingVote(RingVote { ballot, entries: ring_members(body, ring_entry)? })
        }
        kind::PHASE2A => {
            let proposal = phase2a(header)?;
            bytes = value_bytes(header, &proposal.value, body)?;
            Message::Phase2a(proposal)
        }
        kind::LEARN => {
            let (range, value) = assigned_value(header)?;
            bytes = value_bytes(header, &value, body)?;
            Message::Learn { range, value }
        }
        _ => {
            expect_no_body(body)?;
            match header.kind {
                kind::PHASE1A => Message::Phase1a { ballot, from: Slot(header.from) },
                kind::PREEMPTED => Message::Preempted { ballot, promised: header.promised },
                kind::PHASE2B => Message::Phase2b(phase2b(header)),
                kind::ARM => Message::Arm { ballot, slot: Slot(header.from), prefix: header.check },
                kind::ARMED => Message::Armed { ballot, floor: Slot(header.from) },
                kind::DECIDED => Message::Decided { ballot, decided_to: Slot(header.decided_to) },
                kind::HEARTBEAT => Message::Heartbeat(Heartbeat {
                    ballot,
                    decided_to: Slot(header.decided_to),
                    sent_to: Slot(header.sent_to),
                    read_round: header.number,
                    held_by_all: Slot(header.volatile_to),
                    held_by_quorum: Slot(header.durable_to),
                    lease: lease(header),
                    auxiliary: header.flags & FLAG_AUXILIARY != 0,
                    clock_ms: clock_ms(header, 0),
                    late_us: late_us(header),
                    full_disk: Some(NodeId(header.code)).filter(|node| node.0 > 0),
                }),
                kind::HEARTBEAT_REPLY => Message::HeartbeatReply(heartbeat_reply(header)),
                kind::PRE_VOTE => Message::PreVote { ballot },
                kind::PRE_VOTE_REPLY => Message::PreVoteReply {
                    ballot,
                    granted: header.flags & FLAG_GRANTED != 0,
                    promised: header.promised,
                },
                kind::TRANSFER => Message::Transfer { ballot },
                kind::CATCHUP_REQUEST => Message::CatchupRequest { range: range(header)? },
                kind::BELOW_START => Message::BelowStart { log_start: Slot(header.from) },
                kind::READ_REQUEST => Message::ReadRequest { id: header.number },
                kind::READ_REPLY => {
                    Message::ReadReply { id: header.number, slot: Slot(header.from) }
                }
                kind::LASTING_REQUEST => Message::LastingRequest { to: Slot(header.to) },
                kind::LASTING_REPLY => Message::LastingReply { to: Slot(header.to) },
                kind::EARLY_REQUEST => Message::EarlyRequest(EarlyVotesQuery {
                    ballot,
                    to: Slot(header.to),
                    check: header.check,
                }),
                kind::EARLY_REPLY => {
                    Message::EarlyReply { ballot, from: Slot(header.from), to: Slot(header.to) }
                }
                unknown => return Err(Malformed::Kind(unknown)),
            }
        }
    };
    Ok(Frame::Protocol { message, bytes })
}

fn phase1b(header: &Header, body: &[u8]) -> Result<Phase1b, Malformed> {
    Ok(Phase1b {
        ballot: header.ballot,
        from: Slot(header.from),
        floor: Slot(header.to),
        log_start: Slot(header.durable_to),
        decided_to: Slot(header.decided_to),
        extents: extents(header.number, body)?,
    })
}

fn phase2a(header: &Header) -> Result<Phase2a, Malformed> {
    let (range, value) = assigned_value(header)?;
    Ok(Phase2a {
        ballot: header.ballot,
        range,
        value,
        prefix: header.check,
        decided_to: Slot(header.decided_to),
        own_volatile_to: Slot(header.volatile_to),
        own_durable_to: Slot(header.durable_to),
        with_bytes: header.flags & FLAG_WITH_BYTES != 0,
    })
}

fn phase2b(header: &Header) -> Phase2b {
    Phase2b {
        ballot: header.ballot,
        from: Slot(header.from),
        volatile_to: Slot(header.volatile_to),
        durable_to: Slot(header.durable_to),
        check: header.check,
    }
}

fn heartbeat_reply(header: &Header) -> HeartbeatReply {
    HeartbeatReply {
        ballot: header.ballot,
        promised: header.promised,
        decided_to: Slot(header.decided_to),
        held_to: Slot(header.durable_to),
        kept_to: Slot(header.to),
        voted_to: Slot(header.volatile_to),
        sent_to: Slot(header.sent_to),
        read_round: header.number,
        lease: lease(header),
        unfit: header.flags & FLAG_UNFIT != 0,
        clock_ms: clock_ms(header, 0),
        group_ms: clock_ms(header, 12),
        late_us: late_us(header),
        disk_full: header.flags & FLAG_DISK_FULL != 0,
    }
}

fn clock_ms(header: &Header, at: usize) -> u64 {
    let clock = header.value[at..].first_chunk();
    u64::from_le_bytes(*clock.expect("a value has more than twenty bytes"))
}

fn late_us(header: &Header) -> u32 {
    let late = header.value[8..].first_chunk();
    u32::from_le_bytes(*late.expect("a value has more than twelve bytes"))
}

const fn lease(header: &Header) -> Lease {
    Lease { requested_at: Time(header.from), duration_us: header.check }
}

fn expect_no_body(body: &[u8]) -> Result<(), Malformed> {
    if body.is_empty() { Ok(()) } else { Err(Malformed::Field("body_length")) }
}

fn range(header: &Header) -> Result<SlotRange, Malformed> {
    if header.from > header.to {
        return Err(Malformed::Field("range"));
    }
    Ok(SlotRange::new(Slot(header.from), Slot(header.to)))
}

/// Checks the slots that a value is assigned to. The range must not be empty or begin before the
/// first slot, and may have several slots only if the value may span.
fn check_assigned_slots(range: SlotRange, value: Value) -> Result<(SlotRange, Value), Malformed> {
    let length_ok = range.len() == 1 || (range.len() > 1 && value.may_span());
    if range.from < Slot::FIRST || !length_ok {
        return Err(Malformed::Field("range"));
    }
    Ok((range, value))
}

fn assigned_value(header: &Header) -> Result<(SlotRange, Value), Malformed> {
    check_assigned_slots(range(header)?, value(header)?)
}

fn value(header: &Header) -> Result<Value, Malformed> {
    value_from_bytes(&header.value).ok_or(Malformed::Field("value"))
}

/// Returns the value's bytes, if the flag says that they are present. The bytes of a batch must
/// match its name.
fn value_bytes<'a>(
    header: &Header,
    value: &Value,
    body: &'a [u8],
) -> Result<Option<&'a [u8]>, Malformed> {
    if header.flags & FLAG_BYTES == 0 {
        return expect_no_body(body).map(|()| None);
    }
    match value {
        // [value-2] The body's checksum was verified, so comparing length and checksum compares the
        // bytes.
        Value::Batch(name)
            if name.length == header.body_length && name.checksum == header.body_check =>
        {
            Ok(Some(body))
        }
        Value::Content { .. } => Ok(Some(body)),
        _ => Err(Malformed::Field("bytes")),
    }
}

/// Decodes the members of a ring, or their votes. Their number is bounded by the length of the
/// body.
fn ring_members<const BYTES: usize, T>(
    body: &[u8],
    each: impl Fn(&[u8; BYTES]) -> T,
) -> Result<Vec<T>, Malformed> {
    let (chunks, rest) = body.as_chunks::<BYTES>();
    if !rest.is_empty() || chunks.len() > RING_MAX {
        return Err(Malformed::Field("ring"));
    }
    Ok(chunks.iter().map(each).collect())
}

fn member(bytes: &[u8; MEMBER_BYTES]) -> Member {
    Member { node: NodeId(u32_at(bytes, 0)), incarnation: Incarnation(u32_at(bytes, 4)) }
}

fn ring_entry(bytes: &[u8; RING_ENTRY_BYTES]) -> RingEntry {
    RingEntry {
        member: Member {
            node: NodeId(u32_at(bytes, 0)),
            incarnation: Incarnation(u32_at(bytes, 4)),
        },
        from: Slot(u64_at(bytes, 8)),
        volatile_to: Slot(u64_at(bytes, 16)),
        durable_to: Slot(u64_at(bytes, 24)),
        check: u64_at(bytes, 32),
    }
}

fn extents(count: u64, body: &[u8]) -> Result<Vec<Extent>, Malformed> {
    let (chunks, rest) = body.as_chunks::<EXTENT_BYTES>();
    if !rest.is_empty() || chunks.len() as u64 != count {
        return Err(Malformed::Field("extents"));
    }
    let mut extents = Vec::with_capacity(chunks.len());
    let mut next = Slot::FIRST;
    for chunk in chunks {
        let extent = extent(chunk)?;
        if extent.range.from < next {
            return Err(Malformed::Field("extents"));
        }
        next = extent.range.to;
        extents.push(extent);
    }
    Ok(extents)
}

fn extent(bytes: &[u8; EXTENT_BYTES]) -> Result<Extent, Malformed> {
    let range = SlotRange::new(Slot(u64_at(bytes, 0)), Slot(u64_at(bytes, 8)));
    let value = bytes[32..].first_chunk().and_then(value_from_bytes);
    let (range, value) = check_assigned_slots(range, value.ok_or(Malformed::Field("value"))?)?;
    let class = class_from_number(bytes[28]).filter(|_| bytes[29..32] == [0; 3]);
    let class = class.ok_or(Malformed::Field("class"))?;
    Ok(Extent { range, ballot: ballot(bytes, 16), value, class })
}

fn hello<'a>(header: &Header, body: &'a [u8]) -> Result<Hello<'a>, Malformed> {
    let (fixed, rest) =
        body.split_first_chunk::<HELLO_BYTES>().ok_or(Malformed::Field("body_length"))?;
    let (client, rest) = text(rest)?;
    let (admin, rest) = text(rest)?;
    // A node that does not know byte streams omits this text.
    let (stream, rest) = if rest.is_empty() { ("", rest) } else { text(rest)? };
    expect_no_body(rest)?;
    let lowest = Level(u16::from_le_bytes([fixed[24], fixed[25]]));
    let newest = match u16::try_from(header.number) {
        Ok(0) => lowest,
        Ok(newest) if newest > lowest.0 => Level(newest),
        _ => return Err(Malformed::Field("number")),
    };
    Ok(Hello {
        cluster: cluster_id(fixed),
        boot: u32_at(fixed, 16),
        to: NodeId(u32_at(fixed, 20)),
        levels: Levels { lowest, newest },
        from: header.sender,
        lane: lane_from_number(fixed[26]).ok_or(Malformed::Field("lane"))?,
        client,
        admin,
        stream,
    })
}

fn founding_body(body: &[u8]) -> Result<Founding<'_>, Malformed> {
    let (fixed, rest) =
        body.split_first_chunk::<FOUNDING_BYTES>().ok_or(Malformed::Field("body_length"))?;
    let class = class_from_number(fixed[16]).ok_or(Malformed::Field("class"))?;
    let count = usize::from(fixed[17]);
    if count > FOUNDING_MEMBERS_MAX {
        return Err(Malformed::Field("members"));
    }
    let (store, mut rest) = text(rest)?;
    let mut members = Vec::with_capacity(count);
    for _ in 0..count {
        let (node, after) = rest.split_first_chunk::<4>().ok_or(Malformed::Field("members"))?;
        let (address, after) = text(after)?;
        members.push((NodeId(u32::from_le_bytes(*node)), address));
        rest = after;
    }
    expect_no_body(rest)?;
    Ok(Founding { cluster: cluster_id(fixed), class, store, members })
}

fn datagrams_body<'a>(header: &Header, body: &'a [u8]) -> Result<Datagrams<'a>, Malformed> {
    let key = u8::try_from(header.number).map_err(|_| Malformed::Field("key"))?;
    let (address, rest) = text(body)?;
    let (chunks, rest) = rest.as_chunks::<DATAGRAM_CHANNEL_BYTES>();
    if !rest.is_empty() || chunks.len() > DATAGRAM_CHANNELS_MAX {
        return Err(Malformed::Field("channels"));
    }
    let channel = |chunk: &[u8; DATAGRAM_CHANNEL_BYTES]| {
        let to_one = match chunk[1] {
            0 => false,
            1 => true,
            _ => return None,
        };
        (chunk[2..8] == [0; 6]).then(|| DatagramChannel {
            channel: chunk[0],
            is_unicast: to_one,
            next: u64_at(chunk, 8),
        })
    };
    let channels: Option<Vec<_>> = chunks.iter().map(channel).collect();
    Ok(Datagrams {
        boot: header.code,
        address,
        key,
        channels: channels.ok_or(Malformed::Field("channels"))?,
    })
}

/// Returns the cluster id in the first 16 bytes, which the caller has checked to exist.
fn cluster_id(fixed: &[u8]) -> u128 {
    u128::from(u64_at(fixed, 0)) | u128::from(u64_at(fixed, 8)) << 64
}

/// Reads a text that is prefixed with its length. Returns the text and the remaining bytes.
fn text(input: &[u8]) -> Result<(&str, &[u8]), Malformed> {
    let bad = Malformed::Field("text");
    let (length, rest) = input.split_first_chunk::<2>().ok_or(bad)?;
    let length = usize::from(u16::from_le_bytes(*length));
    if length > TEXT_BYTES_MAX {
        return Err(bad);
    }
    let (text, rest) = rest.split_at_checked(length).ok_or(bad)?;
    Ok((core::str::from_utf8(text).map_err(|_| bad)?, rest))
}

const fn class_from_number(number: u8) -> Option<Class> {
    match number {
        1 => Some(Class::Volatile),
        2 => Some(Class::Durable),
        _ => None,
    }
}

const fn lane_from_number(number: u8) -> Option<Lane> {
    match number {
        1 => Some(Lane::Control),
        2 => Some(Lane::Bulk),
        _ => None,
    }
}

const fn refusal_from_number(number: u32) -> Option<Refusal> {
    Some(match number {
        1 => Refusal::NotLeader,
        2 => Refusal::Busy,
        3 => Refusal::Transferring,
        4 => Refusal::InvalidChange,
        5 => Refusal::InvalidTarget,
        6 => Refusal::TimedOut,
        7 => Refusal::SlotsNotHeld,
        _ => return None,
    })
}
