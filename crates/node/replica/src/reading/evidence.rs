//! Evidence that allows a read to run, and the check afterwards that it still held ([read-4],
//! [read-6]).

use quorate_core::{ballot::Ballot, node::Node, slot::Slot, time::Time};

use crate::clock::Clock;

/// Evidence that allows a read to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadEvidence {
    /// A quorum confirmed the read after its arrival. This evidence never expires ([read-2]).
    Confirmed,
    /// Like [`ReadEvidence::Confirmed`], but not everything below this slot has been applied. The
    /// read may run if nothing that is missing can change its answer ([read-9]).
    Ahead(Slot),
    /// This node leads in this ballot and holds a lease.
    Leased(Ballot),
    /// Everything below `slot` has been applied, including all commands acknowledged before a
    /// request for confirmation was sent.
    FreshWithin {
        /// Time at which the confirmed request was sent.
        requested_at: Time,
        /// First slot that the answer to the request does not cover.
        slot: Slot,
        /// Maximum age of the request in microseconds, by this node's clock.
        max_age_us: u64,
    },
}

impl ReadEvidence {
    /// Returns whether the evidence still holds after the query. The clock is read here and not
    /// earlier, because the process may have been suspended since the turn began.
    pub(crate) fn still_holds(self, clock: Option<&Clock>, node: &Node, applied_to: Slot) -> bool {
        let now = || clock.map(Clock::now);
        match self {
            Self::Confirmed | Self::Ahead(_) => true,
            Self::Leased(ballot) => now()
                .and_then(|now| node.leased_read(now))
                .is_some_and(|leased| leased.ballot == ballot),
            Self::FreshWithin { requested_at: asked_at, slot, max_age_us: most_us } => {
                slot <= applied_to && now().is_some_and(|now| now.since_us(asked_at) <= most_us)
            }
        }
    }
}
