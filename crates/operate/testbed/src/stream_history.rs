//! History recorded by the clients of one byte stream, and a checker for it.
//!
//! Writers write the bytes of [`crate::stream_bytes`], so that read bytes reveal their writer and
//! position. Clients note an action that may take effect (a write, or a request of a reader)
//! *before* they perform it, and a notification *after* they receive it. A sequence of notes that
//! violates a rule is therefore impossible on a correct cluster.

use std::{collections::BTreeMap, fmt};

use crate::stream_bytes::{ORIGIN_BYTES, byte_origin, bytes, first_difference};

/// Action or observation of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A writer opened the stream and may write starting at `position`.
    Opened { writer: u16, position: u64 },
    /// A writer is about to write `count` more bytes.
    AboutToWrite { writer: u16, count: u64 },
    /// A writer was notified that all bytes below `position` are durable.
    Durable { writer: u16, position: u64 },
    /// A writer was notified that the stream ends at `position`, permanently if `finished`.
    Closed { writer: u16, position: u64, finished: bool },
    /// A reader, which sends only one request, is about to request bytes from `position` on.
    AboutToRead { reader: u32, position: u64 },
    /// A reader received bytes, starting at `position`.
    Read { reader: u32, position: u64, parts: Vec<ReadPart> },
    /// A reader was notified that the stream ends at `position`, permanently if `finished`.
    ReachedEnd { reader: u32, position: u64, finished: bool },
}

/// A sequence of read bytes with a common origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadPart {
    /// Consecutive bytes of one writer, starting at `position`.
    FromWriter { writer: u16, position: u64, count: u64 },
    /// Bytes that no writer wrote, or too few bytes to recognise their origin.
    UnknownOrigin(Vec<u8>),
}

impl ReadPart {
    fn byte_count(&self) -> u64 {
        match self {
            Self::FromWriter { count, .. } => *count,
            Self::UnknownOrigin(bytes) => bytes.len() as u64,
        }
    }

    /// Splits read bytes into parts by origin. The expected origin `like` is tried first.
    pub fn split_by_origin(like: (u16, u64), bytes: &[u8]) -> Vec<Self> {
        let (mut parts, mut like, mut rest): (Vec<Self>, _, _) = (Vec::new(), like, bytes);
        while !rest.is_empty() {
            let same = first_difference(like.0, like.1, rest).unwrap_or(rest.len());
            if same > 0 {
                parts.push(Self::FromWriter {
                    writer: like.0,
                    position: like.1,
                    count: same as u64,
                });
                like.1 += same as u64;
                rest = &rest[same..];
                continue;
            }
            let found = byte_origin(&rest[..rest.len().min(ORIGIN_BYTES)]);
            if let Some(found) = found {
                like = found;
                continue;
            }
            match parts.last_mut() {
                Some(Self::UnknownOrigin(raw)) => raw.push(rest[0]),
                _ => parts.push(Self::UnknownOrigin(vec![rest[0]])),
            }
            like.1 += 1;
            rest = &rest[1..];
        }
        parts
    }
}

/// Kind of a violated rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViolationKind {
    /// Bytes are missing that were acknowledged, or that precede existing bytes.
    Lost,
    /// Some bytes occur twice.
    Repeated,
    /// Later bytes precede earlier ones.
    Reordered,
    /// Some bytes are at a wrong position.
    Offset,
    /// A reported position is lower than an earlier one.
    Backwards,
    /// A writer has bytes, or acknowledgements, above the position of another's takeover.
    AfterFence,
    /// Two writers received acknowledgements for the same position.
    TwoWriters,
    /// Bytes were read or acknowledged before they were written.
    Unwritten,
    /// Bytes follow the permanent end of the stream, or the end has moved.
    AfterEnd,
}

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub kind: ViolationKind,
    /// Description of the violation, with positions.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.text)
    }
}

/// Checks the history of one stream. Returns all violations.
pub fn check_history(notes: &[Note]) -> Vec<Violation> {
    let mut judge = HistoryChecker::default();
    notes.iter().for_each(|note| judge.apply_note(note));
    judge.check_two_writers();
    judge.check_contents();
    judge.violations
}

