//! Talking to acceptors: phase 1, proposals, counting, the move to the next ballot.

use alloc::vec::Vec;

use super::Node;
use crate::{
    ballot::Ballot,
    durable::Statement,
    effect::{Alarm, Effect, Effects, Refusal},
    explanation::{Campaign, End, Explanation},
    leader::{Asked, Inherited, Leading, Phase1, Stage, set_of, split},
    learner::{Proposal, Tally},
    message::{Heartbeat, HeartbeatReply, Message, Phase1b, Phase2a, Phase2b},
    node_id::{Member, NodeId},
    quorum::Phase,
    reads::Reader,
    record::{Class, Record},
    slot::Slot,
    time::Time,
    value::Value,
};

/// Rounds that one incarnation may use in an era before it would meet those of the next.
const ROUNDS_PER_INCARNATION: u32 = 1 << 20;

impl Node {
    /// [ballot-2] A node that may have forgotten a round of its own stays above all of them. `None`
    /// after so many incarnations that there are no rounds left.
    fn rounds_forgotten(&self) -> Option<u32> {
        let incarnation = self.options.member.incarnation.0;
        incarnation.checked_mul(ROUNDS_PER_INCARNATION)
    }

    /// [ballot-1] Whether this node can never campaign again, in any era.
    pub fn is_out_of_rounds(&self) -> bool {
        self.rounds_forgotten().is_none()
    }

    /// The next ballot of this node, if it may start one ([ballot-1], [ballot-3]).
    pub(super) fn next_ballot(&self) -> Option<Ballot> {
        let era = self.learner.eras().era();
        let of = |ballot: Ballot| if ballot.era == era { ballot.round } else { 0 };
        let promised = self.acceptor.promised();
        let forgotten = self.rounds_forgotten()?;
        let used = of(self.spoken)
            .max(of(promised))
            .max(self.election.round_seen(era))
            .max(forgotten);
        let round = used.checked_add(1)?;
        let ballot = Ballot {
            era,
            round,
            node: self.options.member.node,
        };
        (ballot > promised && ballot > self.spoken).then_some(ballot)
    }

    /// Phase 1 begins: its round is recorded first, in every group ([ballot-2], [class-3]).
    pub(super) fn campaign(&mut self, asked: Asked, why: Campaign, effects: &mut Effects) {
        let Some(ballot) = self.next_ballot() else {
            return;
        };
        // [ballot-2] Whoever finds the round in the log must find its era there too, or it would
        // start from round 1 when it gets there again. If this step's own votes began the era, the
        // next step is early enough.
        let decided_to = self.learner.decided_to();
        if self.pending.restates(decided_to) < decided_to {
            return;
        }
        effects.slow.campaigns += 1;
        effects.explain(Explanation::Campaigns { ballot, why });
        self.spoken = ballot;
        let record = self.pending.append(Record::Round { ballot }, effects);
        let from = self.learner.decided_to();
        if asked == Asked::Everybody {
            self.promise(ballot, effects);
            self.park_promise(self.options.member.node, ballot, from);
        }
        self.phase1 = Some(Phase1::new(ballot, from, asked, record));
    }

    /// A statement of this node to itself.
    pub(super) fn take_own(&mut self, statement: Statement, effects: &mut Effects) {
        let own = self.options.member;
        match statement {
            Statement::Promise(promise) => self.take_promise(own, promise, effects),
            Statement::Vote(vote) => self.on_phase2b(own, vote, effects),
        }
    }

    pub(super) fn on_phase1b(
        &mut self,
        _now: Time,
        from: Member,
        promise: Phase1b,
        effects: &mut Effects,
    ) {
        // Only this node's own acceptor speaks for it, and not by message.
        if from.node != self.options.member.node && promise.is_well_formed() {
            self.take_promise(from, promise, effects);
        }
    }

    fn take_promise(&mut self, from: Member, promise: Phase1b, effects: &mut Effects) {
        let Some(phase1) = self.phase1.as_mut().filter(|p| p.ballot == promise.ballot) else {
            return;
        };
        if let Err(slot) = phase1.promise(from, promise) {
            let ballot = phase1.ballot;
            self.end_phase1(End::Alarm, effects);
            self.alarm(Alarm::ConflictingProposals { ballot, slot }, effects);
        }
    }

