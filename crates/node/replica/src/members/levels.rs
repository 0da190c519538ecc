//! Raises of the group's feature level by the leader, and operators' requests for them ([level-4]
//! to [level-8]).

use quorate_core::{time::Time, value::Value};
use quorate_log::disk::Disk;

use crate::{
    group::asking::{GroupAnswer, GroupRefusal},
    members::MembersWork,
    observing::events::Event,
    ports::service::StateMachine,
};

impl<D: Disk, S: StateMachine> MembersWork<'_, D, S> {
    /// Starts an operator's request to raise the group to the next level.
    pub(crate) fn begin_raise(
        &mut self,
        now: Time,
        asked: u64,
        dry_run: bool,
    ) -> Result<(), GroupRefusal> {
        let (level, to) = (self.spine.level(), self.spine.level().next());
        if level >= self.driver.level_raises.supported_level() {
            self.driver.answer_operator(asked, Ok(GroupAnswer::AlreadyDone));
            return Ok(());
        }
        self.view().check_held_back(now, to)?;
        if dry_run {
            let planned = GroupAnswer::Planned(None, Vec::new());
            self.driver.answer_operator(asked, Ok(planned));
            return Ok(());
        }
        self.driver.level_raises.request_level(now, asked, to);
        self.driver.check_soon(now);
        Ok(())
    }

    /// Returns the raise to propose as leader, if all nodes support the next level and the raise is
    /// due or requested by an operator ([level-5], [level-6]). `has_room` is set if a proposal is
    /// possible now.
    pub(crate) fn raise_to_propose(&mut self, now: Time, has_room: bool) -> Option<Value> {
        let to = self.spine.level().next();
        if to > self.driver.level_raises.supported_level() {
            return None;
        }
        let due = self.view().raise_at();
        let wanted = self.driver.level_raises.has_request() || due.is_some_and(|at| now >= at);
        if !wanted || !self.view().raise_obstacles(now, to).is_empty() || !has_room {
            return None;
        }
        // [level-8] The folder is marked first, since a proposal is in the log immediately.
        if !self.driver.level_raises.may_store_level(to) || !self.driver.level_raises.take_turn(now)
        {
            return None;
        }
        let membership = self.spine.applying.membership();
        Some(Value::Raise {
            era: membership.eras().era(),
            nodes: membership.table().joined_nodes_checksum(),
            to,
        })
    }

    /// Answers operators' requests for a level that was reached or cannot be reached.
    pub(crate) fn answer_raises(&mut self, now: Time) {
        let level = self.spine.level();
        if self.driver.raised_to.replace(level).is_some_and(|before| before < level) {
            self.spine.observing.queue_event(Event::LevelRaised { level });
            self.driver.level_raises.on_raised();
        }
        for asked in self.driver.level_raises.take_reached(level) {
            self.driver.answer_operator(asked, Ok(GroupAnswer::Done));
        }
        let leads = self.spine.protocol.is_leader();
        for asked in self.driver.level_raises.take_expired(now, leads) {
            let refused = self.view().check_held_back(now, level.next()).err();
            let refused = refused.filter(|_| leads).unwrap_or_else(|| {
                GroupRefusal::new(
                    "unknown_outcome",
                    "the level has not been raised yet",
                    "check with `quorate member feature`; repeating the request is harmless",
                )
            });
            self.driver.answer_operator(asked, Err(refused));
        }
    }
}
