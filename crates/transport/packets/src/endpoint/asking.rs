//! Requests for missing datagrams. They go first to an acceptor, then to the owner ([pkt-7]).

use std::collections::BTreeMap;

use quorate_core::{node_id::NodeId, time::Time};

use crate::{
    body::{Body, ChannelName, ChannelNumbers, RANGES_MAX, Report},
    endpoint::Endpoint,
};

impl Endpoint {
    /// Sends the requests and reports that are due.
    pub(super) fn send_due_requests(&mut self, now: Time) {
        let nodes: Vec<NodeId> = self.received_channels.keys().copied().collect();
        for owner in nodes {
            let heard = self.received_channels.get_mut(&owner).expect("listed above");
            let boot = heard.boot;
            let mut results = Vec::new();
            for (&channel, listened) in &mut heard.channels {
                let mut happened = Vec::new();
                let asks = listened.inbound.poll(now, &mut heard.quota, &mut happened);
                let report = listened.due_report(now, self.limits.report_interval_us_min);
                results.push((channel, listened.is_unicast, asks, report, happened));
            }
            for (channel, to_one, asks, report, happened) in results {
                let of = ChannelName { owner, boot, channel };
                self.publish_events(of, happened);
                let mut by_source: BTreeMap<NodeId, Vec<_>> = BTreeMap::new();
                for (range, tries) in asks {
                    let source = self.repair_source(owner, to_one, tries);
                    by_source.entry(source).or_default().push(range);
                }
                for (source, ranges) in by_source {
                    let Some(to) = self.gate.peer(source) else {
                        continue;
                    };
                    self.counters.ranges_requested += ranges.len() as u64;
                    for ranges in ranges.chunks(RANGES_MAX) {
                        let ranges = ranges.to_vec();
                        self.control.queue_datagram(
                            Some(to),
                            &Body::Nak(ChannelNumbers { channel: of, ranges }),
                        );
                    }
                }
                if let (Some((missed, lost, to)), Some(peer)) = (report, self.gate.peer(owner)) {
                    let missed = ChannelNumbers { channel: of, ranges: missed };
                    let report =
                        Report { missed_numbers: missed, lost_total: lost, covers_below: to };
                    self.control.queue_datagram(Some(peer), &Body::Report(report));
                }
            }
        }
    }

    /// [pkt-7] Returns the node to send a request to. Attempts alternate between acceptors,
    /// beginning with this node's preferred one, and the owner. Preferences follow node ids, so
    /// requests spread evenly over the acceptors.
    fn repair_source(&self, owner: NodeId, to_one: bool, tries: u32) -> NodeId {
        let usable = |node: &&NodeId| {
            **node != owner && **node != self.own_member.node && self.gate.peer(**node).is_some()
        };
        let acceptors: Vec<NodeId> = self.repair_acceptors.iter().filter(usable).copied().collect();
        if to_one || acceptors.is_empty() || tries % 2 == 1 {
            return owner;
        }
        let count = acceptors.len() as u64;
        let at = (u64::from(self.own_member.node.0) + u64::from(tries / 2)) % count;
        acceptors[usize::try_from(at).expect("below the count")]
    }
}

impl super::ReceivedChannel {
    /// Returns new losses to report to the channel's owner, if a report is due.
    fn due_report(
        &mut self,
        now: Time,
        every_us: u64,
    ) -> Option<(Vec<std::ops::Range<u64>>, u64, u64)> {
        if now < self.next_report_at {
            return None;
        }
        let missed = self.inbound.take_unreported_losses();
        if missed.is_empty() {
            return None;
        }
        self.next_report_at = now.plus_us(every_us);
        Some((missed, self.inbound.requested_total(), self.inbound.known_end()))
    }
}
