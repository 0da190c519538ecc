//! Scrub of this node's snapshot, one chunk at a time.

use quorate_log::disk::Disk;

use super::{
    super::{
        Snapshots,
        reading::{Chunk, ChunkReadError, Purpose},
    },
    around::ReplicaParts,
};
use crate::ports::service::StateMachine;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChunkScrub {
    /// The chunk is intact. The number is its length in bytes.
    Sound(u64),
    /// The chunk could not be read now.
    NotNow,
    /// The chunk is damaged, for this reason, so the whole snapshot is dropped.
    Damaged(String),
    /// This node no longer has the snapshot.
    Gone,
}

impl Snapshots {
    /// Starts reading the chunk at `offset` of this node's snapshot. Returns `false` if there is no
    /// snapshot or it ends before the offset.
    pub(crate) fn start_chunk_scrub<D: Disk>(&mut self, offset: u64, disk: &mut D) -> bool {
        if self.reads.count_reads(|purpose| purpose == Purpose::Scrub) > 0
            || self.scrubbed.is_some()
        {
            return true;
        }
        let Some(own) = self.own_snapshot.filter(|own| offset < own.bytes) else {
            return false;
        };
        self.reads.start_read(Purpose::Scrub, own, offset, disk);
        true
    }

    /// Takes the result of the last chunk, if it has been read.
    pub(crate) fn take_scrubbed(&mut self) -> Option<ChunkScrub> {
        self.scrubbed.take()
    }

    /// Returns whether this node still lacks a snapshot that replaces a damaged one.
    pub(crate) fn lacks_snapshot(&self) -> bool {
        self.own_snapshot.is_none()
            && (self.needed_from.is_some() || self.job.is_some() || self.base_switch.is_some())
    }

    /// Rewrites the damaged base of the log. Returns `false` if that is impossible: the base of an
    /// auxiliary that has forgotten earlier slots has other content.
    pub(crate) fn rewrite_base<D: Disk, S: StateMachine>(
        &mut self,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) -> bool {
        if around.protocol.node().is_hollow() {
            return false;
        }
        // If a new base is already being written, it will be intact.
        if self.base_switch.is_none() {
            let start = around.log().start();
            self.begin_rebase(start, self.own_snapshot, None, around);
        }
        true
    }

    pub(super) fn on_chunk_scrubbed<D: Disk, S: StateMachine>(
        &mut self,
        chunk: Chunk,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        let own = self.own_snapshot == Some(chunk.manifest);
        self.scrubbed = Some(match chunk.content {
            _ if !own => ChunkScrub::Gone,
            Ok(content) => ChunkScrub::Sound(content.len() as u64),
            Err(ChunkReadError::NotNow) => ChunkScrub::NotNow,
            Err(ChunkReadError::Damaged(why)) => {
                self.on_own_damaged(chunk.manifest, &why, around);
                ChunkScrub::Damaged(why)
            }
        });
    }
}
