//! Whether this node should lead, as its log and its service see it, and who hears of that: the
//! core, which hands over, and people ([live-3]).

use quorate_core::{fitness::Fitness, time::Time};

/// A node whose trouble is over is not trusted with leadership at once: what was short is often
/// short again.
const SETTLES_MS: u64 = 5_000;

/// What stands between this node and leading.
#[derive(Debug)]
pub(crate) struct Fit {
    fitness: Fitness,
    /// Why the log cannot write, if it cannot.
    log: Option<&'static str>,
    /// The last trouble, for people; kept while the node settles.
    why: String,
    /// Since its trouble is over, it is fit from then on.
    settled_at: Time,
    /// It has been fit. What keeps it from being fit after a start is no trouble.
    was_fit: bool,
}

impl Fit {
    pub(crate) fn new() -> Self {
        Self {
            fitness: Fitness::Fit,
            log: None,
            why: String::new(),
            settled_at: Time(0),
            was_fit: false,
        }
    }

    /// What keeps the log from writing, and the service from applying, is this. Gives what is news
    /// to the core.
    pub(crate) fn look(
        &mut self,
        now: Time,
        log: Option<&'static str>,
        service: impl FnOnce() -> Option<String>,
    ) -> Option<Fitness> {
        let before = self.fitness;
        self.log = log;
        if let Some(why) = log {
            self.fitness = Fitness::CannotWrite;
            why.clone_into(&mut self.why);
        } else if let Some(why) = service() {
            self.fitness = Fitness::CannotApply;
            self.why = why;
        } else if before.gives_way() && self.was_fit {
            self.fitness = Fitness::Settling;
            self.settled_at = now.plus_ms(SETTLES_MS);
        } else if before != Fitness::Settling || now >= self.settled_at {
            self.fitness = Fitness::Fit;
            self.was_fit = true;
        }
        (self.fitness != before).then_some(self.fitness)
    }

    /// Why a leader hands over, if it does.
    pub(crate) fn gives_way(&self) -> Option<&str> {
        self.fitness.gives_way().then_some(&*self.why)
    }

    /// Why the log cannot write, if it cannot.
    pub(crate) fn log_trouble(&self) -> Option<&'static str> {
        self.log
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Time {
        Time(0).plus_ms(ms)
    }

    #[test]
    fn what_cannot_write_is_worse_than_what_cannot_apply() {
        let mut fit = Fit::new();
        let full = || Some("its disk is full".to_owned());
        assert_eq!(fit.look(at_ms(0), None, || None), None);
        assert_eq!(fit.look(at_ms(1), None, full), Some(Fitness::CannotApply));
        assert_eq!(fit.gives_way(), Some("its disk is full"));
        let news = fit.look(at_ms(2), Some("no room for the log"), full);
        assert_eq!(news, Some(Fitness::CannotWrite));
        assert_eq!(fit.gives_way(), Some("no room for the log"));
        assert_eq!(fit.look(at_ms(3), Some("no room for the log"), full), None);
    }

    #[test]
    fn a_node_settles_before_leadership_is_brought_to_it() {
        let mut fit = Fit::new();
        fit.look(at_ms(0), None, || Some("it takes in a snapshot".to_owned()));
        let started = fit.look(at_ms(0), None, || None);
        assert_eq!(started, Some(Fitness::Fit), "that was no trouble");
        fit.look(at_ms(0), Some("no room for the log"), || None);
        assert_eq!(fit.look(at_ms(10), None, || None), Some(Fitness::Settling));
        assert_eq!(fit.gives_way(), None);
        assert_eq!(fit.look(at_ms(5_009), None, || None), None);
        assert_eq!(fit.look(at_ms(5_010), None, || None), Some(Fitness::Fit));
    }
}
