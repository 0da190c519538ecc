//! Membership changes in act one: operator requests to the group, and joining nodes.
//!
//! Operators do not coordinate with each other and know nothing about faults. They only avoid
//! obvious mistakes: where nodes may forget their votes, they create no group that could not
//! tolerate the loss.

use quorate_core::{configuration::Configuration, node_id::NodeId};
use quorate_node::{
    founding::Joined,
    host::{Charter, OperatorSide as _, Outcome},
};
use quorate_replica::group::{
    As,
    asking::{Answer, Ask, Refused},
};

use super::{Event, World, name};
use crate::{
    check::{Verdict, Violation},
    node::{Arrival, id},
};

impl World {
    /// Schedules the next operator action, if the run has any.
    pub(super) fn plan_operator(&mut self) {
        if let Some(mean_us) = self.settings.operators_us {
            let wait = self.operators.dice.interval(mean_us);
            self.schedule_after(wait, Event::Operator);
        }
    }

    /// Performs an operator action: switches off nodes that may be switched off and, in act one,
    /// sends a random request.
    pub(super) fn operator_acts(&mut self) {
        self.plan_operator();
        self.retire_removed();
        if !self.chaos.goes_on() {
            return;
        }
        let Some(ask) = self.draw_ask() else {
            return;
        };
        // Most requests go to the leader, the rest to a random node.
        let leader = self.leader().filter(|_| self.operators.dice.chance(3, 4));
        let node = leader.unwrap_or_else(|| self.operators.dice.index(self.nodes.len()));
        self.operators.last_request += 1;
        self.line(&name(node), "asked", format_args!("{ask:?}"));
        let (life, asked) = (self.nodes[node].life, self.operators.last_request);
        self.arrive(node, life, Arrival::Ask(asked, ask));
    }

    /// Sends a request about the group to this node and waits for the answer. Fails if none arrives
    /// in time.
    pub fn ask_group(
        &mut self,
        node: usize,
        ask: Ask,
    ) -> Result<Result<Answer, Refused>, Violation> {
        self.operators.last_request += 1;
        self.operators.awaited_request = Some(self.operators.last_request);
        self.operators.answer = None;
        let (life, asked) = (self.nodes[node].life, self.operators.last_request);
        self.arrive(node, life, Arrival::Ask(asked, ask));
        self.run_until("an answer of the group", |world| world.operators.answer.is_some())?;
        Ok(self.operators.answer.take().expect("just seen"))
    }

    fn draw_ask(&mut self) -> Option<Ask> {
        let founding = &self.nodes[..self.settings.nodes];
        if founding.iter().any(|node| node.identity().is_none()) {
            // The founder must first admit the founding members.
            return None;
        }
        let joined = (0..self.nodes.len()).filter(|node| self.is_there(*node));
        let joined: Vec<NodeId> = joined.map(id).collect();
        let forgets = self.chaos.forgets();
        let spare =
            (self.settings.nodes..self.nodes.len()).find(|index| !self.nodes[*index].joined);
        let dice = &mut self.operators.dice;
        let (one, other) = (dice.pick(&joined), dice.pick(&joined));
        match dice.below(12) {
            0..3 => spare.map(|spare| Ask::Join {
                nonce: spare as u64 + 1,
                node: None,
                peer: format!("n{}:1", spare + 1),
                role: As::Voter,
            }),
            3..6 => Some(Ask::Promote(one)),
            6 | 7 => Some(Ask::Replace { old: one, new: other }),
            8 if !forgets && dice.chance(1, 2) => Some(Ask::Demote(one)),
            8 if !forgets => Some(Ask::Remove(one)),
            9 if !forgets => Some(Ask::Weight(one, 1 + u32::try_from(dice.below(3)).unwrap_or(0))),
            10 if dice.chance(1, 3) => Some(Ask::Address(one, format!("m{one}:1"))),
            10 => Some(Ask::Priority(one, dice.pick(&[0, 3]))),
            11 if !forgets => Some(Ask::Cancel),
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
            if let Outcome::Group(number, answer) = &outcome
                && self.operators.awaited_request == Some(*number)
            {
                self.operators.answer = Some(answer.clone());
            }
            match outcome {
                Outcome::Group(_, Ok(Answer::Node(given))) => self.let_in(node, given)?,
                Outcome::Group(_, Ok(Answer::Planned(Some(_), _))) => self.counts.plans += 1,
                Outcome::Group(..)
                | Outcome::Probed(_)
                | Outcome::Transferred(_)
                | Outcome::Snapshot(_)
                | Outcome::Held(..) => {}
            }
        }
    }

