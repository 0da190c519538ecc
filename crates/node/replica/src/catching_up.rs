//! Catch-up: fetches missing values from the log and from peers, and serves peers that lag.

mod repair;
mod serving;

use std::collections::VecDeque;

use quorate_core::{
    input::Input,
    message::Message,
    node_id::NodeId,
    node_set::NodeSet,
    slot::{Slot, SlotRange},
    time::Time,
    value::{StreamName, Value},
};
use quorate_log::disk::Disk;
use quorate_log::{ValueBytes, Values};
use quorate_wire::{Frame, Lane, frame::STREAM_PIECE_BYTES_MAX};

use crate::{
    applying::history::History,
    catching_up::{repair::Repair, serving::Serving},
    contents::Contents,
    counters::Counters,
    limits::Limits,
    outbox::{Outbox, RETRY_MS},
    peers::Peers,
    ports::payload::Payload,
    protocol::Protocol,
    storing::{
        Storing,
        reads::{Kind, Purpose},
    },
};

/// Number of bytes charged to the budget for a message without payload.
const CHARGE_BYTES_MIN: usize = 64;

/// Values missing on this node, and values that peers requested from it.
pub(crate) struct CatchingUp {
    /// Votes from before the restart whose bytes must be read back before anything is sent.
    unread_votes: VecDeque<SlotRange>,
    repair: Repair,
    serving: Serving,
    /// Time of the next attempt to serve peers after a full buffer or an exhausted budget.
    retry_at: Option<Time>,
    /// Maximum number of bytes sent to lagging peers in one turn.
    turn_bytes: usize,
    /// Maximum number of peers' requests in the queue.
    questions_max: usize,
}

enum ServeOutcome {
    /// The value was sent; this number of bytes is charged to the budget.
    Sent(usize),
    /// The value was not sent: the peer's buffer is full, or it does not need the value.
    NoRoom,
    /// The bytes must be read from the log first.
    NotHere,
}

impl CatchingUp {
    /// Creates the state, given the votes whose bytes must be read back. An unanswered repair
    /// request is repeated after `retry_ms`.
    pub(crate) fn new(unread_votes: VecDeque<SlotRange>, retry_ms: u64, limits: &Limits) -> Self {
        Self {
            unread_votes,
            repair: Repair::new(retry_ms),
            serving: Serving::default(),
            retry_at: None,
            turn_bytes: limits.serve_bytes,
            questions_max: limits.serve_requests,
        }
    }

    /// Begins a turn, with a new budget for serving peers.
    pub(crate) fn begin_turn(&mut self) {
        self.retry_at = None;
    }

    pub(crate) fn retry_at(&self) -> Option<Time> {
        self.retry_at
    }

    /// Returns the time of the next request for lost slots, if any are lost.
    pub(crate) fn repair_at(&self) -> Option<Time> {
        self.repair.wake_at()
    }

    /// [value-3] Returns the first range of votes from before the restart whose bytes should be in
    /// the log. They are read back before this node sends anything.
    pub(crate) fn unread_votes(&self) -> Option<SlotRange> {
        self.unread_votes.front().copied()
    }

    pub(crate) fn unread_slots(&self) -> u64 {
        self.unread_votes.iter().map(|votes| votes.len()).sum()
    }

    /// Drops the unread votes, whose bytes cannot be read back: this node's votes are void.
    pub(crate) fn forget_votes(&mut self) {
        self.unread_votes.clear();
    }

    /// Passes to `contents` the bytes of votes that have been read back.
    pub(crate) fn on_votes_read(&mut self, values: Values, contents: &mut Contents) {
        let Some(mut wanted) = self.unread_votes.pop_front() else {
            return;
        };
        if let Some((range, ..)) = values.last() {
            wanted.from = range.to;
        }
        if !wanted.is_empty() {
            self.unread_votes.push_front(wanted);
        }
        for (range, value, body) in values {
            match body {
                ValueBytes::Bytes(bytes) => contents.restore_bytes(&value, range, bytes),
                ValueBytes::Places(_) => contents.restore_placed(&value, range),
            }
        }
    }

