//! Data stored on the disk in memory, and the parts of it that a crash may still change.

use std::collections::BTreeMap;

use super::{CrashFates, to_usize};
use crate::disk::{BLOCK, CrashReport, Family, FileId, Position, SECTOR};

/// Stored files, and the changes in doubt.
#[derive(Clone, Debug, Default)]
pub(super) struct Stored {
    files: BTreeMap<FileId, Contents>,
    unsettled_writes: Vec<UnsettledWrite>,
    next_doubt: u64,
    /// Renames that the next crash may undo because the folder was not synced, as pairs of new and
    /// old name.
    unsynced_renames: Vec<(FileId, FileId)>,
}

/// Contents of a file. Blocks that were never written read as zeros and take no memory.
#[derive(Clone, Debug, Default)]
struct Contents {
    bytes: u64,
    blocks: BTreeMap<u64, Box<[u8]>>,
}

/// A completed write that the next crash may undo.
#[derive(Clone, Debug)]
struct UnsettledWrite {
    /// Sequence number of the write. A flush covers the writes with numbers below its mark.
    number: u64,
    at: Position,
    old_bytes: Vec<u8>,
    /// The write waits for a later flush, so it may be lost as a whole.
    awaits_flush: bool,
}

impl Stored {
    pub(super) fn create(&mut self, file: FileId, bytes: u64) {
        let blocks = BTreeMap::new();
        self.files.insert(file, Contents { bytes, blocks });
    }

    /// Removes a file. Returns false if it does not exist.
    pub(super) fn remove(&mut self, file: FileId) -> bool {
        self.unsettled_writes.retain(|doubt| doubt.at.file != file);
        self.files.remove(&file).is_some()
    }

    /// Renames a file, along with its writes in doubt. Replaces any file that has the new name.
    pub(super) fn rename(&mut self, from: FileId, to: FileId) {
        if !self.files.contains_key(&from) {
            return;
        }
        self.remove(to);
        if let Some(contents) = self.files.remove(&from) {
            self.files.insert(to, contents);
        }
        for doubt in &mut self.unsettled_writes {
            if doubt.at.file == from {
                doubt.at.file = to;
            }
        }
    }

    /// Renames a file. Until the folder is synced, a crash may undo the rename.
    pub(super) fn rename_in_doubt(&mut self, from: FileId, to: FileId) {
        self.rename(from, to);
        self.unsynced_renames.push((to, from));
    }

    pub(super) fn sync_names(&mut self, family: Family) {
        self.unsynced_renames.retain(|(to, _)| to.family != family);
    }

    /// Settles renames after a crash. Undoes the latest ones, newest first, and keeps all earlier
    /// ones, because a folder changes in order.
    fn settle_names(&mut self, fates: &mut dyn CrashFates) {
        while let Some((to, from)) = self.unsynced_renames.last().copied() {
            if fates.choose(2) == 1 {
                return;
            }
            self.unsynced_renames.pop();
            self.rename(to, from);
        }
    }

    pub(super) fn size(&self, file: FileId) -> Option<u64> {
        Some(self.files.get(&file)?.bytes)
    }

    pub(super) fn sizes(&self) -> impl Iterator<Item = (FileId, u64)> {
        self.files.iter().map(|(file, contents)| (*file, contents.bytes))
    }

    pub(super) fn written_blocks(&self) -> impl Iterator<Item = Position> {
        let blocks = |(file, contents): (&FileId, &Contents)| {
            let file = *file;
            let at = move |block: &u64| file.position_at(block * BLOCK as u64);
            contents.blocks.keys().map(at).collect::<Vec<_>>()
        };
        self.files.iter().flat_map(blocks)
    }

    /// Flips a bit. Returns false if its block was never written.
    pub(super) fn flip_bit(&mut self, at: Position, bit: u64) -> bool {
        let place = at.offset + bit / 8;
        let contents = self.files.get_mut(&at.file);
        let block = contents.and_then(|contents| contents.blocks.get_mut(&(place / BLOCK as u64)));
        let Some(block) = block else {
            return false;
        };
        block[to_usize(place % BLOCK as u64)] ^= 1 << (bit % 8);
        true
    }

    pub(super) fn read(&self, at: Position, bytes: usize) -> Vec<u8> {
        let mut out = vec![0; bytes];
        let Some(contents) = self.files.get(&at.file) else {
            return out;
        };
        let first = at.offset / BLOCK as u64;
        for (index, chunk) in (first..).zip(out.chunks_mut(BLOCK)) {
            if let Some(block) = contents.blocks.get(&index) {
                chunk.copy_from_slice(&block[..chunk.len()]);
            }
        }
        out
    }

