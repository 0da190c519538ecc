//! The spine, the part of a node that orders commands: acceptor, learner, ballots and phases,
//! election, and its knowledge of peers. By itself it is Multi-Paxos with reconfiguration.
//!
//! The fields are private to this module. Everything else of a node is a *wing*, which reads the
//! spine through the accessors below and changes it through the few methods after them; see
//! `docs/spec/structure.md`.

mod entering;
mod following;
mod installing;
mod leading;
mod phase1;
mod proposing;
mod status;
mod timing;
mod voting;

use alloc::vec::Vec;

use super::{options::Options, recovered::Recovered};
use crate::{
    acceptor::{Acceptor, OwnVotes},
    ballot::Ballot,
    catchup::Catchup,
    durable::PendingStatements,
    effect::Effects,
    election::Election,
    flow::Peers,
    leader::{Phase1, Phase2},
    learner::Learner,
    node_id::NodeId,
    record::{Record, RecordSeq},
    rounds::Rounds,
    slot::{Slot, SlotRange},
    time::Time,
    value::Value,
    waiting::WaitingProposals,
};

/// State of the core protocol. [`crate::invariants`] states the invariants that relate its fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Spine {
    options: Options,
    /// Promises and votes of this node.
    ///
    /// Invariant: no promise and no vote is below an earlier promise ([ballot-4], [p2-1]).
    acceptor: Acceptor,
    /// Records that are being written to stable storage, and the statements that wait for them.
    ///
    /// Invariant: a statement is sent after the record that it needs ([p2-6]).
    pending: PendingStatements,
    /// The decided prefix and the configurations in it.
    ///
    /// Invariant: log start ≤ decided ≤ end of the window of votes.
    learner: Learner,
    /// Votes of this node in the newest ballot, and the end of the slots that its log has on stable
    /// storage.
    own_votes: OwnVotes,
    /// Ballots that this node used.
    ///
    /// Invariant: a round is recorded before it is used, and is used only once ([ballot-2]).
    rounds: Rounds,
    /// Phase 1 of this node's own ballot, while it is in progress.
    phase1: Option<Phase1>,
    /// Phase 2 of this node's own ballot, while it leads.
    ///
    /// Invariant: its ballot is one for which this node completed phase 1 ([p1-6]).
    phase2: Option<Phase2>,
    /// The known leader, and the time at which to try to replace it.
    election: Election,
    /// Other nodes, and the progress that each reported.
    peers: Peers,
    /// Decided slots that this node lacks, the nodes from which to request them, and a promise that
    /// waits for them.
    catchup: Catchup,
    /// Proposals that wait for their bytes or for their turn.
    waiting_proposals: WaitingProposals,
}

/// Construction of the spine, and the limits of a step.
impl Spine {
    pub(super) fn new(options: Options, recovered: Recovered) -> Self {
        let Recovered {
            hard_state: hard,
            log_start,
            decided_to,
            lost_slots: lost,
            eras,
            votes,
            reconfigurations: changes,
            hollow,
        } = recovered;
        let mut pending = PendingStatements::new(eras.current().class(), options.inflight_max + 2);
        pending.record_durable_decided(hard.decided_to);
        let mut durable_to = decided_to;
        for vote in &votes {
            if vote.range.from <= durable_to {
                durable_to = durable_to.max(vote.range.to);
            }
        }
        // A vote is also a promise, in case the promise itself is known only from the vote.
        let voted = votes.iter().map(|vote| vote.ballot).max().unwrap_or_default();
        let promised = hard.promised.max(voted);
        let acceptor = Acceptor::new(
            promised,
            hard.decided_to,
            hard.voted_to,
            votes,
            options.window_slots,
            options.inflight_max,
        );
        Self {
            acceptor,
            pending,
            learner: Learner::new(log_start, decided_to, eras, lost, changes, hollow),
            own_votes: OwnVotes::new(durable_to),
            rounds: Rounds::new(options.member, hard.last_used_ballot),
            phase1: None,
            phase2: None,
            election: Election::new(options.election_min_ms, options.election_max_ms, options.seed),
            peers: Peers::new(decided_to),
            // [disk-8] A slot that was decided on this node remains decided on other nodes.
            catchup: Catchup::starting_at(hard.decided_to),
            waiting_proposals: WaitingProposals::default(),
            options,
        }
    }

    pub(super) fn begin_step(&mut self) {
        self.pending.begin_step(self.acceptor.floor());
    }

    pub(super) fn end_step(&mut self) {
        self.pending.end_step(self.acceptor.floor());
    }
}

