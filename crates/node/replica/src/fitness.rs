//! This node's fitness to lead, determined by the state of its log and its service. An unfit leader
//! hands over, and operators see the reason ([live-3], [live-6]).

use quorate_core::{fitness::Fitness, slot::Slot, time::Time};

use crate::room::FullDisks;

/// Time in milliseconds after a problem during which the node accepts no leadership, since
/// shortages often recur.
const SETTLE_TIME_MS: u64 = 5_000;

/// Number of slots to apply above which a starting node is far behind.
const FAR_BEHIND_SLOTS: u64 = 4096;
/// Time in milliseconds that a decided slot may wait before a running node counts as far behind.
const FAR_BEHIND_MS: u64 = 2_000;
/// Time in milliseconds that a decided slot may wait before the node accepts no leadership. Shorter
/// than [`FAR_BEHIND_MS`], so that a leader does not hand over to a node that will soon be far
/// behind.
const LAG_LIMIT_MS: u64 = 1_000;
/// Time in milliseconds within which a decided slot must be applied for the lag to end.
const LAG_END_MS: u64 = 500;

/// Lag of this node in applying decided slots ([live-6]).
#[derive(Debug)]
struct Lag {
    /// A past time, and the first slot that was not known to be decided then.
    past_sample: (Time, Slot),
    is_far_behind: bool,
}

impl Lag {
    fn new(now: Time, decided_to: Slot, applied_to: Slot) -> Self {
        let far = applied_to.plus(FAR_BEHIND_SLOTS) < decided_to;
        Self { past_sample: (now, decided_to), is_far_behind: far }
    }

    /// Returns this node's fitness according to its current lag.
    fn update_lag(&mut self, now: Time, decided_to: Slot, applied_to: Slot) -> Fitness {
        let (at, to) = self.past_sample;
        let waits = applied_to < to;
        let waited_us = now.since_us(at);
        if waits {
            self.is_far_behind |= waited_us >= FAR_BEHIND_MS * 1000;
        } else {
            self.is_far_behind &= waited_us > LAG_END_MS * 1000;
            self.past_sample = (now, decided_to);
        }
        match self.is_far_behind {
            true => Fitness::FarBehind,
            false if waits && waited_us >= LAG_LIMIT_MS * 1000 => Fitness::Settling,
            false => Fitness::Fit,
        }
    }
}

/// Fitness of this node to lead, and the obstacles to it.
#[derive(Debug)]
pub(crate) struct FitnessState {
    fitness: Fitness,
    /// Reason why the log cannot write; `None` if it can.
    log_trouble: Option<&'static str>,
    /// Description of the last problem, retained while the node settles.
    last_problem: String,
    /// End of the time during which the node settles after a problem.
    settled_at: Time,
    /// The node has been fit before. Until then, obstacles are part of the start and not reported
    /// as trouble.
    was_fit: bool,
    lag: Lag,
    pub(crate) full_disks: FullDisks,
}

impl FitnessState {
    pub(crate) fn new(now: Time, decided_to: Slot, applied_to: Slot) -> Self {
        Self {
            lag: Lag::new(now, decided_to, applied_to),
            fitness: Fitness::Fit,
            log_trouble: None,
            last_problem: String::new(),
            settled_at: Time(0),
            was_fit: false,
            full_disks: FullDisks::default(),
        }
    }

    /// Returns the fitness as far as the lag in applying decided slots determines it.
    pub(crate) fn measure_lag(&mut self, now: Time, decided_to: Slot, applied_to: Slot) -> Fitness {
        self.lag.update_lag(now, decided_to, applied_to)
    }

    /// Updates the fitness from log, service and lag. Returns the new fitness if it has changed.
    pub(crate) fn update_fitness(
        &mut self,
        now: Time,
        log: Option<&'static str>,
        service: impl FnOnce() -> Option<String>,
        lag: Fitness,
    ) -> Option<Fitness> {
        let before = self.fitness;
        self.log_trouble = log;
        if let Some(why) = log {
            self.fitness = Fitness::CannotWrite;
            why.clone_into(&mut self.last_problem);
        } else if let Some(why) = service() {
            self.fitness = Fitness::CannotApply;
            self.last_problem = why;
        } else if lag.should_hand_over() {
            self.fitness = lag;
            self.last_problem = "it has much left to apply".to_owned();
        } else if before.should_hand_over() && self.was_fit {
            self.fitness = Fitness::Settling;
            self.settled_at = now.plus_ms(SETTLE_TIME_MS);
        } else if lag == Fitness::Settling {
            self.fitness = lag;
            self.settled_at = self.settled_at.max(now);
        } else if before != Fitness::Settling || now >= self.settled_at {
            self.fitness = Fitness::Fit;
            self.was_fit = true;
        }
        (self.fitness != before).then_some(self.fitness)
    }

