//! Encoding of a batch: its position in its origin's order, then whole commands.
//!
//! ```text
//! format u8 = 1 | session u64 | sequence u64 | entry…
//! entry: kind u8 = 0 | length u32 | command
//!        kind u8 = 1 | length u32 | slot u64 | index u32 | sequence u64 | acknowledged u64 | command
//!        kind u8 = 2 | length u32 | command of the group
//!        kind u8 = 3 | length u32 | command about streams
//!        kind u8 = 4 | length u32 | command about users
//! ```
//! Integers are little-endian. A batch is validated as a whole before any of it is executed, so
//! that every node executes all of it or nothing.

use crate::ports::outcome::{Sequenced, SessionId};

const FORMAT: u8 = 1;
/// Length of the batch header in bytes.
pub(crate) const HEADER_BYTES: usize = 17;
/// Length in bytes of an entry's kind and length fields.
const ENTRY_HEADER_BYTES: usize = 5;
/// Length in bytes of the fields for a client's session and sequence.
const SEQUENCED_BYTES: usize = 28;
/// Maximum length in bytes of a batch of one command, excluding the command itself.
pub(crate) const OVERHEAD_BYTES: usize = HEADER_BYTES + ENTRY_HEADER_BYTES + SEQUENCED_BYTES;
const KIND_PLAIN: u8 = 0;
const KIND_SEQUENCED: u8 = 1;
const KIND_GROUP: u8 = 2;
const KIND_STREAM: u8 = 3;
const KIND_ACCESS: u8 = 4;

/// Position of a batch in its origin's order: the origin's node session, and the batch's number in
/// it, counted from 1. It identifies batches as [session-1] identifies commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    /// Slot of the origin's registration.
    pub(crate) session: u64,
    /// Number of the batch in that session.
    pub(crate) sequence: u64,
}

/// Kind of a command, which determines the component that executes it. Commands of client sessions
/// are executed at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A command for the service.
    Plain,
    /// A command for the service, executed once at this position of a client's session.
    Sequenced(Sequenced),
    /// A command for the group's table ([member-2]).
    Group,
    /// A command for the table of streams.
    Stream,
    /// A command for the table of users.
    Access,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchEntry<'a> {
    /// Component that executes the command.
    pub(crate) kind: Kind,
    /// Encoded command, as passed to that component.
    pub(crate) command: &'a [u8],
}

impl BatchEntry<'_> {
    /// Returns the length of the encoded entry, including its kind and length fields.
    pub(crate) const fn encoded_bytes(&self) -> usize {
        let head = match self.kind {
            Kind::Sequenced(_) => ENTRY_HEADER_BYTES + SEQUENCED_BYTES,
            Kind::Plain | Kind::Group | Kind::Stream | Kind::Access => ENTRY_HEADER_BYTES,
        };
        head + self.command.len()
    }

    /// Appends the encoded entry. The caller ensures that the command is shorter than `u32::MAX`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let length = u32::try_from(self.command.len()).expect("bounded by command_bytes_max");
        let kind = match self.kind {
            Kind::Plain => KIND_PLAIN,
            Kind::Sequenced(_) => KIND_SEQUENCED,
            Kind::Group => KIND_GROUP,
            Kind::Stream => KIND_STREAM,
            Kind::Access => KIND_ACCESS,
        };
        let [a, b, c, d] = length.to_le_bytes();
        out.extend_from_slice(&[kind, a, b, c, d]);
        if let Kind::Sequenced(at) = self.kind {
            out.extend_from_slice(&at.session.slot.to_le_bytes());
            out.extend_from_slice(&at.session.index.to_le_bytes());
            out.extend_from_slice(&at.sequence.to_le_bytes());
            out.extend_from_slice(&at.acknowledged_below.to_le_bytes());
        }
        out.extend_from_slice(self.command);
    }
}

pub(crate) fn encode_batch(header: BatchHeader, entries: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + entries.len());
    bytes.push(FORMAT);
    bytes.extend_from_slice(&header.session.to_le_bytes());
    bytes.extend_from_slice(&header.sequence.to_le_bytes());
    bytes.extend_from_slice(entries);
    bytes
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch<'a> {
    pub(crate) header: BatchHeader,
    entries: &'a [u8],
}

impl<'a> Batch<'a> {
    /// Validates and decodes a batch; `None` if it is malformed or unknown to this version.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let header = Self::header(bytes)?;
        let entries = bytes.get(HEADER_BYTES..)?;
        let mut rest = entries;
        while !rest.is_empty() {
            (_, rest) = take_entry(rest)?;
        }
        Some(Self { header, entries })
    }

    /// Decodes only the header; `None` if it is malformed.
    pub(crate) fn header(bytes: &[u8]) -> Option<BatchHeader> {
        let (format, rest) = bytes.split_first()?;
        if *format != FORMAT {
            return None;
        }
        let (session, rest) = take_u64(rest)?;
        let (sequence, _) = take_u64(rest)?;
        Some(BatchHeader { session, sequence })
    }

    pub(crate) fn entries(&self) -> BatchEntries<'a> {
        BatchEntries { unread_bytes: self.entries }
    }
}

/// Iterator over the commands of a validated batch.
pub(crate) struct BatchEntries<'a> {
    unread_bytes: &'a [u8],
}

impl<'a> Iterator for BatchEntries<'a> {
    type Item = BatchEntry<'a>;

