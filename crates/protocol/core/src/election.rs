//! Elections: pre-votes, randomised timeouts, back-off ([live-1], [live-2]).
//!
//! Liveness only ([model-5]): nothing here can write a promise or a vote.

use alloc::vec::Vec;

use crate::{
    ballot::{Ballot, Era},
    dice::mix,
    node_id::{Member, NodeId, PEERS_MAX},
    time::Time,
};

/// Maximum number of times that failed attempts double the timeout.
const BACK_OFF_MAX: u32 = 3;

/// A node's view of the leader and of its own attempts to be elected.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Election {
    /// The known leader and its ballot; `None` if this node knows no leader.
    leader: Option<(NodeId, Ballot)>,
    /// Time of the last message from the leader.
    last_leader_message_at: Option<Time>,
    /// Time of this node's next attempt.
    deadline: Time,
    /// The deadline was set by [`Election::defer`] rather than by a timeout.
    deferred: bool,
    /// Time of the last request by a leader to take over leadership.
    takeover_asked_at: Option<Time>,
    /// Number of failed attempts since the last message from a leader.
    attempts: u32,
    /// Ballot of the pre-vote in progress, and the members that granted the pre-vote.
    pre_vote: Option<(Ballot, Vec<Member>)>,
    /// Highest round reported by other nodes, in the newest era seen.
    round_seen: (Era, u32),
    min_us: u64,
    max_us: u64,
    /// [live-5] Additional silence tolerated from a leader, in microseconds.
    borne_us: u64,
    /// The timeout has already been restarted once since the leader's last message, because this
    /// node was paused when it expired.
    excused: bool,
    dice: u64,
}

impl Election {
    /// Creates the state of a node that knows no leader.
    pub fn new(min_ms: u64, max_ms: u64, seed: u64) -> Self {
        assert!(min_ms <= max_ms, "election time-out: {min_ms} above {max_ms}");
        Self {
            leader: None,
            last_leader_message_at: None,
            deadline: Time(0),
            deferred: false,
            takeover_asked_at: None,
            attempts: 0,
            pre_vote: None,
            round_seen: (Era(0), 0),
            min_us: min_ms * 1000,
            max_us: max_ms * 1000,
            borne_us: 0,
            excused: false,
            dice: seed,
        }
    }

    /// Returns the known leader; `None` if there is none.
    pub fn leader(&self) -> Option<NodeId> {
        self.leader.map(|(node, _)| node)
    }

    /// Returns the ballot of the known leader; `None` if there is none.
    pub fn leader_ballot(&self) -> Option<Ballot> {
        self.leader.map(|(_, ballot)| ballot)
    }

    /// Returns the time at which this node next needs a tick.
    pub fn deadline(&self) -> Time {
        self.deadline
    }

    /// Returns the longest silence to expect from a healthy leader, in microseconds.
    pub fn patience_us(&self) -> u64 {
        self.max_us + self.borne_us
    }

    /// [live-5] Sets the additional silence that is tolerated because nodes run late, in
    /// microseconds.
    pub fn tolerate_lateness(&mut self, us: u64) {
        self.borne_us = us;
    }

    /// Returns the maximum timeout without the tolerance for late nodes, in microseconds.
    pub fn timeout_us(&self) -> u64 {
        self.max_us
    }

    /// [live-5] Records that this node itself was paused for the last `us` microseconds, so that
    /// messages from the leader may be unread.
    ///
    /// The lateness counts from the end of the timeout, but the pause may have begun long before.
    /// Therefore the whole timeout restarts the first time. It restarts only once, or a node that
    /// always runs late would never start an election.
    pub fn excuse(&mut self, now: Time, us: u64) {
        let slept_through = self.deadline <= now;
        self.last_leader_message_at = self.last_leader_message_at.map(|at| at.plus_us(us).min(now));
        // A deferral ends at its time. Otherwise, a node that always runs late would never start an
        // election.
        if !self.deferred {
            self.deadline = self.deadline.plus_us(us);
        }
        if self.last_leader_message_at.is_some() && slept_through && !self.excused {
            self.excused = true;
            self.last_leader_message_at = Some(now);
            self.rearm(now);
        }
    }

    /// Records a message from a leader. Returns whether the leader is new.
    pub fn record_leader_message(&mut self, now: Time, ballot: Ballot) -> bool {
        if self.leader.is_some_and(|(_, known)| known > ballot) {
            return false;
        }
        let new = self.leader != Some((ballot.node, ballot));
        self.leader = Some((ballot.node, ballot));
        self.last_leader_message_at = Some(now);
        self.excused = false;
        self.attempts = 0;
        self.pre_vote = None;
        self.rearm(now);
        new
    }

