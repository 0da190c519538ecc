//! Disk faults: those requested, the files that they apply to, and those injected so far.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use fuser::{Errno, ReplyEmpty, ReplyWrite};
use quorate_core::dice::Dice;

use super::{
    files::Files,
    journal::{Journal, PowerCutEffect},
    names::Names,
    sizes::Sizes,
};

/// Size of a block, which careful programs read and write as a whole.
const BLOCK: u64 = 4096;
/// Name of lock files, whose content is irrelevant.
const LOCK: &str = "lock";

/// Requests whose replies are withheld until the power cut.
enum WithheldRequests {
    Write { file: u64, offset: u64, bytes: Vec<u8>, reply: ReplyWrite },
    Flush(ReplyEmpty),
}

/// Files of the disk, and the faults that apply to them.
pub(crate) struct State {
    pub(crate) files: Files,
    pub(crate) journal: Journal,
    pub(crate) names: Names,
    pub(crate) sizes: Sizes,
    /// Prefixes of the names of files that faults apply to.
    chosen: Vec<String>,
    /// Effect of the next power cut on writes.
    cut: PowerCutEffect,
    /// Set if the next power cut also undoes names and sizes.
    cut_undoes_names: bool,
    /// Set if flushes are acknowledged but not done.
    fakes_flushes: bool,
    /// Number of writes to misdirect.
    writes_to_misdirect: u32,
    /// Set while writes to the chosen files stay unanswered.
    withholds_replies: bool,
    withheld: Vec<WithheldRequests>,
    dice: Dice,
    /// Descriptions of the injected faults.
    pub(crate) injected_faults: Vec<String>,
}

