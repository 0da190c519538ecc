//! Notifies subscribers of `+switch-master` of a new leader, as a Sentinel does.

use quorate_core::node_id::NodeId;
use quorate_replica::{front::Requests, status::Status};

use super::topology::{self, MASTER_NAME};

pub(super) const SWITCH_MASTER: &[u8] = b"+switch-master";
/// Maximum number of stored names for the group.
const NAMES_MAX: usize = 16;
/// Minimum time between two searches for the address of a new leader.
const SEARCH_MS: u64 = 10;

/// State of the notifications.
#[derive(Debug, Default)]
pub(super) struct MasterSwitchNotices {
    /// Names that clients have used for the group, most recent first. Some clients ignore messages
    /// with another name, and the group has no name of its own.
    group_names: Vec<String>,
    /// Last leader seen while there were subscribers, with its host and port.
    master: Option<(NodeId, String, String)>,
    /// Time in milliseconds of the last search for a new leader's address.
    searched_ms: u64,
}

impl MasterSwitchNotices {
    /// Stores the name that a client uses for the group.
    pub(super) fn learn_name(&mut self, name: &[u8]) {
        let Ok(name) = std::str::from_utf8(name) else { return };
        if name.len() > 64 || name.contains(|of: char| of.is_whitespace() || of.is_control()) {
            return;
        }
        self.group_names.retain(|known| known != name);
        self.group_names.truncate(NAMES_MAX - 1);
        self.group_names.insert(0, name.to_owned());
    }

    /// Discards the leader, because there are no subscribers.
    pub(super) fn discard_master(&mut self) {
        self.master = None;
    }

    /// Returns the messages about a new leader; none if the leader is the same.
    pub(super) fn messages(&mut self, requests: &dyn Requests) -> Vec<String> {
        let known = self.master.as_ref().map(|(node, ..)| *node);
        match requests.leader() {
            Some(leader) if Some(leader) != known && self.may_search(requests.wall_ms()) => {
                self.switch_messages(leader, &requests.status())
            }
            _ => Vec::new(),
        }
    }

    /// Returns whether the next search is due. The status is too expensive to read in every turn.
    const fn may_search(&mut self, now_ms: u64) -> bool {
        let due = now_ms.abs_diff(self.searched_ms) >= SEARCH_MS;
        if due {
            self.searched_ms = now_ms;
        }
        due
    }

    #[cold]
    fn switch_messages(&mut self, leader: NodeId, status: &Status) -> Vec<String> {
        // The leader's address for clients may not be available yet.
        let Some(place) = topology::master(status).filter(|_| status.leader == Some(leader)) else {
            return Vec::new();
        };
        let master = (leader, place.host.to_owned(), place.port.to_owned());
        let Some((_, old_host, old_port)) = self.master.replace(master) else {
            return Vec::new();
        };
        let names = self.group_names.iter().map(String::as_str);
        let names = names.filter(|name| *name != MASTER_NAME).chain([MASTER_NAME]);
        names
            .map(|name| format!("{name} {old_host} {old_port} {} {}", place.host, place.port))
            .collect()
    }
}
