//! Bodies of control datagrams, with their encoding.

use std::ops::Range;

use quorate_core::{
    ballot::{Ballot, Era},
    node_id::NodeId,
    slot::Slot,
};

use crate::header::{CONTROL_CHANNEL, Fields, Kind, Malformed};

/// Maximum number of ranges in a [`Body::Nak`], [`Body::Report`] or [`Body::Gone`].
pub const RANGES_MAX: usize = 64;
/// Maximum number of channels in an answer.
pub const CHANNELS_MAX: usize = 16;
/// Maximum number of nodes in a chain.
pub const CHAIN_MAX: usize = 64;

/// A sender's channel during one boot of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelName {
    pub owner: NodeId,
    /// Boot of the sender. After a restart, the sender's channels count as different ones
    /// ([pkt-1]).
    pub boot: u32,
    /// Number of the channel, never [`CONTROL_CHANNEL`].
    pub channel: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelNumbers {
    pub channel: ChannelName,
    /// Non-empty ranges in ascending order, neither overlapping nor adjacent. At most
    /// [`RANGES_MAX`].
    pub ranges: Vec<Range<u64>>,
}

/// Announces the end of a channel that has fallen silent ([told-2]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Number of the sender's channel.
    pub channel: u8,
    /// Upper bound (exclusive) of the numbers sent.
    pub next: u64,
    /// The only ballot to whose values `decided_to` applies.
    pub ballot: Ballot,
    /// Slot below which all slots are decided.
    pub decided_to: Slot,
}

/// Losses that a receiver observed, reported to the channel's owner ([rate-2]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Numbers lost in the first transmission since the previous report. Incomplete if there are
    /// more than fit into a report.
    pub missed_numbers: ChannelNumbers,
    /// Total of numbers lost in the first transmission since the channel was opened.
    pub lost_total: u64,
    /// Upper bound (exclusive) of the sequence numbers that this report covers.
    pub covers_below: u64,
}

/// A channel that the receiver may listen to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelOpening {
    /// Number of the channel, possibly [`CONTROL_CHANNEL`].
    pub channel: u8,
    /// Set if the channel is for one node rather than for the multicast group. Meaningless for the
    /// control channel, which carries both.
    pub is_unicast: bool,
    /// Number below which datagrams are refused.
    pub from: u64,
}

/// Answer to a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeAnswer {
    pub nonce: u64,
    /// Channels that the prober may listen to, at most [`CHANNELS_MAX`].
    pub channels: Vec<ChannelOpening>,
}

/// Nodes that forward the sender's multicast datagrams ([chain-1]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// Number of the chain. It replaces any chain with a lower number of the same boot.
    pub chain_number: u32,
    /// Nodes in forwarding order. Each node occurs once, and there are at most [`CHAIN_MAX`].
    pub nodes: Vec<NodeId>,
}

/// Decoded payload of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// Part of a message. Empty only if the message is empty.
    Fragment(&'a [u8]),
    Tail(Tail),
    Nak(ChannelNumbers),
    Report(Report),
    /// Numbers that the sender no longer has.
    Gone(ChannelNumbers),
    /// Part of a retransmitted datagram.
    Repair(&'a [u8]),
    /// Requests an answer with this nonce.
    Probe(u64),
    Answer(ProbeAnswer),
    Chain(Chain),
}

impl<'a> Body<'a> {
    pub fn read(kind: Kind, payload: &'a [u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(payload);
        let body = match kind {
            Kind::Fragment => return Ok(Self::Fragment(payload)),
            Kind::Repair if payload.is_empty() => return Err(Malformed::Field("length")),
            Kind::Repair => return Ok(Self::Repair(payload)),
            Kind::Tail => Self::Tail(Tail::read(&mut fields)?),
            Kind::Nak => Self::Nak(ChannelNumbers::read(&mut fields)?),
            Kind::Gone => Self::Gone(ChannelNumbers::read(&mut fields)?),
            Kind::Report => Self::Report(Report {
                lost_total: fields.u64()?,
                covers_below: fields.u64()?,
                missed_numbers: ChannelNumbers::read(&mut fields)?,
            }),
            Kind::Probe => Self::Probe(fields.u64()?),
            Kind::Answer => Self::Answer(ProbeAnswer::read(&mut fields)?),
            Kind::Chain => Self::Chain(Chain::read(&mut fields)?),
        };
        fields.finish(body)
    }

    pub const fn kind(&self) -> Kind {
        match self {
            Self::Fragment(_) => Kind::Fragment,
            Self::Tail(_) => Kind::Tail,
            Self::Nak(_) => Kind::Nak,
            Self::Report(_) => Kind::Report,
            Self::Gone(_) => Kind::Gone,
            Self::Repair(_) => Kind::Repair,
            Self::Probe(_) => Kind::Probe,
            Self::Answer(_) => Kind::Answer,
            Self::Chain(_) => Kind::Chain,
        }
    }

    /// Appends the encoded body. Lists must not exceed their limits.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Fragment(bytes) | Self::Repair(bytes) => out.extend_from_slice(bytes),
            Self::Tail(tail) => tail.write(out),
            Self::Nak(numbers) | Self::Gone(numbers) => numbers.write(out),
            Self::Report(report) => {
                out.extend_from_slice(&report.lost_total.to_le_bytes());
                out.extend_from_slice(&report.covers_below.to_le_bytes());
                report.missed_numbers.write(out);
            }
            Self::Probe(nonce) => out.extend_from_slice(&nonce.to_le_bytes()),
            Self::Answer(answer) => answer.write(out),
            Self::Chain(chain) => chain.write(out),
        }
    }
}

