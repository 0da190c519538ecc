//! State of one stream: bytes gathered in memory, whole blocks in flight, and chunks on disk.

use std::{collections::BTreeMap, ops::Range};

use quorate_log::disk::BLOCK;

use super::{
    chunk::{BlockSpan, Chunk},
    layout::{ChunkAddress, Layout, POSITION_MAX},
    ranges::Ranges,
    spares::{CutBlocks, UnitBuffers},
};

const BLOCK_BYTES: u64 = BLOCK as u64;

/// State of one stream.
///
/// Invariant: each stored byte is in exactly one place: gathered in a run, in a cut that waits for
/// a chunk, or in a span of a chunk, whose write may still be in flight.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// First position that is not dropped.
    retained_from: u64,
    held_ranges: Ranges,
    /// Bytes that are not written yet, by position. A run is within one unit, and two runs in a
    /// unit never touch.
    unwritten_runs: BTreeMap<u64, Vec<u8>>,
    /// Size of the whole blocks within runs, in bytes.
    gathered_bytes: usize,
    /// Whole blocks that have no chunk yet, by position.
    waiting_cuts: BTreeMap<u64, CutBlocks>,
    /// Chunks by index within the stream and by attempt. If part of a chunk was lost, another
    /// attempt stores the bytes that are put again.
    chunks: BTreeMap<(u64, u32), Chunk>,
}

/// Bytes that were removed from memory because a claim found them on disk.
#[derive(Debug, Default)]
pub(super) struct FreedBytes {
    /// Size of the removed whole blocks that were waiting for a chunk.
    pub(super) cut_bytes: usize,
    /// Bytes that were removed only because they shared a run or a cut with the claimed ones. They
    /// must be put again.
    pub(super) displaced_bytes: Vec<(u64, Vec<u8>)>,
}

