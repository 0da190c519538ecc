//! Writes the stream of a snapshot into its parts, several chunks at a time, and makes it durable.
//!
//! These writes are not urgent and are flushed once, at the end. The caller checks for capacity
//! before it pushes bytes. A snapshot must not be referenced before its last flush ([trim-3]).

use std::collections::{BTreeSet, VecDeque};

use quorate_core::slot::Slot;
use quorate_log::disk::{
    Buffer, Completed, Disk, DiskError, Durability, Family, FileId, OPERATIONS_MAX, ZeroFill,
};
use quorate_stream::store::OPERATIONS_MAX as STORE_OPERATIONS_MAX;
use xxhash_rust::xxh3::Xxh3;

use super::{
    layout::{ChunkHead, ChunkLayout, HEAD_BYTES, seal_chunk},
    manifest::Manifest,
    reading::READS_MAX,
};
use crate::ports::status::Snapshot;

/// Number of chunks waiting or in flight at which the caller must pause. It also bounds the chunks
/// in flight for a caller that does not pause.
const PENDING_CHUNKS_MAX: usize = 3;
/// Maximum number of concurrent disk operations for snapshots: writes and a flush of one snapshot,
/// and reads for loading, for peers, and of previously received data.
const SNAPSHOT_OPERATIONS_MAX: usize = PENDING_CHUNKS_MAX + 1 + 2 * READS_MAX + 1;
const _: () = assert!(
    quorate_log::OPERATIONS_MAX + SNAPSHOT_OPERATIONS_MAX + STORE_OPERATIONS_MAX <= OPERATIONS_MAX
);

/// Writer of one snapshot.
pub(crate) struct SnapshotWriter {
    slot: Slot,
    layout: ChunkLayout,
    first_part: u64,
    /// Number of bytes of the stream pushed so far.
    bytes: u64,
    digest: Xxh3,
    /// Chunk that is being filled, and the number of stream bytes in it.
    open: Option<(Buffer, usize)>,
    /// Sealed chunks that wait for their part to be ready: number, buffer, and number of bytes.
    sealed_chunks: VecDeque<(u64, Buffer, usize)>,
    in_flight: usize,
    spare_buffers: Vec<Buffer>,
    /// First part that does not exist yet.
    ready_parts_end: u64,
    is_preparing: bool,
    open_part: Option<u64>,
    is_finished: bool,
    unflushed_parts: BTreeSet<u64>,
    flushing_part: Option<u64>,
}