    /// Returns why a leader must hand over; `None` if it need not.
    pub(crate) fn handover_reason(&self) -> Option<&str> {
        self.fitness.should_hand_over().then_some(&*self.last_problem)
    }

    pub(crate) fn log_trouble(&self) -> Option<&'static str> {
        self.log_trouble
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Time {
        Time(0).plus_ms(ms)
    }

    #[test]
    fn being_unable_to_write_outranks_being_unable_to_apply() {
        let mut fit = FitnessState::new(at_ms(0), Slot(1), Slot(1));
        let full = || Some("its disk is full".to_owned());
        assert_eq!(fit.update_fitness(at_ms(0), None, || None, Fitness::Fit), None);
        assert_eq!(
            fit.update_fitness(at_ms(1), None, full, Fitness::Fit),
            Some(Fitness::CannotApply)
        );
        assert_eq!(fit.handover_reason(), Some("its disk is full"));
        let news = fit.update_fitness(at_ms(2), Some("no room for the log"), full, Fitness::Fit);
        assert_eq!(news, Some(Fitness::CannotWrite));
        assert_eq!(fit.handover_reason(), Some("no room for the log"));
        assert_eq!(
            fit.update_fitness(at_ms(3), Some("no room for the log"), full, Fitness::Fit),
            None
        );
    }

    #[test]
    fn node_settles_before_leadership_is_transferred_to_it() {
        let mut fit = FitnessState::new(at_ms(0), Slot(1), Slot(1));
        fit.update_fitness(
            at_ms(0),
            None,
            || Some("it takes in a snapshot".to_owned()),
            Fitness::Fit,
        );
        let started = fit.update_fitness(at_ms(0), None, || None, Fitness::Fit);
        assert_eq!(started, Some(Fitness::Fit), "that was no trouble");
        fit.update_fitness(at_ms(0), Some("no room for the log"), || None, Fitness::Fit);
        assert_eq!(
            fit.update_fitness(at_ms(10), None, || None, Fitness::Fit),
            Some(Fitness::Settling)
        );
        assert_eq!(fit.handover_reason(), None);
        assert_eq!(fit.update_fitness(at_ms(5_009), None, || None, Fitness::Fit), None);
        assert_eq!(
            fit.update_fitness(at_ms(5_010), None, || None, Fitness::Fit),
            Some(Fitness::Fit)
        );
    }

    /// [live-6] Leadership is not handed to a lagging node until the node has caught up.
    #[test]
    fn a_node_that_lags_settles_for_as_long() {
        let mut fit = FitnessState::new(at_ms(0), Slot(1), Slot(1));
        let mut look = |ms, lag| fit.update_fitness(at_ms(ms), None, || None, lag);
        assert_eq!(look(0, Fitness::Fit), None);
        assert_eq!(look(1, Fitness::Settling), Some(Fitness::Settling));
        assert_eq!(look(2, Fitness::Settling), None);
        assert_eq!(look(3, Fitness::Fit), Some(Fitness::Fit));
    }

    /// [live-6] A node counts as far behind by slots after its start, later by time, without
    /// flapping.
    #[test]
    fn a_node_is_far_behind_until_it_keeps_up() {
        use Fitness::{FarBehind, Fit, Settling};
        let mut lag = Lag::new(at_ms(0), Slot(9_000), Slot(1));
        let mut look =
            |ms, decided, applied| lag.update_lag(at_ms(ms), Slot(decided), Slot(applied));
        assert_eq!(look(0, 9_000, 1), FarBehind, "at once");
        assert_eq!(look(3_000, 12_000, 8_999), FarBehind);
        assert_eq!(look(3_001, 12_000, 9_000), FarBehind, "it took long");
        assert_eq!(look(3_600, 13_000, 12_000), FarBehind, "and again");
        assert_eq!(look(4_000, 13_500, 13_000), Fit);
        assert_eq!(look(6_300, 99_000, 13_500), Fit, "what waits has not waited for long");
        assert_eq!(look(7_299, 99_000, 98_999), Fit);
        assert_eq!(look(7_300, 99_000, 98_999), Settling);
        assert_eq!(look(8_299, 99_000, 98_999), Settling);
        assert_eq!(look(8_300, 99_000, 98_999), FarBehind);
        let near =
            Lag::new(at_ms(0), Slot(4_000), Slot(1)).update_lag(at_ms(0), Slot(4_000), Slot(1));
        assert_eq!(near, Fit);
    }
}
