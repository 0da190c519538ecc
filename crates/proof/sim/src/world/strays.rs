//! Misdirected writes: data is missing at its proper position and has overwritten intact data
//! elsewhere. Like bit rot, a misdirected write affects only data written long ago ([model-3]), on
//! one node of a run.

use quorate_log::disk::{BLOCK, Family, Position};

use super::{Event, World, chaos::UNROTTED_WRITES, name};
use crate::disk::{rottable_blocks, rottable_writes};

impl World {
    /// Schedules the next misdirected write, if nodes scrub in this run.
    pub(super) fn plan_stray(&mut self) {
        if let Some(mean_us) =
            self.settings.scrub_settings.and_then(|scrubs| scrubs.stray_interval_us)
        {
            let wait = self.fault_state.stray_dice.interval(mean_us);
            self.schedule_after(wait, Event::StrayWrite);
        }
    }

    pub(super) fn inject_stray(&mut self) {
        if !self.fault_state.faults_go_on() {
            return;
        }
        self.plan_stray();
        let Some(node) = self.forgetful_node().filter(|_| self.settings.forgetting_nodes_max() > 0)
        else {
            return;
        };
        match self.fault_state.stray_dice.below(3) {
            0 => self.move_old_write(node, |one, other| one.file == other.file),
            1 => self.move_old_write(node, |one, other| one.file != other.file),
            _ => self.rot_small_file(node),
        }
    }

    /// Moves an old log write to a position permitted by `lands`, and clears the original position.
    fn move_old_write(&mut self, node: usize, lands: fn(Position, Position) -> bool) {
        let disk = self.nodes[node].disk.clone();
        let writes = rottable_writes(&disk, UNROTTED_WRITES);
        let blocks = rottable_blocks(&disk, UNROTTED_WRITES);
        let dice = &mut self.fault_state.stray_dice;
        if writes.is_empty() {
            return;
        }
        let (from, length) = writes[dice.index(writes.len())];
        let own = |at: &Position| {
            at.file == from.file && (from.offset..from.offset + length).contains(&at.offset)
        };
        let elsewhere = blocks.iter().filter(|at| lands(from, **at) && !own(at));
        let elsewhere: Vec<Position> = elsewhere.copied().collect();
        if elsewhere.is_empty() {
            return;
        }
        let to = elsewhere[dice.index(elsewhere.len())];
        // The moved write is truncated where it would overwrite data that is not old.
        let next = |number: &u64| to.file.position_at(to.offset + number * BLOCK as u64);
        let old = |number: &u64| elsewhere.binary_search(&next(number)).is_ok();
        let room = (0..length.div_ceil(BLOCK as u64)).take_while(old).count() * BLOCK;
        let Some(bytes) = disk.bytes(from.file) else {
            return;
        };
        let start = usize::try_from(from.offset).expect("a disk in memory fits in memory");
        let end = (start + usize::try_from(length).expect("the same")).min(bytes.len());
        let write = &bytes[start..end];
        disk.store_bytes(from, &vec![0; write.len()]);
        disk.store_bytes(to, &write[..room.min(write.len())]);
        self.nodes[node].has_rotted = true;
        self.counts.stray_writes += 1;
        let what = match to.file.family {
            Family::Log => "of the log",
            _ => "of another kind",
        };
        self.trace_line(
            &name(node),
            "stray",
            format_args!("what was for {from} went to {to} {what}"),
        );
    }
}
