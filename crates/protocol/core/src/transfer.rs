//! Deliberate transfer of leadership ([live-4]). Liveness only; every wait is bounded.
//!
//! Proposals continue until the target is close, and then pause briefly so that it can catch up.
//! They resume if the target takes longer than that to become leader, because its disk may be slow.
//! After sending the transfer message, the old leader does not compete with the target.

use crate::{node_id::NodeId, time::Time};

/// Stage of a transfer, with the time that bounds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransferStage {
    /// The target is not close, or did not catch up. Proposals continue, and the next attempt
    /// starts no earlier than this time.
    Waiting(Time),
    /// Proposals pause so that the target can catch up. The attempt is given up at this time.
    Closing(Time),
    /// The transfer message was sent. Proposals pause until this time.
    Handed(Time),
    /// The transfer message was sent, but the target did not become leader in time, so proposals
    /// continue.
    Open,
}

/// Durations that limit the stages of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferBounds {
    /// Maximum pause of proposals before the transfer message, and again after it, in microseconds.
    pub pause_max_us: u64,
    /// Minimum time between two pauses that let the target catch up, in microseconds.
    pub pause_interval_min_us: u64,
    /// Interval between checks while the target is not close, in microseconds.
    pub check_interval_us: u64,
}

/// Leader's state of a transfer in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// Node that is to become leader.
    pub target: NodeId,
    /// Time at which the old leader gives up the transfer and continues.
    pub deadline: Time,
    stage: TransferStage,
    /// Time since which this leader cannot continue, because too many members have promised the
    /// target's ballot.
    campaign_seen: Option<Time>,
}

impl Transfer {
    /// Starts a transfer.
    pub fn new(target: NodeId, now: Time, deadline: Time) -> Self {
        Self { target, deadline, stage: TransferStage::Waiting(now), campaign_seen: None }
    }

    /// Returns whether the leader pauses its proposals.
    pub fn pauses_proposals(&self) -> bool {
        matches!(self.stage, TransferStage::Closing(_) | TransferStage::Handed(_))
    }

    /// Returns whether the transfer message has been sent.
    pub fn is_handed(&self) -> bool {
        matches!(self.stage, TransferStage::Handed(_) | TransferStage::Open)
    }

    /// Advances the transfer. `near` means that the target lacks no more than may be in flight, and
    /// `level` that it lacks nothing. Returns whether to send the transfer message.
    pub fn advance(&mut self, now: Time, near: bool, level: bool, bounds: TransferBounds) -> bool {
        if let TransferStage::Waiting(from) = self.stage
            && now >= from
        {
            self.stage = if near {
                TransferStage::Closing(now.plus_us(bounds.pause_max_us))
            } else {
                TransferStage::Waiting(now.plus_us(bounds.check_interval_us))
            };
        }
        match self.stage {
            TransferStage::Closing(_) if level => {
                self.stage = TransferStage::Handed(now.plus_us(bounds.pause_max_us));
                return true;
            }
            TransferStage::Closing(until) if now >= until => {
                self.stage = TransferStage::Waiting(now.plus_us(bounds.pause_interval_min_us));
            }
            TransferStage::Handed(until) if now >= until => self.stage = TransferStage::Open,
            TransferStage::Waiting(_)
            | TransferStage::Closing(_)
            | TransferStage::Handed(_)
            | TransferStage::Open => {}
        }
        false
    }

    /// Records that this leader cannot continue, because too many members have promised the
    /// target's ballot. The target is elected, or never will be. Returns whether this state has
    /// lasted longer than an election takes.
    pub fn has_failed(&mut self, now: Time, election_us: u64) -> bool {
        let since = *self.campaign_seen.get_or_insert(now);
        now.since_us(since) > election_us
    }

    /// Returns the time of the transfer's next step. On a node that no longer leads, that is the
    /// deadline.
    pub fn wake_at(&self, leads: bool) -> Time {
        match self.stage {
            TransferStage::Waiting(at) | TransferStage::Closing(at) | TransferStage::Handed(at)
                if leads =>
            {
                at.min(self.deadline)
            }
            TransferStage::Waiting(_)
            | TransferStage::Closing(_)
            | TransferStage::Handed(_)
            | TransferStage::Open => self.deadline,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: TransferBounds =
        TransferBounds { pause_max_us: 100, pause_interval_min_us: 200, check_interval_us: 20 };

    fn at(now: u64) -> Time {
        Time(now)
    }

    #[test]
    fn proposals_pause_briefly_at_the_end_of_a_transfer() {
        let mut transfer = Transfer::new(NodeId(2), at(0), at(2000));
        assert!(!transfer.advance(at(0), false, false, BOUNDS));
        assert!(!transfer.pauses_proposals(), "the target is far behind");
        assert_eq!(transfer.wake_at(true), at(20));
        assert!(!transfer.advance(at(19), true, true, BOUNDS));
        assert!(!transfer.advance(at(20), true, false, BOUNDS));
        assert!(transfer.pauses_proposals());
        // The target does not catch up: proposals continue, and a later attempt succeeds.
        assert!(!transfer.advance(at(120), true, false, BOUNDS));
        assert!(!transfer.pauses_proposals());
        assert!(!transfer.advance(at(319), true, true, BOUNDS));
        assert!(transfer.advance(at(320), true, true, BOUNDS), "the token");
        assert!(transfer.pauses_proposals() && transfer.is_handed());
        assert!(!transfer.advance(at(350), true, true, BOUNDS), "once");
        // The target's disk is slow, so proposals do not wait for it.
        assert!(!transfer.advance(at(420), true, true, BOUNDS));
        assert!(!transfer.pauses_proposals() && transfer.is_handed());
        assert_eq!(transfer.wake_at(true), at(2000));
    }

    #[test]
    fn target_has_an_election_timeout_to_campaign() {
        let mut transfer = Transfer::new(NodeId(2), at(0), at(2000));
        assert!(!transfer.has_failed(at(500), 200));
        assert!(!transfer.has_failed(at(700), 200));
        assert!(transfer.has_failed(at(701), 200));
    }
}
