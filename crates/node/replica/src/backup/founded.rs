//! The initial snapshot of a new cluster of one node, made from a backup ([restore-1]).
//!
//! The service's items are unchanged, except for one that an operator may replace. Everything else
//! is new: the cluster, its only node with an id that the old group never assigned, a configuration
//! in which this node is the only voter, and an era far above the old ones. All sessions end.
//! Session ids are slots, so the new group begins at a slot far above any that the old group can
//! reach: an old session is never mistaken for one of the new group ([session-1]).

use std::{fmt, io::Read, ops::Range};

use quorate_core::{
    ballot::Era,
    configuration::Configuration,
    node_id::{Member, NodeId},
    reconfigure::{Eras, Identity},
    slot::Slot,
    value::StreamName,
};
use quorate_log::disk::Position;
use quorate_stream::Table;
use xxhash_rust::xxh3::Xxh3;

use super::{
    checked::CheckedBackup,
    file::{BackupHeader, BackupReader, BadBackup, ContentKind},
};
use crate::{
    applying::{
        access,
        applier::{DIGEST_KEY, TIME_KEY},
        membership::Membership,
    },
    group::Group,
    snapshots::{
        BaseNote, Manifest,
        header::SnapshotHeader as StreamHeader,
        layout::{self, ChunkHead, ChunkLayout, HEAD_BYTES},
        stream::{Item, ItemDecoder, Malformed},
    },
};

/// Distance between the eras of the old group and the new one ([era-10]).
pub const ERA_DISTANCE: u32 = 1 << 16;
/// Binary logarithm of the number of slots in a group's range: more than a group uses in years.
pub const SLOT_RANGE_BITS: u32 = 40;
/// Number of ranges to choose from at random, so that two groups from one backup differ.
const SLOT_RANGE_COUNT: u128 = 1 << 10;
const FIRST_PART: u64 = 1;

/// Identity of the new cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewGroup {
    /// Id of the cluster, chosen at random.
    pub cluster: u128,
    /// The only node of the cluster.
    pub node: NodeId,
    /// First slot of the node's log.
    pub first_slot: Slot,
    /// Address of the node for peers.
    pub peer: String,
    /// Name of the service's store: the one in the backup, or another that accepts the same items.
    pub store: String,
    /// Service item to replace, and its replacement.
    pub replaced_item: Option<(Vec<u8>, Vec<u8>)>,
    eras: Eras,
}

/// Error for a backup whose group has used up these numbers, so that no cluster can be founded from
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumbersExhausted(&'static str);

impl fmt::Display for NumbersExhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the cluster has used up its {}", self.0)
    }
}

impl std::error::Error for NumbersExhausted {}

impl NewGroup {
    /// Derives the identity of a new cluster from a backup. `cluster` is its random id.
    pub fn from_backup(
        checked: &CheckedBackup,
        cluster: u128,
        peer: &str,
    ) -> Result<Self, NumbersExhausted> {
        let CheckedBackup { header, table, eras, .. } = checked;
        let highest = eras.identities().last().map_or(0, |id| id.node.0);
        let above = highest.checked_add(1).ok_or(NumbersExhausted("node ids"))?;
        let node = header.next_id.max(table.next_id()).max(above);
        // The id after this one is the next to be assigned.
        node.checked_add(1).ok_or(NumbersExhausted("node ids"))?;
        let node = NodeId(node);
        let era = eras.era().0.checked_add(ERA_DISTANCE);
        let at = random_first_slot(header.slot, cluster).ok_or(NumbersExhausted("slots"))?;
        let alone = Configuration::majority_of([Member::first(node.0)], header.class)
            .map_err(|_| NumbersExhausted("configurations"))?;
        let identity =
            Identity { node, incarnation: Member::first(node.0).incarnation, is_removed: false };
        let era = Era(era.ok_or(NumbersExhausted("eras"))?);
        // The preceding era is unused: no ballot of it exists in the new cluster.
        let eras = Eras::restored(era, at, alone.clone(), Some(alone), vec![identity])
            .map_err(|_| NumbersExhausted("eras"))?;
        let (peer, store) = (peer.to_owned(), header.store.clone());
        Ok(Self { cluster, node, first_slot: at, peer, store, replaced_item: None, eras })
    }
}

