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
use quorate_stream::{Change, Command, Denied, Name, StreamOutcome, Table, table::LocateError};

use crate::{
    applying::applier::Appended,
    contents::runs::Runs,
    ports::{front::Failure, stream_front::StreamTag},
    proposing::gather::Waiter,
    streaming::{keeping::Keeping, offering::Offering, owning::Owning},
    wake::earliest,
};

/// Interval in milliseconds at which a leader checks streams for bytes that exceed their retention.
const RETAIN_MS: u64 = 1000;
/// Minimum number of bytes for which a trim is proposed, equal to a chunk of the store.
const RETAIN_BYTES: u64 = 256 << 10;
/// Number of retention checks within the maximum age of bytes.
const AGE_PARTS: u64 = 64;

/// Maximum number of waits for positions that have no bytes yet.
const WAITS_MAX: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FrontEvent {
    Done(StreamTag, StreamOutcome),
    Refused(StreamTag, Denied),
    Failed(StreamTag, Failure),
    Looked(StreamTag),
    Bytes(StreamTag, Blocks),
    Nowhere(StreamTag, LocateError),
    Durable(StreamName, u64),
    Ended(StreamName, u64),
}

pub(crate) struct Streaming {
    pub(crate) owning: Owning,
    pub(crate) offering: Offering,
    pub(crate) keeping: Keeping,
    /// Positions of streams for which fronts wait.
    position_waits: BTreeMap<Name, Vec<(u64, StreamTag)>>,
    front_events: VecDeque<FrontEvent>,
    /// Bytes appended in this turn, to be processed at its end.
    pub(crate) appended: Vec<Appended>,
    pub(crate) runs: Vec<(StreamName, SlotRange, bool)>,
    pub(crate) done: Vec<(Waiter, quorate_stream::Reply)>,
    /// Boot number of each connected peer.
    boots: BTreeMap<NodeId, u32>,
    /// Maximum number of this node's proposals in flight, of all kinds.
    inflight_max: usize,
    /// Clients have put bytes that have not been processed yet.
    fresh: bool,
    /// Time of the leader's next retention check.
    retain_at: Time,
    /// A stream may have bytes that exceed its retention, or may get some later.
    retains: bool,
    aged_at: Option<Time>,
}

impl Streaming {
    pub(crate) fn new(
        owning: Owning,
        offering: Offering,
        keeping: Keeping,
        inflight_max: usize,
    ) -> Self {
        Self {
            owning,
            offering,
            keeping,
            boots: BTreeMap::new(),
            inflight_max,
            fresh: false,
            retain_at: Time(0),
            retains: true,
            aged_at: None,
            position_waits: BTreeMap::new(),
            front_events: VecDeque::new(),
            appended: Vec::new(),
            runs: Vec::new(),
            done: Vec::new(),
        }
    }

    pub(crate) fn peer_up(&mut self, node: NodeId, boot: u32) {
        self.boots.insert(node, boot);
        self.owning.peer_up(node);
    }

    pub(crate) fn peer_down(&mut self, node: NodeId) {
        self.boots.remove(&node);
    }

    /// Returns the next stream whose owner is lost. `own` is this node and its boot number.
    pub(crate) fn next_lost(
        &mut self,
        now: Time,
        applied_to: Slot,
        streams: &Table,
        own: (NodeId, u32),
    ) -> Option<StreamName> {
        let boots = &self.boots;
        let boot = |node: NodeId| match node == own.0 {
            true => Some(own.1),
            false => boots.get(&node).copied(),
        };
        self.offering.next_lost(now, applied_to, streams, boot)
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
        self.retain_at = now.plus_ms(RETAIN_MS);
        let trim = |(name, before): (&Name, u64)| Command::Trim {
            name: name.clone(),
            retain_from: before,
        };
        let mut commands: Vec<Command> = streams.overfull(RETAIN_BYTES).map(trim).collect();
        if let Some(age_ms) = streams.shortest_age() {
            // The interval matches the resolution with which the table records ages.
            let every = (age_ms / AGE_PARTS).max(RETAIN_MS);
            if self.aged_at.is_none_or(|at| now >= at.plus_ms(every)) {
                self.aged_at = Some(now);
                commands.push(Command::Age { now_ms: wall_ms });
            }
        }
        self.retains = !commands.is_empty() || streams.shortest_age().is_some();
        commands
    }