    /// Handles the id that a node assigned to a joining node. Only one node joins at a time, and it
    /// retries until it is answered, because ids are assigned in order and only once ([join-2]).
    fn let_in(&mut self, asked: usize, given: NodeId) -> Verdict {
        let index = (self.settings.nodes..self.nodes.len()).find(|index| id(*index) == given);
        let Some(index) = index else {
            let detail = format!("an id was given out without a request: {given}");
            return Err(Violation::new("start", detail));
        };
        if self.nodes[index].joined {
            return Ok(());
        }
        let Some(asked) = &self.nodes[asked].running else {
            return Ok(());
        };
        let Charter { founded, book, .. } = asked.host.charter();
        let known = asked.replica().group().entry_of(given);
        let role = known.map_or(As::Voter, |known| known.role);
        let joined = Joined { node: given, founded, book, learns: role == As::Learner };
        if let Err(error) = self.nodes[index].join(index as u64 + 1, role, joined) {
            // The node retries and gets the same id.
            self.line(&name(index), "waits", format_args!("{error}"));
            return Ok(());
        }
        self.counts.joins += 1;
        self.line(&name(index), "joins", format_args!("as node {given}"));
        self.schedule_after(1, Event::Start(index));
        Ok(())
    }

    /// [era-9] Switches off removed nodes permanently, once the leader reports that this is safe.
    fn retire_removed(&mut self) {
        let Some(leader) = self.leader() else {
            return;
        };
        let running = self.nodes[leader].running.as_ref().expect("it leads");
        let members = running.replica().members(self.nodes[leader].time(self.now));
        if !members.last.is_some_and(|last| last.settled) {
            return;
        }
        for removed in members.removed {
            let index = (0..self.nodes.len()).find(|index| id(*index) == removed);
            if let Some(index) = index.filter(|index| !self.nodes[*index].retired) {
                self.kill_process(index, 100);
                self.nodes[index].retired = true;
                self.counts.retired += 1;
                self.line(&name(index), "retired", format_args!(""));
            }
        }
    }

    /// Returns whether a node has an id and was not removed, according to the most advanced node.
    /// If no node runs, the founding members belong to the group.
    pub(super) fn belongs(&self, node: usize) -> bool {
        let id = self.nodes[node].id();
        match self.farthest() {
            Some(farthest) => {
                farthest.replica().group().entry_of(id).is_some() && self.is_there(node)
            }
            None => node < self.settings.nodes,
        }
    }

    /// Returns the configuration in force, according to the most advanced node; `None` if no node
    /// runs.
    pub fn configuration(&self) -> Option<&Configuration> {
        let farthest = self.farthest()?;
        Some(farthest.replica().node().configuration())
    }

    fn farthest(&self) -> Option<&crate::node::Running> {
        let running = self.nodes.iter().filter_map(|node| node.running.as_ref());
        running.max_by_key(|running| running.replica().applied_to())
    }

    /// Returns whether every plan was completed or cancelled.
    pub fn has_no_plan(&self) -> bool {
        self.farthest().is_some_and(|farthest| farthest.replica().group().plan().is_none())
    }

    /// Returns whether `home`, the only node of a client, was switched off permanently. False
    /// without a home.
    pub(super) fn is_retired(&self, home: Option<usize>) -> bool {
        home.is_some_and(|node| self.nodes[node].retired)
    }

    /// Returns whether a node has an id and was not switched off permanently.
    fn is_there(&self, node: usize) -> bool {
        let process = &self.nodes[node];
        !process.retired && (node < self.settings.nodes || process.joined)
    }
}
