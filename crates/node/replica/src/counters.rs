//! Counters of a replica: executions of code paths, in particular of slow paths and faults.

use std::fmt;

use quorate_core::{
    node_id::NodeId,
    node_set::{NODES_MAX, NodeSet},
    time::Time,
};

use crate::ports::{latencies::Latencies, status::Traffic};

/// Counts of accepted commands and formed batches since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OriginTotals {
    pub(crate) accepted_commands: u64,
    pub(crate) formed_batches: u64,
    /// Number of commands in the formed batches.
    pub(crate) commands: u64,
    /// Number of bytes in the formed batches.
    pub(crate) bytes: u64,
}

/// Times of a batch that this process formed and that was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchCompletion {
    /// Time at which the batch's first command was accepted.
    pub(crate) first_accepted_at: Time,
    /// Time at which its last command was accepted.
    pub(crate) last_accepted_at: Time,
    pub(crate) formed_at: Time,
    pub(crate) command_count: u32,
    pub(crate) bytes: usize,
}

/// Per-node totals, for a small number of nodes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeTotals {
    nodes: [(NodeId, u64); NODES_MAX],
}

impl fmt::Debug for NodeTotals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.nodes.iter().filter(|(node, _)| *node != NodeId(0));
        f.debug_map().entries(known.map(|(node, sum)| (node.0, sum))).finish()
    }
}

impl NodeTotals {
    /// Adds `amount` for each node in `nodes`. Nodes for which no entry is free are not counted.
    pub(crate) fn add(&mut self, nodes: NodeSet, amount: usize) {
        for node in nodes.iter() {
            let place =
                self.nodes.iter_mut().find(|(known, _)| *known == node || *known == NodeId(0));
            if let Some((known, sum)) = place {
                *known = node;
                *sum += amount as u64;
            }
        }
    }

    /// Iterates over the counted nodes and their totals.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, u64)> + '_ {
        let known = |(node, _): &(NodeId, u64)| *node != NodeId(0);
        self.nodes.iter().copied().filter(known)
    }

    /// Returns the total for this node.
    pub fn total_for(&self, node: NodeId) -> u64 {
        let place = self.nodes.iter().find(|(known, _)| *known == node);
        place.map_or(0, |(_, sum)| *sum)
    }
}

