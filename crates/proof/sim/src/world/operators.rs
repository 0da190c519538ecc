//! Membership changes in act one: operator requests to the group, and joining nodes.
//!
//! Operators do not coordinate with each other and know nothing about faults. They only avoid
//! obvious mistakes: where nodes may forget their votes, they create no group that could not
//! tolerate the loss.

use quorate_core::{configuration::Configuration, node_id::NodeId};
use quorate_node::{
    founding::Joined,
    host::{JoinData, OperatorHost as _, OperatorOutcome},
};
use quorate_replica::group::{
    MemberRole,
    asking::{GroupAnswer, GroupRefusal, GroupRequest},
};

use super::{Event, World, name};
use crate::{
    check::{Verdict, Violation},
    node::{Arrival, id},
};

impl World {
    /// Schedules the next operator action, if the run has any.
    pub(super) fn plan_operator(&mut self) {
        if let Some(mean_us) = self.settings.operator_interval_us {
            let wait = self.operator_state.dice.interval(mean_us);
            self.schedule_after(wait, Event::OperatorActs);
        }
    }

    /// Performs an operator action: switches off nodes that may be switched off and, in act one,
    /// sends a random request.
    pub(super) fn act_as_operator(&mut self) {
        self.plan_operator();
        self.retire_removed();
        if !self.fault_state.faults_go_on() {
            return;
        }
        let Some(ask) = self.draw_group_request() else {
            return;
        };
        // Most requests go to the leader, the rest to a random node.
        let leader = self.majority_leader().filter(|_| self.operator_state.dice.chance(3, 4));
        let node = leader.unwrap_or_else(|| self.operator_state.dice.index(self.nodes.len()));
        self.operator_state.last_request += 1;
        self.trace_line(&name(node), "asked", format_args!("{ask:?}"));
        let (life, asked) = (self.nodes[node].start_count, self.operator_state.last_request);
        self.deliver_arrival_to(node, life, Arrival::GroupRequest(asked, ask));
    }

    /// Sends a request about the group to this node and waits for the answer. Fails if none arrives
    /// in time.
    pub fn ask_group(
        &mut self,
        node: usize,
        ask: GroupRequest,
    ) -> Result<Result<GroupAnswer, GroupRefusal>, Violation> {
        self.operator_state.last_request += 1;
        self.operator_state.awaited_request = Some(self.operator_state.last_request);
        self.operator_state.answer = None;
        let (life, asked) = (self.nodes[node].start_count, self.operator_state.last_request);
        self.deliver_arrival_to(node, life, Arrival::GroupRequest(asked, ask));
        self.run_until("an answer of the group", |world| world.operator_state.answer.is_some())?;
        Ok(self.operator_state.answer.take().expect("just seen"))
    }

    fn draw_group_request(&mut self) -> Option<GroupRequest> {
        let founding = &self.nodes[..self.settings.founding_member_count];
        if founding.iter().any(|node| node.identity().is_none()) {
            // The founder must first admit the founding members.
            return None;
        }
        let joined = (0..self.nodes.len()).filter(|node| self.is_in_service(*node));
        let joined: Vec<NodeId> = joined.map(id).collect();
        let forgets = self.fault_state.may_any_forget();
        let spare = (self.settings.founding_member_count..self.nodes.len())
            .find(|index| !self.nodes[*index].joined_later);
        let dice = &mut self.operator_state.dice;
        let (one, other) = (dice.pick(&joined), dice.pick(&joined));
        match dice.below(12) {
            0..3 => spare.map(|spare| GroupRequest::Join {
                nonce: spare as u64 + 1,
                node: None,
                peer: format!("n{}:1", spare + 1),
                role: MemberRole::Voter,
            }),
            3..6 => Some(GroupRequest::Promote(one)),
            6 | 7 => Some(GroupRequest::Replace { old: one, new: other }),
            8 if !forgets && dice.chance(1, 2) => Some(GroupRequest::Demote(one)),
            8 if !forgets => Some(GroupRequest::Remove(one)),
            9 if !forgets => {
                Some(GroupRequest::Weight(one, 1 + u32::try_from(dice.below(3)).unwrap_or(0)))
            }
            10 if dice.chance(1, 3) => Some(GroupRequest::Address(one, format!("m{one}:1"))),
            10 => Some(GroupRequest::Priority(one, dice.pick(&[0, 3]))),
            11 if !forgets => Some(GroupRequest::Cancel),
            _ => None,
        }
    }

