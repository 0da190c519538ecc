//! [stream-4] to [stream-10] Streams contain what their writers wrote. On every node, a stream is a
//! sequence of prefixes of the opened pieces. The end of a closed piece never changes, and
//! acknowledged bytes are never lost.
//!
//! The checker sees every table after every turn, and all replies to fronts. It accumulates the
//! pieces that they show, which no later observation may contradict.

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::{slot::Slot, value::StreamName};
use quorate_replica::{stream_front::StreamTag, testing::DeliveredEvent};
use quorate_stream::{Name, StreamInfo, StreamOutcome, Table};

use super::{Verdict, Violation};
use crate::{
    front::{CheckerNote, StreamQuery},
    workload::content,
};

/// Part of a named stream that has a single owner.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Number of the stream that contains the piece.
    id: usize,
    /// Position of the piece's first byte in the named stream.
    first_position: u64,
    /// Highest end of the piece in any table, as a position in the named stream.
    end_position: u64,
    /// Lowest log position of a table that contains the piece, which was therefore opened before
    /// it.
    seen_at: Slot,
    /// Final end of the piece, once a table shows the piece as closed.
    closed_at: Option<u64>,
}

/// Bytes written to a piece, and their acknowledgements.
#[derive(Clone, Copy, Debug, Default)]
struct WrittenPiece {
    key: u64,
    /// End of the bytes that were passed to the replica.
    passed_to: u64,
    /// Durable position in the named stream, as last reported to the writer.
    reported_to: u64,
    has_ended: bool,
}

/// All streams of a run, with their pieces, tables and queries.
#[derive(Debug, Default)]
pub struct StreamHistory {
    /// Stream numbers by name and creation slot.
    stream_numbers: BTreeMap<(Name, u64), usize>,
    /// Pieces that have bytes, by stream number and first position.
    streams: BTreeMap<usize, BTreeMap<u64, StreamName>>,
    pieces: BTreeMap<StreamName, Piece>,
    written: BTreeMap<StreamName, WrittenPiece>,
    acknowledged_to: BTreeMap<usize, u64>,
    /// Tables by position in the log. All nodes must have the same table at a position.
    tables: BTreeMap<Slot, Vec<StreamInfo>>,
    /// Streams whose removal was requested, so that they may be missing.
    requested_removals: BTreeSet<Name>,
    /// Pending queries, each with the acknowledged position of every stream at the time of the
    /// query.
    pending_queries: BTreeMap<StreamTag, (StreamQuery, BTreeMap<usize, u64>)>,
    /// Number of bytes read and verified.
    pub read_bytes: u64,
    pub opened_count: u64,
}

fn stream_violation(node: usize, detail: impl std::fmt::Display) -> Violation {
    Violation::new("streams", format!("node {}: {detail}", node + 1))
}

/// Returns a key that is unique even among streams of the same name.
fn key(info: &StreamInfo) -> (Name, u64) {
    (info.name.clone(), info.id)
}

impl StreamHistory {
    /// Checks the table of a node that has applied all slots below `at` against earlier
    /// observations.
    pub fn check_table(&mut self, node: usize, at: Slot, table: &Table) -> Verdict {
        let infos: Vec<StreamInfo> = table.infos(None).collect();
        for info in &infos {
            let next = self.stream_numbers.len();
            self.stream_numbers.entry(key(info)).or_insert(next);
            self.check_info(node, at, table, info)?;
        }
        match self.tables.get(&at) {
            Some(known) if *known != infos => {
                let detail = format!("other streams at slot {at}: {infos:?}, not {known:?}");
                return Err(stream_violation(node, detail));
            }
            Some(_) => {}
            None => drop(self.tables.insert(at, infos)),
        }
        Ok(())
    }

