//! Leases: while enough members have promised to follow no other node, reads need no round trip
//! ([read-4]).
//!
//! Leases are the only part of safety that reads a clock ([model-4]), and groups use them only if
//! they enable them. An acceptor *grants* a lease from the receipt of the request: for its
//! duration, it casts no vote in a ballot of another node, so that no such ballot decides anything.
//! It may still promise such a ballot if the group's rules allow that ([read-8]). The leader counts
//! the duration from *sending*, less the possible drift between two clocks. This module holds the
//! state of both sides; `node/leasing.rs` uses it.

use alloc::vec::Vec;

use crate::{
    ballot::Ballot,
    node_id::{Member, PEERS_MAX},
    time::Time,
};

/// Rules for granting and counting leases. All nodes of a group use the same rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseRules {
    /// Time for which a grant binds an acceptor, counted from receipt, in microseconds.
    pub duration_us: u64,
    /// Maximum clock drift in either direction, in parts per million.
    pub drift_ppm: u64,
    /// [read-8] A grant withholds votes, but not promises.
    pub promises: bool,
}

/// Number of parts in a whole, for rates in parts per million.
const PPM_WHOLE: u64 = 1_000_000;

impl LeaseRules {
    /// Creates rules under which a lease ends before the election timeout of any node, whatever its
    /// clock drift.
    pub const fn within_election_timeout(election_min_ms: u64, drift_ppm: u64) -> Self {
        let duration_us = remote_lease_us(election_min_ms.saturating_mul(1000), drift_ppm);
        Self { duration_us, drift_ppm, promises: true }
    }
}

/// Error allowance in microseconds for two clock readings in whole microseconds. Each reading may
/// be up to one microsecond too high.
const CLOCK_ERROR_US: u64 = 2;

/// Returns how long a leader may rely on a grant of `us` microseconds by another node, whose clock
/// may be fast while the leader's is slow.
pub const fn remote_lease_us(us: u64, drift_ppm: u64) -> u64 {
    let drift_ppm = if drift_ppm < PPM_WHOLE { drift_ppm } else { PPM_WHOLE };
    let scaled = us as u128 * (PPM_WHOLE - drift_ppm) as u128 / (PPM_WHOLE + drift_ppm) as u128;
    #[expect(clippy::cast_possible_truncation, reason = "no more than `us`")]
    let scaled = scaled as u64;
    scaled.saturating_sub(CLOCK_ERROR_US)
}

/// The lease that a heartbeat requests, or the grant in its reply. All zero means no lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease {
    /// Time of the leader's request, by the leader's clock. The reply echoes it.
    pub requested_at: Time,
    /// Duration in microseconds. A request with a time and a duration of zero releases earlier
    /// grants.
    pub duration_us: u64,
}

/// A lease that this acceptor granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Grant {
    ballot: Ballot,
    requested_at: Time,
    until: Time,
}

/// The acceptor's side of leases: the grant that it has made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Granter {
    rules: Option<LeaseRules>,
    grant: Option<Grant>,
    /// Before this time, no vote is cast in a ballot above `recovered_ballot`, because an earlier
    /// process may have made grants that the current process does not know of. Unlimited until the
    /// first clock reading.
    silent_until: Time,
    /// Highest ballot of the recovered votes. When they were cast, no grant withheld them.
    recovered_ballot: Ballot,
}

impl Granter {
    /// Creates the state of an acceptor that grants leases by `rules`, or none. An earlier process
    /// of this node may have granted a lease for `silent_us`, and last voted in ballot `voted`.
    pub fn new(rules: Option<LeaseRules>, silent_us: u64, voted: Ballot) -> Self {
        Self {
            rules,
            grant: None,
            silent_until: if silent_us > 0 { Time(u64::MAX) } else { Time(0) },
            recovered_ballot: voted,
        }
    }

    /// Returns whether no lease can have been granted.
    pub fn is_unused(&self) -> bool {
        *self == Self::new(None, 0, self.recovered_ballot)
    }

    /// Handles the first reading of the clock. `silent_us` counts from then on.
    pub fn start(&mut self, now: Time, silent_us: u64) {
        if silent_us > 0 {
            self.silent_until = now.plus_us(silent_us);
        }
    }

    /// Returns whether a vote in `ballot` must be withheld at `now`.
    pub fn withholds_vote(&self, now: Time, ballot: Ballot) -> bool {
        let other = |grant: Grant| now < grant.until && grant.ballot.node != ballot.node;
        let silent = now < self.silent_until && ballot > self.recovered_ballot;
        silent || self.grant.is_some_and(other)
    }

