//! A chunk of a stream: the written blocks and their checksums.

use quorate_log::disk::{BLOCK, combine_checksums};

use super::layout::ChunkAddress;

/// Consecutive written blocks within a unit, covered by one checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockSpan {
    /// First block, counted from the start of the chunk.
    pub(super) from: u16,
    /// One past the last block.
    pub(super) end_block: u16,
    pub(super) checksum: u32,
    /// Set while the write of the blocks is in flight. If the write fails, other spans are
    /// unaffected.
    pub(super) is_pending: bool,
    /// Set if the blocks are on stable storage or were recovered at start. Valid once `is_pending`
    /// is false.
    pub(super) is_durable: bool,
}

impl BlockSpan {
    pub(super) fn bytes(&self) -> usize {
        usize::from(self.end_block - self.from) * BLOCK
    }
}

#[derive(Clone, Debug)]
pub(super) struct Chunk {
    pub(super) address: ChunkAddress,
    /// Set if part of the chunk was lost. No more blocks are written to it, because each block is
    /// written only once ([disk-7]).
    pub(super) is_closed: bool,
    /// Spans in order, without overlaps.
    spans: Vec<BlockSpan>,
}

impl Chunk {
    pub(super) fn new(address: ChunkAddress, closed: bool) -> Self {
        Self { address, is_closed: closed, spans: Vec::new() }
    }

    pub(super) fn spans(&self) -> &[BlockSpan] {
        &self.spans
    }

    /// Adds a span. Returns `false` if any of its blocks is already written.
    #[must_use]
    pub(super) fn add_if_free(&mut self, span: BlockSpan) -> bool {
        let at = self.spans.partition_point(|known| known.from < span.from);
        let before = at.checked_sub(1).map(|before| self.spans[before].end_block);
        let free = before.is_none_or(|end| end <= span.from)
            && self.spans.get(at).is_none_or(|next| next.from >= span.end_block);
        if free {
            self.spans.insert(at, span);
        }
        free
    }

    /// Returns whether any block of `span` is already written.
    pub(super) fn overlaps(&self, span: BlockSpan) -> bool {
        let overlaps =
            |known: &BlockSpan| known.from < span.end_block && span.from < known.end_block;
        self.spans.iter().any(overlaps)
    }

    /// Adds a span that exists on disk and removes overlapping ones, unless an existing span
    /// already covers it.
    pub(super) fn replace_overlapping(&mut self, span: BlockSpan) {
        if !self.covers(span) {
            self.spans.retain(|known| known.end_block <= span.from || span.end_block <= known.from);
            assert!(self.add_if_free(span), "nothing is in its way");
        }
    }

    /// Marks the span that starts at block `from` as written, and joins it with its neighbours in
    /// the same unit.
    pub(super) fn mark_written(&mut self, from: u16, unit_blocks: u16) {
        let Some(mut at) = self.spans.iter().position(|span| span.from == from) else {
            return;
        };
        self.spans[at].is_pending = false;
        if at > 0 && self.join_spans(at - 1, unit_blocks) {
            at -= 1;
        }
        self.join_spans(at, unit_blocks);
    }

    /// Joins the span at index `at` with the next one, if they are adjacent and compatible.
    fn join_spans(&mut self, at: usize, unit_blocks: u16) -> bool {
        let Some(&[left, right]) = self.spans.get(at..at + 2) else {
            return false;
        };
        let one_unit = left.from / unit_blocks == (right.end_block - 1) / unit_blocks;
        let written = !left.is_pending && !right.is_pending && left.is_durable == right.is_durable;
        let may = left.end_block == right.from && written && one_unit;
        if may {
            self.spans[at].end_block = right.end_block;
            self.spans[at].checksum =
                combine_checksums(left.checksum, right.checksum, right.bytes());
            self.spans.remove(at + 1);
            if self.spans.len() * 2 < self.spans.capacity() {
                self.spans.shrink_to_fit();
            }
        }
        may
    }

    /// Removes and returns the span that starts at block `from`.
    pub(super) fn remove(&mut self, from: u16) -> Option<BlockSpan> {
        let at = self.spans.iter().position(|span| span.from == from)?;
        Some(self.spans.remove(at))
    }

    /// Returns the span that contains `block`, and the spans that follow it without a gap.
    pub(super) fn spans_from(&self, block: u16) -> &[BlockSpan] {
        let at = self.spans.partition_point(|span| span.end_block <= block);
        let spans = &self.spans[at..];
        if spans.first().is_none_or(|first| first.from > block) {
            return &[];
        }
        let mut end = spans[0].from;
        let count = spans.iter().take_while(|span| {
            let follows = span.from == end && !span.is_pending;
            end = span.end_block;
            follows
        });
        &spans[..count.count()]
    }

    /// Returns whether one span covers all blocks of `span`.
    pub(super) fn covers(&self, span: BlockSpan) -> bool {
        let has = |known: &BlockSpan| known.from <= span.from && span.end_block <= known.end_block;
        self.spans.iter().any(has)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk() -> Chunk {
        Chunk::new(ChunkAddress { file: 1, index: 0 }, false)
    }

    fn span(bytes: &[u8], from: u16) -> BlockSpan {
        BlockSpan {
            from,
            end_block: from + u16::try_from(bytes.len() / BLOCK).unwrap(),
            checksum: crc32c::crc32c(bytes),
            is_pending: true,
            is_durable: false,
        }
    }

    #[test]
    fn adjacent_written_blocks_of_a_unit_share_a_checksum() {
        let bytes: Vec<u8> = (0..8 * BLOCK).map(|at| (at % 251) as u8).collect();
        let mut chunk = chunk();
        for block in [2, 0, 1, 3, 4] {
            let at = usize::from(block) * BLOCK;
            assert!(chunk.add_if_free(span(&bytes[at..at + BLOCK], block)));
        }
        assert!(chunk.spans_from(0).is_empty(), "nothing is written yet");
        for block in [3, 1, 0, 4] {
            chunk.mark_written(block, 4);
        }
        let [first, second, third, fourth] = chunk.spans() else {
            panic!("{chunk:?}");
        };
        assert_eq!((first.from, first.end_block), (0, 2));
        assert_eq!(first.checksum, crc32c::crc32c(&bytes[..2 * BLOCK]));
        assert!(second.is_pending && !third.is_pending && fourth.from == 4);
        assert_eq!(chunk.spans_from(1).len(), 1, "as far as it is written");
        chunk.mark_written(2, 4);
        assert_eq!(chunk.spans().len(), 2, "units are apart");
        assert_eq!(chunk.spans()[0].checksum, crc32c::crc32c(&bytes[..4 * BLOCK]));
        assert_eq!(chunk.spans_from(3).len(), 2);
    }

    #[test]
    fn a_block_is_written_once() {
        let mut chunk = chunk();
        let bytes = [0; 3 * BLOCK];
        assert!(chunk.add_if_free(span(&bytes, 2)));
        for (from, blocks) in [(0, 3), (2, 1), (3, 1), (4, 2)] {
            assert!(!chunk.add_if_free(span(&bytes[..blocks * BLOCK], from)), "{from}");
        }
        assert!(
            chunk.add_if_free(span(&bytes[..2 * BLOCK], 0)) && chunk.add_if_free(span(&bytes, 5))
        );
    }
}
