//! Encodes a held snapshot as a backup, for `GET /backup` and for recovery.

use std::{
    collections::VecDeque,
    io::{self, Read},
    ops::Range,
};

use quorate_core::value::StreamName;
use quorate_stream::Table;

use super::{
    BackupEncoder, BackupHeader, HeldSnapshot, HeldStreamReader, PartReader, SnapshotUnreadable,
};

/// Number of stream bytes per read, equal to the size of a chunk in the store.
const READ_BYTES: u64 = 1 << 20;

/// Encoded backup, produced on demand from a held snapshot.
pub struct EncodedBackup<'a, P> {
    snapshot: &'a mut HeldSnapshot,
    part_reader: P,
    streams: Option<UnreadStreams<'a>>,
    encoder: Option<BackupEncoder>,
    piece: Vec<u8>,
    consumed_bytes: usize,
}

/// Ranges of byte streams that are still to be read.
struct UnreadStreams<'a> {
    unread_ranges: VecDeque<(StreamName, Range<u64>)>,
    from: &'a mut dyn HeldStreamReader,
}

impl UnreadStreams<'_> {
    /// Returns the next bytes; empty at the end.
    fn next_bytes(&mut self) -> io::Result<Vec<u8>> {
        while let Some((stream, range)) = self.unread_ranges.front_mut() {
            if range.is_empty() {
                self.unread_ranges.pop_front();
                continue;
            }
            let most = (range.end - range.start).min(READ_BYTES);
            let most = usize::try_from(most).expect("it is bounded");
            let bytes = self.from.read(*stream, range.start, most)?;
            if bytes.is_empty() || bytes.len() > most {
                return Err(io::Error::other("a read of a stream gave too few or too many bytes"));
            }
            range.start += bytes.len() as u64;
            return Ok(bytes);
        }
        Ok(Vec::new())
    }
}

impl<'a, P: PartReader> EncodedBackup<'a, P> {
    /// Starts encoding. Rewinds the snapshot first, because it may have been read before.
    pub fn begin(held: &'a mut HeldSnapshot, header: &BackupHeader, parts: P) -> Self {
        debug_assert_eq!(header.stream_bytes, None, "their bytes are not at hand");
        Self::begin_with(held, header, parts, None)
    }

    /// Starts encoding with the bytes of the streams in `table`, the snapshot's table of streams.
    pub fn with_streams(
        held: &'a mut HeldSnapshot,
        header: &BackupHeader,
        parts: P,
        table: &Table,
        from: &'a mut dyn HeldStreamReader,
    ) -> Self {
        debug_assert_eq!(header.stream_bytes, table.retained_bytes(), "it says how many");
        let ranges = table.retained_ranges().collect();
        Self::begin_with(held, header, parts, Some(UnreadStreams { unread_ranges: ranges, from }))
    }

    fn begin_with(
        held: &'a mut HeldSnapshot,
        header: &BackupHeader,
        parts: P,
        streams: Option<UnreadStreams<'a>>,
    ) -> Self {
        held.rewind();
        let (encoder, piece) = BackupEncoder::begin(header);
        Self {
            snapshot: held,
            part_reader: parts,
            streams,
            encoder: Some(encoder),
            piece,
            consumed_bytes: 0,
        }
    }

    /// Returns the next bytes; empty at the end.
    pub fn next_piece(&mut self) -> Result<Vec<u8>, SnapshotUnreadable> {
        if self.consumed_bytes < self.piece.len() {
            let rest = self.piece.split_off(self.consumed_bytes);
            (self.piece, self.consumed_bytes) = (Vec::new(), 0);
            return Ok(rest);
        }
        let Some(encoder) = &mut self.encoder else {
            return Ok(Vec::new());
        };
        let content = match (self.snapshot.next_bytes(&mut self.part_reader)?, &mut self.streams) {
            (Some(content), Some(streams)) => {
                streams.from.extend_hold().map_err(SnapshotUnreadable::Io)?;
                content
            }
            (Some(content), None) => content,
            (None, Some(streams)) => streams.next_bytes().map_err(SnapshotUnreadable::Io)?,
            (None, None) => Vec::new(),
        };
        if content.is_empty() {
            let encoder = self.encoder.take();
            return Ok(encoder.map_or_else(Vec::new, |encoder| encoder.finish().1));
        }
        Ok(encoder.encode_chunks(&content))
    }
}

impl<P: PartReader> Read for EncodedBackup<'_, P> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.consumed_bytes == self.piece.len() {
            let piece = self.next_piece().map_err(|why| match why {
                SnapshotUnreadable::Io(error) => error,
                SnapshotUnreadable::Damaged(what) => {
                    io::Error::new(io::ErrorKind::InvalidData, what)
                }
            })?;
            (self.piece, self.consumed_bytes) = (piece, 0);
        }
        let count = buffer.len().min(self.piece.len() - self.consumed_bytes);
        buffer[..count]
            .copy_from_slice(&self.piece[self.consumed_bytes..self.consumed_bytes + count]);
        self.consumed_bytes += count;
        Ok(count)
    }
}