    /// Takes the outcomes of requests to this node.
    pub(super) fn take_outcomes(&mut self, node: usize) -> Verdict {
        loop {
            let running = self.nodes[node].running.as_mut();
            let Some(outcome) = running.and_then(|running| running.host.next_outcome()) else {
                return Ok(());
            };
            if let OperatorOutcome::Group(number, answer) = &outcome
                && self.operator_state.awaited_request == Some(*number)
            {
                self.operator_state.answer = Some(answer.clone());
            }
            match outcome {
                OperatorOutcome::Group(_, Ok(GroupAnswer::Node(given))) => {
                    self.admit_node(node, given)?
                }
                OperatorOutcome::Group(_, Ok(GroupAnswer::Planned(Some(_), _))) => {
                    self.counts.plans_accepted += 1
                }
                OperatorOutcome::Group(..)
                | OperatorOutcome::Probed(_)
                | OperatorOutcome::Transferred(_)
                | OperatorOutcome::Snapshot(_)
                | OperatorOutcome::HeldStreamRead(..) => {}
            }
        }
    }

    /// Handles the id that a node assigned to a joining node. Only one node joins at a time, and it
    /// retries until it is answered, because ids are assigned in order and only once ([join-2]).
    fn admit_node(&mut self, asked: usize, given: NodeId) -> Verdict {
        let index = (self.settings.founding_member_count..self.nodes.len())
            .find(|index| id(*index) == given);
        let Some(index) = index else {
            let detail = format!("an id was given out without a request: {given}");
            return Err(Violation::new("start", detail));
        };
        if self.nodes[index].joined_later {
            return Ok(());
        }
        let Some(asked) = &self.nodes[asked].running else {
            return Ok(());
        };
        let JoinData { founded, address_book: book, .. } = asked.host.join_data();
        let known = asked.replica().group().entry_of(given);
        let role = known.map_or(MemberRole::Voter, |known| known.role);
        let joined = Joined {
            node: given,
            founded,
            address_book: book,
            is_learner: role == MemberRole::Learner,
        };
        if let Err(error) = self.nodes[index].record_join(index as u64 + 1, role, joined) {
            // The node retries and gets the same id.
            self.trace_line(&name(index), "waits", format_args!("{error}"));
            return Ok(());
        }
        self.counts.joins += 1;
        self.trace_line(&name(index), "joins", format_args!("as node {given}"));
        self.schedule_after(1, Event::StartProcess(index));
        Ok(())
    }

    /// [era-9] Switches off removed nodes permanently, once the leader reports that this is safe.
    fn retire_removed(&mut self) {
        let Some(leader) = self.majority_leader() else {
            return;
        };
        let running = self.nodes[leader].running.as_ref().expect("it leads");
        let members = running.replica().members(self.nodes[leader].monotonic_time(self.now));
        if !members.last_plan.is_some_and(|last| last.is_settled) {
            return;
        }
        for removed in members.removed_nodes {
            let index = (0..self.nodes.len()).find(|index| id(*index) == removed);
            if let Some(index) = index.filter(|index| !self.nodes[*index].is_retired) {
                self.kill_process(index, 100);
                self.nodes[index].is_retired = true;
                self.counts.nodes_retired += 1;
                self.trace_line(&name(index), "retired", format_args!(""));
            }
        }
    }

    /// Returns whether a node has an id and was not removed, according to the most advanced node.
    /// If no node runs, the founding members belong to the group.
    pub(super) fn is_group_node(&self, node: usize) -> bool {
        let id = self.nodes[node].id();
        match self.most_advanced() {
            Some(farthest) => {
                farthest.replica().group().entry_of(id).is_some() && self.is_in_service(node)
            }
            None => node < self.settings.founding_member_count,
        }
    }

    /// Returns the configuration in force, according to the most advanced node; `None` if no node
    /// runs.
    pub fn configuration(&self) -> Option<&Configuration> {
        let farthest = self.most_advanced()?;
        Some(farthest.replica().node().configuration())
    }

    fn most_advanced(&self) -> Option<&crate::node::RunningProcess> {
        let running = self.nodes.iter().filter_map(|node| node.running.as_ref());
        running.max_by_key(|running| running.replica().applied_to())
    }

    /// Returns whether every plan was completed or cancelled.
    pub fn has_no_plan(&self) -> bool {
        self.most_advanced().is_some_and(|farthest| farthest.replica().group().plan().is_none())
    }

    /// Returns whether `home`, the only node of a client, was switched off permanently. False
    /// without a home.
    pub(super) fn is_retired(&self, home: Option<usize>) -> bool {
        home.is_some_and(|node| self.nodes[node].is_retired)
    }

    /// Returns whether a node has an id and was not switched off permanently.
    fn is_in_service(&self, node: usize) -> bool {
        let process = &self.nodes[node];
        !process.is_retired && (node < self.settings.founding_member_count || process.joined_later)
    }
}
