//! Latest leadership changes seen by this node, for operators who investigate an incident.

use std::collections::VecDeque;

use quorate_core::{ballot::Ballot, node_id::NodeId, time::Time};

use crate::ports::status::LeaderChange;

/// Maximum number of changes that are retained.
const CHANGES_MAX: usize = 32;

/// The latest changes of leader, oldest first.
#[derive(Debug, Default)]
pub(crate) struct LeaderHistory {
    changes: VecDeque<(Time, Option<NodeId>, Ballot)>,
}

impl LeaderHistory {
    /// Records a change of leader. The absence of a leader is recorded with the last ballot.
    pub(crate) fn record_leader(&mut self, now: Time, leader: Option<NodeId>, ballot: Ballot) {
        let last = self.changes.back();
        let same = last.is_some_and(|(_, known, in_ballot)| {
            *known == leader && (leader.is_none() || *in_ballot == ballot)
        });
        if same || (last.is_none() && leader.is_none()) {
            return;
        }
        if self.changes.len() >= CHANGES_MAX {
            self.changes.pop_front();
        }
        self.changes.push_back((now, leader, ballot));
    }

    /// Returns the changes, with the age of each.
    pub(crate) fn recent_changes(&self, now: Time) -> Vec<LeaderChange> {
        let seen = |(at, leader, ballot): &(Time, Option<NodeId>, Ballot)| LeaderChange {
            leader: *leader,
            ballot: *ballot,
            age_ms: now.since_us(*at) / 1000,
        };
        self.changes.iter().map(seen).collect()
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::ballot::Era;

    use super::*;

    fn ballot(round: u32) -> Ballot {
        Ballot { era: Era(0), round, node: NodeId(1) }
    }

    #[test]
    fn only_the_latest_changes_of_leader_are_remembered() {
        let mut reigns = LeaderHistory::default();
        reigns.record_leader(Time(0), None, ballot(0));
        assert_eq!(reigns.recent_changes(Time(0)), [], "it starts without a leader");
        let led = Some(NodeId(1));
        for (at, leader, round) in [(1, led, 1), (2, led, 1), (3, None, 1), (4, None, 2)] {
            reigns.record_leader(Time(at * 1000), leader, ballot(round));
        }
        reigns.record_leader(Time(5000), led, ballot(2));
        let seen: Vec<_> = reigns
            .recent_changes(Time(9000))
            .iter()
            .map(|reign| (reign.leader, reign.ballot.round, reign.age_ms))
            .collect();
        assert_eq!(seen, [(led, 1, 8), (None, 1, 6), (led, 2, 4)]);
        for round in 3..100 {
            reigns.record_leader(Time(9000), led, ballot(round));
        }
        let seen = reigns.recent_changes(Time(9000));
        assert_eq!(seen.len(), CHANGES_MAX);
        assert_eq!(seen.last().map(|reign| reign.ballot.round), Some(99));
    }
}
