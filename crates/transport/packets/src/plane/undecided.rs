//! Messages of a channel that other nodes may still request: undecided proposals, and everything
//! after them ([pkt-8]).

use std::collections::VecDeque;

use quorate_core::slot::Slot;

/// Undecided proposals that were sent, in the order of their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Undecided(VecDeque<Proposal>);

#[derive(Clone, Copy, Debug)]
struct Proposal {
    first: u64,
    to: Slot,
}

/// Maximum number of proposals recorded separately. Beyond it, the newest entry covers all later
/// ones.
const PROPOSALS_MAX: usize = 4096;

impl Undecided {
    /// Records that the message with number `first` proposed slots below `to`.
    pub(crate) fn sent(&mut self, first: u64, to: Slot) {
        let full = self.0.len() >= PROPOSALS_MAX;
        match self.0.back_mut().filter(|_| full) {
            Some(last) => last.to = last.to.max(to),
            None => self.0.push_back(Proposal { first, to }),
        }
    }

    /// Removes proposals whose slots are decided and announced. Returns the number below which
    /// messages may be dropped. `next` is the number of the next message.
    pub(crate) fn decided(&mut self, decided_to: Slot, next: u64) -> u64 {
        while self.0.front().is_some_and(|front| front.to <= decided_to) {
            self.0.pop_front();
        }
        self.0.front().map_or(next, |front| front.first)
    }

    /// Removes all proposals, because the proposer no longer leads.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decision_releases_all_before_the_next_open_proposal() {
        let mut undecided = Undecided::default();
        assert_eq!(undecided.decided(Slot(1), 7), 7);
        undecided.sent(7, Slot(3));
        undecided.sent(12, Slot(5));
        assert_eq!(undecided.decided(Slot(2), 20), 7);
        assert_eq!(undecided.decided(Slot(3), 20), 12);
        assert_eq!(undecided.decided(Slot(9), 20), 20);
        undecided.sent(20, Slot(30));
        undecided.clear();
        assert_eq!(undecided.decided(Slot(9), 22), 22);
    }

    #[test]
    fn last_entry_stands_for_proposals_beyond_the_bound() {
        let mut undecided = Undecided::default();
        for at in 0..PROPOSALS_MAX as u64 + 10 {
            undecided.sent(at + 1, Slot(at + 2));
        }
        let last = PROPOSALS_MAX as u64;
        assert_eq!(undecided.decided(Slot(last), 9999), last);
        assert_eq!(undecided.decided(Slot(last + 10), 9999), last, "not all of what it stands for");
        assert_eq!(undecided.decided(Slot(last + 11), 9999), 9999);
    }
}
