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
    front::{Note, Question},
    workload::content,
};

/// Part of a named stream that has a single owner.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Number of the stream that contains the piece.
    id: usize,
    /// Position of the piece's first byte in the named stream.
    first: u64,
    /// Highest end of the piece in any table, as a position in the named stream.
    end: u64,
    /// Lowest log position of a table that contains the piece, which was therefore opened before
    /// it.
    seen_at: Slot,
    /// Final end of the piece, once a table shows the piece as closed.
    closed: Option<u64>,
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
pub struct Streams {
    /// Stream numbers by name and creation slot.
    ids: BTreeMap<(Name, u64), usize>,
    /// Pieces that have bytes, by stream number and first position.
    streams: BTreeMap<usize, BTreeMap<u64, StreamName>>,
    pieces: BTreeMap<StreamName, Piece>,
    written: BTreeMap<StreamName, WrittenPiece>,
    acknowledged: BTreeMap<usize, u64>,
    /// Tables by position in the log. All nodes must have the same table at a position.
    tables: BTreeMap<Slot, Vec<StreamInfo>>,
    /// Streams whose removal was requested, so that they may be missing.
    removing: BTreeSet<Name>,
    /// Pending queries, each with the acknowledged position of every stream at the time of the
    /// query.
    questions: BTreeMap<StreamTag, (Question, BTreeMap<usize, u64>)>,
    /// Number of bytes read and verified.
    pub read_bytes: u64,
    pub opened: u64,
}

fn broken(node: usize, detail: impl std::fmt::Display) -> Violation {
    Violation::new("streams", format!("node {}: {detail}", node + 1))
}

/// Returns a key that is unique even among streams of the same name.
fn key(info: &StreamInfo) -> (Name, u64) {
    (info.name.clone(), info.id)
}

impl Streams {
    /// Checks the table of a node that has applied all slots below `at` against earlier
    /// observations.
    pub fn applied(&mut self, node: usize, at: Slot, table: &Table) -> Verdict {
        let infos: Vec<StreamInfo> = table.infos(None).collect();
        for info in &infos {
            let next = self.ids.len();
            self.ids.entry(key(info)).or_insert(next);
            self.check_info(node, at, table, info)?;
        }
        match self.tables.get(&at) {
            Some(known) if *known != infos => {
                let detail = format!("other streams at slot {at}: {infos:?}, not {known:?}");
                return Err(broken(node, detail));
            }
            Some(_) => {}
            None => drop(self.tables.insert(at, infos)),
        }
        Ok(())
    }

    fn check_info(&mut self, node: usize, at: Slot, table: &Table, info: &StreamInfo) -> Verdict {
        let id = self.ids[&key(info)];
        let mut position = info.start;
        let mut ends: BTreeMap<StreamName, u64> = BTreeMap::new();
        while position < info.end {
            let Ok(located) = table.locate(&info.name, position) else {
                let detail = format!("{} has no byte {position} of {info:?}", info.name);
                return Err(broken(node, detail));
            };
            let (piece, to) = (located.stream, position + located.bytes);
            if located.bytes == 0 || to > info.end || located.position > position {
                let detail = format!("{located:?} at {position} of {info:?}");
                return Err(broken(node, detail));
            }
            let first = position - located.position;
            self.has(node, at, info, piece, first, to)?;
            ends.insert(piece, to);
            position = to;
        }
        if let Some(piece) = info.writing
            && let Some(next) = table.next_position(piece)
        {
            self.has(node, at, info, piece, info.end - next, info.end)?;
        }
        // [stream-6] A piece that was seen closed never becomes open again.
        for (name, piece) in &mut self.pieces {
            if piece.id != id || piece.seen_at > at || info.writing == Some(*name) {
                continue;
            }
            let empty = (piece.first >= info.start).then_some(piece.first);
            let Some(end) = ends.get(name).copied().or(empty) else {
                continue;
            };
            let closed = *piece.closed.get_or_insert(end);
            if closed != end || piece.end > closed {
                let detail = format!(
                    "{name:?} of {} ended at {closed}, and now at {}",
                    info.name,
                    end.max(piece.end)
                );
                return Err(broken(node, detail));
            }
        }
        Ok(())
    }

