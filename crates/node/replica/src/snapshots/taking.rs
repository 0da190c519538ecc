//! This node's own snapshot while it is written: the state fixed at its beginning, and the
//! service's image.

use std::collections::VecDeque;

use quorate_log::disk::Disk;

use super::{header::Header, layout::Layout, stream::Item, writing::Writer};
use crate::service::{Imaged, Metadata, StateMachine};

/// Bytes of an image that are asked for at a time.
const STEP_BYTES: usize = 64 << 10;

/// A snapshot that is being taken.
pub(crate) struct Taking {
    pub(crate) writer: Writer,
    /// The replica's own part of the state, as it was at the beginning.
    meta: VecDeque<(Vec<u8>, Vec<u8>)>,
    imaged: bool,
    scratch: Vec<u8>,
}

/// The service could not go on with its image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImageFailed;

impl Taking {
    /// Starts with the service's image, which has begun; `meta` belongs to it.
    pub(crate) fn new(header: &Header, meta: Metadata, layout: Layout, first_part: u64) -> Self {
        let mut scratch = Vec::with_capacity(STEP_BYTES);
        Item::Header(&header.encode()).encode(&mut scratch);
        Self {
            writer: Writer::new(header.at, layout, first_part),
            meta: meta.into(),
            imaged: false,
            scratch,
        }
    }

    /// Continues by a step. Returns the number of bytes added.
    pub(crate) fn step<D: Disk, S: StateMachine>(
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
        if left > 0 && !self.imaged {
            let scratch = &mut self.scratch;
            let step = service.next_image(left, &mut |item| Item::Service(item).encode(scratch));
            match step {
                Imaged::More => {}
                Imaged::End => self.imaged = true,
                Imaged::Failed => return Err(ImageFailed),
            }
        }
        let bytes = self.scratch.len();
        self.writer.push(&self.scratch, disk);
        self.scratch.clear();
        if self.imaged {
            self.writer.finish(disk);
        }
        Ok(bytes)
    }

    /// Returns whether all of it was handed to the disk.
    pub(crate) fn is_imaged(&self) -> bool {
        self.imaged
    }
}
