//! A peer's snapshot while it is being received. The data is on disk and survives a restart.

use quorate_core::slot::Slot;
use quorate_log::disk::Disk;

use super::{
    fetching::SnapshotId,
    header::SnapshotHeader,
    layout::ChunkLayout,
    manifest::Manifest,
    stream::{Item, ItemDecoder, Malformed},
    writing::SnapshotWriter,
};
use crate::fields::Fields;

/// Name of the small file that contains the state of the transfer.
pub(crate) const TRANSFER_STATE_FILE: &str = "incoming";
const FORMAT: u16 = 1;
/// Maximum number of bytes waiting for the disk: a window of the sender, the bytes that were
/// waiting when the window was requested, and as much again for a sender with a larger window.
const BACKLOG_BYTES_MAX: u64 = 10 << 20;

pub(crate) struct Receiving {
    pub(crate) target: SnapshotId,
    pub(crate) writer: SnapshotWriter,
    layout: ChunkLayout,
    first_part: u64,
    item_decoder: ItemDecoder,
    header: Option<SnapshotHeader>,
}

/// Error returned if data does not match the offer, or is not a snapshot of this group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrongContent(pub(crate) &'static str);

impl From<Malformed> for WrongContent {
    fn from(Malformed(what): Malformed) -> Self {
        Self(what)
    }
}

impl Receiving {
    /// Creates the state without received bytes.
    pub(crate) fn new(target: SnapshotId, layout: ChunkLayout, first_part: u64) -> Self {
        Self {
            target,
            writer: SnapshotWriter::new(target.slot, layout, first_part),
            layout,
            first_part,
            item_decoder: ItemDecoder::default(),
            header: None,
        }
    }

    /// Returns whether more bytes can be accepted. The sender is at most a window ahead.
    pub(crate) fn has_room(&self) -> bool {
        self.writer.backlog_bytes() < BACKLOG_BYTES_MAX
    }

    /// Encodes the small file with the state of the transfer.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = FORMAT.to_be_bytes().to_vec();
        self.as_manifest().encode(&mut out);
        let sum = quorate_wire::checksum(&out);
        out.extend_from_slice(&sum.to_be_bytes());
        out
    }

    /// Decodes the state of a transfer that an earlier process started. Returns `None` if the
    /// transfer cannot be continued.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (bytes, sum) = bytes.split_last_chunk()?;
        if quorate_wire::checksum(bytes) != u32::from_be_bytes(*sum) {
            return None;
        }
        let mut fields = Fields(bytes);
        if fields.u16()? != FORMAT {
            return None;
        }
        let Manifest { slot: at, layout, first_part, bytes, digest } =
            Manifest::decode(&mut fields)?;
        let target = SnapshotId { slot: at, digest, bytes };
        Some(Self::new(target, layout, first_part))
    }

    /// Returns the manifest that the snapshot will have when it is complete.
    pub(crate) fn as_manifest(&self) -> Manifest {
        Manifest {
            slot: self.target.slot,
            layout: self.layout,
            first_part: self.first_part,
            bytes: self.target.bytes,
            digest: self.target.digest,
        }
    }

    /// Adds the content of a chunk that an earlier process received.
    pub(crate) fn add_received(
        &mut self,
        cluster: u128,
        content: &[u8],
    ) -> Result<(), WrongContent> {
        self.check_bytes(cluster, content)?;
        self.writer.add_existing(content);
        Ok(())
    }

    /// Writes the next bytes of the stream.
    pub(crate) fn push<D: Disk>(
        &mut self,
        cluster: u128,
        bytes: &[u8],
        disk: &mut D,
    ) -> Result<(), WrongContent> {
        let left = self.target.bytes - self.writer.bytes();
        if bytes.len() as u64 > left {
            return Err(WrongContent("it is longer than it was said to be"));
        }
        self.check_bytes(cluster, bytes)?;
        self.writer.push(bytes, disk);
        if self.writer.bytes() == self.target.bytes {
            self.writer.finish(disk);
        }
        Ok(())
    }

    /// Checks bytes from a peer; peers are not trusted. The stream must begin with a valid header.
    fn check_bytes(&mut self, cluster: u128, bytes: &[u8]) -> Result<(), WrongContent> {
        let (at, known) = (self.target.slot, &mut self.header);
        self.item_decoder.feed(bytes, |item| match (item, &known) {
            (Item::Header(bytes), None) => {
                let header = SnapshotHeader::decode(bytes)
                    .ok_or(WrongContent("its header makes no sense"))?;
                check_header(&header, cluster, at)?;
                *known = Some(header);
                Ok(())
            }
            (Item::Header(_), Some(_)) => Err(WrongContent("it has two headers")),
            (_, None) => Err(WrongContent("it does not begin with a header")),
            (Item::Meta(..) | Item::Service(_), Some(_)) => Ok(()),
        })
    }

    /// Returns the received snapshot once it is durable, or an error if it is not the one offered.
    pub(crate) fn received_snapshot(
        &self,
    ) -> Option<Result<(Manifest, SnapshotHeader), WrongContent>> {
        let manifest = self.writer.finished_manifest()?;
        if manifest.digest != self.target.digest || !self.item_decoder.is_between_items() {
            return Some(Err(WrongContent("its digest is another than was offered")));
        }
        let header = self.header.clone();
        Some(header.map_or(Err(WrongContent("it is empty")), |header| Ok((manifest, header))))
    }
}

fn check_header(header: &SnapshotHeader, cluster: u128, at: Slot) -> Result<(), WrongContent> {
    if header.cluster != cluster {
        return Err(WrongContent("it is of another cluster"));
    }
    if header.slot != at {
        return Err(WrongContent("it is of another slot than was offered"));
    }
    Ok(())
}