    fn check_info(&mut self, node: usize, at: Slot, table: &Table, info: &StreamInfo) -> Verdict {
        let id = self.stream_numbers[&key(info)];
        let mut position = info.start;
        let mut ends: BTreeMap<StreamName, u64> = BTreeMap::new();
        while position < info.end {
            let Ok(located) = table.locate(&info.name, position) else {
                let detail = format!("{} has no byte {position} of {info:?}", info.name);
                return Err(stream_violation(node, detail));
            };
            let (piece, to) = (located.stream, position + located.bytes);
            if located.bytes == 0 || to > info.end || located.position > position {
                let detail = format!("{located:?} at {position} of {info:?}");
                return Err(stream_violation(node, detail));
            }
            let first = position - located.position;
            self.record_piece(node, at, info, piece, first, to)?;
            ends.insert(piece, to);
            position = to;
        }
        if let Some(piece) = info.open_stream
            && let Some(next) = table.next_position(piece)
        {
            self.record_piece(node, at, info, piece, info.end - next, info.end)?;
        }
        // [stream-6] A piece that was seen closed never becomes open again.
        for (name, piece) in &mut self.pieces {
            if piece.id != id || piece.seen_at > at || info.open_stream == Some(*name) {
                continue;
            }
            let empty = (piece.first_position >= info.start).then_some(piece.first_position);
            let Some(end) = ends.get(name).copied().or(empty) else {
                continue;
            };
            let closed = *piece.closed_at.get_or_insert(end);
            if closed != end || piece.end_position > closed {
                let detail = format!(
                    "{name:?} of {} ended at {closed}, and now at {}",
                    info.name,
                    end.max(piece.end_position)
                );
                return Err(stream_violation(node, detail));
            }
        }
        Ok(())
    }

    /// Records that a table contains a piece up to a position. Fails if the piece has moved, grew
    /// after its close, contains bytes that were never written, or overlaps another piece.
    fn record_piece(
        &mut self,
        node: usize,
        at: Slot,
        info: &StreamInfo,
        name: StreamName,
        first: u64,
        to: u64,
    ) -> Verdict {
        let id = self.stream_numbers[&key(info)];
        let known = self.pieces.entry(name).or_insert(Piece {
            id,
            first_position: first,
            end_position: first,
            seen_at: at,
            closed_at: None,
        });
        known.seen_at = known.seen_at.min(at);
        known.end_position = known.end_position.max(to);
        let piece = *known;
        let violation = |what: &str| {
            let detail = format!(
                "{what}: {name:?} of {} from {first} to {to}; {piece:?}, {:?}",
                info.name, info
            );
            Err(stream_violation(node, detail))
        };
        if (piece.id, piece.first_position) != (id, first) {
            return violation("a piece is elsewhere");
        }
        if piece.closed_at.is_some_and(|closed| to > closed) {
            return violation("a piece that was closed grew");
        }
        let given = self.written.get(&name).map_or(0, |written| written.passed_to);
        if to - first > given {
            return violation(&format!("only {given} bytes were given"));
        }
        if to > first {
            let pieces = self.streams.entry(id).or_default();
            let here = *pieces.entry(first).or_insert(name);
            let before = pieces.range(..first).next_back();
            let behind = pieces.range(first + 1..).next();
            let overlaps =
                before.is_some_and(|(_, before)| self.pieces[before].end_position > first);
            if here != name || overlaps || behind.is_some_and(|(behind, _)| *behind < to) {
                return violation("pieces overlap");
            }
        }
        Ok(())
    }

