//! Leases of this node, as a leader and as an acceptor ([read-4]).

use super::Node;
use crate::{
    ballot::Ballot,
    lease::Lease,
    message::Heartbeat,
    node_id::{Member, NodeId},
    slot::Slot,
    time::Time,
};

/// A read that a leader may answer without asking anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeasedRead {
    /// The ballot that it leads in. The lease must still stand in it when the state was read.
    pub ballot: Ballot,
    /// The read may run once everything below is applied ([read-1]).
    pub slot: Slot,
}

impl Node {
    /// Whether a read may be answered on the strength of a lease, at this moment: a clock that was read
    /// after the read arrived and, for the last word, after the state was read.
    pub fn leased_read(&self, now: Time) -> Option<LeasedRead> {
        let leading = self.leading.as_ref().filter(|_| self.holder.is_on())?;
        let ballot = leading.ballot();
        // Transfer and the casting move end the lease first.
        let stays = self.transfer.is_none() && self.phase1.is_none();
        if !stays || self.acceptor.promised() > ballot || self.pending.failed() {
            return None;
        }
        let own = self.options.member;
        let holds = |member: Member| member == own || self.holder.holds(ballot, member, now);
        // The set is looked at anew each time: eras begin, changes are proposed.
        self.blocks_others(holds).then(|| LeasedRead {
            ballot,
            slot: leading.tally.next(),
        })
    }

    /// What a heartbeat of this leader asks for.
    pub(super) fn lease_wanted(&mut self, now: Time) -> Lease {
        self.holder.ask(now, self.transfer.is_none())
    }

    /// A leader that this node would promise asks for a lease, or gives one back.
    pub(super) fn lease_asked(&mut self, now: Time, from: NodeId, beat: &Heartbeat) -> Lease {
        if beat.ballot.node != from || beat.lease == Lease::default() {
            return Lease::default();
        }
        self.granter.asked(now, beat.ballot, beat.lease)
    }

    /// Whether a promise of this ballot, or a vote for it, must wait: it raises the promise of this
    /// acceptor, which has granted, or may have before it was started.
    pub(super) fn lease_refuses(&self, now: Time, ballot: Ballot) -> bool {
        ballot > self.acceptor.promised() && self.granter.refuses(now, ballot)
    }
}