    /// Returns the first part of `range` that the log can read, up to the first lost slot.
    pub(crate) fn readable_part(&self, range: SlotRange) -> SlotRange {
        let missing = self.repair.first_lost().filter(|first| *first < range.to);
        SlotRange::new(range.from, missing.unwrap_or(range.to))
    }

    /// [disk-8] Records lost slots. Those decided in this process are fetched from peers, and the
    /// core learns earlier ones again. An open vote still has its bytes in memory; if this process
    /// ends before the decision, the next one ignores the vote.
    pub(crate) fn record_lost(
        &mut self,
        lost: &[SlotRange],
        protocol: &mut Protocol,
        counters: &mut Counters,
    ) {
        let decided = SlotRange::new(Slot::FIRST, protocol.node().decided_to());
        for range in lost {
            counters.slots_lost += range.len();
            let known = range.intersect(decided);
            if !known.is_empty() {
                self.repair.add_lost(known);
                protocol.queue_input(Input::FirstUnreadable(self.repair.first_lost()));
            }
            if range.to > decided.to {
                protocol.queue_input(Input::SlotsLost(*range));
            }
        }
    }

    /// Returns whether all of these slots were lost and are now being fetched.
    pub(crate) fn is_fetching(&self, range: SlotRange) -> bool {
        self.repair.is_fetching(range)
    }

    /// Returns whether any slot in `range` was lost and is now being fetched.
    pub(crate) fn misses_any(&self, range: SlotRange) -> bool {
        self.repair.misses_any(range)
    }

    /// Returns the first lost slot and the number of consecutive unanswered requests.
    pub(crate) fn first_lost_slot(&self) -> Option<(Slot, u32)> {
        Some((self.repair.first_lost()?, self.repair.unanswered_count()))
    }

    pub(crate) fn missing_slots(&self) -> u64 {
        self.repair.missing_slots()
    }

    /// Records that the lost values of slots are in the log again.
    pub(crate) fn record_repaired(
        &mut self,
        range: SlotRange,
        protocol: &mut Protocol,
        counters: &mut Counters,
    ) {
        counters.slots_repaired += range.len();
        self.repair.record_repaired(range);
        protocol.queue_input(Input::FirstUnreadable(self.repair.first_lost()));
    }

    /// Records that the log now begins at `start`, so that lost slots below it are no longer
    /// needed.
    pub(crate) fn on_log_start(&mut self, start: Slot, protocol: &mut Protocol) {
        self.repair.record_repaired(SlotRange::new(Slot::FIRST, start));
        protocol.queue_input(Input::FirstUnreadable(self.repair.first_lost()));
    }

    /// Requests lost slots from a peer, if a request is due.
    pub(crate) fn request_lost_slots(
        &mut self,
        now: Time,
        peers: &Peers,
        protocol: &mut Protocol,
        out: &mut Outbox<'_>,
    ) {
        if self.repair.wake_at().is_none_or(|at| at > now) {
            return;
        }
        if let Some((to, range)) = self.repair.next_request(now, &peers.connected_nodes()) {
            let message = Message::CatchupRequest { range };
            let frame = Frame::Protocol { message, bytes: None };
            out.send(to, Lane::Control, &frame);
            if self.repair.unanswered_count() as usize > 2 * peers.len() {
                protocol.queue_input(Input::FoundNowhere);
            }
        }
    }

    /// Queues slots that are decided here to be sent to a lagging peer.
    pub(crate) fn start_serving(&mut self, to: NodeId, range: SlotRange) {
        self.serving.queue_slots(to, range);
    }

