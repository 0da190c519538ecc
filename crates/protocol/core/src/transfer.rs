//! Leadership handed over on purpose ([live-4]). Liveness only; every wait is bounded.
//!
//! Proposals go on until the target is near, stop shortly so that it gets level, and go on again if
//! it takes longer to lead than that: its disk may be slow. Once it has the token, the old leader
//! does not compete with it.

use crate::{node_id::NodeId, time::Time};

/// Stage of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The target is not near, or did not get level: proposals go on, at least until then.
    Waiting(Time),
    /// No proposals, so that the target gets level; given up for a while then.
    Closing(Time),
    /// The token is out; no proposals until then.
    Handed(Time),
    /// The token is out, and the target has not begun to lead in time: proposals go on.
    Open,
}

/// Lengths of the stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Longest time without proposals before the token, and after it.
    pub hold_us: u64,
    /// Least time between two attempts to get the target level.
    pub rest_us: u64,
    /// Interval of checks of a target that is not near.
    pub look_us: u64,
}

/// A transfer in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// The node that is to lead.
    pub target: NodeId,
    /// Time at which the old leader gives up waiting, and goes on.
    pub deadline: Time,
    stage: Stage,
    /// Time since when too many had promised the target's ballot for this leader to go on.
    campaign_seen: Option<Time>,
}

impl Transfer {
    /// Begins a transfer.
    pub fn new(target: NodeId, now: Time, deadline: Time) -> Self {
        Self { target, deadline, stage: Stage::Waiting(now), campaign_seen: None }
    }

    /// Returns whether the leader proposes nothing.
    pub fn holds_back(&self) -> bool {
        matches!(self.stage, Stage::Closing(_) | Stage::Handed(_))
    }

    /// Returns whether the target was asked to lead.
    pub fn is_handed(&self) -> bool {
        matches!(self.stage, Stage::Handed(_) | Stage::Open)
    }

    /// Moves on. `near`: the target lacks no more than may be in flight; `level`: nothing. Returns
    /// whether the token is due.
    pub fn advance(&mut self, now: Time, near: bool, level: bool, bounds: Bounds) -> bool {
        if let Stage::Waiting(from) = self.stage
            && now >= from
        {
            self.stage = if near {
                Stage::Closing(now.plus_us(bounds.hold_us))
            } else {
                Stage::Waiting(now.plus_us(bounds.look_us))
            };
        }
        match self.stage {
            Stage::Closing(_) if level => {
                self.stage = Stage::Handed(now.plus_us(bounds.hold_us));
                return true;
            }
            Stage::Closing(until) if now >= until => {
                self.stage = Stage::Waiting(now.plus_us(bounds.rest_us));
            }
            Stage::Handed(until) if now >= until => self.stage = Stage::Open,
            Stage::Waiting(_) | Stage::Closing(_) | Stage::Handed(_) | Stage::Open => {}
        }
        false
    }

    /// Notes that the target is elected, or never will be: too many have promised its ballot for
    /// this leader to go on. Returns whether that is longer ago than an election takes.
    pub fn has_failed(&mut self, now: Time, election_us: u64) -> bool {
        let since = *self.campaign_seen.get_or_insert(now);
        now.since_us(since) > election_us
    }

    /// Returns when the next step is due; for a node that leads no more, only the end.
    pub fn wake_at(&self, leads: bool) -> Time {
        match self.stage {
            Stage::Waiting(at) | Stage::Closing(at) | Stage::Handed(at) if leads => {
                at.min(self.deadline)
            }
            Stage::Waiting(_) | Stage::Closing(_) | Stage::Handed(_) | Stage::Open => self.deadline,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { hold_us: 100, rest_us: 200, look_us: 20 };

    fn at(now: u64) -> Time {
        Time(now)
    }

    #[test]
    fn proposals_stop_last_and_shortly() {
        let mut transfer = Transfer::new(NodeId(2), at(0), at(2000));
        assert!(!transfer.advance(at(0), false, false, BOUNDS));
        assert!(!transfer.holds_back(), "the target is far behind");
        assert_eq!(transfer.wake_at(true), at(20));
        assert!(!transfer.advance(at(19), true, true, BOUNDS));
        assert!(!transfer.advance(at(20), true, false, BOUNDS));
        assert!(transfer.holds_back());
        // It does not get level: proposals go on, and a later attempt succeeds.
        assert!(!transfer.advance(at(120), true, false, BOUNDS));
        assert!(!transfer.holds_back());
        assert!(!transfer.advance(at(319), true, true, BOUNDS));
        assert!(transfer.advance(at(320), true, true, BOUNDS), "the token");
        assert!(transfer.holds_back() && transfer.is_handed());
        assert!(!transfer.advance(at(350), true, true, BOUNDS), "once");
        // The target's disk is slow: the transfer does not wait for it.
        assert!(!transfer.advance(at(420), true, true, BOUNDS));
        assert!(!transfer.holds_back() && transfer.is_handed());
        assert_eq!(transfer.wake_at(true), at(2000));
    }

    #[test]
    fn campaign_of_the_target_has_the_time_of_an_election() {
        let mut transfer = Transfer::new(NodeId(2), at(0), at(2000));
        assert!(!transfer.has_failed(at(500), 200));
        assert!(!transfer.has_failed(at(700), 200));
        assert!(transfer.has_failed(at(701), 200));
    }
}