    /// Moves phase 1 on as far as it goes. Returns whether something may have been parked.
    pub(super) fn advance_phase1(&mut self, now: Time, effects: &mut Effects) -> bool {
        let Some(phase1) = self.phase1.as_mut() else {
            return false;
        };
        match phase1.stage {
            Stage::Recording(record) => {
                if !self.pending.is_durable(record) {
                    return false;
                }
                phase1.stage = Stage::Asking;
                self.send_phase1a(now, effects);
                true
            }
            Stage::Asking if phase1.all_answered() => {
                let own = self.options.member;
                let judge = self.learner.eras().of(phase1.ballot.era);
                if judge.is_some_and(|judge| phase1.has_quorum_with(own, judge)) {
                    return self.cast(effects);
                }
                // [cast-5] Who answered is a member no more, or came back as another.
                self.phase1 = None;
                self.campaign(Asked::Everybody, Campaign::AskedAgain, effects);
                true
            }
            Stage::Asking | Stage::Casting => {
                let own_is_in = phase1.promised(self.options.member);
                if phase1.asked != Asked::Everybody && !own_is_in {
                    return false;
                }
                let Some(judge) = self.learner.eras().of(phase1.ballot.era) else {
                    self.end_phase1(End::NoMember, effects);
                    return false;
                };
                if !phase1.has_quorum(judge) {
                    return false;
                }
                phase1.stage = Stage::CatchingUp;
                let (floor, at) = (phase1.floor, phase1.floor_at);
                self.catchup.note(floor, at);
                true
            }
            Stage::CatchingUp => {
                if self.learner.decided_to() < phase1.floor {
                    return false;
                }
                self.begin(now, effects);
                true
            }
        }
    }

    /// Whether 1A messages are out, and promises may be missing.
    pub(super) fn is_asking(&self) -> bool {
        let stage = self.phase1.as_ref().map(|phase1| phase1.stage);
        stage == Some(Stage::Asking)
    }

    /// Asks for the promises that are missing.
    pub(super) fn send_phase1a(&mut self, now: Time, effects: &mut Effects) {
        let Some(phase1) = self.phase1.as_ref().filter(|p| p.stage == Stage::Asking) else {
            return;
        };
        self.next_phase1a = now.plus_ms(self.options.heartbeat_ms);
        let (ballot, from) = (phase1.ballot, phase1.from);
        for peer in self.peers.iter() {
            let wanted = peer.connected && phase1.asks(peer.member.node);
            if wanted && !phase1.promised(peer.member) {
                effects.send(peer.member.node, Message::Phase1a { ballot, from });
            }
        }
    }

    /// [cast-3] The casting vote: this node's own promise, last, by its own record. From that
    /// record on it casts no vote in the old ballot.
    fn cast(&mut self, effects: &mut Effects) -> bool {
        let Some(phase1) = self.phase1.as_mut() else {
            return false;
        };
        let (ballot, from) = (phase1.ballot, phase1.from);
        phase1.stage = Stage::Casting;
        if self.acceptor.may_promise(ballot) != Ok(true) {
            let promised = self.acceptor.promised();
            self.end_phase1(End::HigherBallot { ballot: promised }, effects);
            return false;
        }
        self.promise(ballot, effects);
        self.park_promise(self.options.member.node, ballot, from);
        true
    }