    /// Checks a front's note against earlier observations.
    pub fn check_note(&mut self, node: usize, table: &Table, note: &CheckerNote) -> Verdict {
        match note {
            CheckerNote::ContentKey(piece, key) => {
                self.opened_count += 1;
                let written = WrittenPiece { key: *key, ..WrittenPiece::default() };
                if self.written.insert(*piece, written).is_some() {
                    return Err(stream_violation(node, format!("{piece:?} was opened twice")));
                }
                Ok(())
            }
            CheckerNote::PassedTo(piece, to) => {
                if let Some(written) = self.written.get_mut(piece) {
                    written.passed_to = *to;
                }
                Ok(())
            }
            CheckerNote::Queried(tag, question) => {
                let acknowledged = match question {
                    StreamQuery::TableIsCurrent => self.acknowledged_to.clone(),
                    StreamQuery::Read(..) | StreamQuery::WaitForData(..) => BTreeMap::new(),
                };
                self.pending_queries.insert(*tag, (question.clone(), acknowledged));
                Ok(())
            }
            CheckerNote::RemovalRequested(name) => {
                self.requested_removals.insert(name.clone());
                Ok(())
            }
            CheckerNote::ReplySent(_, piece, heard) => self.check_event(node, table, *piece, heard),
        }
    }

    fn check_event(
        &mut self,
        node: usize,
        table: &Table,
        piece: Option<StreamName>,
        heard: &DeliveredEvent,
    ) -> Verdict {
        match (heard, piece) {
            (DeliveredEvent::Durable(piece, position), _) => {
                self.check_durable(node, table, *piece, *position)
            }
            (DeliveredEvent::Ended(piece, position), _) => {
                let written = self.written.entry(*piece).or_default();
                written.has_ended = true;
                let closed = self.pieces.get(piece).and_then(|piece| piece.closed_at);
                if *position < written.reported_to
                    || closed.is_some_and(|closed| *position > closed)
                {
                    let detail =
                        format!("{piece:?} is said to end at {position}; {written:?}, {closed:?}");
                    return Err(stream_violation(node, detail));
                }
                Ok(())
            }
            (
                DeliveredEvent::Executed(_, StreamOutcome::Opened { stream, start_position: at }),
                _,
            ) => {
                let known = self.pieces.get(stream);
                if known.is_some_and(|piece| piece.first_position != *at) {
                    let detail = format!("{stream:?} was opened at {at}; {known:?}");
                    return Err(stream_violation(node, detail));
                }
                Ok(())
            }
            (
                DeliveredEvent::Executed(_, StreamOutcome::Closed { end_position: at }),
                Some(name),
            ) => {
                let Some(piece) = self.pieces.get_mut(&name) else {
                    return Ok(());
                };
                let closed = *piece.closed_at.get_or_insert(*at);
                if closed != *at || piece.end_position > *at {
                    let detail = format!("{name:?} is said to end at {at}; {piece:?}");
                    return Err(stream_violation(node, detail));
                }
                self.check_durable(node, table, name, *at)
            }
            (DeliveredEvent::Bytes(tag, bytes), _) => self.check_read(node, *tag, bytes),
            (DeliveredEvent::UpToDate(tag), _) => self.check_looked(node, table, *tag),
            _ => Ok(()),
        }
    }

    /// [stream-7] Checks a report to a writer that all bytes of the named stream below `position`
    /// are decided.
    fn check_durable(
        &mut self,
        node: usize,
        table: &Table,
        name: StreamName,
        position: u64,
    ) -> Verdict {
        let written = self.written.entry(name).or_default();
        let piece = self.pieces.get(&name);
        // A piece that is removed or trimmed immediately never appears in a table.
        let ids = &self.stream_numbers;
        let shown = piece.and_then(|piece| {
            let mut infos = table.infos(None);
            infos.find(|info| ids.get(&key(info)) == Some(&piece.id))
        });
        let shown = shown.is_some_and(|info| info.start < position);
        let wrong = piece.is_some_and(|piece| {
            let given = piece.first_position + written.passed_to;
            position < piece.first_position
                || position > given
                || shown && position > piece.end_position
        });
        if position < written.reported_to || written.has_ended || wrong {
            let detail =
                format!("{name:?} is said to be durable below {position}; {written:?}, {piece:?}");
            return Err(stream_violation(node, detail));
        }
        written.reported_to = position;
        if let Some(piece) = piece {
            let acknowledged = self.acknowledged_to.entry(piece.id).or_default();
            *acknowledged = position.max(*acknowledged);
        }
        Ok(())
    }

