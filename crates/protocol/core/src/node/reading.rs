//! Linearizable reads that need no slot, at the leader and at followers ([read-1]–[read-3]).

use super::Node;
use crate::{
    configuration::Configuration,
    effect::{Effect, Effects},
    input::ReadToken,
    message::Message,
    node_id::{Member, NodeId},
    quorum::MemberSet,
    reads::Reader,
    slot::Slot,
    time::Time,
};

impl Node {
    pub(super) fn on_read(&mut self, now: Time, token: ReadToken, effects: &mut Effects) {
        let taken = if self.leading.is_some() && self.offload.is_out() {
            self.look_next(Reader::Local(token), effects)
        } else if let Some(leading) = &self.leading {
            // [read-1] Followers acknowledge clients too, so a client may know of anything
            // proposed.
            self.reads.gather(Reader::Local(token), leading.tally.next())
        } else if self.is_auxiliary() {
            // [aux-1] An auxiliary applies nothing, so it has no use for an index.
            false
        } else if let Some(leader) = self.election.leader() {
            let id = self.asked.ask(now, token);
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
        if self.leading.is_some() && self.offload.is_out() {
            let _ = self.look_next(Reader::Remote(from, id), effects);
        } else if let Some(leading) = &self.leading {
            // If the queue is full the request is dropped; the follower repeats it.
            let _ = self.reads.gather(Reader::Remote(from, id), leading.tally.next());
        }
    }

    pub(super) fn on_read_reply(&mut self, id: u64, slot: Slot, effects: &mut Effects) {
        if let Some(token) = self.asked.answered(id) {
            effects.push(Effect::ReadReady { token, slot });
        }
    }

    /// [read-2] Starts a round when reads wait, and ends it once no higher ballot can have been
    /// promised.
    pub(super) fn confirm_reads(&mut self, now: Time, effects: &mut Effects) {
        let own = self.options.member;
        loop {
            let Some(leading) = &self.leading else { return };
            if self.acceptor.promised() > leading.ballot() {
                return;
            }
            if self.reads.round() == 0 {
                if self.reads.start(own).is_none() {
                    return;
                }
                self.heartbeat(now, effects);
            }
            if !self.reads_are_confirmed() {
                return;
            }
            for (reader, slot) in self.reads.finish() {
                match reader {
                    Reader::Local(token) => effects.push(Effect::ReadReady { token, slot }),
                    Reader::Remote(node, id) => effects.send(node, Message::ReadReply { id, slot }),
                }
            }
        }
    }

    fn reads_are_confirmed(&self) -> bool {
        let by = self.reads.confirmed_by();
        self.blocks_others(|member| by.contains(&member))
    }

    /// Returns whether these members prevent all others from leading: they intersect every phase-1
    /// quorum of any era that a higher ballot may belong to.
    pub(super) fn blocks_others(&self, by: impl Fn(Member) -> bool) -> bool {
        let Some(leading) = &self.leading else {
            return false;
        };
        let eras = self.learner.eras();
        let blocks = |configuration: &Configuration| {
            let members = configuration.members().iter().enumerate();
            let inside = members.filter(|(_, voter)| by(voter.member));
            let set = inside.fold(MemberSet::default(), |set, (at, _)| set.with(at));
            configuration.blocks_phase1(set)
        };
        let era = leading.ballot().era;
        if !eras.of(era).is_some_and(blocks) || !blocks(eras.current()) {
            return false;
        }
        if leading.changing.is_none() {
            return true;
        }
        // Reconfigurations that this ballot proposed may be decided in sequence, and another node
        // may use them for phase 1 before this leader knows. The leader proposes one at a time, but
        // may have inherited several.
        let mut coming = eras.clone();
        for proposal in leading.tally.proposals_from(self.learner.decided_to()) {
            // [era-4] A reconfiguration that names another era, or is invalid, changes nothing.
            if coming.decide(proposal.range.from, &proposal.value) && !blocks(coming.current()) {
                return false;
            }
        }
        true
    }
}