    /// Returns whether a promise of `ballot`, a ballot above the last promise, must be withheld
    /// now.
    pub fn withholds_promise(&self, now: Time, ballot: Ballot) -> bool {
        !self.promises() && self.withholds_vote(now, ballot)
    }

    /// Returns whether a grant leaves this acceptor free to promise other nodes' ballots.
    fn promises(&self) -> bool {
        self.rules.is_some_and(|rules| rules.promises)
    }

    /// Returns the time from which this node may campaign; `None` if it may already.
    pub fn bound_until(&self, now: Time) -> Option<Time> {
        if self.promises() {
            return None;
        }
        let granted = self.grant.map_or(Time(0), |grant| grant.until);
        let until = granted.max(self.silent_until);
        (now < until).then_some(until)
    }

    /// Responds to a request by the leader of `ballot`, given that no higher ballot has been
    /// promised. `now` must be read after the request has been received.
    pub fn grant_lease(&mut self, now: Time, ballot: Ballot, question: Lease) -> Lease {
        if question.duration_us == 0 {
            self.release_grants(ballot, question.requested_at);
            return Lease::default();
        }
        let Some(rules) = self.rules else {
            return Lease::default();
        };
        let live = self.grant.filter(|grant| now < grant.until);
        if live.is_some_and(|grant| grant.ballot.node != ballot.node) {
            return Lease::default();
        }
        let us = question.duration_us.min(rules.duration_us);
        // Requests may be reordered, so an earlier one does not shorten a grant.
        let grant =
            live.unwrap_or(Grant { ballot, requested_at: question.requested_at, until: Time(0) });
        let newest = (grant.ballot, grant.requested_at).max((ballot, question.requested_at));
        self.grant = Some(Grant {
            ballot: newest.0,
            requested_at: newest.1,
            until: grant.until.max(now.plus_us(us)),
        });
        Lease { duration_us: us, ..question }
    }

    /// Releases the grants requested in `ballot` no later than `asked_at`, and those of earlier
    /// ballots of the same node. The leader no longer relies on these grants.
    fn release_grants(&mut self, ballot: Ballot, asked_at: Time) {
        let over = |grant: &mut Grant| {
            let same = grant.ballot == ballot && grant.requested_at <= asked_at;
            let before = grant.ballot < ballot && grant.ballot.node == ballot.node;
            same || before
        };
        if asked_at > Time(0) {
            self.grant.take_if(over);
        }
    }
}

/// The leader's side of leases: the grants that members made to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    rules: Option<LeaseRules>,
    /// Ballot in which the grants were requested.
    ballot: Ballot,
    /// Grants that were requested at or before this time do not count.
    grants_void_until: Time,
    grants: Vec<(Member, Time)>,
}

impl Holder {
    /// Creates a leader's state without grants.
    pub fn new(rules: Option<LeaseRules>) -> Self {
        Self { rules, ballot: Ballot::ZERO, grants_void_until: Time(0), grants: Vec::new() }
    }

    /// Returns whether leases are enabled.
    pub fn is_enabled(&self) -> bool {
        self.rules.is_some()
    }

    /// Returns the lease for the next heartbeat to request. If leases are not `wanted`, the
    /// heartbeat releases all grants.
    pub fn next_request(&mut self, now: Time, wanted: bool) -> Lease {
        let Some(rules) = self.rules else {
            return Lease::default();
        };
        if !wanted {
            self.grants_void_until = self.grants_void_until.max(now);
            self.grants.clear();
        } else if now <= self.grants_void_until {
            return Lease::default();
        }
        Lease { requested_at: now, duration_us: if wanted { rules.duration_us } else { 0 } }
    }

    /// Records a member's grant of a request in `ballot`.
    pub fn record_grant(&mut self, ballot: Ballot, by: Member, lease: Lease) {
        let Some(rules) = self.rules else { return };
        if lease.duration_us == 0 || lease.requested_at <= self.grants_void_until {
            return;
        }
        if self.ballot != ballot {
            self.ballot = ballot;
            self.grants.clear();
        }
        let until = lease.requested_at.plus_us(remote_lease_us(lease.duration_us, rules.drift_ppm));
        match self.grants.iter().position(|(member, _)| *member == by) {
            Some(at) => self.grants[at].1 = until.max(self.grants[at].1),
            None if self.grants.len() < PEERS_MAX => self.grants.push((by, until)),
            None => {}
        }
    }

    /// Returns whether this member's grant for `ballot` is still valid at `now`.
    pub fn is_valid(&self, ballot: Ballot, member: Member, now: Time) -> bool {
        let stands = |(by, until): &(Member, Time)| *by == member && now < *until;
        self.ballot == ballot && self.grants.iter().any(stands)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ballot::Era, node_id::NodeId};