#[derive(Debug)]
struct WriterState {
    opened_at: u64,
    /// Position after the bytes that the writer may have written.
    written_position: u64,
    durable_position: u64,
    /// Position at which another writer took over.
    fenced_at: Option<u64>,
}

#[derive(Debug)]
struct ReaderState {
    next_position: u64,
    /// Position up to which bytes were acknowledged when the reader sent its request.
    acknowledged_at_start: u64,
    received_parts: Vec<(u64, ReadPart)>,
}

#[derive(Debug, Default)]
struct HistoryChecker {
    writers: BTreeMap<u16, WriterState>,
    /// Numbers of the writers, in the order in which they opened the stream.
    opening_order: Vec<u16>,
    readers: BTreeMap<u32, ReaderState>,
    /// Highest position that was acknowledged to any writer.
    acknowledged_position: u64,
    finished_at: Option<u64>,
    violations: Vec<Violation>,
}

impl HistoryChecker {
    fn add_violation(&mut self, wrong: ViolationKind, text: String) {
        self.violations.push(Violation { kind: wrong, text });
    }

    fn apply_note(&mut self, note: &Note) {
        match note {
            Note::Opened { writer, position } => self.on_opened(*writer, *position),
            Note::AboutToWrite { writer, count } => {
                if let Some(writer) = self.writers.get_mut(writer) {
                    writer.written_position += count;
                }
            }
            Note::Durable { writer, position } => self.on_durable(*writer, *position),
            Note::Closed { writer, position, finished } => {
                self.on_closed(*writer, *position, *finished)
            }
            Note::AboutToRead { reader, position } => {
                let reading = ReaderState {
                    next_position: *position,
                    acknowledged_at_start: self.acknowledged_position,
                    received_parts: Vec::new(),
                };
                self.readers.insert(*reader, reading);
            }
            Note::Read { reader, position, parts } => self.on_read(*reader, *position, parts),
            Note::ReachedEnd { reader, position, finished } => {
                self.on_end(*reader, *position, *finished)
            }
        }
    }

    fn on_opened(&mut self, writer: u16, position: u64) {
        let acknowledged = self.acknowledged_position;
        if position < acknowledged {
            let text = format!(
                "all below {acknowledged} was acknowledged; writer {writer} begins at {position}"
            );
            self.add_violation(ViolationKind::Lost, text);
        }
        if let Some(end) = self.finished_at {
            let text = format!("writer {writer} begins at {position}, behind the end, {end}");
            self.add_violation(ViolationKind::AfterEnd, text);
        }
        if let Some(before) = self.opening_order.last() {
            let former = self.writers.get_mut(before);
            let written = former.map_or(0, |former| {
                former.fenced_at = Some(position);
                former.written_position
            });
            if position > written {
                let text = format!("writer {writer} begins at {position}; {written} were written");
                self.add_violation(ViolationKind::Unwritten, text);
            }
        }
        self.opening_order.push(writer);
        let new = WriterState {
            opened_at: position,
            written_position: position,
            durable_position: position,
            fenced_at: None,
        };
        self.writers.insert(writer, new);
        self.acknowledged_position = acknowledged.max(position);
    }

    fn on_durable(&mut self, number: u16, position: u64) {
        let Some(writer) = self.writers.get_mut(&number) else {
            let text = format!("writer {number} did not open, and is at {position}");
            return self.add_violation(ViolationKind::Unwritten, text);
        };
        let (before, written, fence) =
            (writer.durable_position, writer.written_position, writer.fenced_at);
        writer.durable_position = before.max(position);
        self.acknowledged_position = self.acknowledged_position.max(position);
        if position < before {
            let text = format!("writer {number} was told {position} behind {before}");
            self.add_violation(ViolationKind::Backwards, text);
        }
        if position > written {
            let text = format!("writer {number} was told {position}; it wrote up to {written}");
            self.add_violation(ViolationKind::Unwritten, text);
        }
        if let Some(fence) = fence.filter(|fence| position > *fence) {
            let text = format!("writer {number} was told {position}; another began at {fence}");
            self.add_violation(ViolationKind::AfterFence, text);
        }
    }

