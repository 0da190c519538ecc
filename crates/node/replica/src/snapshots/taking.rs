//! A snapshot of this node that is being written: its metadata, and the service's image.

use std::collections::VecDeque;

use quorate_log::disk::Disk;

use super::{header::SnapshotHeader, layout::ChunkLayout, stream::Item, writing::SnapshotWriter};
use crate::ports::service::{Imaged, Metadata, StateMachine};

/// Approximate number of bytes of an image requested at a time.
const STEP_BYTES: usize = 64 << 10;

/// A snapshot that is being taken.
pub(crate) struct SnapshotInProgress {
    pub(crate) writer: SnapshotWriter,
    /// Metadata of the replica as of the snapshot's start.
    meta: VecDeque<(Vec<u8>, Vec<u8>)>,
    is_imaged: bool,
    scratch: Vec<u8>,
}

/// Error returned if the service could not continue its image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImageFailed;

impl SnapshotInProgress {
    /// Creates the state with the metadata `meta`, after the service has started its image.
    pub(crate) fn new(
        header: &SnapshotHeader,
        meta: Metadata,
        layout: ChunkLayout,
        first_part: u64,
    ) -> Self {
        let mut scratch = Vec::with_capacity(STEP_BYTES);
        Item::Header(&header.encode()).encode(&mut scratch);
        Self {
            writer: SnapshotWriter::new(header.slot, layout, first_part),
            meta: meta.into(),
            is_imaged: false,
            scratch,
        }
    }

    /// Writes the next items. Returns the number of bytes written.
    pub(crate) fn write_next_items<D: Disk, S: StateMachine>(
        &mut self,
        service: &mut S,
        disk: &mut D,
    ) -> Result<usize, ImageFailed> {
        while self.scratch.len() < STEP_BYTES
            && let Some((key, value)) = self.meta.pop_front()
        {
            Item::Meta(&key, &value).encode(&mut self.scratch);
        }
        let left = STEP_BYTES.saturating_sub(self.scratch.len());
        if left > 0 && !self.is_imaged {
            let scratch = &mut self.scratch;
            let step = service.next_image(left, &mut |item| Item::Service(item).encode(scratch));
            match step {
                Imaged::More => {}
                Imaged::End => self.is_imaged = true,
                Imaged::Failed => return Err(ImageFailed),
            }
        }
        let bytes = self.scratch.len();
        self.writer.push(&self.scratch, disk);
        self.scratch.clear();
        if self.is_imaged {
            self.writer.finish(disk);
        }
        Ok(bytes)
    }

    /// Returns whether all items have been passed to the writer.
    pub(crate) fn is_imaged(&self) -> bool {
        self.is_imaged
    }
}
