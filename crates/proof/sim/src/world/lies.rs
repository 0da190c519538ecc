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
const LOST_WRITES_MAX: u64 = 20;
/// Maximum number of copies of small files retained per node.
const FOLDER_COPIES_MAX: usize = 4;
/// Small files that return to an earlier state together.
const ROLLED_BACK_FILES: [&str; 2] = ["identity", "peers"];

impl World {
    /// Schedules the next loss of acknowledged data, if the run has any.
    pub(super) fn plan_data_loss(&mut self) {
        if let Some(mean_us) = self.settings.data_loss_interval_us {
            let wait = self.fault_state.lie_dice.interval(mean_us);
            self.schedule_after(wait, Event::DataLoss);
        }
    }

    /// Cuts the power of a node. At the next start, its disk has lost acknowledged data.
    pub(super) fn plan_loss_and_kill(&mut self) {
        if !self.fault_state.faults_go_on() {
            return;
        }
        self.plan_data_loss();
        let durable =
            self.settings.class == Class::Durable && self.settings.forgetting_nodes_max() > 0;
        let running = |node: &usize| durable && self.nodes[*node].running.is_some();
        let Some(node) = self.forgetful_node().filter(running) else {
            return;
        };
        self.kill_process(node, 100);
        self.nodes[node].loses_data_at_start = true;
        let down = self.fault_state.lie_dice.between(500, 200_000);
        self.schedule_after(down, Event::StartProcess(node));
    }

    /// Returns the first node that may forget its votes in this run; `None` if no node may.
    pub fn forgetful_node(&self) -> Option<usize> {
        (0..self.settings.founding_member_count).find(|node| self.fault_state.may_forget(*node))
    }

    /// Applies the loss of acknowledged data just before a node starts, and saves a copy of the
    /// small files for later losses.
    pub(super) fn roll_back_disk(&mut self, node: usize) {
        // A start that may not complete is repeated, possibly at a time when no node that remembers
        // is reachable. Such starts are skipped.
        let lies = std::mem::take(&mut self.nodes[node].loses_data_at_start);
        if lies && self.nodes[node].dies_after_changes.is_none() {
            self.nodes[node].disk.set_capacity(None);
            self.roll_back_identity(node);
            self.lose_log_end(node);
        }
        let Some(identity) = self.nodes[node].identity() else {
            return;
        };
        let process = &mut self.nodes[node];
        let of = (identity.incarnation(), identity.level());
        let disk = process.disk.reopen_after_crash();
        let file = |name: &'static str| (name, disk.read(name).ok().flatten());
        let copy = FolderCopy { version: of, files: ROLLED_BACK_FILES.map(file).to_vec() };
        process.folder_copies.retain(|copy| copy.version == of);
        if process.folder_copies.len() == FOLDER_COPIES_MAX {
            process.folder_copies.remove(0);
        }
        process.folder_copies.push(copy);
    }

    /// Restores the identity and address book of an earlier start, provided that a node in the
    /// restored address book remembers the latest start.
    fn roll_back_identity(&mut self, node: usize) {
        let mut copies = std::mem::take(&mut self.nodes[node].folder_copies);
        if copies.is_empty() || self.nodes[node].damaged_file.is_some() {
            return;
        }
        let copy = copies.swap_remove(self.fault_state.lie_dice.index(copies.len()));
        let now = self.restore_copy(node, &copy);
        let last = self.node_checkers.lives().latest(node);
        let knows = |memory: &Memory| Some((memory.boot, memory.log_end.incarnation)) == last;
        if self.remembered_logs(node).iter().any(|(_, memory)| knows(memory)) {
            self.counts.data_losses += 1;
            let what = format_args!("identity and address book are those of an earlier start");
            self.trace_line(&name(node), "disk", what);
        } else {
            self.restore_copy(node, &now);
        }
    }

    /// Replaces the small files with a copy, and returns a copy of the replaced files.
    fn restore_copy(&mut self, node: usize, copy: &FolderCopy) -> FolderCopy {
        let disk = self.nodes[node].disk.reopen_after_crash();
        let before = |(name, _): &(&'static str, _)| (*name, disk.read(name).ok().flatten());
        let files = copy.files.iter().map(before).collect();
        for (name, bytes) in &copy.files {
            match bytes {
                Some(bytes) => self.nodes[node].disk.store_small_file(name, bytes),
                None => self.nodes[node].disk.remove_small_file(name),
            }
        }
        FolderCopy { version: copy.version, files }
    }

    /// Removes the end of a node's log, starting at a write that a reachable node remembers.
    fn lose_log_end(&mut self, node: usize) {
        let own = self.nodes[node].member().incarnation;
        let recalled = self.remembered_logs(node);
        // [lie-4] promises nothing about a log that no node remembers.
        let heard = recalled.iter().map(|(_, memory)| memory.log_end);
        let heard = heard.filter(|written| written.incarnation == own && written.last_write > 0);
        let Some(remembered) = heard.max() else {
            return;
        };
        let lost = self.fault_state.lie_dice.between(1, LOST_WRITES_MAX).min(remembered.last_write);
        let from = remembered.last_write - lost + 1;
        self.lose_writes_from(node, from);
    }

    /// Replaces the folder of a stopped node with an old copy, for a test.
    pub fn restore_folder(&mut self, node: usize, copy: &MemoryDisk) {
        let process = &mut self.nodes[node];
        process.disk = copy.copy();
        process.disk_kept_to.set(Slot(0));
        process.was_set_back = true;
        self.fault_state.let_forget(node);
    }

    /// Removes log write `from` and all later log writes from a node's disk.
    pub fn lose_writes_from(&mut self, node: usize, from: u64) {
        let disk = self.nodes[node].disk.clone();
        for (place, bytes) in log_writes_since(&disk, from) {
            disk.store_bytes(place, &vec![0; bytes]);
        }
        self.counts.data_losses += 1;
        let what = format_args!("its disk has lost write {from} and all behind it");
        self.trace_line(&name(node), "log", what);
    }
}
