//! A node's own snapshot, held by a reader so that its files are not deleted.

use std::{fmt, io, sync::Arc};

use quorate_core::{ballot::Era, slot::Slot, value::StreamName};
use quorate_log::disk::Position;
use quorate_stream::Table;

use crate::snapshots::{
    Manifest,
    header::SnapshotHeader,
    layout::{self, ChunkHead},
    stream::{Item, ItemDecoder, Malformed},
};

/// Reader of a node's files from another thread.
pub trait PartReader {
    /// Fills `buffer` with the bytes at position `at`.
    ///
    /// # Errors
    /// The bytes cannot be read.
    fn read(&mut self, at: Position, buffer: &mut [u8]) -> io::Result<()>;
}

/// Reader of the bytes of byte streams from another thread.
pub trait HeldStreamReader {
    /// Extends the hold on the bytes while another part of the backup is read.
    ///
    /// # Errors
    ///
    /// The hold has expired.
    fn extend_hold(&mut self) -> io::Result<()>;

    /// Reads at least one and at most `bytes_max` bytes of this stream, starting at `position`.
    ///
    /// # Errors
    /// The bytes cannot be read.
    fn read(&mut self, stream: StreamName, position: u64, bytes_max: usize) -> io::Result<Vec<u8>>;
}

/// Reason why a held snapshot cannot be read.
#[derive(Debug)]
pub enum SnapshotUnreadable {
    /// The snapshot's files could not be read.
    Io(io::Error),
    Damaged(String),
}

impl fmt::Display for SnapshotUnreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Damaged(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for SnapshotUnreadable {}

/// A snapshot whose files the node retains until this value is dropped.
#[derive(Debug)]
pub struct HeldSnapshot {
    manifest: Manifest,
    hold: Arc<()>,
    next: u64,
}

impl HeldSnapshot {
    pub(crate) fn new(manifest: Manifest, hold: Arc<()>) -> Self {
        Self { manifest, hold, next: 0 }
    }

    /// Returns the slot of the snapshot. The snapshot covers all lower slots.
    pub fn slot(&self) -> Slot {
        self.manifest.slot
    }

    /// Returns the length of the snapshot's stream in bytes.
    pub fn bytes(&self) -> u64 {
        self.manifest.bytes
    }

    /// Returns the XXH3-128 of the snapshot's stream.
    pub fn digest(&self) -> u128 {
        self.manifest.digest
    }

    /// Restarts reading at the beginning of the snapshot's stream.
    pub(super) fn rewind(&mut self) {
        self.next = 0;
    }

    /// Returns the next bytes of the snapshot's stream; `None` at its end. Buffers at most one
    /// chunk, whatever the size of the snapshot.
    pub fn next_bytes(
        &mut self,
        parts: &mut dyn PartReader,
    ) -> Result<Option<Vec<u8>>, SnapshotUnreadable> {
        let content = self.read_at(self.next, parts)?;
        self.next += content.as_ref().map_or(0, |content| content.len() as u64);
        Ok(content)
    }

    fn read_at(
        &self,
        at: u64,
        parts: &mut dyn PartReader,
    ) -> Result<Option<Vec<u8>>, SnapshotUnreadable> {
        let Manifest { layout, first_part, bytes, .. } = self.manifest;
        if at >= bytes {
            return Ok(None);
        }
        debug_assert!(Arc::strong_count(&self.hold) > 0, "the files stay");
        let (chunk, offset) = layout.chunk_at(at);
        let used = (bytes - offset).min(layout.content_bytes() as u64);
        let used = usize::try_from(used).expect("a chunk fits in memory");
        let place = layout.chunk_position(first_part, chunk);
        let mut buffer = vec![0; layout::padded_chunk_bytes(used)];
        parts.read(place, &mut buffer).map_err(SnapshotUnreadable::Io)?;
        let head = ChunkHead { slot: self.manifest.slot, offset, first_part };
        match layout::open(head, &buffer) {
            Some(content) => Ok(Some(content.to_vec())),
            None => Err(SnapshotUnreadable::Damaged(format!("{place}: the chunk is damaged"))),
        }
    }

    /// Returns the snapshot's table of streams, which precedes the service's items.
    pub fn stream_table(&self, parts: &mut dyn PartReader) -> Result<Table, SnapshotUnreadable> {
        let damaged = |what: &str| SnapshotUnreadable::Damaged(what.to_owned());
        let (mut at, mut items) = (0, ItemDecoder::default());
        let (mut rows, mut over) = (Vec::new(), false);
        while !over && let Some(content) = self.read_at(at, parts)? {
            at += content.len() as u64;
            let fed: Result<(), Malformed> = items.feed(&content, |item| {
                match item {
                    Item::Meta(key, value) if Table::is_table_key(key) => {
                        rows.push((key.to_vec(), value.to_vec()));
                    }
                    Item::Meta(..) | Item::Header(_) => {}
                    Item::Service(_) => over = true,
                }
                Ok(())
            });
            fed.map_err(|Malformed(what)| damaged(what))?;
        }
        Table::restore(rows).map_err(|bad| damaged(&bad.to_string()))
    }

    /// Returns the era at the snapshot's slot, read from the snapshot's first bytes.
    pub fn era(&self, parts: &mut dyn PartReader) -> Result<Era, SnapshotUnreadable> {
        let (mut at, mut items, mut era) = (0, ItemDecoder::default(), None);
        while era.is_none() {
            let Some(content) = self.read_at(at, parts)? else {
                break;
            };
            at += content.len() as u64;
            let fed: Result<(), Malformed> = items.feed(&content, |item| {
                if let Item::Header(bytes) = item {
                    era = SnapshotHeader::decode(bytes).map(|header| header.eras.era());
                }
                Ok(())
            });
            fed.map_err(|Malformed(what)| SnapshotUnreadable::Damaged(what.to_owned()))?;
            if at > (1 << 20) {
                break;
            }
        }
        era.ok_or_else(|| SnapshotUnreadable::Damaged("the snapshot has no header".to_owned()))
    }
}
