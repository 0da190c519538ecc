//! History recorded by the clients of one byte stream, and a checker for it.
//!
//! Writers write the bytes of [`crate::stream_bytes`], so that read bytes reveal their writer and
//! position. Clients note an action that may take effect (a write, or a request of a reader)
//! *before* they perform it, and a notification *after* they receive it. A sequence of notes that
//! violates a rule is therefore impossible on a correct cluster.

use std::{collections::BTreeMap, fmt};

use crate::stream_bytes::{TELLING, bytes, first_other, origin};

/// Action or observation of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A writer opened the stream and may write starting at `position`.
    Opened { writer: u16, position: u64 },
    /// A writer is about to write `count` more bytes.
    Sends { writer: u16, count: u64 },
    /// A writer was notified that all bytes below `position` are durable.
    Durable { writer: u16, position: u64 },
    /// A writer was notified that the stream ends at `position`, permanently if `finished`.
    Closed { writer: u16, position: u64, finished: bool },
    /// A reader, which sends only one request, is about to request bytes from `position` on.
    Asks { reader: u32, position: u64 },
    /// A reader received bytes, starting at `position`.
    Read { reader: u32, position: u64, parts: Vec<Part> },
    /// A reader was notified that the stream ends at `position`, permanently if `finished`.
    End { reader: u32, position: u64, finished: bool },
}

/// A sequence of read bytes with a common origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Consecutive bytes of one writer, starting at `position`.
    Of { writer: u16, position: u64, count: u64 },
    /// Bytes that no writer wrote, or too few bytes to recognise their origin.
    Raw(Vec<u8>),
}

impl Part {
    fn count(&self) -> u64 {
        match self {
            Self::Of { count, .. } => *count,
            Self::Raw(bytes) => bytes.len() as u64,
        }
    }

