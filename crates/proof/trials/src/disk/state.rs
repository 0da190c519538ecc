//! Disk faults: those requested, the files that they apply to, and those injected so far.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use fuser::{Errno, ReplyEmpty, ReplyWrite};
use quorate_core::dice::Dice;

use super::{
    files::FileTable,
    journal::{PowerCutEffect, WriteJournal},
    names::NameJournal,
    sizes::SizeJournal,
};

/// Size of a block, which careful programs read and write as a whole.
const BLOCK_BYTES: u64 = 4096;
/// Name of lock files, whose content is irrelevant.
const LOCK_FILE: &str = "lock";

/// Requests whose replies are withheld until the power cut.
enum WithheldRequest {
    Write { file: u64, offset: u64, bytes: Vec<u8>, reply: ReplyWrite },
    Flush(ReplyEmpty),
}

/// Files of the disk, and the faults that apply to them.
pub(crate) struct FaultyDisk {
    pub(crate) files: FileTable,
    pub(crate) journal: WriteJournal,
    pub(crate) names: NameJournal,
    pub(crate) sizes: SizeJournal,
    /// Prefixes of the names of files that faults apply to.
    chosen_prefixes: Vec<String>,
    /// Effect of the next power cut on writes.
    next_cut_effect: PowerCutEffect,
    /// Set if the next power cut also undoes names and sizes.
    cut_undoes_names: bool,
    /// Set if flushes are acknowledged but not done.
    fakes_flushes: bool,
    /// Number of writes to misdirect.
    writes_to_misdirect: u32,
    /// Set while writes to the chosen files stay unanswered.
    withholds_replies: bool,
    withheld: Vec<WithheldRequest>,
    dice: Dice,
    /// Descriptions of the injected faults.
    pub(crate) injected_faults: Vec<String>,
}

impl FaultyDisk {
    pub(crate) fn new(root: &Path) -> io::Result<Self> {
        Ok(Self {
            files: FileTable::new(root),
            journal: WriteJournal::default(),
            names: NameJournal::new(root)?,
            sizes: SizeJournal::default(),
            chosen_prefixes: Vec::new(),
            next_cut_effect: PowerCutEffect::Nothing,
            cut_undoes_names: false,
            fakes_flushes: false,
            writes_to_misdirect: 0,
            withholds_replies: false,
            withheld: Vec::new(),
            dice: Dice::new(1),
            injected_faults: Vec::new(),
        })
    }

    /// Starts injecting this fault.
    pub(crate) fn arm_fault(&mut self, fault: &str, chosen: &str, seed: u64) -> Result<(), String> {
        let (cut, lies, astray) = match fault {
            "torn" => (PowerCutEffect::Torn, false, 0),
            "reordered" => (PowerCutEffect::Reordered, false, 0),
            "lost-one" => (PowerCutEffect::LostOne, true, 0),
            "lost-tail" => (PowerCutEffect::LostTail, true, 0),
            "misdirected" => (PowerCutEffect::Nothing, false, 1),
            "lost-names" => (PowerCutEffect::Nothing, false, 0),
            other => return Err(format!("no such fault: {other}")),
        };
        self.chosen_prefixes = chosen.split(',').map(str::to_owned).collect();
        (self.next_cut_effect, self.fakes_flushes, self.writes_to_misdirect) = (cut, lies, astray);
        self.cut_undoes_names = fault == "lost-names";
        self.dice = Dice::new(seed);
        Ok(())
    }

    /// Returns the number of changes that a power cut could undo, and of faults already injected.
    pub(crate) fn undoable_changes(&self) -> usize {
        let held = self.withheld.iter();
        let held = held.filter(|held| matches!(held, WithheldRequest::Write { .. }));
        let names = match self.cut_undoes_names {
            true => {
                let sizes = self.sizes.undoable_count(|file| self.is_chosen(file));
                let names = self.names.undoable_count(None, |name| self.is_chosen_name(name));
                sizes + names
            }
            false => 0,
        };
        self.journal.undoable_count(self.next_cut_effect)
            + names
            + held.count()
            + self.injected_faults.len()
    }