impl State {
    pub(crate) fn new(root: &Path) -> io::Result<Self> {
        Ok(Self {
            files: Files::new(root),
            journal: Journal::default(),
            names: Names::new(root)?,
            sizes: Sizes::default(),
            chosen: Vec::new(),
            cut: PowerCutEffect::Nothing,
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
    pub(crate) fn arm(&mut self, fault: &str, chosen: &str, seed: u64) -> Result<(), String> {
        let (cut, lies, astray) = match fault {
            "torn" => (PowerCutEffect::Torn, false, 0),
            "reordered" => (PowerCutEffect::Reordered, false, 0),
            "lost-one" => (PowerCutEffect::LostOne, true, 0),
            "lost-tail" => (PowerCutEffect::LostTail, true, 0),
            "misdirected" => (PowerCutEffect::Nothing, false, 1),
            "lost-names" => (PowerCutEffect::Nothing, false, 0),
            other => return Err(format!("no such fault: {other}")),
        };
        self.chosen = chosen.split(',').map(str::to_owned).collect();
        (self.cut, self.fakes_flushes, self.writes_to_misdirect) = (cut, lies, astray);
        self.cut_undoes_names = fault == "lost-names";
        self.dice = Dice::new(seed);
        Ok(())
    }

    /// Returns the number of changes that a power cut could undo, and of faults already injected.
    pub(crate) fn undoable_changes(&self) -> usize {
        let held = self.withheld.iter();
        let held = held.filter(|held| matches!(held, WithheldRequests::Write { .. }));
        let names = match self.cut_undoes_names {
            true => {
                let sizes = self.sizes.candidates(|file| self.is_chosen(file));
                let names = self.names.candidates(None, |name| self.chooses(name));
                sizes + names
            }
            false => 0,
        };
        self.journal.candidates(self.cut) + names + held.count() + self.injected_faults.len()
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
                WithheldRequests::Write { file, offset, bytes, reply } => {
                    if let Some((open, _)) = self.files.open_number(file) {
                        self.journal.write(&open, file, offset, &bytes, true)?;
                    }
                    reply.error(Errno::EIO);
                }
                WithheldRequests::Flush(reply) => reply.error(Errno::EIO),
            }
        }
        let files = &self.files;
        let lost =
            self.journal.cut_power(self.cut, &mut self.dice, |number| files.open_number(number))?;
        self.injected_faults.extend(lost);
        if self.cut_undoes_names {
            let chosen = |file| {
                let name = files.name(file);
                name.is_some_and(|name| chooses(&self.chosen, &name))
            };
            let lost = self.sizes.cut_power(chosen, |number| files.open_number(number))?;
            self.injected_faults.extend(lost);
            let chosen = |name: &str| chooses(&self.chosen, name);
            let lost = self.names.cut_power(&mut self.files, &mut self.dice, chosen)?;
            self.injected_faults.extend(lost);
        }
        self.stop_faults();
        Ok(())
    }

    /// Stops injecting faults.
    pub(crate) fn stop_faults(&mut self) {
        (self.cut, self.fakes_flushes, self.writes_to_misdirect) =
            (PowerCutEffect::Nothing, false, 0);
        (self.cut_undoes_names, self.withholds_replies) = (false, false);
        self.journal.forget_durable();
    }

    fn is_chosen(&self, file: u64) -> bool {
        let name = self.files.name(file);
        name.is_some_and(|name| self.chooses(&name))
    }

    fn chooses(&self, name: &str) -> bool {
        chooses(&self.chosen, name)
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
            return self.withheld.push(WithheldRequests::Write { file, offset, bytes, reply });
        }
        let written = match chosen && self.writes_to_misdirect > 0 && !bytes.is_empty() {
            true => self.write_astray(open, file, offset, bytes),
            false => self.write_well(open, file, offset, bytes, chosen, durable),
        };
        match written {
            Ok(()) => reply.written(u32::try_from(bytes.len()).unwrap_or(u32::MAX)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn write_well(
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
            self.journal.last_is_durable(self.fakes_flushes);
            self.sizes.flush(file);
        }
        Ok(())
    }

    /// Misdirects a write to another offset of the file, or to the same offset of a neighbouring
    /// file. Drops the write if there is no such place.
    fn write_astray(
        &mut self,
        open: &File,
        file: u64,
        offset: u64,
        bytes: &[u8],
    ) -> io::Result<()> {
        let name = self.files.name(file).unwrap_or_default();
        let blocks = open.metadata()?.len() / BLOCK;
        let need = (bytes.len() as u64).div_ceil(BLOCK);
        let sibling = self.sibling(&name, offset)?;
        let elsewhere = match (blocks > need, sibling) {
            (true, sibling) if sibling.is_none() || self.dice.chance(1, 2) => {
                let to = BLOCK * self.dice.below(blocks - need) + offset % BLOCK;
                if to == offset {
                    // The drawn offset is the right one: misdirect the next write instead.
                    return self.write_well(open, file, offset, bytes, true, true);
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
    fn sibling(&mut self, name: &str, offset: u64) -> io::Result<Option<String>> {
        let path = self.files.root().join(name);
        let folder = path.parent().unwrap_or(self.files.root());
        let mut found: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let about = entry.metadata()?;
            let other = entry.path() != path && entry.file_name() != LOCK;
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
        let waits = |held: &WithheldRequests| matches!(held, WithheldRequests::Write { file: of, .. } if *of == file);
        let in_flight = self.withheld.iter().any(waits) || self.journal.has_pending_write(file);
        if self.withholds_replies && !self.cut_undoes_names && in_flight {
            return self.withheld.push(WithheldRequests::Flush(reply));
        }
        self.journal.flush(file, self.fakes_flushes);
        self.sizes.flush(file);
        reply.ok();
    }

    /// Handles the flush of a folder's names.
    pub(crate) fn flush_names(&mut self, folder: u64, reply: ReplyEmpty) {
        let chosen = |name: &str| self.chooses(name);
        if self.withholds_replies
            && self.cut_undoes_names
            && self.names.candidates(Some(folder), chosen) > 0
        {
            return self.withheld.push(WithheldRequests::Flush(reply));
        }
        self.names.flush(folder);
        reply.ok();
    }
}

/// Returns whether faults apply to the file `name`: it begins with one of the prefixes or is the
/// folder that a prefix names, and is not a lock file.
fn chooses(beginnings: &[String], name: &str) -> bool {
    let is_lock = name.rsplit('/').next() == Some(LOCK);
    let begins = |one: &String| {
        name.starts_with(one.as_str()) || one.strip_suffix('/').is_some_and(|folder| folder == name)
    };
    !is_lock && beginnings.iter().any(begins)
}