    /// Phase 1 is complete: propose again what may have been chosen, then new values ([p1-6]).
    fn begin(&mut self, now: Time, effects: &mut Effects) {
        let Some(phase1) = self.phase1.take() else {
            return;
        };
        let ballot = phase1.ballot;
        let decided_to = self.learner.decided_to();
        if self.acceptor.promised() > ballot
            || !self.may_lead()
            || !self.learner.eras().counts(ballot)
        {
            let why = match self.acceptor.promised() {
                higher if higher > ballot => End::HigherBallot { ballot: higher },
                _ => End::NoMember,
            };
            effects.explain(Explanation::NotElected { ballot, why });
            return self.step_down(now, why, effects);
        }
        // [era-6] A ballot proposes only behind the slot that began its era: it started after that
        // slot was decided here, and starts at the first undecided one.
        assert!(
            ballot.era <= self.learner.eras().era(),
            "ballot {ballot} of an era to come"
        );
        let before = self.leading.take().map(|leading| leading.tally);
        let inherited = phase1.inheritance(decided_to, before.as_ref());
        let tally = Tally::new(ballot, decided_to, self.options.inflight_max);
        self.leading = Some(Leading {
            tally,
            before,
            began: decided_to,
            changing: None,
        });
        self.waiting.clear();
        self.peers.restart(now, decided_to);
        self.election.lead(self.options.member.node, ballot);
        effects.explain(Explanation::Leads { ballot });
        for Inherited {
            range,
            value,
            reporter,
        } in inherited
        {
            let own_vote = self
                .acceptor
                .vote(range.from)
                .is_some_and(|vote| vote.value == value && vote.range.to >= range.to);
            let held = own_vote || !value.has_bytes();
            // [value-4] Nobody who promised has voted for it, and the bytes were never here: the
            // slot is free, and waiting for them again would be for ever.
            let (value, held) = match reporter {
                None if !held => (Value::NoOp, true),
                _ => (value, held),
            };
            let source = reporter.unwrap_or(self.options.member.node);
            // [value-4], [cast-4] The bytes are where the votes are; they need not travel again.
            self.propose(now, value, range.len(), held, source, effects);
        }
        if let Some(leading) = &self.leading {
            self.reads.restart(leading.tally.next());
        }
        self.heartbeat(now, effects);
    }

    pub(super) fn on_propose(
        &mut self,
        now: Time,
        value: Value,
        slots: u64,
        effects: &mut Effects,
    ) {
        assert!(
            slots == 1 || (slots > 1 && value.may_span()),
            "{slots} slots of {value}"
        );
        let refusal = self
            .refusal()
            .or_else(|| self.change_refusal(&value))
            .or_else(|| (!self.has_room(slots)).then_some(Refusal::Busy));
        match refusal {
            Some(why) => effects.push(Effect::Refused { value, why }),
            None => self.propose(now, value, slots, true, self.options.member.node, effects),
        }
    }

    /// [era-8] At most one reconfiguration per ballot, naming its era, and valid as things stand.
    fn change_refusal(&self, value: &Value) -> Option<Refusal> {
        let Value::Reconfigure { era, change } = *value else {
            return None;
        };
        let leading = self.leading.as_ref()?;
        let eras = self.learner.eras();
        let in_order = era == leading.ballot().era
            && era == eras.era()
            && leading.changing.is_none()
            && self.phase1.is_none();
        let valid = in_order && eras.current().changed(change).is_ok();
        (!valid).then_some(Refusal::InvalidChange)
    }

    /// Binds the next slots of this ballot to a value, and asks everybody for votes: first the
    /// others, then this node's own acceptor, so that nobody waits for two disks in a row ([p2-4]).
    /// That is an acceptor like any other: if its disk is slow, the others decide ([p2-5]).
    fn propose(
        &mut self,
        now: Time,
        value: Value,
        slots: u64,
        held: bool,
        source: NodeId,
        effects: &mut Effects,
    ) {
        let Some(leading) = self.leading.as_mut() else {
            return;
        };
        let proposal = leading.tally.propose(slots, value);
        if matches!(value, Value::Reconfigure { .. }) {
            leading.changing = Some(proposal.range.from);
        }
        let with_bytes = source == self.options.member.node && held;
        let message = self.phase2a(&proposal, with_bytes);
        self.announced_to = message.decided_to;
        for peer in self.peers.iter_mut() {
            if peer.connected && peer.sent_to == proposal.range.from {
                peer.sent_to = proposal.range.to;
                effects.send(peer.member.node, Message::Phase2a(message));
            }
        }
        if self.waiting.is_empty() {
            self.vote(now, source, message, held, effects);
        } else {
            self.wait(now, source, message, held, effects);
        }
        let voted = self.run.voted_to(message.ballot) >= proposal.range.to;
        if with_bytes && value.has_bytes() && !voted {
            // [value-3] The own vote comes later, and nobody else may have the bytes by then.
            effects.push(Effect::Fetch {
                from: source,
                value,
                slot: proposal.range.from,
            });
        }
    }