    /// Returns the number of requests waiting for a reply.
    pub(crate) fn withheld_count(&self) -> usize {
        self.withheld.len()
    }

    /// Begins a power failure. From then on, writes and flushes of the chosen files stay unanswered
    /// or, if names are to be lost, flushes of their folders.
    pub(crate) fn withhold_replies(&mut self) {
        self.withholds_replies = true;
    }

    /// Completes the power cut. Injects no further faults.
    pub(crate) fn cut_power(&mut self) -> io::Result<()> {
        for held in std::mem::take(&mut self.withheld) {
            match held {
                WithheldRequest::Write { file, offset, bytes, reply } => {
                    if let Some((open, _)) = self.files.open_by_inode(file) {
                        self.journal.write(&open, file, offset, &bytes, true)?;
                    }
                    reply.error(Errno::EIO);
                }
                WithheldRequest::Flush(reply) => reply.error(Errno::EIO),
            }
        }
        let files = &self.files;
        let lost = self.journal.cut_power(self.next_cut_effect, &mut self.dice, |number| {
            files.open_by_inode(number)
        })?;
        self.injected_faults.extend(lost);
        if self.cut_undoes_names {
            let chosen = |file| {
                let name = files.name(file);
                name.is_some_and(|name| matches_prefixes(&self.chosen_prefixes, &name))
            };
            let lost = self.sizes.cut_power(chosen, |number| files.open_by_inode(number))?;
            self.injected_faults.extend(lost);
            let chosen = |name: &str| matches_prefixes(&self.chosen_prefixes, name);
            let lost = self.names.cut_power(&mut self.files, &mut self.dice, chosen)?;
            self.injected_faults.extend(lost);
        }
        self.stop_faults();
        Ok(())
    }

    /// Stops injecting faults.
    pub(crate) fn stop_faults(&mut self) {
        (self.next_cut_effect, self.fakes_flushes, self.writes_to_misdirect) =
            (PowerCutEffect::Nothing, false, 0);
        (self.cut_undoes_names, self.withholds_replies) = (false, false);
        self.journal.forget_durable();
    }

    fn is_chosen(&self, file: u64) -> bool {
        let name = self.files.name(file);
        name.is_some_and(|name| self.is_chosen_name(&name))
    }

    fn is_chosen_name(&self, name: &str) -> bool {
        matches_prefixes(&self.chosen_prefixes, name)
    }

