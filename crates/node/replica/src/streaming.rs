//! Byte streams of this replica: its own pieces, its proposals as a leader, and readers.
//!
//! The path of a byte: a client puts it into this node (`owning`; bytes not sent yet are in
//! `open`), which stores it with the bytes of all streams (`contents/runs`) and sends it to every
//! node that stores bytes. The leader assigns slots to the bytes that it has (`offering`), and
//! nodes vote as for any value. Decided bytes pass through the table (`applying`) into the store,
//! and the owner's client is notified of the progress.

pub(crate) mod holding;
pub(crate) mod keeping;
pub(crate) mod offering;
pub(crate) mod open;
pub(crate) mod owning;
mod unsent;
pub(crate) mod work;

use std::collections::{BTreeMap, VecDeque};

use quorate_core::{
    node_id::NodeId,
    slot::{Slot, SlotRange},
    time::Time,
    value::StreamName,
};
use quorate_log::disk::Blocks;
use quorate_stream::{
    Command, Denied, InnerStreamChange, Name, StreamOutcome, Table, table::LocateError,
};

use crate::{
    applying::applier::AppendedBytes,
    contents::runs::StreamBuffers,
    ports::{front::Failure, stream_front::StreamTag},
    proposing::gather::Waiter,
    streaming::{keeping::StreamStorage, offering::StreamProposals, owning::OwnedPieces},
    wake::earliest_time,
};

/// Interval in milliseconds at which a leader checks streams for bytes that exceed their retention.
const RETENTION_CHECK_MS: u64 = 1000;
/// Minimum number of bytes for which a trim is proposed, equal to a chunk of the store.
const TRIM_BYTES_MIN: u64 = 256 << 10;
/// Number of retention checks within the maximum age of bytes.
const AGE_CHECKS: u64 = 64;

/// Maximum number of waits for positions that have no bytes yet.
const POSITION_WAITS_MAX: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FrontEvent {
    Executed(StreamTag, StreamOutcome),
    Refused(StreamTag, Denied),
    Failed(StreamTag, Failure),
    UpToDate(StreamTag),
    Bytes(StreamTag, Blocks),
    NoBytes(StreamTag, LocateError),
    Durable(StreamName, u64),
    Ended(StreamName, u64),
}

pub(crate) struct Streaming {
    pub(crate) owned_pieces: OwnedPieces,
    pub(crate) proposals: StreamProposals,
    pub(crate) stream_storage: StreamStorage,
    /// Positions of streams for which fronts wait.
    position_waits: BTreeMap<Name, Vec<(u64, StreamTag)>>,
    front_events: VecDeque<FrontEvent>,
    /// Bytes appended in this turn, to be processed at its end.
    pub(crate) appended_bytes: Vec<AppendedBytes>,
    pub(crate) applied_runs: Vec<(StreamName, SlotRange, bool)>,
    pub(crate) executed_commands: Vec<(Waiter, quorate_stream::Reply)>,
    /// Boot number of each connected peer.
    peer_boots: BTreeMap<NodeId, u32>,
    /// Maximum number of this node's proposals in flight, of all kinds.
    inflight_max: usize,
    /// Clients have put bytes that have not been processed yet.
    has_fresh_bytes: bool,
    /// Time of the leader's next retention check.
    retain_at: Time,
    /// A stream may have bytes that exceed its retention, or may get some later.
    needs_retention_checks: bool,
    aged_at: Option<Time>,
}

impl Streaming {
    pub(crate) fn new(
        owning: OwnedPieces,
        offering: StreamProposals,
        keeping: StreamStorage,
        inflight_max: usize,
    ) -> Self {
        Self {
            owned_pieces: owning,
            proposals: offering,
            stream_storage: keeping,
            peer_boots: BTreeMap::new(),
            inflight_max,
            has_fresh_bytes: false,
            retain_at: Time(0),
            needs_retention_checks: true,
            aged_at: None,
            position_waits: BTreeMap::new(),
            front_events: VecDeque::new(),
            appended_bytes: Vec::new(),
            applied_runs: Vec::new(),
            executed_commands: Vec::new(),
        }
    }

    pub(crate) fn peer_up(&mut self, node: NodeId, boot: u32) {
        self.peer_boots.insert(node, boot);
        self.owned_pieces.peer_up(node);
    }