    /// Records that this node has become leader.
    pub fn record_own_leadership(&mut self, own: NodeId, ballot: Ballot) {
        self.leader = Some((own, ballot));
        self.last_leader_message_at = None;
        self.attempts = 0;
        self.pre_vote = None;
    }

    /// Records that this node no longer knows a leader.
    pub fn forget_leader(&mut self, now: Time) {
        self.leader = None;
        self.last_leader_message_at = None;
        self.pre_vote = None;
        self.rearm(now);
    }

    /// Records a broken connection to the leader, an early sign of its failure. The wait is
    /// shortened but not skipped: two followers that saw the same failure should not start
    /// elections at the same instant.
    pub fn record_lost_connection(&mut self, now: Time) {
        self.forget_leader(now);
        let spread = self.max_us - self.min_us;
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let wait = mix(self.dice) % (spread / 4 + 1);
        self.deadline = now.plus_us(wait);
    }

    /// Returns the time since the leader's last message, in microseconds.
    pub fn silent_us(&self, now: Time) -> u64 {
        self.last_leader_message_at.map_or(0, |at| now.since_us(at))
    }

    /// [live-1] Returns whether a leader has sent a message within the minimum timeout, plus the
    /// tolerance for nodes that run late.
    pub fn leader_is_fresh(&self, now: Time) -> bool {
        self.last_leader_message_at.is_some_and(|at| now.since_us(at) < self.min_us + self.borne_us)
    }

    /// Draws the next election timeout, which is longer after failed attempts ([live-3]).
    pub fn rearm(&mut self, now: Time) {
        let spread = self.max_us - self.min_us;
        let mut wait = self.min_us;
        if spread > 0 {
            self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
            wait += mix(self.dice) % (spread + 1);
        }
        wait <<= self.attempts.min(BACK_OFF_MAX);
        // The additional tolerance applies only to a known leader.
        wait += self.leader.map_or(0, |_| self.borne_us);
        self.deadline = now.plus_us(wait);
        self.deferred = false;
    }

    /// Defers this node's attempts until `until`, even if the node runs late.
    pub fn defer(&mut self, until: Time) {
        self.deadline = until;
        self.deferred = true;
    }

    /// Starts a new attempt after a timeout.
    pub fn attempt(&mut self, now: Time) {
        self.attempts = self.attempts.saturating_add(1);
        self.rearm(now);
    }

    /// Returns the number of timeouts since the last message from a leader, or since the start.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Records that the leader asked this node to take over.
    pub fn told_to_lead(&mut self, now: Time) {
        self.takeover_asked_at = Some(now);
    }

    /// Returns whether a leader asked this node to take over less than `within_us` ago.
    pub fn was_told_within(&self, now: Time, within_us: u64) -> bool {
        self.takeover_asked_at.is_some_and(|at| now.since_us(at) < within_us)
    }

    /// Records a ballot used by another node.
    pub fn record_ballot(&mut self, ballot: Ballot) {
        self.round_seen = self.round_seen.max((ballot.era, ballot.round));
    }

    /// Returns the highest round reported in this era; 0 if none was.
    pub fn round_seen(&self, era: Era) -> u32 {
        if self.round_seen.0 == era { self.round_seen.1 } else { 0 }
    }

    /// Starts a pre-vote for `ballot`.
    pub fn start_pre_vote(&mut self, ballot: Ballot, own: Member) {
        self.pre_vote = Some((ballot, alloc::vec![own]));
    }

    /// Records that a member would promise this ballot. Returns all members that would promise it,
    /// or `None` if the pre-vote is over.
    pub fn granted(&mut self, ballot: Ballot, by: Member) -> Option<&[Member]> {
        let (_, by_now) = self.pre_vote.as_mut().filter(|(asked, _)| *asked == ballot)?;
        if !by_now.contains(&by) && by_now.len() < PEERS_MAX {
            by_now.push(by);
        }
        Some(by_now)
    }

    /// Returns whether a pre-vote is in progress.
    pub fn is_asking(&self) -> bool {
        self.pre_vote.is_some()
    }

    /// Ends the pre-vote.
    pub fn end_pre_vote(&mut self) {
        self.pre_vote = None;
    }
}
