//! Evidence that lets a read run, and the check that it still holds after the read ([read-4],
//! [read-6]).

use quorate_core::{ballot::Ballot, node::Node, slot::Slot, time::Time};

use crate::clock::Clock;

/// Evidence that lets a read run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// A quorum confirmed it after it arrived: nothing can take that back ([read-2]).
    Confirmed,
    /// This node leads in this ballot, and holds a lease.
    Leased(Ballot),
    /// Everything below `slot` is applied, which holds all that was known when the question for it
    /// was sent.
    Within {
        /// Time when the confirmed question was sent.
        asked_at: Time,
        /// Its answer.
        slot: Slot,
        /// Greatest age of the question, by this node's clock.
        most_us: u64,
    },
}

impl Evidence {
    /// Returns whether the evidence holds now, after the query. The clock is read here, not before:
    /// the process may have stood still since the turn began.
    pub(crate) fn stands(self, clock: Option<&Clock>, node: &Node, applied_to: Slot) -> bool {
        let now = || clock.map(Clock::now);
        match self {
            Self::Confirmed => true,
            Self::Leased(ballot) => now()
                .and_then(|now| node.leased_read(now))
                .is_some_and(|leased| leased.ballot == ballot),
            Self::Within { asked_at, slot, most_us } => {
                slot <= applied_to && now().is_some_and(|now| now.since_us(asked_at) <= most_us)
            }
        }
    }
}
