//! Tells subscribers of `+switch-master` that the leader has changed, as a Sentinel does.

use quorate_core::node_id::NodeId;
use quorate_replica::front::Requests;

use super::{
    RespFront,
    channels::MatchedBy,
    topology::{self, MASTER_NAME},
};

const SWITCH_MASTER: &[u8] = b"+switch-master";
/// Maximum number of names for the group that clients' requests are remembered by.
const NAMES_MAX: usize = 16;

/// What subscribers of `+switch-master` know.
#[derive(Debug, Default)]
pub(super) struct Switching {
    /// Names that clients have used for the group, the last one first. Some clients ignore
    /// messages about another name, and a node has none of its own.
    names: Vec<String>,
    /// The last leader, with its host and port, since there have been subscribers.
    master: Option<(NodeId, String, String)>,
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
}

impl RespFront {
    /// Sends `+switch-master` if the leader has changed. Called at every turn.
    pub(super) fn tell_new_master(&mut self, requests: &dyn Requests) {
        if !self.shared.channels.has_receivers() {
            self.shared.switching.master = None;
            return;
        }
        let known = self.shared.switching.master.as_ref().map(|(node, ..)| *node);
        if let Some(leader) = requests.leader().filter(|leader| Some(*leader) != known) {
            self.tell_of(leader, requests);
        }
    }

    #[cold]
    fn tell_of(&mut self, leader: NodeId, requests: &dyn Requests) {
        let receivers = self.shared.channels.receivers(SWITCH_MASTER);
        let status = requests.status();
        let Some(place) = topology::master(&status).filter(|_| status.leader == Some(leader))
        else {
            // Its address for clients is not known yet.
            return;
        };
        let switching = &mut self.shared.switching;
        let (host, port) = (place.host.to_owned(), place.port.to_owned());
        let Some((_, old_host, old_port)) = switching.master.replace((leader, host, port)) else {
            return;
        };
        let names = switching.names.iter().map(String::as_str);
        let names = names.filter(|name| *name != MASTER_NAME).chain([MASTER_NAME]);
        let messages: Vec<String> = names
            .map(|name| format!("{name} {old_host} {old_port} {} {}", place.host, place.port))
            .collect();
        for (listener, pattern) in receivers {
            let how = pattern.as_deref().map_or(MatchedBy::Channel, MatchedBy::Pattern);
            for message in &messages {
                self.send_to_subscriber(listener, how, SWITCH_MASTER, message.as_bytes());
            }
        }
    }
}
