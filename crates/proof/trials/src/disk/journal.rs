//! Writes that the disk accepted but has not made durable, and their state after a power cut.

use std::{fs::File, io, ops::Range, os::unix::fs::FileExt as _};

use quorate_core::dice::Dice;

/// Bytes that a disk writes atomically.
const SECTOR_BYTES: usize = 512;

/// A write that was applied to the file, with the bytes that it replaced.
#[derive(Clone, Debug)]
pub(crate) struct JournaledWrite {
    /// Inode number of the file.
    pub(crate) inode: u64,
    pub(crate) offset: u64,
    pub(crate) new: Vec<u8>,
    old_bytes: Vec<u8>,
    /// Length of the file before the write, in bytes.
    old_len: u64,
    /// Set once the disk has reported the write as durable.
    pub(crate) is_durable: bool,
    /// Set if faults apply to the write's file.
    pub(crate) is_chosen: bool,
}

/// Effect of a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PowerCutEffect {
    /// All writes are kept, as when a process is killed.
    Nothing,
    /// The first sectors of one unflushed write are kept, and no later write.
    Torn,
    /// One unflushed write is lost, and a later one is kept.
    Reordered,
    /// A write that the disk reported as durable is lost.
    LostOne,
    /// All writes after some point are lost, including those reported as durable.
    LostTail,
}

/// All writes that a power cut could undo, in the order of writing.
#[derive(Debug, Default)]
pub(crate) struct WriteJournal(Vec<JournaledWrite>);

impl WriteJournal {
    /// Writes to a file and records how to undo the write.
    pub(crate) fn write(
        &mut self,
        open: &File,
        file: u64,
        offset: u64,
        new: &[u8],
        chosen: bool,
    ) -> io::Result<()> {
        let old_len = open.metadata()?.len();
        let there = old_len.saturating_sub(offset).min(new.len() as u64);
        let mut old = vec![0; usize::try_from(there).unwrap_or(0)];
        open.read_exact_at(&mut old, offset)?;
        open.write_all_at(new, offset)?;
        self.0.push(JournaledWrite {
            inode: file,
            offset,
            new: new.to_vec(),
            old_bytes: old,
            old_len,
            is_durable: false,
            is_chosen: chosen,
        });
        Ok(())
    }

    /// Marks the last write as durable. Drops it if no older write to its file is left in the
    /// journal, unless the disk lies about durability.
    pub(crate) fn mark_last_durable(&mut self, lies: bool) {
        let Some((last, older)) = self.0.split_last_mut() else {
            return;
        };
        last.is_durable = true;
        let alone = older.iter().all(|write| write.inode != last.inode);
        if alone && !(lies && last.is_chosen) {
            self.0.pop();
        }
    }

    /// Marks all writes to a file as durable.
    pub(crate) fn flush(&mut self, file: u64, lies: bool) {
        self.0.retain_mut(|write| {
            let of_file = write.inode == file;
            write.is_durable |= of_file;
            !of_file || lies && write.is_chosen
        });
    }

    /// Forgets the writes to a removed file.
    pub(crate) fn forget_file(&mut self, file: u64) {
        self.0.retain(|write| write.inode != file);
    }

    /// Drops the writes to files that have no unflushed writes left, so that no later cut undoes
    /// them.
    pub(crate) fn forget_durable(&mut self) {
        let open: Vec<u64> = self.open().map(|write| write.inode).collect();
        self.0.retain(|write| open.contains(&write.inode));
    }

    fn open(&self) -> impl Iterator<Item = &JournaledWrite> {
        self.0.iter().filter(|write| !write.is_durable)
    }

    /// Returns whether a write to a chosen file is not durable yet.
    pub(crate) fn has_pending_write(&self, file: u64) -> bool {
        self.open().any(|write| write.is_chosen && write.inode == file)
    }

    /// Returns the number of writes that this kind of cut could undo.
    pub(crate) fn undoable_count(&self, cut: PowerCutEffect) -> usize {
        self.undoable_writes(cut).len()
    }

    fn undoable_writes(&self, cut: PowerCutEffect) -> Vec<usize> {
        let takes = |write: &JournaledWrite| match cut {
            PowerCutEffect::Nothing => false,
            PowerCutEffect::Torn | PowerCutEffect::Reordered => {
                write.is_chosen && !write.is_durable
            }
            PowerCutEffect::LostOne | PowerCutEffect::LostTail => write.is_chosen,
        };
        (0..self.0.len()).filter(|at| takes(&self.0[*at])).collect()
    }

    /// Draws the bytes of each write that are kept.
    fn surviving_ranges(&self, cut: PowerCutEffect, dice: &mut Dice) -> Vec<Range<usize>> {
        let mut kept: Vec<_> = self.0.iter().map(|write| 0..write.new.len()).collect();
        let places = self.undoable_writes(cut);
        if places.is_empty() {
            return kept;
        }
        let first = dice.index(places.len());
        let at = places[first];
        let split = split_offset(self.0[at].new.len(), dice);
        match cut {
            PowerCutEffect::Nothing => {}
            PowerCutEffect::LostOne => kept[at] = 0..0,
            PowerCutEffect::LostTail => places[first..].iter().for_each(|at| kept[*at] = 0..0),
            PowerCutEffect::Torn => {
                places[first..].iter().for_each(|at| kept[*at] = 0..0);
                kept[at] = 0..split;
            }
            // The sectors of a single write are also unordered.
            PowerCutEffect::Reordered if places.len() == 1 => kept[at] = split..kept[at].end,
            PowerCutEffect::Reordered => {
                let (last, older) = places.split_last().unwrap_or((&at, &[]));
                let lost = older[first.min(older.len() - 1)];
                for at in older {
                    if *at == lost || *at != *last && dice.chance(1, 3) {
                        kept[*at] = 0..0;
                    }
                }
            }
        }
        kept
    }

