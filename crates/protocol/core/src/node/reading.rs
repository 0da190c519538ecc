//! Linearizable reads that need no slot, at the leader and at followers ([read-1]–[read-3]).

use super::Node;
use crate::{
    effect::{Effect, Effects},
    input::ReadToken,
    message::Message,
    node_id::{Member, NodeId},
    reads::{Asked, Reader, Reads},
    slot::Slot,
    time::Time,
};

/// Reads in progress, on both sides.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Reading {
    /// Reads that this leader confirms by a round of heartbeats.
    reads: Reads,
    /// Reads for which this node requested an index from its leader.
    asked: Asked,
}

impl Reading {
    /// Request ids begin after `last`, so that an answer to an earlier process matches none.
    pub(super) fn starting_at(last: u64) -> Self {
        Self { reads: Reads::default(), asked: Asked::starting_at(last) }
    }

    /// Returns the round that heartbeats carry; 0 for none.
    pub(super) fn round(&self) -> u64 {
        self.reads.round()
    }

    /// Notes that a member has answered in this round.
    pub(super) fn confirm(&mut self, round: u64, by: Member) {
        self.reads.confirm(round, by);
    }

    /// Adds a read that may run once everything below `slot` is applied. Returns whether there
    /// was room.
    pub(super) fn gather(&mut self, reader: Reader, slot: Slot) -> bool {
        self.reads.gather(reader, slot)
    }

    /// Begins a new ballot of this node, whose first free slot is `slot`.
    pub(super) fn restart(&mut self, slot: Slot) {
        self.reads.restart(slot);
    }

    /// Ends the reads of a leader that steps down.
    pub(super) fn fail(&mut self) -> impl Iterator<Item = Reader> + '_ {
        self.reads.fail()
    }

    /// Ends the requests to a leader that has been replaced.
    pub(super) fn fail_requests(&mut self) -> impl Iterator<Item = ReadToken> + '_ {
        self.asked.fail()
    }

    /// Ends a request without an answer for `patience_us`.
    pub(super) fn overdue(&mut self, now: Time, patience_us: u64) -> Option<ReadToken> {
        self.asked.overdue(now, patience_us)
    }

    /// Returns when the next request is overdue.
    pub(super) fn wake_at(&self, patience_us: u64) -> Option<Time> {
        self.asked.wake_at(patience_us)
    }
}

impl Node {
    pub(super) fn on_read(&mut self, now: Time, token: ReadToken, effects: &mut Effects) {
        let taken = if self.spine.leading().is_some() && self.devices.assigns_slots() {
            self.look_next(Reader::Local(token), effects)
        } else if let Some(leading) = self.spine.leading() {
            // [read-1] Followers acknowledge clients too, so a client may know of anything
            // proposed.
            self.reading.reads.gather(Reader::Local(token), leading.tally.next())
        } else if self.is_auxiliary() {
            // [aux-1] An auxiliary applies nothing, so it has no use for an index.
            false
        } else if let Some(leader) = self.spine.election().leader() {
            let id = self.reading.asked.ask(now, token);
            if let Some(id) = id {
                effects.send(leader, Message::ReadRequest { id });
            }
            id.is_some()
        } else {
            false
        };
        if !taken {
            effects.push(Effect::ReadFailed { token });
        }
    }

    /// [read-3] Handles a follower's request for a read index.
    pub(super) fn on_read_request(&mut self, from: NodeId, id: u64, effects: &mut Effects) {
        if self.spine.leading().is_some() && self.devices.assigns_slots() {
            let _ = self.look_next(Reader::Remote(from, id), effects);
        } else if let Some(leading) = self.spine.leading() {
            // If the queue is full the request is dropped; the follower repeats it.
            let _ = self.reading.reads.gather(Reader::Remote(from, id), leading.tally.next());
        }
    }

    pub(super) fn on_read_reply(&mut self, id: u64, slot: Slot, effects: &mut Effects) {
        if let Some(token) = self.reading.asked.answered(id) {
            effects.push(Effect::ReadReady { token, slot });
        }
    }

    /// [read-2] Starts a round when reads wait, and ends it once no higher ballot can have been
    /// promised.
    pub(super) fn confirm_reads(&mut self, now: Time, effects: &mut Effects) {
        let own = self.spine.options().member;
        loop {
            let Some(leading) = self.spine.leading() else { return };
            if self.spine.acceptor().promised() > leading.ballot() {
                return;
            }
            if self.reading.reads.round() == 0 {
                if self.reading.reads.start(own).is_none() {
                    return;
                }
                self.heartbeat(now, effects);
            }
            if !self.reads_are_confirmed() {
                return;
            }
            for (reader, slot) in self.reading.reads.finish() {
                match reader {
                    Reader::Local(token) => effects.push(Effect::ReadReady { token, slot }),
                    Reader::Remote(node, id) => effects.send(node, Message::ReadReply { id, slot }),
                }
            }
        }
    }

    fn reads_are_confirmed(&self) -> bool {
        let by = self.reading.reads.confirmed_by();
        self.blocks_others(|member| by.contains(&member))
    }
}
