//! Acknowledgements to clients that requested a durability class other than the group's: a quorum
//! has their commands in memory ([less-4]) or on disk ([last-3]).

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::{
    configuration::{Configuration, Voter},
    record::Record,
    slot::Slot,
    value::Value,
};
use quorate_replica::service::CommandId;

use super::{Verdict, Violation, is_quorum};

/// Request and acknowledgement of one command.
#[derive(Debug, Default)]
struct CommandFate {
    /// Number of losses of memory or disk before the request.
    losses_before: u64,
    /// Slot reported to the client before execution.
    reported_slot: Option<Slot>,
    executed_as: Option<CommandId>,
}

/// Contents of a node's disk that concern these commands.
#[derive(Debug, Default)]
struct DiskContents {
    /// Last value in the log of each slot that has a record of its own, as batches do.
    last_values: BTreeMap<Slot, Value>,
    /// End of the snapshot, which replaces all slots below it.
    snapshot_end: Slot,
}

/// Commands requested with another class, and the contents of all disks.
#[derive(Debug, Default)]
pub struct ClassCommands {
    fates: BTreeMap<u64, CommandFate>,
    /// Commands that were acknowledged but not executed by any node yet, by slot.
    unexecuted: BTreeSet<(Slot, u64)>,
    disks: BTreeMap<usize, DiskContents>,
}

impl ClassCommands {
    /// Registers a request. `losses` is the current number of losses of memory or disk.
    pub fn register_request(&mut self, command: u64, losses: u64) {
        let fate = CommandFate { losses_before: losses, ..CommandFate::default() };
        self.fates.insert(command, fate);
    }

    /// Checks an acknowledgement that a quorum has the command in memory, in slot `slot`. `quorum`
    /// is true if a quorum does. Unless memory or a disk was lost, the command must not have been
    /// executed in another slot.
    pub fn check_in_memory(
        &mut self,
        command: u64,
        slot: Slot,
        quorum: bool,
        losses: u64,
    ) -> Verdict {
        let Some(fate) = self.fates.get_mut(&command) else {
            return Ok(());
        };
        fate.reported_slot = Some(slot);
        if fate.executed_as.is_none() {
            self.unexecuted.insert((slot, command));
        }
        if !quorum && fate.losses_before == losses {
            return Err(fate.to_violation("no quorum has voted for it"));
        }
        fate.check_fate(losses)
    }

    /// Records that a node executed a command, of any client. Fails if it was executed in another
    /// place before, or if it was acknowledged for another slot and no memory or disk was lost.
    pub fn record_executed(&mut self, command: u64, id: CommandId, losses: u64) -> Verdict {
        let Some(fate) = self.fates.get_mut(&command) else {
            return Ok(());
        };
        let first = *fate.executed_as.get_or_insert(id);
        if let Some(slot) = fate.reported_slot {
            self.unexecuted.remove(&(slot, command));
        }
        if first != id {
            let detail = format!("a command was executed in slots {} and {}", first.slot, id.slot);
            return Err(Violation::new("classes", detail));
        }
        fate.check_fate(losses)
    }

    /// Checks that each acknowledged slot below `to` holds its command, unless memory or a disk was
    /// lost. Some node has applied all these slots.
    pub fn check_applied(&mut self, to: Slot, losses: u64) -> Verdict {
        while self.unexecuted.first().is_some_and(|(slot, _)| *slot < to) {
            let owed = self.unexecuted.pop_first();
            let fate = owed.and_then(|(_, command)| self.fates.get(&command));
            // An acknowledgement made before a loss is not checked after it.
            if let Some(fate) = fate.filter(|fate| fate.losses_before == losses) {
                return Err(fate.to_violation("another one is there"));
            }
        }
        Ok(())
    }

    /// Records that a log record of a node, and all records before it, are on stable storage.
    pub fn record_stable(&mut self, node: usize, record: &Record) {
        let (Record::Vote { range, value, .. } | Record::Decided { range, value }) = *record else {
            return;
        };
        // Before the first request there is nothing to track.
        if self.fates.is_empty() {
            return;
        }
        if range.from.next() == range.to {
            let words = &mut self.disks.entry(node).or_default().last_values;
            words.insert(range.from, value);
        }
    }

    /// Records that a node has a snapshot of all slots below `to`.
    pub fn record_snapshot(&mut self, node: usize, to: Slot) {
        let disk = self.disks.entry(node).or_default();
        disk.snapshot_end = disk.snapshot_end.max(to);
    }

    /// Records that a node lost its votes and continues without them.
    pub fn record_forgotten(&mut self, node: usize) {
        self.disks.remove(&node);
    }

    /// Checks an acknowledgement that a quorum has the command on disk, by the configuration of the
    /// node that sent it.
    pub fn check_on_disk(&self, command: u64, configuration: &Configuration) -> Verdict {
        let executed = self.fates.get(&command).and_then(|fate| fate.executed_as);
        let Some(CommandId { slot, .. }) = executed else {
            let detail = "a client was told that a command lasts which no node executed";
            return Err(Violation::new("classes", detail));
        };
        let full = configuration.members().iter().filter(|voter| !voter.auxiliary);
        let disks = full.filter_map(|voter| self.disks.get(&index(voter)));
        let words = disks.filter_map(|disk| disk.last_values.get(&slot));
        let has = |value: Option<&Value>, disk: &DiskContents| {
            disk.snapshot_end > slot || (value.is_some() && disk.last_values.get(&slot) == value)
        };
        let lasts = |value| {
            is_quorum(configuration, |voter| {
                let disk = self.disks.get(&index(voter));
                !voter.auxiliary && disk.is_some_and(|disk| has(value, disk))
            })
        };
        match words.map(Some).chain([None]).any(lasts) {
            true => Ok(()),
            false => {
                let detail =
                    format!("slot {slot} is said to last, and is not on the disks of a quorum");
                Err(Violation::new("classes", detail))
            }
        }
    }
}

/// Returns the index of a member's node in the world.
pub fn index(voter: &Voter) -> usize {
    voter.member.node.0 as usize - 1
}

impl CommandFate {
    fn check_fate(&self, losses: u64) -> Verdict {
        match (self.reported_slot, self.executed_as) {
            (Some(told), Some(id)) if told != id.slot && self.losses_before == losses => {
                Err(self.to_violation(&format!("it was executed in slot {}", id.slot)))
            }
            _ => Ok(()),
        }
    }

    fn to_violation(&self, what: &str) -> Violation {
        let told = self.reported_slot.unwrap_or_default();
        let detail =
            format!("a client was told of slot {told}, and {what}, though nothing was lost");
        Violation::new("classes", detail)
    }
}