    pub(crate) fn peer_down(&mut self, node: NodeId) {
        self.peer_boots.remove(&node);
    }

    /// Returns the next stream whose owner is lost. `own` is this node and its boot number.
    pub(crate) fn next_lost(
        &mut self,
        now: Time,
        applied_to: Slot,
        streams: &Table,
        own: (NodeId, u32),
    ) -> Option<StreamName> {
        let boots = &self.peer_boots;
        let boot = |node: NodeId| match node == own.0 {
            true => Some(own.1),
            false => boots.get(&node).copied(),
        };
        self.proposals.next_lost(now, applied_to, streams, boot)
    }

    /// Returns the number of proposals in flight up to which streams may add more. The rest of the
    /// limit is reserved for commands.
    pub(crate) fn inflight_max(&self) -> usize {
        (self.inflight_max / 2).max(1)
    }

    /// [trim-2] Returns the leader's due commands that enforce the retention of streams.
    pub(crate) fn take_retention(
        &mut self,
        now: Time,
        wall_ms: u64,
        streams: &Table,
    ) -> Vec<Command> {
        if now < self.retain_at {
            return Vec::new();
        }
        self.retain_at = now.plus_ms(RETENTION_CHECK_MS);
        let trim = |(name, before): (&Name, u64)| Command::Trim {
            name: name.clone(),
            retain_from: before,
        };
        let mut commands: Vec<Command> =
            streams.streams_over_size(TRIM_BYTES_MIN).map(trim).collect();
        if let Some(age_ms) = streams.min_age_bound_ms() {
            // The interval matches the resolution with which the table records ages.
            let every = (age_ms / AGE_CHECKS).max(RETENTION_CHECK_MS);
            if self.aged_at.is_none_or(|at| now >= at.plus_ms(every)) {
                self.aged_at = Some(now);
                commands.push(Command::Age { now_ms: wall_ms });
            }
        }
        self.needs_retention_checks = !commands.is_empty() || streams.min_age_bound_ms().is_some();
        commands
    }

    pub(crate) fn retain_at(&self) -> Option<Time> {
        self.needs_retention_checks.then_some(self.retain_at)
    }

    pub(crate) fn mark_fresh_bytes(&mut self) {
        self.has_fresh_bytes = true;
    }

    pub(crate) fn has_fresh_bytes(&self) -> bool {
        self.has_fresh_bytes || !self.front_events.is_empty()
    }

    pub(crate) fn clear_fresh_bytes(&mut self) {
        self.has_fresh_bytes = false;
    }

    /// Returns the time at which streams next need a turn, even without further input.
    pub(crate) fn wake_at(&self, now: Time) -> Option<Time> {
        earliest_time([
            self.owned_pieces.wake_at(),
            self.proposals.wake_at(now),
            self.stream_storage.wake_at(),
        ])
    }

    pub(crate) fn queue_event(&mut self, told: FrontEvent) {
        let own = match &told {
            FrontEvent::Executed(tag, _) | FrontEvent::Refused(tag, _) => owning::is_own_tag(*tag),
            FrontEvent::Failed(tag, _) => {
                self.owned_pieces.on_failed(*tag) || owning::is_own_tag(*tag)
            }
            _ => false,
        };
        if !own {
            self.front_events.push_back(told);
        }
    }

    pub(crate) fn next_front_event(&mut self) -> Option<FrontEvent> {
        self.front_events.pop_front()
    }

    /// Queues a wait for a position of a stream. Returns [`Failure::Busy`] if there are too many.
    pub(crate) fn wait_for_position(
        &mut self,
        tag: StreamTag,
        name: &Name,
        position: u64,
        streams: &Table,
    ) -> Result<(), Failure> {
        if self.position_waits.values().map(Vec::len).sum::<usize>() >= POSITION_WAITS_MAX {
            return Err(Failure::Busy);
        }
        self.position_waits.entry(name.clone()).or_default().push((position, tag));
        self.end_waits(streams);
        Ok(())
    }

    pub(crate) fn drop_request(&mut self, tag: StreamTag) {
        self.position_waits.retain(|_, waits| {
            waits.retain(|(_, waiting)| *waiting != tag);
            !waits.is_empty()
        });
    }