/// Returns the start of a random range of slots that the old group cannot reach.
fn random_first_slot(old: Slot, cluster: u128) -> Option<Slot> {
    let by_chance = u64::try_from(cluster % SLOT_RANGE_COUNT).ok()?;
    let space = (old.0 >> SLOT_RANGE_BITS).checked_add(2 + by_chance)?;
    let at = space.checked_mul(1 << SLOT_RANGE_BITS)?;
    // At least half of the slots remain for a later restore.
    (at < u64::MAX >> 1).then_some(Slot(at))
}

/// One or more blocks of a part file of the new snapshot.
pub struct PartBlocks<'a> {
    /// File, and position in it, to write to.
    pub position: Position,
    /// Length of the file that contains the bytes.
    pub file_bytes: u64,
    pub bytes: &'a [u8],
}

/// Start of the new node's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLog {
    pub first_slot: Slot,
    /// Encoded note of the replica, stored with the start of the log.
    pub base_note: Vec<u8>,
    /// Header of the backup from which the cluster was founded.
    pub header: BackupHeader,
}

/// Callback that stores bytes of an inner stream, starting at a position.
pub type StoreCallback<'a, E> = dyn FnMut(StreamName, u64, &[u8]) -> Result<(), E> + 'a;

/// Reads the backup a second time, and passes the new snapshot's parts to `write` and the bytes of
/// byte streams to `keep`. The output is valid only if the call succeeds.
///
/// Streams keep their names, inner streams and starts. The new group's nodes have other ids than
/// the owners of the inner streams, so no name is used twice ([value-2]).
pub fn create_log<R: Read, E: From<BadBackup>>(
    from: R,
    checked: &CheckedBackup,
    group: &NewGroup,
    write: &mut dyn FnMut(PartBlocks<'_>) -> Result<(), E>,
    keep: &mut StoreCallback<'_, E>,
) -> Result<NewLog, E> {
    let mut reader = BackupReader::open(from)?;
    let mut cutter = ChunkCutter::new(group.first_slot);
    let mut bytes = Vec::new();
    let header =
        StreamHeader { cluster: group.cluster, slot: group.first_slot, eras: group.eras.clone() };
    Item::Header(&header.encode()).encode(&mut bytes);
    // The digests that nodes of the new group compare start from here.
    Item::Meta(DIGEST_KEY, &0_u64.to_le_bytes()).encode(&mut bytes);
    // [level-10] The retained data may require the old group's level.
    let table = Group::founded([(group.node, group.peer.clone())]).with_level(checked.level());
    let (key, value) = Membership::new(table, group.eras.clone()).encode_entry();
    Item::Meta(&key, &value).encode(&mut bytes);
    cutter.push(&bytes, write)?;
    let closed = checked.stream_table.clone().map(Table::with_all_closed);
    for (key, value) in closed.iter().flat_map(Table::all_rows) {
        bytes.clear();
        Item::Meta(&key, &value).encode(&mut bytes);
        cutter.push(&bytes, write)?;
    }
    let mut kept = closed.iter().flat_map(Table::retained_ranges);
    let mut current = None;
    let (mut items, mut content) = (ItemDecoder::default(), Vec::new());
    let summary = loop {
        match reader.read_next(&mut content)? {
            ContentKind::End(summary) => break summary,
            ContentKind::Streams => {
                assign_bytes(&content, &mut current, &mut kept, keep)?
                    .ok_or_else(|| reader.damage_error("it changed while it was read"))?;
                continue;
            }
            ContentKind::Snapshot => {}
        }
        bytes.clear();
        let fed: Result<(), Malformed> = items.feed(&content, |item| {
            match item {
                Item::Service(own) => {
                    let other = group.replaced_item.as_ref().filter(|(old, _)| old == own);
                    Item::Service(other.map_or(own, |(_, new)| new.as_slice())).encode(&mut bytes);
                }
                // The old access rules stay in force: only the old users may access the data.
                Item::Meta(key, _) if key == access::USERS_KEY => item.encode(&mut bytes),
                // [time-1] Deadlines that have passed in the old group remain passed here.
                Item::Meta(key, _) if key == TIME_KEY => item.encode(&mut bytes),
                Item::Meta(..) | Item::Header(_) => {}
            }
            Ok(())
        });
        fed.map_err(|Malformed(what)| reader.damage_error(what))?;
        cutter.push(&bytes, write)?;
    };
    if summary != checked.summary || *reader.header() != checked.header {
        return Err(reader.damage_error("it changed while it was read").into());
    }
    let manifest = cutter.finish(write)?;
    let note = BaseNote { is_hollow: false, eras: group.eras.clone(), snapshot: Some(manifest) };
    Ok(NewLog {
        first_slot: group.first_slot,
        base_note: note.encode(),
        header: checked.header.clone(),
    })
}

/// Assigns bytes of byte streams to the retained ranges, in order; `None` if some are left over.
fn assign_bytes<E>(
    mut bytes: &[u8],
    current: &mut Option<(StreamName, Range<u64>)>,
    kept: &mut dyn Iterator<Item = (StreamName, Range<u64>)>,
    keep: &mut StoreCallback<'_, E>,
) -> Result<Option<()>, E> {
    while !bytes.is_empty() {
        let Some((stream, range)) = current.as_mut().filter(|(_, range)| !range.is_empty()) else {
            *current = kept.next();
            match current {
                Some(_) => continue,
                None => return Ok(None),
            }
        };
        let left = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let (now, behind) = bytes.split_at(bytes.len().min(left));
        keep(*stream, range.start, now)?;
        range.start += now.len() as u64;
        bytes = behind;
    }
    Ok(Some(()))
}

/// Splits a stream into sealed chunks.
struct ChunkCutter {
    at: Slot,
    bytes: u64,
    digest: Xxh3,
    chunk: Vec<u8>,
    chunk_bytes_used: usize,
}

impl ChunkCutter {
    const LAYOUT: ChunkLayout = ChunkLayout::DEFAULT;

    fn new(at: Slot) -> Self {
        Self {
            at,
            bytes: 0,
            digest: Xxh3::new(),
            chunk: vec![0; Self::LAYOUT.chunk_bytes as usize],
            chunk_bytes_used: 0,
        }
    }

    fn push<E>(
        &mut self,
        mut bytes: &[u8],
        write: &mut dyn FnMut(PartBlocks<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.digest.update(bytes);
        while !bytes.is_empty() {
            let taken = bytes.len().min(Self::LAYOUT.content_bytes() - self.chunk_bytes_used);
            let (now, rest) = bytes.split_at(taken);
            let from = HEAD_BYTES + self.chunk_bytes_used;
            self.chunk[from..from + taken].copy_from_slice(now);
            (self.chunk_bytes_used, bytes) = (self.chunk_bytes_used + taken, rest);
            self.bytes += taken as u64;
            if self.chunk_bytes_used == Self::LAYOUT.content_bytes() {
                self.seal(write)?;
            }
        }
        Ok(())
    }

    fn seal<E>(&mut self, write: &mut dyn FnMut(PartBlocks<'_>) -> Result<(), E>) -> Result<(), E> {
        if self.chunk_bytes_used == 0 {
            return Ok(());
        }
        let offset = self.bytes - self.chunk_bytes_used as u64;
        let head = ChunkHead { slot: self.at, offset, first_part: FIRST_PART };
        let blocks = layout::seal_chunk(head, &mut self.chunk, self.chunk_bytes_used);
        let (chunk, _) = Self::LAYOUT.chunk_at(offset);
        write(PartBlocks {
            position: Self::LAYOUT.chunk_position(FIRST_PART, chunk),
            file_bytes: Self::LAYOUT.part_bytes(),
            bytes: &self.chunk[..blocks],
        })?;
        self.chunk_bytes_used = 0;
        Ok(())
    }

    fn finish<E>(
        mut self,
        write: &mut dyn FnMut(PartBlocks<'_>) -> Result<(), E>,
    ) -> Result<Manifest, E> {
        self.seal(write)?;
        Ok(Manifest {
            slot: self.at,
            layout: Self::LAYOUT,
            first_part: FIRST_PART,
            bytes: self.bytes,
            digest: self.digest.digest128(),
        })
    }
}