    fn next(&mut self) -> Option<BatchEntry<'a>> {
        let (entry, rest) = take_entry(self.unread_bytes)?;
        self.unread_bytes = rest;
        Some(entry)
    }
}

fn take_entry(bytes: &[u8]) -> Option<(BatchEntry<'_>, &[u8])> {
    let (kind, rest) = bytes.split_first()?;
    let (length, rest) = take_u32(rest)?;
    let (kind, rest) = match *kind {
        KIND_PLAIN => (Kind::Plain, rest),
        KIND_GROUP => (Kind::Group, rest),
        KIND_STREAM => (Kind::Stream, rest),
        KIND_ACCESS => (Kind::Access, rest),
        KIND_SEQUENCED => {
            let (slot, rest) = take_u64(rest)?;
            let (index, rest) = take_u32(rest)?;
            let (sequence, rest) = take_u64(rest)?;
            let (acknowledged_below, rest) = take_u64(rest)?;
            let session = SessionId { slot, index };
            let at = Sequenced { session, sequence, acknowledged_below };
            (Kind::Sequenced(at), rest)
        }
        _ => return None,
    };
    let (command, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    Some((BatchEntry { kind, command }, rest))
}

fn take_u64(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (word, rest) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*word), rest))
}

fn take_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (word, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*word), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let at = Sequenced {
            session: SessionId { slot: 7, index: 2 },
            sequence: 3,
            acknowledged_below: 1,
        };
        let mut entries = Vec::new();
        BatchEntry { kind: Kind::Plain, command: b"set\0a" }.encode(&mut entries);
        BatchEntry { kind: Kind::Group, command: b"" }.encode(&mut entries);
        BatchEntry { kind: Kind::Stream, command: b"open" }.encode(&mut entries);
        BatchEntry { kind: Kind::Access, command: b"user" }.encode(&mut entries);
        BatchEntry { kind: Kind::Sequenced(at), command: b"incr" }.encode(&mut entries);
        encode_batch(BatchHeader { session: 5, sequence: 9 }, &entries)
    }

    /// A batch survives encoding and decoding, even with zero bytes and empty commands.
    #[test]
    fn batch_round_trips() {
        let bytes = sample();
        let batch = Batch::parse(&bytes).unwrap();
        assert_eq!(batch.header, BatchHeader { session: 5, sequence: 9 });
        let commands: Vec<_> = batch.entries().map(|entry| entry.command).collect();
        assert_eq!(commands, [&b"set\0a"[..], b"", b"open", b"user", b"incr"]);
        let kinds: Vec<_> = batch.entries().map(|entry| entry.kind).collect();
        assert!(matches!(
            kinds[..],
            [Kind::Plain, Kind::Group, Kind::Stream, Kind::Access, Kind::Sequenced(at)] if at.sequence == 3
        ));
        let length: usize = batch.entries().map(|entry| entry.encoded_bytes()).sum();
        assert_eq!(length + HEADER_BYTES, bytes.len());
    }

    #[test]
    fn truncated_batch_is_refused_or_ends_between_commands() {
        let bytes = sample();
        let whole: Vec<_> = Batch::parse(&bytes).unwrap().entries().collect();
        let mut ends = vec![HEADER_BYTES];
        for entry in &whole {
            ends.push(ends.last().unwrap() + entry.encoded_bytes());
        }
        for cut in 0..bytes.len() {
            assert_eq!(Batch::parse(&bytes[..cut]).is_some(), ends.contains(&cut), "cut at {cut}");
        }
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let sample = sample();
        for place in 0..sample.len() {
            for bit in 0..8 {
                let mut bytes = sample.clone();
                bytes[place] ^= 1 << bit;
                if let Some(batch) = Batch::parse(&bytes) {
                    let taken: usize = batch.entries().map(|entry| entry.encoded_bytes()).sum();
                    assert_eq!(taken + HEADER_BYTES, bytes.len());
                }
            }
        }
        assert!(Batch::parse(&[FORMAT + 1; 40]).is_none());
        assert!(Batch::parse(&[0xff; 40]).is_none());
    }

    /// [offload-22] Replicas can decode batches encoded by device clients.
    #[test]
    fn batches_encoded_by_frame_clients_are_parsed() {
        let commands = [&b"one"[..], b"", b"three"];
        let bytes = quorate_wire::frame_clients::encode_batch(5, 9, commands.into_iter());
        let batch = Batch::parse(&bytes).unwrap();
        assert_eq!((batch.header.session, batch.header.sequence), (5, 9));
        let plain = batch.entries().all(|entry| entry.kind == Kind::Plain);
        assert!(plain && batch.entries().map(|entry| entry.command).eq(commands));
        let sizes = quorate_wire::frame_clients::BATCH_OVERHEAD_BYTES
            + 3 * quorate_wire::frame_clients::COMMAND_OVERHEAD_BYTES;
        assert_eq!(bytes.len(), sizes + 8);
    }

    /// The commit calculation in the performance page uses the same sizes as the code.
    #[test]
    fn documented_sizes_are_those_of_the_code() {
        let page = include_str!("../../../../../docs/performance.md");
        let sequenced = ENTRY_HEADER_BYTES + SEQUENCED_BYTES;
        let sizes = format!(
            "{HEADER_BYTES} bytes of header and {ENTRY_HEADER_BYTES} per command ({sequenced} with a number of its own)"
        );
        assert!(page.contains(&sizes), "docs/performance.md lacks: {sizes}");
    }
}
