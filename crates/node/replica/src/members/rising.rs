//! Timing of a raise of the group's feature level: the levels that other nodes' releases support,
//! and the conditions for which this node waits ([level-4], [level-6]).
//!
//! This module contains only the state. The replica queries the nodes and proposes the raise
//! (`levels`), and the group's table decides whether it takes effect.

use std::collections::BTreeMap;

use quorate_core::{level::Level, node_id::NodeId, time::Time, witness};

use crate::defaults;

/// Time in milliseconds after which a raise that was proposed but not executed is proposed again. A
/// device that assigns slots refuses the first proposal and is then left unused for a while
/// (`devices`); the next proposal must be made within that time.
const RETRY_MS: u64 = 200;
/// Time in milliseconds after which an operator's request for a level is answered even if the level
/// was not reached.
const REQUEST_TIMEOUT_MS: u64 = 10_000;
/// Boot number of the first process of a folder.
pub(crate) const FIRST_BOOT: u32 = 1;
/// Maximum number of disconnected nodes whose levels are remembered.
const REMEMBERED_NODES_MAX: usize = 128;

/// Policy of a leader for raising the level without an operator's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RaisePolicy {
    /// Only an operator raises the level.
    OnRequest,
    /// The leader raises the level the given number of milliseconds after its first contact with
    /// the last upgraded node.
    AfterDelay(u64),
}

impl Default for RaisePolicy {
    fn default() -> Self {
        Self::AfterDelay(defaults::LEVEL_RAISE_DELAY_MS)
    }
}

impl RaisePolicy {
    /// Parses `auto` or `hold`; `None` for other text.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "auto" => Some(Self::default()),
            "hold" => Some(Self::OnRequest),
            _ => None,
        }
    }
}

/// Level that another node supports, as known to this process.
#[derive(Clone, Copy, Debug)]
struct NodeLevel {
    supported_level: Level,
    /// Time at which this process first saw the node support that level.
    first_seen_at: Time,
    is_connected: bool,
    /// The process is the first in its folder, so no older release has used the folder.
    is_first_boot: bool,
}

/// Levels of the other nodes, and pending raises.
#[derive(Debug)]
pub(crate) struct LevelRaises {
    /// Highest level that this release supports.
    supported_level: Level,
    policy: RaisePolicy,
    /// Start of this process.
    started_at: Time,
    /// This process is the first in its folder, which began empty.
    is_first_boot: bool,
    node_levels: BTreeMap<NodeId, NodeLevel>,
    /// All connected nodes understand statements about the end of this node's log ([lie-1]).
    all_support_log_statements: bool,
    /// Level that, according to its mark, the folder may require ([level-8]).
    marked_level: Level,
    /// Level with which the folder must still be marked.
    level_to_mark: Option<Level>,
    /// Earliest time of the next proposal.
    retry_at: Time,
    /// Operators' requests for a level: number, level and deadline of each.
    level_requests: Vec<(u64, Level, Time)>,
}

impl LevelRaises {
    pub(crate) fn new(
        now: Time,
        supports: Level,
        marked: Level,
        raising: RaisePolicy,
        is_first: bool,
    ) -> Self {
        Self {
            supported_level: supports,
            policy: raising,
            started_at: now,
            is_first_boot: is_first,
            node_levels: BTreeMap::new(),
            all_support_log_statements: false,
            marked_level: marked,
            level_to_mark: None,
            retry_at: now,
            level_requests: Vec::new(),
        }
    }

    pub(crate) fn supported_level(&self) -> Level {
        self.supported_level
    }

    /// [level-4] Records that the node's process number `boot` connected, and the highest level
    /// that it supports.
    pub(crate) fn record_connection(&mut self, now: Time, node: NodeId, boot: u32, newest: Level) {
        let same = self.node_levels.get(&node).filter(|heard| heard.supported_level == newest);
        let since = same.map_or(now, |heard| heard.first_seen_at);
        let heard = NodeLevel {
            supported_level: newest,
            first_seen_at: since,
            is_connected: true,
            is_first_boot: boot == FIRST_BOOT,
        };
        self.node_levels.insert(node, heard);
        // Bounded, because a client that knows the cluster's id may claim any node's id.
        if self.node_levels.len() > REMEMBERED_NODES_MAX {
            self.node_levels.retain(|_, heard| heard.is_connected);
        }
        self.check_log_statement_support();
    }