    /// Cuts the power. Undoes each write, opening its file by its number, and redoes the part that
    /// is kept. Returns descriptions of the lost writes.
    pub(crate) fn cut_power(
        &mut self,
        cut: PowerCutEffect,
        dice: &mut Dice,
        open: impl Fn(u64) -> Option<(File, String)>,
    ) -> io::Result<Vec<String>> {
        let kept = self.surviving_ranges(cut, dice);
        let writes = std::mem::take(&mut self.0);
        let mut files: Vec<u64> = writes.iter().map(|write| write.inode).collect();
        files.sort_unstable();
        files.dedup();
        let mut lost = Vec::new();
        for (number, (file, name)) in
            files.into_iter().filter_map(|number| Some((number, open(number)?)))
        {
            let of_file = || {
                let all = writes.iter().zip(&kept);
                all.filter(|(write, _)| write.inode == number)
            };
            if of_file().all(|(write, kept)| *kept == (0..write.new.len())) {
                continue;
            }
            let all: Vec<_> = of_file().collect();
            for (write, _) in all.iter().rev() {
                write.undo(&file)?;
            }
            for (write, kept) in all {
                let from = write.offset + kept.start as u64;
                file.write_all_at(&write.new[kept.clone()], from)?;
                let bytes = write.new.len();
                if *kept != (0..bytes) {
                    let kept = kept.len();
                    let what = format!("{name} at {}: {kept} of {bytes} bytes kept", write.offset);
                    lost.push(what);
                }
            }
        }
        Ok(lost)
    }
}

impl JournaledWrite {
    fn undo(&self, file: &File) -> io::Result<()> {
        file.write_all_at(&self.old_bytes, self.offset)?;
        let end = self.offset + self.new.len() as u64;
        if end > self.old_len && file.metadata()?.len() == end {
            file.set_len(self.old_len)?;
        }
        Ok(())
    }
}

/// Returns an offset within `bytes` bytes, at a sector boundary if there is one.
fn split_offset(bytes: usize, dice: &mut Dice) -> usize {
    match bytes.div_ceil(SECTOR_BYTES) {
        0 => 0,
        1 => dice.index(bytes),
        sectors => SECTOR_BYTES * (1 + dice.index(sectors - 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: u64 = 7;

    /// Makes three consecutive writes of 1 KiB, of `a`, `b` and `c`, cuts the power and returns the
    /// remaining content.
    fn left(cut: PowerCutEffect, flushed: bool, lies: bool, seed: u64) -> (String, usize) {
        let file = tempfile::tempfile().unwrap();
        let mut journal = WriteJournal::default();
        for (at, letter) in (0..).zip([b'a', b'b', b'c']) {
            let bytes = [letter; 1024];
            journal.write(&file, FILE, at * 1024, &bytes, true).unwrap();
        }
        if flushed {
            journal.flush(FILE, lies);
        }
        let open = |number| {
            assert_eq!(number, FILE);
            Some((file.try_clone().unwrap(), "f".to_owned()))
        };
        let lost = journal.cut_power(cut, &mut Dice::new(seed), open).unwrap();
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let sectors = bytes.chunks(SECTOR_BYTES).map(|sector| match sector[0] {
            0 => '.',
            letter => char::from(letter),
        });
        (sectors.collect(), lost.len())
    }

    fn all(cut: PowerCutEffect, flushed: bool, lies: bool) -> Vec<String> {
        let mut all: Vec<_> = (1..200).map(|seed| left(cut, flushed, lies, seed).0).collect();
        all.sort();
        all.dedup();
        all
    }

    #[test]
    fn torn_write_keeps_its_first_sectors_and_loses_later_writes() {
        assert_eq!(all(PowerCutEffect::Torn, false, false), ["a", "aab", "aabbc"]);
    }

    #[test]
    fn reordering_loses_earlier_writes_and_keeps_later_ones() {
        assert_eq!(all(PowerCutEffect::Reordered, false, false), ["....cc", "..bbcc", "aa..cc"]);
    }

    #[test]
    fn flushed_bytes_survive_unless_the_disk_lies() {
        for cut in [
            PowerCutEffect::Torn,
            PowerCutEffect::Reordered,
            PowerCutEffect::LostOne,
            PowerCutEffect::LostTail,
        ] {
            assert_eq!(all(cut, true, false), ["aabbcc"]);
        }
        assert_eq!(all(PowerCutEffect::Torn, true, true), ["aabbcc"]);
        assert_eq!(all(PowerCutEffect::LostOne, true, true), ["..bbcc", "aa..cc", "aabb"]);
        assert_eq!(all(PowerCutEffect::LostTail, true, true), ["", "aa", "aabb"]);
    }

    #[test]
    fn a_kill_loses_nothing() {
        assert_eq!(left(PowerCutEffect::Nothing, false, false, 1), ("aabbcc".to_owned(), 0));
    }
}
