//! Effects of a node's step on the world, and checks that the effects are permitted.

use quorate_core::{
    effect::{Effect, Effects},
    explanation::Explanation,
    input::Input,
    invariants,
    learner::Proposal,
    message::{Message, Phase2b},
    node::Node,
    node_id::NodeId,
    quorum::{MemberSet, Phase},
    record::{Class, Record, RecordSeq},
    slot::Slot,
    value::Value,
};

use super::{SentMessage, World, site_index};
use crate::observer::{Property, Violation};

impl World {
    /// Applies one input to one node, and carries out all resulting effects.
    pub(super) fn step_node(&mut self, at: usize, input: Input) -> Result<(), Violation> {
        let now = self.clock_time(at);
        let site = &mut self.sites[at];
        let Some(node) = site.node.as_mut() else {
            return Ok(());
        };
        let (era, promised) = (node.era(), node.acceptor().promised());
        let before = node.phase2().map(|leading| leading.tally.clone());
        let appended = site.disk.entries().len();
        let mut effects = Effects::default();
        node.step(now, input, &mut effects);
        let (era_after, promised_after) = (node.era(), node.acceptor().promised());
        let hard = node.hard_state();
        self.judge_inheritance(at, before.as_ref())?;
        let list: Vec<Effect> = effects.drain().collect();
        if self.setup.spine_only {
            self.judge_spine(at, &list)?;
        }
        let fetches = |effect: &Effect| match effect {
            Effect::Fetch { value, .. } => Some(*value),
            _ => None,
        };
        let fetched: Vec<Value> = list.iter().filter_map(fetches).collect();
        for effect in list {
            self.carry_out_effect(at, effect)?;
        }
        self.sites[at].disk.restate_hard_state(appended, hard);
        for value in fetched {
            self.notify_fetched(at, &value)?;
        }
        let verdict = invariants::eras_in_order(era, era_after);
        self.observer.to_violation(Property::Eras, verdict)?;
        let verdict = invariants::promise_is_kept(promised, promised_after);
        self.observer.to_violation(Property::Promise, verdict)
    }

    /// Checks that no wing of this node is in use. A transfer counts as use of a wing, although it
    /// leaves no state.
    fn judge_spine(&self, at: usize, effects: &[Effect]) -> Result<(), Violation> {
        let transfer = |effect: &Effect| {
            matches!(effect, Effect::Send { message: Message::Transfer { .. }, .. })
        };
        let transfer = effects.iter().any(transfer).then_some("handover");
        let wing = self.sites[at].node.as_ref().and_then(Node::wing_in_use).or(transfer);
        let verdict = wing.map_or(Ok(()), |wing| Err(format!("node {} uses {wing}", at + 1)));
        self.observer.to_violation(Property::Assertion, verdict)
    }

    /// [time-1] Applies a decided value to the group's time.
    fn apply_group_time(&mut self, at: usize, value: Value) -> Result<(), Violation> {
        let Value::Now { ms } = value else {
            return Ok(());
        };
        let time = &mut self.sites[at].group_time;
        let before = *time;
        time.apply(ms);
        let verdict = invariants::time_goes_on(before, ms, *time);
        self.observer.to_violation(Property::Time, verdict)
    }

