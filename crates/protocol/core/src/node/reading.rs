//! Linearizable reads without a slot, at the leader and at a follower ([read-1]–[read-3]).

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
            // [read-1] Followers acknowledge clients too, so all that was proposed may be known.
            self.reads.gather(Reader::Local(token), leading.tally.next())
        } else if self.is_auxiliary() {
            // [aux-1] It executes nothing, so no index is of use to it.
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
            // Without room the question is dropped, and asked again.
            let _ = self.reads.gather(Reader::Remote(from, id), leading.tally.next());
        }
    }

    pub(super) fn on_read_reply(&mut self, id: u64, slot: Slot, effects: &mut Effects) {
        if let Some(token) = self.asked.answered(id) {
            effects.push(Effect::ReadReady { token, slot });
        }
    }

    /// [read-2] Starts a round when reads wait; ends it when no higher ballot can have been
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

    /// Returns whether these members keep all others from leading: they meet every phase-1 quorum
    /// of any era that a ballot after this leader's may be of.
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
        // Changes that this ballot proposed may be decided, one after the other, and be used for
        // phase 1 by a node that knows it, before this leader does. It proposes one at a time, and
        // may have inherited several.
        let mut coming = eras.clone();
        for proposal in leading.tally.proposals_from(self.learner.decided_to()) {
            // [era-4] What names another era, or is invalid, will change nothing.
            if coming.decide(proposal.range.from, &proposal.value) && !blocks(coming.current()) {
                return false;
            }
        }
        true
    }
}
