//! The leader's work on membership: the next change of a plan, members that lost their votes, and
//! the node that should lead ([member-2], [volatile-2], [live-4]).

use quorate_core::{ballot::Era, configuration::Change, node_id::Member, time::Time, value::Value};
use quorate_log::disk::Disk;

use crate::{
    group::{Command, Plan, current_goal, planner::MemberFacts, with_weight},
    members::{
        MembersWork,
        view::{has_forgotten, without_node},
    },
    ports::service::StateMachine,
    proposing::gather::Waiter,
};

impl<D: Disk, S: StateMachine> MembersWork<'_, D, S> {
    /// Returns the next change of the plan for proposing; `None` if the plan cannot continue yet.
    pub(crate) fn follow_plan(&mut self, now: Time) -> Option<Value> {
        self.driver.record_attempt(now, self.spine.node().era());
        match self.next_change(now) {
            Ok(Some(change)) => {
                let era = self.spine.node().era();
                self.driver.clear_wait_reason();
                return Some(Value::Reconfigure { era, change });
            }
            Ok(None) => {}
            Err(why) => self.driver.set_wait_reason(why),
        }
        None
    }

    /// Returns the next change of the plan, or as `Err` the condition that holds it up.
    pub(crate) fn next_change(&mut self, now: Time) -> Result<Option<Change>, String> {
        let membership = self.spine.applying.membership();
        let era = membership.eras().era();
        if era != self.spine.node().era() {
            // A change of era is decided but not yet applied here.
            return Ok(None);
        }
        let Some(plan) = membership.table().plan().cloned() else {
            return Ok(None);
        };
        let current = membership.eras().current().clone();
        if plan.is_reached(&current) {
            let left = plan.nodes_to_remove.iter().find(|node| !self.spine.is_id_removed(**node));
            return Ok(left.map(|node| Change::Remove(*node)));
        }
        let mut wanted = plan.goal.keys();
        let forgot = wanted.find(|member| has_forgotten(&self.spine.peers, **member));
        if let Some(member) = forgot {
            let node = member.node;
            self.renew_plan(now, era, &plan);
            return Err(format!("node {node} has forgotten its votes since"));
        }
        if let Some(heir) = self.view().choose_heir(now, &current, &plan.goal) {
            self.transfer_to(now, heir);
            return Err(format!("node {} is to lead on", heir.node));
        }
        let living = self.view().live_plan_members(now, &current, &plan.goal);
        let peers = &self.spine.peers;
        let sight = MemberFacts {
            leader: Some(self.spine.identity.member),
            is_alive: &|member| living.contains(&member),
            is_gone: &|member| has_forgotten(peers, member),
        };
        let Some(change) = self.driver.next_change(&plan, era, &current, sight) else {
            return Err("there is no way any more; cancel it".to_owned());
        };
        if let Change::Increment(member) = change {
            self.view().check_level(now, member).map_err(|refused| refused.message)?;
        }
        let next = current.after_change(change).map_err(|_| format!("{change} is invalid"))?;
        if !self.view().is_alive(now, &next) {
            return Err(format!("after {change} too few of the voters would be alive"));
        }
        Ok(Some(change))
    }

    /// [volatile-2] Renews a plan in which a named member will never return, with the current
    /// member of its node. Ending the plan instead would leave fewer voters than requested.
    pub(crate) fn renew_plan(&mut self, now: Time, era: Era, plan: &Plan) {
        let renewed =
            plan.with_current_members(|member| match self.spine.peers.member(member.node) {
                Some(met) if met.incarnation > member.incarnation => met,
                _ => member,
            });
        let command = Command::Plan {
            era,
            goal: renewed.goal,
            later_changes: renewed.later_changes,
            nodes_to_remove: renewed.nodes_to_remove,
            description: renewed.description,
        };
        if self.driver.may_command(now) {
            let _ = self.propose_command(now, Waiter::Service, &command);
        }
    }

    pub(crate) fn transfer_to(&mut self, now: Time, to: Member) {
        // A handover requested by an operator continues, and reports its own outcome.
        let busy = self.spine.node().is_handing_over();
        if !busy && self.driver.may_hand_over(now) {
            self.driver.heir = Some(to.node);
        }
    }

    /// [volatile-2] Readmits a node that forgot its votes and returned as another member: moves the
    /// old member's weight to the new one without an operator's request.
    pub(crate) fn readmit_node(&mut self, now: Time) {
        if self.spine.group().plan().is_some() {
            return;
        }
        let eras = self.spine.applying.membership().eras();
        let current = eras.current();
        let forgot = current.members().iter().find_map(|voter| {
            let old = voter.member;
            let met = self.spine.peers.member(old.node)?;
            let lag = self.spine.member_lag(now, met)?;
            let newer =
                met.incarnation > old.incarnation && lag <= self.spine.protocol.window_slots();
            newer.then_some((old, met, voter.weight, voter.auxiliary))
        });
        let Some((old, new, weight, auxiliary)) = forgot else {
            return;
        };
        let goal = with_weight(without_node(current_goal(current), old.node), new, weight);
        let role = Change::Role { member: new, auxiliary: true };
        let plan = Plan {
            id: 0,
            goal,
            later_changes: auxiliary.then_some(role).into_iter().collect(),
            nodes_to_remove: Vec::new(),
            description: format!("take node {} back, which forgot its votes", old.node),
        };
        let way = self.view().path_to_goal(now, current, &plan);
        let alive =
            way.is_ok_and(|changes| self.view().check_alive(now, current, &changes).is_ok());
        if !alive {
            return;
        }
        let command = Command::Plan {
            era: eras.era(),
            goal: plan.goal,
            later_changes: plan.later_changes,
            nodes_to_remove: plan.nodes_to_remove,
            description: plan.description,
        };
        // A later check retries if the command is not accepted. If it is proposed twice, the second
        // is denied.
        if self.driver.may_command(now) {
            let _ = self.propose_command(now, Waiter::Service, &command);
        }
    }

    /// Hands leadership to a member that can lead, before this node stops serving for a while.
    pub(crate) fn hand_over_leadership(&mut self, now: Time) {
        let members = self.spine.node().configuration().members().iter();
        let others = members.filter(|voter| {
            let fit = !self.spine.node().is_unfit(voter.member.node);
            fit && !voter.auxiliary && voter.member != self.spine.identity.member
        });
        let level = others
            .filter_map(|voter| Some((self.spine.member_lag(now, voter.member)?, voter.member)));
        let best = level.filter(|(lag, _)| *lag <= self.spine.protocol.window_slots()).min();
        if let Some((_, to)) = best {
            self.transfer_to(now, to);
        }
    }

    /// Hands leadership to the caught-up member with the highest priority above this node's.
    pub(crate) fn hand_over_by_priority(&mut self, now: Time) {
        if self.driver.keeps_leadership(now) || self.spine.group().plan().is_some() {
            return;
        }
        let table = self.spine.group();
        let priority = |node| table.entry_of(node).map_or(0, |known| known.priority);
        let own = priority(self.spine.identity.member.node);
        let members = self.spine.node().configuration().members().iter();
        let fit = |node| !self.spine.node().is_unfit(node);
        let better = members.filter(|voter| {
            let node = voter.member.node;
            !voter.auxiliary && priority(node) > own && fit(node)
        });
        let level = better.filter(|voter| {
            let lag = self.spine.member_lag(now, voter.member);
            lag.is_some_and(|lag| lag <= self.spine.protocol.window_slots())
        });
        let best = level.max_by_key(|voter| priority(voter.member.node));
        if let Some(to) = best.map(|voter| voter.member) {
            self.transfer_to(now, to);
        }
    }
}
