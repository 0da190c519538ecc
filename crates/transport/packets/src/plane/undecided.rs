//! Messages of a channel that other nodes may still request: undecided proposals, and everything
//! after them ([pkt-8]).

use std::collections::VecDeque;

use quorate_core::slot::Slot;

/// Undecided proposals that were sent, in the order of their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct UndecidedProposals(VecDeque<Proposal>);

#[derive(Clone, Copy, Debug)]
struct Proposal {
    first_number: u64,
    slots_to: Slot,
}

/// Maximum number of proposals recorded separately. Beyond it, the newest entry covers all later
/// ones.
const PROPOSALS_MAX: usize = 4096;

impl UndecidedProposals {
    /// Records that the message with number `first` proposed slots below `to`.
    pub(crate) fn record_sent(&mut self, first: u64, to: Slot) {
        let full = self.0.len() >= PROPOSALS_MAX;
        match self.0.back_mut().filter(|_| full) {
            Some(last) => last.slots_to = last.slots_to.max(to),
            None => self.0.push_back(Proposal { first_number: first, slots_to: to }),
        }
    }

    /// Removes proposals whose slots are decided and announced. Returns the number below which
    /// messages may be dropped. `next` is the number of the next message.
    pub(crate) fn remove_decided(&mut self, decided_to: Slot, next: u64) -> u64 {
        while self.0.front().is_some_and(|front| front.slots_to <= decided_to) {
            self.0.pop_front();
        }
        self.0.front().map_or(next, |front| front.first_number)
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
        let mut undecided = UndecidedProposals::default();
        assert_eq!(undecided.remove_decided(Slot(1), 7), 7);
        undecided.record_sent(7, Slot(3));
        undecided.record_sent(12, Slot(5));
        assert_eq!(undecided.remove_decided(Slot(2), 20), 7);
        assert_eq!(undecided.remove_decided(Slot(3), 20), 12);
        assert_eq!(undecided.remove_decided(Slot(9), 20), 20);
        undecided.record_sent(20, Slot(30));
        undecided.clear();
        assert_eq!(undecided.remove_decided(Slot(9), 22), 22);
    }

    #[test]
    fn last_entry_stands_for_proposals_beyond_the_bound() {
        let mut undecided = UndecidedProposals::default();
        for at in 0..PROPOSALS_MAX as u64 + 10 {
            undecided.record_sent(at + 1, Slot(at + 2));
        }
        let last = PROPOSALS_MAX as u64;
        assert_eq!(undecided.remove_decided(Slot(last), 9999), last);
        assert_eq!(
            undecided.remove_decided(Slot(last + 10), 9999),
            last,
            "not all of what it stands for"
        );
        assert_eq!(undecided.remove_decided(Slot(last + 11), 9999), 9999);
    }
}