    /// Writes bytes starting at a block boundary. Bytes past the end of the file are dropped.
    pub(super) fn write(&mut self, at: Position, bytes: &[u8]) {
        let Some(contents) = self.files.get_mut(&at.file) else {
            return;
        };
        let first = at.offset / BLOCK as u64;
        for (index, chunk) in (first..contents.bytes / BLOCK as u64).zip(bytes.chunks(BLOCK)) {
            let block = contents.blocks.entry(index).or_insert_with(|| vec![0; BLOCK].into());
            block[..chunk.len()].copy_from_slice(chunk);
        }
    }

    /// Writes some sectors and drops others.
    pub(super) fn write_torn(&mut self, at: Position, bytes: &[u8], fates: &mut dyn CrashFates) {
        let mut mixed = self.read(at, bytes.len());
        let sectors = bytes.len().div_ceil(SECTOR);
        let pairs = mixed.chunks_mut(SECTOR).zip(bytes.chunks(SECTOR));
        for (sector, (old, new)) in pairs.enumerate() {
            if fates.is_sector_stored(sector, sectors) {
                old.copy_from_slice(new);
            }
        }
        self.write(at, &mixed);
    }

    /// Writes bytes that are durable at once, and ends doubts about their range.
    pub(super) fn write_durably(&mut self, at: Position, bytes: &[u8]) {
        self.write(at, bytes);
        let end = at.offset + bytes.len() as u64;
        self.unsettled_writes.retain(|doubt| {
            let before = doubt.at.offset + doubt.old_bytes.len() as u64 <= at.offset;
            doubt.at.file != at.file || before || end <= doubt.at.offset
        });
    }

    /// Writes bytes that the next crash may lose: some of their sectors, or all if they wait for a
    /// `later` flush.
    pub(super) fn write_in_doubt(&mut self, at: Position, bytes: &[u8], later: bool) {
        let old = self.read(at, bytes.len());
        self.write(at, bytes);
        self.add_doubt(at, old, later);
    }

    fn add_doubt(&mut self, at: Position, old: Vec<u8>, later: bool) {
        let number = self.next_doubt;
        self.next_doubt += 1;
        self.unsettled_writes.push(UnsettledWrite {
            number,
            at,
            old_bytes: old,
            awaits_flush: later,
        });
    }

    /// Returns the mark for a flush that starts now. The flush covers the writes below the mark.
    pub(super) fn next_flush_mark(&self) -> u64 {
        self.next_doubt
    }

    /// Makes the covered writes to a file durable.
    pub(super) fn flush(&mut self, file: FileId, covers: u64) {
        self.unsettled_writes.retain(|doubt| doubt.at.file != file || doubt.number >= covers);
    }

    /// Leaves the covered writes permanently in doubt, because the kernel drops them after a failed
    /// flush.
    pub(super) fn fail_flush(&mut self, file: FileId, covers: u64) {
        for doubt in &mut self.unsettled_writes {
            if doubt.at.file == file && doubt.number < covers {
                doubt.number = u64::MAX;
            }
        }
    }

    /// Settles completed writes in doubt, and then `writes`, which were in flight.
    pub(super) fn crash(
        &mut self,
        writes: impl Iterator<Item = (Position, Vec<u8>)>,
        fates: &mut dyn CrashFates,
    ) -> CrashReport {
        let mut report = CrashReport::default();
        for doubt in std::mem::take(&mut self.unsettled_writes).into_iter().rev() {
            self.settle_doubt(doubt, fates);
        }
        self.unsettled_writes.reverse();
        for (at, new) in writes {
            let old = self.read(at, new.len());
            match fates.choose(3) {
                0 => {
                    report.lost_writes += 1;
                    continue;
                }
                1 => {
                    self.write_torn(at, &new, fates);
                    report.torn_writes += 1;
                }
                _ => {
                    self.write(at, &new);
                    report.kept_writes += 1;
                }
            }
            self.add_doubt(at, old, false);
        }
        self.settle_names(fates);
        report
    }

    fn settle_doubt(&mut self, doubt: UnsettledWrite, fates: &mut dyn CrashFates) {
        let UnsettledWrite { at, old_bytes: old, awaits_flush: later, .. } = doubt;
        match (later, fates.choose(if later { 3 } else { 2 })) {
            (false, 0) => self.write_torn(at, &old, fates),
            (false, _) => {}
            (true, 0) => self.write(at, &old),
            (true, choice) => {
                if choice == 1 {
                    self.write_torn(at, &old, fates);
                }
                // The contents still wait for a flush.
                self.add_doubt(at, old, true);
            }
        }
    }
}
