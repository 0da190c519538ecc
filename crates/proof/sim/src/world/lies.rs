//! A lying disk: it acknowledged the end of a log, but no longer has it when the node starts. An
//! intact but shorter log remains. Alternatively, the folder returns to an earlier state, with the
//! identity and address book of an earlier start. Only one node of a run is affected. Each loss
//! includes a write or start that a reachable node remembers, because [lie-4] promises nothing
//! otherwise.

use quorate_core::{record::Class, slot::Slot, witness::Memory};
use quorate_log::disk::{MemoryDisk, SmallFiles as _};

use super::{Event, World, name};
use crate::{disk::log_writes_since, node::FolderCopy};

/// Maximum number of remembered log writes lost at a time.
const LOST_MAX: u64 = 20;
/// Maximum number of copies of small files retained per node.
const COPIES_MAX: usize = 4;
/// Small files that return to an earlier state together.
const FILES: [&str; 2] = ["identity", "peers"];

impl World {
    /// Schedules the next loss of acknowledged data, if the run has any.
    pub(super) fn plan_lie(&mut self) {
        if let Some(mean_us) = self.settings.lies_us {
            let wait = self.chaos.lie_dice.interval(mean_us);
            self.schedule_after(wait, Event::Lie);
        }
    }

    /// Cuts the power of a node. At the next start, its disk has lost acknowledged data.
    pub(super) fn lie(&mut self) {
        if !self.chaos.goes_on() {
            return;
        }
        self.plan_lie();
        let durable = self.settings.class == Class::Durable && self.settings.budget() > 0;
        let running = |node: &usize| durable && self.nodes[*node].running.is_some();
        let Some(node) = self.forgetful().filter(running) else {
            return;
        };
        self.kill_process(node, 100);
        self.nodes[node].disk_lies = true;
        let down = self.chaos.lie_dice.between(500, 200_000);
        self.schedule_after(down, Event::Start(node));
    }

    /// Returns the first node that may forget its votes in this run; `None` if no node may.
    pub fn forgetful(&self) -> Option<usize> {
        (0..self.settings.nodes).find(|node| self.chaos.may_forget(*node))
    }

    /// Applies the loss of acknowledged data just before a node starts, and saves a copy of the
    /// small files for later losses.
    pub(super) fn fall_back(&mut self, node: usize) {
        // A start that may not complete is repeated, possibly at a time when no node that remembers
        // is reachable. Such starts are skipped.
        let lies = std::mem::take(&mut self.nodes[node].disk_lies);
        if lies && self.nodes[node].dies_after.is_none() {
            self.nodes[node].disk.set_capacity(None);
            self.go_back(node);
            self.lose_end(node);
        }
        let Some(identity) = self.nodes[node].identity() else {
            return;
        };
        let process = &mut self.nodes[node];
        let of = (identity.incarnation(), identity.level());
        let disk = process.disk.attach();
        let file = |name: &'static str| (name, disk.read(name).ok().flatten());
        let copy = FolderCopy { version: of, files: FILES.map(file).to_vec() };
        process.copies.retain(|copy| copy.version == of);
        if process.copies.len() == COPIES_MAX {
            process.copies.remove(0);
        }
        process.copies.push(copy);
    }

    /// Restores the identity and address book of an earlier start, provided that a node in the
    /// restored address book remembers the latest start.
    fn go_back(&mut self, node: usize) {
        let mut copies = std::mem::take(&mut self.nodes[node].copies);
        if copies.is_empty() || self.nodes[node].damaged_file.is_some() {
            return;
        }
        let copy = copies.swap_remove(self.chaos.lie_dice.index(copies.len()));
        let now = self.put_back(node, &copy);
        let last = self.watch.lives().latest(node);
        let knows = |memory: &Memory| Some((memory.boot, memory.log_end.incarnation)) == last;
        if self.recalled_of(node).iter().any(|(_, memory)| knows(memory)) {
            self.counts.lies += 1;
            let what = format_args!("identity and address book are those of an earlier start");
            self.line(&name(node), "disk", what);
        } else {
            self.put_back(node, &now);
        }
    }

    /// Replaces the small files with a copy, and returns a copy of the replaced files.
    fn put_back(&mut self, node: usize, copy: &FolderCopy) -> FolderCopy {
        let disk = self.nodes[node].disk.attach();
        let before = |(name, _): &(&'static str, _)| (*name, disk.read(name).ok().flatten());
        let files = copy.files.iter().map(before).collect();
        for (name, bytes) in &copy.files {
            match bytes {
                Some(bytes) => self.nodes[node].disk.put_small(name, bytes),
                None => self.nodes[node].disk.drop_small(name),
            }
        }
        FolderCopy { version: copy.version, files }
    }

    /// Removes the end of a node's log, starting at a write that a reachable node remembers.
    fn lose_end(&mut self, node: usize) {
        let own = self.nodes[node].member().incarnation;
        let recalled = self.recalled_of(node);
        // [lie-4] promises nothing about a log that no node remembers.
        let heard = recalled.iter().map(|(_, memory)| memory.log_end);
        let heard = heard.filter(|written| written.incarnation == own && written.last_write > 0);
        let Some(remembered) = heard.max() else {
            return;
        };
        let lost = self.chaos.lie_dice.between(1, LOST_MAX).min(remembered.last_write);
        let from = remembered.last_write - lost + 1;
        self.forget_from(node, from);
    }

    /// Replaces the folder of a stopped node with an old copy, for a test.
    pub fn set_back(&mut self, node: usize, copy: &MemoryDisk) {
        let process = &mut self.nodes[node];
        process.disk = copy.copy();
        process.kept_to.set(Slot(0));
        process.set_back = true;
        self.chaos.let_forget(node);
    }

    /// Removes log write `from` and all later log writes from a node's disk.
    pub fn forget_from(&mut self, node: usize, from: u64) {
        let disk = self.nodes[node].disk.clone();
        for (place, bytes) in log_writes_since(&disk, from) {
            disk.put(place, &vec![0; bytes]);
        }
        self.counts.lies += 1;
        let what = format_args!("its disk has lost write {from} and all behind it");
        self.line(&name(node), "log", what);
    }
}
