//! Reads chunks of a snapshot back from its parts, and checks them.

use quorate_core::node_id::NodeId;
use quorate_disk::{Buffer, Disk, DiskError};

use super::{
    layout::{Head, open},
    manifest::Manifest,
};

/// What a read is for: of each kind, one is in flight at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The service takes the snapshot in.
    Load,
    /// A peer is sent what lies there.
    Serve(NodeId),
    /// What an earlier process received is looked at.
    Resume,
}

/// A read in flight.
#[derive(Debug)]
struct Open {
    token: u64,
    purpose: Purpose,
    manifest: Manifest,
    chunk: u64,
}

/// A chunk that was read.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// What it was read for.
    pub(crate) purpose: Purpose,
    /// Of which snapshot.
    pub(crate) manifest: Manifest,
    /// Where its content begins in the stream.
    pub(crate) offset: u64,
    /// What it holds; or why nobody knows.
    pub(crate) content: Result<Vec<u8>, Unread>,
}

/// Why there are no bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// They cannot be had now, for want of descriptors: nothing is known of them.
    NotNow,
    /// They are damaged, as far as anybody can know.
    Damaged(String),
}

/// Reads in flight.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    next: u64,
    open: Vec<Open>,
}

impl Reads {
    /// Whether a read of this kind is in flight.
    pub(crate) fn has(&self, wanted: impl Fn(Purpose) -> bool) -> bool {
        self.open.iter().any(|open| wanted(open.purpose))
    }

    /// Whether nothing is being read.
    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// Reads the chunk that holds this place of the stream.
    pub(crate) fn start<D: Disk>(
        &mut self,
        purpose: Purpose,
        manifest: Manifest,
        offset: u64,
        disk: &mut D,
    ) {
        let (chunk, begins) = manifest.layout.chunk_at(offset);
        let used = (manifest.bytes - begins).min(manifest.layout.content_bytes() as u64);
        let used = usize::try_from(used).expect("a chunk fits in memory");
        let bytes = super::layout::blocks(used);
        let (token, at) = (self.next, manifest.layout.place(manifest.first_part, chunk));
        self.next += 1;
        self.open.push(Open {
            token,
            purpose,
            manifest,
            chunk,
        });
        let buffer = disk.allocate(bytes);
        disk.start_read(token, at, buffer, bytes);
    }

    /// A read ended.
    pub(crate) fn ended<D: Disk>(
        &mut self,
        token: u64,
        buffer: Buffer,
        result: Result<(), DiskError>,
        disk: &mut D,
    ) -> Option<Chunk> {
        let at = self.open.iter().position(|open| open.token == token)?;
        let Open {
            purpose,
            manifest,
            chunk,
            ..
        } = self.open.swap_remove(at);
        let offset = chunk * manifest.layout.content_bytes() as u64;
        let head = Head {
            at: manifest.at,
            offset,
            first_part: manifest.first_part,
        };
        let content = match result {
            Err(error) if error.lack.is_some() => Err(Unread::NotNow),
            Err(error) => Err(Unread::Damaged(error.to_string())),
            Ok(()) => match open(head, &buffer) {
                Some(content) => Ok(content.to_vec()),
                None => {
                    let place = manifest.layout.place(manifest.first_part, chunk);
                    Err(Unread::Damaged(format!("{place}: the chunk is damaged")))
                }
            },
        };
        disk.release(buffer);
        Some(Chunk {
            purpose,
            manifest,
            offset,
            content,
        })
    }
}
