//! Stream pieces that this node owns: the clients' bytes, and how many of them were sent to each
//! node ([stream-5]).
//!
//! The owner retains bytes until they are decided, and offers them again if there is no progress.
//! It assigns each position to one byte only: a client that reconnects gets a new piece.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use quorate_core::{node_id::NodeId, node_set::NodeSet, time::Time, value::StreamName};
use quorate_stream::Command;
use quorate_wire::{Frame, Lane, header::HEADER_BYTES};

use crate::{
    contents::runs::StreamBuffers,
    outbox::{Outbox, RETRY_MS},
    ports::stream_front::StreamTag,
    streaming::{
        open::{OpenPiece, PieceBounds},
        unsent::UnsentPieces,
    },
    wake::earliest_time,
};

/// Number of undecided bytes that each piece may have regardless of the number of pieces.
const PIECE_WINDOW_MIN: u64 = 16 << 10;

/// Maximum number of sealed runs in flight per piece. The next run grows in the meantime, so its
/// length adapts to the load without a timer.
const RUNS_IN_FLIGHT_MAX: usize = 3;

/// Tag bits of the owner's own requests. No front allocates such tags.
const OWN_TAGS: u64 = u64::MAX << 32;

/// Tag of requests for which no front waits.
pub(crate) const NO_FRONT: StreamTag = StreamTag(u64::MAX);

pub(crate) const fn is_own_tag(tag: StreamTag) -> bool {
    tag.0 & OWN_TAGS == OWN_TAGS
}

/// Pending end of a piece.
#[derive(Clone, Copy, Debug)]
struct PendingClose {
    tag: StreamTag,
    finish: bool,
    /// The command to close the piece was proposed and has no result yet.
    is_proposed: bool,
}

#[derive(Debug)]
struct OwnedPiece {
    /// Position of the piece's first byte in the named stream.
    first_position: u64,
    /// Bytes that wait to be sealed, because enough runs are in flight.
    open: OpenPiece,
    /// End of the bytes that are sealed and may therefore be sent.
    sealed_to: u64,
    /// Ends of the sealed runs in flight, in order.
    runs_in_flight: VecDeque<u64>,
    /// End of the bytes sent to each node over its current connection.
    sent_to: BTreeMap<NodeId, u64>,
    /// First position that has not been applied here.
    next_unapplied: u64,
    /// Last time that `next_unapplied` advanced or bytes were offered again.
    progress_at: Time,
    /// Last time that `next_unapplied` advanced, or that bytes arrived when no earlier bytes were
    /// undecided.
    moved_at: Time,
    closing: Option<PendingClose>,
    /// No front uses the piece any longer; it only has to be closed.
    is_orphan: bool,
}

impl OwnedPiece {
    /// Returns the position that the next byte put into the piece will have.
    fn next_position(&self) -> u64 {
        self.sealed_to + self.open.len() as u64
    }

    /// Restarts the progress timers if no bytes are undecided, since new ones are about to be put.
    fn restart_progress(&mut self, now: Time) {
        if self.next_position() == self.next_unapplied {
            self.progress_at = now;
            self.moved_at = now;
        }
    }

    /// Returns the position below which a node was sent all bytes or needs none.
    fn sent_to(&self, node: NodeId) -> u64 {
        self.sent_to.get(&node).map_or(self.next_unapplied, |sent| self.next_unapplied.max(*sent))
    }

    /// Returns the nodes among `nodes` that have not been sent all sealed bytes.
    fn nodes_lacking(&self, nodes: &[NodeId]) -> Vec<NodeId> {
        let lacks = |node: &&NodeId| self.sent_to(**node) < self.sealed_to;
        nodes.iter().filter(lacks).copied().collect()
    }

    /// Returns the number of bytes that were put and are not decided yet.
    fn undecided_bytes(&self) -> u64 {
        self.next_position().saturating_sub(self.next_unapplied)
    }
}

/// The end of a piece, as reported to its front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PieceEnd {
    /// Final position in the named stream.
    pub(crate) position: u64,
    /// No front of this node requested that the piece end.
    pub(crate) is_unrequested: bool,
}

