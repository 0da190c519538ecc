//! The bounds of all queues and timeouts of packets, in one place.

use crate::header::HEADER_BYTES;

/// Maximum size of a message ([pkt-4]).
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Size of the IP and UDP headers of a datagram.
pub const IP_UDP_BYTES: usize = 28;
/// Difference in size between the headers of IPv6 and IPv4.
pub const IPV6_MORE_BYTES: usize = 20;
/// Minimum length of datagrams that a path must support, because requests and answers are not
/// fragmented.
pub const DATAGRAM_BYTES_MIN: usize = 1200;
/// Maximum length of a datagram that UDP carries.
pub const DATAGRAM_BYTES_MAX: usize = 65_507;

/// Maximum number of a node's channels. A handshake names those that its receiver may listen to,
/// which are fewer.
pub const OWN_CHANNELS_MAX: usize = 250;

/// Bounds on an endpoint's memory and timeouts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum length of a datagram, header included: the MTU minus [`IP_UDP_BYTES`]. IP never
    /// fragments a datagram.
    pub datagram_bytes: usize,
    /// Bytes of datagrams retained for repairs, for each channel of this node and each that it
    /// receives.
    pub buffer_bytes: usize,
    /// Bytes of datagrams retained for a channel to one node: less, because its only receiver asks
    /// soon.
    pub one_buffer_bytes: usize,
    /// Maximum number of sent and undecided bytes of a channel ([rate-1]); at most half of its
    /// buffer.
    pub window_bytes: usize,
    /// Maximum number of incomplete messages of one sender.
    pub partials_max: usize,
    /// Maximum size of one sender's messages that are incomplete or wait for their turn.
    pub partial_bytes_max: usize,
    /// Maximum number of missing ranges of a channel; beyond that, the oldest one is given up.
    pub gaps_max: usize,
    /// Grace period before a missing packet is requested, in case it was only overtaken.
    pub reorder_grace_us: u64,
    /// Grace period for packets that arrive along a chain, whose nodes delay them ([chain-1]).
    pub chain_grace_us: u64,
    /// Maximum random addition to the grace period, so that not all nodes request at once.
    pub jitter_us: u64,
    /// Number of requests before a range is given up.
    pub tries_max: u32,
    /// Minimum time before a range is given up.
    pub giveup_us: u64,
    /// Delay of the first tail after the last datagram; doubles for each further tail.
    pub tail_us: u64,
    /// Maximum delay of a tail; heartbeats have the same contents.
    pub heartbeat_us: u64,
    /// Maximum delay of a tail on a channel to one node, which receives every heartbeat directly.
    pub one_tail_us: u64,
    /// Minimum time between two reports.
    pub report_us: u64,
    /// Share of the link for repairs, in percent: by the owner, and by other nodes.
    pub repair_percent: [u64; 2],
    /// Speed of the link, in bytes per second.
    pub link_bytes_s: u64,
    /// Share of the link for a chain, in percent: forwarding nodes have votes and repairs of their
    /// own to send.
    pub chain_percent: u64,
    /// Answers to probes per second; the burst is half of that.
    pub answers_s: u64,
}

impl Limits {
    /// Returns the default limits for a link of this MTU (1500 on Ethernet).
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

    /// Returns the maximum number of message bytes in one datagram.
    pub const fn payload_bytes(&self) -> usize {
        self.datagram_bytes - HEADER_BYTES
    }
}
