//! The table of streams: replicated state, equal on every node after equal slots ([snap-1]).
//!
//! An *inner stream* is the paper's: the bytes that one client sent to one owner, numbered from 0
//! (Zero-copy Paxos, "Input and output streams"). A *named stream* is what users see: a list of
//! pieces ⟨inner stream, first position⟩ that continue one another without gap or repeat. Only the
//! last piece of a stream may be open, and only between the command that opened it and its close
//! are its bytes appended: [`Table::append`] is the one rule that decides which ([stream-4]).
//!
//! Nothing here reads a clock or depends on anything but the commands and values that were applied.

mod rows;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use quorate_core::{
    node_id::NodeId,
    slot::{Slot, SlotRange},
    value::StreamName,
};

use crate::{
    command::{Command, Denied, OpenMode, Reply, Retention, StreamOutcome, Writer},
    name::Name,
};

pub use rows::{MalformedRows, RowChange};

/// Maximum number of named streams. Not configurable, because all nodes must refuse the same
/// commands.
pub const STREAMS_MAX: usize = 16_384;
/// Maximum number of pieces of one stream. A writer that reconnects begins a new piece, unless the
/// last one is empty.
pub const PIECES_MAX: usize = 16_384;

/// Number of former writers remembered after takeovers. A delayed command cannot be overtaken by
/// more takeovers than that.
const FORMER_WRITERS_MAX: usize = 256;
/// Maximum number of age marks per stream, which determines the resolution of its age bound.
const AGE_MARKS_MAX: usize = 128;

/// Part of a named stream that was written through one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub stream: StreamName,
    /// Position of the inner stream's byte 0 in the named stream.
    pub start_position: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Stream {
    /// Distinguishes successive streams of the same name. Close to the slot in which the stream was
    /// created.
    id: u64,
    /// Creation time in Unix milliseconds, by the clock of the first owner.
    created_ms: u64,
    finished: bool,
    open: bool,
    /// The writer that last opened the stream.
    writer: Writer,
    /// Former writers, the latest last. A delayed command from one of them must not undo a
    /// takeover.
    former_writers: VecDeque<Writer>,
    /// First retained position.
    start: u64,
    /// Next position to append. All lower ones are decided.
    next_position: u64,
    retention: Retention,
    /// Marks of a stream with an age bound: positions in order, each with the time by which all
    /// bytes below it had been appended.
    age_marks: VecDeque<(u64, u64)>,
    /// Pieces in order. Those entirely below `start` are dropped, except for the last one.
    pieces: Vec<Piece>,
}

impl Stream {
    fn last_piece(&self) -> Piece {
        *self.pieces.last().expect("a stream has a piece")
    }

    /// Returns the retained positions of piece `at`, within its inner stream.
    fn retained_range(&self, at: usize) -> Range<u64> {
        let first = self.pieces[at].start_position;
        let end = self.pieces.get(at + 1).map_or(self.next_position, |next| next.start_position);
        // A restored table may have pieces that are no longer retained at all.
        self.start.clamp(first, end) - first..end - first
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    pub name: Name,
    /// Distinguishes successive streams of the same name. A later stream has a higher id.
    pub id: u64,
    /// Set if the stream accepts no more bytes.
    pub finished: bool,
    /// Inner stream that is open for appending.
    pub open_stream: Option<StreamName>,
    pub start: u64,
    pub end: u64,
    pub pieces: usize,
    pub created_ms: u64,
    pub retention: Retention,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InnerPosition {
    pub stream: StreamName,
    pub position: u64,
    /// Number of contiguous bytes in this inner stream, starting at `position`.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocateError {
    Unknown,
    /// The position is below the start of a trimmed stream.
    Trimmed {
        start: u64,
    },
    /// The position is at or after the end of the stream.
    PastEnd {
        end: u64,
        /// Set if the stream ends there permanently.
        finished: bool,
    },
}

/// A change of an inner stream, reported to nodes that store its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InnerStreamChange {
    /// No more bytes of the inner stream will be appended.
    Closed { stream: StreamName, end: u64 },
    /// Bytes of the inner stream below this position are no longer needed.
    Trimmed { stream: StreamName, below: u64 },
    /// The bytes of the inner stream are no longer needed.
    Removed { stream: StreamName },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    streams: BTreeMap<Name, Stream>,
    /// Open inner streams, each with the named stream that it is the last piece of.
    open: BTreeMap<StreamName, Name>,
    /// Inner streams of all pieces.
    inner_streams: BTreeSet<StreamName>,
    /// For each owner, the boot and number of the inner stream that it opened last. Owners count up
    /// and their commands are executed in order, so an inner stream that is not higher has been
    /// opened before and is never opened again.
    last_opened: BTreeMap<NodeId, (u32, u32)>,
    pending_changes: VecDeque<InnerStreamChange>,
    last_stream_id: u64,
    unsaved_rows: BTreeSet<(Name, rows::RowKind)>,
    unsaved_owners: BTreeSet<NodeId>,
}

impl Table {
    /// [stream-4] Applies the append rule: a decided byte of content is appended if and only if its
    /// inner stream is open and its position is the next one; otherwise it is a no-op. The rule
    /// applies to each byte, so the result does not depend on how a range is split. Returns the
    /// appended positions of the inner stream, an empty range if there are none.
    pub fn append(&mut self, stream: StreamName, offset: u64, range: SlotRange) -> Range<u64> {
        let Some(name) = self.open.get(&stream) else {
            return 0..0;
        };
        let named = self.streams.get_mut(name).expect("an open stream is known");
        let first = named.last_piece().start_position;
        let next = named.next_position - first;
        let appended = appended_positions(offset, range, next);
        // Positions of a named stream must not wrap, so bytes past the last position are not
        // appended.
        let longest = u64::MAX - 1 - named.next_position;
        let appended = appended.start..appended.end.min(appended.start.saturating_add(longest));
        if !appended.is_empty() {
            named.next_position = first + appended.end;
            self.unsaved_rows.insert((name.clone(), rows::RowKind::End));
        }
        appended
    }

