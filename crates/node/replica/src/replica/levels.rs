//! The group's level, the nodes that prevent a higher one, and raises by the leader ([level-4] to
//! [level-8]).

use quorate_core::{
    level::{Level, Levels},
    node_id::NodeId,
    time::Time,
    value::Value,
};
use quorate_log::disk::Disk;

use super::Replica;
use crate::{
    group::asking::{Answer, Refused},
    observing::events::Event,
    offers::Offer,
    ports::{
        plane::Plane,
        service::StateMachine,
        status::{LevelOf, LevelStatus},
    },
};

impl<D: Disk, S: StateMachine> Replica<D, S> {
    /// Returns the level that the group uses, as of the applied slots.
    pub fn level(&self) -> Level {
        self.group().level()
    }

    /// [level-7] Returns the levels that this node may use with peers.
    pub fn levels(&self) -> Levels {
        let newest = self.rising.supports();
        Levels { lowest: self.level().min(newest), newest }
    }

    /// [level-8] Takes the level with which the folder must be marked, if any. The caller confirms
    /// with [`Replica::level_marked`].
    pub fn take_level_to_mark(&mut self) -> Option<Level> {
        // The level may have come with a snapshot.
        self.rising.may_store_level(self.level());
        self.rising.take_to_mark()
    }

    /// Confirms that the folder is durably marked as possibly requiring this level.
    pub fn level_marked(&mut self, level: Level) {
        self.rising.marked(level);
    }

    /// Returns the group's level, and the level that each node supports as far as this node knows.
    pub fn level_status(&self, now: Time) -> LevelStatus {
        let (level, own) = (self.level(), self.member.node);
        let to = level.next();
        let nodes = self.asked_nodes().map(|node| LevelOf {
            node,
            newest: match node == own {
                true => Some(self.rising.supports()),
                false => self.rising.newest_of(node),
            },
        });
        let supported = to <= self.rising.supports();
        let leads = self.protocol.leads();
        let held_back = match supported && leads {
            true => self.held_back(now, to),
            false => Vec::new(),
        };
        let due = match supported && leads && held_back.is_empty() {
            true => self.rising.due_at(self.asked_nodes()),
            false => None,
        };
        LevelStatus {
            level,
            supports: self.rising.supports(),
            nodes: nodes.collect(),
            held_back,
            raise_in_ms: due.map(|at| at.0.saturating_sub(now.0) / 1_000),
        }
    }

    /// Iterates over all nodes, members and learners, that have joined under their id.
    fn asked_nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        let nodes = self.group().nodes();
        let come = nodes.filter(|(_, known)| known.has_joined());
        come.map(|(node, _)| node)
    }

    /// [level-5] Returns why the group cannot use this level yet, one reason per line.
    fn held_back(&self, now: Time, to: Level) -> Vec<String> {
        let own = self.member;
        let eras = self.applying.membership().eras();
        let mut reasons: Vec<String> = self
            .asked_nodes()
            .filter(|node| *node != own.node)
            .filter_map(|node| match self.rising.newest_of(node) {
                None => Some(format!("node {node} is not connected")),
                Some(newest) if newest < to => {
                    Some(format!("node {node} runs a release that supports level {newest} at most"))
                }
                Some(_) => None,
            })
            .collect();
        let members = eras.current().members().iter().map(|voter| voter.member);
        let unheard = members
            .filter(|member| *member != own && self.lag(now, *member).is_none())
            .filter(|member| self.rising.newest_of(member.node) >= Some(to));
        reasons.extend(unheard.map(|member| format!("node {member} does not answer")));
        if eras.era() != self.protocol.node().era() {
            reasons.push("the members are being changed".to_owned());
        }
        reasons
    }

    /// Starts an operator's request to raise the group to the next level.
    pub(super) fn begin_raise(
        &mut self,
        now: Time,
        asked: u64,
        dry_run: bool,
    ) -> Result<(), Refused> {
        let (level, to) = (self.level(), self.level().next());
        if level >= self.rising.supports() {
            self.steering.answer(asked, Ok(Answer::Already));
            return Ok(());
        }
        self.check_held_back(now, to)?;
        if dry_run {
            let planned = Answer::Planned(None, Vec::new());
            self.steering.answer(asked, Ok(planned));
            return Ok(());
        }
        self.rising.ask(now, asked, to);
        self.steering.look_at = now;
        Ok(())
    }

    fn check_held_back(&self, now: Time, to: Level) -> Result<(), Refused> {
        let reasons = self.held_back(now, to);
        match reasons.is_empty() {
            true => Ok(()),
            false => Err(Refused::new(
                "held_back",
                format!("the cluster cannot use level {to} yet: {}", reasons.join("; ")),
                "upgrade and start these nodes, or remove those that are gone",
            )),
        }
    }

    /// As leader, raises the level if all nodes support the next one and the raise is due or
    /// requested by an operator ([level-5], [level-6]).
    pub(super) fn raise(&mut self, now: Time, plane: &mut dyn Plane) {
        let to = self.level().next();
        if to > self.rising.supports() {
            return;
        }
        let due = self.rising.due_at(self.asked_nodes());
        let wanted = self.rising.is_asked() || due.is_some_and(|at| now >= at);
        if !wanted || !self.held_back(now, to).is_empty() || !self.may_propose(0) {
            return;
        }
        // [level-8] The folder is marked first, since a proposal is in the log immediately.
        if !self.rising.may_store_level(to) || !self.rising.take_turn(now) {
            return;
        }
        let membership = self.applying.membership();
        let value = Value::Raise {
            era: membership.eras().era(),
            nodes: membership.table().nodes_sum(),
            to,
        };
        let payload = None;
        self.propose_value(now, Offer { value, payload }, plane);
    }

    /// Answers operators' requests for a level that was reached or cannot be reached.
    pub(super) fn answer_raises(&mut self, now: Time) {
        let level = self.level();
        if self.raised_to.replace(level).is_some_and(|before| before < level) {
            self.observing.tell(Event::Raised { level });
            self.rising.on_raised();
        }
        for asked in self.rising.reached(level) {
            self.steering.answer(asked, Ok(Answer::Done));
        }
        let leads = self.protocol.leads();
        for asked in self.rising.take_expired(now, leads) {
            let refused = self.check_held_back(now, level.next()).err();
            let refused = refused.filter(|_| leads).unwrap_or_else(|| {
                Refused::new(
                    "unknown_outcome",
                    "the level has not been raised yet",
                    "check with `quorate member feature`; repeating the request is harmless",
                )
            });
            self.steering.answer(asked, Err(refused));
        }
    }
}