    /// Records that a table contains a piece up to a position. Fails if the piece has moved, grew
    /// after its close, contains bytes that were never written, or overlaps another piece.
    fn has(
        &mut self,
        node: usize,
        at: Slot,
        info: &StreamInfo,
        name: StreamName,
        first: u64,
        to: u64,
    ) -> Verdict {
        let id = self.ids[&key(info)];
        let known = self.pieces.entry(name).or_insert(Piece {
            id,
            first,
            end: first,
            seen_at: at,
            closed: None,
        });
        known.seen_at = known.seen_at.min(at);
        known.end = known.end.max(to);
        let piece = *known;
        let violation = |what: &str| {
            let detail = format!(
                "{what}: {name:?} of {} from {first} to {to}; {piece:?}, {:?}",
                info.name, info
            );
            Err(broken(node, detail))
        };
        if (piece.id, piece.first) != (id, first) {
            return violation("a piece is elsewhere");
        }
        if piece.closed.is_some_and(|closed| to > closed) {
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
            let overlaps = before.is_some_and(|(_, before)| self.pieces[before].end > first);
            if here != name || overlaps || behind.is_some_and(|(behind, _)| *behind < to) {
                return violation("pieces overlap");
            }
        }
        Ok(())
    }

    /// Checks a front's note against earlier observations.
    pub fn check_note(&mut self, node: usize, table: &Table, note: &Note) -> Verdict {
        match note {
            Note::Keyed(piece, key) => {
                self.opened += 1;
                let written = WrittenPiece { key: *key, ..WrittenPiece::default() };
                if self.written.insert(*piece, written).is_some() {
                    return Err(broken(node, format!("{piece:?} was opened twice")));
                }
                Ok(())
            }
            Note::Given(piece, to) => {
                if let Some(written) = self.written.get_mut(piece) {
                    written.passed_to = *to;
                }
                Ok(())
            }
            Note::Asked(tag, question) => {
                let acknowledged = match question {
                    Question::Look => self.acknowledged.clone(),
                    Question::Read(..) | Question::Wait(..) => BTreeMap::new(),
                };
                self.questions.insert(*tag, (question.clone(), acknowledged));
                Ok(())
            }
            Note::Removing(name) => {
                self.removing.insert(name.clone());
                Ok(())
            }
            Note::Heard(_, piece, heard) => self.check_event(node, table, *piece, heard),
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
                self.durable(node, table, *piece, *position)
            }
            (DeliveredEvent::Ended(piece, position), _) => {
                let written = self.written.entry(*piece).or_default();
                written.has_ended = true;
                let closed = self.pieces.get(piece).and_then(|piece| piece.closed);
                if *position < written.reported_to
                    || closed.is_some_and(|closed| *position > closed)
                {
                    let detail =
                        format!("{piece:?} is said to end at {position}; {written:?}, {closed:?}");
                    return Err(broken(node, detail));
                }
                Ok(())
            }
            (DeliveredEvent::Done(_, StreamOutcome::Opened { stream, at }), _) => {
                let known = self.pieces.get(stream);
                if known.is_some_and(|piece| piece.first != *at) {
                    let detail = format!("{stream:?} was opened at {at}; {known:?}");
                    return Err(broken(node, detail));
                }
                Ok(())
            }
            (DeliveredEvent::Done(_, StreamOutcome::Closed { at }), Some(name)) => {
                let Some(piece) = self.pieces.get_mut(&name) else {
                    return Ok(());
                };
                let closed = *piece.closed.get_or_insert(*at);
                if closed != *at || piece.end > *at {
                    let detail = format!("{name:?} is said to end at {at}; {piece:?}");
                    return Err(broken(node, detail));
                }
                self.durable(node, table, name, *at)
            }
            (DeliveredEvent::Bytes(tag, bytes), _) => self.read(node, *tag, bytes),
            (DeliveredEvent::Looked(tag), _) => self.looked(node, table, *tag),
            _ => Ok(()),
        }
    }

    /// [stream-7] Checks a report to a writer that all bytes of the named stream below `position`
    /// are decided.
    fn durable(&mut self, node: usize, table: &Table, name: StreamName, position: u64) -> Verdict {
        let written = self.written.entry(name).or_default();
        let piece = self.pieces.get(&name);
        // A piece that is removed or trimmed immediately never appears in a table.
        let ids = &self.ids;
        let shown = piece.and_then(|piece| {
            let mut infos = table.infos(None);
            infos.find(|info| ids.get(&key(info)) == Some(&piece.id))
        });
        let shown = shown.is_some_and(|info| info.start < position);
        let wrong = piece.is_some_and(|piece| {
            let given = piece.first + written.passed_to;
            position < piece.first || position > given || shown && position > piece.end
        });
        if position < written.reported_to || written.has_ended || wrong {
            let detail =
                format!("{name:?} is said to be durable below {position}; {written:?}, {piece:?}");
            return Err(broken(node, detail));
        }
        written.reported_to = position;
        if let Some(piece) = piece {
            let acknowledged = self.acknowledged.entry(piece.id).or_default();
            *acknowledged = position.max(*acknowledged);
        }
        Ok(())
    }

    /// Checks that the bytes read from a stream are the bytes that writers wrote there.
    fn read(&mut self, node: usize, tag: StreamTag, bytes: &[u8]) -> Verdict {
        let Some((Question::Read(id, position), _)) = self.questions.remove(&tag) else {
            return Err(broken(node, format!("{tag:?} is answered twice")));
        };
        let to = position + bytes.len() as u64;
        let mut rest = bytes;
        let number = id.as_ref().and_then(|id| self.ids.get(id));
        let pieces = number.and_then(|number| self.streams.get(number));
        while !rest.is_empty() {
            let from = to - rest.len() as u64;
            let here = pieces.and_then(|pieces| pieces.range(..=from).next_back());
            let here = here.map(|(_, name)| (*name, self.pieces[name]));
            let Some((name, piece)) = here.filter(|(_, piece)| from < piece.end) else {
                let detail = format!("bytes {from}..{to} of stream {id:?}, which no node has");
                return Err(broken(node, detail));
            };
            let end = to.min(piece.end);
            let key = self.written.get(&name).map_or(0, |written| written.key);
            let right = content::bytes(key, name, from - piece.first..end - piece.first);
            let (part, behind) = rest.split_at(right.len());
            if let Some(at) = (0..part.len()).find(|at| part[*at] != right[*at]) {
                let wrong = from + at as u64;
                let detail = format!(
                    "byte {wrong} of stream {id:?}, read from {position} to {to}, is another one; {name:?}, {piece:?}"
                );
                return Err(broken(node, detail));
            }
            rest = behind;
        }
        self.read_bytes += bytes.len() as u64;
        Ok(())
    }

    /// [read-1] Checks that the table includes all bytes acknowledged before the query, or the data
    /// for which the client waited.
    fn looked(&mut self, node: usize, table: &Table, tag: StreamTag) -> Verdict {
        let Some((question, acknowledged)) = self.questions.remove(&tag) else {
            return Err(broken(node, format!("{tag:?} is answered twice")));
        };
        for info in table.infos(None) {
            let missing = match &question {
                Question::Look => {
                    let known = self.ids.get(&key(&info));
                    let acknowledged = known.and_then(|id| acknowledged.get(id));
                    acknowledged.is_some_and(|to| info.end < *to)
                }
                Question::Wait(Some(id), at) => {
                    key(&info) == *id && info.end <= *at && !info.finished
                }
                Question::Wait(None, _) | Question::Read(..) => false,
            };
            if missing {
                let detail = format!("{question:?} and {acknowledged:?} find {info:?}");
                return Err(broken(node, detail));
            }
        }
        Ok(())
    }

    /// Checks at the end of the run that a node has all acknowledged bytes.
    pub fn ends(&self, node: usize, table: &Table) -> Verdict {
        for (key, id) in &self.ids {
            let acknowledged = self.acknowledged.get(id).copied().unwrap_or(0);
            let info = table.info(&key.0).filter(|info| info.id == key.1);
            let gone = info.is_none() && self.removing.contains(&key.0);
            if !gone && info.as_ref().is_none_or(|info| info.end < acknowledged) {
                let detail = format!("{acknowledged} of {key:?} was acknowledged, and is {info:?}");
                return Err(broken(node, detail));
            }
        }
        Ok(())
    }

    /// Returns the number of acknowledged bytes in all streams.
    pub fn acknowledged_bytes(&self) -> u64 {
        self.acknowledged.values().sum()
    }
}