/// All stream pieces that this node owns.
#[derive(Debug)]
pub(crate) struct OwnedPieces {
    node: NodeId,
    boot: u32,
    assigned_number_count: u32,
    pieces: BTreeMap<StreamName, OwnedPiece>,
    /// Pieces that may have bytes to seal or to send.
    active_pieces: BTreeSet<StreamName>,
    /// Pieces with bytes that were not sent to all nodes, because connections were full.
    unsent_pieces: UnsentPieces,
    /// Pieces for which the command to close them must still be proposed.
    pieces_to_close: BTreeSet<StreamName>,
    /// Time of the next check of all pieces for progress.
    next_check_at: Option<Time>,
    /// Maximum number of undecided bytes per piece ([stream-8]).
    piece_window: u64,
    /// Maximum number of undecided bytes of all pieces together. Other nodes have capacity for them
    /// in addition to the bytes of other owners.
    undecided_bytes_max: u64,
    /// Number of undecided bytes of all pieces.
    undecided_bytes: u64,
    /// Time in milliseconds without progress after which bytes are offered again.
    repeat_ms: u64,
    /// Time at which sending continues after connections were full.
    retry_at: Option<Time>,
    piece_bounds: PieceBounds,
}

impl OwnedPieces {
    pub(crate) fn new(
        node: NodeId,
        boot: u32,
        window: usize,
        total_max: usize,
        repeat_ms: u64,
        cut: PieceBounds,
    ) -> Self {
        Self {
            piece_bounds: cut,
            node,
            boot,
            assigned_number_count: 0,
            pieces: BTreeMap::new(),
            active_pieces: BTreeSet::new(),
            unsent_pieces: UnsentPieces::default(),
            pieces_to_close: BTreeSet::new(),
            next_check_at: None,
            piece_window: window as u64,
            undecided_bytes_max: total_max as u64,
            undecided_bytes: 0,
            repeat_ms,
            retry_at: None,
        }
    }

    /// Returns a name for the next inner stream; `None` after 2³² of them in one process.
    pub(crate) fn next_name(&mut self) -> Option<StreamName> {
        self.assigned_number_count = self.assigned_number_count.checked_add(1)?;
        Some(StreamName { owner: self.node, boot: self.boot, number: self.assigned_number_count })
    }

    /// Records that a piece was opened. A piece of this process that was not requested now
    /// (`asked`) stems from a request before a restart of the service, and is closed again. A piece
    /// that is known to be open continues.
    pub(crate) fn on_opened(&mut self, now: Time, stream: StreamName, first: u64, asked: bool) {
        if (stream.owner, stream.boot) != (self.node, self.boot)
            || self.pieces.contains_key(&stream)
        {
            return;
        }
        let owned = OwnedPiece {
            first_position: first,
            open: OpenPiece::default(),
            sealed_to: 0,
            runs_in_flight: VecDeque::new(),
            sent_to: BTreeMap::new(),
            next_unapplied: 0,
            progress_at: now,
            moved_at: now,
            closing: None,
            is_orphan: !asked,
        };
        self.pieces.insert(stream, owned);
        if !asked {
            self.abandon_piece(stream);
        }
    }

    /// Adopts a piece that is open in the table. Unknown pieces of this process were opened in
    /// slots that a snapshot replaced, with requests answered as unknown, so they must be closed.
    pub(crate) fn adopt_piece(&mut self, now: Time, stream: StreamName, first: u64, next: u64) {
        if self.pieces.contains_key(&stream) {
            return;
        }
        self.on_opened(now, stream, first, false);
        if let Some(owned) = self.pieces.get_mut(&stream) {
            (owned.sealed_to, owned.next_unapplied) = (next, next);
        }
    }

    /// [stream-8] Returns the number of bytes that may be put into the piece now.
    pub(crate) fn available_bytes(&self, stream: StreamName) -> usize {
        let Some(owned) = self.pieces.get(&stream) else {
            return 0;
        };
        if owned.closing.is_some() {
            return 0;
        }
        let undecided = owned.undecided_bytes();
        let own = self.piece_window.saturating_sub(undecided);
        let shared = self.shared_available_bytes() as u64;
        // Each piece makes progress, however many there are.
        let least = PIECE_WINDOW_MIN.min(self.piece_window).saturating_sub(undecided);
        usize::try_from(own.min(shared).max(least)).unwrap_or(usize::MAX)
    }

