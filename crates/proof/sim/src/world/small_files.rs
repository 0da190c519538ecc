//! Damaged small files. A scrub by the running process rewrites them. A process that starts before
//! the scrub either refuses the damaged file, so that an operator restores the contents, or works
//! without the file.

use quorate_log::disk::Source as _;

use super::{World, name};
use crate::{
    check::{Verdict, Violation},
    node::{DamagedFile, StartOutcome},
};

/// Small files that are always rewritten completely. The flag states whether a node can start
/// without the file.
const SMALL_FILES: [(&str, bool); 4] =
    [("identity", false), ("base", false), ("peers", true), ("catalogue", true)];

impl World {
    /// Flips a bit in a random small file, unless a small file of the node is already damaged.
    pub(super) fn rot_small_file(&mut self, node: usize) {
        if self.nodes[node].running.is_none() || self.is_file_still_damaged(node) {
            return;
        }
        let dice = &mut self.fault_state.stray_dice;
        let (file, _) = SMALL_FILES[dice.index(SMALL_FILES.len())];
        let (bit, scrubs) = (dice.word(), dice.chance(1, 2));
        let Ok(Some(sound)) = self.nodes[node].disk.reopen_after_crash().read_small_file(file)
        else {
            return;
        };
        let mut damaged = sound.clone();
        let bit = bit % (8 * damaged.len().max(1) as u64);
        let Some(byte) = damaged.get_mut(usize::try_from(bit / 8).expect("it is short")) else {
            return;
        };
        *byte ^= 1 << (bit % 8);
        let process = &mut self.nodes[node];
        process.disk.store_small_file(file, &damaged);
        process.has_rotted = true;
        process.damaged_file =
            Some(DamagedFile { name: file, sound_contents: sound, damaged_contents: damaged });
        self.counts.files_rotted += 1;
        self.trace_line(&name(node), "rot", format_args!("{file}, bit {bit}"));
        if scrubs {
            self.scrub_node(node, None);
        }
    }

    /// Returns whether the most recently damaged file has not been rewritten since.
    fn is_file_still_damaged(&self, node: usize) -> bool {
        let process = &self.nodes[node];
        process.damaged_file.as_ref().is_some_and(|spoiled| {
            let lies = process.disk.reopen_after_crash().read_small_file(spoiled.name);
            lies.is_ok_and(|lies| lies.as_deref() == Some(&spoiled.damaged_contents[..]))
        })
    }

    /// Handles a process that started with a damaged file, and fails if it accepts contents that it
    /// cannot have written. Returns whether an operator restored the file, so that another start is
    /// needed.
    pub(super) fn check_damaged_start(
        &mut self,
        node: usize,
        spoiled: bool,
        outcome: &Result<StartOutcome, String>,
    ) -> Result<bool, Violation> {
        let Some(file) = self.nodes[node].damaged_file.clone().filter(|_| spoiled) else {
            return Ok(false);
        };
        let does_without = SMALL_FILES.contains(&(file.name, true));
        match outcome {
            Err(_) => {
                self.nodes[node].disk.store_small_file(file.name, &file.sound_contents);
                self.nodes[node].damaged_file = None;
                self.counts.files_refused += 1;
                self.trace_line(&name(node), "file", format_args!("{} is back", file.name));
                Ok(true)
            }
            Ok(StartOutcome::Started(_)) if !does_without => {
                let detail = format!("node {} starts on a damaged {}", node + 1, file.name);
                Err(Violation::new("small files", detail))
            }
            Ok(_) => Ok(false),
        }
    }

    /// Checks that the most recently damaged file was rewritten or restored.
    pub(super) fn check_small_file_repaired(&self, node: usize) -> Verdict {
        let Some(file) = self.nodes[node].damaged_file.as_ref() else {
            return Ok(());
        };
        if !self.is_file_still_damaged(node) {
            return Ok(());
        }
        let detail = format!("node {} leaves {} damaged", node + 1, file.name);
        Err(Violation::new("scrubs", detail))
    }

    /// Returns whether a process that starts now finds a damaged file.
    pub(super) fn starts_with_damaged_file(&self, node: usize) -> bool {
        self.nodes[node].damaged_file.is_some() && self.is_file_still_damaged(node)
    }

    /// Restarts the process after the file has been restored.
    pub(super) fn restart_repaired(&mut self, node: usize) -> Verdict {
        self.nodes[node].kill(&mut self.dice);
        self.schedule_start_within(node, 50_000);
        Ok(())
    }
}