    /// Splits read bytes into parts by origin. The expected origin `like` is tried first.
    pub fn all(like: (u16, u64), bytes: &[u8]) -> Vec<Self> {
        let (mut parts, mut like, mut rest): (Vec<Self>, _, _) = (Vec::new(), like, bytes);
        while !rest.is_empty() {
            let same = first_other(like.0, like.1, rest).unwrap_or(rest.len());
            if same > 0 {
                parts.push(Self::Of { writer: like.0, position: like.1, count: same as u64 });
                like.1 += same as u64;
                rest = &rest[same..];
                continue;
            }
            let found = origin(&rest[..rest.len().min(TELLING)]);
            if let Some(found) = found {
                like = found;
                continue;
            }
            match parts.last_mut() {
                Some(Self::Raw(raw)) => raw.push(rest[0]),
                _ => parts.push(Self::Raw(vec![rest[0]])),
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
pub struct Finding {
    pub wrong: ViolationKind,
    /// Description of the violation, with positions.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.wrong, self.text)
    }
}

/// Checks the history of one stream. Returns all violations.
pub fn judge(notes: &[Note]) -> Vec<Finding> {
    let mut judge = Judge::default();
    notes.iter().for_each(|note| judge.hear(note));
    judge.two_writers();
    judge.contents();
    judge.findings
}

#[derive(Debug)]
struct Writer {
    opened: u64,
    /// Position after the bytes that the writer may have written.
    written: u64,
    durable: u64,
    /// Position at which another writer took over.
    fence: Option<u64>,
}

#[derive(Debug)]
struct Reading {
    due: u64,
    /// Position up to which bytes were acknowledged when the reader sent its request.
    acknowledged: u64,
    got: Vec<(u64, Part)>,
}

#[derive(Debug, Default)]
struct Judge {
    writers: BTreeMap<u16, Writer>,
    /// Numbers of the writers, in the order in which they opened the stream.
    order: Vec<u16>,
    readings: BTreeMap<u32, Reading>,
    /// Highest position that was acknowledged to any writer.
    acknowledged: u64,
    finished: Option<u64>,
    findings: Vec<Finding>,
}

impl Judge {
    fn find(&mut self, wrong: ViolationKind, text: String) {
        self.findings.push(Finding { wrong, text });
    }

    fn hear(&mut self, note: &Note) {
        match note {
            Note::Opened { writer, position } => self.opened(*writer, *position),
            Note::Sends { writer, count } => {
                if let Some(writer) = self.writers.get_mut(writer) {
                    writer.written += count;
                }
            }
            Note::Durable { writer, position } => self.durable(*writer, *position),
            Note::Closed { writer, position, finished } => {
                self.closed(*writer, *position, *finished)
            }
            Note::Asks { reader, position } => {
                let reading =
                    Reading { due: *position, acknowledged: self.acknowledged, got: Vec::new() };
                self.readings.insert(*reader, reading);
            }
            Note::Read { reader, position, parts } => self.read(*reader, *position, parts),
            Note::End { reader, position, finished } => self.end(*reader, *position, *finished),
        }
    }

    fn opened(&mut self, writer: u16, position: u64) {
        let acknowledged = self.acknowledged;
        if position < acknowledged {
            let text = format!(
                "all below {acknowledged} was acknowledged; writer {writer} begins at {position}"
            );
            self.find(ViolationKind::Lost, text);
        }
        if let Some(end) = self.finished {
            let text = format!("writer {writer} begins at {position}, behind the end, {end}");
            self.find(ViolationKind::AfterEnd, text);
        }
        if let Some(before) = self.order.last() {
            let former = self.writers.get_mut(before);
            let written = former.map_or(0, |former| {
                former.fence = Some(position);
                former.written
            });
            if position > written {
                let text = format!("writer {writer} begins at {position}; {written} were written");
                self.find(ViolationKind::Unwritten, text);
            }
        }
        self.order.push(writer);
        let new = Writer { opened: position, written: position, durable: position, fence: None };
        self.writers.insert(writer, new);
        self.acknowledged = acknowledged.max(position);
    }

    fn durable(&mut self, number: u16, position: u64) {
        let Some(writer) = self.writers.get_mut(&number) else {
            let text = format!("writer {number} did not open, and is at {position}");
            return self.find(ViolationKind::Unwritten, text);
        };
        let (before, written, fence) = (writer.durable, writer.written, writer.fence);
        writer.durable = before.max(position);
        self.acknowledged = self.acknowledged.max(position);
        if position < before {
            let text = format!("writer {number} was told {position} behind {before}");
            self.find(ViolationKind::Backwards, text);
        }
        if position > written {
            let text = format!("writer {number} was told {position}; it wrote up to {written}");
            self.find(ViolationKind::Unwritten, text);
        }
        if let Some(fence) = fence.filter(|fence| position > *fence) {
            let text = format!("writer {number} was told {position}; another began at {fence}");
            self.find(ViolationKind::AfterFence, text);
        }
    }

    fn closed(&mut self, number: u16, position: u64, finished: bool) {
        self.durable(number, position);
        let written = self.writers.get(&number).map_or(0, |one| one.written);
        if position < written {
            let text = format!("writer {number} wrote up to {written}; closed at {position}");
            self.find(ViolationKind::Lost, text);
        }
        if finished {
            self.finished = Some(position);
        }
    }

    fn read(&mut self, number: u32, position: u64, parts: &[Part]) {
        let Some(reading) = self.readings.get_mut(&number) else {
            let text = format!("reader {number} got bytes at {position}, unasked");
            return self.find(ViolationKind::Offset, text);
        };
        let due = reading.due;
        let mut at = position;
        for part in parts {
            reading.got.push((at, part.clone()));
            at += part.count();
        }
        reading.due = at;
        if position != due {
            let wrong = match position < due {
                true => ViolationKind::Backwards,
                false => ViolationKind::Offset,
            };
            let text = format!("reader {number} got {position} where {due} was due");
            self.find(wrong, text);
        }
        let written = self.written();
        if at > written {
            let text = format!("reader {number} read up to {at}; {written} were written");
            self.find(ViolationKind::Unwritten, text);
        }
    }

    fn end(&mut self, number: u32, position: u64, finished: bool) {
        let Some(reading) = self.readings.get(&number) else {
            return;
        };
        let (due, acknowledged) = (reading.due, reading.acknowledged);
        if position != due {
            let text = format!("reader {number} ends at {position}; it has read up to {due}");
            self.find(ViolationKind::Offset, text);
        }
        if position < acknowledged {
            let text = format!(
                "reader {number} ends at {position}; {acknowledged} were acknowledged before"
            );
            self.find(ViolationKind::Lost, text);
        }
        if let Some(end) = self.finished.filter(|end| *end != position && finished) {
            let text = format!("reader {number} ends at {position}; the stream at {end}");
            self.find(ViolationKind::AfterEnd, text);
        }
    }

    /// Returns the end of the bytes that any writer may have written, including unacknowledged
    /// ones.
    fn written(&self) -> u64 {
        self.writers.values().map(|one| one.written).max().unwrap_or(0)
    }

    fn two_writers(&mut self) {
        let acknowledged: Vec<(u16, u64, u64)> =
            self.writers.iter().map(|(number, one)| (*number, one.opened, one.durable)).collect();
        for (at, one) in acknowledged.iter().enumerate() {
            for other in &acknowledged[at + 1..] {
                let (from, to) = (one.1.max(other.1), one.2.min(other.2));
                if from < to {
                    let text = format!("{} and {}: positions {from} to {to}", one.0, other.0);
                    self.find(ViolationKind::TwoWriters, text);
                }
            }
        }
    }

    /// Returns the writer of the byte at a position, and the end of that writer's bytes.
    fn owner(&self, position: u64) -> Option<(u16, u64)> {
        // If two writers begin at the same position, the earlier one wrote nothing.
        let number =
            self.order.iter().rev().find(|number| self.writers[number].opened <= position)?;
        let writer = &self.writers[number];
        let end = writer.fence.unwrap_or(u64::MAX).min(writer.written);
        (position < end).then_some((*number, end))
    }

    /// Finds the first wrong byte of each reader.
    fn contents(&mut self) {
        for (number, reading) in &self.readings {
            let other =
                reading.got.iter().find_map(|(at, part)| self.differs(*at, part, &reading.got));
            if let Some((wrong, text)) = other {
                let text = format!("reader {number}: {text}");
                self.findings.push(Finding { wrong, text });
            }
        }
    }

    fn differs(
        &self,
        at: u64,
        part: &Part,
        all: &[(u64, Part)],
    ) -> Option<(ViolationKind, String)> {
        let end = at + part.count();
        let mut at = at;
        let mut from = 0;
        while at < end {
            let Some((owner, until)) = self.owner(at) else {
                return Some((ViolationKind::Unwritten, format!("{at} was written by no writer")));
            };
            let count = end.min(until) - at;
            match part {
                Part::Of { writer, position, .. } => {
                    let position = position + from;
                    if (*writer, position) != (owner, at)
                        && let Some(within) = other_than(*writer, position, owner, at, count)
                    {
                        let (at, position) = (at + within, position + within);
                        let text =
                            format!("{at} has byte {position} of writer {writer}, not of {owner}");
                        return Some((self.kind(at, owner, *writer, position, all), text));
                    }
                }
                Part::Raw(raw) => {
                    let first = usize::try_from(from).unwrap_or(0);
                    let raw = &raw[first..first + usize::try_from(count).unwrap_or(0)];
                    if let Some(within) = first_other(owner, at, raw) {
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
        all: &[(u64, Part)],
    ) -> ViolationKind {
        if writer != owner {
            let fence = self.writers.get(&writer).and_then(|one| one.fence);
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
            Part::Of { writer, position, count } => {
                let is_skipped = *position < skipped.end && skipped.start < position + count;
                *there > at && *writer == owner && is_skipped
            }
            Part::Raw(_) => false,
        });
        match comes_later {
            true => ViolationKind::Reordered,
            false => ViolationKind::Lost,
        }
    }
}

/// Returns the offset of the first difference of two ranges, some bytes of which may be equal.
fn other_than(writer: u16, position: u64, owner: u16, at: u64, count: u64) -> Option<u64> {
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(TELLING);
    let found = first_other(owner, at, &bytes(writer, position, count));
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
        Note::Sends { writer, count }
    }

    fn durable(writer: u16, position: u64) -> Note {
        Note::Durable { writer, position }
    }

    fn reading(reader: u32, read: &[u8]) -> Vec<Note> {
        let mut notes = vec![Note::Asks { reader, position: 0 }];
        let mut position = 0;
        // Frames may end anywhere.
        for frame in read.chunks(333) {
            notes.push(Note::Read { reader, position, parts: Part::all((1, position), frame) });
            position += frame.len() as u64;
        }
        notes.push(Note::End { reader, position, finished: true });
        notes
    }

    fn kinds(notes: &[Note]) -> Vec<ViolationKind> {
        judge(notes).iter().map(|found| found.wrong).collect()
    }

    /// Returns the kinds of violations that the bytes of a reader cause.
    fn read_kinds(read: &[u8]) -> Vec<ViolationKind> {
        kinds(&history(read))
    }

    #[test]
    fn correct_history_has_no_violation() {
        assert_eq!(judge(&history(&right())), []);
        // The split into frames does not matter.
        for first in 985..1015 {
            let all = right();
            let (one, two) = all.split_at(first);
            let mut notes = history(&[]);
            notes.truncate(7);
            notes.push(Note::Asks { reader: 0, position: 0 });
            for (position, frame) in [(0, one), (first as u64, two)] {
                let parts = Part::all((1, position), frame);
                notes.push(Note::Read { reader: 0, position, parts });
            }
            assert_eq!(judge(&notes), [], "{first}");
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