    fn carry_out_effect(&mut self, at: usize, effect: Effect) -> Result<(), Violation> {
        match effect {
            Effect::Send { to, message } => {
                to.iter().try_for_each(|to| self.send_message(at, to, message.clone()))
            }
            Effect::Persist { seq, record } => self.append_record(at, seq, record),
            Effect::Decided { range, value } => {
                let site = &mut self.sites[at];
                let before = site.record_decided(range, value);
                let verdict = invariants::decided_in_order(before, range);
                self.observer.to_violation(Property::DecidedInOrder, verdict)?;
                // A recorded value was checked when it was recorded.
                let slots = (range.from.0..range.to.0).map(Slot);
                let recorded = slots.into_iter().all(|slot| site.disk.has_record(slot, &value));
                let held =
                    recorded || site.is_learning_without_bytes || site.holds_bytes(&value, range);
                site.forget_fetches(range.to);
                let verdict = invariants::bytes_are_held(range.from, &value, held);
                self.observer.check_decided(range, value)?;
                self.apply_group_time(at, value)?;
                self.observer.to_violation(Property::Bytes, verdict)
            }
            Effect::Fetch { value, range, .. } => {
                self.sites[at].queue_fetch(value, range);
                Ok(())
            }
            Effect::ServeDecided { to, range } => {
                let site = &mut self.sites[at];
                if !site.queued_catchups.contains(&(to, range)) {
                    site.queued_catchups.push((to, range));
                }
                Ok(())
            }
            Effect::Forget { to } => {
                self.sites[at].forget_request = Some(to);
                Ok(())
            }
            Effect::NeedSnapshot { from, .. } => {
                self.sites[at].snapshot_source = Some(from);
                Ok(())
            }
            Effect::ReadReady { token, slot } => {
                let asked = self.sites[at].end_read(token);
                self.sites[at].last_confirmed_read = Some(token);
                let verdict = match asked {
                    Some(known) => invariants::read_is_fresh(known, slot)
                        .and_then(|()| self.check_undecided_known(at, known)),
                    None => Err(format!("read {} was not waiting", token.0)),
                };
                self.observer.to_violation(Property::Reads, verdict)
            }
            Effect::ReadFailed { token } => {
                self.sites[at].end_read(token);
                Ok(())
            }
            Effect::DurableInGroup { to } => self.judge_durable_notification(at, to),
            Effect::VotedInMemory { ballot, to } => {
                let from = self.sites[at].decided_to();
                let eras = self.sites[at].node.as_ref().map(|node| node.eras().clone());
                eras.map_or(Ok(()), |eras| {
                    self.observer.check_memory_claims(ballot, from, to, eras)
                })
            }
            Effect::WakeAt(time) => {
                self.sites[at].wake_time = self.when_clock_shows(at, time);
                Ok(())
            }
            Effect::Alarm(alarm) => {
                self.observer.to_violation(Property::Alarm, Err(format!("{alarm:?}")))
            }
            Effect::Explain(Explanation::Engages { .. }) => {
                self.situations.auxiliaries_activated += 1;
                Ok(())
            }
            Effect::Explain(Explanation::RingLaid { .. }) => {
                self.situations.rings_set_up += 1;
                Ok(())
            }
            Effect::Explain(Explanation::RingBreaks { .. }) => {
                self.situations.rings_given_up += 1;
                Ok(())
            }
            Effect::Explain(Explanation::DeviceForgot) => {
                // [volatile-1] The node has no vote until it returns as a new member.
                self.sites[at].storage_failed = true;
                Ok(())
            }
            Effect::Explain(Explanation::Retires { .. }) => {
                self.situations.auxiliaries_deactivated += 1;
                Ok(())
            }
            Effect::Role { .. } => {
                let site = &mut self.sites[at];
                let leading = site.node.as_ref().and_then(Node::phase2);
                let next = leading.map(|leading| leading.tally.next());
                site.stream_offering.restart(next);
                Ok(())
            }
            Effect::Refused { value: Value::Content { stream, .. }, .. } => {
                self.sites[at].stream_offering.undo_proposal(stream);
                Ok(())
            }
            Effect::Device(order) => {
                self.sites[at].device.queue_order(order);
                Ok(())
            }
            Effect::Refused { .. } | Effect::TransferEnded(_) | Effect::Explain(_) => Ok(()),
        }
    }

