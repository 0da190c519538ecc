//! Detection of an idle device, for operators. The node cannot know the cause, but it observes the
//! group's activity.

use quorate_core::{node_id::NodeId, slot::Slot, time::Time};

/// Minimum duration in milliseconds of idleness before it is reported.
const IDLE_REPORT_MS: u64 = 3_000;
/// Minimum number of slots that the group must decide while the device is idle.
const IDLE_SLOTS_MIN: u64 = 64;

/// State of the group as seen by the node with the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupView {
    pub(crate) has_vote: bool,
    /// The group is durable, so that votes by devices are only hints.
    pub(crate) is_durable: bool,
    pub(crate) is_leader: bool,
    pub(crate) leader: Option<NodeId>,
    pub(crate) decided_to: Slot,
}

/// Start of each kind of idleness, and the first slot that was undecided then.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IdlePeriods {
    /// Set while the device is armed and does not vote.
    not_voting_since: Option<(Time, Slot)>,
    /// Set while the device is usable but not armed.
    not_armed_since: Option<(Time, Slot)>,
}

impl IdlePeriods {
    pub(crate) const fn record_vote(&mut self) {
        self.not_voting_since = None;
    }

    /// Returns a remark on the device if it is idle. `used` and `armed` are its current state.
    pub(crate) fn idle_remark(
        &mut self,
        now: Time,
        group: &GroupView,
        (used, armed): (bool, bool),
    ) -> Option<String> {
        let decided_to = group.decided_to;
        let since = |at: &mut Option<(Time, Slot)>, is: bool| {
            if !is {
                *at = None;
                return None;
            }
            let (since, slot) = *at.get_or_insert((now, decided_to));
            let slots = decided_to.0.saturating_sub(slot.0);
            (now >= since.plus_ms(IDLE_REPORT_MS) && slots >= IDLE_SLOTS_MIN).then_some(slots)
        };
        let silent = since(&mut self.not_voting_since, armed);
        let unasked = since(&mut self.not_armed_since, used && !armed && group.has_vote);
        if let Some(slots) = silent {
            return Some(format!(
                "it voted for none of the last {slots} slots: the group decides without it, or it hears nothing"
            ));
        }
        let leader = group.leader.filter(|_| !group.is_leader);
        unasked.and(leader).map(|leader| {
            format!("node {leader}, which leads, asks for no votes: it uses no device")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(decided_to: u64) -> GroupView {
        GroupView {
            has_vote: true,
            is_durable: false,
            is_leader: false,
            leader: Some(NodeId(7)),
            decided_to: Slot(decided_to),
        }
    }

    fn at(ms: u64) -> Time {
        Time(0).plus_ms(ms)
    }

    #[test]
    fn device_without_votes_while_slots_are_decided_is_reported() {
        let mut idling = IdlePeriods::default();
        let mut note = |ms, decided| idling.idle_remark(at(ms), &group(decided), (true, true));
        assert_eq!(note(0, 100), None);
        assert_eq!(note(2_999, 900), None, "not for long yet");
        let said = note(3_000, 900).unwrap();
        assert!(said.starts_with("it voted for none of the last 800 slots"), "{said}");
        idling.record_vote();
        let mut note = |ms, decided| idling.idle_remark(at(ms), &group(decided), (true, true));
        assert_eq!(note(3_001, 900), None);
        assert_eq!(note(9_000, 910), None, "nothing to vote for");
    }

    #[test]
    fn leader_that_requests_no_votes_is_reported() {
        let mut idling = IdlePeriods::default();
        let idle = (true, false);
        assert_eq!(idling.idle_remark(at(0), &group(1), idle), None);
        let said = idling.idle_remark(at(3_000), &group(65), idle).unwrap();
        assert!(said.starts_with("node 7, which leads, asks for no votes"), "{said}");
        // The node leads; or it is not a voter.
        for other in
            [GroupView { is_leader: true, ..group(65) }, GroupView { has_vote: false, ..group(65) }]
        {
            assert_eq!(idling.idle_remark(at(3_000), &other, idle), None);
        }
        assert_eq!(idling.idle_remark(at(4_000), &group(200), (false, false)), None);
    }
}
