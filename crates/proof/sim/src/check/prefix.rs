//! Nodes execute the same commands in the same places, give the same replies, and hold the same
//! state at the same position.

use std::collections::BTreeMap;

use quorate_core::slot::Slot;
use quorate_replica::service::CommandId;

use super::{Verdict, Violation};

/// Results of the first node to execute each command.
#[derive(Debug, Default)]
pub struct Prefix {
    executed: BTreeMap<CommandId, (u64, u64)>,
    /// Every slot below was executed by some node, as far as it holds commands.
    seen_to: Slot,
    states: BTreeMap<Slot, u128>,
}

impl Prefix {
    /// A node executed a command.
    ///
    /// # Errors
    /// Another node executed something else in that place, or got another reply.
    pub fn executed(&mut self, node: usize, id: CommandId, command: u64, reply: u64) -> Verdict {
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
            None if id.slot < self.seen_to => {
                let detail = format!("node {who} executed what no other node did: {place}");
                Err(Violation::new("prefix", detail))
            }
            None => {
                self.executed.insert(id, (command, reply));
                Ok(())
            }
        }
    }

    /// A node has applied every slot below, and its state looks like this.
    ///
    /// # Errors
    /// Another node's state looked different there.
    pub fn state(&mut self, node: usize, applied_to: Slot, digest: u128) -> Verdict {
        self.seen_to = self.seen_to.max(applied_to);
        let known = *self.states.entry(applied_to).or_insert(digest);
        if known == digest {
            return Ok(());
        }
        let detail = format!("node {} holds another state at slot {applied_to}", node + 1);
        Err(Violation::new("prefix", detail))
    }

    /// Returns the command executed in this place.
    pub fn executed_in(&self, id: CommandId) -> Option<u64> {
        self.executed.get(&id).map(|(command, _)| *command)
    }

    /// Commands executed by at least one node.
    pub fn commands(&self) -> usize {
        self.executed.len()
    }
}