    fn phase2a(&self, proposal: &Proposal, with_bytes: bool) -> Phase2a {
        let ballot = self
            .leading
            .as_ref()
            .map(Leading::ballot)
            .unwrap_or_default();
        let own = self.run.ballot == ballot;
        Phase2a {
            ballot,
            range: proposal.range,
            value: proposal.value,
            prefix: proposal.prefix,
            decided_to: self.learner.decided_to(),
            own_volatile_to: if own { self.run.to } else { Slot(0) },
            own_durable_to: if own { self.run_durable_to } else { Slot(0) },
            with_bytes,
        }
    }

    /// Sends everything undecided from `sent_to` on again, bytes included.
    fn resend(&mut self, node: NodeId, effects: &mut Effects) {
        let Some(leading) = &self.leading else { return };
        let Some(peer) = self.peers.peer(node).filter(|peer| peer.connected) else {
            return;
        };
        for proposal in leading.tally.proposals_from(peer.sent_to) {
            effects.send(node, Message::Phase2a(self.phase2a(proposal, true)));
        }
        let next = leading.tally.next();
        if let Some(peer) = self.peers.find(node) {
            peer.sent_to = next;
        }
    }

    pub(super) fn on_phase2b(&mut self, from: Member, vote: Phase2b, effects: &mut Effects) {
        let class = self.pending.class();
        let Some(leading) = self.leading.as_mut() else {
            return;
        };
        let tally = if leading.tally.ballot() == vote.ballot {
            &mut leading.tally
        } else if let Some(before) = leading
            .before
            .as_mut()
            .filter(|t| t.ballot() == vote.ballot)
        {
            before
        } else {
            return;
        };
        if let Err(mismatch) = tally.vote(from, &vote, class) {
            let alarm = Alarm::ConflictingVotes {
                from: from.node,
                ballot: vote.ballot,
                to: mismatch.to,
            };
            return self.alarm(alarm, effects);
        }
        if vote.ballot == leading.tally.ballot()
            && let Some(peer) = self.peers.find(from.node)
        {
            let to = if class == Class::Volatile {
                vote.volatile_to
            } else {
                vote.durable_to
            };
            peer.voted_to = peer.voted_to.max(to);
        }
    }

    /// Decides what the votes allow.
    pub(super) fn count(&mut self, now: Time, effects: &mut Effects) {
        loop {
            let counted = self.count_once(effects);
            let voted = self.vote_for_own(now, effects);
            if voted {
                self.release(effects);
            }
            if !counted && !voted {
                return;
            }
        }
    }

    fn count_once(&mut self, effects: &mut Effects) -> bool {
        let Some(leading) = self.leading.as_mut() else {
            return false;
        };
        let before = self.learner.decided_to();
        let mut each = |range, value| effects.push(Effect::Decided { range, value });
        if let Some(tally) = leading.before.as_mut() {
            self.learner.count(tally, &self.acceptor, &mut each);
        }
        self.learner
            .count(&mut leading.tally, &self.acceptor, &mut each);
        let more = self.learner.decided_to() > before;
        if more {
            self.drop_decided();
        }
        more
    }

    /// Votes for what this leader proposed while its own acceptor had no room. Returns whether
    /// it voted for more.
    fn vote_for_own(&mut self, now: Time, effects: &mut Effects) -> bool {
        let Some(leading) = &self.leading else {
            return false;
        };
        let ballot = leading.ballot();
        let voted_to = self.run.voted_to(ballot).max(self.learner.decided_to());
        let casting = self.acceptor.promised() > ballot;
        if voted_to >= leading.tally.next() || casting || !self.waiting.is_empty() {
            return false;
        }
        let left: Vec<Proposal> = leading.tally.proposals_from(voted_to).copied().collect();
        for proposal in left {
            // Whether the bytes are here is found out by looking for them.
            let held = !proposal.value.has_bytes();
            let message = self.phase2a(&proposal, false);
            if self.waiting.is_empty() {
                self.vote(now, ballot.node, message, held, effects);
            } else {
                self.wait(now, ballot.node, message, held, effects);
            }
        }
        self.run.voted_to(ballot) > voted_to
    }

