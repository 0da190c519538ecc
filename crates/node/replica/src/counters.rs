//! Counters of a replica: how often each path was taken, above all the slow and the wrong ones.

use std::fmt;

use quorate_core::{
    node_id::NodeId,
    node_set::{NODES_MAX, NodeSet},
    time::Time,
};

use crate::latencies::Latencies;

/// Totals of commands taken and batches formed since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Commands taken.
    pub(crate) accepted: u64,
    /// Batches formed.
    pub(crate) batches: u64,
    /// Commands in the batches formed.
    pub(crate) commands: u64,
    /// Bytes of the batches formed.
    pub(crate) bytes: u64,
}

/// A batch of this process that was executed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completed {
    /// Time when its first command was accepted.
    pub(crate) accepted_first: Time,
    /// Time when its last command was accepted.
    pub(crate) accepted_last: Time,
    /// Time when the batch was formed.
    pub(crate) formed: Time,
    pub(crate) commands: u32,
    pub(crate) bytes: usize,
}

/// A number for each of a few nodes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct PerNode {
    nodes: [(NodeId, u64); NODES_MAX],
}

impl fmt::Debug for PerNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.nodes.iter().filter(|(node, _)| *node != NodeId(0));
        f.debug_map().entries(known.map(|(node, sum)| (node.0, sum))).finish()
    }
}

impl PerNode {
    /// Adds `amount` for each of these nodes. If there is no room for all nodes, the last are left
    /// out.
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

    /// Iterates over the nodes with a nonzero count.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, u64)> + '_ {
        let known = |(node, _): &(NodeId, u64)| *node != NodeId(0);
        self.nodes.iter().copied().filter(known)
    }

    /// Returns the count of this node.
    pub fn to(&self, node: NodeId) -> u64 {
        let place = self.nodes.iter().find(|(known, _)| *known == node);
        place.map_or(0, |(_, sum)| *sum)
    }
}

/// Totals since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commands taken from fronts.
    pub commands_accepted: u64,
    /// Commands of this node's clients that were executed and answered.
    pub commands_answered: u64,
    /// The time from acceptance to the answer of all of these together, in microseconds.
    pub commands_answered_us: u64,
    /// Latencies of these commands.
    pub command_latencies: Latencies,
    /// Commands refused because a queue was full.
    pub commands_busy: u64,
    /// Commands and reads that ran out of time.
    pub requests_timed_out: u64,
    /// Commands whose reply was dropped because too many waited.
    pub replies_dropped: u64,
    /// Values given a slot as a leader in the turn after a pause between two eras ([cast-5]).
    pub slots_waited_for_era: u64,
    /// Bytes that became part of a stream.
    pub stream_bytes_appended: u64,
    /// Bytes of streams that records had no need of: they say where the store of streams has them
    /// ([disk-5]).
    pub stream_bytes_placed: u64,
    /// Bytes of streams that records have.
    pub stream_bytes_recorded: u64,
    /// Slots of content that was a no-op ([stream-4]).
    pub stream_slots_skipped: u64,
    /// Times that this node, an auxiliary, learned that bytes it requested are not needed
    /// ([aux-5]).
    pub stream_bytes_needless: u64,
    /// Bytes of streams that arrived from their owners and did not fit.
    pub stream_bytes_dropped: u64,
    /// Bytes of streams that were offered again, for want of progress.
    pub stream_bytes_repeated: u64,
    /// Own batches formed.
    pub batches_formed: u64,
    /// Own batches offered again: leader change, refusal, reconnection or time-out.
    pub batches_repeated: u64,
    /// Batches decided and executed here.
    pub batches_applied: u64,
    /// Commands executed here.
    pub commands_applied: u64,
    /// Decided batches not executed because they had been before.
    pub batches_skipped: u64,
    /// Decided batches not executed because an earlier one of their origin was missing.
    pub batches_out_of_order: u64,
    /// Decided batches not executed because their origin's session is unknown ([session-4]).
    pub batches_unknown_session: u64,
    /// Decided batches that no decoder understands; executed nowhere.
    pub batches_malformed: u64,
    /// Batches of other nodes proposed here.
    pub forwards_taken: u64,
    /// Batches of other nodes that were in flight or applied already.
    pub forwards_repeated: u64,
    /// Batches of other nodes not taken.
    pub forwards_refused: u64,
    /// Frames dropped because payload and name did not match, or sender and content did not.
    pub frames_mismatched: u64,
    /// Frames dropped because a queue was full; the protocol repeats them.
    pub frames_overload: u64,
    /// Frames that the plane had no room for, or no connection; the protocol repeats them.
    pub sends_dropped: u64,
    /// Payloads asked for with a fetch.
    pub payloads_fetched: u64,
    /// Slots sent to peers that are behind.
    pub slots_served: u64,
    /// Linearizable reads asked for.
    pub reads_asked: u64,
    /// Confirmations that linearizable reads shared.
    pub reads_confirmed: u64,
    /// Reads that ran, or will run, between commands of their connection.
    pub reads_in_order: u64,
    /// Linearizable reads that a lease let run ([read-4]).
    pub reads_leased: u64,
    /// Reads asked for that may be stale within a bound ([read-6]).
    pub reads_within: u64,
    /// Reads whose lease or bound was over when they had read: they were asked for again.
    pub reads_overtaken: u64,
    /// Entries applied from the log instead of memory.
    pub applied_from_log: u64,
    /// Decided slots that the log could not read back any more.
    pub slots_lost: u64,
    /// Decided slots that were restored from peers.
    pub slots_repaired: u64,
    /// Snapshots of this node's state that became whole.
    pub snapshots_taken: u64,
    /// Peers' snapshots that replaced the state that this node lacked.
    pub snapshots_installed: u64,
    /// Snapshots that the service took in.
    pub snapshots_loaded: u64,
    /// Bytes of values sent to each peer: in proposals, in answers, forwarded.
    pub payload_bytes_sent: PerNode,
    /// Bytes of snapshots sent to peers.
    pub snapshot_bytes_sent: u64,
    /// Bytes of snapshots received from peers.
    pub snapshot_bytes_received: u64,
    /// Times that the start of the log was moved forward.
    pub trims: u64,
    /// Rings of votes that this node laid as a leader ([ring-1]).
    pub rings_laid: u64,
    /// Rings that made no progress: votes were sent straight for a while ([ring-7]).
    pub rings_broken: u64,
    /// Times that each node was in a ring that made no progress, and not in the next one.
    pub ring_left_out: PerNode,
    /// Rules broken somewhere ([`quorate_core::effect::Alarm`]); each is worth a person's
    /// attention.
    pub alarms: u64,
}

impl Counters {
    /// Counts an executed batch of this node's clients, whose replies are in flight. Acceptance is
    /// taken as even between the first command and the last.
    pub(crate) fn on_answered(&mut self, now: Time, completed: &Completed) {
        let oldest = now.since_us(completed.accepted_first);
        let youngest = now.since_us(completed.accepted_last);
        let commands = u64::from(completed.commands);
        self.commands_answered += commands;
        let mean_us = oldest.midpoint(youngest);
        self.commands_answered_us =
            self.commands_answered_us.saturating_add(mean_us.saturating_mul(commands));
        self.command_latencies.add(commands, youngest, oldest);
    }
}
