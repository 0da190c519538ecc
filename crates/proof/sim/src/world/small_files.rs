//! Small files that rot: a scrub of the process that runs writes them anew; a start before that
//! refuses them, or does without, and then an operator brings back what was there.

use quorate_log::disk::Source as _;

use super::{World, name};
use crate::{
    check::{Verdict, Violation},
    node::{Spoiled, Start},
};

/// Small files that are rewritten as a whole, and whether a node starts without them.
const FILES: [(&str, bool); 4] =
    [("identity", false), ("base", false), ("peers", true), ("catalogue", true)];

impl World {
    /// Flips a bit in one of them, if none is damaged already.
    pub(super) fn rot_small_file(&mut self, node: usize) {
        if self.nodes[node].running.is_none() || self.still_spoiled(node) {
            return;
        }
        let dice = &mut self.chaos.stray_dice;
        let (file, _) = FILES[dice.index(FILES.len())];
        let (bit, scrubs) = (dice.word(), dice.chance(1, 2));
        let Ok(Some(sound)) = self.nodes[node].disk.attach().kept(file) else {
            return;
        };
        let mut damaged = sound.clone();
        let bit = bit % (8 * damaged.len().max(1) as u64);
        let Some(byte) = damaged.get_mut(usize::try_from(bit / 8).expect("it is short")) else {
            return;
        };
        *byte ^= 1 << (bit % 8);
        let process = &mut self.nodes[node];
        process.disk.put_small(file, &damaged);
        process.rotted = true;
        process.spoiled = Some(Spoiled { name: file, sound, damaged });
        self.counts.files_rotted += 1;
        self.line(&name(node), "rot", format_args!("{file}, bit {bit}"));
        if scrubs {
            self.scrub(node, None);
        }
    }

    /// Returns whether the file that rotted last is still damaged as it was then.
    fn still_spoiled(&self, node: usize) -> bool {
        let process = &self.nodes[node];
        process.spoiled.as_ref().is_some_and(|spoiled| {
            let lies = process.disk.attach().kept(spoiled.name);
            lies.is_ok_and(|lies| lies.as_deref() == Some(&spoiled.damaged[..]))
        })
    }

    /// Handles a process that was started on a file that rotted. Returns whether an operator has
    /// restored it, for another start.
    ///
    /// # Errors
    /// It believes contents that it cannot have written.
    pub(super) fn refuses_spoiled(
        &mut self,
        node: usize,
        spoiled: bool,
        outcome: &Result<Start, String>,
    ) -> Result<bool, Violation> {
        let Some(file) = self.nodes[node].spoiled.clone().filter(|_| spoiled) else {
            return Ok(false);
        };
        let does_without = FILES.contains(&(file.name, true));
        match outcome {
            Err(_) => {
                self.nodes[node].disk.put_small(file.name, &file.sound);
                self.nodes[node].spoiled = None;
                self.counts.files_refused += 1;
                self.line(&name(node), "file", format_args!("{} is back", file.name));
                Ok(true)
            }
            Ok(Start::Runs(_)) if !does_without => {
                let detail = format!("node {} starts on a damaged {}", node + 1, file.name);
                Err(Violation::new("small files", detail))
            }
            Ok(_) => Ok(false),
        }
    }

    /// Checks that the file that rotted last was rewritten, or restored.
    ///
    /// # Errors
    /// It is still damaged as it was then.
    pub(super) fn small_file_is_mended(&self, node: usize) -> Verdict {
        let Some(file) = self.nodes[node].spoiled.as_ref() else {
            return Ok(());
        };
        if !self.still_spoiled(node) {
            return Ok(());
        }
        let detail = format!("node {} leaves {} damaged", node + 1, file.name);
        Err(Violation::new("scrubs", detail))
    }

    /// Returns whether a process starts with a damaged file.
    pub(super) fn starts_spoiled(&self, node: usize) -> bool {
        self.nodes[node].spoiled.is_some() && self.still_spoiled(node)
    }

    /// Starts once more, with the file that was brought back.
    pub(super) fn start_mended(&mut self, node: usize) -> Verdict {
        self.nodes[node].kill(&mut self.dice);
        self.starts_within(node, 50_000);
        Ok(())
    }
}