impl Tail {
    fn read(fields: &mut Fields<'_>) -> Result<Self, Malformed> {
        let channel = check_data_channel(fields.u8()?)?;
        fields.zeros::<3>()?;
        let next = fields.u64()?;
        if next == 0 {
            return Err(Malformed::Field("number"));
        }
        let ballot =
            Ballot { era: Era(fields.u32()?), round: fields.u32()?, node: NodeId(fields.u32()?) };
        Ok(Self { channel, next, ballot, decided_to: Slot(fields.u64()?) })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.channel, 0, 0, 0]);
        out.extend_from_slice(&self.next.to_le_bytes());
        out.extend_from_slice(&self.ballot.era.0.to_le_bytes());
        out.extend_from_slice(&self.ballot.round.to_le_bytes());
        out.extend_from_slice(&self.ballot.node.0.to_le_bytes());
        out.extend_from_slice(&self.decided_to.0.to_le_bytes());
    }
}

impl ChannelNumbers {
    fn read(fields: &mut Fields<'_>) -> Result<Self, Malformed> {
        let of = ChannelName {
            owner: NodeId(fields.u32()?),
            boot: fields.u32()?,
            channel: check_data_channel(fields.u8()?)?,
        };
        fields.zeros::<1>()?;
        let count = usize::from(fields.u16()?);
        if count > RANGES_MAX {
            return Err(Malformed::Field("count"));
        }
        let mut ranges: Vec<Range<u64>> = Vec::with_capacity(count);
        for _ in 0..count {
            let (start, length) = (fields.u64()?, u64::from(fields.u32()?));
            let end = start.checked_add(length);
            let behind = ranges.last().map_or(0, |range| range.end);
            match end {
                Some(end) if length > 0 && start > behind => ranges.push(start..end),
                _ => return Err(Malformed::Field("range")),
            }
        }
        Ok(Self { channel: of, ranges })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.channel.owner.0.to_le_bytes());
        out.extend_from_slice(&self.channel.boot.to_le_bytes());
        out.extend_from_slice(&[self.channel.channel, 0]);
        let count = u16::try_from(self.ranges.len()).expect("at most RANGES_MAX");
        out.extend_from_slice(&count.to_le_bytes());
        for range in &self.ranges {
            let length = u32::try_from(range.end - range.start).unwrap_or(u32::MAX);
            out.extend_from_slice(&range.start.to_le_bytes());
            out.extend_from_slice(&length.to_le_bytes());
        }
    }
}

impl ProbeAnswer {
    fn read(fields: &mut Fields<'_>) -> Result<Self, Malformed> {
        let nonce = fields.u64()?;
        let count = usize::from(fields.u8()?);
        fields.zeros::<3>()?;
        if count > CHANNELS_MAX {
            return Err(Malformed::Field("count"));
        }
        let mut channels: Vec<ChannelOpening> = Vec::with_capacity(count);
        for _ in 0..count {
            let channel = fields.u8()?;
            let to_one = match fields.u8()? {
                0 => false,
                1 => true,
                _ => return Err(Malformed::Field("audience")),
            };
            fields.zeros::<2>()?;
            let from = fields.u64()?;
            let above = channels.last().is_none_or(|last| last.channel < channel);
            if !above || from == 0 {
                return Err(Malformed::Field("channel"));
            }
            channels.push(ChannelOpening { channel, is_unicast: to_one, from });
        }
        Ok(Self { nonce, channels })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.nonce.to_le_bytes());
        let count = u8::try_from(self.channels.len()).expect("at most CHANNELS_MAX");
        out.extend_from_slice(&[count, 0, 0, 0]);
        for opening in &self.channels {
            out.extend_from_slice(&[opening.channel, u8::from(opening.is_unicast), 0, 0]);
            out.extend_from_slice(&opening.from.to_le_bytes());
        }
    }
}

impl Chain {
    fn read(fields: &mut Fields<'_>) -> Result<Self, Malformed> {
        let number = fields.u32()?;
        let count = usize::from(fields.u8()?);
        fields.zeros::<3>()?;
        if count > CHAIN_MAX {
            return Err(Malformed::Field("count"));
        }
        let mut nodes = Vec::with_capacity(count);
        for _ in 0..count {
            let node = NodeId(fields.u32()?);
            if node == NodeId(0) || nodes.contains(&node) {
                return Err(Malformed::Field("node"));
            }
            nodes.push(node);
        }
        Ok(Self { chain_number: number, nodes })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.chain_number.to_le_bytes());
        let count = u8::try_from(self.nodes.len()).expect("at most CHAIN_MAX");
        out.extend_from_slice(&[count, 0, 0, 0]);
        for node in &self.nodes {
            out.extend_from_slice(&node.0.to_le_bytes());
        }
    }
}

fn check_data_channel(channel: u8) -> Result<u8, Malformed> {
    let data = channel != CONTROL_CHANNEL;
    data.then_some(channel).ok_or(Malformed::Field("channel"))
}