    /// Handles a peer's request for the bytes of a value that was proposed in `slot`. Sends them
    /// immediately if they are in memory; otherwise queues a read from the log.
    pub(crate) fn on_question(
        &mut self,
        from: NodeId,
        value: Value,
        slot: Slot,
        contents: &Contents,
        out: &mut Outbox<'_>,
    ) {
        if let Value::Content { stream, offset } = value
            && let Some(position) = slot.0.checked_sub(offset)
            && let Some(payload) = contents.stream_buffers().piece(stream, position)
        {
            return send_stream_bytes(from, stream, position, &payload, out);
        }
        let payload = contents.bytes_for_peer(&value, SlotRange::one(slot));
        if payload.is_none() && value.has_bytes() {
            if !self.serving.queue_payload(from, value, slot, self.questions_max) {
                out.counters.frames_overload += 1;
            }
            return;
        }
        let bytes = payload.as_deref();
        let frame = Frame::FetchReply { value, bytes };
        out.send_all(NodeSet::one(from), Lane::Bulk, &frame, payload.as_ref());
    }

    /// Drops the slots queued for a disconnected peer. The peer will repeat its request.
    pub(crate) fn stop_serving(&mut self, node: NodeId) {
        self.serving.drop_peer(node);
    }

    /// Starts reading bytes that peers requested. If a read fails, the peer repeats its request.
    pub(crate) fn read_for_peers<D: Disk>(&mut self, now: Time, storing: &mut Storing<D>) {
        if storing.can_read(now, Kind::Payload)
            && let Some((to, value, slot)) = self.serving.next_payload()
        {
            let purpose = Purpose::Payload(to, value, slot);
            // The peer needs the rest of the run of content, too.
            let more = match value {
                Value::Content { .. } => STREAM_PIECE_BYTES_MAX as u64,
                _ => 1,
            };
            storing.read(now, purpose, SlotRange::new(slot, slot.plus(more)));
        }
    }

    /// Sends peers the slots that they lack, round-robin, or starts reading those not in memory.
    pub(crate) fn serve_peers<D: Disk>(
        &mut self,
        now: Time,
        peers: &Peers,
        from: (&History, &Contents),
        storing: &mut Storing<D>,
        out: &mut Outbox<'_>,
    ) {
        let mut budget = self.turn_bytes;
        let mut turns = peers.len();
        while budget > 0 && turns > 0 {
            let Some((to, range)) = self.serving.next_range() else {
                return;
            };
            match self.serve_from_memory(to, range.from, from, out) {
                ServeOutcome::Sent(bytes) => budget = budget.saturating_sub(bytes),
                ServeOutcome::NoRoom => {
                    self.retry_at = Some(now.plus_ms(RETRY_MS));
                    turns -= 1;
                }
                ServeOutcome::NotHere => {
                    storing.read(now, Purpose::Serve(to), range);
                    turns -= 1;
                }
            }
        }
        if budget == 0 && !self.serving.is_idle() {
            self.retry_at = Some(now);
        }
    }

    fn serve_from_memory(
        &mut self,
        to: NodeId,
        slot: Slot,
        (history, contents): (&History, &Contents),
        out: &mut Outbox<'_>,
    ) -> ServeOutcome {
        let Some((range, value)) = history.find(slot) else {
            return ServeOutcome::NotHere;
        };
        // A run of content may be longer than a frame.
        let most = match value {
            Value::Content { .. } => slot.plus(STREAM_PIECE_BYTES_MAX as u64),
            _ => range.to,
        };
        let range = SlotRange::new(slot, range.to.min(most));
        let payload = contents.bytes_for_peer(&value, range);
        if payload.is_none() && value.has_bytes() {
            return ServeOutcome::NotHere;
        }
        self.send_decided(to, range, value, payload.as_ref(), out)
    }