    fn on_closed(&mut self, number: u16, position: u64, finished: bool) {
        self.on_durable(number, position);
        let written = self.writers.get(&number).map_or(0, |one| one.written_position);
        if position < written {
            let text = format!("writer {number} wrote up to {written}; closed at {position}");
            self.add_violation(ViolationKind::Lost, text);
        }
        if finished {
            self.finished_at = Some(position);
        }
    }

    fn on_read(&mut self, number: u32, position: u64, parts: &[ReadPart]) {
        let Some(reading) = self.readers.get_mut(&number) else {
            let text = format!("reader {number} got bytes at {position}, unasked");
            return self.add_violation(ViolationKind::Offset, text);
        };
        let due = reading.next_position;
        let mut at = position;
        for part in parts {
            reading.received_parts.push((at, part.clone()));
            at += part.byte_count();
        }
        reading.next_position = at;
        if position != due {
            let wrong = match position < due {
                true => ViolationKind::Backwards,
                false => ViolationKind::Offset,
            };
            let text = format!("reader {number} got {position} where {due} was due");
            self.add_violation(wrong, text);
        }
        let written = self.written_position();
        if at > written {
            let text = format!("reader {number} read up to {at}; {written} were written");
            self.add_violation(ViolationKind::Unwritten, text);
        }
    }

    fn on_end(&mut self, number: u32, position: u64, finished: bool) {
        let Some(reading) = self.readers.get(&number) else {
            return;
        };
        let (due, acknowledged) = (reading.next_position, reading.acknowledged_at_start);
        if position != due {
            let text = format!("reader {number} ends at {position}; it has read up to {due}");
            self.add_violation(ViolationKind::Offset, text);
        }
        if position < acknowledged {
            let text = format!(
                "reader {number} ends at {position}; {acknowledged} were acknowledged before"
            );
            self.add_violation(ViolationKind::Lost, text);
        }
        if let Some(end) = self.finished_at.filter(|end| *end != position && finished) {
            let text = format!("reader {number} ends at {position}; the stream at {end}");
            self.add_violation(ViolationKind::AfterEnd, text);
        }
    }

    /// Returns the end of the bytes that any writer may have written, including unacknowledged
    /// ones.
    fn written_position(&self) -> u64 {
        self.writers.values().map(|one| one.written_position).max().unwrap_or(0)
    }

    fn check_two_writers(&mut self) {
        let acknowledged: Vec<(u16, u64, u64)> = self
            .writers
            .iter()
            .map(|(number, one)| (*number, one.opened_at, one.durable_position))
            .collect();
        for (at, one) in acknowledged.iter().enumerate() {
            for other in &acknowledged[at + 1..] {
                let (from, to) = (one.1.max(other.1), one.2.min(other.2));
                if from < to {
                    let text = format!("{} and {}: positions {from} to {to}", one.0, other.0);
                    self.add_violation(ViolationKind::TwoWriters, text);
                }
            }
        }
    }

    /// Returns the writer of the byte at a position, and the end of that writer's bytes.
    fn owner_at(&self, position: u64) -> Option<(u16, u64)> {
        // If two writers begin at the same position, the earlier one wrote nothing.
        let number = self
            .opening_order
            .iter()
            .rev()
            .find(|number| self.writers[number].opened_at <= position)?;
        let writer = &self.writers[number];
        let end = writer.fenced_at.unwrap_or(u64::MAX).min(writer.written_position);
        (position < end).then_some((*number, end))
    }

    /// Finds the first wrong byte of each reader.
    fn check_contents(&mut self) {
        for (number, reading) in &self.readers {
            let other = reading
                .received_parts
                .iter()
                .find_map(|(at, part)| self.first_difference(*at, part, &reading.received_parts));
            if let Some((wrong, text)) = other {
                let text = format!("reader {number}: {text}");
                self.violations.push(Violation { kind: wrong, text });
            }
        }
    }