impl SnapshotWriter {
    /// Creates the writer of a snapshot at `at`, whose parts are numbered starting at `first_part`.
    /// Part numbers are never reused.
    pub(crate) fn new(at: Slot, layout: ChunkLayout, first_part: u64) -> Self {
        Self {
            slot: at,
            layout,
            first_part,
            bytes: 0,
            digest: Xxh3::new(),
            open: None,
            sealed_chunks: VecDeque::new(),
            in_flight: 0,
            spare_buffers: Vec::new(),
            ready_parts_end: first_part,
            is_preparing: false,
            open_part: None,
            is_finished: false,
            unflushed_parts: BTreeSet::new(),
            flushing_part: None,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the slot and the current length of the snapshot being written.
    pub(crate) fn written_so_far(&self) -> Snapshot {
        Snapshot { slot: self.slot, bytes: self.bytes }
    }

    /// Returns the lowest number above those of the requested parts.
    pub(crate) fn parts_end(&self) -> u64 {
        self.ready_parts_end + u64::from(self.is_preparing)
    }

    /// Iterates over the parts that exist or are being created.
    pub(crate) fn parts(&self) -> impl Iterator<Item = FileId> + use<> {
        (self.first_part..self.parts_end()).map(|number| FileId::new(Family::Snapshot, number))
    }

    /// Returns the number of bytes that wait for the disk.
    pub(crate) fn backlog_bytes(&self) -> u64 {
        let chunks = self.sealed_chunks.len() + self.in_flight;
        chunks as u64 * u64::from(self.layout.chunk_bytes)
    }

    /// Returns whether more bytes may be pushed now.
    pub(crate) fn has_room(&self) -> bool {
        self.sealed_chunks.len() + self.in_flight < PENDING_CHUNKS_MAX
    }

    /// Resumes after parts that an earlier process wrote: their bytes are pushed again but not
    /// written.
    pub(crate) fn resume(&mut self, parts_ready: u64) {
        self.ready_parts_end = parts_ready;
    }

    /// Adds a chunk that is already in its part.
    pub(crate) fn add_existing(&mut self, content: &[u8]) {
        debug_assert!(self.open.is_none(), "resumed before anything is pushed");
        let (chunk, _) = self.layout.chunk_at(self.bytes);
        let place = self.layout.chunk_position(self.first_part, chunk);
        // The chunk may have been read from the page cache, so its part still needs a flush.
        self.unflushed_parts.insert(place.file.number);
        self.digest.update(content);
        self.bytes += content.len() as u64;
    }

    /// Writes the next bytes of the stream.
    pub(crate) fn push<D: Disk>(&mut self, mut bytes: &[u8], disk: &mut D) {
        self.digest.update(bytes);
        while !bytes.is_empty() {
            let (mut buffer, used) = match self.open.take() {
                Some(open) => open,
                None => (self.take_buffer(disk), 0),
            };
            let taken = bytes.len().min(self.layout.content_bytes() - used);
            let (now, rest) = bytes.split_at(taken);
            buffer[HEAD_BYTES + used..HEAD_BYTES + used + taken].copy_from_slice(now);
            bytes = rest;
            self.bytes += taken as u64;
            self.open = Some((buffer, used + taken));
            if used + taken == self.layout.content_bytes() {
                self.seal_chunk();
            }
        }
        self.advance(disk);
    }

    pub(crate) fn finish<D: Disk>(&mut self, disk: &mut D) {
        self.is_finished = true;
        self.seal_chunk();
        self.advance(disk);
    }

    fn take_buffer<D: Disk>(&mut self, disk: &mut D) -> Buffer {
        let spare = self.spare_buffers.pop();
        spare.unwrap_or_else(|| disk.allocate(self.layout.chunk_bytes as usize))
    }

    fn seal_chunk(&mut self) {
        let Some((mut buffer, used)) = self.open.take() else {
            return;
        };
        let offset = self.bytes - used as u64;
        let (chunk, _) = self.layout.chunk_at(offset);
        let head = ChunkHead { slot: self.slot, offset, first_part: self.first_part };
        let blocks = seal_chunk(head, &mut buffer, used);
        self.sealed_chunks.push_back((chunk, buffer, blocks));
    }

    fn advance<D: Disk>(&mut self, disk: &mut D) {
        while self.in_flight < PENDING_CHUNKS_MAX
            && let Some((chunk, ..)) = self.sealed_chunks.front()
        {
            let place = self.layout.chunk_position(self.first_part, *chunk);
            let part = place.file.number;
            if part >= self.ready_parts_end {
                return self.prepare_part(disk);
            }
            if self.open_part != Some(part) {
                // If the part cannot be opened now, the next completion or push retries.
                if disk.open_next_file(place.file).is_err() {
                    return;
                }
                self.open_part = Some(part);
            }
            let Some((chunk, buffer, blocks)) = self.sealed_chunks.pop_front() else {
                return;
            };
            self.in_flight += 1;
            self.unflushed_parts.insert(part);
            disk.start_write(chunk, place, buffer.into(), blocks, Durability::AfterFlush);
        }
        if self.is_finished && self.in_flight == 0 && self.flushing_part.is_none() {
            self.flushing_part = self.unflushed_parts.first().copied();
            if let Some(part) = self.flushing_part {
                disk.start_flush(part, FileId::new(Family::Snapshot, part));
            }
        }
    }

    fn prepare_part<D: Disk>(&mut self, disk: &mut D) {
        if self.is_preparing {
            return;
        }
        self.is_preparing = true;
        let part = FileId::new(Family::Snapshot, self.ready_parts_end);
        disk.start_prepare(part, self.layout.part_bytes(), ZeroFill::Reserved);
        // Snapshot files are not zero-filled, so preparing one quickly delays no commit.
        disk.hurry_file_creation(Family::Snapshot);
    }

    /// Handles the completion of an operation of this snapshot. An error is final for the snapshot.
    pub(crate) fn on_completed<D: Disk>(
        &mut self,
        completed: Completed,
        disk: &mut D,
    ) -> Result<(), DiskError> {
        match completed {
            Completed::Written { output, result, .. } => {
                self.in_flight -= 1;
                self.spare_buffers.extend(output.into_buffer());
                result?;
            }
            Completed::Prepared { result, .. } => {
                self.is_preparing = false;
                result?;
                self.ready_parts_end += 1;
            }
            Completed::Flushed { token, result, .. } => {
                self.flushing_part = None;
                result?;
                self.unflushed_parts.remove(&token);
            }
            Completed::Read { .. }
            | Completed::Retired { .. }
            | Completed::SmallFileReplaced { .. }
            | Completed::SmallFileRead { .. } => {}
        }
        self.advance(disk);
        Ok(())
    }

    /// Retries the operations that could not be started.
    pub(crate) fn retry_operations<D: Disk>(&mut self, disk: &mut D) {
        self.advance(disk);
    }

    /// Returns whether operations are in flight. Until they end, the parts must not be deleted.
    pub(crate) fn is_busy(&self) -> bool {
        self.in_flight > 0 || self.is_preparing || self.flushing_part.is_some()
    }

    /// Returns the manifest once everything is durable.
    pub(crate) fn finished_manifest(&self) -> Option<Manifest> {
        let written = self.is_finished && self.sealed_chunks.is_empty() && !self.is_busy();
        (written && self.unflushed_parts.is_empty()).then(|| Manifest {
            slot: self.slot,
            layout: self.layout,
            first_part: self.first_part,
            bytes: self.bytes,
            digest: self.digest.digest128(),
        })
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::node_id::NodeId;
    use quorate_log::disk::{BLOCK, MemoryDisk, Source as _};

    use super::*;
    use crate::snapshots::reading::{ChunkReadError, ChunkReads, Purpose};

    fn layout() -> ChunkLayout {
        ChunkLayout::from_disk(2 * BLOCK as u32, 3).unwrap()
    }

    fn bytes(count: usize) -> Vec<u8> {
        (0..count).map(|at| (at * 7 % 251) as u8).collect()
    }

    fn drive(writer: &mut SnapshotWriter, disk: &mut MemoryDisk) {
        while let Some(completed) = disk.poll() {
            writer.on_completed(completed, disk).unwrap();
        }
    }

    /// Writes the whole stream, as fast as capacity allows.
    fn write(stream: &[u8], first_part: u64, disk: &mut MemoryDisk) -> Manifest {
        let mut writer = SnapshotWriter::new(Slot(5), layout(), first_part);
        for piece in stream.chunks(1000) {
            writer.push(piece, disk);
            assert!(writer.finished_manifest().is_none(), "it is not finished");
            while !writer.has_room() {
                drive(&mut writer, disk);
            }
        }
        writer.finish(disk);
        while writer.is_busy() {
            drive(&mut writer, disk);
        }
        writer.finished_manifest().expect("all is written and flushed")
    }

    fn read(manifest: Manifest, disk: &mut MemoryDisk) -> Result<Vec<u8>, ChunkReadError> {
        let (mut reads, mut out) = (ChunkReads::default(), Vec::new());
        while (out.len() as u64) < manifest.bytes {
            reads.start_read(Purpose::Load, manifest, out.len() as u64, disk);
            while !reads.is_idle() {
                if let Some(Completed::Read { token, buffer, result, .. }) = disk.poll() {
                    reads.on_read_done(token, buffer, result, disk);
                    let chunk = reads.take_chunk().unwrap();
                    assert_eq!(chunk.offset, out.len() as u64);
                    out.extend(chunk.content?);
                }
            }
        }
        Ok(out)
    }

    #[test]
    fn written_snapshot_survives_a_crash() {
        for count in [0, 1, layout().content_bytes(), 100_000] {
            let (stream, mut disk) = (bytes(count), MemoryDisk::new());
            let manifest = write(&stream, 7, &mut disk);
            assert_eq!((manifest.slot, manifest.bytes), (Slot(5), count as u64));
            disk.crash(3);
            let mut disk = disk.reopen_after_crash();
            assert_eq!(read(manifest, &mut disk).as_ref(), Ok(&stream));
            let files = disk.files(Family::Snapshot).unwrap();
            let parts: Vec<_> = manifest.parts().collect();
            assert_eq!(files.iter().map(|info| info.file).collect::<Vec<_>>(), parts);
        }
    }

    /// However much a receiver pushes at once, the disk gets no more than it can take.
    #[test]
    fn writes_in_flight_are_bounded() {
        let layout = ChunkLayout::from_disk(2 * BLOCK as u32, 64).unwrap();
        let (stream, mut disk) = (bytes(40 * layout.content_bytes()), MemoryDisk::new());
        let mut writer = SnapshotWriter::new(Slot(5), layout, 1);
        writer.push(&stream, &mut disk);
        writer.finish(&mut disk);
        let mut most = 0;
        while writer.is_busy() {
            if let Some(completed) = disk.poll() {
                writer.on_completed(completed, &mut disk).unwrap();
            }
            most = most.max(writer.in_flight);
        }
        assert_eq!(most, PENDING_CHUNKS_MAX);
        let manifest = writer.finished_manifest().expect("all is written and flushed");
        assert_eq!(read(manifest, &mut disk).as_ref(), Ok(&stream));
    }

    #[test]
    fn equal_streams_have_equal_digests_in_any_location() {
        let mut disk = MemoryDisk::new();
        let digest = |bytes: &[u8], first, disk: &mut _| write(bytes, first, disk).digest;
        let one = digest(&bytes(50_000), 1, &mut disk);
        assert_eq!(one, digest(&bytes(50_000), 100, &mut disk));
        assert_ne!(one, digest(&bytes(50_001), 200, &mut disk));
    }

    #[test]
    fn chunks_read_out_of_order_are_returned_in_order() {
        let (stream, mut disk) = (bytes(60_000), MemoryDisk::new());
        let manifest = write(&stream, 1, &mut disk);
        let (mut reads, mut end) = (ChunkReads::default(), 0);
        let other = Purpose::Serve(NodeId(7));
        let mut ended = Vec::new();
        for _ in 0..3 {
            end = reads.start_read(Purpose::Load, manifest, end, &mut disk);
        }
        reads.start_read(other, manifest, 50_000, &mut disk);
        while ended.len() < 4 {
            ended.extend(disk.poll());
        }
        let mut taken = Vec::new();
        for completed in ended.into_iter().rev() {
            let Completed::Read { token, buffer, result, .. } = completed else {
                panic!("{completed:?}");
            };
            reads.on_read_done(token, buffer, result, &mut disk);
            let ready: Vec<_> = std::iter::from_fn(|| reads.take_chunk()).collect();
            taken.push(ready.len());
            for chunk in ready {
                let from = chunk.offset as usize;
                let content = chunk.content.unwrap();
                assert_eq!(content, &stream[from..from + content.len()]);
            }
        }
        assert_eq!(taken, [1, 0, 0, 3], "another peer's, and then all of the load's");
        assert!(reads.is_idle());
    }

    #[test]
    fn rotten_chunk_is_detected() {
        let mut disk = MemoryDisk::new();
        let manifest = write(&bytes(100_000), 1, &mut disk);
        let place = layout().chunk_position(1, 4);
        assert!(disk.flip_bit(place.file.position_at(place.offset), 100 * 8));
        let error = read(manifest, &mut disk).unwrap_err();
        assert!(matches!(error, ChunkReadError::Damaged(_)), "{error:?}");
    }
}
