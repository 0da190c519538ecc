//! The capacity of every queue and the patience of every wait of the network, in one place.

use crate::spin::Spin;

/// A handshake that nothing is in the way of.
const HANDSHAKE_USUAL_MS: u64 = 250;

/// Capacities and time limits of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes waiting towards one peer on the control lane; above it messages to that peer are lost.
    /// One frame always fits an empty queue.
    pub peer_control_bytes_max: usize,
    /// The same on the bulk lane.
    pub peer_bulk_bytes_max: usize,
    /// Bytes read from one socket in one turn.
    pub read_turn_bytes: usize,
    /// Incoming peer connections that have not said who they are; the oldest makes room.
    pub strangers_max: usize,
    /// A handshake, or the farewell after a refusal, takes no longer.
    pub handshake_ms: u64,
    /// The first retry of a dial waits about this long; it doubles with each further failure.
    pub dial_retry_min_ms: u64,
    /// A retry of a dial waits at most this long.
    pub dial_retry_max_ms: u64,
    /// The node with the lower id does not dial, but asks at this interval why it is not dialled.
    pub knock_ms: u64,
    /// A removed node that is connected may stay for this long, to learn what was decided.
    pub parting_ms: u64,
    /// A peer that acknowledges nothing, keep-alives included, is given up after this. TCP waits
    /// twice as long before each repetition, so a connection that outlives a partition needs about
    /// as long again once it heals; a new one needs a round trip.
    pub peer_silence_ms: u32,
    /// Clients that have not proved who they are; the oldest makes room.
    pub unproved_max: usize,
    /// A client that has not proved who it is goes after this.
    pub prove_ms: u64,
    /// Client connections at a time; further ones wait in the kernel's queue. Each takes a
    /// descriptor.
    pub clients_max: usize,
    /// Bytes of one client that its protocol has not used yet, such as part of a large command.
    pub client_backlog_bytes_max: usize,
    /// Memory for all clients together: such bytes, and what the host holds for them. Above it no
    /// client is read; above three quarters of it, at the end of a turn, the client that holds most
    /// is closed.
    pub clients_bytes_max: usize,
    /// Bytes that the kernel buffers towards or from a client that is being closed are discarded
    /// for this long, so that the last error reaches it.
    pub farewell_ms: u64,
    /// Accepting pauses for this long when descriptors or memory run out.
    pub accept_pause_ms: u64,
    /// Time limit for accepted work to finish once a stop was requested.
    pub stop_ms: u64,
    /// Questions from other threads waiting for the reactor.
    pub commands_max: usize,
    /// Polling before the reactor sleeps.
    pub spin: Spin,
}

impl Limits {
    /// Returns after what time all nodes that run, can reach this one and dial it have connected: a
    /// dial into nothing, the longest pause behind it, and the handshake.
    pub const fn dialled_ms(&self) -> u64 {
        self.handshake_ms + self.dial_retry_max_ms * 3 / 2 + HANDSHAKE_USUAL_MS
    }
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: usize = 1 << 20;
        Self {
            peer_control_bytes_max: 32 * MIB,
            peer_bulk_bytes_max: 16 * MIB,
            read_turn_bytes: 256 << 10,
            strangers_max: 64,
            handshake_ms: 1_000,
            dial_retry_min_ms: 20,
            dial_retry_max_ms: 500,
            knock_ms: 5_000,
            parting_ms: 10_000,
            peer_silence_ms: 1_500,
            unproved_max: 256,
            prove_ms: 5_000,
            clients_max: 10_000,
            client_backlog_bytes_max: 64 * MIB,
            clients_bytes_max: 1024 * MIB,
            farewell_ms: 1_000,
            accept_pause_ms: 100,
            stop_ms: 5_000,
            commands_max: 64,
            spin: Spin::Auto,
        }
    }
}
