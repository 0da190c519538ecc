//! Raises of the group's feature level by the leader, and operators' requests for them ([level-4]
//! to [level-8]).

use quorate_core::{time::Time, value::Value};
use quorate_log::disk::Disk;

use crate::{
    group::asking::{Answer, Refused},
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
    ) -> Result<(), Refused> {
        let (level, to) = (self.spine.level(), self.spine.level().next());
        if level >= self.driver.rising.supports() {
            self.driver.answer_operator(asked, Ok(Answer::Already));
            return Ok(());
        }
        self.view().check_held_back(now, to)?;
        if dry_run {
            let planned = Answer::Planned(None, Vec::new());
            self.driver.answer_operator(asked, Ok(planned));
            return Ok(());
        }
        self.driver.rising.request_level(now, asked, to);
        self.driver.look_soon(now);
        Ok(())
    }

    /// Returns the raise to propose as leader, if all nodes support the next level and the raise is
    /// due or requested by an operator ([level-5], [level-6]). `has_room` is set if a proposal is
    /// possible now.
    pub(crate) fn raise_to_propose(&mut self, now: Time, has_room: bool) -> Option<Value> {
        let to = self.spine.level().next();
        if to > self.driver.rising.supports() {
            return None;
        }
        let due = self.view().raise_at();
        let wanted = self.driver.rising.is_asked() || due.is_some_and(|at| now >= at);
        if !wanted || !self.view().held_back(now, to).is_empty() || !has_room {
            return None;
        }
        // [level-8] The folder is marked first, since a proposal is in the log immediately.
        if !self.driver.rising.may_store_level(to) || !self.driver.rising.take_turn(now) {
            return None;
        }
        let membership = self.spine.applying.membership();
        Some(Value::Raise {
            era: membership.eras().era(),
            nodes: membership.table().nodes_sum(),
            to,
        })
    }

    /// Answers operators' requests for a level that was reached or cannot be reached.
    pub(crate) fn answer_raises(&mut self, now: Time) {
        let level = self.spine.level();
        if self.driver.raised_to.replace(level).is_some_and(|before| before < level) {
            self.spine.observing.queue_event(Event::Raised { level });
            self.driver.rising.on_raised();
        }
        for asked in self.driver.rising.reached(level) {
            self.driver.answer_operator(asked, Ok(Answer::Done));
        }
        let leads = self.spine.protocol.leads();
        for asked in self.driver.rising.take_expired(now, leads) {
            let refused = self.view().check_held_back(now, level.next()).err();
            let refused = refused.filter(|_| leads).unwrap_or_else(|| {
                Refused::new(
                    "unknown_outcome",
                    "the level has not been raised yet",
                    "check with `quorate member feature`; repeating the request is harmless",
                )
            });
            self.driver.answer_operator(asked, Err(refused));
        }
    }
}