    /// Marks a node as disconnected, since it may return with a different release.
    pub(crate) fn record_disconnection(&mut self, node: NodeId) {
        if let Some(heard) = self.node_levels.get_mut(&node) {
            heard.is_connected = false;
        }
        self.check_log_statement_support();
    }

    fn check_log_statement_support(&mut self) {
        let mut connected = self.node_levels.values().filter(|heard| heard.is_connected);
        self.all_support_log_statements = self.supported_level >= witness::MIN_LEVEL
            && connected.all(|heard| heard.supported_level >= witness::MIN_LEVEL);
    }

    /// [lie-1] Returns whether all connected nodes understand statements about the end of this
    /// node's log.
    pub(crate) fn all_support_log_statements(&self) -> bool {
        self.all_support_log_statements
    }

    /// [lie-3] Returns whether this release and the connected process of this node both understand
    /// reminders.
    pub(crate) fn can_remind(&self, node: NodeId) -> bool {
        self.supported_level >= witness::MIN_LEVEL
            && self.supported_level_of(node) >= Some(witness::MIN_LEVEL)
    }

    /// Returns the highest level that this node's connected process supports; `None` if the node is
    /// not connected.
    pub(crate) fn supported_level_of(&self, node: NodeId) -> Option<Level> {
        let heard = self.node_levels.get(&node).filter(|heard| heard.is_connected)?;
        Some(heard.supported_level)
    }

    /// [level-6] Returns the time at which all of the given nodes will have supported their current
    /// levels for long enough; `None` if only an operator raises the level. [level-11] In a group
    /// as it was `founded`, folders that no older release has used need no waiting time.
    pub(crate) fn raise_due_at(
        &self,
        others: impl Iterator<Item = NodeId>,
        founded: bool,
    ) -> Option<Time> {
        let RaisePolicy::AfterDelay(ms) = self.policy else {
            return None;
        };
        let heard: Vec<_> = others.filter_map(|node| self.node_levels.get(&node)).collect();
        let since = heard.iter().map(|node| node.first_seen_at);
        let last = since.chain([self.started_at]).max()?;
        let unused = founded && self.is_first_boot && heard.iter().all(|node| node.is_first_boot);
        Some(last.plus_ms(if unused { 0 } else { ms }))
    }

    /// Returns whether an operator's request for a level is pending.
    pub(crate) fn has_request(&self) -> bool {
        !self.level_requests.is_empty()
    }

    pub(crate) fn request_level(&mut self, now: Time, asked: u64, to: Level) {
        self.level_requests.push((asked, to, now.plus_ms(REQUEST_TIMEOUT_MS)));
    }

    /// Removes and returns the requests whose level has been reached.
    pub(crate) fn take_reached(&mut self, level: Level) -> Vec<u64> {
        let done = self.level_requests.extract_if(.., |(_, to, _)| *to <= level);
        done.map(|(asked, ..)| asked).collect()
    }

    /// Removes and returns the requests whose level was not reached in time, or all requests if
    /// this node no longer leads.
    pub(crate) fn take_expired(&mut self, now: Time, leads: bool) -> Vec<u64> {
        let over = self.level_requests.extract_if(.., |(_, _, until)| !leads || now >= *until);
        over.map(|(asked, ..)| asked).collect()
    }

    /// [level-8] Returns whether the folder is marked as possibly requiring this level. If it is
    /// not, requests the mark.
    pub(crate) fn may_store_level(&mut self, level: Level) -> bool {
        if level > self.marked_level {
            self.level_to_mark = Some(level);
        }
        level <= self.marked_level
    }

    pub(crate) fn take_level_to_mark(&mut self) -> Option<Level> {
        self.level_to_mark.take()
    }

    pub(crate) fn on_marked(&mut self, level: Level) {
        self.marked_level = self.marked_level.max(level);
    }

    /// Lets the next raise follow immediately, as one was executed.
    pub(crate) fn on_raised(&mut self) {
        self.retry_at = Time(0);
    }