    pub(crate) fn retain_at(&self) -> Option<Time> {
        self.retains.then_some(self.retain_at)
    }

    pub(crate) fn note_fresh(&mut self) {
        self.fresh = true;
    }

    pub(crate) fn has_fresh(&self) -> bool {
        self.fresh || !self.front_events.is_empty()
    }

    pub(crate) fn take_fresh(&mut self) {
        self.fresh = false;
    }

    /// Returns the time at which streams next need a turn, even without further input.
    pub(crate) fn wake_at(&self, now: Time) -> Option<Time> {
        earliest([self.owning.wake_at(), self.offering.wake_at(now), self.keeping.wake_at()])
    }

    pub(crate) fn queue_event(&mut self, told: FrontEvent) {
        let own = match &told {
            FrontEvent::Done(tag, _) | FrontEvent::Refused(tag, _) => owning::is_own(*tag),
            FrontEvent::Failed(tag, _) => self.owning.failed(*tag) || owning::is_own(*tag),
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
        if self.position_waits.values().map(Vec::len).sum::<usize>() >= WAITS_MAX {
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
                    told.push_back(FrontEvent::Looked(*tag));
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

    pub(crate) fn has_applied(&self, streams: &Table) -> bool {
        !self.runs.is_empty() || !self.done.is_empty() || streams.has_changes()
    }

    /// Processes effects of applied slots on streams. Returns the changes for the store.
    pub(crate) fn applied(
        &mut self,
        now: Time,
        streams: &mut Table,
        runs: &mut Runs,
    ) -> Vec<Change> {
        let mut changes = Vec::new();
        if !self.has_applied(streams) {
            return changes;
        }
        self.retains = true;
        for (waiter, reply) in std::mem::take(&mut self.done) {
            self.on_done(now, waiter, reply);
        }
        for (stream, range, skipped) in std::mem::take(&mut self.runs) {
            let Some(next) = streams.next_position(stream) else {
                continue;
            };
            runs.applied(stream, next);
            self.offering.applied(stream, range, skipped);
            if let Some(position) = self.owning.applied(now, stream, next) {
                self.queue_event(FrontEvent::Durable(stream, position));
            }
        }
        while let Some(change) = streams.next_change() {
            match change {
                Change::Closed { stream, end } => {
                    runs.drop_stream(stream);
                    self.offering.remove_stream(stream);
                    self.on_closed(stream, end);
                }
                Change::Removed { stream } => runs.drop_stream(stream),
                Change::Trimmed { .. } => {}
            }
            changes.push(change);
        }
        self.end_waits(streams);
        changes
    }

    fn on_done(&mut self, now: Time, waiter: Waiter, reply: quorate_stream::Reply) {
        if let Ok(StreamOutcome::Opened { stream, at }) = reply {
            let asked = matches!(waiter, Waiter::Stream(_));
            self.owning.opened(now, stream, at, asked);
        }
        let Waiter::Stream(tag) = waiter else {
            return;
        };
        self.queue_event(match reply {
            Ok(done) => FrontEvent::Done(tag, done),
            Err(denied) => FrontEvent::Refused(tag, denied),
        });
    }

    /// [stream-6] Handles the end of a piece that was closed at exactly this position.
    fn on_closed(&mut self, stream: StreamName, end: u64) {
        let Some(ended) = self.owning.record_closed(stream, end) else {
            return;
        };
        self.queue_event(FrontEvent::Durable(stream, ended.at));
        if ended.unasked {
            self.queue_event(FrontEvent::Ended(stream, ended.at));
        }
    }

    pub(crate) fn loaded(&mut self, now: Time, streams: &Table, runs: &mut Runs) {
        self.retains = true;
        runs.retain(|stream| streams.may_be_open(stream));
        for stream in streams.open_streams() {
            if let Some((first, next)) = streams.next_of_piece(stream) {
                runs.applied(stream, next);
                self.owning.adopt(now, stream, first, next);
            }
        }
        for (stream, end) in self.owning.lost_pieces(|stream| streams.may_be_open(stream)) {
            self.on_closed(stream, end);
        }
        self.offering.drop_progress();
        self.end_waits(streams);
    }
}
