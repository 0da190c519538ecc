//! Passes events from logs, processes, frames and services to the checkers.

use quorate_core::{
    ballot::Era,
    configuration::Configuration,
    message::Message,
    node_id::{Member, NodeId},
    record::Record,
    slot::Slot,
    value::Value,
};
use quorate_replica::service::CommandId;
use quorate_wire::Frame;

use super::{
    Verdict, agreement::Agreement, classes::Classes, levels::Levels, lives::Lives, prefix::Prefix,
    promises::Promises, rings::Rings, rounds::Rounds,
};
use crate::{
    disk::{LogWrite, Released},
    steps::Steps,
};

/// All checkers of nodes, and the position up to which each node's log was passed to them.
#[derive(Debug)]
pub(crate) struct Watch {
    agreement: Agreement,
    prefix: Prefix,
    promises: Promises,
    rings: Rings,
    rounds: Rounds,
    lives: Lives,
    levels: Levels,
    classes: Classes,
    released: Vec<Released>,
    /// Steps in the terms of the TLA+ specification, recorded only on request.
    pub(crate) steps: Option<Steps>,
}

impl Watch {
    /// Returns checkers for `nodes` nodes. The first of these are the founding members.
    pub(crate) fn new(nodes: usize, founding: Configuration) -> Self {
        Self {
            agreement: Agreement::new(founding),
            prefix: Prefix::default(),
            promises: Promises::default(),
            rings: Rings::default(),
            rounds: Rounds::default(),
            lives: Lives::default(),
            levels: Levels::default(),
            classes: Classes::default(),
            released: (0..nodes).map(|_| Released::new(1)).collect(),
            steps: None,
        }
    }

    /// Returns the hash of the command that nodes executed as `id`.
    pub(crate) fn executed_in(&self, id: CommandId) -> Option<u64> {
        self.prefix.executed_in(id)
    }

    /// Returns the chosen value of each slot, up to the first slot without a chosen value.
    pub(crate) fn chosen_values(&self) -> impl Iterator<Item = (Slot, Value)> {
        let slots = (Slot::FIRST.0..self.agreement.chosen_to().0).map(Slot);
        slots.filter_map(|slot| Some((slot, self.agreement.value_of(slot)?)))
    }

    /// Returns the number of a node's first log write that was not passed to the checkers yet.
    pub(crate) fn released_to(&self, node: usize) -> u64 {
        self.released[node].next_write()
    }

    /// Handles the end of a process. Log writes that were waiting for earlier ones are discarded.
    pub(crate) fn ended(&mut self, node: usize) {
        self.released[node] = Released::new(self.released[node].next_write());
    }

    /// Sets the number of a node's next log write.
    pub(crate) fn goes_on_at(&mut self, node: usize, next: u64) {
        self.released[node] = Released::new(next);
    }

    pub(crate) fn lives(&mut self) -> &mut Lives {
        &mut self.lives
    }

    pub(crate) fn levels(&mut self) -> &mut Levels {
        &mut self.levels
    }

    pub(crate) fn classes(&mut self) -> &mut Classes {
        &mut self.classes
    }

    pub(crate) fn promises(&mut self) -> &mut Promises {
        &mut self.promises
    }

    /// Handles a log write that is complete on disk, which releases it and any later writes that
    /// were waiting for it.
    pub(crate) fn wrote(&mut self, node: usize, id: NodeId, write: LogWrite) -> Verdict {
        let released = self.released[node].record_write(write);
        released.iter().try_for_each(|write| self.released(node, id, write))
    }

    /// Handles a log write that is on stable storage, as are all writes before it.
    pub(crate) fn released(&mut self, node: usize, id: NodeId, write: &LogWrite) -> Verdict {
        let LogWrite { incarnation, records, .. } = write;
        let member = Member { node: id, incarnation: *incarnation };
        for record in records {
            self.classes.released(node, record);
            if let Some(steps) = &mut self.steps {
                steps.wrote(member, record);
            }
            match *record {
                Record::Promise { ballot } => self.promises.wrote(member, ballot)?,
                Record::Vote { ballot, range, value } => {
                    self.promises.wrote(member, ballot)?;
                    self.agreement.vote(member, ballot, range, value)?;
                }
                Record::Decided { range, value } => {
                    self.agreement.check_learned(node, range, value)?
                }
                Record::Round { .. } => {}
            }
        }
        Ok(())
    }

    /// Handles a command executed by a service.
    pub(crate) fn executed(
        &mut self,
        node: usize,
        id: CommandId,
        command: u64,
        reply: u64,
    ) -> Verdict {
        self.prefix.executed(node, id, command, reply)
    }

    pub(crate) fn commands(&self) -> usize {
        self.prefix.commands()
    }

    /// Handles a service's report that it has applied all slots below `to`. `durable` is true if
    /// the group decides by durable votes.
    pub(crate) fn applied(
        &mut self,
        node: usize,
        to: Slot,
        digest: Option<u128>,
        durable: bool,
    ) -> Verdict {
        if durable {
            self.agreement.applied(node, to)?;
        }
        if let Some(digest) = digest {
            self.prefix.state(node, to, digest)?;
        }
        Ok(())
    }

    /// Handles a frame sent by a process.
    pub(crate) fn sent(
        &mut self,
        node: usize,
        life: u64,
        member: Member,
        frame: &Frame<'_>,
    ) -> Verdict {
        let Frame::Protocol { message, .. } = frame else {
            return Ok(());
        };
        if let Some(steps) = &mut self.steps {
            steps.sent(member, message);
        }
        match message {
            Message::Phase1a { ballot, .. } => self.rounds.check_ballot(node, life, *ballot),
            Message::Phase2a(proposal) => self.rounds.check_ballot(node, life, proposal.ballot),
            Message::Phase1b(promise) => {
                self.promises.record_sent(member, promise.ballot);
                Ok(())
            }
            Message::Phase2b(vote) => {
                self.promises.record_sent(member, vote.ballot);
                Ok(())
            }
            Message::RingVote(vote) => {
                if vote.entries.iter().any(|entry| entry.member == member) {
                    self.promises.record_sent(member, vote.ballot);
                }
                self.rings.carries(member, vote)
            }
            _ => Ok(()),
        }
    }

    pub(crate) const fn relayed(&self) -> u64 {
        self.rings.relayed()
    }

    /// Checks the era and decided prefix that a process reports.
    pub(crate) fn status(&mut self, node: usize, life: u64, era: Era, decided_to: Slot) -> Verdict {
        if let Some(steps) = &mut self.steps {
            steps.decides(node, decided_to);
        }
        self.rounds.status(node, life, era, decided_to)
    }
}