    /// Returns whether [`Table::append`] would append any bytes now.
    pub fn would_append(&self, stream: StreamName, offset: u64, range: SlotRange) -> bool {
        let next = self.next_position(stream);
        next.is_some_and(|next| !appended_positions(offset, range, next).is_empty())
    }

    /// [stream-4] Returns the positions of content in `range` that may still be appended, as far as
    /// the applied slots show. All other positions are no-ops whatever is decided before them, so
    /// their bytes are not needed.
    pub fn appendable(&self, stream: StreamName, offset: u64, range: SlotRange) -> Range<u64> {
        let positions = content_positions(offset, range);
        match self.next_position(stream) {
            Some(next) => positions.start.max(next)..positions.end.max(next),
            None if self.was_opened(stream) => positions.end..positions.end,
            // The inner stream may be opened in a slot that has not been applied here yet.
            None => positions,
        }
    }

    /// Returns whether bytes of the inner stream `stream` may still be appended.
    pub fn may_be_appended_to(&self, stream: StreamName) -> bool {
        self.open.contains_key(&stream) || !self.was_opened(stream)
    }

    /// Returns whether this inner stream has been opened before. If so, it is never opened again.
    fn was_opened(&self, stream: StreamName) -> bool {
        let last = self.last_opened.get(&stream.owner);
        last.is_some_and(|last| (stream.boot, stream.number) <= *last)
    }

    /// Returns the next position of an inner stream, or `None` if it is not open.
    pub fn next_position(&self, stream: StreamName) -> Option<u64> {
        Some(self.next_in_open_piece(stream)?.1)
    }

    /// Returns the position of an open inner stream's byte 0 in the named stream, and the inner
    /// stream's next position.
    pub fn next_in_open_piece(&self, stream: StreamName) -> Option<(u64, u64)> {
        let named = self.streams.get(self.open.get(&stream)?)?;
        let first = named.last_piece().start_position;
        Some((first, named.next_position - first))
    }

    /// [stream-6] Closes an inner stream whose owner is lost.
    pub fn close_inner(&mut self, stream: StreamName) {
        self.end_piece(stream);
    }

    /// Returns all open inner streams.
    pub fn open_streams(&self) -> impl Iterator<Item = StreamName> + '_ {
        self.open.keys().copied()
    }

    /// Returns the table with which a new group begins ([restore-1]). The owners of open pieces are
    /// not nodes of the new group, so these pieces end at their current positions. Their writers
    /// may continue with new pieces.
    #[must_use]
    pub fn with_all_closed(mut self) -> Self {
        for stream in self.open_streams().collect::<Vec<_>>() {
            self.end_piece(stream);
        }
        self.pending_changes.clear();
        self
    }

