//! Replica equality: all nodes execute the same commands at the same positions, return the same
//! replies, and have equal states at equal positions.

use std::collections::BTreeMap;

use quorate_core::slot::Slot;
use quorate_replica::service::CommandId;

use super::{Verdict, Violation};

/// For each position, the command and reply of the node that executed it first, and the state of
/// the node that reached it first.
#[derive(Debug, Default)]
pub struct ExecutedPrefix {
    executed: BTreeMap<CommandId, (u64, u64)>,
    /// Some node has executed all commands in the slots below this one.
    executed_to: Slot,
    states: BTreeMap<Slot, u128>,
}

impl ExecutedPrefix {
    /// Checks that no other node executed a different command at position `id`, replied
    /// differently, or has applied the slot without executing a command here.
    pub fn check_executed(
        &mut self,
        node: usize,
        id: CommandId,
        command: u64,
        reply: u64,
    ) -> Verdict {
        let who = node + 1;
        let place = format!("slot {}, command {}", id.slot, id.index);
        match self.executed.get(&id) {
            Some((known, _)) if *known != command => Err(Violation::new(
                "prefix",
                format!("node {who} executed another command: {place}"),
            )),
            Some((_, known)) if *known != reply => {
                Err(Violation::new("prefix", format!("node {who} got another reply: {place}")))
            }
            Some(_) => Ok(()),
            None if id.slot < self.executed_to => {
                let detail = format!("node {who} executed what no other node did: {place}");
                Err(Violation::new("prefix", detail))
            }
            None => {
                self.executed.insert(id, (command, reply));
                Ok(())
            }
        }
    }

    /// Checks that all nodes that have applied exactly the slots below `applied_to` have the same
    /// state.
    pub fn check_state(&mut self, node: usize, applied_to: Slot, digest: u128) -> Verdict {
        self.executed_to = self.executed_to.max(applied_to);
        let known = *self.states.entry(applied_to).or_insert(digest);
        if known == digest {
            return Ok(());
        }
        let detail = format!("node {} holds another state at slot {applied_to}", node + 1);
        Err(Violation::new("prefix", detail))
    }

    /// Returns the hash of the command executed as `id`; `None` if no node executed it.
    pub fn command_hash(&self, id: CommandId) -> Option<u64> {
        self.executed.get(&id).map(|(command, _)| *command)
    }

    /// Returns the number of commands executed by at least one node.
    pub fn command_count(&self) -> usize {
        self.executed.len()
    }
}