    /// Ends the waits for positions that have bytes now or never will.
    fn end_waits(&mut self, streams: &Table) {
        let told = &mut self.front_events;
        self.position_waits.retain(|name, waits| {
            let info = streams.info(name);
            waits.retain(|(position, tag)| {
                let waits_on =
                    info.as_ref().is_some_and(|info| !info.finished && info.end <= *position);
                if !waits_on {
                    told.push_back(FrontEvent::UpToDate(*tag));
                }
                waits_on
            });
            !waits.is_empty()
        });
    }

    /// Fails all waits, because this node is stopping or can no longer apply slots.
    pub(crate) fn end_all(&mut self, failure: Failure) {
        for (_, waits) in std::mem::take(&mut self.position_waits) {
            for (_, tag) in waits {
                self.queue_event(FrontEvent::Failed(tag, failure));
            }
        }
    }

    pub(crate) fn has_unprocessed_effects(&self, streams: &Table) -> bool {
        !self.applied_runs.is_empty() || !self.executed_commands.is_empty() || streams.has_changes()
    }

    /// Processes effects of applied slots on streams. Returns the changes for the store.
    pub(crate) fn process_applied(
        &mut self,
        now: Time,
        streams: &mut Table,
        runs: &mut StreamBuffers,
    ) -> Vec<InnerStreamChange> {
        let mut changes = Vec::new();
        if !self.has_unprocessed_effects(streams) {
            return changes;
        }
        self.needs_retention_checks = true;
        for (waiter, reply) in std::mem::take(&mut self.executed_commands) {
            self.on_done(now, waiter, reply);
        }
        for (stream, range, skipped) in std::mem::take(&mut self.applied_runs) {
            let Some(next) = streams.next_position(stream) else {
                continue;
            };
            runs.drop_applied(stream, next);
            self.proposals.record_applied(stream, range, skipped);
            if let Some(position) = self.owned_pieces.record_applied(now, stream, next) {
                self.queue_event(FrontEvent::Durable(stream, position));
            }
        }
        while let Some(change) = streams.next_change() {
            match change {
                InnerStreamChange::Closed { stream, end } => {
                    runs.drop_stream(stream);
                    self.proposals.remove_stream(stream);
                    self.on_closed(stream, end);
                }
                InnerStreamChange::Removed { stream } => runs.drop_stream(stream),
                InnerStreamChange::Trimmed { .. } => {}
            }
            changes.push(change);
        }
        self.end_waits(streams);
        changes
    }

    fn on_done(&mut self, now: Time, waiter: Waiter, reply: quorate_stream::Reply) {
        if let Ok(StreamOutcome::Opened { stream, start_position: at }) = reply {
            let asked = matches!(waiter, Waiter::Stream(_));
            self.owned_pieces.on_opened(now, stream, at, asked);
        }
        let Waiter::Stream(tag) = waiter else {
            return;
        };
        self.queue_event(match reply {
            Ok(done) => FrontEvent::Executed(tag, done),
            Err(denied) => FrontEvent::Refused(tag, denied),
        });
    }

    /// [stream-6] Handles the end of a piece that was closed at exactly this position.
    fn on_closed(&mut self, stream: StreamName, end: u64) {
        let Some(ended) = self.owned_pieces.record_closed(stream, end) else {
            return;
        };
        self.queue_event(FrontEvent::Durable(stream, ended.position));
        if ended.is_unrequested {
            self.queue_event(FrontEvent::Ended(stream, ended.position));
        }
    }

    pub(crate) fn on_loaded(&mut self, now: Time, streams: &Table, runs: &mut StreamBuffers) {
        self.needs_retention_checks = true;
        runs.retain_streams(|stream| streams.may_be_appended_to(stream));
        for stream in streams.open_streams() {
            if let Some((first, next)) = streams.next_in_open_piece(stream) {
                runs.drop_applied(stream, next);
                self.owned_pieces.adopt_piece(now, stream, first, next);
            }
        }
        for (stream, end) in
            self.owned_pieces.lost_pieces(|stream| streams.may_be_appended_to(stream))
        {
            self.on_closed(stream, end);
        }
        self.proposals.drop_progress();
        self.end_waits(streams);
    }
}