    /// Sends a peer the next part of a decided value.
    fn send_decided(
        &mut self,
        to: NodeId,
        range: SlotRange,
        value: Value,
        payload: Option<&Payload>,
        out: &mut Outbox<'_>,
    ) -> ServeOutcome {
        let Some(wanted) = self.serving.queued_range(to) else {
            return ServeOutcome::NoRoom;
        };
        let whole = range;
        let range = range.intersect(wanted);
        if range.is_empty() || range.from != wanted.from {
            return ServeOutcome::NoRoom;
        }
        let message = Message::Learn { range, value };
        let part = payload.and_then(|payload| payload_part(payload, &value, whole, range));
        let payload = part.as_ref().or(payload);
        let bytes = payload.map(|payload| &payload[..]);
        let frame = Frame::Protocol { message, bytes };
        let sent = out.send_all(NodeSet::one(to), Lane::Bulk, &frame, payload);
        if sent.is_empty() {
            return ServeOutcome::NoRoom;
        }
        out.counters.slots_served += range.len();
        self.serving.record_sent(to, range.to);
        let bytes = bytes.map_or(CHARGE_BYTES_MIN, <[u8]>::len);
        ServeOutcome::Sent(bytes.max(CHARGE_BYTES_MIN))
    }

    /// Sends values read from the log to the peer that lacks them. Returns `false` if the peer's
    /// buffer is full, so that reading further would be wasted.
    pub(crate) fn on_read_to_serve(
        &mut self,
        to: NodeId,
        values: Values,
        out: &mut Outbox<'_>,
    ) -> bool {
        if values.is_empty() {
            // Not on disk yet, or damaged: the peer repeats its request, to this node or another.
            self.serving.drop_peer(to);
        }
        for (range, value, body) in values {
            // [snap-5] For placed content, the peer fetches the bytes by position if it needs them.
            let bytes = match body {
                ValueBytes::Bytes(bytes) => Some(bytes),
                ValueBytes::Places(_) => None,
            };
            let payload = bytes.filter(|_| value.has_bytes()).map(Payload::new);
            match self.send_decided(to, range, value, payload.as_ref(), out) {
                ServeOutcome::Sent(_) => {}
                ServeOutcome::NoRoom | ServeOutcome::NotHere => return false,
            }
        }
        true
    }
}

/// Returns the bytes of `part` of a run of content; `None` if it is no part, or the value is no
/// run.
fn payload_part(
    payload: &Payload,
    value: &Value,
    whole: SlotRange,
    range: SlotRange,
) -> Option<Payload> {
    let cut = range != whole && payload.len() as u64 == whole.len();
    if !cut || !matches!(value, Value::Content { .. }) {
        return None;
    }
    let at = |slot: Slot| usize::try_from(slot.0 - whole.from.0).ok();
    let part = payload.get(at(range.from)?..at(range.to)?)?;
    Some(Payload::new(part.to_vec()))
}

/// Sends bytes of a stream. If they do not fit into one frame, the peer requests the rest.
pub(crate) fn send_stream_bytes(
    to: NodeId,
    stream: StreamName,
    position: u64,
    bytes: &[u8],
    out: &mut Outbox<'_>,
) {
    let bytes = &bytes[..bytes.len().min(STREAM_PIECE_BYTES_MAX)];
    let frame = Frame::StreamBytes { stream, position, bytes };
    out.send(to, Lane::Bulk, &frame);
}

/// Answers a peer's request with the bytes read from the log, or reports that they are missing.
pub(crate) fn answer_request(to: NodeId, wanted: Value, values: &Values, out: &mut Outbox<'_>) {
    if let Value::Content { stream, offset } = wanted {
        let found = values
            .iter()
            .filter(|(_, value, _)| *value == wanted)
            .find_map(|(range, _, body)| Some((range, body.bytes()?)))
            .filter(|(_, bytes)| !bytes.is_empty());
        if let Some((range, bytes)) = found {
            send_stream_bytes(to, stream, range.from.0.saturating_sub(offset), bytes, out);
        } else {
            let (value, bytes) = (wanted, None);
            out.send(to, Lane::Bulk, &Frame::FetchReply { value, bytes });
        }
        return;
    }
    let found = values.iter().find(|(_, value, _)| *value == wanted);
    let bytes = found.and_then(|(_, _, body)| body.bytes());
    let value = wanted;
    out.send(to, Lane::Bulk, &Frame::FetchReply { value, bytes });
}
