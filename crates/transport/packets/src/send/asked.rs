//! Responses to requests for a channel's lost packets. If one node requests a packet, it gets a
//! repair; if several do, the packet is sent to the multicast group again ([pkt-7]).

use std::collections::BTreeMap;

use quorate_core::{node_id::NodeId, time::Time};

/// Maximum number of requested packets to remember. Beyond it, the oldest is forgotten.
const REQUESTS_MAX: usize = 4096;

/// Response to a NAK for one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairResponse {
    /// Send a repair to the node that requests the packet.
    ToRequester,
    /// Send the datagram to the multicast group again.
    ToGroup,
    /// Send nothing, because the datagram is already on its way.
    NoResponse,
}

/// Recently requested packets of a channel.
#[derive(Clone, Debug, Default)]
pub struct RepairRequests(BTreeMap<u64, Entry>);

#[derive(Clone, Copy, Debug)]
struct Entry {
    requester: NodeId,
    requested_at: Time,
    /// Latest time at which the packet was sent to the group again.
    sent_to_group_at: Option<Time>,
}

impl RepairRequests {
    /// [pkt-7] Decides how to respond to a request. When a second node requests a packet, the group
    /// gets it once, and further requests are ignored for a round trip. If the same node requests
    /// it again, it gets another repair.
    pub fn decide_response(
        &mut self,
        number: u64,
        by: NodeId,
        now: Time,
        rtt_us: u64,
    ) -> RepairResponse {
        let fresh = Entry { requester: by, requested_at: now, sent_to_group_at: None };
        let Some(entry) = self.0.get_mut(&number) else {
            self.make_room(now, rtt_us);
            self.0.insert(number, fresh);
            return RepairResponse::ToRequester;
        };
        if let Some(at) = entry.sent_to_group_at {
            if now.since_us(at) < rtt_us {
                return RepairResponse::NoResponse;
            }
            *entry = fresh;
            return RepairResponse::ToRequester;
        }
        if entry.requester == by || now.since_us(entry.requested_at) >= SAME_LOSS_RTTS * rtt_us {
            *entry = fresh;
            return RepairResponse::ToRequester;
        }
        entry.sent_to_group_at = Some(now);
        RepairResponse::ToGroup
    }

    /// Forgets a request whose repair could not be sent.
    pub fn forget_request(&mut self, number: u64) {
        self.0.remove(&number);
    }

    fn make_room(&mut self, now: Time, rtt_us: u64) {
        if self.0.len() < REQUESTS_MAX {
            return;
        }
        let young = |entry: &Entry| now.since_us(entry.requested_at) < SAME_LOSS_RTTS * rtt_us;
        self.0.retain(|_, entry| young(entry));
        if self.0.len() >= REQUESTS_MAX {
            self.0.pop_first();
        }
    }
}

/// Number of round trips after which a request for the same packet counts as a different loss.
const SAME_LOSS_RTTS: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// [pkt-7] After requests from two nodes, the multicast group gets the datagram once. Requests
    /// are ignored for a round trip, and then repairs resume.
    #[test]
    fn requests_of_two_nodes_are_answered_once_by_multicast() {
        let mut asked = RepairRequests::default();
        let mut judge = |node, now| asked.decide_response(7, NodeId(node), Time(now), 100);
        assert_eq!(judge(2, 0), RepairResponse::ToRequester);
        assert_eq!(judge(2, 10), RepairResponse::ToRequester);
        assert_eq!(judge(3, 20), RepairResponse::ToGroup);
        assert_eq!(judge(4, 30), RepairResponse::NoResponse);
        assert_eq!(judge(2, 119), RepairResponse::NoResponse);
        assert_eq!(judge(2, 120), RepairResponse::ToRequester);
        assert_eq!(judge(3, 121), RepairResponse::ToGroup);
        // Much later, it counts as another loss.
        assert_eq!(
            asked.decide_response(9, NodeId(2), Time(1_000), 100),
            RepairResponse::ToRequester
        );
        assert_eq!(
            asked.decide_response(9, NodeId(3), Time(1_400), 100),
            RepairResponse::ToRequester
        );
    }

    #[test]
    fn number_of_remembered_requests_is_bounded() {
        let mut asked = RepairRequests::default();
        for number in 0..3 * REQUESTS_MAX as u64 {
            asked.decide_response(number, NodeId(2), Time(number), 1_000_000);
        }
        assert_eq!(asked.0.len(), REQUESTS_MAX);
    }
}