/// Totals of this replica since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commands accepted from fronts.
    pub commands_accepted: u64,
    /// Commands of this node's clients that were executed and answered.
    pub commands_answered: u64,
    /// Total time from acceptance to reply of the answered commands, in microseconds.
    pub commands_answered_us: u64,
    /// Latencies of the answered commands.
    pub command_latencies: Latencies,
    /// Commands refused because a queue was full.
    pub commands_busy: u64,
    /// Commands and reads that timed out.
    pub requests_timed_out: u64,
    /// Commands whose reply was dropped because too many replies were queued.
    pub replies_dropped: u64,
    /// Values that were assigned a slot only after the leader's pause between two eras ([cast-5]).
    pub slots_waited_for_era: u64,
    pub stream_bytes_appended: u64,
    /// Bytes of streams that records refer to in the store of streams instead of containing them
    /// ([disk-5]).
    pub stream_bytes_placed: u64,
    /// Bytes of streams contained in records.
    pub stream_bytes_recorded: u64,
    /// Slots of content that was a no-op ([stream-4]).
    pub stream_slots_skipped: u64,
    /// Number of times that this auxiliary learned that requested bytes are not needed ([aux-5]).
    pub stream_bytes_needless: u64,
    /// Bytes of streams from their owners that were dropped for lack of space.
    pub stream_bytes_dropped: u64,
    /// Bytes of streams offered again because they made no progress.
    pub stream_bytes_repeated: u64,
    pub batches_formed: u64,
    /// Own batches offered again after a leader change, refusal, reconnection or timeout.
    pub batches_repeated: u64,
    /// Batches decided and executed here.
    pub batches_applied: u64,
    /// Commands executed here.
    pub commands_applied: u64,
    /// Decided batches that were not executed because they had been executed before.
    pub batches_skipped: u64,
    /// Decided batches that were not executed because an earlier batch of their origin was missing.
    pub batches_out_of_order: u64,
    /// Decided batches that were not executed because their origin's session is unknown
    /// ([session-4]).
    pub batches_unknown_session: u64,
    /// Decided batches that cannot be decoded, so that no node executes them.
    pub batches_malformed: u64,
    /// Batches of other nodes that were proposed here.
    pub forwards_taken: u64,
    /// Batches of other nodes received again while in flight or after being applied.
    pub forwards_repeated: u64,
    /// Batches of other nodes that this node refused.
    pub forwards_refused: u64,
    /// Frames dropped because the payload did not match its name, or the content did not match its
    /// sender.
    pub frames_mismatched: u64,
    /// Frames dropped because a queue was full; the sender's protocol repeats them.
    pub frames_overload: u64,
    /// Frames not sent for lack of space or a connection; the protocol repeats them.
    pub sends_dropped: u64,
    /// Payloads that were requested from peers.
    pub payloads_fetched: u64,
    /// Slots sent to lagging peers.
    pub slots_served: u64,
    /// Linearizable reads requested.
    pub reads_asked: u64,
    /// Quorum confirmations, each of which serves one or more linearizable reads.
    pub reads_confirmed: u64,
    /// Linearizable reads that run in order with the commands of their connection.
    pub reads_in_order: u64,
    /// Linearizable reads served under a lease ([read-4]).
    pub reads_leased: u64,
    /// Reads requested with a bound on staleness ([read-6]).
    pub reads_within: u64,
    /// Reads requested again because their lease or staleness bound expired before they completed.
    pub reads_overtaken: u64,
    /// Entries applied from the log instead of from memory.
    pub applied_from_log: u64,
    /// Decided slots that the log could not read back.
    pub slots_lost: u64,
    /// Decided slots that were restored from peers.
    pub slots_repaired: u64,
    /// Snapshots of this node's state that were completed.
    pub snapshots_taken: u64,
    /// Snapshots received from peers because this node lacked the state.
    pub snapshots_installed: u64,
    /// Snapshots that the service loaded.
    pub snapshots_loaded: u64,
    /// Bytes of values sent to each peer: in proposals, answers and forwarded batches.
    pub payload_bytes_sent: NodeTotals,
    /// Bytes of snapshots sent to peers.
    pub snapshot_bytes_sent: u64,
    /// Bytes of snapshots received from peers.
    pub snapshot_bytes_received: u64,
    /// Number of times that the start of the log was moved forward.
    pub trims: u64,
    /// Rings for votes that this node set up as leader ([ring-1]).
    pub rings_laid: u64,
    /// Rings that made no progress. Votes were then sent directly for a while ([ring-7]).
    pub rings_broken: u64,
    /// Number of times that each node was excluded from a ring because the previous ring made no
    /// progress.
    pub ring_left_out: NodeTotals,
    /// Protocol violations reported by any node ([`quorate_core::effect::Alarm`]), for an operator.
    pub alarms: u64,
}

impl Counters {
    pub(crate) const fn traffic(&self) -> Traffic {
        Traffic {
            applied_commands: self.commands_applied,
            answered_commands: self.commands_answered,
            answer_time_us: self.commands_answered_us,
            latencies: self.command_latencies,
        }
    }

    /// Counts an executed batch, whose replies are about to be sent. The acceptance times of its
    /// commands are assumed to be spread evenly between the first and the last.
    pub(crate) fn on_answered(&mut self, now: Time, completed: &BatchCompletion) {
        let oldest = now.since_us(completed.first_accepted_at);
        let youngest = now.since_us(completed.last_accepted_at);
        let commands = u64::from(completed.command_count);
        self.commands_answered += commands;
        let mean_us = oldest.midpoint(youngest);
        self.commands_answered_us =
            self.commands_answered_us.saturating_add(mean_us.saturating_mul(commands));
        self.command_latencies.add(commands, youngest, oldest);
    }
}