/// Location of a stored byte.
pub(super) enum ByteLocation<'a> {
    Missing,
    /// The byte is in memory. The slice starts with it.
    Memory(&'a [u8]),
    Pending,
    /// The byte is on disk, in the chunk at this address. The first of the consecutive spans
    /// contains it.
    Disk(ChunkAddress, &'a [BlockSpan]),
}

impl Stream {
    /// Creates a stream listed in a catalogue. Its chunks and bytes are added afterwards.
    pub(super) fn from_catalogue(kept_from: u64) -> Self {
        Self { retained_from: kept_from, ..Self::default() }
    }

    pub(super) fn retained_from(&self) -> u64 {
        self.retained_from
    }

    pub(super) fn held_ranges(&self) -> &Ranges {
        &self.held_ranges
    }

    /// Returns the size of the gathered whole blocks, in bytes.
    pub(super) fn gathered_bytes(&self) -> usize {
        self.gathered_bytes
    }

    pub(super) fn chunks(&self) -> impl ExactSizeIterator<Item = (&(u64, u32), &Chunk)> {
        self.chunks.iter()
    }

    /// Returns the bytes that are only in memory, which a catalogue has to contain. Excludes zeros
    /// that pad a block.
    pub(super) fn memory_only_bytes(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let cuts = self.waiting_cuts.iter().map(|(position, cut)| {
            let dropped = self.dropped_bytes_from(*position);
            (*position + dropped as u64, &cut.buffer[dropped..cut.bytes])
        });
        let runs = self.unwritten_runs.iter().map(|(position, run)| (*position, &**run));
        runs.chain(cuts)
    }

    /// Returns how many bytes at or after `position` are below the first retained position.
    fn dropped_bytes_from(&self, position: u64) -> usize {
        let dropped = self.retained_from.saturating_sub(position);
        usize::try_from(dropped).expect("of a block")
    }

    /// Adds bytes, skipping those that are already stored or no longer retained. Passes complete
    /// units to `cut`.
    pub(super) fn add_bytes(
        &mut self,
        position: u64,
        bytes: &[u8],
        layout: Layout,
        spares: &mut UnitBuffers,
        mut cut: impl FnMut(u64, CutBlocks),
    ) {
        let end = position.checked_add(bytes.len() as u64);
        let Some(end) = end.filter(|end| *end <= POSITION_MAX) else {
            return;
        };
        let mut range = position.max(self.retained_from)..end;
        while let Some(part) = self.held_ranges.first_missing(range.clone()) {
            range.start = part.end;
            self.held_ranges.insert(part.clone());
            let of = |at: u64| usize::try_from(at - position).expect("within the bytes");
            let mut from = part.start;
            while from < part.end {
                let unit = from - from % layout.unit_bytes_u64();
                let to = part.end.min(unit + layout.unit_bytes_u64());
                let piece = &bytes[of(from)..of(to)];
                if piece.len() as u64 == layout.unit_bytes_u64() {
                    cut(from, spares.copy_blocks(piece));
                } else {
                    self.gather_bytes(
                        from,
                        piece,
                        unit..unit + layout.unit_bytes_u64(),
                        spares,
                        &mut cut,
                    );
                }
                from = to;
            }
        }
    }

    fn gather_bytes(
        &mut self,
        position: u64,
        bytes: &[u8],
        unit: Range<u64>,
        spares: &mut UnitBuffers,
        cut: &mut impl FnMut(u64, CutBlocks),
    ) {
        let mut start = position;
        let before = self.unwritten_runs.range_mut(unit.start..position).next_back();
        let before = before.filter(|(at, run)| **at + run.len() as u64 == position);
        if let Some((at, run)) = before {
            start = *at;
            self.gathered_bytes -= whole_blocks(self.retained_from, start, run.len()).1;
            run.extend_from_slice(bytes);
        } else {
            self.unwritten_runs.insert(position, bytes.to_vec());
        }
        let end = position + bytes.len() as u64;
        if end < unit.end
            && let Some(next) = self.unwritten_runs.remove(&end)
        {
            self.gathered_bytes -= whole_blocks(self.retained_from, end, next.len()).1;
            let run = self.unwritten_runs.get_mut(&start).expect("just extended");
            run.extend_from_slice(&next);
        }
        let length = self.unwritten_runs[&start].len();
        self.gathered_bytes += whole_blocks(self.retained_from, start, length).1;
        if start + length as u64 == unit.end {
            self.cut_run_blocks(start, spares, cut);
        }
    }

    /// Cuts the whole blocks out of all runs.
    pub(super) fn cut_all_blocks(
        &mut self,
        spares: &mut UnitBuffers,
        mut cut: impl FnMut(u64, CutBlocks),
    ) {
        let starts: Vec<u64> = self.unwritten_runs.keys().copied().collect();
        for start in starts {
            self.cut_run_blocks(start, spares, &mut cut);
        }
    }

    /// Cuts the whole blocks out of a run. Less than a block remains at each end.
    fn cut_run_blocks(
        &mut self,
        start: u64,
        spares: &mut UnitBuffers,
        cut: &mut impl FnMut(u64, CutBlocks),
    ) {
        let length = self.unwritten_runs[&start].len();
        let (from, bytes) = whole_blocks(self.retained_from, start, length);
        if bytes == 0 {
            return;
        }
        let run = self.unwritten_runs.remove(&start).expect("just looked at");
        self.gathered_bytes -= bytes;
        let to = from + bytes as u64;
        // The part of the first block that is no longer retained is replaced by zeros.
        let zeros = usize::try_from(start.saturating_sub(from)).expect("less than a block");
        let skipped = usize::try_from(from.saturating_sub(start)).expect("less than a block");
        let (head, rest) = run.split_at(skipped);
        let (middle, tail) = rest.split_at(bytes - zeros);
        cut(from, spares.cut_after_zeros(zeros, middle));
        if !head.is_empty() {
            self.unwritten_runs.insert(start, head.to_vec());
        }
        if !tail.is_empty() {
            self.unwritten_runs.insert(to, tail.to_vec());
        }
    }

    /// Marks bytes as stored. The caller ensures that they are in exactly one place.
    pub(super) fn mark_stored(&mut self, range: Range<u64>) {
        self.held_ranges.insert(range);
    }

    /// Removes bytes from memory. Bytes that shared a run or a cut with them are no longer stored.
    pub(super) fn take_from_memory(&mut self, range: Range<u64>) -> FreedBytes {
        let mut freed = FreedBytes::default();
        let within =
            |start: u64, length: usize| start < range.end && start + length as u64 > range.start;
        let runs =
            self.unwritten_runs.extract_if(..range.end, |start, run| within(*start, run.len()));
        let mut taken: Vec<(u64, Vec<u8>)> = runs.collect();
        for (start, run) in &taken {
            self.gathered_bytes -= whole_blocks(self.retained_from, *start, run.len()).1;
        }
        let cuts =
            self.waiting_cuts.extract_if(..range.end, |start, cut| within(*start, cut.bytes));
        for (start, cut) in cuts.collect::<Vec<_>>() {
            let dropped = self.dropped_bytes_from(start);
            freed.cut_bytes += cut.bytes;
            taken.push((start + dropped as u64, cut.buffer[dropped..cut.bytes].to_vec()));
        }
        for (start, bytes) in taken {
            let end = start + bytes.len() as u64;
            self.held_ranges.remove(start..end);
            let at = |position: u64| {
                usize::try_from(position.clamp(start, end) - start).expect("of a unit")
            };
            let (before, behind) = (&bytes[..at(range.start)], &bytes[at(range.end)..]);
            if !before.is_empty() {
                freed.displaced_bytes.push((start, before.to_vec()));
            }
            if !behind.is_empty() {
                freed.displaced_bytes.push((range.end, behind.to_vec()));
            }
        }
        freed
    }

    pub(super) fn address_of(&self, key: (u64, u32)) -> Option<ChunkAddress> {
        self.chunks.get(&key).map(|chunk| chunk.address)
    }

    pub(super) fn chunk_of(&mut self, key: (u64, u32)) -> Option<&mut Chunk> {
        self.chunks.get_mut(&key)
    }

    pub(super) fn claim_chunk(&mut self, key: (u64, u32), address: ChunkAddress) {
        self.chunks.insert(key, Chunk::new(address, false));
    }

    /// Removes a chunk that turned out to belong to another stream, with all its bytes.
    pub(super) fn disown_chunk(&mut self, key: (u64, u32), layout: Layout) {
        if let Some(chunk) = self.chunks.remove(&key) {
            for span in chunk.spans() {
                let range = self.positions(key.0, span, layout);
                self.held_ranges.remove(range);
            }
        }
    }

    pub(super) fn queue_blocks(&mut self, position: u64, cut: CutBlocks) {
        let other = self.waiting_cuts.insert(position, cut);
        assert!(other.is_none(), "a block is cut once, at {position}");
    }

    /// Removes and returns the cut at a position if it has this id.
    pub(super) fn take_cut(&mut self, position: u64, id: u64) -> Option<CutBlocks> {
        self.waiting_cuts.get(&position).filter(|cut| cut.id == id)?;
        self.waiting_cuts.remove(&position)
    }

    /// Returns whether the cut `id` waits at `position`.
    pub(super) fn has_cut(&self, position: u64, id: u64) -> bool {
        self.waiting_cuts.get(&position).is_some_and(|cut| cut.id == id)
    }

    /// Returns the chunk that currently accepts blocks of this part of the stream.
    pub(super) fn accepting_chunk(&mut self, part: u64) -> Option<&mut Chunk> {
        let (_, chunk) = self.chunks_of_part_mut(part).next_back()?;
        (!chunk.is_closed).then_some(chunk)
    }

    /// Adds a chunk for a part of the stream, after its existing chunks.
    pub(super) fn add_chunk(&mut self, part: u64, address: ChunkAddress) -> &mut Chunk {
        let last = self.chunks_of_part(part).last();
        let attempt = last.map_or(0, |((_, attempt), _)| attempt + 1);
        let chunk = Chunk::new(address, false);
        self.chunks.entry((part, attempt)).or_insert(chunk)
    }

    /// Adds a chunk listed in a catalogue. Returns `false` if its key is in use or some of its
    /// bytes are already stored.
    #[must_use]
    pub(super) fn restore_chunk(&mut self, key: (u64, u32), chunk: Chunk, layout: Layout) -> bool {
        let mut all_new = !self.chunks.contains_key(&key);
        for span in chunk.spans() {
            let range = self.positions(key.0, span, layout);
            let missing = self.held_ranges.first_missing(range.clone());
            all_new &= range.is_empty() || missing == Some(range.clone());
            self.held_ranges.insert(range);
        }
        self.chunks.insert(key, chunk);
        all_new
    }

    pub(super) fn chunks_of_part(&self, part: u64) -> impl Iterator<Item = (&(u64, u32), &Chunk)> {
        self.chunks.range((part, 0)..=(part, u32::MAX))
    }

    fn chunks_of_part_mut(
        &mut self,
        part: u64,
    ) -> impl DoubleEndedIterator<Item = (&(u64, u32), &mut Chunk)> {
        self.chunks.range_mut((part, 0)..=(part, u32::MAX))
    }

    /// Returns whether one span of the chunk at `address` covers all blocks of `span`.
    pub(super) fn chunk_covers(&self, part: u64, address: ChunkAddress, span: BlockSpan) -> bool {
        self.chunks_of_part(part).any(|(_, chunk)| chunk.address == address && chunk.covers(span))
    }

    pub(super) fn chunk_at(&mut self, part: u64, address: ChunkAddress) -> Option<&mut Chunk> {
        let mut chunks = self.chunks_of_part_mut(part).map(|(_, chunk)| chunk);
        chunks.find(|chunk| chunk.address == address)
    }

    /// Returns the positions of a span that are still retained.
    pub(super) fn positions(&self, part: u64, span: &BlockSpan, layout: Layout) -> Range<u64> {
        let at = |block: u16| part * layout.chunk_bytes_u64() + u64::from(block) * BLOCK_BYTES;
        let to = at(span.end_block);
        at(span.from).max(self.retained_from).min(to)..to
    }

    /// Returns where the byte at a position is stored.
    pub(super) fn locate_byte(&self, position: u64, layout: Layout) -> ByteLocation<'_> {
        if !self.held_ranges.contains(position) {
            return ByteLocation::Missing;
        }
        let here = |start: u64| usize::try_from(position - start).expect("within a unit");
        if let Some((start, run)) = self.unwritten_runs.range(..=position).next_back()
            && position - start < run.len() as u64
        {
            return ByteLocation::Memory(&run[here(*start)..]);
        }
        if let Some((start, cut)) = self.waiting_cuts.range(..=position).next_back()
            && position - start < cut.bytes as u64
        {
            return ByteLocation::Memory(&cut.buffer[here(*start)..cut.bytes]);
        }
        let part = position / layout.chunk_bytes_u64();
        let block = layout.block_in_chunk(position);
        for (_, chunk) in self.chunks_of_part(part) {
            let spans = chunk.spans_from(block);
            if !spans.is_empty() {
                return ByteLocation::Disk(chunk.address, spans);
            }
        }
        ByteLocation::Pending
    }

    /// Returns the blocks of a failed write to memory, where they can be read. Part of them may be
    /// durable as the tail of a catalogue. Returns `false` if they are no longer needed.
    pub(super) fn return_to_memory(
        &mut self,
        part: u64,
        address: ChunkAddress,
        from: u16,
        cut: CutBlocks,
        layout: Layout,
    ) -> bool {
        let chunk = self.chunk_at(part, address);
        let needed = chunk.and_then(|chunk| chunk.remove(from)).is_some();
        if needed {
            self.queue_blocks(part * layout.chunk_bytes_u64() + u64::from(from) * BLOCK_BYTES, cut);
        }
        needed
    }

    /// Drops bytes on disk, along with all bytes that share a checksum with them. Returns the
    /// chunks that became empty.
    pub(super) fn drop_damaged(&mut self, range: Range<u64>, layout: Layout) -> Vec<ChunkAddress> {
        let mut lost = Vec::new();
        let first = (range.start / layout.chunk_bytes_u64(), 0);
        let concerned = self.chunks.range(first..);
        let concerned =
            concerned.take_while(|((part, _), _)| part * layout.chunk_bytes_u64() < range.end);
        for (key, chunk) in concerned {
            for span in chunk.spans().iter().filter(|span| !span.is_pending) {
                let positions = self.positions(key.0, span, layout);
                if positions.start < range.end && range.start < positions.end {
                    lost.push((*key, span.from, positions));
                }
            }
        }
        let mut empty = Vec::new();
        for (key, from, positions) in lost {
            self.held_ranges.remove(positions);
            let chunk = self.chunks.get_mut(&key).expect("just looked at");
            chunk.is_closed = true;
            chunk.remove(from);
            if chunk.spans().is_empty() {
                empty.extend(self.chunks.remove(&key).map(|chunk| chunk.address));
            }
        }
        empty
    }

    /// Drops everything below `position`. Returns the chunks that are no longer needed, and the
    /// total size of the dropped cuts.
    pub(super) fn drop_below(
        &mut self,
        position: u64,
        layout: Layout,
    ) -> (Vec<ChunkAddress>, usize) {
        if position <= self.retained_from {
            return (Vec::new(), 0);
        }
        self.retained_from = position;
        self.held_ranges.remove(0..position);
        let kept = self.unwritten_runs.split_off(&position);
        let below = std::mem::replace(&mut self.unwritten_runs, kept);
        if let Some((start, run)) = below.into_iter().next_back() {
            let end = start + run.len() as u64;
            if end > position {
                let left = usize::try_from(end - position).expect("of a run");
                self.unwritten_runs.insert(position, run[run.len() - left..].to_vec());
            }
        }
        let length = |(start, run): (&u64, &Vec<u8>)| whole_blocks(position, *start, run.len()).1;
        self.gathered_bytes = self.unwritten_runs.iter().map(length).sum();
        let useless = self
            .waiting_cuts
            .extract_if(..position, |start, cut| start + cut.bytes as u64 <= position);
        let bytes = useless.map(|(_, cut)| cut.bytes).sum();
        let below = |(part, _): &(u64, u32), _: &mut Chunk| {
            (part + 1) * layout.chunk_bytes_u64() <= position
        };
        let end = (position / layout.chunk_bytes_u64() + 1, 0);
        let chunks = self.chunks.extract_if(..end, below);
        (chunks.map(|(_, chunk)| chunk.address).collect(), bytes)
    }

    /// Drops everything at or after `position`, because the stream ends there. Returns the chunks
    /// that are no longer needed, and the total size of the dropped cuts.
    pub(super) fn drop_above(
        &mut self,
        position: u64,
        layout: Layout,
    ) -> (Vec<ChunkAddress>, usize) {
        self.held_ranges.remove(position..u64::MAX);
        self.unwritten_runs.split_off(&position);
        if let Some((start, run)) = self.unwritten_runs.iter_mut().next_back() {
            let left = usize::try_from(position - start).unwrap_or(usize::MAX);
            run.truncate(left);
        }
        let length =
            |(start, run): (&u64, &Vec<u8>)| whole_blocks(self.retained_from, *start, run.len()).1;
        self.gathered_bytes = self.unwritten_runs.iter().map(length).sum();
        let useless = self.waiting_cuts.split_off(&position);
        let bytes = useless.values().map(|cut| cut.bytes).sum();
        let first = (position.div_ceil(layout.chunk_bytes_u64()), 0);
        let chunks = self.chunks.split_off(&first);
        let addresses = chunks.into_values().map(|chunk| chunk.address);
        (addresses.collect(), bytes)
    }

    /// Returns the stream's chunks and the total size of its cuts.
    pub(super) fn into_chunks(self) -> (Vec<ChunkAddress>, usize) {
        let chunks = self.chunks.into_values().map(|chunk| chunk.address);
        let bytes = self.waiting_cuts.values().map(|cut| cut.bytes).sum();
        (chunks.collect(), bytes)
    }
}

/// Returns the start and the size of the whole blocks in a run. The block in which the retained
/// part begins counts as whole.
fn whole_blocks(kept_from: u64, start: u64, length: usize) -> (u64, usize) {
    let end = start + length as u64;
    let from = if start == kept_from {
        start - start % BLOCK_BYTES
    } else {
        start.next_multiple_of(BLOCK_BYTES)
    };
    let to = end - end % BLOCK_BYTES;
    let bytes = to.saturating_sub(from);
    (from, usize::try_from(bytes).expect("of a unit"))
}
