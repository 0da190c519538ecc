//! Network limits: the capacity of every queue and every timeout, in one place.

use crate::{
    spin::Spin,
    threads::{IoSpread, IoThreads},
};

/// Usual duration of a handshake on a healthy network, in milliseconds.
const TYPICAL_HANDSHAKE_MS: u64 = 250;

/// Capacities and timeouts of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of bytes queued for one peer on the control lane. Further messages are
    /// dropped. One frame always fits an empty queue.
    pub peer_control_bytes_max: usize,
    /// Maximum number of bytes queued for one peer on the bulk lane.
    pub peer_bulk_bytes_max: usize,
    /// Maximum number of bytes read from one socket in one turn.
    pub read_bytes_per_turn: usize,
    /// Maximum number of incoming peer connections without a greeting. A further one closes the
    /// oldest.
    pub strangers_max: usize,
    /// Timeout in milliseconds for a handshake, and for the farewell after a refusal.
    pub handshake_timeout_ms: u64,
    /// Approximate delay in milliseconds before the first redial. The delay doubles with each
    /// further failure.
    pub dial_retry_min_ms: u64,
    /// Maximum delay in milliseconds between two dials of a peer.
    pub dial_retry_max_ms: u64,
    /// Interval in milliseconds at which a node contacts a peer that should dial it, to learn why
    /// the peer does not.
    pub reminder_interval_ms: u64,
    /// Grace period in milliseconds during which a removed node may stay connected to learn the
    /// latest decisions.
    pub removed_grace_ms: u64,
    /// Time in milliseconds after which a peer that acknowledges nothing, not even keep-alives, is
    /// considered dead. TCP doubles its delay before each retransmission, so a connection that
    /// survives a partition takes about as long again to recover after it heals. A new connection
    /// takes one round trip.
    pub peer_silence_ms: u32,
    /// Maximum number of unauthenticated client connections. A further one closes the oldest.
    pub unauthenticated_max: usize,
    /// Time in milliseconds within which a client must authenticate.
    pub authentication_timeout_ms: u64,
    /// Maximum number of clients, each of which uses a descriptor. Others wait in the kernel's
    /// queue.
    pub clients_max: usize,
    /// Maximum number of unconsumed input bytes per client, such as part of a large command.
    pub client_backlog_bytes_max: usize,
    /// Memory limit in bytes for all clients together: unconsumed input plus the host's memory for
    /// clients. Above the limit no client is read. Above three quarters of it, the client that uses
    /// the most memory is closed at the end of a turn.
    pub clients_bytes_max: usize,
    /// Time in milliseconds for which a closing client's input is discarded, so that it can read
    /// the last error.
    pub close_timeout_ms: u64,
    /// Pause in milliseconds in accepting after descriptors or memory ran out.
    pub accept_pause_ms: u64,
    /// Maximum time in milliseconds for accepted work to finish once a stop has been requested.
    pub stop_timeout_ms: u64,
    /// Maximum number of requests from other threads that wait for the reactor.
    pub waiting_requests_max: usize,
    /// Setting for busy polling before the reactor sleeps.
    pub spin: Spin,
    /// Number of threads that own sockets of clients.
    pub io_threads: IoThreads,
    /// Condition under which connections are handed over to the I/O threads.
    pub io_spread: IoSpread,
}

impl Limits {
    /// Returns the time in milliseconds within which every running node that can connect to this
    /// one does so: an unanswered dial, the maximum delay after it, and the handshake.
    pub const fn dialled_within_ms(&self) -> u64 {
        self.handshake_timeout_ms + self.dial_retry_max_ms * 3 / 2 + TYPICAL_HANDSHAKE_MS
    }
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: usize = 1 << 20;
        Self {
            peer_control_bytes_max: 32 * MIB,
            peer_bulk_bytes_max: 16 * MIB,
            read_bytes_per_turn: 256 << 10,
            strangers_max: 64,
            handshake_timeout_ms: 1_000,
            dial_retry_min_ms: 20,
            dial_retry_max_ms: 500,
            reminder_interval_ms: 5_000,
            removed_grace_ms: 10_000,
            peer_silence_ms: 1_500,
            unauthenticated_max: 256,
            authentication_timeout_ms: 5_000,
            clients_max: 10_000,
            client_backlog_bytes_max: 64 * MIB,
            clients_bytes_max: 1024 * MIB,
            close_timeout_ms: 1_000,
            accept_pause_ms: 100,
            stop_timeout_ms: 5_000,
            waiting_requests_max: 64,
            spin: Spin::Auto,
            io_threads: IoThreads::Fixed(0),
            io_spread: IoSpread::ByLoad,
        }
    }
}
