//! An operator asks for a snapshot now, and is told how that ended.

use quorate_core::slot::Slot;

use crate::status::Snapshot;

/// What is asked for, until it is answered. All who ask share one answer.
#[derive(Debug, Default)]
pub(super) struct Asking {
    /// A snapshot at this slot or behind it.
    wanted: Option<Slot>,
    answer: Option<Result<Snapshot, String>>,
}

impl Asking {
    /// A snapshot at this slot or behind it is wanted.
    pub(super) fn ask(&mut self, at: Slot) {
        self.wanted = self.wanted.max(Some(at));
    }

    /// What is wanted and not answered yet.
    pub(super) fn wanted(&self) -> Option<Slot> {
        self.wanted
    }

    /// The base of the log names this snapshot.
    pub(super) fn have(&mut self, own: Snapshot) {
        if self.wanted.take_if(|wanted| *wanted <= own.at).is_some() {
            self.answer = Some(Ok(own));
        }
    }

    /// It failed: who still wants one asks again.
    pub(super) fn fail(&mut self, why: String) {
        self.wanted = None;
        self.answer = Some(Err(why));
    }

    /// How it ended, once.
    pub(super) fn take_answer(&mut self) -> Option<Result<Snapshot, String>> {
        self.answer.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(slot: u64) -> Snapshot {
        Snapshot {
            at: Slot(slot),
            bytes: 10,
        }
    }

    #[test]
    fn only_a_snapshot_that_is_not_too_old_is_an_answer() {
        let mut asking = Asking::default();
        asking.have(at(5));
        assert_eq!(asking.take_answer(), None, "nobody asks");
        asking.ask(Slot(7));
        asking.ask(Slot(6));
        asking.have(at(6));
        assert_eq!(
            (asking.wanted(), asking.take_answer()),
            (Some(Slot(7)), None)
        );
        asking.have(at(7));
        assert_eq!(
            (asking.wanted(), asking.take_answer()),
            (None, Some(Ok(at(7))))
        );
        assert_eq!(asking.take_answer(), None, "told once");
    }

    #[test]
    fn a_failure_is_told_and_ends_it() {
        let mut asking = Asking::default();
        asking.ask(Slot(7));
        asking.fail("no room".to_owned());
        assert_eq!(asking.wanted(), None);
        assert_eq!(asking.take_answer(), Some(Err("no room".to_owned())));
    }
}
