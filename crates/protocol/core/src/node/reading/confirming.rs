//! Linearizable reads without a slot: a leader confirms them with a round of heartbeats, and a
//! follower requests a read index ([read-1]–[read-3]).

use crate::{
    effect::{Effect, Effects},
    input::ReadToken,
    learner::Proposal,
    message::Message,
    node::Node,
    node_id::NodeId,
    quorum::Phase,
    reads::Reader,
    slot::Slot,
    time::Time,
};

impl Node {
    pub(in crate::node) fn on_read(&mut self, now: Time, token: ReadToken, effects: &mut Effects) {
        let taken = if self.spine.phase2().is_some() && self.devices.assigns_slots() {
            self.query_next_slot(Reader::Local(token), effects)
        } else if let Some(leading) = self.spine.phase2() {
            // [read-1] Followers acknowledge clients too, so a client may know of any proposal.
            self.reading.reads.add_read(Reader::Local(token), leading.tally.next())
        } else if self.is_auxiliary() {
            // [aux-1] An auxiliary applies nothing, so it has no use for an index.
            false
        } else if let Some(leader) = self.spine.election().leader() {
            let id = self.reading.read_index_requests.add_request(now, token);
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
    pub(in crate::node) fn on_read_request(
        &mut self,
        from: NodeId,
        id: u64,
        effects: &mut Effects,
    ) {
        if self.spine.phase2().is_some() && self.devices.assigns_slots() {
            let _ = self.query_next_slot(Reader::Remote(from, id), effects);
        } else if let Some(leading) = self.spine.phase2() {
            // If the queue is full, the request is dropped, and the follower repeats it.
            let _ = self.reading.reads.add_read(Reader::Remote(from, id), leading.tally.next());
        }
    }

    pub(in crate::node) fn on_read_reply(&mut self, id: u64, slot: Slot, effects: &mut Effects) {
        if let Some(token) = self.reading.read_index_requests.take_answered(id) {
            effects.push(Effect::ReadReady { token, slot });
        }
    }

    /// [read-2] Starts a round if reads are waiting, and ends it once no higher ballot can have
    /// been promised.
    pub(in crate::node) fn confirm_reads(&mut self, now: Time, effects: &mut Effects) {
        let own = self.spine.options().member;
        loop {
            let Some(leading) = self.spine.phase2() else { return };
            if self.spine.acceptor().promised() > leading.ballot() {
                return;
            }
            if self.reading.reads.round() == 0 {
                if self.reading.reads.start_round(own).is_none() {
                    return;
                }
                self.send_heartbeat(now, effects);
            }
            if !self.reads_are_confirmed() {
                return;
            }
            for (reader, slot) in self.reading.reads.finish_round() {
                match reader {
                    Reader::Local(token) => effects.push(Effect::ReadReady { token, slot }),
                    Reader::Remote(node, id) => effects.send(node, Message::ReadReply { id, slot }),
                }
            }
        }
    }

    /// [read-9] Returns the proposals that this leader has not decided yet; `None` if this node
    /// does not lead, or a device assigns slots. Every slot that was decided when a confirmed read
    /// arrived is decided on this node or covered by one of these proposals.
    pub fn undecided_proposals(&self) -> Option<impl Iterator<Item = &Proposal>> {
        let leading = self.spine.phase2().filter(|_| !self.devices.assigns_slots())?;
        Some(leading.tally.proposals_from(self.spine.learner().decided_to()))
    }

    fn reads_are_confirmed(&self) -> bool {
        let by = self.reading.reads.confirmed_by();
        self.blocks_others(Phase::One, |member| by.contains(&member))
    }
}