    /// What was kept for undecided slots has served.
    pub(super) fn drop_decided(&mut self) {
        let decided_to = self.learner.decided_to();
        self.acceptor.advance_floor(decided_to);
        let Some(leading) = self.leading.as_mut() else {
            return;
        };
        leading.tally.drop_below(decided_to);
        if let Some(tally) = leading.before.as_mut() {
            tally.drop_below(decided_to);
            if tally.is_empty() {
                leading.before = None;
            }
        }
        if leading.changing.is_some_and(|slot| slot < decided_to) {
            leading.changing = None;
        }
    }

    /// Followers learn what is decided with the next proposal; if none is in flight that could
    /// bring one about, they are told at once.
    pub(super) fn announce(&mut self, effects: &mut Effects) {
        let Some(leading) = &self.leading else { return };
        let decided_to = self.learner.decided_to();
        if decided_to <= self.announced_to || !leading.tally.is_empty() {
            return;
        }
        self.announced_to = decided_to;
        let ballot = leading.ballot();
        for node in self.peers.connected() {
            effects.send(node, Message::Decided { ballot, decided_to });
        }
    }

    /// Tells everybody that this node leads, and asks for what keeps it leading.
    pub(super) fn heartbeat(&mut self, now: Time, effects: &mut Effects) {
        let Some(leading) = &self.leading else { return };
        self.next_heartbeat = now.plus_ms(self.options.heartbeat_ms);
        let (ballot, decided_to) = (leading.ballot(), self.learner.decided_to());
        self.announced_to = decided_to;
        let read_round = self.reads.round();
        for peer in self.peers.iter().filter(|peer| peer.connected) {
            let beat = Heartbeat {
                ballot,
                decided_to,
                sent_to: peer.sent_to,
                read_round,
            };
            effects.send(peer.member.node, Message::Heartbeat(beat));
        }
    }

    pub(super) fn on_heartbeat_reply(
        &mut self,
        now: Time,
        from: Member,
        reply: HeartbeatReply,
        effects: &mut Effects,
    ) {
        let Some(leading) = self.leading.as_ref().filter(|l| l.ballot() == reply.ballot) else {
            return;
        };
        let (ballot, next) = (leading.ballot(), leading.tally.next());
        self.saw(from.node, reply.promised);
        let Some(peer) = self
            .peers
            .find(from.node)
            .filter(|peer| peer.member == from)
        else {
            return;
        };
        peer.heard = Some(now);
        peer.promised = peer.promised.max(reply.promised);
        peer.decided_to = peer.decided_to.max(reply.decided_to);
        // A follower that learned of a decision from the leader before this one does not vote for
        // it again: this leader learns it too.
        self.catchup.note(reply.decided_to, from.node);
        if reply.promised <= ballot {
            self.reads.confirm(reply.read_round, from);
        }
        // Everything below `sent_to` was sent before the question. What the answer does not show
        // as voted for or decided was lost, or refused for a while.
        let resume = reply
            .voted_to
            .max(reply.decided_to)
            .max(self.learner.decided_to());
        if resume < reply.sent_to && reply.sent_to <= peer.sent_to && reply.sent_to <= next {
            peer.sent_to = resume;
            effects.slow.rewinds += 1;
            self.resend(from.node, effects);
        }
    }

    pub(super) fn on_connected(&mut self, member: Member, effects: &mut Effects) {
        if member.node == self.options.member.node {
            return;
        }
        let decided_to = self.learner.decided_to();
        let Some(peer) = self.peers.connect(member) else {
            return;
        };
        peer.sent_to = decided_to;
        peer.voted_to = Slot(0);
        self.resend(member.node, effects);
        if let Some(leading) = &self.leading {
            let sent_to = leading.tally.next();
            let read_round = self.reads.round();
            let beat = Heartbeat {
                ballot: leading.ballot(),
                decided_to,
                sent_to,
                read_round,
            };
            effects.send(member.node, Message::Heartbeat(beat));
        }
        if let Some(phase1) = self.phase1.as_ref().filter(|p| p.stage == Stage::Asking)
            && phase1.asks(member.node)
            && !phase1.promised(member)
        {
            let message = Message::Phase1a {
                ballot: phase1.ballot,
                from: phase1.from,
            };
            effects.send(member.node, message);
        }
    }

