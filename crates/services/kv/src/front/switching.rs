//! Tells subscribers of `+switch-master` that the leader has changed, as a Sentinel does.

use quorate_core::node_id::NodeId;
use quorate_replica::{front::Requests, status::Status};

use super::topology::{self, MASTER_NAME};

pub(super) const SWITCH_MASTER: &[u8] = b"+switch-master";
/// Maximum number of names for the group that clients' requests are remembered by.
const NAMES_MAX: usize = 16;
/// Minimum time between two searches for the address of a new leader.
const SEARCH_MS: u64 = 10;

/// What subscribers of `+switch-master` know.
#[derive(Debug, Default)]
pub(super) struct Switching {
    /// Names that clients have used for the group, the last one first. Some clients ignore
    /// messages about another name, and a node has none of its own.
    names: Vec<String>,
    /// The last leader, with its host and port, since there have been subscribers.
    master: Option<(NodeId, String, String)>,
    /// Time of the last search for a new leader's address, in milliseconds.
    searched_ms: u64,
}

impl Switching {
    /// Remembers the name that a client uses for the group.
    pub(super) fn learn_name(&mut self, name: &[u8]) {
        let Ok(name) = std::str::from_utf8(name) else { return };
        if name.len() > 64 || name.contains(|of: char| of.is_whitespace() || of.is_control()) {
            return;
        }
        self.names.retain(|known| known != name);
        self.names.truncate(NAMES_MAX - 1);
        self.names.insert(0, name.to_owned());
    }

    /// Forgets the leader while there are no subscribers.
    pub(super) fn rest(&mut self) {
        self.master = None;
    }

    /// Returns the messages about a new leader, if there is one.
    pub(super) fn messages(&mut self, requests: &dyn Requests) -> Vec<String> {
        let known = self.master.as_ref().map(|(node, ..)| *node);
        match requests.leader() {
            Some(leader) if Some(leader) != known && self.may_search(requests.wall_ms()) => {
                self.messages_of(leader, &requests.status())
            }
            _ => Vec::new(),
        }
    }

    /// Returns whether to search again. The status is expensive, and each turn might ask for it.
    const fn may_search(&mut self, now_ms: u64) -> bool {
        let due = now_ms.abs_diff(self.searched_ms) >= SEARCH_MS;
        if due {
            self.searched_ms = now_ms;
        }
        due
    }

    #[cold]
    fn messages_of(&mut self, leader: NodeId, status: &Status) -> Vec<String> {
        // Its address for clients may not be known yet.
        let Some(place) = topology::master(status).filter(|_| status.leader == Some(leader)) else {
            return Vec::new();
        };
        let master = (leader, place.host.to_owned(), place.port.to_owned());
        let Some((_, old_host, old_port)) = self.master.replace(master) else {
            return Vec::new();
        };
        let names = self.names.iter().map(String::as_str);
        let names = names.filter(|name| *name != MASTER_NAME).chain([MASTER_NAME]);
        names
            .map(|name| format!("{name} {old_host} {old_port} {} {}", place.host, place.port))
            .collect()
    }
}
