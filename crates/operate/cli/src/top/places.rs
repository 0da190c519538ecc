//! Addresses to poll: those given by the user, and those that nodes list for the members.

use std::collections::BTreeSet;

use quorate_admin::{
    look::QUERIED_NODES_MAX,
    view::{Answer, BallotView, NodeView},
};

/// Address to poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PolledAddress {
    pub(super) address: String,
    /// Id of the expected node, if known.
    pub(super) node: Option<u32>,
    /// Set if the user gave the address. Otherwise a node listed it.
    is_from_user: bool,
    /// Set if a request to the address is in flight.
    has_request_in_flight: bool,
    /// Set if the address has never been polled.
    is_unpolled: bool,
}

impl PolledAddress {
    fn new(address: &str, node: Option<u32>, is_given: bool) -> Self {
        Self {
            address: address.to_owned(),
            node,
            is_from_user: is_given,
            has_request_in_flight: false,
            is_unpolled: true,
        }
    }

    /// Returns the only node whose response is accepted from the address, or `None` for an address
    /// given by the user, which may belong to any node.
    pub(super) fn expected_node(&self) -> Option<u32> {
        self.node.filter(|_| !self.is_from_user)
    }
}

/// All addresses to poll.
#[derive(Clone, Debug, Default)]
pub(super) struct PolledAddresses {
    addresses: Vec<PolledAddress>,
    /// Era of the configuration that listed the addresses.
    era: u64,
    /// Leader in the highest ballot that any node reports.
    leader: Option<(BallotView, u32)>,
}

impl PolledAddresses {
    pub(super) fn new(given: &[String]) -> Self {
        let mut seen = BTreeSet::new();
        let given = given.iter().filter(|address| seen.insert(*address));
        let all = given.take(QUERIED_NODES_MAX);
        Self {
            addresses: all.map(|address| PolledAddress::new(address, None, true)).collect(),
            ..Self::default()
        }
    }

    /// Returns the addresses that have no request in flight, or only the ones that were never
    /// polled. Marks them as in flight.
    pub(super) fn take_due(&mut self, new_only: bool) -> Vec<PolledAddress> {
        let mut asked = Vec::new();
        for place in &mut self.addresses {
            if !place.has_request_in_flight && (place.is_unpolled || !new_only) {
                (place.has_request_in_flight, place.is_unpolled) = (true, false);
                asked.push(place.clone());
            }
        }
        asked
    }

    /// Records a response from an address. Adds the id of the expected node if the response lacks
    /// an id.
    pub(super) fn record_response(&mut self, address: &str, mut answer: Answer) -> Answer {
        let place = self.addresses.iter_mut().find(|place| place.address == address);
        if let Some(place) = place {
            place.has_request_in_flight = false;
            match &mut answer {
                Answer::Node(view) => place.node = Some(view.node),
                Answer::Starting { node, .. } | Answer::Unreachable { node, .. } => {
                    *node = node.or(place.node);
                    place.node = *node;
                }
            }
        }
        if let Some(view) = answer.node_view() {
            self.add_members(view);
        }
        answer
    }

    fn add_members(&mut self, view: &NodeView) {
        let claim = view.leader.map(|leader| (view.ballot, leader));
        self.leader = self.leader.max(claim);
        if view.removed || view.members.is_empty() || view.era < self.era {
            return;
        }
        self.era = view.era;
        let members = &view.members[..view.members.len().min(QUERIED_NODES_MAX)];
        let given: BTreeSet<u32> = self
            .addresses
            .iter()
            .filter(|place| place.is_from_user)
            .filter_map(|place| place.node)
            .collect();
        // Removes listed addresses of nodes that were given by the user, are no longer members, or
        // have moved.
        let is_named = |place: &PolledAddress| {
            members.iter().any(|member| {
                Some(member.node) == place.node && member.admin.as_ref() == Some(&place.address)
            })
        };
        self.addresses.retain(|place| {
            place.is_from_user
                || (is_named(place) && !place.node.is_some_and(|node| given.contains(&node)))
        });
        for member in members {
            let Some(admin) = &member.admin else { continue };
            let is_known =
                |place: &PolledAddress| place.node == Some(member.node) || place.address == *admin;
            if self.addresses.len() < 2 * QUERIED_NODES_MAX && !self.addresses.iter().any(is_known)
            {
                self.addresses.push(PolledAddress::new(admin, Some(member.node), false));
            }
        }
    }

    /// Returns the leader and its address, if known.
    pub(super) fn leader(&self) -> Option<(u32, &str)> {
        let (_, leader) = self.leader?;
        let place = self.addresses.iter().find(|place| place.node == Some(leader))?;
        Some((leader, &place.address))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::fixtures::sample_status, *};

    fn addresses(places: &[PolledAddress]) -> Vec<&str> {
        places.iter().map(|place| &*place.address).collect()
    }

    fn says(node: u32) -> Answer {
        Answer::Node(Box::new(sample_status(node)))
    }

    #[test]
    fn all_members_are_found_from_one_address() {
        let mut places = PolledAddresses::new(&["h:1".to_owned(), "h:1".to_owned()]);
        assert_eq!(addresses(&places.take_due(false)), ["h:1"]);
        // No node has two requests in flight.
        assert_eq!(addresses(&places.take_due(false)), [""; 0]);
        places.record_response("h:1", says(1));
        assert_eq!(addresses(&places.take_due(true)), ["admin:2", "admin:3"]);
        assert_eq!(addresses(&places.take_due(false)), ["h:1"]);
        assert_eq!(places.leader(), Some((1, "h:1")));
    }

    #[test]
    fn node_has_one_address_preferably_the_given_one() {
        let mut places = PolledAddresses::new(&["h:1".to_owned(), "h:2".to_owned()]);
        places.take_due(false);
        places.record_response("h:1", says(1));
        assert_eq!(addresses(&places.take_due(true)), ["admin:2", "admin:3"]);
        places.record_response("h:2", says(2));
        places.record_response("admin:3", says(3));
        assert_eq!(addresses(&places.take_due(false)), ["h:1", "h:2", "admin:3"]);
    }

    #[test]
    fn silent_node_keeps_its_id_and_removed_ones_are_not_polled() {
        let mut places = PolledAddresses::new(&["h:1".to_owned()]);
        places.take_due(false);
        places.record_response("h:1", says(1));
        let error = "refused".to_owned();
        let silent = places.record_response("h:1", Answer::Unreachable { node: None, error });
        assert_eq!(silent.node(), Some(1));
        let mut later = sample_status(2);
        later.era += 1;
        later.members.retain(|member| member.node != 3);
        places.record_response("admin:2", Answer::Node(Box::new(later)));
        assert_eq!(addresses(&places.take_due(false)), ["h:1", "admin:2"]);
        // A node in an earlier era changes nothing.
        places.record_response("admin:3", says(3));
        assert_eq!(places.addresses.len(), 2);
    }

    #[test]
    fn hostile_member_list_does_not_flood_addresses() {
        let mut places = PolledAddresses::new(&["h:1".to_owned()]);
        let mut many = sample_status(1);
        let member = many.members[1].clone();
        many.members = (1..100_000)
            .map(|node| {
                let mut member = member.clone();
                member.node = node;
                member.admin = Some(format!("admin:{node}"));
                member
            })
            .collect();
        places.record_response("h:1", Answer::Node(Box::new(many)));
        assert!(places.addresses.len() <= 2 * QUERIED_NODES_MAX);
    }
}
