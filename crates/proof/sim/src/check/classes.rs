//! Replies to clients that asked for another class than the group's: a quorum has their commands in
//! memory ([less-4]), or on its disks ([last-3]).

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::{
    configuration::{Configuration, Voter},
    record::Record,
    slot::Slot,
    value::Value,
};
use quorate_replica::service::CommandId;

use super::{Verdict, Violation, is_quorum};

/// Fate of a command, by its hash.
#[derive(Debug, Default)]
struct Fate {
    /// Number of losses when it was requested.
    losses: u64,
    /// Slot of the command, as reported to its client before execution.
    told: Option<Slot>,
    executed: Option<CommandId>,
}

/// Contents of a node's disk.
#[derive(Debug, Default)]
struct OnDisk {
    /// The last word of its log about each slot of a batch.
    words: BTreeMap<Slot, Value>,
    /// A snapshot stands for everything below.
    snapshot: Slot,
}

/// The commands of such clients, and what all disks hold.
#[derive(Debug, Default)]
pub struct Classes {
    fates: BTreeMap<u64, Fate>,
    /// Commands reported to clients and not executed by any node yet, by slot.
    owed: BTreeSet<(Slot, u64)>,
    disks: BTreeMap<usize, OnDisk>,
}

impl Classes {
    /// Registers a request. `losses` counts the losses of memory or disk until now.
    pub fn asked(&mut self, command: u64, losses: u64) {
        let fate = Fate { losses, ..Fate::default() };
        self.fates.insert(command, fate);
    }

    /// Checks a report to a client that its command is in the memory of a quorum, in this slot,
    /// which is true or not: `quorum`.
    ///
    /// # Errors
    /// It is not, or the command was executed elsewhere, though nothing was lost.
    pub fn in_memory(&mut self, command: u64, slot: Slot, quorum: bool, losses: u64) -> Verdict {
        let Some(fate) = self.fates.get_mut(&command) else {
            return Ok(());
        };
        fate.told = Some(slot);
        if fate.executed.is_none() {
            self.owed.insert((slot, command));
        }
        if !quorum && fate.losses == losses {
            return Err(fate.broken("no quorum has voted for it"));
        }
        fate.judge(losses)
    }

    /// A node executed a command of any client.
    ///
    /// # Errors
    /// It was executed already, or another slot was reported to its client, though nothing was
    /// lost.
    pub fn executed(&mut self, command: u64, id: CommandId, losses: u64) -> Verdict {
        let Some(fate) = self.fates.get_mut(&command) else {
            return Ok(());
        };
        let first = *fate.executed.get_or_insert(id);
        if let Some(slot) = fate.told {
            self.owed.remove(&(slot, command));
        }
        if first != id {
            let detail = format!("a command was executed in slots {} and {}", first.slot, id.slot);
            return Err(Violation::new("classes", detail));
        }
        fate.judge(losses)
    }

    /// A node has applied everything below.
    ///
    /// # Errors
    /// A slot below was reported to a client, its command was not in it, and nothing was lost.
    pub fn applied(&mut self, to: Slot, losses: u64) -> Verdict {
        while self.owed.first().is_some_and(|(slot, _)| *slot < to) {
            let owed = self.owed.pop_first();
            let fate = owed.and_then(|(_, command)| self.fates.get(&command));
            // What was lost stays lost: the others are excused for good.
            if let Some(fate) = fate.filter(|fate| fate.losses == losses) {
                return Err(fate.broken("another one is there"));
            }
        }
        Ok(())
    }

    /// A record of a node's log is on stable storage, with all before it.
    pub fn released(&mut self, node: usize, record: &Record) {
        let (Record::Vote { range, value, .. } | Record::Decided { range, value }) = *record else {
            return;
        };
        // Before the first request, no requested command can be here.
        if self.fates.is_empty() {
            return;
        }
        if range.from.next() == range.to {
            let words = &mut self.disks.entry(node).or_default().words;
            words.insert(range.from, value);
        }
    }

    /// A node has a snapshot of everything below.
    pub fn snapshot(&mut self, node: usize, to: Slot) {
        let disk = self.disks.entry(node).or_default();
        disk.snapshot = disk.snapshot.max(to);
    }

    /// A node continues as one that has voted for nothing.
    pub fn forgot(&mut self, node: usize) {
        self.disks.remove(&node);
    }

    /// Checks a report to a client that its command is on the disks of a quorum, from a node that
    /// goes by this configuration.
    ///
    /// # Errors
    /// It is not.
    pub fn lasts(&self, command: u64, configuration: &Configuration) -> Verdict {
        let executed = self.fates.get(&command).and_then(|fate| fate.executed);
        let Some(CommandId { slot, .. }) = executed else {
            let detail = "a client was told that a command lasts which no node executed";
            return Err(Violation::new("classes", detail));
        };
        let full = configuration.members().iter().filter(|voter| !voter.auxiliary);
        let disks = full.filter_map(|voter| self.disks.get(&index(voter)));
        let words = disks.filter_map(|disk| disk.words.get(&slot));
        let has = |value: Option<&Value>, disk: &OnDisk| {
            disk.snapshot > slot || (value.is_some() && disk.words.get(&slot) == value)
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

/// Returns the world's index of a member.
pub fn index(voter: &Voter) -> usize {
    voter.member.node.0 as usize - 1
}

impl Fate {
    fn judge(&self, losses: u64) -> Verdict {
        match (self.told, self.executed) {
            (Some(told), Some(id)) if told != id.slot && self.losses == losses => {
                Err(self.broken(&format!("it was executed in slot {}", id.slot)))
            }
            _ => Ok(()),
        }
    }

    fn broken(&self, what: &str) -> Violation {
        let told = self.told.unwrap_or_default();
        let detail =
            format!("a client was told of slot {told}, and {what}, though nothing was lost");
        Violation::new("classes", detail)
    }
}
