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
    Verdict, agreement::Agreement, classes::ClassCommands, levels::UsedLevels, lives::LatestLives,
    prefix::ExecutedPrefix, promises::Promises, rings::RingVotes, rounds::BallotUse,
};
use crate::{
    disk::{LogWrite, ReleasedWrites},
    steps::StepRecorder,
};

/// All checkers of nodes, and the position up to which each node's log was passed to them.
#[derive(Debug)]
pub(crate) struct NodeCheckers {
    agreement: Agreement,
    prefix: ExecutedPrefix,
    promises: Promises,
    rings: RingVotes,
    rounds: BallotUse,
    lives: LatestLives,
    levels: UsedLevels,
    classes: ClassCommands,
    released: Vec<ReleasedWrites>,
    /// Steps in the terms of the TLA+ specification, recorded only on request.
    pub(crate) steps: Option<StepRecorder>,
}

impl NodeCheckers {
    /// Returns checkers for `nodes` nodes. The first of these are the founding members.
    pub(crate) fn new(nodes: usize, founding: Configuration) -> Self {
        Self {
            agreement: Agreement::new(founding),
            prefix: ExecutedPrefix::default(),
            promises: Promises::default(),
            rings: RingVotes::default(),
            rounds: BallotUse::default(),
            lives: LatestLives::default(),
            levels: UsedLevels::default(),
            classes: ClassCommands::default(),
            released: (0..nodes).map(|_| ReleasedWrites::new(1)).collect(),
            steps: None,
        }
    }

    /// Returns the hash of the command that nodes executed as `id`.
    pub(crate) fn command_hash(&self, id: CommandId) -> Option<u64> {
        self.prefix.command_hash(id)
    }

    /// Returns the chosen value of each slot, up to the first slot without a chosen value.
    pub(crate) fn chosen_values(&self) -> impl Iterator<Item = (Slot, Value)> {
        let slots = (Slot::FIRST.0..self.agreement.chosen_to().0).map(Slot);
        slots.filter_map(|slot| Some((slot, self.agreement.chosen_value(slot)?)))
    }

    /// Returns the number of a node's first log write that was not passed to the checkers yet.
    pub(crate) fn next_unchecked_write(&self, node: usize) -> u64 {
        self.released[node].next_write()
    }

    /// Handles the end of a process. Log writes that were waiting for earlier ones are discarded.
    pub(crate) fn end_process(&mut self, node: usize) {
        self.released[node] = ReleasedWrites::new(self.released[node].next_write());
    }

    /// Sets the number of a node's next log write.
    pub(crate) fn set_next_write(&mut self, node: usize, next: u64) {
        self.released[node] = ReleasedWrites::new(next);
    }

    pub(crate) fn lives(&mut self) -> &mut LatestLives {
        &mut self.lives
    }

    pub(crate) fn levels(&mut self) -> &mut UsedLevels {
        &mut self.levels
    }

    pub(crate) fn classes(&mut self) -> &mut ClassCommands {
        &mut self.classes
    }

    pub(crate) fn promises(&mut self) -> &mut Promises {
        &mut self.promises
    }

    /// Handles a log write that is complete on disk, which releases it and any later writes that
    /// were waiting for it.
    pub(crate) fn record_write(&mut self, node: usize, id: NodeId, write: LogWrite) -> Verdict {
        let released = self.released[node].record_write(write);
        released.iter().try_for_each(|write| self.check_released_write(node, id, write))
    }

    /// Handles a log write that is on stable storage, as are all writes before it.
    pub(crate) fn check_released_write(
        &mut self,
        node: usize,
        id: NodeId,
        write: &LogWrite,
    ) -> Verdict {
        let LogWrite { incarnation, records, .. } = write;
        let member = Member { node: id, incarnation: *incarnation };
        for record in records {
            self.classes.record_stable(node, record);
            if let Some(steps) = &mut self.steps {
                steps.record_write(member, record);
            }
            match *record {
                Record::Promise { ballot } => self.promises.check_durable(member, ballot)?,
                Record::Vote { ballot, range, value } => {
                    self.promises.check_durable(member, ballot)?;
                    self.agreement.record_vote(member, ballot, range, value)?;
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
    pub(crate) fn check_executed(
        &mut self,
        node: usize,
        id: CommandId,
        command: u64,
        reply: u64,
    ) -> Verdict {
        self.prefix.check_executed(node, id, command, reply)
    }

    pub(crate) fn command_count(&self) -> usize {
        self.prefix.command_count()
    }

    /// Handles a service's report that it has applied all slots below `to`. `durable` is true if
    /// the group decides by durable votes.
    pub(crate) fn check_applied(
        &mut self,
        node: usize,
        to: Slot,
        digest: Option<u128>,
        durable: bool,
    ) -> Verdict {
        if durable {
            self.agreement.check_applied(node, to)?;
        }
        if let Some(digest) = digest {
            self.prefix.check_state(node, to, digest)?;
        }
        Ok(())
    }

    /// Handles a frame sent by a process.
    pub(crate) fn check_sent_frame(
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
            steps.record_sent(member, message);
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
                self.rings.check_carried(member, vote)
            }
            _ => Ok(()),
        }
    }

    pub(crate) const fn relayed_vote_count(&self) -> u64 {
        self.rings.relayed_count()
    }

    /// Checks the era and decided prefix that a process reports.
    pub(crate) fn check_status(
        &mut self,
        node: usize,
        life: u64,
        era: Era,
        decided_to: Slot,
    ) -> Verdict {
        if let Some(steps) = &mut self.steps {
            steps.record_decided(node, decided_to);
        }
        self.rounds.check_status(node, life, era, decided_to)
    }
}
