//! Backups made from data outside any cluster. A new cluster is founded from them as usual.
//!
//! The source is read twice, and must return the same items each time: the header of a backup
//! contains the total length, so a first pass computes it.

use std::io::{self, Read};

use quorate_core::{
    class::Class,
    configuration::Configuration,
    node_id::{Member, NodeId},
    reconfigure::Eras,
    slot::Slot,
};
use xxhash_rust::xxh3::Xxh3;

use super::file::{BackupEncoder, BackupHeader};
use crate::{
    applying::membership::Membership,
    group::Group,
    snapshots::{header::SnapshotHeader as StreamHeader, stream::Item},
};

/// Only member of the fictitious cluster that the backup claims to be from.
const FICTITIOUS_NODE: NodeId = NodeId(1);
/// Approximate number of bytes encoded at a time.
const PIECE_BYTES: usize = 256 << 10;

/// Source of the items of a service's image.
pub trait ImageSource {
    /// Restarts from the first item.
    fn rewind(&mut self);

    /// Replaces the content of `item` with the next item. Returns whether there was one.
    ///
    /// # Errors
    /// The item cannot be read.
    fn next(&mut self, item: &mut Vec<u8>) -> io::Result<bool>;
}

/// A backup whose data comes from a source other than a node.
pub struct ImportedBackup<S> {
    header: BackupHeader,
    /// Bytes of the snapshot's stream before the service's items.
    stream_head: Vec<u8>,
    source: S,
}

impl<S: ImageSource> ImportedBackup<S> {
    /// Creates a backup of the source's items for store `store`. `cluster` is a random id.
    ///
    /// # Errors
    /// The source failed.
    pub fn new(mut source: S, store: &str, class: Class, cluster: u128) -> io::Result<Self> {
        let alone = Configuration::majority_of([Member::first(FICTITIOUS_NODE.0)], class);
        let eras = Eras::founded(alone.expect("one node is a configuration"));
        let slot = Slot(Slot::FIRST.0 + 1);
        let of = StreamHeader { cluster, slot, eras: eras.clone() };
        let mut head = Vec::new();
        Item::Header(&of.encode()).encode(&mut head);
        let table = Group::founded([(FICTITIOUS_NODE, String::new())]);
        let next_id = table.next_id();
        let era = eras.era();
        let (key, value) = Membership::new(table, eras).encode_entry();
        Item::Meta(&key, &value).encode(&mut head);
        let (mut hash, mut bytes) = (Xxh3::new(), head.len() as u64);
        hash.update(&head);
        let (mut item, mut encoded) = (Vec::new(), Vec::new());
        source.rewind();
        while source.next(&mut item)? {
            encoded.clear();
            Item::Service(&item).encode(&mut encoded);
            hash.update(&encoded);
            bytes += encoded.len() as u64;
        }
        Ok(Self {
            header: BackupHeader {
                cluster,
                slot,
                era,
                next_id,
                class,
                store: store.to_owned(),
                bytes,
                digest: hash.digest128(),
                stream_bytes: None,
            },
            stream_head: head,
            source,
        })
    }

    /// Returns a reader of the backup, starting at the first byte.
    pub fn read(&mut self) -> impl Read {
        self.source.rewind();
        let (encoder, piece) = BackupEncoder::begin(&self.header);
        ImportReader {
            source: &mut self.source,
            unsplit_content: self.stream_head.clone(),
            encoder: Some(encoder),
            item: Vec::new(),
            piece,
            consumed_bytes: 0,
        }
    }
}

/// Reader of the backup's bytes.
struct ImportReader<'s, S> {
    source: &'s mut S,
    /// Encoded bytes of the stream that are not yet split into chunks.
    unsplit_content: Vec<u8>,
    encoder: Option<BackupEncoder>,
    item: Vec<u8>,
    piece: Vec<u8>,
    consumed_bytes: usize,
}

impl<S: ImageSource> ImportReader<'_, S> {
    /// Returns the next bytes; empty at the end.
    fn next_piece(&mut self) -> io::Result<Vec<u8>> {
        while self.encoder.is_some() && self.unsplit_content.len() < PIECE_BYTES {
            if !self.source.next(&mut self.item)? {
                break;
            }
            Item::Service(&self.item).encode(&mut self.unsplit_content);
        }
        let Some(encoder) = &mut self.encoder else {
            return Ok(Vec::new());
        };
        if self.unsplit_content.is_empty() {
            let encoder = self.encoder.take();
            return Ok(encoder.map_or_else(Vec::new, |encoder| encoder.finish().1));
        }
        let piece = encoder.encode_chunks(&self.unsplit_content);
        self.unsplit_content.clear();
        Ok(piece)
    }
}

impl<S: ImageSource> Read for ImportReader<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.consumed_bytes == self.piece.len() {
            (self.piece, self.consumed_bytes) = (self.next_piece()?, 0);
        }
        let count = buffer.len().min(self.piece.len() - self.consumed_bytes);
        buffer[..count]
            .copy_from_slice(&self.piece[self.consumed_bytes..self.consumed_bytes + count]);
        self.consumed_bytes += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::check_backup;

    /// Source of items with the given lengths.
    struct Lengths(Vec<usize>, usize);

    impl ImageSource for Lengths {
        fn rewind(&mut self) {
            self.1 = 0;
        }

        fn next(&mut self, item: &mut Vec<u8>) -> io::Result<bool> {
            let Some(length) = self.0.get(self.1) else {
                return Ok(false);
            };
            *item = vec![self.1 as u8; *length];
            self.1 += 1;
            Ok(true)
        }
    }

    #[test]
    fn imported_backup_is_valid_on_every_read() {
        let lengths = vec![0, 5, 3 << 20, PIECE_BYTES, PIECE_BYTES - 5, 1];
        let source = Lengths(lengths.clone(), 0);
        let mut brought = ImportedBackup::new(source, "lsm", Class::Durable, 7).unwrap();
        let mut read = || {
            let mut found = Vec::new();
            let checked = check_backup(
                brought.read(),
                &mut |_, item| {
                    found.push(item.to_vec());
                    Ok(())
                },
                &mut |_, _| {},
            );
            let expected = lengths.iter().enumerate();
            let expected: Vec<_> = expected.map(|(at, length)| vec![at as u8; *length]).collect();
            assert!(found == expected);
            checked.unwrap()
        };
        let first = read();
        assert_eq!(first.summary, read().summary);
        assert_eq!((first.header.next_id, first.stream_count), (2, 0));
    }

    #[test]
    fn backup_with_only_a_header_is_valid() {
        let source = Lengths(Vec::new(), 0);
        let mut brought = ImportedBackup::new(source, "memory", Class::Volatile, 9).unwrap();
        let checked = check_backup(brought.read(), &mut |_, _| Ok(()), &mut |_, _| {});
        assert_eq!(checked.unwrap().header.class, Class::Volatile);
    }
}
