//! All limits of the packet protocol's queues, and its timeouts.

use crate::header::HEADER_BYTES;

/// Maximum size of a message, in bytes ([pkt-4]).
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Size of the IPv4 and UDP headers of a datagram, in bytes.
pub const IPV4_UDP_HEADER_BYTES: usize = 28;
/// Additional size of an IPv6 header compared to IPv4, in bytes.
pub const IPV6_EXTRA_BYTES: usize = 20;
/// Minimum datagram length that a path must support, in bytes. Requests and answers fit into it,
/// because they are not fragmented.
pub const DATAGRAM_BYTES_MIN: usize = 1200;
/// Maximum length of a datagram that UDP can carry, in bytes.
pub const DATAGRAM_BYTES_MAX: usize = 65_507;

/// Maximum number of a node's own channels. A handshake names only those that its receiver may
/// listen to, which are fewer.
pub const OWN_CHANNELS_MAX: usize = 250;

/// Limits of an endpoint's memory, and timeouts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum length of a datagram including its header, in bytes: the MTU minus
    /// [`IPV4_UDP_HEADER_BYTES`]. IP never fragments a datagram.
    pub datagram_bytes: usize,
    /// Maximum size of the datagrams retained for repairs, in bytes, for each channel of this node
    /// and each channel that it receives.
    pub buffer_bytes: usize,
    /// Like `buffer_bytes`, for a channel to one node. Smaller, because the only receiver requests
    /// repairs soon.
    pub unicast_buffer_bytes: usize,
    /// Maximum number of undecided bytes that a channel may have sent, at most half of its buffer
    /// ([rate-1]).
    pub window_bytes: usize,
    /// Maximum number of incomplete messages of one sender.
    pub partials_max: usize,
    /// Maximum total size of one sender's messages that are incomplete or cannot be delivered yet,
    /// in bytes.
    pub partial_bytes_max: usize,
    /// Maximum number of missing ranges of a channel. Beyond it, the oldest one is given up.
    pub gaps_max: usize,
    /// Grace period before a missing packet is requested, in microseconds, in case it was only
    /// reordered.
    pub reorder_grace_us: u64,
    /// Grace period for packets that arrive along a chain, whose nodes delay them, in microseconds
    /// ([chain-1]).
    pub chain_grace_us: u64,
    /// Maximum random addition to the grace period, in microseconds, so that not all nodes send
    /// requests at once.
    pub jitter_us: u64,
    /// Number of requests before a range is given up.
    pub requests_max: u32,
    /// Minimum time before a range is given up, in microseconds.
    pub give_up_us_min: u64,
    /// Time from the last datagram to the first tail, in microseconds. It doubles for each further
    /// tail.
    pub first_tail_us: u64,
    /// Maximum interval between tails, in microseconds. Beyond it, heartbeats carry the same
    /// information.
    pub tail_interval_us_max: u64,
    /// Maximum interval between tails on a channel to one node, in microseconds. Such a node
    /// receives every heartbeat directly.
    pub unicast_tail_interval_us_max: u64,
    /// Minimum time between two reports, in microseconds.
    pub report_interval_us_min: u64,
    /// Share of the link for repairs, in percent: first for repairs by the owner, then for those by
    /// other nodes.
    pub repair_percent: [u64; 2],
    /// Speed of the link, in bytes per second.
    pub link_bytes_s: u64,
    /// Share of the link for a chain, in percent. The rest is left to votes and repairs of the
    /// forwarding nodes.
    pub chain_percent: u64,
    /// Maximum number of answers to probes per second. Half of that is the burst.
    pub probe_answers_per_s: u64,
}

impl Limits {
    /// Returns the default limits for a link with this MTU (1500 on Ethernet).
    pub fn for_mtu(mtu: usize) -> Self {
        let datagram_bytes = mtu.saturating_sub(IPV4_UDP_HEADER_BYTES);
        Self {
            datagram_bytes: datagram_bytes.clamp(DATAGRAM_BYTES_MIN, DATAGRAM_BYTES_MAX),
            buffer_bytes: 64 << 20,
            unicast_buffer_bytes: 16 << 20,
            window_bytes: 16 << 20,
            partials_max: 256,
            partial_bytes_max: 32 << 20,
            gaps_max: 1024,
            reorder_grace_us: 200,
            chain_grace_us: 10_000,
            jitter_us: 200,
            requests_max: 5,
            give_up_us_min: 5_000,
            first_tail_us: 500,
            tail_interval_us_max: 20_000,
            unicast_tail_interval_us_max: 2_000,
            report_interval_us_min: 10_000,
            repair_percent: [10, 25],
            link_bytes_s: 125_000_000,
            chain_percent: 93,
            probe_answers_per_s: 1_000,
        }
    }

    /// Returns the maximum number of message bytes in one datagram.
    pub const fn payload_bytes(&self) -> usize {
        self.datagram_bytes - HEADER_BYTES
    }
}