    const RULES: LeaseRules = LeaseRules { duration_us: 1000, drift_ppm: 100_000, promises: false };

    fn ballot(round: u32, node: u32) -> Ballot {
        Ballot { era: Era(0), round, node: NodeId(node) }
    }

    fn question(asked_at: u64) -> Lease {
        Lease { requested_at: Time(asked_at), duration_us: 1000 }
    }

    /// [read-4] The leader allows for the drift of both clocks: its own may be slow while the
    /// granter's is fast.
    #[test]
    fn leader_allows_for_the_drift_of_both_clocks() {
        assert_eq!(remote_lease_us(1100, 100_000), 900 - CLOCK_ERROR_US);
        assert_eq!(remote_lease_us(u64::MAX, 0), u64::MAX - CLOCK_ERROR_US);
        assert_eq!(remote_lease_us(1000, 2_000_000), 0, "a bound that bounds nothing");
        let leases = LeaseRules::within_election_timeout(100, 10_000);
        assert_eq!(leases.duration_us, 98_017);
        let mut holder = Holder::new(Some(RULES));
        holder.record_grant(ballot(1, 1), Member::first(2), question(5000));
        let holds = |at| holder.is_valid(ballot(1, 1), Member::first(2), Time(at));
        assert!(holds(5815) && !holds(5816));
        assert!(!holder.is_valid(ballot(2, 1), Member::first(2), Time(5001)));
    }

    #[test]
    fn granter_refuses_others_from_receipt_to_the_end() {
        let mut granter = Granter::new(Some(RULES), 0, Ballot::ZERO);
        assert!(!granter.withholds_vote(Time(1), ballot(9, 3)));
        let granted = granter.grant_lease(Time(70), ballot(1, 1), question(5));
        assert_eq!(granted, question(5));
        assert!(granter.withholds_vote(Time(1069), ballot(9, 3)));
        assert!(!granter.withholds_vote(Time(1069), ballot(9, 1)), "the holder's own");
        assert_eq!(granter.bound_until(Time(1069)), Some(Time(1070)));
        assert!(!granter.withholds_vote(Time(1070), ballot(9, 3)));
        // An older request that arrives late shortens nothing, and another node gets no grant.
        granter.grant_lease(Time(80), ballot(1, 1), question(4));
        assert_eq!(granter.bound_until(Time(80)), Some(Time(1080)));
        let other = granter.grant_lease(Time(90), ballot(2, 2), question(7));
        assert_eq!(other, Lease::default());
        assert_ne!(granter.grant_lease(Time(1080), ballot(2, 2), question(7)), Lease::default());
    }

    /// A release of a lease may arrive late. It applies only to leases requested before it.
    #[test]
    fn release_ends_only_leases_requested_before_it() {
        let release = |at| Lease { requested_at: Time(at), duration_us: 0 };
        let mut granter = Granter::new(Some(RULES), 0, Ballot::ZERO);
        granter.grant_lease(Time(50), ballot(1, 1), question(40));
        granter.grant_lease(Time(60), ballot(1, 1), release(39));
        assert!(granter.bound_until(Time(60)).is_some(), "asked for later");
        granter.grant_lease(Time(60), ballot(1, 1), release(0));
        assert!(granter.bound_until(Time(60)).is_some(), "says nothing");
        granter.grant_lease(Time(60), ballot(1, 1), release(40));
        assert_eq!(granter.bound_until(Time(60)), None);
        let mut holder = Holder::new(Some(RULES));
        assert_eq!(holder.next_request(Time(40), true), question(40));
        assert_eq!(holder.next_request(Time(41), false), release(41));
        holder.record_grant(ballot(1, 1), Member::first(2), question(40));
        assert!(!holder.is_valid(ballot(1, 1), Member::first(2), Time(42)));
        assert_eq!(holder.next_request(Time(41), true), Lease::default(), "not later");
        assert_eq!(holder.next_request(Time(42), true), question(42));
    }

    #[test]
    fn restarted_granter_waits_out_leases_it_may_have_granted() {
        let mut granter = Granter::new(None, 500, ballot(3, 2));
        assert!(granter.withholds_vote(Time(1 << 60), ballot(4, 1)), "no clock yet");
        granter.start(Time(100), 500);
        assert!(granter.withholds_vote(Time(599), ballot(4, 2)));
        assert!(!granter.withholds_vote(Time(599), ballot(3, 2)), "it voted there");
        assert_eq!(granter.bound_until(Time(100)), Some(Time(600)));
        assert!(!granter.withholds_vote(Time(600), ballot(4, 2)));
    }
}
