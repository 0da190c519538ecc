//! Reads chunks of a snapshot from its parts, several at a time, and verifies them.

use std::collections::VecDeque;

use quorate_core::node_id::NodeId;
use quorate_log::disk::{Buffer, Disk, DiskError};

use super::{
    layout::{ChunkHead, open},
    manifest::Manifest,
};

/// Maximum number of reads in flight for loading a snapshot, and likewise for serving all peers.
/// Enough to keep the disk busy during a turn, with at most 1 MiB of chunks of the usual size in
/// memory.
pub(crate) const READS_MAX: usize = 4;

/// Purpose of a read. Reads with the same purpose complete in the order in which they were started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The service loads the snapshot.
    Load,
    /// The chunk is sent to a peer.
    Serve(NodeId),
    /// Data received by an earlier process is verified.
    Resume,
    /// The snapshot is scrubbed.
    Scrub,
}

/// A read in flight, or a completed one that waits for earlier reads of the same purpose.
#[derive(Debug)]
struct PendingRead {
    token: u64,
    purpose: Purpose,
    manifest: Manifest,
    chunk_number: u64,
    content: Option<Result<Vec<u8>, ChunkReadError>>,
}

impl PendingRead {
    /// Returns the offset of the chunk's content in the stream.
    fn offset(&self) -> u64 {
        self.chunk_number * self.manifest.layout.content_bytes() as u64
    }
}

/// A chunk that was read.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) purpose: Purpose,
    pub(crate) manifest: Manifest,
    /// Offset of the chunk's content in the stream.
    pub(crate) offset: u64,
    /// Content of the chunk, or why it could not be read.
    pub(crate) content: Result<Vec<u8>, ChunkReadError>,
}

/// Reason why a chunk could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChunkReadError {
    /// The bytes cannot be read now for lack of file descriptors; they may be intact.
    NotNow,
    /// The bytes appear to be damaged, for this reason.
    Damaged(String),
}

/// Reads in flight, in the order in which they were started.
#[derive(Debug, Default)]
pub(crate) struct ChunkReads {
    next_token: u64,
    open: VecDeque<PendingRead>,
}

impl ChunkReads {
    /// Returns the number of reads in flight whose purpose is `wanted`.
    pub(crate) fn count_reads(&self, wanted: impl Fn(Purpose) -> bool) -> usize {
        self.open.iter().filter(|open| wanted(open.purpose)).count()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// Starts reading the chunk that contains this offset of the stream. Returns the end of the
    /// chunk's content in the stream.
    pub(crate) fn start_read<D: Disk>(
        &mut self,
        purpose: Purpose,
        manifest: Manifest,
        offset: u64,
        disk: &mut D,
    ) -> u64 {
        let (chunk, begins) = manifest.layout.chunk_at(offset);
        let used = (manifest.bytes - begins).min(manifest.layout.content_bytes() as u64);
        let content = usize::try_from(used).expect("a chunk fits in memory");
        let bytes = super::layout::padded_chunk_bytes(content);
        let (token, at) =
            (self.next_token, manifest.layout.chunk_position(manifest.first_part, chunk));
        self.next_token += 1;
        self.open.push_back(PendingRead {
            token,
            purpose,
            manifest,
            chunk_number: chunk,
            content: None,
        });
        let buffer = disk.allocate(bytes);
        disk.start_read(token, at, buffer, bytes);
        begins + used
    }

    /// Handles the completion of a read. [`ChunkReads::take_chunk`] returns the chunks that are
    /// ready.
    pub(crate) fn on_read_done<D: Disk>(
        &mut self,
        token: u64,
        buffer: Buffer,
        result: Result<(), DiskError>,
        disk: &mut D,
    ) {
        let Some(read) = self.open.iter_mut().find(|open| open.token == token) else {
            return;
        };
        let (manifest, chunk) = (&read.manifest, read.chunk_number);
        let head = ChunkHead {
            slot: manifest.slot,
            offset: read.offset(),
            first_part: manifest.first_part,
        };
        read.content = Some(match result {
            Err(error) if error.exhausted.is_some() => Err(ChunkReadError::NotNow),
            Err(error) => Err(ChunkReadError::Damaged(error.to_string())),
            Ok(()) => match open(head, &buffer) {
                Some(content) => Ok(content.to_vec()),
                None => {
                    let place = manifest.layout.chunk_position(manifest.first_part, chunk);
                    Err(ChunkReadError::Damaged(format!("{place}: the chunk is damaged")))
                }
            },
        });
        disk.release(buffer);
    }

    /// Takes the next chunk that was read, once all earlier reads of its purpose are complete.
    pub(crate) fn take_chunk(&mut self) -> Option<Chunk> {
        let first = |open: &PendingRead| {
            let mut reads = self.open.iter();
            let first = reads.find(|other| other.purpose == open.purpose);
            first.is_some_and(|first| first.token == open.token)
        };
        let mut reads = self.open.iter();
        let at = reads.position(|open| open.content.is_some() && first(open))?;
        let read = self.open.remove(at)?;
        Some(Chunk {
            purpose: read.purpose,
            manifest: read.manifest,
            offset: read.offset(),
            content: read.content?,
        })
    }
}