    fn first_difference(
        &self,
        at: u64,
        part: &ReadPart,
        all: &[(u64, ReadPart)],
    ) -> Option<(ViolationKind, String)> {
        let end = at + part.byte_count();
        let mut at = at;
        let mut from = 0;
        while at < end {
            let Some((owner, until)) = self.owner_at(at) else {
                return Some((ViolationKind::Unwritten, format!("{at} was written by no writer")));
            };
            let count = end.min(until) - at;
            match part {
                ReadPart::FromWriter { writer, position, .. } => {
                    let position = position + from;
                    if (*writer, position) != (owner, at)
                        && let Some(within) =
                            first_foreign_offset(*writer, position, owner, at, count)
                    {
                        let (at, position) = (at + within, position + within);
                        let text =
                            format!("{at} has byte {position} of writer {writer}, not of {owner}");
                        return Some((self.kind(at, owner, *writer, position, all), text));
                    }
                }
                ReadPart::UnknownOrigin(raw) => {
                    let first = usize::try_from(from).unwrap_or(0);
                    let raw = &raw[first..first + usize::try_from(count).unwrap_or(0)];
                    if let Some(within) = first_difference(owner, at, raw) {
                        let text = format!("{} has a byte of no writer", at + within as u64);
                        return Some((ViolationKind::Unwritten, text));
                    }
                }
            }
            at += count;
            from += count;
        }
        None
    }

    fn kind(
        &self,
        at: u64,
        owner: u16,
        writer: u16,
        position: u64,
        all: &[(u64, ReadPart)],
    ) -> ViolationKind {
        if writer != owner {
            let fence = self.writers.get(&writer).and_then(|one| one.fenced_at);
            return match fence {
                Some(fence) if at >= fence && position == at => ViolationKind::AfterFence,
                _ => ViolationKind::Offset,
            };
        }
        if position < at {
            return ViolationKind::Repeated;
        }
        let skipped = at..position;
        let comes_later = all.iter().any(|(there, part)| match part {
            ReadPart::FromWriter { writer, position, count } => {
                let is_skipped = *position < skipped.end && skipped.start < position + count;
                *there > at && *writer == owner && is_skipped
            }
            ReadPart::UnknownOrigin(_) => false,
        });
        match comes_later {
            true => ViolationKind::Reordered,
            false => ViolationKind::Lost,
        }
    }
}