    fn append_record(
        &mut self,
        at: usize,
        seq: RecordSeq,
        record: Record,
    ) -> Result<(), Violation> {
        let class = self.storage_class();
        let site = &mut self.sites[at];
        let member = site.member;
        if let Record::Vote { ballot, range, value } = record {
            let before = site.remembered_promise();
            self.observer.check_cast(member, before, ballot, range, value)?;
            if class == Class::Volatile {
                self.observer.record_vote(member, ballot, range, value)?;
            }
        }
        if let Record::Vote { range, value, .. } = record {
            self.count_partial_vote(range, &value);
        }
        if let Record::Promise { ballot } = record {
            let before = self.sites[at].remembered_promise();
            let verdict = invariants::promise_is_kept(before, ballot);
            self.observer.to_violation(Property::Promise, verdict)?;
        }
        let bare = match record {
            Record::Decided { range, value } if matches!(value, Value::Content { .. }) => {
                self.sites[at].is_learning_without_bytes
                    && self.sites[at].first_slot_with_bytes(&value, range).is_none()
            }
            _ => false,
        };
        self.situations.learned_without_bytes += u64::from(bare);
        let bytes_from = match record {
            Record::Decided { range, .. } if bare => range.to,
            Record::Vote { range, value, .. } | Record::Decided { range, value } => {
                self.check_recorded_bytes(at, range, value)?
            }
            Record::Round { .. } | Record::Promise { .. } => Slot::FIRST,
        };
        let disk = &mut self.sites[at].disk;
        disk.append(record, bytes_from, bare);
        assert_eq!(disk.last_appended_seq(), seq.0, "records are numbered in order");
        Ok(())
    }

    fn send_message(&mut self, at: usize, to: NodeId, message: Message) -> Result<(), Violation> {
        let site = &self.sites[at];
        let (member, process) = (site.member, site.process_number);
        let durable = self.storage_class() == Class::Durable;
        let era = site.node.as_ref().map(Node::era).unwrap_or_default();
        match &message {
            Message::Phase1a { ballot, .. } if era < ballot.era => {
                let verdict = invariants::ballot_era_is_decided(era, *ballot);
                self.observer.to_violation(Property::Eras, verdict)?;
            }
            Message::Phase1a { ballot, .. } if !site.disk.has_round(*ballot) => {
                let seen = Err(format!("1A {ballot} before its round is durable"));
                self.observer.to_violation(Property::Durable, seen)?;
            }
            Message::Phase1b(promise) => {
                if durable && !site.disk.has_promise(promise.ballot) {
                    let seen = Err(format!("1B {} before it is durable", promise.ballot));
                    self.observer.to_violation(Property::Durable, seen)?;
                }
                let cast = site.highest_votes();
                self.observer.check_promise(member, promise, &cast)?;
            }
            Message::Phase2b(vote) => self.check_sent_vote(at, vote)?,
            Message::HeartbeatReply(reply) if durable => {
                self.check_reported_held(at, reply.held_to)?
            }
            Message::RingVote(vote) => {
                for entry in &vote.entries {
                    if entry.member == member {
                        self.check_sent_vote(at, &entry.vote(vote.ballot))?;
                        self.observer.record_release(vote.ballot, *entry);
                    } else {
                        self.observer.check_relay(vote.ballot, entry)?;
                    }
                }
            }
            _ => {}
        }
        self.observer.check_message(member, process, &message)?;
        let bytes = match &message {
            // [stream-3] Bytes of streams come from the owner, if the stream has one.
            Message::Phase2a(m) if self.clients.is_given_content(&m.value) => false,
            Message::Phase2a(m) => m.with_bytes && self.sites[at].holds_bytes(&m.value, m.range),
            _ => false,
        };
        self.add_to_soup(at, to, message, bytes);
        Ok(())
    }

    /// [read-9] Checks that a leader proposes the decided value in every slot below `known` that it
    /// has not decided itself. All these slots are decided.
    fn check_undecided_known(&self, at: usize, known: Slot) -> invariants::Verdict {
        let node = self.sites[at].node.as_ref();
        let Some(undecided) = node.and_then(Node::undecided_proposals) else { return Ok(()) };
        let own: Vec<Proposal> = undecided.copied().collect();
        for slot in (self.sites[at].decided_to().0..known.0).map(Slot) {
            let proposal = own.iter().find(|proposal| proposal.range.contains(slot));
            let (proposed, decided) =
                (proposal.map(|one| one.value), self.observer.chosen_value(slot));
            if proposed.as_ref() != decided {
                return Err(format!(
                    "slot {slot}: decided {decided:?}, the leader proposes {proposed:?}"
                ));
            }
        }
        Ok(())
    }