    /// A ballot of this node was refused. Phase 1 goes on as long as the others may be a quorum:
    /// whoever has no weight, or comes back with a promise of long ago, must not stop it.
    pub(super) fn on_preempted(
        &mut self,
        now: Time,
        from: Member,
        ballot: Ballot,
        promised: Ballot,
        effects: &mut Effects,
    ) {
        self.saw(from.node, promised);
        let own = [
            self.phase1.as_ref().map(|phase1| phase1.ballot),
            self.leading.as_ref().map(Leading::ballot),
        ];
        // No round of this era is above a promise of a later one.
        let reachable = self.next_ballot().is_some_and(|next| next > promised);
        if let Some(phase1) = self.phase1.as_mut().filter(|p| p.ballot == ballot)
            && promised > ballot
        {
            phase1.refuse(from);
            let leads = self.leading.is_some();
            let over = self.learner.eras().of(ballot.era).is_none_or(|judge| {
                // A leader has no time-out to try again by; a higher round takes the member in.
                let counts = judge.position(from).is_some();
                (leads && counts && reachable) || phase1.is_hopeless(judge)
            });
            if over {
                self.end_phase1(End::HigherBallot { ballot: promised }, effects);
                if !leads {
                    self.election.rearm(now);
                }
            }
        }
        if own.contains(&Some(ballot))
            && let Some(peer) = self.peers.find(from.node)
        {
            peer.promised = peer.promised.max(promised);
        }
    }

    /// [live-2] Somebody promised a higher ballot than this leader's. As long as the others are
    /// enough to lead, a new ballot of this leader takes the stray one in again; else a new leader
    /// is likely, and this one steps down.
    pub(super) fn reabsorb(&mut self, now: Time, effects: &mut Effects) {
        let Some(leading) = &self.leading else { return };
        if self.phase1.is_some() {
            return;
        }
        let ballot = leading.ballot();
        let stray = self
            .peers
            .iter()
            .map(|peer| peer.promised)
            .max()
            .unwrap_or_default();
        let own_stray = self.acceptor.promised();
        if stray <= ballot && own_stray <= ballot {
            return;
        }
        let configuration = self.learner.eras().current();
        let level = self.peers.set(configuration, self.options.member, |peer| {
            peer.promised <= ballot && peer.connected
        });
        let enough = configuration.is_quorum(Phase::Two, level);
        if own_stray <= ballot && self.lets_lead(now, stray, enough, effects) {
            return;
        }
        match self.next_ballot() {
            Some(next) if enough && next > stray => {
                let promised = stray.max(own_stray);
                self.campaign(Asked::Everybody, Campaign::Stray { promised }, effects);
            }
            // It is in an era that nobody has told of here; the others are enough until then.
            _ if enough && own_stray <= ballot => {}
            _ => {
                let promised = stray.max(own_stray);
                self.step_down(now, End::Strays { promised }, effects);
            }
        }
    }

    /// What a leader does of its own accord: the move into a new era, and a transfer.
    pub(super) fn move_on(&mut self, now: Time, effects: &mut Effects) {
        if self.leading.is_none() {
            return;
        }
        if !self.may_lead() {
            return self.step_down(now, End::NoMember, effects);
        }
        self.move_era(effects);
        self.hand_over(now, effects);
    }