    pub(crate) fn write(
        &mut self,
        open: &File,
        file: u64,
        offset: u64,
        bytes: &[u8],
        durable: bool,
        reply: ReplyWrite,
    ) {
        // Zeros only preallocate free space.
        let chosen = self.is_chosen(file) && bytes.iter().any(|byte| *byte != 0);
        if chosen && self.withholds_replies && !self.cut_undoes_names {
            let bytes = bytes.to_vec();
            return self.withheld.push(WithheldRequest::Write { file, offset, bytes, reply });
        }
        let written = match chosen && self.writes_to_misdirect > 0 && !bytes.is_empty() {
            true => self.misdirect_write(open, file, offset, bytes),
            false => self.write_in_place(open, file, offset, bytes, chosen, durable),
        };
        match written {
            Ok(()) => reply.written(u32::try_from(bytes.len()).unwrap_or(u32::MAX)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn write_in_place(
        &mut self,
        open: &File,
        file: u64,
        offset: u64,
        bytes: &[u8],
        chosen: bool,
        durable: bool,
    ) -> io::Result<()> {
        self.journal.write(open, file, offset, bytes, chosen)?;
        if durable {
            self.journal.mark_last_durable(self.fakes_flushes);
            self.sizes.flush(file);
        }
        Ok(())
    }

    /// Misdirects a write to another offset of the file, or to the same offset of a neighbouring
    /// file. Drops the write if there is no such place.
    fn misdirect_write(
        &mut self,
        open: &File,
        file: u64,
        offset: u64,
        bytes: &[u8],
    ) -> io::Result<()> {
        let name = self.files.name(file).unwrap_or_default();
        let blocks = open.metadata()?.len() / BLOCK_BYTES;
        let need = (bytes.len() as u64).div_ceil(BLOCK_BYTES);
        let sibling = self.sibling_file(&name, offset)?;
        let elsewhere = match (blocks > need, sibling) {
            (true, sibling) if sibling.is_none() || self.dice.chance(1, 2) => {
                let to = BLOCK_BYTES * self.dice.below(blocks - need) + offset % BLOCK_BYTES;
                if to == offset {
                    // The drawn offset is the right one: misdirect the next write instead.
                    return self.write_in_place(open, file, offset, bytes, true, true);
                }
                Some((name.clone(), to))
            }
            (_, sibling) => sibling.map(|sibling| (sibling, offset)),
        };
        self.writes_to_misdirect -= 1;
        let bytes_len = bytes.len();
        let Some((to, at)) = elsewhere else {
            self.injected_faults
                .push(format!("{name} at {offset}: {bytes_len} bytes went nowhere"));
            return Ok(());
        };
        let target = File::options().write(true).open(self.files.root().join(&to))?;
        std::os::unix::fs::FileExt::write_all_at(&target, bytes, at)?;
        self.injected_faults
            .push(format!("{name} at {offset}: {bytes_len} bytes went to {to} at {at}"));
        Ok(())
    }

    /// Returns another file in the same folder that extends beyond the offset.
    fn sibling_file(&mut self, name: &str, offset: u64) -> io::Result<Option<String>> {
        let path = self.files.root().join(name);
        let folder = path.parent().unwrap_or(self.files.root());
        let mut found: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let about = entry.metadata()?;
            let other = entry.path() != path && entry.file_name() != LOCK_FILE;
            if about.is_file() && about.len() > offset && other {
                found.push(entry.path());
            }
        }
        found.sort();
        if found.is_empty() {
            return Ok(None);
        }
        let one = self.dice.index(found.len());
        let one = found[one].strip_prefix(self.files.root());
        Ok(one.ok().map(|path| path.to_string_lossy().into_owned()))
    }

    pub(crate) fn flush(&mut self, file: u64, reply: ReplyEmpty) {
        let waits = |held: &WithheldRequest| matches!(held, WithheldRequest::Write { file: of, .. } if *of == file);
        let in_flight = self.withheld.iter().any(waits) || self.journal.has_pending_write(file);
        if self.withholds_replies && !self.cut_undoes_names && in_flight {
            return self.withheld.push(WithheldRequest::Flush(reply));
        }
        self.journal.flush(file, self.fakes_flushes);
        self.sizes.flush(file);
        reply.ok();
    }

    /// Handles the flush of a folder's names.
    pub(crate) fn flush_names(&mut self, folder: u64, reply: ReplyEmpty) {
        let chosen = |name: &str| self.is_chosen_name(name);
        if self.withholds_replies
            && self.cut_undoes_names
            && self.names.undoable_count(Some(folder), chosen) > 0
        {
            return self.withheld.push(WithheldRequest::Flush(reply));
        }
        self.names.flush(folder);
        reply.ok();
    }
}

/// Returns whether faults apply to the file `name`: it begins with one of the prefixes or is the
/// folder that a prefix names, and is not a lock file.
fn matches_prefixes(beginnings: &[String], name: &str) -> bool {
    let is_lock = name.rsplit('/').next() == Some(LOCK_FILE);
    let begins = |one: &String| {
        name.starts_with(one.as_str()) || one.strip_suffix('/').is_some_and(|folder| folder == name)
    };
    !is_lock && beginnings.iter().any(begins)
}
