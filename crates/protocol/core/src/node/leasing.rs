//! Leases on this node: the lease that it granted, and the leases granted to it ([read-4],
//! [read-8]).

mod granting;

use super::{options::Options, recovered::Recovered};
use crate::{
    ballot::Ballot,
    lease::{Granter, Holder, Lease},
    node_id::Member,
    slot::Slot,
    time::Time,
};

/// A read that a leader may answer without contacting another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeasedRead {
    /// Ballot in which this node leads. The lease must still be valid in this ballot once the state
    /// has been read.
    pub ballot: Ballot,
    /// The read may run once everything below this slot is applied ([read-1]).
    pub slot: Slot,
}

/// Leases of this node, as acceptor and as leader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Leasing {
    /// The lease that this node granted as an acceptor.
    ///
    /// Invariant: until it ends, this node votes in no ballot of another node ([read-4]).
    granter: Granter,
    /// The leases that this node was granted as a leader.
    holder: Holder,
}

impl Leasing {
    pub(super) fn new(options: &Options, recovered: &Recovered) -> Self {
        let voted = recovered.votes.iter().map(|vote| vote.ballot).max().unwrap_or_default();
        let granter = Granter::new(options.leases, options.earlier_lease_us, voted);
        Self { granter, holder: Holder::new(options.leases) }
    }

    /// Starts the period in which a lease that an earlier process granted may still be valid.
    pub(super) fn start(&mut self, now: Time, silent_us: u64) {
        self.granter.start(now, silent_us);
    }

    /// Returns the time until which this node may not promise another node's ballot; `None` if it
    /// already may.
    pub(super) fn bound_until(&self, now: Time) -> Option<Time> {
        self.granter.bound_until(now)
    }

    /// Records a member's grant to this leader.
    pub(super) fn record_grant(&mut self, ballot: Ballot, by: Member, lease: Lease) {
        self.holder.record_grant(ballot, by, lease);
    }

    pub(super) fn is_unused(&self) -> bool {
        self.granter.is_unused() && self.holder == Holder::new(None)
    }

    /// Returns whether leases are enabled in the group.
    pub(super) fn is_enabled(&self) -> bool {
        self.holder.is_enabled()
    }
}