    /// Returns the total number of retained bytes, or `None` if it overflows.
    pub fn retained_bytes(&self) -> Option<u64> {
        let mut lengths = self.retained_ranges().map(|(_, range)| range.end - range.start);
        lengths.try_fold(0_u64, u64::checked_add)
    }

    /// Returns whether any bytes of the inner stream `stream` are retained.
    pub fn is_retained(&self, stream: StreamName) -> bool {
        self.inner_streams.contains(&stream)
    }

    /// Returns the inner streams, each with its retained positions.
    pub fn retained_ranges(&self) -> impl Iterator<Item = (StreamName, Range<u64>)> + '_ {
        self.streams.values().flat_map(|named| {
            let pieces = named.pieces.iter().enumerate();
            pieces.map(|(at, piece)| (piece.stream, named.retained_range(at)))
        })
    }

    /// Executes a command from the log. `slot` is the command's slot.
    pub fn execute(&mut self, slot: Slot, command: &[u8]) -> Reply {
        match Command::decode(command).ok_or(Denied::Malformed)? {
            Command::Open { name, mode: how, writer, stream, now_ms } => {
                self.open_piece(slot, name, how, writer, stream, now_ms)
            }
            Command::Close { stream, finish } => self.close_piece(stream, finish),
            Command::Trim { name, retain_from: before } => self.trim(name, before),
            Command::Remove { name } => self.remove(&name),
            Command::Retain { name, retention: keep } => self.retain(&name, keep),
            Command::Age { now_ms } => Ok(self.age(now_ms)),
        }
    }

    fn open_piece(
        &mut self,
        slot: Slot,
        name: Name,
        how: OpenMode,
        writer: Writer,
        stream: StreamName,
        now_ms: u64,
    ) -> Reply {
        if self.was_opened(stream) {
            return Err(Denied::InnerStreamReused);
        }
        let Some(named) = self.streams.get(&name) else {
            return match how {
                OpenMode::Create if self.streams.len() >= STREAMS_MAX => {
                    Err(Denied::TooManyStreams)
                }
                OpenMode::Create => Ok(self.create(slot, name, writer, stream, now_ms)),
                OpenMode::Append | OpenMode::Takeover | OpenMode::Continue => Err(Denied::Unknown),
            };
        };
        let same = named.writer == writer;
        match how {
            _ if named.former_writers.contains(&writer) => return Err(Denied::Fenced),
            OpenMode::Create if !same => return Err(Denied::Exists),
            OpenMode::Continue if !same => return Err(Denied::Fenced),
            _ if named.finished => return Err(Denied::Finished),
            OpenMode::Append if named.open && !same => return Err(Denied::InUse),
            OpenMode::Create | OpenMode::Continue | OpenMode::Append | OpenMode::Takeover => {}
        }
        let empty = named.next_position == named.last_piece().start_position;
        if named.pieces.len() >= PIECES_MAX && !empty {
            return Err(Denied::TooManyPieces);
        }
        self.end_piece(named.last_piece().stream);
        let named = self.streams.get_mut(&name).expect("looked up above");
        if empty {
            // The piece is empty, so dropping it loses nothing.
            let piece = named.pieces.pop().expect("a stream has a piece");
            self.inner_streams.remove(&piece.stream);
            let stream = piece.stream;
            self.pending_changes.push_back(InnerStreamChange::Removed { stream });
        }
        let at = named.next_position;
        named.pieces.push(Piece { stream, start_position: at });
        let before = std::mem::replace(&mut named.writer, writer);
        if before != writer {
            if named.former_writers.len() == FORMER_WRITERS_MAX {
                named.former_writers.pop_front();
            }
            named.former_writers.push_back(before);
        }
        named.open = true;
        self.record_opened(stream);
        self.unsaved_rows.insert((name.clone(), rows::RowKind::Pieces));
        self.open.insert(stream, name);
        Ok(StreamOutcome::Opened { stream, start_position: at })
    }

    fn create(
        &mut self,
        slot: Slot,
        name: Name,
        writer: Writer,
        stream: StreamName,
        created_ms: u64,
    ) -> StreamOutcome {
        // More than one stream may be created in a slot.
        self.last_stream_id = slot.0.max(self.last_stream_id + 1);
        let named = Stream {
            id: self.last_stream_id,
            created_ms,
            finished: false,
            open: true,
            writer,
            former_writers: VecDeque::new(),
            start: 0,
            next_position: 0,
            retention: Retention::default(),
            age_marks: VecDeque::new(),
            pieces: vec![Piece { stream, start_position: 0 }],
        };
        self.record_opened(stream);
        self.open.insert(stream, name.clone());
        for part in rows::RowKind::ALL {
            self.unsaved_rows.insert((name.clone(), part));
        }
        self.streams.insert(name, named);
        StreamOutcome::Opened { stream, start_position: 0 }
    }

    fn record_opened(&mut self, stream: StreamName) {
        self.inner_streams.insert(stream);
        self.last_opened.insert(stream.owner, (stream.boot, stream.number));
        self.unsaved_owners.insert(stream.owner);
    }

    fn close_piece(&mut self, stream: StreamName, finish: bool) -> Reply {
        // A fenced writer learns the end of its piece from the writer that took over. Here the
        // piece is only closed.
        let Some(name) = self.end_piece(stream) else {
            return match self.inner_streams.contains(&stream) {
                true => Err(Denied::Fenced),
                false => Err(Denied::Unknown),
            };
        };
        let named = self.streams.get_mut(&name).expect("an open stream is known");
        named.finished |= finish;
        Ok(StreamOutcome::Closed { end_position: named.next_position })
    }

    /// Ends the piece of an inner stream at its current position. Returns the name of the stream.
    fn end_piece(&mut self, stream: StreamName) -> Option<Name> {
        let name = self.open.remove(&stream)?;
        let named = self.streams.get_mut(&name).expect("an open stream is known");
        named.open = false;
        let end = named.next_position - named.last_piece().start_position;
        self.pending_changes.push_back(InnerStreamChange::Closed { stream, end });
        self.unsaved_rows.insert((name.clone(), rows::RowKind::Pieces));
        Some(name)
    }

    fn trim(&mut self, name: Name, before: u64) -> Reply {
        let named = self.streams.get_mut(&name).ok_or(Denied::Unknown)?;
        if before > named.next_position {
            return Err(Denied::PastEnd { end: named.next_position });
        }
        Ok(self.trim_to(&name, before))
    }

    fn retain(&mut self, name: &Name, keep: Retention) -> Reply {
        let named = self.streams.get_mut(name).ok_or(Denied::Unknown)?;
        named.retention = keep;
        if keep.age_ms.is_none() {
            named.age_marks.clear();
        }
        self.unsaved_rows.insert((name.clone(), rows::RowKind::Pieces));
        Ok(StreamOutcome::Retained)
    }

    /// [trim-2] Drops bytes that are too old: all bytes below the last mark that is old enough. A
    /// byte may be retained longer than its stream's bound, by up to the interval between two
    /// marks, but never shorter.
    fn age(&mut self, now_ms: u64) -> StreamOutcome {
        let mut old = Vec::new();
        for (name, named) in &mut self.streams {
            let Some(age_ms) = named.retention.age_ms else {
                continue;
            };
            let mut start = named.start;
            let is_old = |(at, _): &mut (u64, u64)| at.saturating_add(age_ms) <= now_ms;
            while let Some((_, below)) = named.age_marks.pop_front_if(is_old) {
                start = start.max(below);
            }
            let last = named.age_marks.back();
            let news = last.is_none_or(|(_, below)| *below < named.next_position);
            // A clock that went back gives no information.
            let later = last.is_none_or(|(at, _)| *at < now_ms);
            if news && later && named.next_position > start && named.age_marks.len() < AGE_MARKS_MAX
            {
                named.age_marks.push_back((now_ms, named.next_position));
            }
            self.unsaved_rows.insert((name.clone(), rows::RowKind::Pieces));
            if start > named.start {
                old.push((name.clone(), start));
            }
        }
        for (name, start) in old {
            self.trim_to(&name, start);
        }
        StreamOutcome::Aged
    }

    /// Returns the streams that exceed their size bound by at least `worth` bytes, each with the
    /// position below which to trim it.
    pub fn streams_over_size(&self, worth: u64) -> impl Iterator<Item = (&Name, u64)> + '_ {
        self.streams.iter().filter_map(move |(name, named)| {
            let before = named.next_position.saturating_sub(named.retention.bytes?);
            (before >= named.start.saturating_add(worth)).then_some((name, before))
        })
    }

    /// Returns the shortest age bound of all streams, in milliseconds.
    pub fn min_age_bound_ms(&self) -> Option<u64> {
        let ages = self.streams.values().filter_map(|named| named.retention.age_ms);
        ages.min()
    }

    fn trim_to(&mut self, name: &Name, before: u64) -> StreamOutcome {
        let named = self.streams.get_mut(name).expect("the caller looked it up");
        named.start = named.start.max(before);
        let start = named.start;
        // A piece ends where the next one starts.
        let gone = named.pieces.windows(2).take_while(|pair| pair[1].start_position <= start);
        let gone = gone.count();
        for piece in named.pieces.drain(..gone) {
            self.inner_streams.remove(&piece.stream);
            let stream = piece.stream;
            self.pending_changes.push_back(InnerStreamChange::Removed { stream });
        }
        let Piece { stream, start_position: first } = named.pieces[0];
        if start > first {
            let below = start - first;
            self.pending_changes.push_back(InnerStreamChange::Trimmed { stream, below });
        }
        self.unsaved_rows.insert((name.clone(), rows::RowKind::Pieces));
        StreamOutcome::Trimmed { start }
    }

    fn remove(&mut self, name: &Name) -> Reply {
        let named = self.streams.get(name).ok_or(Denied::Unknown)?;
        self.end_piece(named.last_piece().stream);
        let named = self.streams.remove(name).expect("looked up above");
        for Piece { stream, .. } in named.pieces {
            self.inner_streams.remove(&stream);
            self.pending_changes.push_back(InnerStreamChange::Removed { stream });
        }
        for part in rows::RowKind::ALL {
            self.unsaved_rows.insert((name.clone(), part));
        }
        Ok(StreamOutcome::Removed)
    }

    pub fn info(&self, name: &Name) -> Option<StreamInfo> {
        self.streams.get(name).map(|named| info(name, named))
    }

    /// Returns descriptions of the streams whose names follow `after`, in order of name.
    pub fn infos(&self, after: Option<&Name>) -> impl Iterator<Item = StreamInfo> + '_ {
        use std::ops::Bound;
        let from = after.map_or(Bound::Unbounded, |name| Bound::Excluded(name.clone()));
        let behind = self.streams.range((from, Bound::Unbounded));
        behind.map(|(name, named)| info(name, named))
    }

    pub fn len(&self) -> usize {
        self.streams.len()
    }

    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Returns the location of a stream's bytes from `position` on, up to the end of their piece.
    pub fn locate(&self, name: &Name, position: u64) -> Result<InnerPosition, LocateError> {
        let named = self.streams.get(name).ok_or(LocateError::Unknown)?;
        if position < named.start {
            return Err(LocateError::Trimmed { start: named.start });
        }
        if position >= named.next_position {
            let (end, finished) = (named.next_position, named.finished);
            return Err(LocateError::PastEnd { end, finished });
        }
        let at = named.pieces.partition_point(|piece| piece.start_position <= position) - 1;
        let Piece { stream, start_position: first } = named.pieces[at];
        Ok(InnerPosition {
            stream,
            position: position - first,
            bytes: named.retained_range(at).end - (position - first),
        })
    }

    pub fn has_changes(&self) -> bool {
        !self.pending_changes.is_empty()
    }

    /// Removes and returns the next change of an inner stream, in order.
    pub fn next_change(&mut self) -> Option<InnerStreamChange> {
        self.pending_changes.pop_front()
    }
}

/// Returns the inner stream positions of a range of content.
fn content_positions(offset: u64, range: SlotRange) -> Range<u64> {
    let at = |slot: Slot| slot.0.saturating_sub(offset);
    at(range.from)..at(range.to)
}

/// Returns which positions of a range are appended to an open stream whose next position is `next`
/// ([stream-1], [stream-4]).
fn appended_positions(offset: u64, range: SlotRange, next: u64) -> Range<u64> {
    let positions = content_positions(offset, range);
    // Slots below the offset have no position, so a range that includes such slots belongs to no
    // stream.
    let sound = offset <= range.from.0;
    match sound && positions.contains(&next) {
        true => next..positions.end,
        false => next..next,
    }
}

fn info(name: &Name, named: &Stream) -> StreamInfo {
    StreamInfo {
        name: name.clone(),
        id: named.id,
        finished: named.finished,
        open_stream: named.open.then(|| named.last_piece().stream),
        start: named.start,
        end: named.next_position,
        pieces: named.pieces.len(),
        created_ms: named.created_ms,
        retention: named.retention,
    }
}

#[cfg(test)]
mod tests;