    /// [era-8] Before the next reconfiguration the leader moves to a ballot of the era in force,
    /// with its casting vote if the weights allow it ([cast-1], [cast-5]).
    fn move_era(&mut self, effects: &mut Effects) {
        let Some(leading) = &self.leading else { return };
        let eras = self.learner.eras();
        if leading.ballot().era == eras.era() {
            return;
        }
        let configuration = eras.current();
        let reachable = |member: Member| {
            self.peers
                .iter()
                .any(|peer| peer.member == member && peer.connected)
        };
        match &self.phase1 {
            None => {
                // Of those who promised more, nobody would answer. Whether the others are enough to
                // lead at all is for `reabsorb` to say.
                let next = self.next_ballot();
                let willing = self.peers.set(configuration, self.options.member, |peer| {
                    next.is_some_and(|next| peer.promised < next)
                });
                if !configuration.is_quorum(Phase::One, willing) {
                    return;
                }
                let asked = split(configuration, self.options.member, reachable)
                    .filter(|l| !l.is_empty())
                    .map_or(Asked::Everybody, Asked::Only);
                self.campaign(asked, Campaign::Era, effects);
            }
            Some(phase1) => {
                // [cast-5] Somebody needed was lost while waiting: ask everybody, cast at once.
                let Asked::Only(nodes) = &phase1.asked else {
                    return;
                };
                let r = self.peers.set(configuration, self.options.member, |peer| {
                    peer.connected && !nodes.contains(&peer.member.node)
                });
                let waiting = phase1.stage == Stage::Asking;
                let lost = !configuration.is_quorum(Phase::Two, r)
                    || nodes
                        .iter()
                        .any(|node| !self.peers.peer(*node).is_some_and(|p| reachable(p.member)));
                if waiting && lost {
                    self.phase1 = None;
                    self.campaign(Asked::Everybody, Campaign::AskedAgain, effects);
                }
            }
        }
    }

    pub(super) fn on_read(
        &mut self,
        now: Time,
        token: crate::input::ReadToken,
        effects: &mut Effects,
    ) {
        let taken = if let Some(leading) = &self.leading {
            // [read-1] Followers acknowledge clients too, so all that was proposed may be known.
            self.reads
                .gather(Reader::Local(token), leading.tally.next())
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

    /// [read-3]
    pub(super) fn on_read_request(&mut self, from: NodeId, id: u64) {
        if let Some(leading) = &self.leading {
            // Without room the question is dropped, and asked again.
            let _ = self
                .reads
                .gather(Reader::Remote(from, id), leading.tally.next());
        }
    }

    /// [read-2] Starts a round when reads wait; ends it when nobody can have promised past us.
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
        let Some(leading) = &self.leading else {
            return false;
        };
        let eras = self.learner.eras();
        let by = self.reads.confirmed_by();
        let blocks = |configuration: &crate::configuration::Configuration| {
            configuration.blocks_phase1(set_of(configuration, by))
        };
        let era = leading.ballot().era;
        if !eras.of(era).is_some_and(blocks) || !blocks(eras.current()) {
            return false;
        }
        if leading.changing.is_none() {
            return true;
        }
        // Changes that this ballot proposed may be decided, one after the other, and be used for
        // phase 1 by a node that knows it, before this leader does. It proposes one at a time, and may
        // have inherited several.
        let (mut era, mut coming) = (eras.era(), eras.current().clone());
        for proposal in leading.tally.proposals_from(self.learner.decided_to()) {
            // [era-4] What names another era, or is invalid, will change nothing.
            let Value::Reconfigure { era: named, change } = proposal.value else {
                continue;
            };
            if named == era
                && let Ok(next) = coming.changed(change)
            {
                if !blocks(&next) {
                    return false;
                }
                (era, coming) = (era.next(), next);
            }
        }
        true
    }

    /// Phase 1 of this node, if one is under way, comes to nothing.
    pub(super) fn end_phase1(&mut self, why: End, effects: &mut Effects) {
        if let Some(Phase1 { ballot, .. }) = self.phase1.take() {
            effects.explain(Explanation::NotElected { ballot, why });
        }
    }

    /// This node leads no more, and does not try to at once.
    pub(super) fn step_down(&mut self, now: Time, why: End, effects: &mut Effects) {
        let led = self.leading.take().map(|leading| leading.ballot());
        let tried = self.phase1.is_some();
        self.end_phase1(why, effects);
        if let Some(ballot) = led {
            effects.explain(Explanation::StepsDown { ballot, why });
        }
        if led.is_none() && !tried {
            return;
        }
        for reader in self.reads.fail() {
            if let Reader::Local(token) = reader {
                effects.push(Effect::ReadFailed { token });
            }
        }
        self.election.forget_leader(now);
    }
}