/// Read access.
impl Spine {
    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    pub(super) fn acceptor(&self) -> &Acceptor {
        &self.acceptor
    }

    pub(super) fn pending(&self) -> &PendingStatements {
        &self.pending
    }

    pub(super) fn learner(&self) -> &Learner {
        &self.learner
    }

    pub(super) fn own_votes(&self) -> &OwnVotes {
        &self.own_votes
    }

    pub(super) fn phase1(&self) -> Option<&Phase1> {
        self.phase1.as_ref()
    }

    pub(super) fn phase2(&self) -> Option<&Phase2> {
        self.phase2.as_ref()
    }

    pub(super) fn election(&self) -> &Election {
        &self.election
    }

    pub(super) fn peers(&self) -> &Peers {
        &self.peers
    }

    pub(super) fn catchup(&self) -> &Catchup {
        &self.catchup
    }
}

/// Changes that inputs and wings make.
impl Spine {
    /// Records the arrival of the bytes of a value that is waiting for its vote.
    pub(super) fn mark_bytes_present(&mut self, value: &Value, range: SlotRange) {
        self.waiting_proposals.mark_present(value, range);
    }

    /// [disk-8], [here-3] Records the first slot decided in this process whose value cannot be read
    /// back; `None` if every value can.
    pub(super) fn set_first_unreadable(&mut self, first: Option<Slot>) {
        self.learner.set_first_unreadable(first);
    }

    /// [here-1], [here-3] Records whether bytes of streams may be missing on this node.
    pub(super) fn set_lacks_stream_bytes(&mut self, lacking: bool) {
        self.learner.set_lacks_stream_bytes(lacking);
    }

    /// [disk-9] Stops all statements permanently, because the log failed. Returns the ballot that
    /// this node led.
    pub(super) fn storage_failed(&mut self) -> Option<Ballot> {
        self.pending.fail();
        self.waiting_proposals.clear();
        self.phase2.as_ref().map(Phase2::ballot)
    }

    /// [last-1] Appends a record whose only purpose is to restate the end of the decided slots.
    pub(super) fn restate(&mut self, effects: &mut Effects) -> RecordSeq {
        let ballot = self.acceptor.promised();
        self.pending.append(Record::Promise { ballot }, effects)
    }

    /// [offload-8] Adopts a vote that this node's device cast, and that `record` holds.
    pub(super) fn import_vote(
        &mut self,
        ballot: Ballot,
        range: SlotRange,
        value: Value,
        record: RecordSeq,
    ) {
        self.acceptor.cast_vote(ballot, range, value, record);
    }

    /// [offload-11] Counts slots for which a coordinator counted a quorum, if this node leads in
    /// `ballot`. Returns whether this node leads in it.
    pub(super) fn note_counted(&mut self, ballot: Ballot, range: SlotRange) -> bool {
        let leading = self.phase2.as_mut().filter(|leading| leading.ballot() == ballot);
        leading.map(|leading| leading.tally.note_counted(range)).is_some()
    }

    /// [trim-1] Forgets everything below `to`, which full replicas hold.
    pub(super) fn trim_to(&mut self, to: Slot) {
        self.learner.trim_to(to);
        self.advance_to_decided();
    }

    /// Rewinds a peer, so that the next proposals sent to it start at `from`.
    pub(super) fn rewind_peer(&mut self, node: NodeId, from: Slot) {
        if let Some(peer) = self.peers.find(node) {
            peer.sent_to = from;
        }
    }

    /// Rewinds each peer to the end of its votes, to resume proposals there. Returns the peers.
    pub(super) fn rewind_peers_to_votes(&mut self) -> Vec<NodeId> {
        let decided_to = self.learner.decided_to();
        let peers = self.peers.iter_mut().map(|peer| {
            peer.sent_to = peer.sent_to.min(peer.voted_to.max(decided_to));
            peer.member.node
        });
        peers.collect()
    }

    /// Restarts the election timeout.
    pub(super) fn restart_election_timeout(&mut self, now: Time) {
        self.election.restart_timeout(now);
    }

    /// Records that the leader asked this node to take over.
    pub(super) fn record_takeover_request(&mut self, now: Time) {
        self.election.record_takeover_request(now);
    }

    /// Advances acceptor and votes to the end of the learner's decided slots, which are all on
    /// stable storage.
    fn advance_to_decided(&mut self) {
        let decided_to = self.learner.decided_to();
        self.acceptor.advance_floor(decided_to);
        self.own_votes.record_decisions_persisted(decided_to);
        self.own_votes.join_run();
    }
}
