//! The capacity of every queue and the patience of every wait of packets, in one place.

use crate::header::HEADER_BYTES;

/// Longest message ([pkt-4]).
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Bytes of IP and UDP before a datagram.
pub const IP_UDP_BYTES: usize = 28;
/// Difference between headers of IPv6 and IPv4.
pub const IPV6_MORE_BYTES: usize = 20;
/// A path must take datagrams of this length: what asks and answers is not cut.
pub const DATAGRAM_BYTES_MIN: usize = 1200;
/// Longest datagram that UDP carries.
pub const DATAGRAM_BYTES_MAX: usize = 65_507;

/// Channels of a node. A handshake names those that its receiver may listen to, which are fewer.
pub const OWN_CHANNELS_MAX: usize = 250;

/// Bounds on an endpoint's memory and waiting times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest datagram, header included: the MTU without [`IP_UDP_BYTES`]. Nothing is ever cut by
    /// IP.
    pub datagram_bytes: usize,
    /// Datagrams that are kept for repairs: of each channel of this node, and of each that it
    /// hears.
    pub buffer_bytes: usize,
    /// The same for a channel to one node: a lone receiver asks soon, and no other asks for it.
    pub one_buffer_bytes: usize,
    /// Bytes of a channel that are sent and not decided ([rate-1]); at most half of its buffer.
    pub window_bytes: usize,
    /// Messages of one sender that lack parts.
    pub partials_max: usize,
    /// Bytes of one sender's messages that lack parts, or wait for their turn.
    pub partial_bytes_max: usize,
    /// Ranges of a channel that are missing; with more, the oldest one is given up.
    pub gaps_max: usize,
    /// Packets overtaken by no more than this are not asked for.
    pub reorder_grace_us: u64,
    /// The same of what comes along a chain: nodes on its way hold it up ([chain-1]).
    pub chain_grace_us: u64,
    /// Up to this much is added to the grace, so that not all ask at once.
    pub jitter_us: u64,
    /// Requests for a range before it is given up.
    pub tries_max: u32,
    /// A range is given up after at least this long.
    pub giveup_us: u64,
    /// The first tail follows the last datagram after this long; each further one after twice as
    /// long.
    pub tail_us: u64,
    /// No tail waits longer: heartbeats say the same.
    pub heartbeat_us: u64,
    /// The same of a channel to one node, which has every heartbeat by itself: no tail waits so
    /// long.
    pub one_tail_us: u64,
    /// Shortest time between two reports.
    pub report_us: u64,
    /// Repairs may take so much of the link, in percent: of the owner, and of the others.
    pub repair_percent: [u64; 2],
    /// The link, in bytes per second.
    pub link_bytes_s: u64,
    /// Share of the link for a chain, in percent: forwarding nodes have votes and repairs of their
    /// own to send.
    pub chain_percent: u64,
    /// Answers to probes per second, and half of that at once.
    pub answers_s: u64,
}

impl Limits {
    /// The usual ones, for a link of this MTU (1500 on Ethernet).
    pub fn of_mtu(mtu: usize) -> Self {
        let datagram_bytes = mtu.saturating_sub(IP_UDP_BYTES);
        Self {
            datagram_bytes: datagram_bytes.clamp(DATAGRAM_BYTES_MIN, DATAGRAM_BYTES_MAX),
            buffer_bytes: 64 << 20,
            one_buffer_bytes: 16 << 20,
            window_bytes: 16 << 20,
            partials_max: 256,
            partial_bytes_max: 32 << 20,
            gaps_max: 1024,
            reorder_grace_us: 200,
            chain_grace_us: 10_000,
            jitter_us: 200,
            tries_max: 5,
            giveup_us: 5_000,
            tail_us: 500,
            heartbeat_us: 20_000,
            one_tail_us: 2_000,
            report_us: 10_000,
            repair_percent: [10, 25],
            link_bytes_s: 125_000_000,
            chain_percent: 93,
            answers_s: 1_000,
        }
    }

    /// Bytes of a message in one full datagram.
    pub const fn payload_bytes(&self) -> usize {
        self.datagram_bytes - HEADER_BYTES
    }
}