    /// Returns the number of bytes that may be put into all pieces together, in addition to the
    /// [`PIECE_WINDOW_MIN`] that each may always have undecided.
    pub(crate) fn shared_available_bytes(&self) -> usize {
        let room = self.undecided_bytes_max.saturating_sub(self.undecided_bytes);
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    /// Adds the next bytes of the piece. Returns the number of bytes accepted.
    pub(crate) fn put_bytes(
        &mut self,
        now: Time,
        stream: StreamName,
        bytes: &[u8],
        runs: &mut StreamBuffers,
    ) -> usize {
        let taken = bytes.len().min(self.available_bytes(stream));
        let Some(owned) = self.pieces.get_mut(&stream) else {
            return 0;
        };
        owned.restart_progress(now);
        let mut rest = &bytes[..taken];
        while !rest.is_empty() {
            let used = owned.open.add_bytes(owned.sealed_to, rest, &self.piece_bounds);
            rest = &rest[used..];
            if self.piece_bounds.is_piece_end(owned.next_position()) {
                seal_run(stream, owned, &self.piece_bounds, runs);
            }
        }
        self.count_put_bytes(stream, taken);
        taken
    }

    /// Adds the next bytes of the piece, at most `bytes_max`. Calls `read` to write them directly
    /// into a buffer, which may be shorter than `bytes_max` or empty. Returns the number of bytes
    /// added.
    pub(crate) fn fill_bytes(
        &mut self,
        now: Time,
        stream: StreamName,
        bytes_max: usize,
        runs: &mut StreamBuffers,
        read: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> usize {
        let most = bytes_max.min(self.available_bytes(stream));
        let Some(owned) = self.pieces.get_mut(&stream) else {
            return 0;
        };
        owned.restart_progress(now);
        let spare = owned.open.spare_memory(owned.sealed_to, &self.piece_bounds);
        let room = spare.len().min(most);
        let taken = read(&mut spare[..room]).min(room);
        owned.open.record_written(taken, &self.piece_bounds);
        if taken > 0 && self.piece_bounds.is_piece_end(owned.next_position()) {
            seal_run(stream, owned, &self.piece_bounds, runs);
        }
        self.count_put_bytes(stream, taken);
        taken
    }

    /// Accounts for bytes that were just put.
    fn count_put_bytes(&mut self, stream: StreamName, bytes: usize) {
        if bytes > 0 {
            self.active_pieces.insert(stream);
            self.undecided_bytes += bytes as u64;
        }
    }

    /// Returns the time in milliseconds for which the oldest undecided bytes have waited without
    /// progress; 0 if there are none.
    pub(crate) fn stuck_ms(&self, now: Time) -> u64 {
        let waiting = self.pieces.values().filter(|owned| owned.undecided_bytes() > 0);
        let first = waiting.map(|owned| owned.moved_at).min();
        first.map_or(0, |since| now.since_us(since) / 1000)
    }

    /// Requests that the piece be closed once all its bytes are decided. Returns `false` if it is
    /// not open.
    pub(crate) fn request_close(
        &mut self,
        tag: StreamTag,
        stream: StreamName,
        finish: bool,
    ) -> bool {
        let Some(owned) = self.pieces.get_mut(&stream) else {
            return false;
        };
        let asked = false;
        owned.closing = Some(PendingClose { tag, finish, is_proposed: asked });
        self.pieces_to_close.insert(stream);
        true
    }

    /// Requests that the piece be closed once all its bytes are decided, with no front waiting for
    /// it.
    pub(crate) fn abandon_piece(&mut self, stream: StreamName) {
        let tag = StreamTag(OWN_TAGS | u64::from(stream.number));
        if self.pieces.get(&stream).is_some_and(|owned| owned.closing.is_none()) {
            self.request_close(tag, stream, false);
        }
    }

    /// Handles a failed command. Returns whether it was the owner's own command to close a piece;
    /// such a command is repeated.
    pub(crate) fn on_failed(&mut self, tag: StreamTag) -> bool {
        let mut again = false;
        for (stream, owned) in &mut self.pieces {
            if let Some(closing) = &mut owned.closing
                && closing.tag == tag
                && closing.is_proposed
            {
                // The waiting front is notified of the failure, but the piece must still be closed.
                closing.is_proposed = false;
                again = is_own_tag(tag);
                closing.tag = StreamTag(OWN_TAGS | u64::from(stream.number));
                self.pieces_to_close.insert(*stream);
            }
        }
        again
    }

    /// Records that positions below `next` have been applied here. If that is progress of a piece
    /// of this node, returns the applied position in the named stream.
    pub(crate) fn record_applied(
        &mut self,
        now: Time,
        stream: StreamName,
        next: u64,
    ) -> Option<u64> {
        let owned = self.pieces.get_mut(&stream)?;
        if next <= owned.next_unapplied {
            return None;
        }
        let before = owned.undecided_bytes();
        owned.next_unapplied = next;
        self.undecided_bytes =
            self.undecided_bytes.saturating_sub(before - owned.undecided_bytes());
        if owned.is_orphan {
            // Bytes put before the service restarted are either decided or void.
            owned.sealed_to = owned.sealed_to.max(next);
            self.active_pieces.insert(stream);
            return None;
        }
        owned.progress_at = now;
        owned.moved_at = now;
        while owned.runs_in_flight.pop_front_if(|end| *end <= next).is_some() {}
        self.active_pieces.insert(stream);
        Some(owned.first_position + next)
    }

    /// Records that a piece was closed after `end` bytes; `None` if no client here used it.
    pub(crate) fn record_closed(&mut self, stream: StreamName, end: u64) -> Option<PieceEnd> {
        let owned = self.pieces.remove(&stream)?;
        self.active_pieces.remove(&stream);
        self.unsent_pieces.drop_stream(stream);
        self.pieces_to_close.remove(&stream);
        self.undecided_bytes = self.undecided_bytes.saturating_sub(owned.undecided_bytes());
        if owned.is_orphan {
            return None;
        }
        let wanted = owned.closing.is_some_and(|closing| closing.is_proposed)
            && owned.next_position() == end;
        Some(PieceEnd { position: owned.first_position + end, is_unrequested: !wanted })
    }

    /// Returns the pieces that are closed according to the table, with their applied positions.
    /// They were closed in slots that a snapshot replaced, so the final positions are not known. A
    /// piece that the table does not know was opened later.
    pub(crate) fn lost_pieces(
        &self,
        may_be_open: impl Fn(StreamName) -> bool,
    ) -> Vec<(StreamName, u64)> {
        let pieces = self.pieces.iter();
        let gone = pieces.filter(|(stream, _)| !may_be_open(**stream));
        gone.map(|(stream, owned)| (*stream, owned.next_unapplied)).collect()
    }

    /// Returns the next command to close a piece whose bytes are all decided.
    pub(crate) fn next_close(&mut self) -> Option<(StreamTag, Command)> {
        let due = |stream: &&StreamName| {
            let owned = &self.pieces[*stream];
            let all = owned.next_position() == owned.next_unapplied;
            all && owned.closing.is_some_and(|closing| !closing.is_proposed)
        };
        let stream = *self.pieces_to_close.iter().find(due)?;
        self.pieces_to_close.remove(&stream);
        let closing = self.pieces.get_mut(&stream)?.closing.as_mut()?;
        closing.is_proposed = true;
        let finish = closing.finish;
        Some((closing.tag, Command::Close { stream, finish }))
    }

    /// Records that the command could not be proposed, so that it is retried later.
    pub(crate) fn retry_close(&mut self, now: Time, tag: StreamTag) {
        self.on_failed(tag);
        self.retry_at = Some(now.plus_ms(RETRY_MS));
    }

    /// Marks all pieces as active, since this node now leads and may assign slots to all bytes in
    /// flight.
    pub(crate) fn on_leadership(&mut self) {
        self.active_pieces.extend(self.pieces.keys());
    }

    /// Handles a new connection to a peer. Bytes sent over the old one may be lost.
    pub(crate) fn peer_up(&mut self, node: NodeId) {
        for (stream, owned) in &mut self.pieces {
            owned.sent_to.remove(&node);
            self.active_pieces.insert(*stream);
        }
    }

    /// Seals bytes, reports their streams to `each`, and sends the nodes in `to` the bytes that
    /// they lack.
    pub(crate) fn send_bytes(
        &mut self,
        now: Time,
        to: &[NodeId],
        leader: Option<NodeId>,
        runs: &mut StreamBuffers,
        out: &mut Outbox<'_>,
        mut each: impl FnMut(StreamName),
    ) {
        self.retry_at.take_if(|at| *at <= now);
        self.check_progress(now, leader, out);
        for stream in std::mem::take(&mut self.active_pieces) {
            let Some(owned) = self.pieces.get_mut(&stream) else {
                continue;
            };
            if !owned.open.is_empty() && owned.runs_in_flight.len() < RUNS_IN_FLIGHT_MAX {
                seal_run(stream, owned, &self.piece_bounds, runs);
            }
            if owned.sealed_to > owned.next_unapplied {
                each(stream);
                let look_at = now.plus_ms(self.repeat_ms);
                self.next_check_at.get_or_insert(look_at);
            }
            self.unsent_pieces.add(stream, &owned.nodes_lacking(to));
        }
        let mut full = Vec::new();
        for node in to {
            self.send_to(*node, to, runs, out, &mut full);
        }
        if !self.unsent_pieces.is_empty() {
            self.retry_at = Some(now.plus_ms(RETRY_MS));
        }
    }

    /// Sends the bytes that a node lacks while its connection has free space, and the same bytes to
    /// other nodes that lack them.
    fn send_to(
        &mut self,
        node: NodeId,
        to: &[NodeId],
        runs: &StreamBuffers,
        out: &mut Outbox<'_>,
        full: &mut Vec<NodeId>,
    ) {
        for _ in 0..self.unsent_pieces.count_for(node) {
            if full.contains(&node) {
                return;
            }
            let Some(stream) = self.unsent_pieces.next_piece(node) else {
                return;
            };
            let Some(owned) = self.pieces.get_mut(&stream) else {
                self.unsent_pieces.drop_stream(stream);
                continue;
            };
            let before = owned.sent_to(node);
            let left = send_piece(stream, owned, to, runs, out, full);
            // If nothing could be sent, the next attempt starts with this piece.
            if owned.sent_to(node) > before || !full.contains(&node) {
                self.unsent_pieces.end_turn(stream, node);
            }
            self.unsent_pieces.mark_sent(stream, &left);
        }
    }

    /// Checks the bytes in flight at intervals. Offers bytes without progress to the `leader`
    /// again, and sends all missing bytes to nodes whose connections were full.
    fn check_progress(&mut self, now: Time, leader: Option<NodeId>, out: &mut Outbox<'_>) {
        if self.next_check_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        for (stream, owned) in &mut self.pieces {
            if owned.sealed_to <= owned.next_unapplied {
                continue;
            }
            self.active_pieces.insert(*stream);
            let patience = owned.progress_at.plus_ms(self.repeat_ms);
            if patience > now {
                continue;
            }
            owned.progress_at = now;
            if let Some(leader) = leader {
                owned.sent_to.remove(&leader);
                out.counters.stream_bytes_repeated += owned.sealed_to - owned.next_unapplied;
            }
        }
    }

    /// Returns the time at which the owner next needs a turn, even without further input.
    pub(crate) fn wake_at(&self) -> Option<Time> {
        earliest_time([self.retry_at, self.next_check_at])
    }
}

/// Seals the bytes that were put, so that they are sent as one run.
fn seal_run(
    stream: StreamName,
    owned: &mut OwnedPiece,
    cut: &PieceBounds,
    runs: &mut StreamBuffers,
) {
    let payload = owned.open.take_payload(owned.sealed_to, cut);
    // The owner's window is not larger than that of the runs, so the bytes fit.
    runs.store_needed(stream, owned.sealed_to, &payload);
    owned.sealed_to += payload.len() as u64;
    owned.runs_in_flight.push_back(owned.sealed_to);
}

/// Sends nodes the bytes of a piece that they lack. Returns the nodes that still lack some. Skips
/// the nodes in `full`, and adds to it those whose connections have no space.
fn send_piece(
    stream: StreamName,
    owned: &mut OwnedPiece,
    to: &[NodeId],
    runs: &StreamBuffers,
    out: &mut Outbox<'_>,
    full: &mut Vec<NodeId>,
) -> Vec<NodeId> {
    loop {
        let sent = |node: &NodeId| owned.sent_to(*node);
        let waiting = |node: &&NodeId| !full.contains(node) && sent(node) < owned.sealed_to;
        let Some(from) = to.iter().filter(waiting).map(sent).min() else {
            return owned.nodes_lacking(to);
        };
        let level: Vec<NodeId> =
            to.iter().filter(waiting).copied().filter(|node| sent(node) == from).collect();
        let Some(payload) = runs.piece(stream, from) else {
            return owned.nodes_lacking(to);
        };
        let length = HEADER_BYTES + payload.len();
        let mut set = NodeSet::default();
        for node in level {
            if !out.can_send(node, Lane::Bulk, length) {
                full.push(node);
            } else if !set.insert(node) {
                // The frame already has the maximum number of recipients; the other nodes follow.
                break;
            }
        }
        if set.is_empty() {
            continue;
        }
        let frame = Frame::StreamBytes { stream, position: from, bytes: &payload };
        let took = out.send_all(set, Lane::Bulk, &frame, Some(&payload));
        for node in set.iter() {
            if took.contains(node) {
                owned.sent_to.insert(node, from + payload.len() as u64);
            } else {
                full.push(node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, collections::BTreeSet};

    use quorate_core::node_id::Member;
    use quorate_stream::store::Layout;

    use super::*;
    use crate::{
        counters::Counters,
        ports::plane::{FrameBody, Plane, TooLarge},
    };

    const PIECES: usize = 100;
    const BYTES: usize = 1000;
    const A: NodeId = NodeId(2);
    const B: NodeId = NodeId(3);

    /// Connections, each with space for a number of frames, and the calls made to them.
    #[derive(Default)]
    struct Connections {
        room: BTreeMap<NodeId, usize>,
        space_checks: RefCell<usize>,
        sent: Vec<NodeId>,
    }

    impl Plane for Connections {
        fn has_room(&self, to: NodeId, _: Lane, _: usize) -> bool {
            *self.space_checks.borrow_mut() += 1;
            self.room[&to] > 0
        }

        fn send(
            &mut self,
            to: NodeSet,
            _: Lane,
            _: &[u8],
            _: FrameBody<'_>,
        ) -> Result<NodeSet, TooLarge> {
            for node in to.iter() {
                *self.room.get_mut(&node).unwrap() -= 1;
                self.sent.push(node);
            }
            Ok(to)
        }
    }

    struct Owner {
        owning: OwnedPieces,
        runs: StreamBuffers,
        connections: Connections,
    }

    impl Owner {
        /// Creates pieces with bytes to send.
        fn new() -> Self {
            let cut = PieceBounds::for_layout(Layout {
                unit_bytes: 8192,
                chunk_bytes: 65536,
                chunks_per_file: 4,
            });
            let mut owner = Self {
                owning: OwnedPieces::new(NodeId(1), 1, 1 << 20, 1 << 20, 1000, cut),
                runs: StreamBuffers::new(1 << 22, 1 << 20),
                connections: Connections::default(),
            };
            for _ in 0..PIECES {
                let stream = owner.owning.next_name().unwrap();
                owner.owning.on_opened(Time(0), stream, 0, true);
                owner.put_bytes(stream);
            }
            owner
        }

        fn put_bytes(&mut self, stream: StreamName) {
            let taken = self.owning.put_bytes(Time(0), stream, &[7; BYTES], &mut self.runs);
            assert_eq!(taken, BYTES);
        }

        /// Runs one turn with space for `a` and `b` frames. Returns the number of checks for space,
        /// and the recipients of frames.
        fn turn(&mut self, a: usize, b: usize) -> (usize, Vec<NodeId>) {
            self.connections = Connections::default();
            self.connections.room.extend([(A, a), (B, b)]);
            let mut counters = Counters::default();
            let from = Member::first(1);
            let mut out = Outbox::new(from, &mut self.connections, &mut counters);
            let each = |_| ();
            self.owning.send_bytes(Time(0), &[A, B], None, &mut self.runs, &mut out, each);
            let asked = *self.connections.space_checks.borrow();
            (asked, std::mem::take(&mut self.connections.sent))
        }

        /// Returns, for each piece, the end of the bytes that a node was sent.
        fn sent_to(&self, node: NodeId) -> Vec<u64> {
            let pieces = self.owning.pieces.values();
            pieces.map(|owned| owned.sent_to(node)).collect()
        }
    }

    #[test]
    fn pieces_tried_are_limited_by_the_space() {
        let mut owner = Owner::new();
        assert_eq!(owner.turn(0, 0), (2, vec![]), "once for each node");
        assert_eq!(owner.turn(0, 0), (2, vec![]));
        let (asked, sent) = owner.turn(0, 5);
        assert_eq!((asked, sent), (7, vec![B; 5]), "a node that is slow holds no other up");
        assert!(owner.owning.wake_at().is_some(), "the rest is tried again");
    }

    #[test]
    fn pieces_are_sent_round_robin_while_space_is_short() {
        let mut owner = Owner::new();
        let first = *owner.owning.pieces.keys().next().unwrap();
        for _ in 0..PIECES {
            // A piece that always has more bytes must not prevent the others from being sent.
            owner.put_bytes(first);
            owner.turn(1, 0);
        }
        assert!(owner.sent_to(A).iter().all(|to| *to >= BYTES as u64));
        let (_, sent) = owner.turn(usize::MAX, usize::MAX);
        assert!(sent.iter().filter(|node| **node == B).count() >= PIECES);
        let all = |node| owner.sent_to(node).into_iter().collect::<BTreeSet<_>>();
        assert_eq!(all(A), all(B));
        assert!(owner.owning.unsent_pieces.is_empty());
    }
}