    /// [last-3] Checks a notification to a client that everything below `to` is durable. Under the
    /// configuration known to the node, members that form a phase-2 quorum must have it on their
    /// disks as decided, whether or not their processes run. In a durable group, durable votes
    /// decided it, which is checked at the time of the decision.
    fn judge_durable_notification(&mut self, at: usize, to: Slot) -> Result<(), Violation> {
        let Some(node) = &self.sites[at].node else {
            return Ok(());
        };
        if self.storage_class() == Class::Durable {
            return Ok(());
        }
        self.situations.durable_notifications += 1;
        let configuration = node.configuration();
        let lasts = |slot: Slot| {
            let Some(value) = self.observer.chosen_value(slot) else {
                return false;
            };
            let voters = configuration.members().iter().enumerate();
            let on_disk = voters.filter(|(_, voter)| {
                let site = &self.sites[site_index(voter.member.node)];
                site.member.node == voter.member.node
                    && site.disk.survives_crash(slot, value)
                    && site.disk.is_known_decided(slot)
            });
            let set = on_disk.fold(MemberSet::default(), |set, (at, _)| set.with(at));
            configuration.is_quorum(Phase::Two, set)
        };
        let mut slots = (Slot::FIRST.0..to.0).map(Slot);
        let verdict = slots.find(|slot| !lasts(*slot)).map_or(Ok(()), |slot| {
            let node = at + 1;
            Err(format!(
                "node {node} says that slots below {to} last; slot {slot} is not on the disks of a quorum"
            ))
        });
        self.observer.to_violation(Property::Lasting, verdict)
    }

    /// [era-12] Checks that slots that a member of a durable group reports as held are on its disk.
    fn check_reported_held(&self, at: usize, held_to: Slot) -> Result<(), Violation> {
        let disk = &self.sites[at].disk;
        if disk.is_damaged() {
            return Ok(());
        }
        let lacks = |slot: &Slot| {
            let value = self.observer.chosen_value(*slot);
            !value.is_some_and(|value| disk.survives_crash(*slot, value))
        };
        let first = (Slot::FIRST.0..held_to.0).map(Slot).find(lacks);
        let verdict = first.map_or(Ok(()), |slot| {
            let node = at + 1;
            Err(format!("node {node} says that it holds slots below {held_to}; slot {slot} is not on its disk"))
        });
        self.observer.to_violation(Property::Durable, verdict)
    }

    /// Checks a vote that is being sent by the node that cast it.
    fn check_sent_vote(&self, at: usize, vote: &Phase2b) -> Result<(), Violation> {
        let disk = &self.sites[at].disk;
        let verdict = invariants::vote_is_true(
            vote,
            |slot| disk.has_vote(vote.ballot, slot, false),
            |slot| disk.has_vote(vote.ballot, slot, true),
        );
        self.observer.to_violation(Property::Durable, verdict)
    }

    pub(super) fn add_to_soup(&mut self, at: usize, to: NodeId, message: Message, bytes: bool) {
        let known = site_index(to) < self.sites.len() && to != self.sites[at].member.node;
        if self.setup.lost_messages.loses(&message) || !known {
            return;
        }
        let parcel = SentMessage {
            from: self.sites[at].member,
            receiver: to,
            message,
            bytes,
            sender_log_end: self.setup.detects_rollback.then(|| {
                let site = &self.sites[at];
                (site.process_number, site.log_end().log_end.last_write)
            }),
        };
        if self.setup.sorts_soup {
            if let Err(place) = self.soup.binary_search(&parcel) {
                self.soup.insert(place, parcel);
            }
            return;
        }
        // A repetition of a recent message adds nothing.
        let repeat = || self.soup.iter().rev().take(48).any(|old| *old == parcel);
        if self.keeps_duplicates || !repeat() {
            self.soup.push(parcel);
        }
    }
}