/// Returns the offset of the first difference of two ranges, some bytes of which may be equal.
fn first_foreign_offset(
    writer: u16,
    position: u64,
    owner: u16,
    at: u64,
    count: u64,
) -> Option<u64> {
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(ORIGIN_BYTES);
    let found = first_difference(owner, at, &bytes(writer, position, count));
    found.map(|within| within as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the history of two writers and a reader of the whole stream. The second writer takes
    /// over at position 1000, when the first one has written 1200 bytes.
    fn history(read: &[u8]) -> Vec<Note> {
        let mut notes = vec![
            opened(1, 0),
            sends(1, 1200),
            durable(1, 600),
            opened(2, 1000),
            sends(2, 500),
            durable(2, 1500),
            Note::Closed { writer: 2, position: 1500, finished: true },
        ];
        notes.extend(reading(0, read));
        notes
    }

    fn right() -> Vec<u8> {
        [bytes(1, 0, 1000), bytes(2, 1000, 500)].concat()
    }

    fn opened(writer: u16, position: u64) -> Note {
        Note::Opened { writer, position }
    }

    fn sends(writer: u16, count: u64) -> Note {
        Note::AboutToWrite { writer, count }
    }

    fn durable(writer: u16, position: u64) -> Note {
        Note::Durable { writer, position }
    }

    fn reading(reader: u32, read: &[u8]) -> Vec<Note> {
        let mut notes = vec![Note::AboutToRead { reader, position: 0 }];
        let mut position = 0;
        // Frames may end anywhere.
        for frame in read.chunks(333) {
            notes.push(Note::Read {
                reader,
                position,
                parts: ReadPart::split_by_origin((1, position), frame),
            });
            position += frame.len() as u64;
        }
        notes.push(Note::ReachedEnd { reader, position, finished: true });
        notes
    }

    fn kinds(notes: &[Note]) -> Vec<ViolationKind> {
        check_history(notes).iter().map(|found| found.kind).collect()
    }

    /// Returns the kinds of violations that the bytes of a reader cause.
    fn read_kinds(read: &[u8]) -> Vec<ViolationKind> {
        kinds(&history(read))
    }

    #[test]
    fn correct_history_has_no_violation() {
        assert_eq!(check_history(&history(&right())), []);
        // The split into frames does not matter.
        for first in 985..1015 {
            let all = right();
            let (one, two) = all.split_at(first);
            let mut notes = history(&[]);
            notes.truncate(7);
            notes.push(Note::AboutToRead { reader: 0, position: 0 });
            for (position, frame) in [(0, one), (first as u64, two)] {
                let parts = ReadPart::split_by_origin((1, position), frame);
                notes.push(Note::Read { reader: 0, position, parts });
            }
            assert_eq!(check_history(&notes), [], "{first}");
        }
    }

    #[test]
    fn lost_bytes_are_found() {
        let mut read = right();
        read.drain(300..310);
        let found = read_kinds(&read);
        assert!(found.contains(&ViolationKind::Lost), "{found:?}");
        assert!(!found.contains(&ViolationKind::Reordered), "{found:?}");
        // A read that ends too early.
        let found = read_kinds(&right()[..1400]);
        assert_eq!(found, [ViolationKind::Lost, ViolationKind::AfterEnd]);
        // The next writer begins too early.
        let notes = [opened(1, 0), sends(1, 9), durable(1, 9), opened(2, 8)];
        assert_eq!(kinds(&notes), [ViolationKind::Lost]);
        // A stream closed too early.
        let notes =
            [opened(1, 0), sends(1, 9), Note::Closed { writer: 1, position: 8, finished: true }];
        assert_eq!(kinds(&notes), [ViolationKind::Lost]);
    }

    #[test]
    fn repeated_bytes_are_found() {
        let mut read = right();
        let again = read[290..300].to_vec();
        read.splice(300..300, again);
        read.truncate(1500);
        assert_eq!(read_kinds(&read), [ViolationKind::Repeated]);
    }

    #[test]
    fn reordered_bytes_are_found() {
        let mut read = right();
        read[300..360].rotate_left(30);
        assert_eq!(read_kinds(&read), [ViolationKind::Reordered]);
    }

    #[test]
    fn bytes_in_a_wrong_place_are_found() {
        let mut read = right();
        read[1100..1200].copy_from_slice(&bytes(1, 100, 100));
        assert_eq!(read_kinds(&read), [ViolationKind::Offset]);
        let mut notes = history(&right());
        let Note::Read { position, .. } = &mut notes[9] else {
            panic!("{:?}", notes[9]);
        };
        *position += 1;
        assert!(kinds(&notes).contains(&ViolationKind::Offset));
    }

    #[test]
    fn unwritten_bytes_are_found() {
        let mut read = right();
        read[700] ^= 1;
        assert_eq!(read_kinds(&read), [ViolationKind::Unwritten]);
        // An acknowledgement past the bytes written.
        let notes = [opened(1, 0), sends(1, 9), durable(1, 10)];
        assert_eq!(kinds(&notes), [ViolationKind::Unwritten]);
    }

    #[test]
    fn positions_that_go_back_are_found() {
        let notes = [opened(1, 0), sends(1, 9), durable(1, 9), durable(1, 8)];
        assert_eq!(kinds(&notes), [ViolationKind::Backwards]);
        let mut notes = history(&right());
        let again = notes[9].clone();
        notes.insert(10, again);
        assert!(kinds(&notes).contains(&ViolationKind::Backwards));
    }

    #[test]
    fn acknowledgements_to_a_fenced_writer_are_found() {
        let mut notes = history(&right());
        notes.insert(4, durable(1, 1001));
        assert_eq!(kinds(&notes)[0], ViolationKind::AfterFence);
        // Bytes of the first writer where those of the second belong.
        let read = [bytes(1, 0, 1100), bytes(2, 1100, 400)].concat();
        assert_eq!(read_kinds(&read), [ViolationKind::AfterFence]);
    }

    #[test]
    fn two_writers_of_one_position_are_found() {
        let mut notes = history(&right());
        notes.insert(6, durable(1, 1200));
        let found = kinds(&notes);
        assert_eq!(found, [ViolationKind::AfterFence, ViolationKind::TwoWriters]);
    }

    #[test]
    fn bytes_after_the_end_are_found() {
        let mut notes = history(&right());
        notes.push(opened(3, 1500));
        assert_eq!(kinds(&notes), [ViolationKind::AfterEnd]);
    }
}
