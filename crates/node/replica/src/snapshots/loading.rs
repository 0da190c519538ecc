//! Loading of a snapshot into the service, after a start or after a peer's snapshot has arrived.

use quorate_log::disk::Disk;

use super::{
    header::SnapshotHeader,
    manifest::Manifest,
    reading::{Chunk, ChunkReadError, ChunkReads, Purpose, READS_MAX},
    stream::{Item, ItemDecoder, Malformed, meta_change},
};
use crate::ports::service::{LoadError, MetaChange, Metadata, StateMachine};

pub(crate) struct Loading {
    manifest: Manifest,
    item_decoder: ItemDecoder,
    /// Number of bytes of the stream that have been loaded.
    bytes: u64,
    /// End of the bytes of the stream that are loaded or being read.
    requested_to: u64,
    metadata: Metadata,
    header: bool,
}

/// Reason why a snapshot cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LoadFailure {
    /// The snapshot cannot be read at the moment.
    NotNow,
    /// The snapshot is damaged, so another one is needed.
    Snapshot(String),
    /// The service cannot load the snapshot now.
    Service(String),
}

impl From<Malformed> for LoadFailure {
    fn from(Malformed(what): Malformed) -> Self {
        Self::Snapshot(what.to_owned())
    }
}

impl From<LoadError> for LoadFailure {
    fn from(error: LoadError) -> Self {
        Self::Service(error.to_string())
    }
}

impl Loading {
    /// Starts loading a snapshot. The service drops its current state.
    pub(crate) fn begin_load<S: StateMachine>(
        manifest: Manifest,
        service: &mut S,
    ) -> Result<Self, LoadError> {
        service.begin_load()?;
        Ok(Self {
            manifest,
            item_decoder: ItemDecoder::default(),
            bytes: 0,
            requested_to: 0,
            metadata: Metadata::new(),
            header: false,
        })
    }

    pub(crate) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn read<D: Disk>(&mut self, reads: &mut ChunkReads, disk: &mut D) {
        self.requested_to = self.requested_to.max(self.bytes);
        while self.requested_to < self.manifest.bytes
            && reads.count_reads(|purpose| purpose == Purpose::Load) < READS_MAX
        {
            self.requested_to =
                reads.start_read(Purpose::Load, self.manifest, self.requested_to, disk);
        }
    }

    /// Loads a chunk that was read. Returns the snapshot's metadata once all is loaded.
    pub(crate) fn on_chunk<S: StateMachine>(
        &mut self,
        cluster: u128,
        chunk: Chunk,
        service: &mut S,
    ) -> Result<Option<Metadata>, LoadFailure> {
        if chunk.offset != self.bytes || chunk.manifest != self.manifest {
            return Ok(None);
        }
        let content = chunk.content.map_err(|unread| match unread {
            ChunkReadError::NotNow => {
                // The reads in flight after this chunk are useless.
                self.requested_to = self.bytes;
                LoadFailure::NotNow
            }
            ChunkReadError::Damaged(why) => LoadFailure::Snapshot(why),
        })?;
        let Self { item_decoder: items, metadata: meta, header, manifest, .. } = self;
        items.feed(&content, |item| match item {
            Item::Header(bytes) => {
                let right = |header: &SnapshotHeader| {
                    header.cluster == cluster && header.slot == manifest.slot
                };
                let known = SnapshotHeader::decode(bytes).filter(right);
                *header = known.is_some();
                known.map(drop).ok_or(LoadFailure::Snapshot(
                    "its header is not that of this node's snapshot".to_owned(),
                ))
            }
            Item::Meta(key, value) => {
                meta.push((key.to_vec(), value.to_vec()));
                Ok(())
            }
            Item::Service(bytes) => Ok(service.load(bytes)?),
        })?;
        self.bytes += content.len() as u64;
        if self.bytes < self.manifest.bytes {
            return Ok(None);
        }
        if !self.header || !self.item_decoder.is_between_items() {
            return Err(LoadFailure::Snapshot("it ends in the middle".to_owned()));
        }
        let changes: Vec<MetaChange> =
            self.metadata.iter().map(|(key, value)| meta_change(key, value)).collect();
        service.finish_load(self.manifest.slot, &changes)?;
        Ok(Some(std::mem::take(&mut self.metadata)))
    }
}
