//! Elections: pre-votes, randomised time-outs, back-off ([live-1], [live-2]).
//!
//! Liveness only ([model-5]): nothing here can write a promise or a vote.

use alloc::vec::Vec;

use crate::{
    ballot::{Ballot, Era},
    dice::mix,
    node_id::{Member, NodeId, PEERS_MAX},
    time::Time,
};

/// Doublings of the time-out after failed attempts.
const BACK_OFF_MAX: u32 = 3;

/// A node's view of leaders and of its own attempts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Election {
    /// The leader, as far as this node knows, and its ballot.
    leader: Option<(NodeId, Ballot)>,
    /// Time of its last message.
    heard: Option<Time>,
    /// Time of the next attempt.
    deadline: Time,
    /// That time was set by something else than a silence.
    deferred: bool,
    /// Time at which a leader last asked this node to take over.
    told_at: Option<Time>,
    /// Failed attempts since a leader's last message.
    attempts: u32,
    /// A pre-vote in progress, and who granted it.
    pre_vote: Option<(Ballot, Vec<Member>)>,
    /// The highest round that others reported, in the newest era seen.
    round_seen: (Era, u32),
    min_us: u64,
    max_us: u64,
    /// [live-5] Additional time that a leader may be silent.
    borne_us: u64,
    /// The node slept through the end of a time-out once since the leader's last message.
    excused: bool,
    dice: u64,
}

impl Election {
    /// Creates the state of a node that knows no leader.
    pub fn new(min_ms: u64, max_ms: u64, seed: u64) -> Self {
        assert!(min_ms <= max_ms, "election time-out: {min_ms} above {max_ms}");
        Self {
            leader: None,
            heard: None,
            deadline: Time(0),
            deferred: false,
            told_at: None,
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

    /// Returns the leader.
    pub fn leader(&self) -> Option<NodeId> {
        self.leader.map(|(node, _)| node)
    }

    /// Returns the ballot that the leader leads in.
    pub fn leader_ballot(&self) -> Option<Ballot> {
        self.leader.map(|(_, ballot)| ballot)
    }

    /// Returns when `tick` is due.
    pub fn deadline(&self) -> Time {
        self.deadline
    }

    /// Returns the longest silence that a healthy leader leaves.
    pub fn patience_us(&self) -> u64 {
        self.max_us + self.borne_us
    }

    /// [live-5] Extends the silence that is borne past the time-outs by this much, since nodes are
    /// late.
    pub fn bear(&mut self, us: u64) {
        self.borne_us = us;
    }

    /// Returns the longest time-out, however late nodes are.
    pub fn timeout_us(&self) -> u64 {
        self.max_us
    }

    /// [live-5] Notes that this node itself stood still for this long until now: the leader may
    /// have sent messages.
    ///
    /// It is late from the end of the time-out on, and may have stood still long before: the first
    /// time, all of the time-out begins anew. Once, or a node that is always late would never try.
    pub fn excuse(&mut self, now: Time, us: u64) {
        let slept_through = self.deadline <= now;
        self.heard = self.heard.map(|at| at.plus_us(us).min(now));
        // A deferral ends at its time, or a node whose turns are always late would never try.
        if !self.deferred {
            self.deadline = self.deadline.plus_us(us);
        }
        if self.heard.is_some() && slept_through && !self.excused {
            self.excused = true;
            self.heard = Some(now);
            self.rearm(now);
        }
    }

    /// Notes a leader's message. Returns whether the leader is new.
    pub fn heard(&mut self, now: Time, ballot: Ballot) -> bool {
        if self.leader.is_some_and(|(_, known)| known > ballot) {
            return false;
        }
        let new = self.leader != Some((ballot.node, ballot));
        self.leader = Some((ballot.node, ballot));
        self.heard = Some(now);
        self.excused = false;
        self.attempts = 0;
        self.pre_vote = None;
        self.rearm(now);
        new
    }

    /// Notes that this node leads now.
    pub fn lead(&mut self, own: NodeId, ballot: Ballot) {
        self.leader = Some((own, ballot));
        self.heard = None;
        self.attempts = 0;
        self.pre_vote = None;
    }

    /// Notes that there is no leader any more, as far as this node knows.
    pub fn forget_leader(&mut self, now: Time) {
        self.leader = None;
        self.heard = None;
        self.pre_vote = None;
        self.rearm(now);
    }

    /// Notes a broken connection to the leader: an early hint of its death. The wait is cut short
    /// but not dropped: two followers that saw the same should not try at the same instant.
    pub fn lost(&mut self, now: Time) {
        self.forget_leader(now);
        let spread = self.max_us - self.min_us;
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let wait = mix(self.dice) % (spread / 4 + 1);
        self.deadline = now.plus_us(wait);
    }

    /// Returns how long the leader has been silent.
    pub fn silent_us(&self, now: Time) -> u64 {
        self.heard.map_or(0, |at| now.since_us(at))
    }

    /// [live-1] Returns whether a leader sent a message within the shortest time-out.
    pub fn leader_is_fresh(&self, now: Time) -> bool {
        self.heard.is_some_and(|at| now.since_us(at) < self.min_us + self.borne_us)
    }

    /// Draws the next time-out; longer after failed attempts ([live-3]).
    pub fn rearm(&mut self, now: Time) {
        let spread = self.max_us - self.min_us;
        let mut wait = self.min_us;
        if spread > 0 {
            self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
            wait += mix(self.dice) % (spread + 1);
        }
        wait <<= self.attempts.min(BACK_OFF_MAX);
        // Without a leader there is no silence to bear.
        wait += self.leader.map_or(0, |_| self.borne_us);
        self.deadline = now.plus_us(wait);
        self.deferred = false;
    }

    /// Defers attempts of this node until then, however late its turns are.
    pub fn defer(&mut self, until: Time) {
        self.deadline = until;
        self.deferred = true;
    }

    /// Begins a new attempt after the time-out.
    pub fn attempt(&mut self, now: Time) {
        self.attempts = self.attempts.saturating_add(1);
        self.rearm(now);
    }

    /// Returns how many time-outs have passed since a leader's last message, or since the start.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Notes that the leader asked this node to take over.
    pub fn told_to_lead(&mut self, now: Time) {
        self.told_at = Some(now);
    }

    /// Returns whether a leader asked this node to take over less than `within_us` ago.
    pub fn was_told_within(&self, now: Time, within_us: u64) -> bool {
        self.told_at.is_some_and(|at| now.since_us(at) < within_us)
    }

    /// Notes that this ballot was seen.
    pub fn saw(&mut self, ballot: Ballot) {
        self.round_seen = self.round_seen.max((ballot.era, ballot.round));
    }

    /// Returns the highest round reported in this era.
    pub fn round_seen(&self, era: Era) -> u32 {
        if self.round_seen.0 == era { self.round_seen.1 } else { 0 }
    }

    /// Starts asking around for `ballot`.
    pub fn start_pre_vote(&mut self, ballot: Ballot, own: Member) {
        self.pre_vote = Some((ballot, alloc::vec![own]));
    }

    /// Notes that a member would promise. Returns all that would, if the question still stands.
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