    /// Checks that the bytes read from a stream are the bytes that writers wrote there.
    fn check_read(&mut self, node: usize, tag: StreamTag, bytes: &[u8]) -> Verdict {
        let Some((StreamQuery::Read(id, position), _)) = self.pending_queries.remove(&tag) else {
            return Err(stream_violation(node, format!("{tag:?} is answered twice")));
        };
        let to = position + bytes.len() as u64;
        let mut rest = bytes;
        let number = id.as_ref().and_then(|id| self.stream_numbers.get(id));
        let pieces = number.and_then(|number| self.streams.get(number));
        while !rest.is_empty() {
            let from = to - rest.len() as u64;
            let here = pieces.and_then(|pieces| pieces.range(..=from).next_back());
            let here = here.map(|(_, name)| (*name, self.pieces[name]));
            let Some((name, piece)) = here.filter(|(_, piece)| from < piece.end_position) else {
                let detail = format!("bytes {from}..{to} of stream {id:?}, which no node has");
                return Err(stream_violation(node, detail));
            };
            let end = to.min(piece.end_position);
            let key = self.written.get(&name).map_or(0, |written| written.key);
            let right =
                content::bytes(key, name, from - piece.first_position..end - piece.first_position);
            let (part, behind) = rest.split_at(right.len());
            if let Some(at) = (0..part.len()).find(|at| part[*at] != right[*at]) {
                let wrong = from + at as u64;
                let detail = format!(
                    "byte {wrong} of stream {id:?}, read from {position} to {to}, is another one; {name:?}, {piece:?}"
                );
                return Err(stream_violation(node, detail));
            }
            rest = behind;
        }
        self.read_bytes += bytes.len() as u64;
        Ok(())
    }

    /// [read-1] Checks that the table includes all bytes acknowledged before the query, or the data
    /// for which the client waited.
    fn check_looked(&mut self, node: usize, table: &Table, tag: StreamTag) -> Verdict {
        let Some((question, acknowledged)) = self.pending_queries.remove(&tag) else {
            return Err(stream_violation(node, format!("{tag:?} is answered twice")));
        };
        for info in table.infos(None) {
            let missing = match &question {
                StreamQuery::TableIsCurrent => {
                    let known = self.stream_numbers.get(&key(&info));
                    let acknowledged = known.and_then(|id| acknowledged.get(id));
                    acknowledged.is_some_and(|to| info.end < *to)
                }
                StreamQuery::WaitForData(Some(id), at) => {
                    key(&info) == *id && info.end <= *at && !info.finished
                }
                StreamQuery::WaitForData(None, _) | StreamQuery::Read(..) => false,
            };
            if missing {
                let detail = format!("{question:?} and {acknowledged:?} find {info:?}");
                return Err(stream_violation(node, detail));
            }
        }
        Ok(())
    }

    /// Checks at the end of the run that a node has all acknowledged bytes.
    pub fn check_end(&self, node: usize, table: &Table) -> Verdict {
        for (key, id) in &self.stream_numbers {
            let acknowledged = self.acknowledged_to.get(id).copied().unwrap_or(0);
            let info = table.info(&key.0).filter(|info| info.id == key.1);
            let gone = info.is_none() && self.requested_removals.contains(&key.0);
            if !gone && info.as_ref().is_none_or(|info| info.end < acknowledged) {
                let detail = format!("{acknowledged} of {key:?} was acknowledged, and is {info:?}");
                return Err(stream_violation(node, detail));
            }
        }
        Ok(())
    }

    /// Returns the number of acknowledged bytes in all streams.
    pub fn acknowledged_byte_count(&self) -> u64 {
        self.acknowledged_to.values().sum()
    }
}
