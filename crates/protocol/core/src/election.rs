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
    next_attempt_at: Time,
    /// The deadline was set by [`Election::defer`] rather than by a timeout.
    is_deferred: bool,
    /// Time of the last request by a leader to take over leadership.
    takeover_asked_at: Option<Time>,
    /// Number of failed attempts since the last message from a leader.
    attempts: u32,
    /// Ballot of the pre-vote in progress, and the members that granted the pre-vote.
    pre_vote: Option<(Ballot, Vec<Member>)>,
    /// Highest round reported by other nodes, in the newest era seen.
    highest_round_seen: (Era, u32),
    timeout_min_us: u64,
    timeout_max_us: u64,
    /// [live-5] Additional silence tolerated from a leader, in microseconds.
    tolerated_lateness_us: u64,
    /// The timeout has already been restarted once since the leader's last message, because this
    /// node was paused when it expired.
    is_pause_excused: bool,
    dice: u64,
}

impl Election {
    /// Creates the state of a node that knows no leader.
    pub fn new(min_ms: u64, max_ms: u64, seed: u64) -> Self {
        assert!(min_ms <= max_ms, "election time-out: {min_ms} above {max_ms}");
        Self {
            leader: None,
            last_leader_message_at: None,
            next_attempt_at: Time(0),
            is_deferred: false,
            takeover_asked_at: None,
            attempts: 0,
            pre_vote: None,
            highest_round_seen: (Era(0), 0),
            timeout_min_us: min_ms * 1000,
            timeout_max_us: max_ms * 1000,
            tolerated_lateness_us: 0,
            is_pause_excused: false,
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
    pub fn next_attempt_at(&self) -> Time {
        self.next_attempt_at
    }

    /// Returns the longest silence to expect from a healthy leader, in microseconds.
    pub fn leader_silence_max_us(&self) -> u64 {
        self.timeout_max_us + self.tolerated_lateness_us
    }

    /// [live-5] Sets the additional silence that is tolerated because nodes run late, in
    /// microseconds.
    pub fn tolerate_lateness(&mut self, us: u64) {
        self.tolerated_lateness_us = us;
    }

    /// Returns the maximum timeout without the tolerance for late nodes, in microseconds.
    pub fn timeout_us(&self) -> u64 {
        self.timeout_max_us
    }

    /// [live-5] Records that this node itself was paused for the last `us` microseconds, so that
    /// messages from the leader may be unread.
    ///
    /// The lateness counts from the end of the timeout, but the pause may have begun long before.
    /// Therefore the whole timeout restarts the first time. It restarts only once, or a node that
    /// always runs late would never start an election.
    pub fn excuse_own_pause(&mut self, now: Time, us: u64) {
        let slept_through = self.next_attempt_at <= now;
        self.last_leader_message_at = self.last_leader_message_at.map(|at| at.plus_us(us).min(now));
        // A deferral ends at its time. Otherwise, a node that always runs late would never start an
        // election.
        if !self.is_deferred {
            self.next_attempt_at = self.next_attempt_at.plus_us(us);
        }
        if self.last_leader_message_at.is_some() && slept_through && !self.is_pause_excused {
            self.is_pause_excused = true;
            self.last_leader_message_at = Some(now);
            self.restart_timeout(now);
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
        self.is_pause_excused = false;
        self.attempts = 0;
        self.pre_vote = None;
        self.restart_timeout(now);
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
        self.restart_timeout(now);
    }

    /// Records a broken connection to the leader, an early sign of its failure. The wait is
    /// shortened but not skipped: two followers that saw the same failure should not start
    /// elections at the same instant.
    pub fn record_lost_connection(&mut self, now: Time) {
        self.forget_leader(now);
        let spread = self.timeout_max_us - self.timeout_min_us;
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let wait = mix(self.dice) % (spread / 4 + 1);
        self.next_attempt_at = now.plus_us(wait);
    }

    /// Returns the time since the leader's last message, in microseconds.
    pub fn silent_us(&self, now: Time) -> u64 {
        self.last_leader_message_at.map_or(0, |at| now.since_us(at))
    }

    /// [live-1] Returns whether a leader has sent a message within the minimum timeout, plus the
    /// tolerance for nodes that run late.
    pub fn leader_is_fresh(&self, now: Time) -> bool {
        self.last_leader_message_at
            .is_some_and(|at| now.since_us(at) < self.timeout_min_us + self.tolerated_lateness_us)
    }

    /// Draws the next election timeout, which is longer after failed attempts ([live-3]).
    pub fn restart_timeout(&mut self, now: Time) {
        let spread = self.timeout_max_us - self.timeout_min_us;
        let mut wait = self.timeout_min_us;
        if spread > 0 {
            self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
            wait += mix(self.dice) % (spread + 1);
        }
        wait <<= self.attempts.min(BACK_OFF_MAX);
        // The additional tolerance applies only to a known leader.
        wait += self.leader.map_or(0, |_| self.tolerated_lateness_us);
        self.next_attempt_at = now.plus_us(wait);
        self.is_deferred = false;
    }

    /// Defers this node's attempts until `until`, even if the node runs late.
    pub fn defer(&mut self, until: Time) {
        self.next_attempt_at = until;
        self.is_deferred = true;
    }

    /// Starts a new attempt after a timeout.
    pub fn attempt(&mut self, now: Time) {
        self.attempts = self.attempts.saturating_add(1);
        self.restart_timeout(now);
    }

    /// Returns the number of timeouts since the last message from a leader, or since the start.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Records that the leader asked this node to take over.
    pub fn record_takeover_request(&mut self, now: Time) {
        self.takeover_asked_at = Some(now);
    }

    /// Returns whether a leader asked this node to take over less than `within_us` ago.
    pub fn takeover_asked_within(&self, now: Time, within_us: u64) -> bool {
        self.takeover_asked_at.is_some_and(|at| now.since_us(at) < within_us)
    }

    /// Records a ballot used by another node.
    pub fn record_ballot(&mut self, ballot: Ballot) {
        self.highest_round_seen = self.highest_round_seen.max((ballot.era, ballot.round));
    }

    /// Returns the highest round reported in this era; 0 if none was.
    pub fn highest_round_seen(&self, era: Era) -> u32 {
        if self.highest_round_seen.0 == era { self.highest_round_seen.1 } else { 0 }
    }

    /// Starts a pre-vote for `ballot`.
    pub fn start_pre_vote(&mut self, ballot: Ballot, own: Member) {
        self.pre_vote = Some((ballot, alloc::vec![own]));
    }

    /// Records that a member would promise this ballot. Returns all members that would promise it,
    /// or `None` if the pre-vote is over.
    pub fn record_grant(&mut self, ballot: Ballot, by: Member) -> Option<&[Member]> {
        let (_, by_now) = self.pre_vote.as_mut().filter(|(asked, _)| *asked == ballot)?;
        if !by_now.contains(&by) && by_now.len() < PEERS_MAX {
            by_now.push(by);
        }
        Some(by_now)
    }

    /// Returns whether a pre-vote is in progress.
    pub fn is_pre_voting(&self) -> bool {
        self.pre_vote.is_some()
    }

    /// Ends the pre-vote.
    pub fn end_pre_vote(&mut self) {
        self.pre_vote = None;
    }
}