    /// Returns whether a raise may be proposed now. If so, delays the next one.
    pub(crate) fn take_turn(&mut self, now: Time) -> bool {
        let may = now >= self.retry_at;
        if may {
            self.retry_at = now.plus_ms(RETRY_MS);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(2);

    fn at(ms: u64) -> Time {
        Time(0).plus_ms(ms)
    }

    fn rising(raising: RaisePolicy) -> LevelRaises {
        LevelRaises::new(at(0), Level(9), Level(8), raising, false)
    }

    /// [level-4] The levels that a process supports count only while it is connected.
    #[test]
    fn reported_level_counts_only_while_connected() {
        let mut rising = rising(RaisePolicy::OnRequest);
        assert_eq!(rising.supported_level_of(NODE), None);
        rising.record_connection(at(1), NODE, 2, Level(9));
        assert_eq!(rising.supported_level_of(NODE), Some(Level(9)));
        rising.record_disconnection(NODE);
        assert_eq!(rising.supported_level_of(NODE), None);
        rising.record_connection(at(2), NODE, 2, Level(8));
        assert_eq!(rising.supported_level_of(NODE), Some(Level(8)));
    }

    /// [level-6] The delay counts from the last node that returned with another release; a mere
    /// reconnection does not restart it.
    #[test]
    fn raise_delay_counts_from_the_last_release_change() {
        let due = |rising: &LevelRaises| rising.raise_due_at([NODE, NodeId(3)].into_iter(), true);
        let mut held = rising(RaisePolicy::OnRequest);
        held.record_connection(at(1), NODE, 2, Level(9));
        assert_eq!(due(&held), None);
        let mut rising = rising(RaisePolicy::AfterDelay(1_000));
        assert_eq!(due(&rising), Some(at(1_000)), "from its own start");
        rising.record_connection(at(10), NODE, 2, Level(8));
        rising.record_connection(at(20), NodeId(3), 2, Level(9));
        rising.record_connection(at(30), NodeId(4), 2, Level(9));
        assert_eq!(due(&rising), Some(at(1_020)), "node 4 is no node of the group");
        rising.record_connection(at(500), NODE, 2, Level(9));
        assert_eq!(due(&rising), Some(at(1_500)));
        rising.record_disconnection(NODE);
        rising.record_connection(at(900), NODE, 2, Level(9));
        assert_eq!(due(&rising), Some(at(1_500)));
    }

    /// [level-11] A raise needs no waiting time if each process is the first in its folder and the
    /// group is as founded.
    #[test]
    fn new_folders_need_no_raise_delay() {
        let nodes = || [NODE, NodeId(3)].into_iter();
        let mut rising = rising(RaisePolicy::AfterDelay(1_000));
        rising.is_first_boot = true;
        rising.record_connection(at(10), NODE, 1, Level(9));
        rising.record_connection(at(20), NodeId(3), 1, Level(9));
        assert_eq!(rising.raise_due_at(nodes(), true), Some(at(20)));
        assert_eq!(
            rising.raise_due_at(nodes(), false),
            Some(at(1_020)),
            "the members have changed"
        );
        rising.record_connection(at(30), NODE, 2, Level(9));
        assert_eq!(
            rising.raise_due_at(nodes(), true),
            Some(at(1_020)),
            "a process before it is unknown"
        );
        rising.record_connection(at(30), NODE, 1, Level(9));
        rising.is_first_boot = false;
        assert_eq!(rising.raise_due_at(nodes(), true), Some(at(1_020)));
    }

    /// [level-8] Data that requires a level is not stored before the folder is marked with it.
    #[test]
    fn nothing_is_stored_before_the_folder_is_marked() {
        let mut rising = rising(RaisePolicy::OnRequest);
        assert!(rising.may_store_level(Level(8)));
        assert_eq!(rising.take_level_to_mark(), None);
        assert!(!rising.may_store_level(Level(9)));
        assert_eq!(rising.take_level_to_mark(), Some(Level(9)));
        rising.on_marked(Level(9));
        assert!(rising.may_store_level(Level(9)));
    }

    #[test]
    fn raise_requests_are_answered_once() {
        let mut rising = rising(RaisePolicy::OnRequest);
        rising.request_level(at(0), 1, Level(9));
        rising.request_level(at(5), 2, Level(9));
        assert_eq!(rising.take_reached(Level(8)), []);
        assert_eq!(rising.take_expired(at(10_000), true), [1]);
        assert_eq!(rising.take_reached(Level(9)), [2]);
        rising.request_level(at(9), 3, Level(9));
        assert_eq!(rising.take_expired(at(9), false), [3]);
        assert!(!rising.has_request());
    }

    #[test]
    fn number_of_remembered_nodes_is_bounded() {
        let mut rising = rising(RaisePolicy::OnRequest);
        for node in 1..10_000 {
            rising.record_connection(at(1), NodeId(node), 2, Level(9));
            rising.record_disconnection(NodeId(node));
        }
        assert!(rising.node_levels.len() <= REMEMBERED_NODES_MAX + 1);
    }
}
